"""PyTorch's arguments: their forms, their limits, and the sizes of results.

During tracing by torch.compile or torch.export, sizes are symbols, and stay symbols here.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from unpool.errors import IndicesError, UnpoolError
from unpool.geometry import Window, pooled_size, upsampled_size

Ints: TypeAlias = int | Sequence[int]
"""One int for all spatial axes, or one per axis."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_VALIDATED_RANK = 3
"""Number of spatial axes with which torch checks the windows of max_unpool; with fewer it takes a stride of 0."""

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


class ArgumentError(UnpoolError, RuntimeError):
    """A wrong argument of an operator on tensors; also a RuntimeError, as in PyTorch."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of another type; also a TypeError, as in PyTorch."""


class TensorIndicesError(IndicesError, ArgumentError):
    """An element of an indices tensor points outside its plane."""


def per_axis(where: str, name: str, value: Ints, rank: int) -> tuple[int, ...]:
    """An int, or a sequence of one or of `rank` ints, as `rank` ints."""
    if type(value) is int:
        return (value,) * rank
    values: tuple[Any, ...] = value if type(value) is tuple else _ints(value)
    if not all(type(one) is int for one in values):
        values = tuple(_int(where, name, value, one, rank) for one in values)
    if len(values) == 1:
        return values * rank
    if len(values) != rank:
        raise ArgumentError(
            f"{where}: {name} needs an int or {rank} ints, got {list(values)}. Give one per spatial axis."
        )
    return values


def _ints(value: Any) -> tuple[Any, ...]:
    """The value as a tuple of unchecked elements."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return (value,)
    try:
        return tuple(value)
    except TypeError:  # a tensor without axes
        return (value,)


def _int(where: str, name: str, value: object, one: Any, rank: int) -> Any:
    """One element of a value as an int; a traced size is unchanged."""
    if isinstance(one, torch.SymInt):
        return one
    try:
        return operator.index(one)
    except TypeError:
        pass
    raise ArgumentTypeError(f"{where}: {name} needs an int or {rank} ints, got {value!r}. Give one per spatial axis.")


def window_sizes(
    where: str, kernel_size: Ints, stride: Ints | None, rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Window size and stride per spatial axis; None or an empty list for the stride means the window's size."""
    kernel = per_axis(where, "kernel_size", kernel_size, rank)
    if stride is None or (isinstance(stride, Sequence) and len(stride) == 0):
        return kernel, kernel
    return kernel, per_axis(where, "stride", stride, rank)


def check_tensor(where: str, name: str, x: torch.Tensor, types: Sequence[torch.dtype]) -> None:
    """Check the type and the device of a tensor."""
    if x.dtype not in types:
        raise ArgumentError(f"{where}: {name} expects one of {_names(types)}; got {_names([x.dtype])}. Convert it.")
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise ArgumentError(
            f"{where}: {name} needs memory on the CPU or a CUDA device, got device {x.device}. Use {name}.cpu()."
        )


def add_batch_axis(where: str, x: torch.Tensor, rank: int) -> tuple[torch.Tensor, bool]:
    """A view of the input with a batch axis, and whether it had none; an ArgumentError for another number of axes."""
    if x.dim() not in (rank + 1, rank + 2):
        raise ArgumentError(
            f"{where}: input needs {rank + 1} axes, or {rank + 2} with a batch, got shape {list(x.shape)}. Reshape it."
        )
    return (x.unsqueeze(0), True) if x.dim() == rank + 1 else (x, False)


def check_nonempty(where: str, shape: Sequence[int]) -> None:
    """Check that every axis but the batch has elements."""
    if any(size == 0 for size in shape[1:]):
        raise ArgumentError(
            f"{where}: Expected one element or more on every axis of input but the batch, got shape {list(shape)}. "
            "Leave empty tensors out."
        )


def pooled_sizes(
    where: str, large: Sequence[int], windows: Sequence[Window], padding: Sequence[int], ceil: bool
) -> list[int]:
    """Spatial sizes after pooling, or an ArgumentError for a setting out of PyTorch's range or a size below 1."""
    for window, pad in zip(windows, padding, strict=True):
        _check_window(where, window)
        if pad < 0:
            raise ArgumentError(f"{where}: padding must be non-negative, got {pad}. Pass 0 for none.")
        if pad > window.size // 2:
            raise ArgumentError(
                f"{where}: padding should be at most half of kernel_size {window.size}, got {pad}. "
                "Pass a smaller padding."
            )
    small = [
        pooled_size(size, window, pad, pad, ceil=ceil)
        for size, window, pad in zip(large, windows, padding, strict=True)
    ]
    if any(size < 1 for size in small):
        raise ArgumentError(
            f"{where}: Output size is too small: spatial sizes {list(large)} give {small}, below 1. "
            "Use a smaller kernel_size or dilation."
        )
    return small


def unpooled_sizes(
    where: str,
    small: Sequence[int],
    windows: Sequence[Window],
    padding: Sequence[int],
    output_size: Sequence[int] | None,
) -> list[int]:
    """Spatial sizes after unpooling: `output_size` if given, with or without N and C.

    Raises:
        ArgumentError: `output_size` has another length, or is a stride or more away from the size that follows from
            the window; or that size is negative; or a window of a volume has no elements or no stride.
    """
    rank = len(small)
    for window in windows if rank == _VALIDATED_RANK else ():
        _check_window(where, window)
    inferred = [
        upsampled_size(size, window, padding=2 * pad) for size, window, pad in zip(small, windows, padding, strict=True)
    ]
    sizes = inferred if output_size is None else list(output_size)
    sizes = sizes[2:] if len(sizes) == rank + 2 else sizes
    if len(sizes) != rank:
        raise ArgumentError(
            f"{where}: output_size needs {rank} or {rank + 2} sizes, got {list(output_size or ())}. "
            "Give one per spatial axis."
        )
    for axis, (size, expected, window) in enumerate(zip(sizes, inferred, windows, strict=True)):
        is_allowed = output_size is None or expected - window.stride < size < expected + window.stride
        if size < 0 or not is_allowed:
            raise ArgumentError(
                f"{where}: output_size needs a size of 0 or more and less than stride {window.stride} away from "
                f"{expected} on spatial axis {axis}, got {size}. Pass the input size of the pool."
            )
    return sizes


def conv_transpose_sizes(
    where: str, small: Sequence[int], windows: Sequence[Window], padding: Sequence[int], extra: Sequence[int]
) -> list[int]:
    """Spatial sizes after a transposed convolution, or an ArgumentError; `extra` is output_padding."""
    for window, pad, more in zip(windows, padding, extra, strict=True):
        _check_window(where, window)
        if pad < 0:
            raise ArgumentError(f"{where}: padding must be non-negative, got {pad}. Pass 0 for none.")
        if not 0 <= more < max(window.stride, window.dilation):
            raise ArgumentError(
                f"{where}: output_padding must be smaller than either stride {window.stride} or dilation "
                f"{window.dilation}, and 0 or more; got {more}. Pass 0 for none."
            )
    large = [
        upsampled_size(size, window, extra=more, padding=2 * pad)
        for size, window, pad, more in zip(small, windows, padding, extra, strict=True)
    ]
    if any(size < 1 for size in large):
        raise ArgumentError(
            f"{where}: Output size is too small: spatial sizes {list(small)} give {large}, below 1. Reduce the padding."
        )
    return large


def check_plane_indices(where: str, indices: torch.Tensor, spatial: Sequence[int]) -> None:
    """Refuse an index outside a plane of the given sizes by a TensorIndicesError."""
    plane = math.prod(spatial)
    if indices.numel() == 0:
        return
    low, high = indices.aminmax()
    if low < 0 or high >= plane:
        place = ((indices < 0) | (indices >= plane)).nonzero()[0].tolist()
        raise TensorIndicesError(
            f"{where}: Found an invalid max index: {int(indices[tuple(place)])} at {place}. Indices need values from 0 "
            f"to {plane - 1}, inside a plane of {list(spatial)}. Pass the indices of the pool that made input, and its "
            "input size as output_size."
        )


def _check_window(where: str, window: Window) -> None:
    settings = {"kernel_size": window.size, "stride": window.stride, "dilation": window.dilation}
    for name, value in settings.items():
        if value < 1:
            raise ArgumentError(f"{where}: {name} must be greater than zero, got {value}. Pass 1 or more.")


def _names(types: Sequence[torch.dtype]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in types)
