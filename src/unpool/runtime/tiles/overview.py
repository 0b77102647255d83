"""The tiling of a model without an image: strides, receptive fields, accepted sizes and memory. Nothing runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from unpool.errors import UnpoolError
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Extent
from unpool.runtime.tiles.walk import Shape

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


DEFAULT_SIZES = {3: 4096, 4: 512, 5: 128}
"""By rank of an input, the size of dynamic spatial dimensions that the caller does not give."""


@dataclass(frozen=True)
class SizeRange:
    """The sizes that a model accepts along one spatial axis, in elements: the smallest one, and the distance of others.

    `step` is 0 where there is one size only.
    """

    least: int
    step: int


def accepted_sizes(
    tiler: Tiler, shapes: Mapping[str, Shape], is_dynamic: Sequence[bool]
) -> tuple[SizeRange, ...] | None:
    """By spatial axis, the sizes of the first image that a model accepts while the other axes keep theirs.

    A graph treats sizes alike that differ by a multiple of its total stride. A smaller size is accepted as long as no
    value is empty, no padding repeats more elements than there are, and joined values have equal sizes. None means that
    the model does not accept `shapes`. `is_dynamic` says, by spatial axis, whether the model has a dynamic dimension.
    """
    if not tiler.accepts(shapes):
        return None
    strides = tiler.strides(shapes)
    pairs = enumerate(zip(strides, is_dynamic, strict=True))
    return tuple(_size_range(tiler, shapes, axis, stride if changes else 0) for axis, (stride, changes) in pairs)


def _size_range(tiler: Tiler, shapes: Mapping[str, Shape], axis: int, stride: int) -> SizeRange:
    """The accepted sizes along one spatial axis, of which that of `shapes` is one; other images change with the first.

    With `stride` 0, the size is fixed.
    """
    own_axes = {name: axes.index(axis) for name, axes in tiler.images(shapes).items()}
    size = next(shapes[name][own] for name, own in own_axes.items())

    def accepts(other: int) -> bool:
        resized = dict(shapes)
        for name, own in own_axes.items():
            length = Fraction(shapes[name][own] * other, size)
            if length.denominator != 1:
                return False
            resized[name] = (*shapes[name][:own], int(length), *shapes[name][own + 1 :])
        return tiler.accepts(resized)

    if not stride:
        return SizeRange(size, 0)
    divisors = (step for step in range(1, stride) if stride % step == 0)
    step = next((step for step in divisors if accepts(size + step)), stride)
    low, high = 0, (size - 1) // step  # steps that the image is known to exceed the minimum by, and may exceed
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if accepts(size - middle * step) else (low, middle - 1)
    return SizeRange(size - low * step, step)


@dataclass(frozen=True)
class Overview:
    """The tiling of a model for inputs of these shapes; empty but for the reason where it cannot be tiled exactly.

    Attributes:
        stride: the total stride along each spatial axis, in elements of the first input.
        outputs: the receptive field of an element of each output, along each spatial axis.
        smallest: the accepted sizes along each spatial axis of the first image; None where `shapes` are not accepted.
        bytes: forecast of the peak memory of a run, without the inputs and the session.
    """

    shapes: Mapping[str, Shape]
    stride: tuple[int, ...] = ()
    outputs: Mapping[str, tuple[Extent, ...]] | None = None
    smallest: tuple[SizeRange, ...] | None = None
    bytes: int | None = None
    refusal: str | None = None


def overview(session: "InferenceSession", sizes: Mapping[str, int], layout: str = "NCHW") -> Overview:
    """The tiling of a model for the sizes of dynamic dimensions, by name; others get a default."""
    shapes = {}
    for info in session.get_inputs():
        dims = info.shape or ()
        default = DEFAULT_SIZES.get(len(dims), 1)
        shapes[info.name] = tuple(
            size if isinstance(size, int) else sizes.get(size or "", default if axis else 1)
            for axis, size in enumerate(dims)
        )
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
