"""`unpool.torch.export`: torch.onnx.export with MaxPool and MaxUnpool, in the requested opset."""

import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar, cast

import onnx
import torch

from unpool.errors import UnsupportedError, warn_caller
from unpool.operators.contract import OPERATORS
from unpool.torch.compat import torch_internal
from unpool.torch.exporting.dynamic_shapes import (
    DynamicAxis,
    Narrowing,
    input_axes,
    name_dynamic_dims,
    narrowings,
    read_dynamic_shapes,
    replace_dims,
)
from unpool.torch.exporting.dynamo import translation_table
from unpool.torch.exporting.nodes import check_opset, check_type
from unpool.torch.exporting.opset_downgrade import downgrade_opset
from unpool.torch.exporting.size_forms import SizeForm, advice
from unpool.torch.exporting.torchscript import legacy_translations
from unpool.torch.exporting.verify import verify

MAX_ATTEMPTS = 3
"""Number of exports that may be tried before an error says what to write."""

TORCH_LOG = "torch.onnx._internal.exporter._registration"
"""The logger to which torch writes, in every export, that torchvision is not installed."""

_log = logging.getLogger("unpool")
P = ParamSpec("P")
R = TypeVar("R")

SIGNATURE = inspect.signature(torch.onnx.export)
EXPORTER_OPSET = 18
"""The opset of torch's default exporter; it converts to newer ones itself, to older ones seldom."""


def _copy_signature(original: Callable[P, R]) -> Callable[[Callable[..., Any]], Callable[P, R]]:
    """A decorator that gives a function the signature of `original`, for help texts and type checkers."""

    def decorated(function: Callable[..., Any]) -> Callable[P, R]:
        function.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        return cast(Callable[P, R], function)

    return decorated


@_copy_signature(torch.onnx.export)
def export(*arguments: Any, **options: Any) -> Any:
    """Call torch.onnx.export so that every pool becomes one MaxPool, and every unpooling one MaxUnpool.

    This works with both exporters of torch, from opset 9 on. The default one gets `translation_table`; entries of the
    caller's `custom_translation_table` replace those in it. With `dynamo=False` torch exports inside
    `legacy_translations`, one thread at a time.

    The file has the requested opset. torch's default exporter leaves many models at 18 if an older one is requested;
    unpool converts them, or raises an error if an operator has no older form.

    A dynamic dimension with a Dim accepts every size in the Dim's range. If the model accepts only multiples of a
    number, torch alone would narrow the Dim silently. unpool raises an error, or warns for dimensions that are dynamic
    by a string or a hint. The error names Dims, such as 8 * Dim("height"), with which the export was tried and works.

    With `verify=True`, unpool runs the written file in onnxruntime, and compares it with the module: for the example
    and, with dynamic dimensions, for odd, even and larger sizes, and for the smallest size that the module accepts. If
    the file allows a size that the module does not accept, this is an error, unless the size is smaller than all sizes
    that the module accepts.

    Args:
        arguments: those of torch.onnx.export, with the same meaning and defaults.
        options: the same.

    Returns:
        the result of torch.onnx.export: an ONNXProgram, or None with `dynamo=False`.

    Raises:
        UnsupportedError: the model cannot be written in this opset; the message names one that works. Or the model
            accepts fewer sizes than a Dim allows.
        UnpoolError: with `verify=True`, the file differs from the module, or allows sizes that it does not accept.

    Example:
        >>> pool = torch.nn.MaxPool2d(2, return_indices=True).eval()
        >>> program = export(pool, (torch.ones(1, 1, 4, 4),), verbose=False)
        >>> [node.op_type for node in program.model_proto.graph.node]
        ['MaxPool', 'Mod']
    """
    call_args = SIGNATURE.bind(*arguments, **options).arguments
    opset = call_args.get("opset_version")
    check_opset("export", opset)
    model, dynamo = call_args["model"], call_args.get("dynamo", True)
    if dynamo is True or isinstance(model, torch.export.ExportedProgram | torch.onnx.ExportableModule):
        return _export_program(call_args, opset)
    return _export_traced(call_args, opset)


def _export_program(call_args: dict[str, Any], opset: int | None) -> torch.onnx.ONNXProgram:
    """Export with torch's default exporter; write the file here, after converting the model to the opset."""
    f = call_args.pop("f", None)
    program, axes = _run_exporter(call_args, opset)
    narrowed = narrowings(axes)
    if any(each.axis.is_promised for each in narrowed):
        raise _narrowing_error(call_args, opset, narrowed, program)
    for each in narrowed:
        warn_caller(f"export: dynamic_shapes {each} only, which the file does not say. Give a Dim, or fix this size.")
    name_dynamic_dims(program, axes)
    for node in program.model.graph:
        x = node.inputs[0] if node.inputs else None
        if node.op_type in OPERATORS and node.domain == "" and x is not None and x.dtype is not None:
            check_type(node.op_type, opset or program.model.opset_imports[""], x.dtype.numpy().name)
    if opset is not None:
        program.model = downgrade_opset(program.model, opset)
    if isinstance(f, io.BytesIO):
        warn_caller("export: torch deprecates a BytesIO as file. Give a path.", DeprecationWarning)
        onnx.save(program.model_proto, f)
    elif f is not None:
        program.save(
            f,
            include_initializers=call_args.get("export_params", True),
            keep_initializers_as_inputs=call_args.get("keep_initializers_as_inputs", False),
            external_data=call_args.get("external_data", True),
        )
    if call_args.get("verify"):
        _verify(call_args, f, program)
    return program


def _run_exporter(
    call_args: dict[str, Any], opset: int | None
) -> tuple[torch.onnx.ONNXProgram, list[dict[int, DynamicAxis]]]:
    """The program of torch's default exporter, and its dynamic axes."""
    hints, pairs = read_dynamic_shapes(call_args)
    changed = {
        "custom_translation_table": translation_table(opset) | dict(call_args.get("custom_translation_table") or {}),
        "opset_version": opset if opset is None else max(opset, EXPORTER_OPSET),
        "dynamic_shapes": hints,
        "verify": False,
    }
    with _hide_internal_warnings(), _hide_missing_packages(call_args.get("verbose")):
        program = torch.onnx.export(**call_args | changed)
    assert program is not None
    return program, [] if pairs is None else input_axes(program, pairs)


def _narrowing_error(
    call_args: dict[str, Any], opset: int | None, narrowed: Sequence[Narrowing], program: torch.onnx.ONNXProgram
) -> UnsupportedError:
    """The error for sizes that a Dim allows and the model does not take, with forms of these Dims that export."""
    facts = "; it ".join(map(str, narrowed))
    names = {each.axis.form.name: str(each.axis.form) for each in narrowed}
    forms = {names[each.axis.form.name]: each.accepted for each in narrowed if each.accepted is not None}
    exports = len(forms) == len(narrowed) and _exports(call_args, opset, forms)
    has_unpool = any(node.op_type == "MaxUnpool" for node in program.model.graph)
    return UnsupportedError(
        f"export: dynamic_shapes {facts}. {advice(list(forms.values()) if exports else [], has_unpool)}"
    )


def _exports(call_args: dict[str, Any], opset: int | None, forms: dict[str, SizeForm]) -> bool:
    """Try Dims of other forms, and narrow these where the model takes fewer sizes yet; True if it takes all of them."""
    for _ in range(MAX_ATTEMPTS):
        _log.info("export: trying %s", ", ".join(form.text for form in forms.values()))
        try:
            _, axes = _run_exporter(replace_dims(call_args, forms) | {"verbose": False}, opset)
        except Exception as error:
            _log.info("export: that fails with %s", type(error).__name__)
            return False
        narrowed = [each for each in narrowings(axes) if each.axis.is_promised]
        if not narrowed:
            return True
        by_name = {form.name: name for name, form in forms.items()}
        if any(each.accepted is None or each.axis.form.name not in by_name for each in narrowed):
            return False
        forms |= {by_name[each.axis.form.name]: each.accepted for each in narrowed if each.accepted is not None}
    return False


def _verify(call_args: dict[str, Any], f: Any, program: torch.onnx.ONNXProgram | None) -> None:
    """Compare the file with the module; without a file, a temporary one."""
    if not call_args.get("export_params", True):
        raise UnsupportedError("export: verify=True needs a file with weights. Leave out export_params=False.")
    if f is not None:
        verify(call_args, f.getvalue() if isinstance(f, io.BytesIO) else f, program)
    elif program is not None:
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps files that are mapped
            path = Path(folder) / "model.onnx"
            program.save(path, external_data=True)
            verify(call_args, path, program)


def _export_traced(call_args: dict[str, Any], opset: int | None) -> None:
    newest = torch_internal("torch.onnx._constants.ONNX_MAX_OPSET")
    if opset is not None and newest is not None and opset > newest:
        raise UnsupportedError(
            f"export: expected an opset up to {newest}, the newest with dynamo=False, got {opset}. "
            "Export with dynamo=True, or choose an older opset_version."
        )
    try:
        with legacy_translations(), _hide_internal_warnings():
            torch.onnx.export(**{"autograd_inlining": False} | call_args | {"verify": False})
    except RuntimeError as error:
        name = str(error).partition("Couldn't export Python operator ")[2].partition("\n")[0]
        if name not in {function.__name__ for function in torch.autograd.Function.__subclasses__()}:
            raise
        raise UnsupportedError(
            f"export: expected a call of {name}.apply, got one by another name, which cannot be traced in torch "
            f"{torch.__version__}. Call {name}.apply in forward, or export with dynamo=True."
        ) from error
    if call_args.get("verify"):
        _verify(call_args, call_args["f"], None)


@contextmanager
def _hide_internal_warnings() -> Iterator[None]:
    """Hide warnings that torch's own code causes.

    The last of them is about the size check of an unpooling: a trace holds its outcome for the example.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "The feature will be removed", DeprecationWarning, module=r"torch\.onnx")
        warnings.filterwarnings("ignore", "Constant folding - ", UserWarning)
        warnings.filterwarnings("ignore", "Converting a tensor to a Python boolean", module=r"torch\.nn\.functional")
        yield


@contextmanager
def _hide_missing_packages(verbose: bool | None) -> Iterator[None]:
    """Hide logs about operators of packages that are not installed, unless verbose=True asks for them."""
    log = logging.getLogger(TORCH_LOG)

    def is_shown(record: logging.LogRecord) -> bool:
        return bool(verbose) or "is not installed" not in record.getMessage()

    log.addFilter(is_shown)
    try:
        yield
    finally:
        log.removeFilter(is_shown)
