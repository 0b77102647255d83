"""Thresholds of size below which PyTorch's own operator runs, as it ends before unpool's kernel would start.

The way from Python to a kernel, and from autograd back into Python, takes tens of microseconds. In training it takes
more: PyTorch's threads spin for milliseconds after each of its operators, on cores that unpool's threads then lack.
Only calls with the same result fall back: those of plain tensors on the CPU, without windows of padding alone. Sums may
be rounded differently. On a GPU no call falls back: PyTorch's gradients differ from run to run there.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unpool.geometry import Window
from unpool.torch.ops.arguments import Ints, check_nonempty, per_axis, pooled_sizes, window_sizes

_TYPES = (torch.float32, torch.float64)


class Thresholds(NamedTuple):
    """Largest size of a small call, in elements or products.

    Attributes:
        without_gradient: without a gradient.
        with_gradient: if a gradient may be needed.
    """

    without_gradient: int
    with_gradient: int


MAX_POOL = Thresholds(1 << 14, 1 << 15)
"""Elements of the input."""

MAX_UNPOOL = Thresholds(1 << 14, 1 << 16)
"""Elements of the input."""

CONV_TRANSPOSE = Thresholds(1 << 21, 7 << 28)
"""Products of a transposed convolution. Unpool's is faster forward from a tenth of a millisecond on; but its gradients
are torch's, and the operators after them share the cores with torch's spinning threads."""

DISJOINT_CONV_TRANSPOSE = Thresholds(1 << 21, 1 << 24)
"""Products if windows are disjoint: then the gradients are products of matrices."""


def is_small(size: int, thresholds: Thresholds, first: Tensor, *others: Tensor | None) -> bool:
    """True if PyTorch runs a call of this size on these tensors: they have to be row-major floats on the CPU."""
    if (
        not 0 < size <= thresholds.with_gradient
        or first.dtype not in _TYPES
        or first.is_cuda
        or not first.is_contiguous()
    ):
        return False
    is_recorded = first.requires_grad
    for each in others:
        if each is not None:
            is_recorded = is_recorded or each.requires_grad
            if not each.is_contiguous():
                return False
    return size <= thresholds.without_gradient or (is_recorded and torch.is_grad_enabled())


def hashable(setting: Any) -> Any:
    """A setting as a key of a cache."""
    return tuple(setting) if isinstance(setting, list) else setting


@lru_cache(maxsize=256, typed=True)  # 2.0 equals 2, and is no size
def has_full_windows(
    where: str, shape: torch.Size, size: Ints, stride: Ints | None, padding: Ints, dilation: Ints, ceil_mode: bool
) -> bool:
    """True if no window of a pool holds padding."""
    rank = int(where[-2])
    if len(shape) not in (rank + 1, rank + 2):
        return False
    windows = *window_sizes(where, size, stride, rank), per_axis(where, "dilation", dilation, rank)
    pads = per_axis(where, "padding", padding, rank)
    check_nonempty(where, shape[-rank - 2 :])
    pooled_sizes(where, shape[-rank:], [Window(*each) for each in zip(*windows, strict=True)], pads, ceil_mode)
    return not any(pads) and not ceil_mode
