"""Mapping between the axes of a file and the axes of a tensor (batch, channels and spatial axes)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from unpool.errors import ShapeError

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]
Slices: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class AxisMapping:
    """The axis of the tensor for each axis of a file; the other axes of the tensor have one element.

    >>> colour = AxisMapping((2, 3, 1), 4)
    >>> colour.shape((480, 640, 3)), colour.stored_shape((1, 3, 480, 640))
    ((1, 3, 480, 640), (480, 640, 3))
    """

    axes: tuple[int, ...]
    rank: int

    def shape(self, stored: Shape) -> Shape:
        """The shape of the tensor, from the shape in the file."""
        sizes = dict(zip(self.axes, stored, strict=True))
        return tuple(sizes.get(axis, 1) for axis in range(self.rank))

    def stored_shape(self, shape: Sequence[int]) -> Shape:
        """The shape in the file, from the shape of the tensor."""
        return tuple(shape[axis] for axis in self.axes)

    def slices(self, slices: Slices) -> Slices:
        """The window of the file that is a window of the tensor."""
        return tuple(slices[axis] for axis in self.axes)

    def tensor(self, stored: Array) -> Array:
        """A window of the tensor, from the window of the file."""
        return stored.transpose(np.argsort(self.axes)).reshape(self.shape(stored.shape))

    def stored(self, tensor: Array) -> Array:
        """A window of the file, from the window of the tensor."""
        others = [axis for axis in range(self.rank) if axis not in self.axes]
        return tensor.transpose([*others, *self.axes]).reshape(self.stored_shape(tensor.shape))


def spatial_axes(rank: int, layout: str) -> tuple[int, ...]:
    """The spatial axes of a tensor of batch, channels and these."""
    return tuple(range(2, rank)) if layout == "NCHW" else tuple(range(1, rank - 1))


def channel_axis(rank: int, layout: str) -> int:
    """The axis of the channels."""
    return 1 if layout == "NCHW" else rank - 1


def axes_for_array(stored: Shape, rank: int, layout: str, where: str) -> AxisMapping:
    """The axes of an array that may leave out the batch, and the channels too; another number is a ShapeError.

    >>> axes_for_array((480, 640), 4, "NCHW", "x.npy").axes, axes_for_array((3, 480, 640), 4, "NCHW", "x.npy").axes
    ((2, 3), (1, 2, 3))
    """
    kinds = (tuple(range(rank)), tuple(range(1, rank)), spatial_axes(rank, layout))
    return axes_with_rank(kinds, stored, rank, where)


def axes_with_rank(kinds: Sequence[tuple[int, ...]], stored: Shape, rank: int, where: str) -> AxisMapping:
    """The first of several mappings, each from file axes to tensor axes, with as many axes as a file has."""
    for axes in kinds:
        if len(axes) == len(stored):
            return AxisMapping(axes, rank)
    counts = " or ".join(str(len(axes)) for axes in reversed(kinds))
    raise ShapeError(f"{where}: expected {counts} axes for an input of {rank}, got {list(stored)}. Reshape the array.")


def full_slices(shape: Shape) -> Slices:
    """Slices of an entire array, with both ends as numbers."""
    return tuple(slice(0, size) for size in shape)


def normalize_slices(slices: Slices, shape: Shape) -> Slices:
    """Slices with both their ends as numbers."""
    return tuple(slice(*part.indices(size)) for part, size in zip(slices, shape, strict=True))


def shape_of(slices: Slices) -> Shape:
    """The shape of a window whose ends are numbers."""
    return tuple(part.stop - part.start for part in slices)
