"""The tiling of a model without an image: strides, receptive fields, accepted sizes and memory. Nothing runs."""

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


DEFAULT_SIZES = {3: 4096, 4: 512, 5: 128}
"""By rank of an input, the size of dynamic spatial dimensions that the caller does not give."""


@dataclass(frozen=True)
class SizeRange:
    """The sizes that a model accepts along one spatial axis.

    Attributes:
        least: the smallest size, in elements.
        step: from one accepted size to the next, in elements; 0 where there is one only.
    """

    least: int
    step: int


def accepted_sizes(
    tiler: Tiler, shapes: Mapping[str, Shape], is_dynamic: Sequence[bool]
) -> tuple[SizeRange, ...] | None:
    """By spatial axis, the sizes of the first image that a model accepts while the other axes keep theirs.

    A graph treats sizes alike that differ by a multiple of its total stride. A smaller size is accepted as long as no
    value is empty, no padding repeats more elements than there are, and joined values have equal sizes.

    Args:
        tiler: of the session.
        shapes: of all inputs that are fed.
        is_dynamic: whether the model has a dynamic dimension, by spatial axis.

    Returns:
        None where the model does not accept `shapes`.

    Raises:
        UnsupportedError: a node does not treat every position of the image alike; the message names it.
    """
    if not tiler.accepts(shapes):
        return None
    probes = [_AxisProbe(tiler, shapes, axis) for axis in range(len(is_dynamic))]
    return tuple(
        probe.size_range(stride) if can_change else SizeRange(probe.size, 0)
        for probe, stride, can_change in zip(probes, tiler.strides(shapes), is_dynamic, strict=True)
    )


@dataclass(frozen=True)
class _AxisProbe:
    """Checks of sizes along one spatial axis of the image."""

    tiler: Tiler
    shapes: Mapping[str, Shape]
    axis: int

    @property
    def size(self) -> int:
        """Of the first image, in elements."""
        name, own = next(iter(self._own_axes().items()))
        return self.shapes[name][own]

    def size_range(self, stride: int) -> SizeRange:
        """The accepted sizes; that of the image is one of them."""
        divisors = (step for step in range(1, stride) if stride % step == 0)
        step = next((step for step in divisors if self._accepts(self.size + step)), stride)
        low, high = 0, (self.size - 1) // step  # steps that the image is known to exceed the minimum by, and may exceed
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._accepts(self.size - middle * step) else (low, middle - 1)
        return SizeRange(self.size - low * step, step)

    def _accepts(self, size: int) -> bool:
        """True if the model accepts an image of another size; other images change with the first one."""
        resized = dict(self.shapes)
        for name, own in self._own_axes().items():
            shape = list(resized[name])
            length = Fraction(shape[own] * size, self.size)
            if length.denominator != 1:
                return False
            shape[own] = int(length)
            resized[name] = tuple(shape)
        return self.tiler.accepts(resized)

    def _own_axes(self) -> dict[str, int]:
        """By image, the number of this axis."""
        return {name: axes.index(self.axis) for name, axes in self.tiler.images(self.shapes).items()}


@dataclass(frozen=True)
class Overview:
    """The tiling of a model.

    Attributes:
        shapes: of the inputs for which the other attributes hold.
        stride: the total stride along each spatial axis, in elements of the first input.
        outputs: the receptive field of an element of each output, along each spatial axis.
        smallest: the accepted sizes along each spatial axis of the first image; None where the model does not accept
            `shapes`.
        bytes: forecast of the peak memory of a run on these shapes, without the inputs and the session.
        refusal: the reason why the model cannot be tiled exactly; everything else is empty then.
    """

    shapes: Mapping[str, Shape]
    stride: tuple[int, ...] = ()
    outputs: Mapping[str, tuple[Extent, ...]] | None = None
    smallest: tuple[SizeRange, ...] | None = None
    bytes: int | None = None
    refusal: str | None = None


def overview(session: "InferenceSession", sizes: Mapping[str, int], layout: str = "NCHW") -> Overview:
    """The tiling of a model for given sizes.

    Args:
        session: of the model.
        sizes: of dynamic dimensions, by name; others get a default.
        layout: of the inputs, "NCHW" or "NHWC".
    """
    shapes = {info.name: _shape(info, sizes) for info in session.get_inputs()}
    try:
        tiler = Tiler(session, layout=layout)
        sizes_accepted = accepted_sizes(tiler, shapes, _dynamic_axes(session, tiler, shapes))
        return Overview(shapes, tiler.strides(shapes), tiler.extents(shapes), sizes_accepted, tiler.run_bytes(shapes))
    except UnpoolError as error:
        return Overview(shapes, refusal=str(error))


def _dynamic_axes(session: "InferenceSession", tiler: Tiler, shapes: Mapping[str, Shape]) -> list[bool]:
    """By spatial axis of the image, whether all inputs have a dynamic dimension along it."""
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
    """A shape that an input accepts."""
    shape: Sequence[int | str | None] = info.shape or ()
    default = DEFAULT_SIZES.get(len(shape), 1)
    return tuple(
        size if isinstance(size, int) else sizes.get(size or "", default if axis else 1)
        for axis, size in enumerate(shape)
    )
