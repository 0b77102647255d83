"""What a call of max pooling asks for, as all of its kernels see it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpool.geometry import Axis, Window, clipped
from unpool.kernels.cpu.machine.threads import VECTORISED
from unpool.kernels.cpu.vector import FIRST, LAST

CACHE_BYTES = 1 << 20
"""Of x, beyond which it is worth asking for ahead of time."""

FAR_BYTES = 24 << 20
"""Of x, y and indices, beyond which they come from memory."""

_ELEMENTS = {
    np.dtype(bits): element
    for bits, element in {
        np.int32: "float32",
        np.int64: "float64",
        np.int16: "int16",
        np.int8: "int8",
        np.uint8: "uint8",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Plane:
    """The axes of one plane as kernels walk them: leading axes as rows, then lanes.

    Attributes:
        leading: the axes before the lanes.
        lanes: the last spatial axis, or the channels.
        unit: elements between neighbours of the last leading axis that are one place of an index: C, or 1.
    """

    leading: tuple[Axis, ...]
    lanes: Axis
    unit: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All of them."""
        return (*self.leading, self.lanes)

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """Those that windows slide along."""
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


@dataclass(frozen=True, slots=True)
class Mode:
    """What a pool does the same for all its planes.

    Attributes:
        channels_last: whether the lanes of x are channels.
        nan_last: whether the index of the last NaN of a window is found, rather than of the first.
        per_plane: whether indices count inside their own plane, rather than in the whole tensor.
        was_written: whether the memory of the outputs has been in use before.
    """

    channels_last: bool = False
    nan_last: bool = False
    per_plane: bool = False
    was_written: bool = False

    @property
    def nan(self) -> int:
        """Which NaN of a window is found, as kernels take it."""
        return LAST if self.nan_last else FIRST


@dataclass(frozen=True, slots=True)
class Elements:
    """The type of x and y.

    Attributes:
        bits: the integers that arrays are viewed as.
        infinity: bits of +infinity; 0 for integers.
        lowest: bits of what a window without data gives.
    """

    bits: np.dtype[Any]
    infinity: int
    lowest: int

    @property
    def name(self) -> str:
        """As kernels call it: float32, float64, int8, uint8; int16 means the bits of a 16-bit float."""
        return _ELEMENTS[self.bits]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.bits.itemsize

    def value(self, bits: int) -> Any:
        """The number that some bits are, of the type that kernels work with."""
        return np.array(bits, self.bits).view(self.name)[()]


@dataclass(frozen=True, slots=True)
class Pool:
    """One call.

    Attributes:
        outer: planes: N * C, or N where the lanes are channels.
        plane: the axes of each.
        elements: the type of x and y.
        has_indices: whether indices are wanted.
        mode: layout, NaN, and what indices count in.
    """

    outer: int
    plane: Plane
    elements: Elements
    has_indices: bool
    mode: Mode

    @classmethod
    def of(
        cls, shape: Sequence[int], axes: Sequence[Axis], elements: Elements, has_indices: bool, mode: Mode
    ) -> "Pool":
        """The call for an x of (outer, D1..Dk), or (outer, D1..Dk, C), and one axis per spatial axis."""
        axes, channels = tuple(map(clipped, axes)), shape[-1]
        if mode.channels_last:
            plane = Plane(axes, Axis(channels, channels, Window(1)), channels)
        else:
            plane = Plane(axes[:-1], axes[-1], 1)
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
        """As `split` counts it, of a kernel that moves whole vectors."""
        return (self.size + self.results) // VECTORISED

    @property
    def nbytes(self) -> int:
        """Bytes of x, y and indices."""
        return (self.size + self.results) * self.elements.size + self.results * 8 * self.has_indices

    @property
    def is_far(self) -> bool:
        """Whether arrays come from memory, rather than from a cache."""
        return self.nbytes > FAR_BYTES

    @property
    def is_asked_for(self) -> bool:
        """Whether x is worth asking for ahead of time."""
        return self.size * self.elements.size > CACHE_BYTES

    @property
    def outer_places(self) -> int:
        """Places from one outer to the next; 0 where they count inside their own plane."""
        return 0 if self.mode.per_plane else self.plane.large

    @property
    def lane_places(self) -> int:
        """Places from one lane to the next."""
        return 1 if self.plane.unit == 1 else self.outer_places // self.plane.unit
