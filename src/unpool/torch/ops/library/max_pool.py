"""The operators unpool::max_pool, unpool::max_pool_with_indices, and max_pool_backward, the gradient of both.

Indices count inside their own (n, c) plane; the maximum is the first of equal elements, and the last of several NaN. A
window of padding alone gives minus infinity or the smallest integer, has index -1, and no gradient.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unpool import per_plane
from unpool.arrays import is_on_gpu
from unpool.geometry import Window
from unpool.operators import resolve
from unpool.operators.resolve import Spec
from unpool.torch.ops.arguments import FLOATS, INTEGERS, check_nonempty, check_tensor, pooled_sizes
from unpool.torch.ops.library import tensors
from unpool.torch.ops.library.register import operator

_NATIVE = (*FLOATS, torch.int8, torch.uint8)


def _pool_fake(x: Tensor, *settings: Any) -> Tensor:
    return tensors.empty(x, _sizes(x, *settings))


def _indexed_pool_fake(x: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    shape = _sizes(x, *settings)
    return tensors.empty(x, shape), tensors.empty(x, shape, torch.int64)


def _backward_fake(grad: Tensor, indices: Tensor, size: Sequence[int], _: Sequence[int]) -> Tensor:
    return tensors.empty(indices, [*grad.shape[:2], *size], grad.dtype)


def _sizes(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[int]:
    """The shape of the result, after all checks of the arguments."""
    where = f"max_pool{len(kernel_size)}d"
    check_tensor(where, "input", x, FLOATS + INTEGERS)
    check_nonempty(where, x.shape)
    windows = [Window(*each) for each in zip(kernel_size, stride, dilation, strict=True)]
    return [*x.shape[:2], *pooled_sizes(where, x.shape[2:], windows, padding, ceil_mode)]


def _pool(x: Tensor, settings: tuple[Any, ...], outputs: int) -> tuple[Tensor, ...]:
    """The maxima, and their indices for two outputs or for types without kernels."""
    if x.dtype not in _NATIVE:
        _sizes(x, *settings)
        return _pool_integers(x, *settings)
    return tensors.run(_spec, settings, (x,), outputs)


def _spec(x: Tensor, *settings: Any) -> Spec:
    """The Spec of the arguments, after all checks."""
    _sizes(x, *settings)
    kernel_size, stride, padding, dilation, ceil_mode = settings
    attributes = {
        "kernel_shape": kernel_size,
        "strides": stride,
        "pads": (*padding, *padding),
        "dilations": dilation,
        "ceil_mode": int(ceil_mode),
    }
    return resolve.spec("MaxPool", attributes, domain=tensors.domain_of(x))


def _pool_integers(x: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """Pool integers of a type without kernels: pool their order as float64, and look the elements up."""
    ordered = torch.unique(x, return_inverse=True)[1] if x.dtype == torch.int64 else x
    keys = tensors.empty(x, x.shape, torch.float64).copy_(ordered)
    indices: Tensor = max_pool_with_indices(keys, *settings)[1]
    found = x.flatten(2).gather(2, indices.flatten(2).clamp(min=0)).view(indices.shape)
    found.masked_fill_(indices < 0, torch.iinfo(x.dtype).min)
    return tensors.empty(x, indices.shape).copy_(found), indices


def _save_input(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    ctx.settings = inputs[1:]
    return (inputs[0],)


def _indices_of(x: Tensor, settings: Any) -> Tensor:
    """The indices of a pool without indices, for its derivatives."""
    indices: Tensor = max_pool_with_indices(x.detach(), *settings)[1]
    return indices


def _pool_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (x,) = ctx.saved_tensors
    windows = _windows(ctx.settings)
    return max_pool_backward(grad, _indices_of(x, ctx.settings), x.shape[2:], windows), None, None, None, None, None


def _windows(settings: Sequence[Any]) -> list[int]:
    """The windows of a pool for `max_pool_backward`."""
    return [size for sizes in settings[:4] for size in sizes]


def _pool_tangent(ctx: Any, saved: Sequence[Tensor], tangent: Tensor, *_: Any) -> Tensor:
    found: Tensor = torch.ops.unpool.max_unpool_backward(tangent, _indices_of(saved[0], ctx.settings))
    return found


def _save_indices(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    ctx.size, ctx.windows = inputs[0].shape[2:], _windows(inputs[1:])
    ctx.set_materialize_grads(False)  # no zeros for the indices, which have no gradient
    return (output[1],)


def _indexed_pool_gradient(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    found = None if grad is None else max_pool_backward(grad, indices, ctx.size, ctx.windows)
    return found, None, None, None, None, None


def _indexed_pool_tangent(_: Any, saved: Sequence[Tensor], tangent: Tensor, *__: Any) -> tuple[Tensor, None]:
    return torch.ops.unpool.max_unpool_backward(tangent, saved[0]), None


def _save_places(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    ctx.size, ctx.windows = inputs[2:]
    return (inputs[1],)


def _backward_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return torch.ops.unpool.max_unpool_backward(grad, indices), None, None, None


def _backward_tangent(ctx: Any, saved: Sequence[Tensor], tangent: Tensor, *_: Any) -> Tensor:
    found: Tensor = max_pool_backward(tangent, saved[0], ctx.size, ctx.windows)
    return found


@operator(_pool_fake, _save_input, _pool_gradient, _pool_tangent)
def max_pool(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Tensor:
    """Largest element of every window of a batched tensor; one int per spatial axis in every list."""
    return _pool(x, (kernel_size, stride, padding, dilation, ceil_mode), outputs=1)[0]


@operator(_indexed_pool_fake, _save_indices, _indexed_pool_gradient, _indexed_pool_tangent)
def max_pool_with_indices(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[Tensor, Tensor]:
    """As `max_pool`, and the indices of the maxima."""
    y, indices = _pool(x, (kernel_size, stride, padding, dilation, ceil_mode), outputs=2)
    return y, tensors.in_format_of(indices, x)


@operator(_backward_fake, _save_places, _backward_gradient, _backward_tangent)
def max_pool_backward(grad: Tensor, indices: Tensor, size: Sequence[int], windows: Sequence[int]) -> Tensor:
    """Planes of the given spatial size, with every element of `grad` added at its index.

    `windows` are sizes, strides, paddings and dilations of the pool, one int per spatial axis in each, or empty if
    indices may be anywhere: a GPU adds in the order of known windows, and sorts the indices otherwise. 16-bit floats
    are summed in float32; torch converts them, several times faster than NumPy.
    """
    if is_on_gpu(grad):
        return tensors.in_format_of(_sum_on_gpu(grad, indices, tuple(size), tuple(windows)), indices)
    is_narrow = grad.dtype.itemsize == 2
    arrays = tensors.view(grad.float() if is_narrow else grad), tensors.view(indices)
    found = tensors.tensor(per_plane.max_pool_backward(*arrays, tuple(size), torch.get_num_threads()))
    return tensors.in_format_of(found.to(grad.dtype) if is_narrow else found, indices)


def _sum_on_gpu(grad: Tensor, indices: Tensor, size: tuple[int, ...], windows: tuple[int, ...]) -> Tensor:
    from unpool.execute.gpu import gradients as on_gpu

    rank = len(size)
    lists = tuple(windows[start : start + rank] for start in range(0, len(windows), rank))
    return on_gpu.max_pool_backward(grad.detach(), indices, size, lists)
