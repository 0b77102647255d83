"""Gradients of a transposed convolution.

    dX[n, c, p] = sum over maps m, taps t:      w[c, m, t] * grad[n, m, p * stride + t * dilation - padding]
    dW[c, m, t] = sum over n, positions p:      x[n, c, p] * grad[n, m, p * stride + t * dilation - padding]

On a GPU both have kernels of their own. On the CPU, where windows lie apart, as those of a U-Net do, or the only one of
a GAN's first layer, every element of grad meets one tap: both are products of matrices, and grad is read once for both.
Everything else there, and what is traced, is torch's own convolution. All of it can be differentiated again.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import torch
from torch import Tensor

from unpool.arrays import is_on_gpu
from unpool.torch.ops.registered.conv_backward import (
    Settings,
    conv_transpose_input_gradient,
    conv_transpose_weight_gradient,
)
from unpool.torch.ops.registered.direct import is_direct

Gradients: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]

_MULTIPLIED = (torch.float32, torch.float64)
"""Types whose products of matrices are as fast as convolutions."""


def gradients(
    grad: Tensor, x: Tensor, weight: Tensor, settings: Settings, bias_sizes: list[int] | None, wanted: Sequence[bool]
) -> Gradients:
    """The gradients of a transposed convolution by x, weight and bias, None for those that are not wanted.

    Args:
        grad: (N, M, D1..Dk), the gradient of its result.
        x: (N, C, d1..dk).
        weight: (C, M/groups, k1..kk).
        settings: of the convolution.
        bias_sizes: [M] where there is a bias.
        wanted: which of the three.
    """
    if is_on_gpu(grad):
        return (
            conv_transpose_input_gradient(grad, weight, x.shape[2:], *settings) if wanted[0] else None,
            conv_transpose_weight_gradient(x, grad, weight.shape[2:], *settings) if wanted[1] else None,
            _bias_gradient(grad) if wanted[2] else None,
        )
    if is_direct(grad, x, weight) and _are_products(x, weight, settings):
        return *_products(grad, x, weight, settings, wanted), _bias_gradient(grad) if wanted[2] else None
    stride, padding, output_padding, groups, dilation = settings
    found: Gradients = torch.ops.aten.convolution_backward.default(
        grad, x, weight, bias_sizes, stride, padding, dilation, True, output_padding, groups, wanted
    )
    return found


def _bias_gradient(grad: Tensor) -> Tensor:
    return grad.sum([0, *range(2, grad.dim())])


def _are_products(x: Tensor, weight: Tensor, settings: Settings) -> bool:
    """Whether windows lie apart; where memory is row-major, and the type fits."""
    stride, padding, _, _, dilation = settings
    if x.dtype not in _MULTIPLIED or not x.numel() or not x.is_contiguous():
        return False
    return are_apart(x.shape[2:], weight.shape[2:], tuple(stride), tuple(padding), tuple(dilation))


@lru_cache(maxsize=256)
def are_apart(
    sizes: torch.Size, window: torch.Size, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> bool:
    """Whether no two windows share an element of the result; several have no padding, and none is dilated."""
    if all(size == 1 for size in sizes):
        return all(spread == 1 for spread in dilation)
    axes = zip(sizes, window, stride, dilation, strict=True)
    return not any(padding) and all(spread == 1 and (step >= taps or size == 1) for size, taps, step, spread in axes)


def _products(
    grad: Tensor, x: Tensor, weight: Tensor, settings: Settings, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients by x and weight; matrices are (channels, taps of maps), (taps of maps, positions) by group."""
    batch, channels, groups = *x.shape[:2], settings[3]
    columns = _columns(grad, x.shape[2:], weight.shape[2:], settings)
    by_x = by_weight = None
    if wanted[0]:
        rows = torch.bmm(weight.reshape(groups, channels // groups, -1), columns)
        by_x = rows.view(channels, batch, -1).transpose(0, 1).reshape(x.shape)
    if wanted[1]:
        rows = x.flatten(2).transpose(0, 1).reshape(groups, channels // groups, -1)
        by_weight = torch.bmm(rows, columns.transpose(1, 2)).view(weight.shape)
    return by_x, by_weight


def _columns(grad: Tensor, sizes: Sequence[int], window: Sequence[int], settings: Settings) -> Tensor:
    """The windows of grad as (groups, maps of a group and taps, N and positions of x, so many along each axis)."""
    stride, padding, _, groups, _ = settings
    rank, windows = len(window), grad
    if any(padding):
        windows = torch.nn.functional.pad(grad, [pad for pad in reversed(padding) for _ in range(2)])
    for axis, (count, size, step) in enumerate(zip(sizes, window, stride, strict=True), 2):
        windows = windows.unfold(axis, size, step).narrow(axis, 0, count)
    taps, positions = range(2 + rank, 2 + 2 * rank), range(2, 2 + rank)
    maps = grad.shape[1] // groups * math.prod(window)
    return windows.permute(1, *taps, 0, *positions).reshape(groups, maps, -1)
