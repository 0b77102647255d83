"""Max pooling on tensors, with torch.nn.functional's signatures, answers and gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from unpool.torch.ops.arguments import Ints, add_batch_axis, per_axis, window_sizes
from unpool.torch.ops.eager_fallback import MAX_POOL, has_full_windows, hashable, is_small
from unpool.torch.ops.library import can_bypass_dispatcher
from unpool.torch.ops.library.max_pool import max_pool, max_pool_with_indices
from unpool.torch.ops.modes import check_tangents, in_full_precision, torch_function


def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As `max_pool2d`, along the axis of (N, C, L) or (C, L).

    >>> y, indices = max_pool1d(torch.tensor([[1.0, 5.0, 2.0, 4.0]]), 2, return_indices=True)
    >>> y.tolist(), indices.tolist()
    ([[5.0, 4.0]], [[1, 3]])
    """
    return _max_pool(1, input, kernel_size, stride, (padding, dilation), ceil_mode, return_indices)


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
        return_indices: whether to return the indices too.

    Returns:
        y; with return_indices a pair (y, indices), int64, counting inside the plane of their own (n, c).

    Raises:
        ArgumentError: a type, shape or setting that torch rejects too.

    Source: torch.nn.functional.max_pool2d.

    >>> max_pool2d(torch.arange(16.0).view(1, 1, 4, 4), 2).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """
    return _max_pool(2, input, kernel_size, stride, (padding, dilation), ceil_mode, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As `max_pool2d`, over a volume (N, C, D, H, W) or (C, D, H, W).

    >>> max_pool3d(torch.arange(8.0).view(1, 1, 2, 2, 2), 2).item()
    7.0
    """
    return _max_pool(3, input, kernel_size, stride, (padding, dilation), ceil_mode, return_indices)


def _max_pool(
    rank: int,
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None,
    padding_and_dilation: tuple[Ints, Ints],
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    where, (padding, dilation), bypasses = f"max_pool{rank}d", padding_and_dilation, can_bypass_dispatcher(x)
    if not bypasses:
        if has_torch_function_unary(x):
            arguments: tuple[Any, ...] = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
            return handle_torch_function(_FUNCTIONS[rank], (x,), x, *arguments)
        if torch.onnx.is_in_onnx_export():
            return torch_function(where)(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
        check_tangents(where, x)
    elif is_small(x.numel(), MAX_POOL, x):
        settings = hashable(kernel_size), hashable(stride), hashable(padding), hashable(dilation), ceil_mode
        if has_full_windows(where, x.shape, *settings):
            return torch_function(where)(x, *settings, return_indices)
    x = in_full_precision(x) if rank == 3 and not return_indices else x
    batch, is_unbatched = add_batch_axis(where, x, rank)
    if is_unbatched and rank == 3:
        batch = _volume(x)
    settings = (
        *window_sizes(where, kernel_size, stride, rank),
        per_axis(where, "padding", padding, rank),
        per_axis(where, "dilation", dilation, rank),
        ceil_mode,
    )
    if not return_indices and not (torch.is_grad_enabled() and x.requires_grad):
        y = (max_pool.call_kernel if bypasses else torch.ops.unpool.max_pool)(batch, *settings)
        return y.squeeze(0) if is_unbatched else y
    pool = max_pool_with_indices.call_kernel if bypasses else torch.ops.unpool.max_pool_with_indices
    y, indices = pool(batch, *settings)
    if is_unbatched:
        y, indices = y.squeeze(0), indices.squeeze(0)
    return (y, indices) if return_indices else y


def _volume(x: Tensor) -> Tensor:
    """A view of an unbatched volume with a batch axis; channels-last if the volume is so without gaps, as in torch.

    `unsqueeze` would give the new axis the stride of a row-major tensor.
    """
    last = x.movedim(0, -1)
    if x.is_contiguous() or not last.is_contiguous():
        return x.unsqueeze(0)
    return last.flatten().view(1, *last.shape).movedim(-1, 1)


_FUNCTIONS: dict[int, Any] = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}
