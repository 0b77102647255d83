"""The work of `unpool export`: a torch module into a file, run beside the module at several sizes before it is kept."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from unpool.cli.destination import refuse_stdout
from unpool.cli.exits import UsageError, one_line
from unpool.display import format_shape
from unpool.errors import UnpoolError
from unpool.extras import require

if TYPE_CHECKING:
    import onnx
    import torch

    from unpool.torch.exporting.example import Example
    from unpool.torch.exporting.verify import Shapes

LARGEST = 2**31 - 2**24
"""Bytes of weights that a single file can have."""

LONGEST = 400  # characters of a foreign message


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
        verifies: whether the file is run beside the module.
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
class Exported:
    """What was written, and the shapes of the inputs for which it was compared with the module."""

    model: "onnx.ModelProto"
    data: list[Path]
    compared: "list[Shapes]"


def export_file(request: ExportRequest) -> Exported:
    """Export, verify and write; on any error nothing is written.

    Raises:
        MissingExtraError: torch or onnxscript is not installed.
        UnpoolError: the module cannot be had or exported, or the file does not give what the module gives.
    """
    refuse_stdout(request.output)
    if request.output.is_dir() or request.output.suffix != ".onnx":
        raise UsageError(f"-o {request.output}: expected a file whose name ends in .onnx. Name another.")
    require("unpool export", "torch", "torch", "onnxscript")
    from unpool.cli.torch_module import torch_module
    from unpool.runtime.graph.load import load
    from unpool.runtime.graph.save import ModelWriter
    from unpool.torch.exporting.example import example

    inputs = example(*request.examples, dynamic=request.dynamic)
    module = torch_module(request.module, request.weights)
    with TemporaryDirectory() as folder:
        draft = Path(folder) / "model.onnx"
        compared = _draft(request, module, inputs, draft)
        place = ModelWriter(draft, request.output)
        model = load(draft)
        _put(model, request.metadata)
        return Exported(model, place.write(model), compared)


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
    """What began it: torch wraps errors in reports of many pages."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {one_line(error)}"[:LONGEST].rstrip(".")


def _put(model: "onnx.ModelProto", entries: Mapping[str, str]) -> None:
    """Add entries to the metadata of a model."""
    for name, text in entries.items():
        model.metadata_props.add(key=name, value=text)


def report(done: Exported, request: ExportRequest) -> list[str]:
    """What is in the file, and how it was checked."""
    from unpool.cli.upgrade import data_words

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


def to_json(done: Exported, request: ExportRequest) -> dict[str, Any]:
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
