"""MaxPool and MaxUnpool for torch.onnx.export(..., dynamo=False), registered only inside a with statement.

torch 2.13 stops at two places here: its exporter has no translation of the unpoolings, and before that the check of
the output size in torch.nn.functional does not take the traced tensors that sizes are then.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from unpool.errors import UnsupportedError
from unpool.torch.private import private

VERSIONS = (9, 10)
"""Where torch registers its own pools; the newest that is not above the opset wins."""

SIZE_CHECK = "_check_unpool_output_size"
"""Name of the check in torch.nn.functional."""

NEEDED = (
    "torch.onnx._internal.torchscript_exporter.registration.registry",
    "torch.onnx.symbolic_helper",
    "torch.onnx.utils",
)

LOCK = threading.RLock()


@contextmanager
def legacy_translations() -> Iterator[None]:
    """Let torch.onnx.export(..., dynamo=False) write one MaxPool per pool and one MaxUnpool per unpooling.

    `unpool.torch.export` does this itself. Inside, pools and unpoolings are translated unless the caller has registered
    a translation, and torch.nn.functional does not check the output size of an unpooling while a model is traced; the
    operator itself still refuses negative sizes. Everything is put back at the end, after errors too.

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
    registry, _, utils = (_needed(name) for name in NEEDED)
    from unpool.torch.export_legacy_symbolics import SYMBOLICS

    with LOCK, ExitStack() as undo:
        for name, symbolic in SYMBOLICS.items():
            for version in [one for one in VERSIONS if not _is_registered_by_caller(registry, name, one)]:
                utils.register_custom_op_symbolic(name, symbolic, version)
                undo.callback(utils.unregister_custom_op_symbolic, name, version)
        original = private(f"torch.nn.functional.{SIZE_CHECK}")
        is_tracing = private("torch._C._is_tracing")
        if original is not None and is_tracing is not None:
            setattr(torch.nn.functional, SIZE_CHECK, _unless_tracing(original, is_tracing))
            undo.callback(setattr, torch.nn.functional, SIZE_CHECK, original)
        yield


def _needed(name: str) -> Any:
    """A private name of torch without which there is nothing to register with."""
    found = private(name)
    if found is None:
        raise UnsupportedError(
            f"export: expected {name} for dynamo=False, torch {torch.__version__} does not have it. "
            "Export with dynamo=True, or with torch 2.13."
        )
    return found


def _is_registered_by_caller(registry: Any, name: str, version: int) -> bool:
    """Whether ours would hide a translation of the caller, at this version or an older one."""
    group = registry.get_function_group(name)
    return group is not None and any(group._functions.overridden(older) for older in range(version + 1))


def _unless_tracing(check: Callable[..., Any], is_tracing: Callable[[], bool]) -> Callable[..., Any]:
    """The check, left out in a thread that traces."""

    def checked(*arguments: Any) -> Any:
        return None if is_tracing() else check(*arguments)

    return checked
