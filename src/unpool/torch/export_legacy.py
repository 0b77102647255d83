"""MaxPool and MaxUnpool for torch.onnx.export(..., dynamo=False), registered only inside a with statement.

torch 2.13 stops at two places here: its exporter has no translation of the unpoolings, and before that the check of
the output size in torch.nn.functional does not take the traced tensors that sizes are then.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.onnx._internal.torchscript_exporter import registration
from torch.onnx.utils import register_custom_op_symbolic, unregister_custom_op_symbolic

from unpool.torch.export_legacy_symbolics import SYMBOLICS

VERSIONS = (9, 10)
"""Where torch registers its own pools; the newest that is not above the opset wins."""

SIZE_CHECK = "_check_unpool_output_size"
"""Name of the check in torch.nn.functional; private, and not in every version of torch."""

LOCK = threading.RLock()


@contextmanager
def legacy_translations() -> Iterator[None]:
    """Let torch.onnx.export(..., dynamo=False) write one MaxPool per pool and one MaxUnpool per unpooling.

    `unpool.torch.export` does this itself. Inside, pools and unpoolings are translated unless the caller has registered
    a translation, and torch.nn.functional does not check the output size of an unpooling while a model is traced; the
    operator itself still refuses negative sizes. Everything is put back at the end, after errors too.

    torch's registry belongs to the whole process, and so does its exporter with dynamo=False: of several threads only
    one is inside at a time, the others wait. Their models can run meanwhile.

    Example:
        >>> from torch.onnx._internal.torchscript_exporter.registration import registry
        >>> with legacy_translations():
        ...     registry.is_registered_op("aten::max_unpool2d", 20)
        True
        >>> registry.is_registered_op("aten::max_unpool2d", 20)
        False
    """
    with LOCK, ExitStack() as undo:
        for name, symbolic in SYMBOLICS.items():
            for version in [one for one in VERSIONS if not _is_registered_by_caller(name, one)]:
                register_custom_op_symbolic(name, symbolic, version)
                undo.callback(unregister_custom_op_symbolic, name, version)
        original = getattr(torch.nn.functional, SIZE_CHECK, None)
        if original is not None:
            setattr(torch.nn.functional, SIZE_CHECK, _unless_tracing(original))
            undo.callback(setattr, torch.nn.functional, SIZE_CHECK, original)
        yield


def _is_registered_by_caller(name: str, version: int) -> bool:
    """Whether ours would hide a translation of the caller, at this version or an older one."""
    group = registration.registry.get_function_group(name)
    return group is not None and any(group._functions.overridden(older) for older in range(version + 1))


def _unless_tracing(check: Callable[..., Any]) -> Callable[..., Any]:
    """The check, left out in a thread that traces."""

    def checked(*arguments: Any) -> Any:
        return None if torch._C._is_tracing() else check(*arguments)

    return checked
