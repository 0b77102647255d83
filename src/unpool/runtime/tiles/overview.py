"""What can be said about the tiles of a model before there is an image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from unpool.errors import UnpoolError
from unpool.runtime.session.signature import ValueInfo
from unpool.runtime.tiles.grid import Extent
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.walk import Shape

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


@dataclass(frozen=True)
class Taken:
    """Which sizes a model takes along one spatial axis.

    Attributes:
        least: the smallest size, in elements.
        step: from one size that it takes to the next, in elements; 0 where it takes a single one.
    """

    least: int
    step: int


def smallest(tiler: Tiler, shapes: Mapping[str, Shape], is_open: Sequence[bool]) -> tuple[Taken, ...] | None:
    """By spatial axis, the sizes of the first image that a model takes while the other axes keep theirs.

    A graph treats all sizes alike that differ by a multiple of its total stride, and smaller ones are taken while no
    value is empty, no padding repeats more than there is, and values that are joined have equal sizes.

    Args:
        tiler: of the session.
        shapes: of all inputs that are fed; of a size that the model takes.
        is_open: by spatial axis, whether the model leaves its size open.

    Returns:
        None where the model does not take `shapes`.

    Raises:
        UnsupportedError: a node does not treat every position of the image alike; the message names it.
    """
    if not tiler.takes(shapes):
        return None
    along = [_Along(tiler, shapes, axis) for axis in range(len(is_open))]
    strides = tiler.strides(shapes)
    return tuple(
        one.taken(stride) if is_open[axis] else Taken(one.size, 0)
        for axis, (one, stride) in enumerate(zip(along, strides, strict=True))
    )


@dataclass(frozen=True)
class _Along:
    """One spatial axis of the image."""

    tiler: Tiler
    shapes: Mapping[str, Shape]
    axis: int

    @property
    def size(self) -> int:
        """Of the first image, in elements."""
        return self._sizes()[0]

    def taken(self, stride: int) -> Taken:
        """The sizes that the model takes, of which the image's is one."""
        step = next((one for one in range(1, stride) if stride % one == 0 and self._takes(self.size + one)), stride)
        low, high = 0, (self.size - 1) // step  # steps that may be left out for sure, and at most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._takes(self.size - middle * step) else (low, middle - 1)
        return Taken(self.size - low * step, step)

    def _takes(self, size: int) -> bool:
        """Whether the model takes an image of another size; other images change with the first one."""
        resized = dict(self.shapes)
        for name, own in self._places().items():
            shape = list(resized[name])
            wanted = Fraction(shape[own] * size, self.size)
            if wanted.denominator != 1:
                return False
            shape[own] = int(wanted)
            resized[name] = tuple(shape)
        return self.tiler.takes(resized)

    def _sizes(self) -> list[int]:
        return [self.shapes[name][own] for name, own in self._places().items()]

    def _places(self) -> dict[str, int]:
        """By image, which of its axes this is."""
        return {name: axes.index(self.axis) for name, axes in self.tiler.images(self.shapes).items()}


OPEN_SIZES = {3: 4096, 4: 512, 5: 128}
"""By rank of an input, what is taken for spatial sizes that the model and the caller leave open."""


@dataclass(frozen=True)
class Overview:
    """How a model can be tiled.

    Attributes:
        shapes: of the inputs that all this is about.
        stride: the total stride along each spatial axis, in elements of the first input.
        outputs: how far an element of each output sees, along each spatial axis.
        smallest: which sizes the model takes along each spatial axis of its first image; None where it does not take
            `shapes`.
        bytes: that a run on these shapes takes at its peak, beside the inputs and the session: a forecast.
        refusal: why the model cannot be tiled exactly; everything else is empty then.
    """

    shapes: Mapping[str, Shape]
    stride: tuple[int, ...] = ()
    outputs: Mapping[str, tuple[Extent, ...]] | None = None
    smallest: tuple[Taken, ...] | None = None
    bytes: int | None = None
    refusal: str | None = None


def overview(session: "InferenceSession", sizes: Mapping[str, int], layout: str = "NCHW") -> Overview:
    """What tiles of a model are like, for given sizes.

    Args:
        session: of the model.
        sizes: for the names of sizes that the model leaves open; others are taken for an image of ordinary size.
        layout: of the inputs, "NCHW" or "NHWC".
    """
    shapes = {info.name: _shape(info, sizes) for info in session.get_inputs()}
    try:
        tiler = Tiler(session, layout=layout)
        taken = smallest(tiler, shapes, _open_axes(session, tiler, shapes))
        return Overview(shapes, tiler.strides(shapes), tiler.extents(shapes), taken, tiler.run_bytes(shapes))
    except UnpoolError as error:
        return Overview(shapes, refusal=str(error))


def _open_axes(session: "InferenceSession", tiler: Tiler, shapes: Mapping[str, Shape]) -> list[bool]:
    """By spatial axis of the image, whether no input has a fixed size along it."""
    images = tiler.images(shapes)
    fixed = {
        axis
        for info in session.get_inputs()
        for axis, size in zip(images.get(info.name, ()), info.shape or (), strict=False)
        if isinstance(size, int)
    }
    axes = {axis for own in images.values() for axis in own if axis is not None}
    return [axis not in fixed for axis in sorted(axes)]


def _shape(info: ValueInfo, sizes: Mapping[str, int]) -> Shape:
    """A shape that fits an input."""
    shape: Sequence[int | str | None] = info.shape or ()
    usual = OPEN_SIZES.get(len(shape), 1)
    return tuple(
        size if isinstance(size, int) else sizes.get(size or "", usual if axis else 1)
        for axis, size in enumerate(shape)
    )
