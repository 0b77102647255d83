"""Description of a call of max pooling, for all of its kernels."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, Window, clipped
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP
from unpool.kernels.cpu.vector import FIRST, LAST

CACHE_BYTES = 1 << 20  # bytes of x above which prefetching pays
FAR_BYTES = 24 << 20  # bytes of x, y and indices above which they come from memory

_ELEMENTS = {"int32": "float32", "int64": "float64", "int16": "int16", "int8": "int8", "uint8": "uint8"}


class PlaneAxes(NamedTuple):
    """The axes of one plane as kernels walk them: leading axes as rows, then lanes."""

    leading: tuple[Axis, ...]  # the axes before the lanes
    lanes: Axis  # the last spatial axis, or the channels
    unit: int  # elements between neighbours of the last leading axis that are one place of an index: C, or 1

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes."""
        return (*self.leading, self.lanes)

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """The axes that windows slide along."""
        return self.leading if self.unit > 1 else self.axes

    @property
    def large(self) -> int:
        """Elements of x."""
        return math.prod(axis.large for axis in self.axes)

    @property
    def small(self) -> int:
        """Elements of y."""
        return math.prod(axis.small for axis in self.axes)

    @property
    def rows(self) -> int:
        """Rows of lanes in y."""
        return math.prod(axis.small for axis in self.leading)


class PoolMode(NamedTuple):
    """Options of a pool, the same for all planes."""

    channels_last: bool = False  # whether the lanes of x are channels
    nan_last: bool = False  # whether the last NaN of a window gives the index, rather than the first
    per_plane: bool = False  # whether indices count inside their own plane, rather than in the whole tensor
    is_recycled: bool = False  # whether the memory of the outputs is recycled

    @property
    def nan(self) -> int:
        """FIRST or LAST, the NaN of a window whose index is found."""
        return LAST if self.nan_last else FIRST


class ElementType(NamedTuple):
    """The type of x and y."""

    bits: np.dtype[Any]  # the integers that arrays are viewed as
    infinity: int  # bits of +infinity; 0 for integers
    lowest: int  # bits of the output of a window without data

    @property
    def name(self) -> str:
        """The name in kernels: float32, float64, int8, uint8; int16 for the bits of a 16-bit float."""
        return _ELEMENTS[self.bits.name]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.bits.itemsize

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
        axes, channels = tuple(map(clipped, axes)), shape[-1]
        if mode.channels_last:
            plane = PlaneAxes(axes, Axis(channels, channels, Window(1)), channels)
        else:
            plane = PlaneAxes(axes[:-1], axes[-1], 1)
        return cls(shape[0], plane, elements, has_indices, mode)

    @property
    def size(self) -> int:
        """Elements of x."""
        return self.outer * self.plane.large

    @property
    def results(self) -> int:
        """Elements of y."""
        return self.outer * self.plane.small

    @property
    def work(self) -> int:
        """Work as `split` counts it, of a kernel that moves whole vectors."""
        return (self.size + self.results) // VECTOR_SPEEDUP

    @property
    def nbytes(self) -> int:
        """Bytes of x, y and indices."""
        return (self.size + self.results) * self.elements.size + self.results * 8 * self.has_indices

    @property
    def is_far(self) -> bool:
        """True if arrays come from memory, rather than from a cache."""
        return self.nbytes > FAR_BYTES

    @property
    def has_prefetch(self) -> bool:
        """True if prefetching x pays."""
        return self.size * self.elements.size > CACHE_BYTES

    @property
    def outer_places(self) -> int:
        """Places from one outer to the next; 0 where they count inside their own plane."""
        return 0 if self.mode.per_plane else self.plane.large

    @property
    def lane_places(self) -> int:
        """Places from one lane to the next."""
        return 1 if self.plane.unit == 1 else self.outer_places // self.plane.unit


class FlaggedBands(NamedTuple):
    """Bands of rows of y, each of which has a flag, an int64: whether it is pooled."""

    rows: int  # of a band, but fewer in the last one of a group
    in_group: int  # bands
    group_rows: int  # rows of a group: one plane or several


UNFLAGGED = FlaggedBands(1, 1, 1)
