"""`unpool export`: a torch module as an ONNX file, compared with the module at several sizes before it is kept."""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpool.cli.commands.rewrite import data_words
from unpool.cli.errors import UsageError, guard, one_line
from unpool.cli.options import Flag, Json, ModelOutput, Quiet
from unpool.display import format_shape
from unpool.errors import MissingFileError, UnpoolError

if TYPE_CHECKING:
    import onnx
    import torch

    from unpool.torch.exporting.example import Example
    from unpool.torch.exporting.verify import Shapes

LARGEST = 2**31 - 2**24
"""Bytes of weights that a single file can have."""

MAX_REPORT, MAX_MESSAGE = 400, 300
"""Characters that are kept of messages of an exporter, and of a module."""

EXAMPLE_HELP = "Shape of an input: [NAME=]1x3xHxW[:TYPE]. H is a dynamic dimension, 8H one in multiples of 8."


def export(
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:CALLABLE", help="Callable that returns the torch module: nets:segnet, nets.py:SegNet."
        ),
    ],
    output: ModelOutput,
    example: Annotated[list[str], typer.Option(metavar="SHAPE", help=EXAMPLE_HELP, show_default=False)],
    dynamic: Annotated[bool, Flag("--dynamic", help="Make batch, height and width dynamic too.")] = False,
    weights: Annotated[
        Path | None, typer.Option(help="A state_dict to load into the module.", show_default=False)
    ] = None,
    opset: Annotated[int | None, typer.Option(min=9, help="Opset of the file.", show_default="the exporter's")] = None,
    dynamo: Annotated[bool, Flag("--dynamo/--no-dynamo", help="Which of torch's two exporters.")] = True,
    verify: Annotated[
        bool, Flag("--verify/--no-verify", help="Compare the file with the module, at several sizes.")
    ] = True,
    scale: Annotated[str | None, typer.Option(metavar="NUMBER", help="Metadata: factor of pixels.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="NUMBERS", help="Metadata: subtracted after --scale.")] = None,
    std: Annotated[str | None, typer.Option(metavar="NUMBERS", help="Metadata: divides after --mean.")] = None,
    white: Annotated[str | None, typer.Option(metavar="NUMBER", help="Metadata: the pixel value of white.")] = None,
    classes: Annotated[str | None, typer.Option(metavar="NAMES", help="Metadata: class names, with commas.")] = None,
    palette: Annotated[str | None, typer.Option(metavar="COLOURS", help="Metadata: one #rrggbb per class.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a torch module as ONNX with MaxUnpool kept, for any batch, height and width, and compare it with torch.

    Example: unpool export nets:segnet -o segnet.onnx --example 1x3xHxW --dynamic --scale 1/255
    """
    with guard(quiet=quiet):
        from unpool.cli import console, metadata

        options = {
            metadata.SCALE: scale,
            metadata.MEAN: mean,
            metadata.STD: std,
            metadata.WHITE: white,
            metadata.CLASSES: classes,
            metadata.PALETTE: palette,
        }
        request = ExportRequest(
            module, output, tuple(example), dynamic, opset, dynamo, verify, weights, metadata.entries(options)
        )
        done = export_file(request)
        console.say_report(report_lines(done, request), _document(done, request), as_json, quiet)


@dataclass(frozen=True)
class ExportRequest:
    """One command line.

    Attributes:
        module: `module:callable`.
        output: the file.
        examples: one shape per input.
        dynamic: whether batch and spatial sizes stay open.
        opset: of the file; None for the exporter's own.
        dynamo: which of torch's exporters.
        verifies: compare the file with the module.
        weights: a file for the module.
        metadata: entries for the file.
    """

    module: str
    output: Path
    examples: tuple[str, ...]
    dynamic: bool = False
    opset: int | None = None
    dynamo: bool = True
    verifies: bool = True
    weights: Path | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportResult:
    """The written model, and the shapes of the inputs for which it was compared with the module."""

    model: "onnx.ModelProto"
    data: list[Path]
    compared: "list[Shapes]"


def export_file(request: ExportRequest) -> ExportResult:
    """Export, verify and write; on any error nothing is written.

    Raises:
        MissingExtraError: torch or onnxscript is not installed.
        UnpoolError: the module cannot be had or exported, or the file does not give what the module gives.
    """
    from unpool.cli.outputs import refuse_stdout
    from unpool.extras import require

    refuse_stdout(request.output)
    if request.output.is_dir() or request.output.suffix != ".onnx":
        raise UsageError(f"-o {request.output}: expected a file whose name ends in .onnx.")
    require("unpool export", "torch", "torch", "onnxscript")
    from unpool.runtime.graph.load import load
    from unpool.runtime.graph.save import ModelWriter
    from unpool.torch.exporting.example import example

    inputs = example(*request.examples, dynamic=request.dynamic)
    module = load_module(request.module, request.weights)
    with TemporaryDirectory() as folder:
        draft = Path(folder) / "model.onnx"
        compared = _draft(request, module, inputs, draft)
        place = ModelWriter(draft, request.output)
        model = load(draft)
        _put(model, request.metadata)
        return ExportResult(model, place.write(model), compared)


def _draft(request: ExportRequest, module: "torch.nn.Module", inputs: "Example", path: Path) -> "list[Shapes]":
    """Write the file, and give the shapes for which it was compared."""
    from unpool.torch.exporting.export import export
    from unpool.torch.exporting.verify import verify

    open_sizes: dict[str, Any] = (
        {"dynamic_shapes": inputs.dynamic_shapes} if request.dynamo else {"dynamic_axes": inputs.dynamic_axes}
    )
    given: dict[str, Any] = {"model": module, "args": inputs.args, "input_names": list(inputs.names), **open_sizes}
    weights = sum(one.numel() * one.element_size() for one in (*module.parameters(), *module.buffers()))
    words: dict[str, Any] = {
        "opset_version": request.opset,
        "dynamo": request.dynamo,
        "external_data": weights > LARGEST,
    }
    try:
        with _silence():
            program = export(f=str(path), verbose=False, **given, **words)
    except (UnpoolError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise UnpoolError(
            f"{request.module}: expected a module that torch exports, its exporter says: {_first_cause(error)}. "
            f"Correct the module, or try {'--no-dynamo' if request.dynamo else '--dynamo'}."
        ) from error
    return verify(given, path, program) if request.verifies else []


@contextmanager
def _silence() -> Iterator[None]:
    """Leave out what torch's exporters log and print, of many pages: what goes wrong comes as an exception."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(before)


def _first_cause(error: BaseException) -> str:
    """The first cause of an error: torch wraps errors in reports of many pages."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {one_line(error)}"[:MAX_REPORT].rstrip(".")


def _put(model: "onnx.ModelProto", entries: Mapping[str, str]) -> None:
    """Add entries to the metadata of a model."""
    for name, text in entries.items():
        model.metadata_props.add(key=name, value=text)


def report_lines(done: ExportResult, request: ExportRequest) -> list[str]:
    """Lines about the file and its verification."""
    graph = done.model.graph
    values = [", ".join(map(shape_words, one)) for one in (graph.input, graph.output)]
    opset = next(one.version for one in done.model.opset_import if one.domain == "")
    lines = [f"{request.output}{data_words(done.data)}: opset {opset}; {' -> '.join(values)}"]
    if request.metadata:
        lines.append(f"metadata: {', '.join(f'{name} = {text}' for name, text in request.metadata.items())}")
    return [*lines, _checked(done.compared, request.verifies)]


def shape_words(value: "onnx.ValueInfoProto") -> str:
    """A value in words.

    >>> from onnx import TensorProto, helper
    >>> shape_words(helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, "H", "W"]))
    'image 1x3xHxW float32'
    """
    from onnx import helper

    tensor = value.type.tensor_type
    sizes = "x".join(
        one.dim_param or (str(one.dim_value) if one.HasField("dim_value") else "?") for one in tensor.shape.dim
    )
    return f"{value.name} {sizes or 'scalar'} {helper.tensor_dtype_to_np_dtype(tensor.elem_type).name}"


def _checked(compared: "Sequence[Shapes]", was_verified: bool) -> str:
    if not was_verified:
        return "not compared with the module"
    shapes = ["+".join(map(format_shape, one)) for one in compared]
    return f"gives what the module gives, in onnxruntime, for {', '.join(shapes)}"


def _document(done: ExportResult, request: ExportRequest) -> dict[str, Any]:
    """The same as JSON types."""
    return {
        "module": request.module,
        "output": str(request.output),
        "data": [str(one) for one in done.data],
        "opsets": {one.domain: one.version for one in done.model.opset_import},
        "inputs": [shape_words(one) for one in done.model.graph.input],
        "outputs": [shape_words(one) for one in done.model.graph.output],
        "metadata": dict(request.metadata),
        "compared": done.compared if request.verifies else None,
    }


def load_module(text: str, weights: Path | None) -> "torch.nn.Module":
    """The module, in evaluation mode.

    Args:
        text: `package.module:callable` or `file.py:callable`; the callable takes no arguments and gives a module, or
            it is a module already. Modules are also looked for in the current folder.
        weights: a file of `torch.save(module.state_dict())` to load into it.

    Raises:
        UsageError: the text names nothing of the kind.
        UnpoolError: it fails, gives no module, or the weights do not fit.
    """
    import torch

    place, colon, path = text.rpartition(":")
    if not (place and colon and path):
        raise UsageError(f"{text}: expected module:callable, such as nets:segnet or nets.py:SegNet.")
    found: Any = _import_module(place, text)
    for name in path.split("."):
        if not hasattr(found, name):
            known = ", ".join(one for one in dir(found) if callable(getattr(found, one)) and not one.startswith("_"))
            raise UsageError(
                f"{text}: {place} has no {path}; it has {known[:MAX_MESSAGE] or 'nothing to call'}. Name one."
            )
        found = getattr(found, name)
    if not isinstance(found, torch.nn.Module) and callable(found):
        found = _call(found, text)
    if not isinstance(found, torch.nn.Module):
        raise UnpoolError(
            f"{text}: expected a torch.nn.Module, got {type(found).__name__}. Name a callable that returns one."
        )
    if weights is not None:
        _load_weights(found, weights)
    return found.eval()


def _import_module(place: str, text: str) -> Any:
    """A module by its name, or by its file."""
    if place.endswith(".py"):
        return _import_file(Path(place), text)
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(
                f"{text}: expected a module of Python, there is no {error.name} here or in {Path.cwd()}. "
                "Change to its folder, install it, or name a file such as nets.py:make."
            ) from error
        raise _module_error(text, error) from error
    except Exception as error:
        raise _module_error(text, error) from error
    finally:
        sys.path.remove(str(Path.cwd()))


def _import_file(path: Path, text: str) -> Any:
    if not path.is_file():
        raise MissingFileError(f"{path}: expected a file of Python, got no such file.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _module_error(text, error) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _call(maker: Any, text: str) -> Any:
    try:
        return maker()
    except Exception as error:
        raise _module_error(text, error) from error


def _load_weights(module: "torch.nn.Module", weights: Path) -> None:
    import torch

    try:
        module.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    except FileNotFoundError as error:
        raise MissingFileError(f"{weights}: expected a file of weights, got no such file.") from error
    except Exception as error:
        raise UnpoolError(
            f"--weights {weights}: expected a state_dict of the module, got: {_short_message(error)}. "
            "Save it with torch.save(module.state_dict(), path)."
        ) from error


def _module_error(text: str, error: Exception) -> UnpoolError:
    kind = type(error).__name__
    return UnpoolError(
        f"{text}: expected it to give a module when called without arguments, got {kind}: {_short_message(error)}. "
        "Name a callable without required arguments."
    )


def _short_message(error: Exception) -> str:
    return one_line(error)[:MAX_MESSAGE].rstrip(".")
