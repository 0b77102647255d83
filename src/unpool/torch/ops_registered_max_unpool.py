"""Max unpooling on tensors, and its gradient, which is also the gradient of the gradient of pooling.

Indices count inside their own (n, c) plane of the output; of equal ones the last in row-major order wins.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from unpool import per_plane
from unpool.errors import IndicesError
from unpool.torch import ops_tensors as tensors
from unpool.torch.ops_arguments import FLOATS, ArgumentError, check_filled, check_plane_indices, check_tensor


@custom_op("unpool::max_unpool", mutates_args=(), device_types="cpu")
def max_unpool(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Zeros of a spatial size, with every element of a batched tensor where its index says."""
    _shape(x, indices, output_size)
    arrays = tensors.view("input", x), tensors.view("indices", indices)
    try:
        return tensors.tensor(per_plane.max_unpool(*arrays, tuple(output_size), torch.get_num_threads()), x)
    except IndicesError:
        check_plane_indices(f"max_unpool{len(output_size)}d", indices, output_size)
        raise


@custom_op("unpool::max_unpool_backward", mutates_args=(), device_types="cpu")
def max_unpool_backward(grad: Tensor, indices: Tensor) -> Tensor:
    """What `grad` holds where each index says, in the shape of the indices."""
    arrays = tensors.view("grad", grad), tensors.view("indices", indices)
    return tensors.tensor(per_plane.max_unpool_backward(*arrays, torch.get_num_threads()), grad)


@max_unpool.register_fake
def _(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    return tensors.empty(x, _shape(x, indices, output_size))


@max_unpool_backward.register_fake
def _(grad: Tensor, indices: Tensor) -> Tensor:
    return tensors.empty(indices, indices.shape, grad.dtype)


def _shape(x: Tensor, indices: Tensor, output_size: Sequence[int]) -> list[int]:
    """The shape of the result; checks everything but the values of the indices."""
    where = f"max_unpool{len(output_size)}d"
    check_tensor(where, "input", x, FLOATS)
    check_tensor(where, "indices", indices, (torch.int64,))
    check_filled(where, x.shape)
    if indices.shape != x.shape:
        raise ArgumentError(
            f"{where}: indices need the shape of input, {list(x.shape)}, got {list(indices.shape)}. "
            "Pass the indices of the same pool."
        )
    return [*x.shape[:2], *output_size]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 - torch names it
    ctx.save_for_backward(inputs[1])
    ctx.size = inputs[0].shape[2:]


def _unpool_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return max_unpool_backward(grad, indices), None, None


def _transposed(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return torch.ops.unpool.max_pool_backward(grad, indices, ctx.size), None


max_unpool.register_autograd(_unpool_gradient, setup_context=_keep)
max_unpool_backward.register_autograd(_transposed, setup_context=_keep)
