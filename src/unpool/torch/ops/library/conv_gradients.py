"""Gradients of a transposed convolution, and the operators unpool::conv_transpose_input_gradient and _weight_gradient.

    dX[n, c, p] = sum over maps m, taps t:      w[c, m, t] * grad[n, m, p * stride + t * dilation - padding]
    dW[c, m, t] = sum over n, positions p:      x[n, c, p] * grad[n, m, p * stride + t * dilation - padding]

- On a GPU both operators have kernels of their own, whose results are the same every time.
- On the CPU, if windows are disjoint, as in a U-Net or in a GAN's first layer, every element of grad has one tap: both
  gradients are products of matrices, and grad is read once for both.
- All other cases on the CPU, and traced calls, are torch's own convolution.

Both operators, and the transposed convolution itself, are linear in each of their two tensors; the derivatives of each
are the other two. So all gradients can be differentiated again.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import add
from typing import Any, TypeAlias

import torch
from torch import Tensor

from unpool.arrays import is_on_gpu
from unpool.torch.ops.library import tensors
from unpool.torch.ops.library.fast_path import can_bypass_dispatcher
from unpool.torch.ops.library.register import Rule, batch_rule, move_batch_first, operator

Settings: TypeAlias = tuple[Sequence[int], Sequence[int], Sequence[int], int, Sequence[int]]
"""stride, padding, output_padding, groups, dilation."""

_REST = (None,) * 6  # arguments that are no tensors


def _input_fake(grad: Tensor, weight: Tensor, size: Sequence[int], *_: Any) -> Tensor:
    return tensors.empty(grad, [grad.shape[0], weight.shape[0], *size])


def _weight_fake(x: Tensor, grad: Tensor, window: Sequence[int], *settings: Any) -> Tensor:
    return x.new_empty([x.shape[1], grad.shape[1] // settings[3], *window])


def _save(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    first, second, ctx.sizes, *ctx.settings = inputs
    return first, second


def _input_derivatives(ctx: Any, tangent: Tensor) -> tuple[Any, ...]:
    """The derivatives of the input gradient, by the gradient of the result, and by the weight."""
    grad, weight = ctx.saved_tensors
    by_grad = by_weight = None
    if ctx.needs_input_grad[0]:
        by_grad = torch.ops.unpool.conv_transpose(tangent, weight, None, *ctx.settings)
    if ctx.needs_input_grad[1]:
        by_weight = conv_transpose_weight_gradient(tangent, grad, weight.shape[2:], *ctx.settings)
    return by_grad, by_weight, *_REST


def _weight_derivatives(ctx: Any, tangent: Tensor) -> tuple[Any, ...]:
    """The derivatives of the weight gradient, by the input of the convolution, and by the gradient of its result."""
    x, grad = ctx.saved_tensors
    by_x = by_grad = None
    if ctx.needs_input_grad[0]:
        by_x = conv_transpose_input_gradient(grad, tangent, x.shape[2:], *ctx.settings)
    if ctx.needs_input_grad[1]:
        by_grad = torch.ops.unpool.conv_transpose(x, tangent, None, *ctx.settings)
    return by_x, by_grad, *_REST


def _tangent_of(name: str) -> Callable[..., Tensor]:
    """The product rule for the operator of this name: one part for each tensor with a tangent."""

    def tangent(ctx: Any, saved: Sequence[Tensor], *tangents: Any) -> Tensor:
        first, second = saved
        pairs = (tangents[0], second), (first, tangents[1])
        parts: list[Tensor] = [
            getattr(torch.ops.unpool, name)(*pair, ctx.sizes, *ctx.settings)
            for pair, own in zip(pairs, tangents[:2], strict=True)
            if own is not None
        ]
        return reduce(add, parts)

    return tangent


def _input_rule(operator: Any) -> Rule:
    """Calls on one weight become parts of a batch, others groups of channels."""

    def rule(info: Any, places: Any, grad: Tensor, weight: Tensor, *others: Any) -> tuple[Any, Any]:
        if places[1] is None:
            return batch_rule(lambda grad: operator(grad, weight, *others))(info, places[:1], grad)
        stacked = _stack_channels(grad, places[0], info.batch_size)
        weights = move_batch_first(weight, places[1], info.batch_size).flatten(0, 1)
        y = operator(stacked, weights, *_grouped(others, info.batch_size))
        return y.view(y.shape[0], info.batch_size, -1, *y.shape[2:]), 1

    return rule


def _weight_rule(operator: Any) -> Rule:
    """Calls become groups of channels."""

    def rule(info: Any, places: Any, x: Tensor, grad: Tensor, *others: Any) -> tuple[Any, Any]:
        size = info.batch_size
        stacked = (_stack_channels(each, place, size) for each, place in zip((x, grad), places, strict=False))
        y = operator(*stacked, *_grouped(others, size))
        return y.view(size, -1, *y.shape[1:]), 0

    return rule


def _stack_channels(x: Tensor, place: int | None, size: int) -> Tensor:
    """Calls side by side, (N, calls * C, ..)."""
    return move_batch_first(x, place, size).movedim(0, 1).flatten(1, 2)


def _grouped(others: Sequence[Any], size: int) -> tuple[Any, ...]:
    sizes, stride, padding, output_padding, groups, dilation = others
    return sizes, stride, padding, output_padding, groups * size, dilation


def _torch_gradients(grad: Tensor, x: Tensor, weight: Tensor, settings: Settings, needed: Sequence[bool]) -> Any:
    stride, padding, output_padding, groups, dilation = settings
    return torch.ops.aten.convolution_backward.default(
        grad, x, weight, None, stride, padding, dilation, True, output_padding, groups, [*needed, False]
    )


def _gpu_settings(settings: Settings) -> Any:
    """The settings for `execute.gpu`."""
    from unpool.execute.gpu.gradients import ConvSettings

    stride, padding, _, groups, dilation = settings
    return ConvSettings(tuple(stride), tuple(padding), tuple(dilation), groups)


@operator(_input_fake, _save, _input_derivatives, _tangent_of("conv_transpose_input_gradient"), _input_rule)
def conv_transpose_input_gradient(
    grad: Tensor,
    weight: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """The gradient of a transposed convolution by its input of the given spatial size."""
    settings = stride, padding, output_padding, groups, dilation
    if is_on_gpu(grad):
        from unpool.execute.gpu import gradients

        y = gradients.input_gradient(grad.detach(), weight.detach(), tuple(size), _gpu_settings(settings))
    else:
        x = grad.new_empty([grad.shape[0], weight.shape[0], *size])
        y = _torch_gradients(grad, x, weight, settings, (True, False))[0]
    return tensors.channels_last(y) if tensors.has_channels_last(grad) and y.numel() else y.contiguous()


@operator(_weight_fake, _save, _weight_derivatives, _tangent_of("conv_transpose_weight_gradient"), _weight_rule)
def conv_transpose_weight_gradient(
    x: Tensor,
    grad: Tensor,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """The gradient of a transposed convolution by its weight of the given window."""
    settings = stride, padding, output_padding, groups, dilation
    if is_on_gpu(x):
        from unpool.execute.gpu import gradients

        return gradients.weight_gradient(x.detach(), grad.detach(), tuple(window), _gpu_settings(settings))
    weight = x.new_empty([x.shape[1], grad.shape[1] // groups, *window])
    found: Tensor = _torch_gradients(grad, x, weight, settings, (False, True))[1]
    return found.contiguous()


Gradients: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]

_MULTIPLIED = (torch.float32, torch.float64)
"""Types whose products of matrices are as fast as convolutions."""


def gradients(
    grad: Tensor, x: Tensor, weight: Tensor, settings: Settings, bias_sizes: list[int] | None, needed: Sequence[bool]
) -> Gradients:
    """The gradients of a transposed convolution by x, weight and bias, None for those not `needed`.

    x is (N, C, d1..dk), weight (C, M/groups, k1..kk), grad (N, M, D1..Dk); `bias_sizes` is [M] if there is a bias.
    """
    if is_on_gpu(grad):
        return (
            conv_transpose_input_gradient(grad, weight, x.shape[2:], *settings) if needed[0] else None,
            conv_transpose_weight_gradient(x, grad, weight.shape[2:], *settings) if needed[1] else None,
            _bias_gradient(grad) if needed[2] else None,
        )
    if can_bypass_dispatcher(grad, x, weight) and _uses_products(x, weight, settings):
        return *_products(grad, x, weight, settings, needed), _bias_gradient(grad) if needed[2] else None
    stride, padding, output_padding, groups, dilation = settings
    found: Gradients = torch.ops.aten.convolution_backward.default(
        grad, x, weight, bias_sizes, stride, padding, dilation, True, output_padding, groups, needed
    )
    return found


def _bias_gradient(grad: Tensor) -> Tensor:
    return grad.sum([0, *range(2, grad.dim())])


def _uses_products(x: Tensor, weight: Tensor, settings: Settings) -> bool:
    """True if the gradients are products: windows are disjoint, memory is row-major, and the type fits."""
    stride, padding, _, _, dilation = settings
    if x.dtype not in _MULTIPLIED or not x.numel() or not x.is_contiguous():
        return False
    return has_disjoint_windows(x.shape[2:], weight.shape[2:], tuple(stride), tuple(padding), tuple(dilation))


@lru_cache(maxsize=256)
def has_disjoint_windows(
    sizes: torch.Size, window: torch.Size, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> bool:
    """True if no two windows share an element of the result; only a single one may have padding, none is dilated."""
    if all(size == 1 for size in sizes):
        return all(spread == 1 for spread in dilation)
    axes = zip(sizes, window, stride, dilation, strict=True)
    return not any(padding) and all(spread == 1 and (step >= taps or size == 1) for size, taps, step, spread in axes)


def _products(
    grad: Tensor, x: Tensor, weight: Tensor, settings: Settings, needed: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients by x and weight; matrices are (channels, taps of maps), (taps of maps, positions) by group."""
    batch, channels, groups = *x.shape[:2], settings[3]
    columns = _columns(grad, x.shape[2:], weight.shape[2:], settings)
    by_x = by_weight = None
    if needed[0]:
        rows = torch.bmm(weight.reshape(groups, channels // groups, -1), columns)
        by_x = rows.view(channels, batch, -1).transpose(0, 1).reshape(x.shape)
    if needed[1]:
        rows = x.flatten(2).transpose(0, 1).reshape(groups, channels // groups, -1)
        by_weight = torch.bmm(rows, columns.transpose(1, 2)).view(weight.shape)
    return by_x, by_weight


def _columns(grad: Tensor, sizes: Sequence[int], window: Sequence[int], settings: Settings) -> Tensor:
    """The windows of grad as (groups, maps of a group and taps, N and positions of x)."""
    stride, padding, _, groups, _ = settings
    rank, windows = len(window), grad
    if any(padding):
        windows = torch.nn.functional.pad(grad, [pad for pad in reversed(padding) for _ in range(2)])
    for axis, (count, size, step) in enumerate(zip(sizes, window, stride, strict=True), 2):
        windows = windows.unfold(axis, size, step).narrow(axis, 0, count)
    taps, positions = range(2 + rank, 2 + 2 * rank), range(2, 2 + rank)
    maps = grad.shape[1] // groups * math.prod(window)
    return windows.permute(1, *taps, 0, *positions).reshape(groups, maps, -1)
