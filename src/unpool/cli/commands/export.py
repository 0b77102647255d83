"""`unpool export`: a torch module as an ONNX file, compared with the module at several sizes before it is kept."""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.commands.rewrite import data_words
from unpool.cli.errors import UsageError
from unpool.cli.options import Flag, text_option
from unpool.display import format_shape
from unpool.errors import MissingFileError, UnpoolError
from unpool.graph.errors import LONGEST, short_message

if TYPE_CHECKING:
    import onnx
    import torch

    from unpool.torch.exporting.example import Example

LARGEST = 2**31 - 2**24  # bytes of weights that a single file can have
MAX_SHAPES = 12  # that are printed
MODULE_HELP = "Callable that returns the torch module: nets:segnet, nets.py:SegNet."
EXAMPLE_HELP = (
    "Shape of an input: [NAME=]1x3xHxW[:TYPE]. H is a dynamic dimension, 8H has multiples of 8, 2H+1 odd sizes."
)


@command
def export(
    module: Annotated[str, typer.Argument(metavar="MODULE:CALLABLE", help=MODULE_HELP)],
    output: options.ModelOutput,
    example: Annotated[list[str], typer.Option(metavar="SHAPE", help=EXAMPLE_HELP, show_default=False)],
    dynamic: Annotated[bool, Flag("--dynamic", help="Make numeric batch, height and width dynamic, too.")] = False,
    weights: Annotated[Path | None, typer.Option(help="A state_dict for the module.", show_default=False)] = None,
    opset: Annotated[int | None, typer.Option(min=9, help="Opset of the file.", show_default="the exporter's")] = None,
    dynamo: Annotated[bool, Flag("--dynamo/--no-dynamo", help="Use torch.export, or the older exporter.")] = True,
    verify: Annotated[bool, Flag("--verify/--no-verify", help="Compare file and module for several sizes.")] = True,
    scale: Annotated[str | None, text_option("NUMBER", "Metadata: factor for pixels.")] = None,
    mean: Annotated[str | None, text_option("NUMBERS", "Metadata: subtracted after --scale.")] = None,
    std: Annotated[str | None, text_option("NUMBERS", "Metadata: divides after --mean.")] = None,
    white: Annotated[str | None, text_option("NUMBER", "Metadata: the pixel value of white.")] = None,
    classes: Annotated[str | None, text_option("NAMES", "Metadata: class names, comma separated.")] = None,
    palette: Annotated[str | None, text_option("COLOURS", "Metadata: one #rrggbb per class.")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Export a torch module to ONNX, with one MaxUnpool per unpooling, and compare the file with the module.

    Example: unpool export nets:segnet -o segnet.onnx --example 1x3xHxW --dynamic --scale 1/255
    """
    from unpool.cli import metadata
    from unpool.cli.outputs import refuse_stdout
    from unpool.cli.stages import stages
    from unpool.extras import require

    texts = (scale, mean, std, white, palette, classes)
    entries = metadata.entries(dict(zip(metadata.ENTRIES, texts, strict=True)))
    refuse_stdout(output)
    if output.is_dir() or output.suffix != ".onnx":
        raise UsageError(f"-o {output}: expected a file whose name ends in .onnx.")
    require("unpool export", "torch", "torch", "onnxscript")
    from unpool.graph.load import load
    from unpool.graph.save import ModelWriter
    from unpool.torch.exporting.example import example as example_inputs
    from unpool.torch.exporting.verify import verify as verify_file

    inputs = example_inputs(*example, dynamic=dynamic)
    with TemporaryDirectory() as folder, stages(quiet) as begin:
        begin(f"loading {module}")
        torch_module = load_module(module, weights)
        draft = Path(folder) / "model.onnx"
        begin("exporting with torch.export" if dynamo else "exporting by tracing")
        arguments, program = _export(module, torch_module, inputs, draft, opset, dynamo)
        begin("comparing the file with the module")
        verified = verify_file(arguments, draft, program) if verify else None
        begin(f"writing {output}")
        writer = ModelWriter(draft, output)
        model = load(draft)
        for name, text in entries.items():
            model.metadata_props.add(key=name, value=text)
        data = writer.write(model)
    document = {
        "module": module,
        "output": str(output),
        "data": [str(path) for path in data],
        "opsets": {opset.domain: opset.version for opset in model.opset_import},
        "inputs": [shape_words(value) for value in model.graph.input],
        "outputs": [shape_words(value) for value in model.graph.output],
        "metadata": entries,
        "compared": None if verified is None else verified.compared,
        "left_out": None if verified is None else verified.left_out,
    }
    return CommandResult(report_lines(document), document)


def report_lines(document: Mapping[str, Any]) -> list[str]:
    """Lines about the file and its verification."""
    values = " -> ".join(", ".join(document[name]) for name in ("inputs", "outputs"))
    lines = [f"{document['output']}{data_words(document['data'])}: opset {document['opsets']['']}; {values}"]
    if document["metadata"]:
        lines.append(f"metadata: {', '.join(f'{name} = {text}' for name, text in document['metadata'].items())}")
    if document["compared"] is None:
        return [*lines, "not compared with the module"]
    lines.append(f"gives what the module gives, in onnxruntime, for {_join_shapes(document['compared'])}")
    if document["left_out"]:
        lines.append(f"smaller sizes that the module or the file does not take: {_join_shapes(document['left_out'])}")
    return lines


def _join_shapes(shapes: Sequence[Sequence[Sequence[int]]]) -> str:
    """The first and the last of many shapes.

    >>> _join_shapes([[(1, 3)], [(2, 3), (4,)]]), _join_shapes([[(size,)] for size in range(1, 20)])
    ('1x3, 2x3+4', '1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..., 19')
    """
    words = ["+".join(map(format_shape, inputs)) for inputs in shapes]
    return ", ".join(words if len(words) <= MAX_SHAPES else [*words[: MAX_SHAPES - 2], "...", words[-1]])


def _export(
    text: str, module: "torch.nn.Module", inputs: "Example", path: Path, opset: int | None, dynamo: bool
) -> tuple[dict[str, Any], Any]:
    """Write the file; the arguments of the exporter that `verify` takes, and the exported program."""
    from unpool.torch.exporting.export import export

    arguments: dict[str, Any] = {"model": module, "args": inputs.args, "input_names": list(inputs.names)}
    arguments |= {"dynamic_shapes": inputs.dynamic_shapes} if dynamo else {"dynamic_axes": inputs.dynamic_axes}
    size = sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers()))
    form: dict[str, Any] = {"opset_version": opset, "dynamo": dynamo, "external_data": size > LARGEST}
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # torch's exporters log and print many pages; what goes wrong is an exception
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            return arguments, export(f=str(path), verbose=False, **arguments, **form)
    except UnpoolError:
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # torch wraps errors in reports of many pages
            cause = cause.__cause__
        message = f"{type(cause).__name__}: {short_message(cause)}"
        raise UnpoolError(
            f"{text}: torch does not export this module: {message}. "
            f"Change the module, or try {'--no-dynamo' if dynamo else '--dynamo'}."
        ) from error
    finally:
        logging.disable(level)


def shape_words(value: "onnx.ValueInfoProto") -> str:
    """Name, shape and type of a value.

    >>> from onnx import TensorProto, helper
    >>> shape_words(helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, "H", "W"]))
    'image 1x3xHxW float32'
    """
    from onnx import helper

    tensor = value.type.tensor_type
    sizes = "x".join(
        dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?") for dim in tensor.shape.dim
    )
    return f"{value.name} {sizes or 'scalar'} {helper.tensor_dtype_to_np_dtype(tensor.elem_type).name}"


def load_module(text: str, weights: Path | None) -> "torch.nn.Module":
    """The module that `package.module:callable` or `file.py:callable` names, in evaluation mode.

    The callable takes no arguments and gives a module, or it is a module already. Modules are also looked for in the
    current folder. `weights` is a file of `torch.save(module.state_dict())` to load into it.
    """
    import torch

    place, colon, path = text.rpartition(":")
    if not (place and colon and path):
        raise UsageError(f"{text}: expected module:callable, such as nets:segnet or nets.py:SegNet.")
    target: Any = _import_module(place, text)
    for name in path.split("."):
        if not hasattr(target, name):
            known = [name for name in dir(target) if callable(getattr(target, name)) and not name.startswith("_")]
            names = ", ".join(known)[:LONGEST] or "nothing to call"
            raise UsageError(f"{text}: {place} has no {path}; it has {names}. Name one.")
        target = getattr(target, name)
    if not isinstance(target, torch.nn.Module) and callable(target):
        try:
            target = target()
        except Exception as error:
            raise _module_error(text, error) from error
    if not isinstance(target, torch.nn.Module):
        raise UnpoolError(
            f"{text}: expected a torch.nn.Module, got {type(target).__name__}. Name a callable that returns one."
        )
    if weights is not None:
        try:
            target.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        except FileNotFoundError as error:
            raise MissingFileError(f"{weights}: no such file of weights.") from error
        except Exception as error:
            raise UnpoolError(
                f"--weights {weights}: expected a state_dict of the module, got: {short_message(error)}. "
                "Save it with torch.save(module.state_dict(), path)."
            ) from error
    return target.eval()


def _import_module(place: str, text: str) -> Any:
    path, is_file = Path(place), place.endswith(".py")
    if is_file and not path.is_file():
        raise MissingFileError(f"{path}: no such Python file.")
    folder = str(path.resolve().parent if is_file else Path.cwd())
    sys.path.insert(0, folder)
    try:
        if not is_file:
            return importlib.import_module(place)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except Exception as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) and not is_file else None
        if absent and (place == absent or place.startswith(f"{absent}.")):
            raise UsageError(
                f"{text}: there is no Python module {absent} here or in {Path.cwd()}. "
                "Change to its folder, install it, or name a file such as nets.py:make."
            ) from error
        raise _module_error(text, error) from error
    finally:
        sys.path.remove(folder)


def _module_error(text: str, error: Exception) -> UnpoolError:
    return UnpoolError(
        f"{text}: fails with {type(error).__name__}: {short_message(error)}. "
        "Name a callable that gives a module when called without arguments."
    )
