"""Calls that torch's own operators compute: with tensors unpool does not support, while a model is recorded, and small.

torch computes a small call before unpool's kernel would start: to get from Python to a kernel, and from autograd back
to Python, takes tens of microseconds. In training it takes more, because PyTorch's threads spin for milliseconds after
each of its operators, on the cores that unpool's threads need. Only calls with the same result fall back: those of
plain tensors on the CPU, without windows of padding alone. Sums may be rounded differently. On a GPU no call falls
back: PyTorch's gradients differ from run to run there.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function_variadic

from unpool.errors import UnsupportedError
from unpool.torch.compat import torch_internal
from unpool.torch.ops.register import HAS_FORWARD_MODE

is_tracing: Any = torch.jit.is_tracing  # type: ignore[attr-defined]  # in torch's reference, not in __all__

SIZE_CHECK = "_check_unpool_output_size"
"""Name of torch's check of an unpooling's output size, in torch.nn.functional."""

TRACING = threading.RLock()
"""Held while torch's functions are changed for a trace."""

_TYPES = (torch.float32, torch.float64)

TORCH_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{family}{rank}d": getattr(torch.nn.functional, f"{family}{rank}d")
    for family in ("max_pool", "max_unpool", "conv_transpose")
    for rank in (1, 2, 3)
}
"""Torch's functions by name, from the time of import: a script may later replace them in torch.nn.functional."""


class Thresholds(NamedTuple):
    """Largest size of a small call, in elements of the input of a pool or unpool, or in products of a convolution."""

    without_gradient: int
    with_gradient: int


MAX_POOL = Thresholds(1 << 14, 1 << 15)
MAX_UNPOOL = Thresholds(1 << 14, 1 << 16)

CONV_TRANSPOSE = Thresholds(1 << 21, 7 << 28)
"""Unpool's is faster forward from a tenth of a millisecond on; but its gradients are torch's, and the operators after
them share the cores with torch's spinning threads."""

DISJOINT_WINDOWS = Thresholds(1 << 21, 1 << 24)
"""For a transposed convolution whose gradients are products of matrices."""

LARGE_WINDOWS = Thresholds(1 << 21, 1 << 26)
"""For a transposed convolution with windows of many taps, which PyTorch's blocked layouts do not suit."""


def call_override(function: Callable[..., Any], tensors: tuple[Tensor | None, ...], *arguments: Any) -> Any:
    """The result of a public function if a subclass of Tensor, or what records it, runs it, else NotImplemented.

    torch's ONNX exporters and TorchScript record operators of torch: `unpool.torch.export` then writes one MaxPool or
    MaxUnpool for each, and a TorchScript file runs where unpool is not installed.
    """
    if has_torch_function_variadic(*tensors):
        return handle_torch_function(function, tensors, *arguments)
    if torch.onnx.is_in_onnx_export():
        return TORCH_FUNCTIONS[function.__name__](*arguments)
    if is_tracing():
        with unchecked_sizes():
            return TORCH_FUNCTIONS[function.__name__](*arguments)
    unpack: Any = forward_ad.unpack_dual  # without forward mode, tangents would silently be 0
    if not HAS_FORWARD_MODE and any(each is not None and unpack(each).tangent is not None for each in tensors):
        raise UnsupportedError(
            f"{function.__name__}: expected tensors without tangents, for torch {torch.__version__} lacks what forward "
            "mode needs here. Use backward mode, torch 2.13, or torch's own operator."
        )
    return NotImplemented


@contextmanager
def unchecked_sizes() -> Iterator[None]:
    """Let threads that trace a model for TorchScript unpool without torch's check of the output size.

    The check fails on the tensors that sizes are during tracing. torch.nn.functional belongs to the whole process: one
    thread is inside at a time, others wait; those that do not trace are checked.
    """
    with TRACING:
        check = torch_internal(f"torch.nn.functional.{SIZE_CHECK}")
        if check is None:
            yield
            return

        def unless_tracing(*sizes: Any) -> None:
            if not is_tracing():
                check(*sizes)

        setattr(torch.nn.functional, SIZE_CHECK, unless_tracing)
        try:
            yield
        finally:
            setattr(torch.nn.functional, SIZE_CHECK, check)


def is_small(size: int, thresholds: Thresholds, first: Tensor, *others: Tensor | None) -> bool:
    """True if PyTorch runs a call of this size on these tensors: they have to be row-major floats on the CPU."""
    if not 0 < size <= thresholds.with_gradient or first.dtype not in _TYPES:
        return False
    if first.is_cuda or not first.is_contiguous():
        return False
    is_recorded = first.requires_grad
    for each in others:
        if each is not None:
            is_recorded = is_recorded or each.requires_grad
            if not each.is_contiguous():
                return False
    return size <= thresholds.without_gradient or (is_recorded and torch.is_grad_enabled())
