"""Max unpooling and the gradients of pools, on indices into their own (n, c) plane, as in PyTorch.

NumPy arrays in, NumPy arrays out: values are float16, bfloat16, float32 or float64, indices int64. An array may be
row-major or channels-last in memory; results have the order of `indices`, those of `max_unpool` the order of its input.
An index outside its plane is an IndicesError, shapes that do not fit a ShapeError.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import AnyArray, storage_type
from unpool.errors import IndicesError, ShapeError, UnpoolError
from unpool.execute import CACHE_SIZE
from unpool.memory import MIN_RECYCLED_BYTES, allocate, check
from unpool.operators.tensors import index_type

_GATHERS, _SUMS = ("max_unpool_backward",), ("max_pool_backward",)


def max_unpool(x: AnyArray, indices: AnyArray, spatial: tuple[int, ...], threads: int | None = None) -> AnyArray:
    """Zeros (N, C, *spatial), with every element of x at its index; of equal ones the last in row-major order counts.

        y[n, c, indices[n, c, p]] = x[n, c, p]

    >>> max_unpool(np.float32([[[1, 2]]]), np.array([[[3, 0]]]), (5,))
    array([[[2., 0., 0., 1., 0.]]], dtype=float32)
    """
    return _call("max_unpool", x, indices, spatial, _is_channels_last(x))(x, indices, threads)


def max_pool_backward(
    grad: AnyArray, indices: AnyArray, spatial: tuple[int, ...], threads: int | None = None
) -> AnyArray:
    """Gradient of MaxPool with respect to X (N, C, *spatial); an index of -1 skips an element.

        dX[n, c, i] = sum of grad[n, c, p] over the positions p with indices[n, c, p] = i

    float16 and bfloat16 are summed in float32 and rounded once. Results do not depend on the number of threads.

    >>> max_pool_backward(np.float32([[[1, 2]]]), np.array([[[3, 3]]]), (5,))
    array([[[0., 0., 0., 3., 0.]]], dtype=float32)
    """
    return _call("max_pool_backward", grad, indices, spatial, _is_channels_last(indices))(grad, indices, threads)


def max_unpool_backward(grad: AnyArray, indices: AnyArray, threads: int | None = None) -> AnyArray:
    """Gradient of MaxUnpool with respect to X; equal indices all read the same gradient, and -1 gives 0.

        dX[n, c, p] = grad[n, c, indices[n, c, p]]

    >>> max_unpool_backward(np.float32([[[0, 5, 7]]]), np.array([[[2, 1]]]))
    array([[[7., 5.]]], dtype=float32)
    """
    call = _call("max_unpool_backward", grad, indices, grad.shape[2:], _is_channels_last(indices))
    return call(grad, indices, threads)


class _PlaneCall:
    def __init__(
        self,
        where: str,
        x: tuple[tuple[int, ...], np.dtype[Any]],
        indices: tuple[tuple[int, ...], np.dtype[Any]],
        spatial: tuple[int, ...],
        is_channels_last: bool,
    ) -> None:
        from unpool.kernels.cpu.max_unpool import per_plane as kernels

        (shape, dtype), (small, index_dtype) = x, indices
        index_type(where, "indices", index_dtype)
        storage, gathers, sums = storage_type(dtype, f"{where}: values"), where in _GATHERS, where in _SUMS
        if not storage.is_float:
            raise UnpoolError(f"{where}: expected a float type, got {storage.name}. Convert it.")
        if gathers and (shape[:2] != small[:2] or len(shape) != len(small) or len(shape) < 3):
            raise ShapeError(
                f"{where}: grad and indices need one rank, N and C, got {format_shape(shape)} and "
                f"{format_shape(small)}. Pass the gradient of the unpooling's result."
            )
        if not gathers and (shape != small or len(shape) != len(spatial) + 2):
            raise ShapeError(
                f"{where}: values and indices need one shape of {len(spatial) + 2} axes, got {format_shape(shape)} and "
                f"{format_shape(small)}. Pass the indices of the same pool."
            )
        result = small if gathers else (*shape[:2], *spatial)
        self._where, self._plane, self._is_last = where, math.prod(spatial), is_channels_last
        self._dtype, self._compute = storage.dtype, np.dtype(storage.compute if sums else storage.bits)
        self._is_wider = self._compute.itemsize > self._dtype.itemsize
        in_memory = self._memory_shape(result)
        self._allocate: Callable[[], AnyArray] = (
            partial(np.empty, in_memory, self._compute)
            if check(in_memory, self._compute, where) < MIN_RECYCLED_BYTES
            else partial(allocate, in_memory, self._compute, where)
        )
        # (outer, places, lanes): planes with one lane, or images whose channels are the lanes
        outer, lanes = small[:2] if is_channels_last else (small[0] * small[1], 1)
        work = math.prod(small[:2]) * self._plane + math.prod(small)
        self._write = kernels.collect(outer, lanes, work) if gathers else kernels.spread(outer, lanes, work, sums)

    def __call__(self, x: AnyArray, indices: AnyArray, threads: int | None) -> AnyArray:
        values, places, y = self._in_memory(x), self._in_memory(indices), self._allocate()
        converted = values.astype(self._compute) if self._is_wider else values.view(self._compute)
        first_fault = self._write(converted, places, y, threads)
        if first_fault >= 0:
            raise self._index_error(indices, first_fault)
        y = y.astype(self._dtype) if self._is_wider else y.view(self._dtype)
        return np.moveaxis(y, -1, 1) if self._is_last else y

    def _memory_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], *shape[2:], shape[1]) if self._is_last else shape

    def _in_memory(self, x: AnyArray) -> AnyArray:
        """(N, C, D1..Dk) C-contiguous in the order of memory; a copy of an array in another order."""
        ordered = np.moveaxis(x, 1, -1) if self._is_last else x
        flags = ordered.flags
        return ordered if flags.c_contiguous and flags.aligned else np.require(ordered, None, ["C", "A"])

    def _index_error(self, indices: AnyArray, first_fault: int) -> IndicesError:
        place = [int(each) for each in np.unravel_index(first_fault, self._memory_shape(indices.shape))]
        at = [place[0], place[-1], *place[1:-1]] if self._is_last else place
        return IndicesError(
            f"{self._where}: indices need values from 0 to {self._plane - 1} in their own plane, got "
            f"{int(indices[tuple(at)])} at {at}. Pass the indices of the same pool."
        )


_cached_call = lru_cache(maxsize=CACHE_SIZE)(_PlaneCall)


def _call(where: str, x: AnyArray, indices: AnyArray, spatial: tuple[int, ...], is_last: bool) -> _PlaneCall:
    return _cached_call(where, (x.shape, x.dtype), (indices.shape, indices.dtype), spatial, is_last)


def _is_channels_last(x: AnyArray) -> bool:
    """True if an array is channels-last; an array in neither order counts as row-major, and is copied."""
    return not x.flags.c_contiguous and np.moveaxis(x, 1, -1).flags.c_contiguous
