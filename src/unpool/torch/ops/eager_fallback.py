"""Calls that PyTorch's own operator finishes before ours would begin: they are its own.

On the way from Python to a kernel, and where autograd calls back into Python, lie tens of microseconds. In training
there is more: threads of PyTorch watch for work for milliseconds after each of its operators, on cores that ours then
lack. Only calls go this way of which both give the same: of plain tensors on the CPU, and without windows that hold
padding alone. Sums may be rounded otherwise. On a GPU PyTorch's gradients differ from run to run, and ours do not.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unpool.geometry import Window
from unpool.torch.ops.arguments import Ints, check_filled, per_axis, pooled_sizes, window_sizes

_TYPES = (torch.float32, torch.float64)


class Most(NamedTuple):
    """What a small call has at most: elements, or products.

    Attributes:
        alone: without a gradient.
        recorded: where its gradient may be asked for.
    """

    alone: int
    recorded: int


POOL = Most(1 << 14, 1 << 15)
"""Elements of the input."""

UNPOOL = Most(1 << 14, 1 << 16)
"""Elements of the input."""

GROW = Most(1 << 21, 7 << 28)
"""Products of a transposed convolution. Forward ours takes less time than torch's from a tenth of a millisecond on;
but its gradients are torch's, and what follows them has to share the cores with threads that watch for more."""

GROW_APART = Most(1 << 21, 1 << 24)
"""The same where windows lie apart: the gradients are products of matrices."""


def is_small(size: int, most: Most, first: Tensor, *others: Tensor | None) -> bool:
    """Whether a call of such a size on these tensors, floats in row-major order but for indices, is PyTorch's own."""
    if not 0 < size <= most.recorded or first.dtype not in _TYPES or first.is_cuda or not first.is_contiguous():
        return False
    is_recorded = first.requires_grad
    for each in others:
        if each is not None:
            is_recorded = is_recorded or each.requires_grad
            if not each.is_contiguous():
                return False
    return size <= most.alone or (is_recorded and torch.is_grad_enabled())


def keyed(setting: Any) -> Any:
    """A setting that can be looked up."""
    return tuple(setting) if isinstance(setting, list) else setting


@lru_cache(maxsize=256)
def has_full_windows(
    where: str, shape: torch.Size, size: Ints, stride: Ints | None, padding: Ints, dilation: Ints, ceil_mode: bool
) -> bool:
    """Whether no window of a pool holds padding.

    Raises:
        ArgumentError: a setting that torch refuses too.
    """
    rank = int(where[-2])
    if len(shape) not in (rank + 1, rank + 2):
        return False
    windows = *window_sizes(where, size, stride, rank), per_axis(where, "dilation", dilation, rank)
    pads = per_axis(where, "padding", padding, rank)
    check_filled(where, shape[-rank - 2 :])
    pooled_sizes(where, shape[-rank:], [Window(*each) for each in zip(*windows, strict=True)], pads, ceil_mode)
    return not any(pads) and not ceil_mode
