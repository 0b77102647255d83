"""The operators unpool::max_unpool and max_unpool_backward, its gradient; also that of max_pool_backward.

Indices count inside their own (n, c) plane of the output; of equal ones the last in row-major order counts.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from unpool import per_plane
from unpool.arrays import is_on_gpu
from unpool.errors import IndicesError
from unpool.torch.ops.arguments import FLOATS, ArgumentError, check_nonempty, check_plane_indices, check_tensor
from unpool.torch.ops.library import tensors
from unpool.torch.ops.library.register import operator


def _unpool_fake(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    return tensors.empty(x, _shape(x, indices, output_size))


def _backward_fake(grad: Tensor, indices: Tensor) -> Tensor:
    return tensors.empty(indices, indices.shape, grad.dtype)


def _shape(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> list[int]:
    """The shape of the result, after all checks of the arguments but the values of the indices."""
    where = f"max_unpool{len(output_size)}d"
    check_tensor(where, "input", x, FLOATS)
    check_tensor(where, "indices", indices, (torch.int64,))
    check_nonempty(where, x.shape)
    if indices.shape != x.shape:
        raise ArgumentError(
            f"{where}: Expected shape of indices to be same as that of the input tensor ({list(x.shape)}), "
            f"got {list(indices.shape)}. "
            "Pass the indices of the same pool."
        )
    return [*x.shape[:2], *output_size]


@lru_cache(maxsize=256)
def _check(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    indices_shape: tuple[int, ...],
    indices_dtype: torch.dtype,
    output_size: tuple[int, ...],
) -> None:
    """As `_shape`, with a cache, for tensors of the same shapes and types."""
    x, indices = (
        torch.empty(size, dtype=kind, device="meta") for size, kind in ((shape, dtype), (indices_shape, indices_dtype))
    )
    _shape(x, indices, output_size)


def _save(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    ctx.output_size = inputs[2]
    return (inputs[1],)


def _save_size(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    ctx.size = inputs[0].shape[2:]
    return (inputs[1],)


def _unpool_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return max_unpool_backward(grad, indices), None, None


def _unpool_tangent(ctx: Any, saved: Sequence[Tensor], tangent: Tensor, *_: Any) -> Tensor:
    found: Tensor = max_unpool(tangent, saved[0], ctx.output_size)
    return found


def _backward_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return torch.ops.unpool.max_pool_backward(grad, indices, ctx.size, []), None


def _backward_tangent(_: Any, saved: Sequence[Tensor], tangent: Tensor, *__: Any) -> Tensor:
    found: Tensor = max_unpool_backward(tangent, saved[0])
    return found


@operator(_unpool_fake, _save, _unpool_gradient, _unpool_tangent)
def max_unpool(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Planes of zeros of a spatial size, with every element of a batched tensor at its index."""
    size = tuple(output_size)
    _check(x.shape, x.dtype, indices.shape, indices.dtype, size)
    if is_on_gpu(x):
        from unpool.execute.gpu import gradients as on_gpu

        return tensors.in_format_of(on_gpu.max_unpool(x.detach(), indices, size), x)
    arrays = tensors.view(x), tensors.view(indices)
    try:
        y = per_plane.max_unpool(*arrays, size, torch.get_num_threads())
        return tensors.in_format_of(tensors.tensor(y), x)
    except IndicesError as error:
        cause = error  # raised below, so that the error in torch's words does not show this one as its context
    check_plane_indices(f"max_unpool{len(output_size)}d", indices, output_size)
    raise cause


@operator(_backward_fake, _save_size, _backward_gradient, _backward_tangent)
def max_unpool_backward(grad: Tensor, indices: Tensor) -> Tensor:
    """The elements of `grad` at the indices, in the shape of the indices."""
    if is_on_gpu(grad):
        from unpool.execute.gpu import gradients as on_gpu

        return tensors.in_format_of(on_gpu.max_unpool_backward(grad.detach(), indices), indices)
    arrays = tensors.view(grad), tensors.view(indices)
    found = per_plane.max_unpool_backward(*arrays, torch.get_num_threads())
    return tensors.in_format_of(tensors.tensor(found), indices)
