"""Max unpooling on tensors, with torch.nn.functional's signatures, results and gradients.

The operators unpool::max_unpool, max_unpool_backward and max_pool_backward write, read and add values at indices, which
count inside their own (n, c) plane. Each is linear in its values, and its gradient is another one of them.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from unpool import per_plane
from unpool.arrays import is_on_gpu
from unpool.errors import IndicesError
from unpool.torch.ops import arguments, tensors
from unpool.torch.ops.arguments import ArgumentError, Ints, TensorIndicesError
from unpool.torch.ops.eager_fallback import MAX_UNPOOL, TORCH_FUNCTIONS, call_override, is_small
from unpool.torch.ops.register import can_bypass_dispatcher, operator


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Like `max_unpool2d`, along the axis of (N, C, L) or (C, L).

    >>> max_unpool1d(torch.tensor([[7.0, 9.0]]), torch.tensor([[1, 2]]), 2).tolist()
    [[0.0, 7.0, 9.0, 0.0]]
    """
    return _max_unpool(max_unpool1d, 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Image of zeros with every element of input at its index.

        size = (d - 1) * stride + kernel_size - 2 * padding, without output_size

    Args:
        input: (N, C, H, W), or without N; float16, bfloat16, float32 or float64.
        indices: int64 in the shape of input; they refer to the plane of their own (n, c). If indices are equal, the
            last one in row-major order wins.
        kernel_size: window size of the pool in elements; an int, or one per spatial axis.
        stride: step between the windows of the pool; kernel_size by default.
        padding: padding of the pool.
        output_size: spatial sizes, with or without N and C in front; less than a stride away from the formula.

    Returns:
        A tensor with the size of the pool's input, in the type of input.

    Raises:
        TensorIndicesError: an index is outside its plane.
        ArgumentError: a type, shape or setting that torch also rejects.

    Source: torch.nn.functional.max_unpool2d.

    >>> max_unpool2d(torch.tensor([[[7.0]]]), torch.tensor([[[2]]]), 2).tolist()
    [[[0.0, 0.0], [7.0, 0.0]]]
    """
    return _max_unpool(max_unpool2d, 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Like `max_unpool2d`, over a volume (N, C, D, H, W) or (C, D, H, W).

    >>> max_unpool3d(torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), 6), 2).flatten().tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    """
    return _max_unpool(max_unpool3d, 3, input, indices, kernel_size, stride, padding, output_size)


def _max_unpool(function: Any, rank: int, x: Tensor, indices: Tensor, *settings: Any) -> Tensor:
    where, bypasses = function.__name__, can_bypass_dispatcher(x, indices)
    if not bypasses:
        result: Tensor = call_override(function, (x, indices), x, indices, *settings)
        if result is not NotImplemented:
            return result
    elif is_small(x.numel(), MAX_UNPOOL, x, indices) and not torch.are_deterministic_algorithms_enabled():
        try:
            return TORCH_FUNCTIONS[where](x, indices, *settings)  # type: ignore[no-any-return]
        except (RuntimeError, ValueError):
            pass  # the call below raises unpool's error
    kernel_size, stride, padding, output_size = settings
    batch, is_unbatched = arguments.add_batch_axis(where, arguments.in_full_precision(x), rank)
    size = (_cached_sizes if bypasses else arguments.unpooled_sizes)(
        where,
        batch.shape[2:],
        arguments.window_sizes(where, kernel_size, stride, rank),
        arguments.per_axis(where, "padding", padding, rank),
        None if output_size is None else tuple(output_size),
    )
    places = indices.unsqueeze(0) if is_unbatched else indices
    y: Tensor = (max_unpool.call_kernel if bypasses else torch.ops.unpool.max_unpool)(batch, places, size)
    return y.squeeze(0) if is_unbatched else y


_cached_sizes = lru_cache(maxsize=256)(arguments.unpooled_sizes)


def _unpool_fake(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """A tensor like the result, after all checks of the arguments but the values of the indices."""
    where = f"max_unpool{len(output_size)}d"
    arguments.check_tensor(where, "input", x, arguments.FLOATS)
    arguments.check_tensor(where, "indices", indices, (torch.int64,))
    arguments.check_nonempty(where, x.shape)
    if indices.shape != x.shape:
        raise ArgumentError(
            f"{where}: Expected shape of indices to be same as that of the input tensor ({list(x.shape)}), "
            f"got {list(indices.shape)}. Pass the indices of the same pool."
        )
    return tensors.empty(x, [*x.shape[:2], *output_size])


@lru_cache(maxsize=256)
def _check(x: tuple[Any, torch.dtype], indices: tuple[Any, torch.dtype], output_size: tuple[int, ...]) -> None:
    """As `_unpool_fake`, with a cache, for the shapes and types of tensors."""
    values, places = (torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in (x, indices))
    _unpool_fake(values, places, output_size)


def _save(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    values, indices, *ctx.settings = inputs
    ctx.size = values.shape[2:]
    return (indices,)


def _tangent(operator: Any, ctx: Any, saved: Sequence[Tensor], tangent: Tensor, *_: Any) -> Any:
    return operator(tangent, saved[0], *ctx.settings)


def _gathered_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """The gradient of values that were written or added at indices: the gradient of the result at the indices."""
    (indices,) = ctx.saved_tensors
    return max_unpool_backward(grad, indices), None, *[None for _ in ctx.settings]


@operator("Tensor x, Tensor indices, SymInt[] output_size", _unpool_fake, _save, _gathered_gradient, _tangent)
def max_unpool(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Planes of zeros of a spatial size, with every element of a batched tensor at its index.

    Of equal indices the last in row-major order counts.
    """
    size = tuple(output_size)
    _check((x.shape, x.dtype), (indices.shape, indices.dtype), size)
    if is_on_gpu(x):
        from unpool.execute.gpu import gradients as on_gpu

        return tensors.in_format_of(on_gpu.max_unpool(x, indices, size), x)
    try:
        y = per_plane.max_unpool(tensors.view(x), tensors.view(indices), size, torch.get_num_threads())
        return tensors.in_format_of(tensors.tensor(y), x)
    except IndicesError:
        pass  # raised below in torch's words, so that this error is not shown as its context
    raise _index_error(indices, size)


def _index_error(indices: Tensor, size: tuple[int, ...]) -> TensorIndicesError:
    plane = math.prod(size)
    place = ((indices < 0) | (indices >= plane)).nonzero()[0].tolist()
    return TensorIndicesError(
        f"max_unpool{len(size)}d: Found an invalid max index: {int(indices[tuple(place)])} at {place}. Indices need "
        f"values from 0 to {plane - 1}, inside a plane of {list(size)}. Pass the indices of the pool that made input, "
        "and its input size as output_size."
    )


def _gather_fake(grad: Tensor, indices: Tensor) -> Tensor:
    return tensors.empty(indices, indices.shape, grad.dtype)


def _gather_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return max_pool_backward(grad, indices, ctx.size, []), None


@operator("Tensor grad, Tensor indices", _gather_fake, _save, _gather_gradient, _tangent)
def max_unpool_backward(grad: Tensor, indices: Tensor) -> Tensor:
    """The elements of `grad` at the indices, in the shape of the indices."""
    if is_on_gpu(grad):
        from unpool.execute.gpu import gradients as on_gpu

        return tensors.in_format_of(on_gpu.max_unpool_backward(grad.detach(), indices), indices)
    values = per_plane.max_unpool_backward(tensors.view(grad), tensors.view(indices), torch.get_num_threads())
    return tensors.in_format_of(tensors.tensor(values), indices)


def _add_fake(grad: Tensor, indices: Tensor, size: Sequence[int], _: Sequence[int]) -> Tensor:
    return tensors.empty(indices, [*grad.shape[:2], *size], grad.dtype)


@operator(
    "Tensor grad, Tensor indices, SymInt[] size, SymInt[] windows", _add_fake, _save, _gathered_gradient, _tangent
)
def max_pool_backward(grad: Tensor, indices: Tensor, size: Sequence[int], windows: Sequence[int]) -> Tensor:
    """Planes of the given spatial size, with every element of `grad` added at its index.

    `windows` are sizes, strides, paddings and dilations of the pool, one int per spatial axis in each, or empty if
    indices may be anywhere: a GPU adds in the order of known windows, and sorts the indices otherwise. 16-bit floats
    are summed in float32; torch converts them, several times faster than NumPy.
    """
    if is_on_gpu(grad):
        from unpool.execute.gpu import gradients as on_gpu

        rank = len(size)
        lists = tuple(tuple(windows[start : start + rank]) for start in range(0, len(windows), rank))
        return tensors.in_format_of(on_gpu.max_pool_backward(grad.detach(), indices, tuple(size), lists), indices)
    is_narrow = grad.dtype.itemsize == 2
    arrays = tensors.view(grad.float() if is_narrow else grad), tensors.view(indices)
    y = tensors.tensor(per_plane.max_pool_backward(*arrays, tuple(size), torch.get_num_threads()))
    return tensors.in_format_of(y.to(grad.dtype) if is_narrow else y, indices)
