"""Max unpooling and the gradients of pools, on indices that count inside their own (n, c) plane, as PyTorch's do.

NumPy arrays in, NumPy arrays out. An array may be in row-major order or, where its channels are fastest in memory, in
channels-last order; results come in the order of `indices`, those of `max_unpool` in that of its input.
"""

import math
from dataclasses import dataclass

import numpy as np

from unpool.dtypes import AnyArray, StorageType, storage_type
from unpool.errors import IndicesError, ShapeError, UnpoolError
from unpool.memory import allocate
from unpool.operators.tensors import index_type, text


def max_unpool(x: AnyArray, indices: AnyArray, spatial: tuple[int, ...], threads: int | None = None) -> AnyArray:
    """Zeros, with every element of x where its index says; of equal indices the last in row-major order wins.

        y[n, c, indices[n, c, p]] = x[n, c, p]

    Args:
        x: (N, C, d1..dk), float16, bfloat16, float32 or float64.
        indices: int64 in the shape of x, each from 0 to D1 * .. * Dk - 1.
        spatial: D1..Dk.
        threads: at most so many; None for every core.

    Returns:
        (N, C, D1..Dk) in the type of x.

    Raises:
        IndicesError: an index outside its plane.
        ShapeError: the shapes do not fit.

    >>> max_unpool(np.float32([[[1, 2]]]), np.array([[[3, 0]]]), (5,))
    array([[[2., 0., 0., 1., 0.]]], dtype=float32)
    """
    return _spread("max_unpool", x, indices, spatial, Layout.of(x), sums=False, threads=threads)


def max_pool_backward(
    grad: AnyArray, indices: AnyArray, spatial: tuple[int, ...], threads: int | None = None
) -> AnyArray:
    """Gradient of MaxPool with respect to X.

        dX[n, c, i] = sum of grad[n, c, p] over the positions p with indices[n, c, p] = i

    float16 and bfloat16 are summed in float32 and rounded once.

    Args:
        grad: (N, C, d1..dk), float16, bfloat16, float32 or float64.
        indices: int64 (N, C, d1..dk), per plane; -1 leaves an element out.
        spatial: D1..Dk of X.
        threads: at most so many; None for every core. Results do not depend on it.

    Returns:
        (N, C, D1..Dk) in the type of grad.

    Raises:
        IndicesError: an index outside its plane.
        ShapeError: the shapes do not fit.

    >>> max_pool_backward(np.float32([[[1, 2]]]), np.array([[[3, 3]]]), (5,))
    array([[[0., 0., 0., 3., 0.]]], dtype=float32)
    """
    return _spread("max_pool_backward", grad, indices, spatial, Layout.of(indices), sums=True, threads=threads)


def max_unpool_backward(grad: AnyArray, indices: AnyArray, threads: int | None = None) -> AnyArray:
    """Gradient of MaxUnpool with respect to X; of equal indices each reads the gradient of the place they share.

        dX[n, c, p] = grad[n, c, indices[n, c, p]]

    Args:
        grad: (N, C, D1..Dk), float16, bfloat16, float32 or float64.
        indices: int64 (N, C, d1..dk), per plane; -1 gives 0.
        threads: at most so many; None for every core.

    Returns:
        (N, C, d1..dk) in the type of grad.

    Raises:
        IndicesError: an index outside its plane.
        ShapeError: the shapes do not fit.

    >>> max_unpool_backward(np.float32([[[0, 5, 7]]]), np.array([[[2, 1]]]))
    array([[[7., 5.]]], dtype=float32)
    """
    from unpool.kernels.cpu.max_unpool.per_plane import collect

    storage = _storage("max_unpool_backward", grad, indices)
    if grad.shape[:2] != indices.shape[:2] or grad.ndim != indices.ndim or grad.ndim < 3:
        raise ShapeError(
            f"max_unpool_backward: grad and indices need one rank, N and C, got {text(grad.shape)} and "
            f"{text(indices.shape)}. Pass the gradient of what the unpooling returned."
        )
    layout = Layout.of(indices)
    found = allocate(layout.memory_shape(indices.shape), storage.dtype, "max_unpool_backward")
    source, target = layout.fold(grad).view(storage.bits), layout.fold_memory(found).view(storage.bits)
    wrong = collect(source, layout.fold(indices), target, target.shape[2], threads)
    _check_places("max_unpool_backward", layout, indices, wrong, math.prod(grad.shape[2:]))
    return layout.unfold(found)


def _spread(
    where: str,
    x: AnyArray,
    indices: AnyArray,
    spatial: tuple[int, ...],
    layout: "Layout",
    sums: bool,
    threads: int | None,
) -> AnyArray:
    from unpool.kernels.cpu.max_unpool.per_plane import spread

    storage = _storage(where, x, indices)
    if x.shape != indices.shape or x.ndim != len(spatial) + 2:
        raise ShapeError(
            f"{where}: values and indices need one shape of {len(spatial) + 2} axes, got {text(x.shape)} and "
            f"{text(indices.shape)}. Pass the indices of the same pool."
        )
    held = storage.compute if sums else storage.bits
    values = layout.fold(x).astype(held, copy=False) if sums else layout.fold(x).view(held)
    y = allocate(layout.memory_shape((*x.shape[:2], *spatial)), held, where)
    total = layout.fold_memory(y)
    wrong = spread(values, layout.fold(indices), total, total.shape[2], sums, threads)
    _check_places(where, layout, indices, wrong, math.prod(spatial))
    return layout.unfold(y.astype(storage.dtype, copy=False) if sums else y.view(storage.dtype))


@dataclass(frozen=True, slots=True)
class Layout:
    """How the axes of (N, C, D1..Dk) lie in memory."""

    channels_last: bool

    @classmethod
    def of(cls, x: AnyArray) -> "Layout":
        """The layout of an array; row-major for one that is in neither order, which then costs a copy."""
        return cls(not x.flags.c_contiguous and np.moveaxis(x, 1, -1).flags.c_contiguous)

    def memory_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(N, C, D1..Dk) in the order of memory."""
        return (shape[0], *shape[2:], shape[1]) if self.channels_last else shape

    def fold(self, x: AnyArray) -> AnyArray:
        """(N, C, D1..Dk) as C-contiguous (outer, places, lanes)."""
        return self.fold_memory(np.require(np.moveaxis(x, 1, -1) if self.channels_last else x, None, ["C", "A"]))

    def fold_memory(self, x: AnyArray) -> AnyArray:
        """An array in the order of memory as (outer, places, lanes)."""
        if self.channels_last:
            return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])
        return x.reshape(x.shape[0] * x.shape[1], math.prod(x.shape[2:]), 1)

    def unfold(self, x: AnyArray) -> AnyArray:
        """An array in the order of memory as (N, C, D1..Dk)."""
        return np.moveaxis(x, -1, 1) if self.channels_last else x


def _storage(where: str, x: AnyArray, indices: AnyArray) -> StorageType:
    index_type(where, "indices", indices.dtype)
    storage = storage_type(x.dtype, f"{where}: values")
    if not storage.is_float:
        raise UnpoolError(f"{where}: expected a float type, got {storage.name}. Convert it.")
    return storage


def _check_places(where: str, layout: Layout, indices: AnyArray, wrong: int, plane: int) -> None:
    """Raise for the element of `indices`, counted in the order of memory, that a kernel refused."""
    if wrong >= 0:
        place = np.unravel_index(wrong, layout.memory_shape(indices.shape))
        order = (0, len(place) - 1, *range(1, len(place) - 1)) if layout.channels_last else range(len(place))
        found = tuple(int(place[axis]) for axis in order)
        raise IndicesError(
            f"{where}: indices need values from 0 to {plane - 1} in their own plane, got {int(indices[found])} at "
            f"{list(found)}. Pass the indices of the same pool."
        )
