"""Max pooling on tensors, with torch.nn.functional's signatures, results and gradients.

Indices of the operators unpool::max_pool and max_pool_with_indices count inside their own (n, c) plane; the maximum is
the first of equal elements, and the last of several NaN. A window of padding alone gives minus infinity or the smallest
integer, has index -1, and no gradient.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from unpool.operators import resolve
from unpool.operators.resolve import Spec
from unpool.torch.ops import arguments, tensors
from unpool.torch.ops.arguments import Ints, hashable
from unpool.torch.ops.eager_fallback import MAX_POOL, TORCH_FUNCTIONS, call_override, is_small
from unpool.torch.ops.max_unpool import max_pool_backward, max_unpool_backward
from unpool.torch.ops.register import can_bypass_dispatcher, operator

_NATIVE = (*arguments.FLOATS, torch.int8, torch.uint8)
_SETTINGS = "SymInt[] kernel_size, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool ceil_mode"


def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Like `max_pool2d`, along the axis of (N, C, L) or (C, L).

    >>> y, indices = max_pool1d(torch.tensor([[1.0, 5.0, 2.0, 4.0]]), 2, return_indices=True)
    >>> y.tolist(), indices.tolist()
    ([[5.0, 4.0]], [[1, 3]])
    """
    return _max_pool(max_pool1d, 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest element of every window of an image, and its index.

    Args:
        input: (N, C, H, W), or without N; float16, bfloat16, float32, float64, or integers.
        kernel_size: window size in elements; an int, or one per spatial axis.
        stride: step between windows; kernel_size by default.
        padding: elements on both sides, never a maximum; at most half of kernel_size.
        dilation: step between the taps of a window.
        ceil_mode: keeps a last window that ends after the padding, unless it starts there.
        return_indices: True returns the indices, too.

    Returns:
        y; with return_indices a pair (y, indices). indices are int64, and refer to the plane of their own (n, c).

    Raises:
        ArgumentError: a type, shape or setting that torch also rejects.

    Source: torch.nn.functional.max_pool2d.

    >>> max_pool2d(torch.arange(16.0).view(1, 1, 4, 4), 2).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """
    return _max_pool(max_pool2d, 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Like `max_pool2d`, over a volume (N, C, D, H, W) or (C, D, H, W).

    >>> max_pool3d(torch.arange(8.0).view(1, 1, 2, 2, 2), 2).item()
    7.0
    """
    return _max_pool(max_pool3d, 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _max_pool(function: Any, rank: int, x: Tensor, *settings: Any) -> Any:
    where, bypasses = function.__name__, can_bypass_dispatcher(x)
    kernel_size, stride, padding, dilation, ceil_mode, return_indices = settings
    if not bypasses:
        result = call_override(function, (x,), x, *settings)
        if result is not NotImplemented:
            return result
    elif is_small(x.numel(), MAX_POOL, x):
        key = hashable(kernel_size), hashable(stride), hashable(padding), hashable(dilation), ceil_mode
        if _has_full_windows(where, x.shape, *key):
            return TORCH_FUNCTIONS[where](x, *key, return_indices)
    x = arguments.in_full_precision(x) if rank == 3 and not return_indices else x
    batch, is_unbatched = arguments.add_batch_axis(where, x, rank)
    if is_unbatched and rank == 3:
        batch = _volume(x)
    sizes = (
        *arguments.window_sizes(where, kernel_size, stride, rank),
        arguments.per_axis(where, "padding", padding, rank),
        arguments.per_axis(where, "dilation", dilation, rank),
    )
    if not return_indices and not (torch.is_grad_enabled() and x.requires_grad):
        y = (max_pool.call_kernel if bypasses else torch.ops.unpool.max_pool)(batch, *sizes, ceil_mode)
        return y.squeeze(0) if is_unbatched else y
    pool = max_pool_with_indices.call_kernel if bypasses else torch.ops.unpool.max_pool_with_indices
    y, indices = pool(batch, *sizes, ceil_mode)
    if is_unbatched:
        y, indices = y.squeeze(0), indices.squeeze(0)
    return (y, indices) if return_indices else y


@lru_cache(maxsize=256, typed=True)  # 2.0 equals 2, and is no size
def _has_full_windows(where: str, shape: torch.Size, *settings: Any) -> bool:
    """True if no window of a valid pool holds padding."""
    rank, (kernel_size, stride, padding, dilation, ceil_mode) = int(where[-2]), settings
    if len(shape) not in (rank + 1, rank + 2):
        return False
    sizes = arguments.window_sizes(where, kernel_size, stride, rank)
    windows = *sizes, arguments.per_axis(where, "dilation", dilation, rank)
    pads = arguments.per_axis(where, "padding", padding, rank)
    arguments.check_nonempty(where, shape[-rank - 2 :])
    arguments.pooled_sizes(where, shape[-rank:], windows, pads, ceil_mode)
    return not any(pads) and not ceil_mode


def _volume(x: Tensor) -> Tensor:
    """A view of an unbatched volume with a batch axis; channels-last if the volume is so without gaps, as in torch.

    `unsqueeze` would give the new axis the stride of a row-major tensor.
    """
    last = x.movedim(0, -1)
    if x.is_contiguous() or not last.is_contiguous():
        return x.unsqueeze(0)
    return last.flatten().view(1, *last.shape).movedim(-1, 1)


def _shape(x: Tensor, *settings: Any) -> list[int]:
    """The shape of the result, after all checks of the arguments."""
    kernel_size, stride, padding, dilation, ceil_mode = settings
    where = f"max_pool{len(kernel_size)}d"
    arguments.check_tensor(where, "input", x, arguments.FLOATS + arguments.INTEGERS)
    arguments.check_nonempty(where, x.shape)
    windows = kernel_size, stride, dilation
    return [*x.shape[:2], *arguments.pooled_sizes(where, x.shape[2:], windows, padding, ceil_mode)]


def _fake(x: Tensor, *settings: Any) -> Tensor:
    return tensors.empty(x, _shape(x, *settings))


def _fake_with_indices(x: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    shape = _shape(x, *settings)
    return tensors.empty(x, shape), tensors.empty(x, shape, torch.int64)


def _spec(x: Tensor, *settings: Any) -> Spec:
    """The Spec of the arguments, after all checks."""
    _shape(x, *settings)
    kernel_size, stride, padding, dilation, ceil_mode = settings
    windows = {"kernel_shape": kernel_size, "strides": stride, "pads": (*padding, *padding), "dilations": dilation}
    return resolve.spec("MaxPool", {**windows, "ceil_mode": int(ceil_mode)}, domain=tensors.domain_of(x))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> tuple[Tensor, ...]:
    """The indices if the pool returns them, else its input."""
    x, *ctx.settings = inputs
    ctx.size, ctx.has_indices = x.shape[2:], isinstance(output, tuple)
    if not ctx.has_indices:
        return (x,)
    ctx.set_materialize_grads(False)  # no zeros for the indices, which have no gradient
    return (output[1],)


def _indices(ctx: Any, saved: Sequence[Tensor]) -> Any:
    return saved[0] if ctx.has_indices else max_pool_with_indices(saved[0].detach(), *ctx.settings)[1]


def _gradient(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 6
    windows = [size for sizes in ctx.settings[:4] for size in sizes]
    return max_pool_backward(grad, _indices(ctx, ctx.saved_tensors), ctx.size, windows), None, None, None, None, None


def _tangent(_: Any, ctx: Any, saved: Sequence[Tensor], tangent: Tensor, *__: Any) -> Any:
    y_tangent = max_unpool_backward(tangent, _indices(ctx, saved))
    return (y_tangent, None) if ctx.has_indices else y_tangent


@operator(f"Tensor x, {_SETTINGS}", _fake, _save, _gradient, _tangent)
def max_pool(x: Tensor, *settings: Any) -> Tensor:
    """Largest element of every window of a batched tensor."""
    return _pool(x, settings, outputs=1)[0]


@operator(f"Tensor x, {_SETTINGS}", _fake_with_indices, _save, _gradient, _tangent, outputs="(Tensor, Tensor)")
def max_pool_with_indices(x: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """As `max_pool`, and the indices of the maxima."""
    y, indices = _pool(x, settings, outputs=2)
    return y, tensors.in_format_of(indices, x)


def _pool(x: Tensor, settings: tuple[Any, ...], outputs: int) -> tuple[Tensor, ...]:
    """The maxima, and their indices for two outputs or for integers of a type without kernels.

    The order of such integers is pooled as float64, and the elements are looked up.
    """
    if x.dtype in _NATIVE:
        return tensors.run(_spec, settings, (x,), outputs)
    _shape(x, *settings)
    ordered = torch.unique(x, return_inverse=True)[1] if x.dtype == torch.int64 else x
    keys = tensors.empty(x, x.shape, torch.float64).copy_(ordered)
    indices: Tensor = max_pool_with_indices(keys, *settings)[1]
    y = x.flatten(2).gather(2, indices.flatten(2).clamp(min=0)).view(indices.shape)
    y.masked_fill_(indices < 0, torch.iinfo(x.dtype).min)
    return tensors.empty(x, indices.shape).copy_(y), indices
