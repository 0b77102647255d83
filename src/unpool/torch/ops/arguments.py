"""PyTorch's arguments: their forms, their limits, their types under autocast, and the sizes of results.

During tracing by torch.compile or torch.export, sizes are symbols, and stay symbols here.
"""

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from unpool.errors import IndicesError, UnpoolError
from unpool.geometry import Window, pooled_size, upsampled_size

Ints: TypeAlias = int | Sequence[int]
"""One int for all spatial axes, or one per axis."""

Sizes: TypeAlias = Sequence[int]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)

_VALIDATED_RANK = 3
"""Number of spatial axes with which torch checks the windows of max_unpool; with fewer it takes a stride of 0."""

_AUTOCAST_DEVICES = ("cpu", "cuda")
_AUTOCAST_TYPES = (torch.float16, torch.bfloat16, torch.float32)


class ArgumentError(UnpoolError, RuntimeError):
    """A wrong argument of an operator on tensors; also a RuntimeError, as in PyTorch."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of another type; also a TypeError, as in PyTorch."""


class TensorIndicesError(IndicesError, ArgumentError):
    """An element of an indices tensor points outside its plane."""


def per_axis(where: str, name: str, value: Ints, rank: int) -> tuple[int, ...]:
    """An int, or a sequence of one or of `rank` ints, as `rank` ints; a traced size stays a symbol."""
    if type(value) is int:
        return (value,) * rank
    values: tuple[Any, ...] = value if type(value) is tuple else _elements(value)
    try:
        if not all(type(each) is int for each in values):
            values = tuple(each if isinstance(each, torch.SymInt) else operator.index(each) for each in values)
    except TypeError as error:
        raise ArgumentTypeError(
            f"{where}: {name} needs an int or {rank} ints, got {value!r}. Give one per spatial axis."
        ) from error
    if len(values) == 1:
        return values * rank
    if len(values) == rank:
        return values
    raise ArgumentError(f"{where}: {name} needs an int or {rank} ints, got {list(values)}. Give one per spatial axis.")


def _elements(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return (value,)
    try:
        return tuple(value)
    except TypeError:  # a tensor without axes
        return (value,)


def window_sizes(
    where: str, kernel_size: Ints, stride: Ints | None, rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Window size and stride per spatial axis; None or an empty list for the stride means the window's size."""
    kernel = per_axis(where, "kernel_size", kernel_size, rank)
    if stride is None or (isinstance(stride, Sequence) and len(stride) == 0):
        return kernel, kernel
    return kernel, per_axis(where, "stride", stride, rank)


def hashable(setting: Any) -> Any:
    """A setting as a key of a cache."""
    return tuple(setting) if isinstance(setting, list) else setting


def in_autocast_type(x: torch.Tensor) -> torch.Tensor:
    """An operand of a convolution; under autocast, in its type for convolutions."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if _is_cast(x, kind) else x


def in_full_precision(x: torch.Tensor) -> torch.Tensor:
    """A tensor; under autocast, in float32, as for torch's operators in full precision."""
    return x.float() if _is_cast(x, x.device.type) else x


def _is_cast(x: torch.Tensor, kind: str) -> bool:
    return kind in _AUTOCAST_DEVICES and torch.is_autocast_enabled(kind) and x.dtype in _AUTOCAST_TYPES


def check_tensor(where: str, name: str, x: torch.Tensor, types: Sequence[torch.dtype]) -> None:
    """Check the type and the device of a tensor."""
    if x.dtype not in types:
        raise ArgumentError(
            f"{where}: {name} expects one of {_names(types)}; got {_names([x.dtype])}. Use {name}.to(dtype)."
        )
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise ArgumentError(
            f"{where}: {name} needs memory on the CPU or a CUDA device, got device {x.device}. Use {name}.cpu()."
        )


def _names(types: Sequence[torch.dtype]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in types)


def add_batch_axis(where: str, x: torch.Tensor, rank: int) -> tuple[torch.Tensor, bool]:
    """A view of the input with a batch axis, and whether it had none; an ArgumentError for another number of axes."""
    if x.dim() not in (rank + 1, rank + 2):
        raise ArgumentError(
            f"{where}: input needs {rank + 1} axes, or {rank + 2} with a batch, got shape {list(x.shape)}. "
            "Reshape it to (C, ...) or (N, C, ...)."
        )
    return (x.unsqueeze(0), True) if x.dim() == rank + 1 else (x, False)


def check_nonempty(where: str, shape: Sizes) -> None:
    """Check that every axis but the batch has elements."""
    if any(size == 0 for size in shape[1:]):
        raise ArgumentError(
            f"{where}: Expected one element or more on every axis of input but the batch, got shape {list(shape)}. "
            "Leave empty tensors out."
        )


def pooled_sizes(where: str, large: Sizes, windows: Sequence[Sizes], padding: Sizes, ceil: bool) -> list[int]:
    """Spatial sizes after pooling, or an ArgumentError for a setting out of PyTorch's range or a size below 1.

    Here and below, `windows` are sizes, strides and dilations, one int per spatial axis in each.
    """
    small = []
    for size, pad, *settings in zip(large, padding, *windows, strict=True):
        window = _window(where, settings, pad)
        if pad > window.size // 2:
            raise ArgumentError(
                f"{where}: padding should be at most half of kernel_size {window.size}, got {pad}. "
                "Pass a smaller padding."
            )
        small.append(pooled_size(size, window, pad, pad, ceil=ceil))
    _check_results(where, large, small, "Use a smaller kernel_size or dilation.")
    return small


def unpooled_sizes(
    where: str, small: Sizes, windows: Sequence[Sizes], padding: Sizes, output_size: Sizes | None
) -> tuple[int, ...]:
    """Spatial sizes after unpooling: `output_size` if given, with or without N and C.

    An ArgumentError if it has another length, or is a stride or more away from the size that follows from the window;
    or if that size is negative; or if a window of a volume has no elements or no stride.
    """
    rank = len(small)
    inferred = []
    for size, pad, *settings in zip(small, padding, *windows, strict=True):
        window = _window(where, settings) if rank == _VALIDATED_RANK else Window(*settings)
        inferred.append(upsampled_size(size, window, padding=2 * pad))
    sizes = inferred if output_size is None else list(output_size)
    sizes = sizes[2:] if len(sizes) == rank + 2 else sizes
    if len(sizes) != rank:
        raise ArgumentError(
            f"{where}: output_size needs {rank} or {rank + 2} sizes, got {sizes}. Give one per spatial axis."
        )
    for axis, (size, expected, stride) in enumerate(zip(sizes, inferred, windows[1], strict=True)):
        if size < 0 or (output_size is not None and not expected - stride < size < expected + stride):
            raise ArgumentError(
                f"{where}: output_size needs a size of 0 or more and less than stride {stride} away from {expected} "
                f"on spatial axis {axis}, got {size}. Pass the input size of the pool."
            )
    return tuple(sizes)


def conv_transpose_sizes(where: str, small: Sizes, windows: Sequence[Sizes], padding: Sizes, extra: Sizes) -> list[int]:
    """Spatial sizes after a transposed convolution, or an ArgumentError; `extra` is output_padding."""
    large = []
    for size, pad, more, *settings in zip(small, padding, extra, *windows, strict=True):
        window = _window(where, settings, pad)
        if not 0 <= more < max(window.stride, window.dilation):
            raise ArgumentError(
                f"{where}: output_padding must be smaller than either stride {window.stride} or dilation "
                f"{window.dilation}, and 0 or more; got {more}. Pass 0 for none."
            )
        large.append(upsampled_size(size, window, extra=more, padding=2 * pad))
    _check_results(where, small, large, "Reduce the padding.")
    return large


def _window(where: str, settings: Sizes, padding: int = 0) -> Window:
    """The window of a size, a stride and a dilation, after a check of these and of its padding."""
    for name, value in zip(("kernel_size", "stride", "dilation"), settings, strict=False):
        if value < 1:
            raise ArgumentError(f"{where}: {name} must be greater than zero, got {value}. Pass 1 or more.")
    if padding < 0:
        raise ArgumentError(f"{where}: padding must be non-negative, got {padding}. Pass 0 for none.")
    return Window(*settings)


def _check_results(where: str, sizes: Sizes, results: Sizes, advice: str) -> None:
    if any(size < 1 for size in results):
        raise ArgumentError(
            f"{where}: Output size is too small: spatial sizes {list(sizes)} give {list(results)}, below 1. {advice}"
        )
