"""The smallest image that a model takes, from the geometry of its graph alone: nothing runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.walk import Shape


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
