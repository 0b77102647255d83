"""Max unpooling on tensors, with torch.nn.functional's signatures, answers and gradients."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from unpool.geometry import Window
from unpool.torch.ops.arguments import Ints, add_batch_axis, per_axis, unpooled_sizes, window_sizes
from unpool.torch.ops.eager_fallback import MAX_UNPOOL, is_small
from unpool.torch.ops.library import can_bypass_dispatcher
from unpool.torch.ops.library.max_unpool import max_unpool
from unpool.torch.ops.modes import check_tangents, in_full_precision, torch_function


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """As `max_unpool2d`, along the axis of (N, C, L) or (C, L).

    >>> max_unpool1d(torch.tensor([[7.0, 9.0]]), torch.tensor([[1, 2]]), 2).tolist()
    [[0.0, 7.0, 9.0, 0.0]]
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros of an image, with every element of input at its index.

        size = (d - 1) * stride + kernel_size - 2 * padding, without output_size

    Args:
        input: (N, C, H, W), or without N; float16, bfloat16, float32 or float64.
        indices: int64 in the shape of input, counting inside the plane of their own (n, c); of equal ones the last
            in row-major order wins.
        kernel_size: window size of the pool in elements; an int, or one per spatial axis.
        stride: step between its windows; kernel_size by default.
        padding: its padding.
        output_size: spatial sizes, with or without N and C in front; less than a stride away from the formula.

    Returns:
        The input size of the pool, in the type of input.

    Raises:
        TensorIndicesError: an index outside its plane.
        ArgumentError: a type, shape or setting that torch rejects too.

    Source: torch.nn.functional.max_unpool2d.

    >>> max_unpool2d(torch.tensor([[[7.0]]]), torch.tensor([[[2]]]), 2).tolist()
    [[[0.0, 0.0], [7.0, 0.0]]]
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """As `max_unpool2d`, over a volume (N, C, D, H, W) or (C, D, H, W).

    >>> max_unpool3d(torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), 6), 2).flatten().tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    """
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _max_unpool(
    rank: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None,
    padding: Ints,
    output_size: Sequence[int] | None,
) -> Tensor:
    where, bypasses = f"max_unpool{rank}d", can_bypass_dispatcher(x, indices)
    if not bypasses:
        if has_torch_function_variadic(x, indices):
            arguments: tuple[Any, ...] = (kernel_size, stride, padding, output_size)
            y: Tensor = handle_torch_function(_FUNCTIONS[rank], (x, indices), x, indices, *arguments)
            return y
        if torch.onnx.is_in_onnx_export():
            return torch_function(where)(x, indices, kernel_size, stride, padding, output_size)  # type: ignore[no-any-return]
        check_tangents(where, x)
    elif is_small(x.numel(), MAX_UNPOOL, x, indices) and not torch.are_deterministic_algorithms_enabled():
        try:
            return torch_function(where)(x, indices, kernel_size, stride, padding, output_size)  # type: ignore[no-any-return]
        except (RuntimeError, ValueError):
            pass  # the call below raises unpool's error
    batch, is_unbatched = add_batch_axis(where, in_full_precision(x), rank)
    windows = window_sizes(where, kernel_size, stride, rank)
    pads = per_axis(where, "padding", padding, rank)
    sizes = None if output_size is None else tuple(output_size)
    size = (_cached_sizes if bypasses else _sizes)(where, batch.shape[2:], windows, pads, sizes)
    places = indices.unsqueeze(0) if is_unbatched else indices
    y = (max_unpool.call_kernel if bypasses else torch.ops.unpool.max_unpool)(batch, places, size)
    return y.squeeze(0) if is_unbatched else y


def _sizes(
    where: str,
    small: tuple[int, ...],
    windows: tuple[tuple[int, ...], tuple[int, ...]],
    padding: tuple[int, ...],
    output_size: tuple[int, ...] | None,
) -> tuple[int, ...]:
    """Spatial sizes of the result."""
    return tuple(
        unpooled_sizes(where, small, [Window(*each) for each in zip(*windows, strict=True)], padding, output_size)
    )


_cached_sizes = lru_cache(maxsize=256)(_sizes)


_FUNCTIONS: dict[int, Any] = {1: max_unpool1d, 2: max_unpool2d, 3: max_unpool3d}
