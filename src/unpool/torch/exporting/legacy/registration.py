"""Registers the symbolics with torch's exporter behind dynamo=False, for as long as a with statement lasts.

torch 2.13 alone cannot export an unpooling this way, for two reasons: it has no symbolic for one, and while it traces,
sizes are tensors, which its own check of the output size does not take.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from unpool.errors import UnsupportedError
from unpool.torch.compat import LEGACY_EXPORT, REGISTRATION, torch_internal, torch_internal_attribute

VERSIONS = (9, 10)
"""The versions for which torch has its own symbolics of pools; torch takes the newest that is not above the opset."""

SIZE_CHECK = "_check_unpool_output_size"
"""Name of the check in torch.nn.functional."""

GROUP_FUNCTIONS = f"{REGISTRATION}._SymbolicFunctionGroup._functions"

LOCK = threading.RLock()


@contextmanager
def legacy_translations() -> Iterator[None]:
    """Let torch.onnx.export(..., dynamo=False) write one MaxPool per pool and one MaxUnpool per unpooling.

    `unpool.torch.export` does this itself. Inside the with statement torch has our symbolics, but keeps one that the
    caller has registered, and does not check the output size of an unpooling while it traces a model; the operator
    itself still refuses negative sizes. At the end, after an error too, torch is as it was before.

    torch's registry belongs to the whole process, and so does its exporter with dynamo=False: of several threads only
    one is inside at a time, the others wait. Their models can run meanwhile.

    Raises:
        UnsupportedError: this version of torch keeps its exporter in another place than torch 2.13.

    Example:
        >>> from torch.onnx._internal.torchscript_exporter.registration import registry
        >>> with legacy_translations():
        ...     registry.is_registered_op("aten::max_unpool2d", 20)
        True
        >>> registry.is_registered_op("aten::max_unpool2d", 20)
        False
    """
    _check_torch()
    from unpool.torch.exporting.legacy.symbolics import SYMBOLICS

    with LOCK, ExitStack() as undo:
        for name, symbolic in SYMBOLICS.items():
            for version in [one for one in VERSIONS if not _is_registered_by_caller(name, one)]:
                torch_internal("torch.onnx.utils.register_custom_op_symbolic")(name, symbolic, version)
                undo.callback(torch_internal("torch.onnx.utils.unregister_custom_op_symbolic"), name, version)
        check = torch_internal(f"torch.nn.functional.{SIZE_CHECK}")
        if check is not None:
            setattr(torch.nn.functional, SIZE_CHECK, _unless_tracing(check))
            undo.callback(setattr, torch.nn.functional, SIZE_CHECK, check)
        yield


def _check_torch() -> None:
    """Refuse a torch that lacks a private name without which there is nothing to register with."""
    for name in LEGACY_EXPORT:
        if torch_internal(name) is None:
            raise _lacks(name)


def _lacks(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"export: expected {name} for dynamo=False, torch {torch.__version__} does not have it. "
        "Export with dynamo=True, or with torch 2.13."
    )


def _is_registered_by_caller(name: str, version: int) -> bool:
    """Whether the caller has registered a translation, at this version or an older one, that ours would hide."""
    group = torch_internal(f"{REGISTRATION}.registry.get_function_group")(name)
    if group is None:
        return False
    functions = torch_internal_attribute(group, GROUP_FUNCTIONS)
    if functions is None:
        raise _lacks(GROUP_FUNCTIONS)
    is_overridden = torch_internal(f"{REGISTRATION}.OverrideDict.overridden")
    return any(is_overridden(functions, older) for older in range(version + 1))


def _unless_tracing(check: Callable[..., Any]) -> Callable[..., Any]:
    """The check, which does nothing in a thread that traces a model."""
    is_tracing = torch_internal("torch.jit.is_tracing")

    def checked(*arguments: Any) -> Any:
        return None if is_tracing() else check(*arguments)

    return checked
