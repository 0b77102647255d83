"""Transposed convolution on tensors, with torch.nn.functional's signatures, results and gradients.

The gradients of unpool::conv_transpose are operators too, conv_transpose_input_gradient and _weight_gradient:

    dX[n, c, p] = sum over maps m, taps t:      w[c, m, t] * grad[n, m, p * stride + t * dilation - padding]
    dW[c, m, t] = sum over n, positions p:      x[n, c, p] * grad[n, m, p * stride + t * dilation - padding]

- On a GPU both operators have kernels of their own, whose results are the same every time.
- On the CPU, both gradients are products of matrices, on one copy of the windows of grad, if the windows are disjoint,
  as in a U-Net or in a GAN's first layer, or if the copy is smaller than the weights, as in a GAN's next layers.
- All other cases on the CPU, and traced calls, are torch's own convolution.

All three are linear in each of their first two tensors, and the derivatives of each are the other two. So all gradients
can be differentiated again.
"""

import math
from collections.abc import Sequence
from functools import lru_cache, partial, reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from unpool.arrays import is_on_gpu
from unpool.operators import resolve
from unpool.operators.resolve import Spec
from unpool.torch.ops import arguments, tensors
from unpool.torch.ops.arguments import ArgumentError, Ints
from unpool.torch.ops.eager_fallback import (
    CONV_TRANSPOSE,
    DISJOINT_WINDOWS,
    LARGE_WINDOWS,
    TORCH_FUNCTIONS,
    call_override,
    is_small,
)
from unpool.torch.ops.register import (
    HAS_FAST_PATH,
    batch_rule,
    can_bypass_dispatcher,
    move_batch_first,
    operator,
    recorder,
)

_SETTINGS = "SymInt[] stride, SymInt[] padding, SymInt[] output_padding, SymInt groups, SymInt[] dilation"

_MULTIPLIED = (torch.float32, torch.float64)
"""Types whose products of matrices are as fast as convolutions."""

_OVERLAPPING_COLUMNS = 0.5
"""Largest copy of overlapping windows for gradients by products of matrices, in elements per weight."""

_DISJOINT_COLUMNS = 2
"""Largest copy of disjoint windows for which PyTorch computes the result; unpool packs the weights in every step."""

_LARGE_WINDOW = 64
"""Smallest number of taps of a large window, along two axes or more."""


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Like `conv_transpose2d`, along the axis of (N, C, L) or (C, L), with weight (C, M/groups, k).

    >>> conv_transpose1d(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[[1.0, 10.0, 100.0]]]), stride=2).tolist()
    [[1.0, 10.0, 102.0, 20.0, 203.0, 30.0, 300.0]]
    """
    return _conv_transpose(conv_transpose1d, 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Transposed convolution of an image.

        size = (d - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1

    Args:
        input: (N, C, H, W), or without N; float16, bfloat16, float32 or float64; autocast casts it and the weights
            first, as in torch.
        weight: (C, M/groups, kH, kW), type of input.
        bias: (M,), type of input; zeros by default.
        stride: step between windows of the output in elements; an int, or one per spatial axis.
        padding: elements cropped from both sides of the output.
        output_padding: elements added at the end, less than the larger of stride and dilation.
        groups: number of independent groups of channels.
        dilation: step between the taps of a window.

    Returns:
        (N, M, ..) in the type of input; 16-bit types are summed in float32 and rounded once.

    Raises:
        ArgumentError: a type, shape or setting that torch also rejects.

    Source: torch.nn.functional.conv_transpose2d.

    >>> conv_transpose2d(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2), torch.tensor([0.5])).tolist()
    [[[[1.5, 2.5, 1.5]]]]
    """
    return _conv_transpose(conv_transpose2d, 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Like `conv_transpose2d`, over a volume (N, C, D, H, W) or (C, D, H, W), with weight (C, M/groups, kD, kH, kW).

    >>> conv_transpose3d(torch.ones(1, 1, 1, 1, 1), torch.ones(1, 2, 2, 3, 4), stride=2).shape
    torch.Size([1, 2, 2, 3, 4])
    """
    return _conv_transpose(conv_transpose3d, 3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _conv_transpose(function: Any, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    where = function.__name__
    call: Any = torch.ops.unpool.conv_transpose
    if not can_bypass_dispatcher(x, weight, bias):
        result: Tensor = call_override(function, (x, weight, bias), x, weight, bias, *settings)
        if result is not NotImplemented:
            return result
    elif x.is_cuda or not _is_small(rank, x, weight, bias, settings):
        call = conv_transpose.call_kernel
    elif _uses_torch_forward(rank, x, weight, settings):
        call = _record_torch
    else:
        call = conv_transpose.call_kernel
        try:
            return TORCH_FUNCTIONS[where](x, weight, bias, *settings)  # type: ignore[no-any-return]
        except RuntimeError:
            pass  # the call below raises unpool's error
    stride, padding, output_padding, groups, dilation = settings
    batch, is_unbatched = arguments.add_batch_axis(where, arguments.in_autocast_type(x), rank)
    y: Tensor = call(
        batch,
        arguments.in_autocast_type(weight),
        None if bias is None else arguments.in_autocast_type(bias),
        arguments.per_axis(where, "stride", stride, rank),
        arguments.per_axis(where, "padding", padding, rank),
        arguments.per_axis(where, "output_padding", output_padding, rank),
        groups,
        arguments.per_axis(where, "dilation", dilation, rank),
    )
    return y.squeeze(0) if is_unbatched else y


def _is_small(rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...]) -> bool:
    """True if torch's operator computes the result; the gradients may still be unpool's."""
    products = _count_products(x, weight)
    if not is_small(products, CONV_TRANSPOSE, x, weight, bias):
        return False
    if is_small(products, DISJOINT_WINDOWS, x, weight, bias) or not x.dim() == weight.dim() == rank + 2:
        return True
    if rank > 1 and math.prod(weight.shape[2:]) >= _LARGE_WINDOW:
        return is_small(products, LARGE_WINDOWS, x, weight, bias)
    if not _has_disjoint_windows(x.shape[2:], weight.shape[2:], *_windows(rank, settings)):
        return True
    return math.prod(x.shape[2:]) > 1 and _columns_per_weight(x, weight, settings[3]) <= _DISJOINT_COLUMNS


def _uses_torch_forward(rank: int, x: Tensor, weight: Tensor, settings: tuple[Any, ...]) -> bool:
    """True if torch's operator computes the result of a call that `_is_small`, and unpool the gradients."""
    if _count_products(x, weight) <= DISJOINT_WINDOWS.with_gradient or not x.dim() == weight.dim() == rank + 2:
        return False
    return _has_product_gradients(x, weight, settings[3], *_windows(rank, settings))


def _windows(rank: int, settings: tuple[Any, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Stride, padding and dilation, per axis."""
    sizes = settings[0], settings[1], settings[4]
    stride, padding, dilation = (arguments.per_axis("conv_transpose", "settings", each, rank) for each in sizes)
    return stride, padding, dilation


def _count_products(x: Tensor, weight: Tensor) -> int:
    return x.numel() * weight.numel() // max(1, len(weight))


def _product_rule(operator: Any, ctx: Any, saved: Sequence[Tensor], *tangents: Any) -> Any:
    """The tangent of a result: one part for each of the two tensors with a tangent, and other tangents as they are."""
    first, second, *others = tangents
    parts: list[Tensor] = []
    if first is not None:
        parts.append(operator(first, saved[1], ctx.size, *ctx.settings))
    if second is not None:
        parts.append(operator(saved[0], second, ctx.size, *ctx.settings))
    return reduce(add, [*parts, *[tangent for tangent in others if tangent is not None]])


def _map_calls(operator: Any, info: Any, places: Any, x: Tensor, weight: Tensor, third: Any, *settings: Any) -> Any:
    """Calls on one weight, and one bias, become parts of a batch, others groups of channels."""
    size = info.batch_size
    if places[1] is None and not (isinstance(third, Tensor) and places[2] is not None):
        return batch_rule(lambda x: operator(x, weight, third, *settings), info, places[:1], x)
    weights = move_batch_first(weight, places[1], size).flatten(0, 1)
    if isinstance(third, Tensor):
        third = move_batch_first(third, places[2], size).flatten()
    *others, groups, dilation = settings
    y = operator(_stack_channels(x, places[0], size), weights, third, *others, groups * size, dilation)
    return y.view(y.shape[0], size, y.shape[1] // size, *y.shape[2:]), 1


def _map_weights(operator: Any, info: Any, places: Any, *arguments: Any) -> tuple[Tensor, int]:
    """Calls become groups of channels."""
    x, grad, *others, groups, dilation = arguments
    size = info.batch_size
    stacked = _stack_channels(x, places[0], size), _stack_channels(grad, places[1], size)
    y = operator(*stacked, *others, groups * size, dilation)
    return y.view(size, -1, *y.shape[1:]), 0


def _stack_channels(x: Tensor, place: int | None, size: int) -> Tensor:
    """Calls side by side, (N, calls * C, ..)."""
    return move_batch_first(x, place, size).movedim(0, 1).flatten(1, 2)


def _save_both(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    first, second, ctx.size, *ctx.settings = inputs
    return first, second


_bilinear_operator = partial(operator, save=_save_both, tangent=_product_rule)


def _input_fake(grad: Tensor, weight: Tensor, size: Sequence[int], *_: Any) -> Tensor:
    return tensors.empty(grad, [grad.shape[0], weight.shape[0], *size])


def _input_backward(ctx: Any, tangent: Tensor) -> Any:
    """The derivatives of the input gradient, by the gradient of the result, and by the weight."""
    (grad, weight), needs, settings = ctx.saved_tensors, ctx.needs_input_grad, ctx.settings
    by_grad = torch.ops.unpool.conv_transpose(tangent, weight, None, *settings) if needs[0] else None
    by_weight = conv_transpose_weight_gradient(tangent, grad, weight.shape[2:], *settings) if needs[1] else None
    return by_grad, by_weight, *[None] * 6


@_bilinear_operator(
    f"Tensor grad, Tensor weight, SymInt[] size, {_SETTINGS}", _input_fake, gradient=_input_backward, batch=_map_calls
)
def conv_transpose_input_gradient(grad: Tensor, weight: Tensor, size: Sequence[int], *settings: Any) -> Tensor:
    """The gradient of a transposed convolution by its input of the given spatial size."""
    if is_on_gpu(grad):
        y = _on_gpu("input_gradient", grad, weight, size, settings)
    else:
        x = grad.new_empty([grad.shape[0], weight.shape[0], *size])
        y = _torch_gradients(grad, x, weight, settings, None, [True, False, False])[0]
    return tensors.channels_last(y) if tensors.has_channels_last(grad) and y.numel() else y.contiguous()


def _weight_fake(x: Tensor, grad: Tensor, window: Sequence[int], *settings: Any) -> Tensor:
    return x.new_empty([x.shape[1], grad.shape[1] // settings[3], *window])


def _weight_backward(ctx: Any, tangent: Tensor) -> Any:
    """The derivatives of the weight gradient, by the input of the convolution, and by the gradient of its result."""
    (x, grad), needs, settings = ctx.saved_tensors, ctx.needs_input_grad, ctx.settings
    by_x = conv_transpose_input_gradient(grad, tangent, x.shape[2:], *settings) if needs[0] else None
    by_grad = torch.ops.unpool.conv_transpose(x, tangent, None, *settings) if needs[1] else None
    return by_x, by_grad, *[None] * 6


@_bilinear_operator(
    f"Tensor x, Tensor grad, SymInt[] window, {_SETTINGS}", _weight_fake, gradient=_weight_backward, batch=_map_weights
)
def conv_transpose_weight_gradient(x: Tensor, grad: Tensor, window: Sequence[int], *settings: Any) -> Any:
    """The gradient of a transposed convolution by its weight of the given window."""
    if is_on_gpu(x):
        return _on_gpu("weight_gradient", x, grad, window, settings)
    weight = _weight_fake(x, grad, window, *settings)
    return _torch_gradients(grad, x, weight, settings, None, [False, True, False])[1].contiguous()


def _on_gpu(name: str, first: Tensor, second: Tensor, sizes: Sequence[int], settings: Sequence[Any]) -> Any:
    from unpool.execute.gpu import gradients

    stride, padding, _, groups, dilation = settings
    conv = gradients.ConvSettings(tuple(stride), tuple(padding), tuple(dilation), groups)
    return getattr(gradients, name)(first.detach(), second.detach(), tuple(sizes), conv)


def _torch_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, settings: Sequence[Any], bias_sizes: list[int] | None, needed: list[bool]
) -> Any:
    stride, padding, output_padding, groups, dilation = settings
    return torch.ops.aten.convolution_backward.default(
        grad, x, weight, bias_sizes, stride, padding, dilation, True, output_padding, groups, needed
    )


def _gradient(ctx: Any, grad: Tensor | None) -> tuple[Any, ...]:
    """The gradients by x (N, C, d1..dk), weight (C, M/groups, k1..kk) and bias; None for those that are not needed."""
    if grad is None:
        return (None,) * 8
    (x, weight), settings = ctx.saved_tensors, ctx.settings
    needed = list(ctx.needs_input_grad[:3])
    if is_on_gpu(grad):
        by_x = conv_transpose_input_gradient(grad, weight, x.shape[2:], *settings) if needed[0] else None
        by_weight = conv_transpose_weight_gradient(x, grad, weight.shape[2:], *settings) if needed[1] else None
    elif can_bypass_dispatcher(grad, x, weight) and _uses_products(x, weight, settings):
        by_x, by_weight = _products(grad, x, weight, settings, needed)
    else:
        return *_torch_gradients(grad, x, weight, settings, ctx.bias_sizes, needed), None, None, None, None, None
    by_bias = grad.sum([0, *range(2, grad.dim())]) if needed[2] else None
    return by_x, by_weight, by_bias, None, None, None, None, None


def _uses_products(x: Tensor, weight: Tensor, settings: Sequence[Any]) -> bool:
    """True if the gradients are products: windows are disjoint or few, memory is row-major, and the type fits."""
    stride, padding, _, groups, dilation = settings
    if x.dtype not in _MULTIPLIED or not x.numel() or not x.is_contiguous():
        return False
    return _has_product_gradients(x, weight, groups, tuple(stride), tuple(padding), tuple(dilation))


def _has_product_gradients(x: Tensor, weight: Tensor, groups: int, *windows: tuple[int, ...]) -> bool:
    """True for windows (stride, padding, dilation) that are disjoint, or few and without dilation.

    If there are few, products of matrices read the weights once, and convolutions would rearrange them first.
    """
    if _has_disjoint_windows(x.shape[2:], weight.shape[2:], *windows):
        return True
    return windows[2] == (1,) * (x.dim() - 2) and _columns_per_weight(x, weight, groups) <= _OVERLAPPING_COLUMNS


def _columns_per_weight(x: Tensor, weight: Tensor, groups: int) -> float:
    """Elements of all windows of the result, a window for each position of x, for each element of the weight."""
    return x.numel() // max(1, x.shape[1]) * groups / max(1, len(weight))


@lru_cache(maxsize=256)
def _has_disjoint_windows(
    sizes: torch.Size, window: torch.Size, stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> bool:
    """True if no two windows share an element of the result; only a single one may have padding, none is dilated."""
    if all(size == 1 for size in sizes):
        return all(spread == 1 for spread in dilation)
    axes = zip(sizes, window, stride, dilation, strict=True)
    return not any(padding) and all(spread == 1 and (step >= taps or size == 1) for size, taps, step, spread in axes)


def _products(grad: Tensor, x: Tensor, weight: Tensor, settings: Any, needed: Sequence[bool]) -> tuple[Any, Any]:
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


def _columns(grad: Tensor, sizes: Sequence[int], window: Sequence[int], settings: Any) -> Tensor:
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


def _shape(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> list[int]:
    """The shape of the result, after all checks of the arguments."""
    stride, padding, output_padding, groups, dilation = settings
    where, channels = f"conv_transpose{len(stride)}d", x.shape[1]
    arguments.check_tensor(where, "input", x, arguments.FLOATS)
    for name, each in (("weight", weight), ("bias", bias)):
        if each is not None:
            arguments.check_tensor(where, name, each, (x.dtype,))
    if weight.dim() != x.dim() or weight.shape[0] != channels or 0 in weight.shape or 0 in x.shape[2:]:
        raise ArgumentError(
            f"{where}: weight needs the shape ({channels}, M/groups, k1..kn) without empty axes for an input of "
            f"{list(x.shape)}, got {list(weight.shape)}. Pass the weight of a layer with {channels} channels."
        )
    if groups < 1 or channels % groups:
        raise ArgumentError(f"{where}: groups needs to divide the {channels} channels, got {groups}. Pass a divisor.")
    maps = weight.shape[1] * groups
    if bias is not None and list(bias.shape) != [maps]:
        raise ArgumentError(f"{where}: bias needs the shape [{maps}], got {list(bias.shape)}. Give one per output map.")
    windows = weight.shape[2:], stride, dilation
    return [x.shape[0], maps, *arguments.conv_transpose_sizes(where, x.shape[2:], windows, padding, output_padding)]


def _fake(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
    return tensors.empty(x, _shape(x, weight, *others), other=weight)


def _spec(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Spec:
    """The Spec of the arguments, after all checks."""
    _shape(x, weight, bias, *settings)
    stride, padding, output_padding, groups, dilation = settings
    pads = {"pads": (*padding, *padding), "output_padding": output_padding}
    attributes = {"strides": stride, "dilations": dilation, "group": groups, **pads}
    return resolve.spec("ConvTranspose", attributes, domain=tensors.domain_of(x))


def _save(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    x, weight, bias, *ctx.settings = inputs
    ctx.size, ctx.bias_sizes = None, None if bias is None else list(bias.shape)
    ctx.set_materialize_grads(False)  # no zeros for inputs without a tangent
    return x, weight


def _tangent(operator: Any, ctx: Any, saved: Sequence[Tensor], *tangents: Any) -> Any:
    *products, bias = tangents[:3]
    if bias is not None:
        sizes = _shape(*saved, None, *ctx.settings)
        bias = bias.view(-1, *[1] * (len(sizes) - 2)) + bias.new_zeros(sizes)
    return _product_rule(operator, ctx, saved, *products, bias)


@operator(f"Tensor x, Tensor weight, Tensor? bias, {_SETTINGS}", _fake, _save, _gradient, _tangent, _map_calls)
def conv_transpose(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    """Transposed convolution of a batched tensor; 16-bit types are summed in float32."""
    if tensors.has_channels_last(weight) and x.dim() == weight.dim() and not tensors.has_channels_last(x):
        x = tensors.channels_last(x)  # as torch does
    return tensors.run(_spec, settings, (x, weight, bias))[0]


def _torch_result(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    """The result of torch's operator, after unpool's checks."""
    _shape(x, weight, bias, *settings)
    stride, padding, output_padding, groups, dilation = settings
    return torch.ops.aten.convolution.default(  # type: ignore[no-any-return]
        x, weight, bias, stride, padding, dilation, True, output_padding, groups
    )


_record_torch = recorder(_torch_result, _save, _gradient) if HAS_FAST_PATH else None
"""As `conv_transpose.record`, but torch's operator computes the result."""
