"""The gradients of a transposed convolution on a GPU, by kernels of our own: the same every time.

    y[n, m, p * stride + t * dilation - padding] += x[n, c, p] * w[c, m, t]

16-bit floats are added in float32 and rounded once.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from unpool.geometry import Axis, Window
from unpool.kernels.gpu.conv_transpose import Growth, launch_adjoint, pack
from unpool.kernels.gpu.conv_transpose.weight_gradient import launch as launch_weight_gradient
from unpool.kernels.gpu.elements import KINDS

_KEPT = 1024


class Setting(NamedTuple):
    """Of a transposed convolution: groups, and one int per spatial axis in each of the others."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def input_gradient(grad: torch.Tensor, w: torch.Tensor, spatial: tuple[int, ...], setting: Setting) -> torch.Tensor:
    """Gradient with respect to x: the convolution of grad by w.

    Args:
        grad: (N, M, D1..Dk), or (N, D1..Dk, M) in memory where its strides are those of torch's channels-last.
        w: (C, M/groups, k1..kk).
        spatial: d1..dk of x.
        setting: of the transposed convolution.

    Returns:
        (N, C, d1..dk) in the type and the memory order of grad.
    """
    is_last, (grad,) = _in_one_order(grad)
    y = _empty((grad.shape[0], w.shape[0], *spatial), grad, is_last)
    growth = _growth(grad.shape, (w.shape, spatial), setting, KINDS[grad.dtype], is_last)
    _input_gradient(growth)(grad, pack(w, setting.groups, is_adjoint=True), None, y)
    return y


def weight_gradient(x: torch.Tensor, grad: torch.Tensor, window: tuple[int, ...], setting: Setting) -> torch.Tensor:
    """Gradient with respect to w: for every tap, x times grad, added over all positions.

    Args:
        x: (N, C, d1..dk).
        grad: (N, M, D1..Dk).
        window: k1..kk.
        setting: of the transposed convolution.

    Returns:
        (C, M/groups, k1..kk) in the type of x.
    """
    is_last, (x, grad) = _in_one_order(x, grad)
    weights = x.shape[1], grad.shape[1] // setting.groups, *window
    return _weight_gradient(_growth(grad.shape, (weights, x.shape[2:]), setting, KINDS[x.dtype], is_last))(x, grad)


_input_gradient = lru_cache(_KEPT)(launch_adjoint)
_weight_gradient = lru_cache(_KEPT)(launch_weight_gradient)


def _growth(
    large: tuple[int, ...],
    small: tuple[tuple[int, ...], tuple[int, ...]],
    setting: Setting,
    kind: str,
    is_channels_last: bool,
) -> Growth:
    """The call whose gradient is asked for; `large` is y's shape, `small` are w's, and the spatial sizes of x."""
    (channels, maps, *window), sizes = small
    each: Any = zip(large[2:], sizes, window, setting.stride, setting.padding, setting.dilation, strict=True)
    axes = tuple(Axis(out, into, Window(size, step, spread), begin) for out, into, size, step, begin, spread in each)
    return Growth(axes, large[0], setting.groups, channels // setting.groups, maps, kind, is_channels_last)


def _in_one_order(*tensors: torch.Tensor) -> tuple[bool, tuple[torch.Tensor, ...]]:
    """Whether the first tensor lies channels-last in memory, and all of them without gaps in its order."""
    first = tensors[0]
    last = (0, *range(2, first.dim()), 1)
    is_last = not first.is_contiguous() and first.permute(last).is_contiguous()
    if not is_last:
        return False, tuple(each.contiguous() for each in tensors)
    return True, tuple(each.permute(last).contiguous().movedim(-1, 1) for each in tensors)


def _empty(shape: tuple[int, ...], model: torch.Tensor, is_last: bool) -> torch.Tensor:
    batch, channels, *sizes = shape
    in_memory = (batch, *sizes, channels) if is_last else shape
    y = torch.empty(in_memory, dtype=model.dtype, device=model.device)
    return y.movedim(-1, 1) if is_last else y
