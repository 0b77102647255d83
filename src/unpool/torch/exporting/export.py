"""`unpool.torch.export`: takes the call of torch.onnx.export, and writes MaxUnpool, in the opset that was asked for."""

import inspect
import io
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar, cast

import onnx
import torch

from unpool.errors import UnsupportedError, warn_caller
from unpool.operators.contract import OPERATORS
from unpool.torch.compat import torch_internal
from unpool.torch.exporting.attributes import check_opset, check_type
from unpool.torch.exporting.dynamic_shapes import name_open_sizes, read_dynamic_shapes
from unpool.torch.exporting.dynamo.opset_downgrade import downgrade_opset
from unpool.torch.exporting.dynamo.translations import translation_table

P = ParamSpec("P")
R = TypeVar("R")

SIGNATURE = inspect.signature(torch.onnx.export)
EXPORTERS_OPSET = 18
"""The opset that torch's default exporter writes; it reaches newer ones itself, older ones seldom."""


def _with_signature_of(original: Callable[P, R]) -> Callable[[Callable[..., Any]], Callable[P, R]]:
    """Give a function the signature of `original`, for help texts and type checkers."""

    def decorated(function: Callable[..., Any]) -> Callable[P, R]:
        function.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        return cast(Callable[P, R], function)

    return decorated


@_with_signature_of(torch.onnx.export)
def export(*arguments: Any, **options: Any) -> Any:
    """Call torch.onnx.export so that every pool becomes one MaxPool, and every unpooling one MaxUnpool.

    This works with both exporters of torch, from opset 9 on. The default one gets `translation_table`, whose entries
    give way to those of the caller's `custom_translation_table`. With `dynamo=False` torch exports inside
    `legacy_translations`, one thread at a time.

    The file has the opset that was asked for. torch's default exporter leaves many models at 18 where an older one is
    wanted; unpool converts them, or refuses where an operator has no older form.

    A size that `dynamic_shapes` leaves open with a Dim stays open for every size in the Dim's range. torch alone would
    narrow it to multiples where a model takes no others; unpool refuses that, and warns of it for sizes that are left
    open with a string or a hint.

    With `verify=True` unpool runs the file that was written in onnxruntime, and compares it with the module: on the
    example, and where sizes are open at other sizes too, odd, even, larger, and the smallest that the module takes.

    Args:
        arguments: those of torch.onnx.export, all of them with its meaning and defaults.
        options: likewise.

    Returns:
        what torch.onnx.export returns: an ONNXProgram, or None with `dynamo=False`.

    Raises:
        UnsupportedError: the model cannot be had in this opset; the message says in which it can. Or it takes fewer
            sizes than a Dim promises.
        UnpoolError: with `verify=True`, the file does not give what the module gives.

    Example:
        >>> pool = torch.nn.MaxPool2d(2, return_indices=True).eval()
        >>> program = export(pool, (torch.ones(1, 1, 4, 4),), verbose=False)
        >>> [node.op_type for node in program.model_proto.graph.node]
        ['MaxPool', 'Mod']
    """
    given = SIGNATURE.bind(*arguments, **options).arguments
    opset = given.get("opset_version")
    check_opset("export", opset)
    model, dynamo = given["model"], given.get("dynamo", True)
    if dynamo is True or isinstance(model, torch.export.ExportedProgram | torch.onnx.ExportableModule):
        return _export_program(given, opset)
    return _export_traced(given, opset)


def _export_program(given: dict[str, Any], opset: int | None) -> torch.onnx.ONNXProgram:
    """Export with torch's default exporter; write the file here, after converting the model to the opset."""
    f = given.pop("f", None)
    sizes = read_dynamic_shapes(given)
    changed = {
        "custom_translation_table": translation_table(opset) | dict(given.get("custom_translation_table") or {}),
        "opset_version": opset if opset is None else max(opset, EXPORTERS_OPSET),
        "dynamic_shapes": sizes.hints,
        "verify": False,
    }
    with _only_warnings_for_the_caller():
        program = torch.onnx.export(**given | changed)
    assert program is not None
    name_open_sizes(program, sizes.axes)
    for node in program.model.graph:
        x = node.inputs[0] if node.inputs else None
        if node.op_type in OPERATORS and node.domain == "" and x is not None and x.dtype is not None:
            check_type(node.op_type, opset or program.model.opset_imports[""], x.dtype.numpy().name)
    if opset is not None:
        program.model = downgrade_opset(program.model, opset)
    if f is not None:
        _save(program, f, given)
    if given.get("verify"):
        _verify(given, f, program)
    return program


def _verify(given: dict[str, Any], f: Any, program: torch.onnx.ONNXProgram | None) -> None:
    """Compare the file with the module; where no file was asked for, one that would be written."""
    from unpool.torch.exporting.verify import verify

    if not given.get("export_params", True):
        raise UnsupportedError("export: verify=True needs a file with weights. Leave out export_params=False.")
    if f is not None:
        verify(given, f.getvalue() if isinstance(f, io.BytesIO) else f, program)
        return
    assert program is not None
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=True)
        verify(given, path, program)


def _save(program: torch.onnx.ONNXProgram, f: str | os.PathLike[str] | io.BytesIO, given: dict[str, Any]) -> None:
    """Write the file as torch.onnx.export does."""
    if isinstance(f, io.BytesIO):
        warn_caller("export: torch deprecates a BytesIO as file. Give a path.", DeprecationWarning)
        onnx.save(program.model_proto, f)
        return
    program.save(
        f,
        include_initializers=given.get("export_params", True),
        keep_initializers_as_inputs=given.get("keep_initializers_as_inputs", False),
        external_data=given.get("external_data", True),
    )


def _export_traced(given: dict[str, Any], opset: int | None) -> None:
    """Export with dynamo=False."""
    newest = torch_internal("torch.onnx._constants.ONNX_MAX_OPSET")
    if opset is not None and newest is not None and opset > newest:
        raise UnsupportedError(
            f"export: expected an opset up to {newest}, the newest with dynamo=False, got {opset}. "
            "Export with dynamo=True, or choose an older opset_version."
        )
    from unpool.torch.exporting.torchscript.registration import legacy_translations

    with legacy_translations(), _only_warnings_for_the_caller():
        torch.onnx.export(**given | {"verify": False})
    if given.get("verify"):
        _verify(given, given["f"], None)


@contextmanager
def _only_warnings_for_the_caller() -> Iterator[None]:
    """Hide warnings of torch that its own code causes, and that the caller can do nothing about.

    The last of them is about the size check of an unpooling: a trace holds the outcome that it had for the example.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "The feature will be removed", DeprecationWarning, module=r"torch\.onnx")
        warnings.filterwarnings("ignore", "Constant folding - ", UserWarning)
        warnings.filterwarnings("ignore", "Converting a tensor to a Python boolean", module=r"torch\.nn\.functional")
        yield
