"""Temporary registration of the symbolics with torch's exporter behind dynamo=False.

torch 2.13 alone cannot export an unpooling this way: it has no symbolic for one, and its check of the output size fails
on the tensors that sizes are during tracing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from unpool.errors import UnsupportedError
from unpool.torch.compat import LEGACY_EXPORT, REGISTRATION, torch_internal, torch_internal_attribute

VERSIONS = (9, 10)
"""The versions for which torch has its own symbolics of pools; torch takes the newest up to the opset."""

SIZE_CHECK = "_check_unpool_output_size"
"""Name of the check in torch.nn.functional."""

GROUP_FUNCTIONS = f"{REGISTRATION}._SymbolicFunctionGroup._functions"

REGISTRY_GROUPS = f"{REGISTRATION}.SymbolicRegistry._registry"

LOCK = threading.RLock()


@contextmanager
def legacy_translations() -> Iterator[None]:
    """Let torch.onnx.export(..., dynamo=False) write one MaxPool per pool and one MaxUnpool per unpooling.

    `unpool.torch.export` does this itself. Inside the with statement torch has unpool's symbolics, except where the
    caller has registered one, and does not check the output size of an unpooling while it traces a model; the operator
    itself still rejects negative sizes. At the end, after an error too, the earlier state is restored.

    torch's registry belongs to the whole process, and so does its exporter with dynamo=False: only one thread is inside
    at a time, others wait. Models can run at the same time.

    Raises:
        UnsupportedError: this version of torch has its exporter in other modules than torch 2.13.

    Example:
        >>> from torch.onnx._internal.torchscript_exporter.registration import registry
        >>> with legacy_translations():
        ...     registry.is_registered_op("aten::max_unpool2d", 20)
        True
        >>> registry.is_registered_op("aten::max_unpool2d", 20)
        False
    """
    _check_torch()
    from unpool.torch.exporting.torchscript.symbolics import SYMBOLICS

    with LOCK, ExitStack() as undo:
        for name, symbolic in SYMBOLICS.items():
            undo.callback(_remove_empty_group, name)
            for version in [one for one in VERSIONS if not _is_registered_by_caller(name, one)]:
                torch_internal("torch.onnx.utils.register_custom_op_symbolic")(name, symbolic, version)
                undo.callback(torch_internal("torch.onnx.utils.unregister_custom_op_symbolic"), name, version)
        check = torch_internal(f"torch.nn.functional.{SIZE_CHECK}")
        if check is not None:
            setattr(torch.nn.functional, SIZE_CHECK, _unless_tracing(check))
            undo.callback(setattr, torch.nn.functional, SIZE_CHECK, check)
        yield


def _remove_empty_group(name: str) -> None:
    """Remove an operator without symbolics from torch's registry: torch fails on it when it names what it supports."""
    get_group = torch_internal(f"{REGISTRATION}.registry.get_function_group")
    groups = torch_internal_attribute(get_group.__self__, REGISTRY_GROUPS)
    functions = torch_internal_attribute(get_group(name), GROUP_FUNCTIONS)
    if groups is not None and functions is not None and not list(functions):
        del groups[name]


def _check_torch() -> None:
    """Check that torch has the private names of its registry."""
    for name in LEGACY_EXPORT:
        if torch_internal(name) is None:
            raise _lacks(name)


def _lacks(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"export: expected {name} for dynamo=False, torch {torch.__version__} does not have it. "
        "Export with dynamo=True, or with torch 2.13."
    )


def _is_registered_by_caller(name: str, version: int) -> bool:
    """True if the caller has registered a translation, at this version or an older one, that would be hidden."""
    group = torch_internal(f"{REGISTRATION}.registry.get_function_group")(name)
    if group is None:
        return False
    functions = torch_internal_attribute(group, GROUP_FUNCTIONS)
    if functions is None:
        raise _lacks(GROUP_FUNCTIONS)
    is_overridden = torch_internal(f"{REGISTRATION}.OverrideDict.overridden")
    return any(is_overridden(functions, older) for older in range(version + 1))


def _unless_tracing(check: Callable[..., Any]) -> Callable[..., Any]:
    """The check, disabled in threads that trace a model."""
    is_tracing = torch_internal("torch.jit.is_tracing")

    def checked(*arguments: Any) -> Any:
        return None if is_tracing() else check(*arguments)

    return checked
