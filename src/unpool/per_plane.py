"""Max unpooling and the gradients of pools, on indices into their own (n, c) plane, as in PyTorch.

NumPy arrays in, NumPy arrays out. An array may be row-major or channels-last in memory; results have the order of
`indices`, those of `max_unpool` the order of its input.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import AnyArray, StorageType, storage_type
from unpool.errors import IndicesError, ShapeError, UnpoolError
from unpool.execute import CACHE_SIZE
from unpool.memory import MIN_RECYCLED_BYTES, allocate, check
from unpool.operators.tensors import index_type

_GATHERS, _SUMS = ("max_unpool_backward",), ("max_pool_backward",)


def max_unpool(x: AnyArray, indices: AnyArray, spatial: tuple[int, ...], threads: int | None = None) -> AnyArray:
    """Zeros, with every element of x at its index; of equal indices the last in row-major order counts.

        y[n, c, indices[n, c, p]] = x[n, c, p]

    Args:
        x: (N, C, d1..dk), float16, bfloat16, float32 or float64.
        indices: int64 in the shape of x, each from 0 to D1 * .. * Dk - 1.
        spatial: D1..Dk.
        threads: maximum number of threads; None for every core.

    Returns:
        (N, C, D1..Dk) in the type of x.

    Raises:
        IndicesError: an index outside its plane.
        ShapeError: the shapes do not fit.

    >>> max_unpool(np.float32([[[1, 2]]]), np.array([[[3, 0]]]), (5,))
    array([[[2., 0., 0., 1., 0.]]], dtype=float32)
    """
    return _call("max_unpool", x, indices, spatial, _is_channels_last(x))(x, indices, threads)


def max_pool_backward(
    grad: AnyArray, indices: AnyArray, spatial: tuple[int, ...], threads: int | None = None
) -> AnyArray:
    """Gradient of MaxPool with respect to X.

        dX[n, c, i] = sum of grad[n, c, p] over the positions p with indices[n, c, p] = i

    float16 and bfloat16 are summed in float32 and rounded once.

    Args:
        grad: (N, C, d1..dk), float16, bfloat16, float32 or float64.
        indices: int64 (N, C, d1..dk), per plane; -1 skips an element.
        spatial: D1..Dk of X.
        threads: maximum number of threads; None for every core. Results do not depend on it.

    Returns:
        (N, C, D1..Dk) in the type of grad.

    Raises:
        IndicesError: an index outside its plane.
        ShapeError: the shapes do not fit.

    >>> max_pool_backward(np.float32([[[1, 2]]]), np.array([[[3, 3]]]), (5,))
    array([[[0., 0., 0., 3., 0.]]], dtype=float32)
    """
    return _call("max_pool_backward", grad, indices, spatial, _is_channels_last(indices))(grad, indices, threads)


def max_unpool_backward(grad: AnyArray, indices: AnyArray, threads: int | None = None) -> AnyArray:
    """Gradient of MaxUnpool with respect to X; equal indices all read the gradient of their common place.

        dX[n, c, p] = grad[n, c, indices[n, c, p]]

    Args:
        grad: (N, C, D1..Dk), float16, bfloat16, float32 or float64.
        indices: int64 (N, C, d1..dk), per plane; -1 gives 0.
        threads: maximum number of threads; None for every core.

    Returns:
        (N, C, d1..dk) in the type of grad.

    Raises:
        IndicesError: an index outside its plane.
        ShapeError: the shapes do not fit.

    >>> max_unpool_backward(np.float32([[[0, 5, 7]]]), np.array([[[2, 1]]]))
    array([[[7., 5.]]], dtype=float32)
    """
    call = _call("max_unpool_backward", grad, indices, grad.shape[2:], _is_channels_last(indices))
    return call(grad, indices, threads)


@dataclass(frozen=True, slots=True)
class MemoryOrder:
    """The order of the axes of (N, C, D1..Dk) in memory."""

    channels_last: bool

    def memory_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(N, C, D1..Dk) in the order of memory."""
        return (shape[0], *shape[2:], shape[1]) if self.channels_last else shape

    def outer_and_lanes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(outer, lanes) of (N, C, D1..Dk) as (outer, places, lanes): planes with one lane, or images with C lanes."""
        return (shape[0], shape[1]) if self.channels_last else (shape[0] * shape[1], 1)

    def in_memory(self, x: AnyArray) -> AnyArray:
        """(N, C, D1..Dk) C-contiguous in the order of memory; a copy of an array in another order."""
        ordered = np.moveaxis(x, 1, -1) if self.channels_last else x
        flags = ordered.flags
        return ordered if flags.c_contiguous and flags.aligned else np.require(ordered, None, ["C", "A"])

    def unfold(self, x: AnyArray) -> AnyArray:
        """An array in the order of memory as (N, C, D1..Dk)."""
        return np.moveaxis(x, -1, 1) if self.channels_last else x


class _PlaneCall:
    """A function of this file for arrays of some shapes and types."""

    def __init__(
        self,
        where: str,
        x: tuple[tuple[int, ...], np.dtype[Any]],
        indices: tuple[tuple[int, ...], np.dtype[Any]],
        spatial: tuple[int, ...],
        is_channels_last: bool,
    ) -> None:
        """Check them; `x` and `indices` are shapes and types."""
        from unpool.kernels.cpu.max_unpool import per_plane as kernels

        (shape, dtype), (small, index_dtype) = x, indices
        storage, gathers, sums = _storage(where, dtype, index_dtype), where in _GATHERS, where in _SUMS
        _check_shapes(where, shape, small, spatial, gathers=gathers)
        result = small if gathers else (*shape[:2], *spatial)
        self._where, self._plane = where, math.prod(spatial)
        self._order = order = MemoryOrder(is_channels_last)
        self._dtype, self._compute = storage.dtype, np.dtype(storage.compute if sums else storage.bits)
        self._is_wider = self._compute.itemsize > self._dtype.itemsize
        self._allocate = _allocator(order.memory_shape(result), self._compute, where)
        folded = *order.outer_and_lanes(small), math.prod(small[:2]) * self._plane + math.prod(small)
        self._write = kernels.collect(*folded) if gathers else kernels.spread(*folded, sums)

    def __call__(self, x: AnyArray, indices: AnyArray, threads: int | None) -> AnyArray:
        order = self._order
        values, places, y = order.in_memory(x), order.in_memory(indices), self._allocate()
        converted = values.astype(self._compute) if self._is_wider else values.view(self._compute)
        first_fault = self._write(converted, places, y, threads)
        if first_fault >= 0:
            raise _index_error(self._where, order, indices, first_fault, self._plane)
        return order.unfold(y.astype(self._dtype) if self._is_wider else y.view(self._dtype))


def _call(where: str, x: AnyArray, indices: AnyArray, spatial: tuple[int, ...], is_last: bool) -> _PlaneCall:
    return _cached_call(where, (x.shape, x.dtype), (indices.shape, indices.dtype), spatial, is_last)


def _is_channels_last(x: AnyArray) -> bool:
    """True if an array is channels-last; an array in neither order counts as row-major, and is copied."""
    return not x.flags.c_contiguous and np.moveaxis(x, 1, -1).flags.c_contiguous


_cached_call = lru_cache(maxsize=CACHE_SIZE)(_PlaneCall)


def _allocator(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> Callable[[], AnyArray]:
    """A function that allocates an uninitialised array."""
    if check(shape, dtype, where) < MIN_RECYCLED_BYTES:
        return partial(np.empty, shape, dtype)
    return partial(allocate, shape, dtype, where)


def _check_shapes(
    where: str, x: tuple[int, ...], indices: tuple[int, ...], spatial: tuple[int, ...], *, gathers: bool
) -> None:
    if gathers and (x[:2] != indices[:2] or len(x) != len(indices) or len(x) < 3):
        raise ShapeError(
            f"{where}: grad and indices need one rank, N and C, got {format_shape(x)} and {format_shape(indices)}. "
            "Pass the gradient of the unpooling's result."
        )
    if not gathers and (x != indices or len(x) != len(spatial) + 2):
        raise ShapeError(
            f"{where}: values and indices need one shape of {len(spatial) + 2} axes, got {format_shape(x)} and "
            f"{format_shape(indices)}. Pass the indices of the same pool."
        )


def _storage(where: str, x: np.dtype[Any], indices: np.dtype[Any]) -> StorageType:
    index_type(where, "indices", indices)
    storage = storage_type(x, f"{where}: values")
    if not storage.is_float:
        raise UnpoolError(f"{where}: expected a float type, got {storage.name}. Convert it.")
    return storage


def _index_error(where: str, order: MemoryOrder, indices: AnyArray, first_fault: int, plane: int) -> IndicesError:
    """The error for an element of `indices`, counted in the order of memory."""
    place = np.unravel_index(first_fault, order.memory_shape(indices.shape))
    axes = (0, len(place) - 1, *range(1, len(place) - 1)) if order.channels_last else range(len(place))
    coordinates = tuple(int(place[axis]) for axis in axes)
    return IndicesError(
        f"{where}: indices need values from 0 to {plane - 1} in their own plane, got {int(indices[coordinates])} at "
        f"{list(coordinates)}. Pass the indices of the same pool."
    )
