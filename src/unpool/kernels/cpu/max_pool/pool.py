"""Description of a call of max pooling, for all of its kernels."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, Window, clipped
from unpool.kernels.cpu.axes import axis_at, join, large_sizes, set_axis, small_sizes
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP
from unpool.kernels.cpu.tuning import POOL_MEMORY
from unpool.kernels.cpu.vector import FIRST, LAST
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline

_ELEMENTS = {"int32": "float32", "int64": "float64", "int16": "int16", "int8": "int8", "uint8": "uint8"}


class PlaneAxes(NamedTuple):
    """The axes of one plane as kernels walk them: leading axes as rows, then lanes."""

    leading: tuple[Axis, ...]  # the axes before the lanes
    lanes: Axis  # the last spatial axis, or the channels
    unit: int  # elements between neighbours of the last leading axis that are one place of an index: C, or 1

    @property
    def large(self) -> int:
        """Elements of x."""
        return plane_large(self)

    @property
    def small(self) -> int:
        """Elements of y."""
        return plane_small(self)


@jit_inline
def plane_large(plane: PlaneAxes) -> int:
    """Elements of x in a plane."""
    return large_sizes(plane.leading, 0) * plane.lanes.large


@jit_inline
def plane_small(plane: PlaneAxes) -> int:
    """Elements of y in a plane."""
    return plane_rows(plane) * plane.lanes.small


@jit_inline
def plane_rows(plane: PlaneAxes) -> int:
    """Rows of lanes in a plane of y."""
    return small_sizes(plane.leading, 0)


@jit_inline
def spatial_axes(plane: PlaneAxes) -> Any:
    """The axes that windows slide along."""
    return plane.leading if plane.unit > 1 else join(plane.leading, plane.lanes)


def clip_axes(axes: Sequence[Axis]) -> Any:
    """As `clipped`, of several axes."""
    return tuple(map(clipped, axes))


@compile_as(clip_axes)
def _clip_axes(axes: Any) -> Callable[..., Any]:
    def compiled(axes):
        result = np.empty_like(axes)
        for number in range(len(axes)):
            set_axis(result, number, clipped(axis_at(axes, number)))
        return result

    return compiled


class PoolMode(NamedTuple):
    """Options of a pool, the same for all planes."""

    channels_last: bool = False  # whether the lanes of x are channels
    nan_last: bool = False  # whether the last NaN of a window gives the index, rather than the first
    per_plane: bool = False  # whether indices count inside their own plane, rather than in the whole tensor
    is_recycled: bool = False  # whether the memory of the outputs is recycled


@jit_inline
def nan_of(mode: PoolMode) -> int:
    """FIRST or LAST, the NaN of a window whose index is found."""
    return LAST if mode.nan_last else FIRST


class ElementType(NamedTuple):
    """The type of x and y."""

    bits: Any  # the dtype of integers that arrays are viewed as; compiled, a number
    infinity: int  # bits of +infinity; 0 for integers
    lowest: int  # bits of the output of a window without data

    @property
    def name(self) -> str:
        """The name in kernels: float32, float64, int8, uint8; int16 for the bits of a 16-bit float."""
        return _ELEMENTS[self.bits.name]

    @property
    def size(self) -> int:
        """Bytes."""
        size: int = self.bits.itemsize
        return size

    def value(self, bits: int) -> Any:
        """The number with these bits, of the type that kernels work with."""
        return np.array(bits, self.bits).view(self.name)[()]


class PoolProblem(NamedTuple):
    """Max pooling of one shape, type and window."""

    outer: int  # planes: N * C, or N where the lanes are channels
    plane: PlaneAxes  # the axes of each
    elements: ElementType  # the type of x and y
    has_indices: bool  # whether the call has indices
    mode: PoolMode  # layout, NaN, and how indices count

    @classmethod
    def of(
        cls, shape: Sequence[int], axes: Sequence[Axis], elements: ElementType, has_indices: bool, mode: PoolMode
    ) -> "PoolProblem":
        """The call for an x of (outer, D1..Dk), or (outer, D1..Dk, C), and one axis per spatial axis."""
        clipped_axes, channels = clip_axes(axes), shape[-1]
        if mode.channels_last:
            plane = PlaneAxes(clipped_axes, Axis(channels, channels, Window(1)), channels)
        else:
            plane = PlaneAxes(clipped_axes[:-1], clipped_axes[-1], 1)
        return cls(shape[0], plane, elements, has_indices, mode)

    @property
    def results(self) -> int:
        """Elements of y."""
        return pool_results(self)

    @property
    def work(self) -> int:
        """Work as `split` counts it, of a kernel that moves whole vectors."""
        return pool_work(self)

    @property
    def nbytes(self) -> int:
        """Bytes of x, y and indices."""
        return pool_bytes(self)


def element_size(elements: ElementType) -> int:
    """Bytes of an element."""
    return elements.size


def element_name(elements: ElementType) -> Any:
    """The name of the type in kernels; compiled, its number."""
    return elements.name


@compile_as(element_size)
def _element_size(elements: Any) -> Callable[..., Any]:
    return lambda elements: (4, 8, 2, 1, 1)[elements.bits]


@compile_as(element_name)
def _element_name(elements: Any) -> Callable[..., Any]:
    return lambda elements: elements.bits


@jit_inline
def pool_size(pool: PoolProblem) -> int:
    """Elements of x."""
    return pool.outer * plane_large(pool.plane)


@jit_inline
def pool_results(pool: PoolProblem) -> int:
    """Elements of y."""
    return pool.outer * plane_small(pool.plane)


@jit_inline
def pool_work(pool: PoolProblem) -> int:
    """As `PoolProblem.work`."""
    return (pool_size(pool) + pool_results(pool)) // VECTOR_SPEEDUP


@jit_inline
def pool_bytes(pool: PoolProblem) -> int:
    """Bytes of x, y and indices."""
    results = pool_results(pool)
    return (pool_size(pool) + results) * element_size(pool.elements) + (results * 8 if pool.has_indices else 0)


@jit_inline
def is_far(pool: PoolProblem) -> bool:
    """True if arrays come from memory, rather than from a cache."""
    return pool_bytes(pool) > POOL_MEMORY.far


@jit_inline
def has_prefetch(pool: PoolProblem) -> bool:
    """True if prefetching x pays."""
    return pool_size(pool) * element_size(pool.elements) > POOL_MEMORY.prefetched


@jit_inline
def outer_places(pool: PoolProblem) -> int:
    """Places from one outer to the next; 0 where they count inside their own plane."""
    return 0 if pool.mode.per_plane else plane_large(pool.plane)


@jit_inline
def lane_places(pool: PoolProblem) -> int:
    """Places from one lane to the next."""
    return 1 if pool.plane.unit == 1 else outer_places(pool) // pool.plane.unit


class FlaggedBands(NamedTuple):
    """Bands of rows of y, each of which has a flag, an int64: whether it is pooled."""

    rows: int  # of a band, but fewer in the last one of a group
    in_group: int  # bands
    group_rows: int  # rows of a group: one plane or several


UNFLAGGED = FlaggedBands(1, 1, 1)
