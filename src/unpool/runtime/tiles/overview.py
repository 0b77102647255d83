"""The tiling of a model without an image: strides, receptive fields, accepted sizes and memory. Nothing runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from unpool.errors import UnpoolError
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Extent
from unpool.runtime.tiles.walk import Axes, Shape

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


DEFAULT_SIZES = {3: 4096, 4: 512, 5: 128}
"""By rank of an input, the size of dynamic spatial dimensions that the caller does not give."""


@dataclass(frozen=True)
class SizeRange:
    """The sizes that a model accepts along one spatial axis: the smallest, and the step to others; 0 for one size."""

    least: int
    step: int


def _size_range(tiler: Tiler, shapes: Mapping[str, Shape], axis: int, stride: int) -> SizeRange:
    """The sizes of the first image that a model accepts along one spatial axis, of which that of `shapes` is one.

    A graph treats sizes alike that differ by a multiple of its total stride. A smaller size is accepted as long as no
    value is empty, no padding repeats more elements than there are, and joined values have equal sizes. Other axes keep
    their sizes, and other images change with the first. With `stride` 0, the size is fixed.
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

    By spatial axis, it has the total stride in elements of the first input, the receptive fields of the outputs, and
    the accepted sizes of the first image; None where `shapes` are not accepted. `bytes` forecasts the peak of a run.
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
        strides, smallest = tiler.strides(shapes), None
        if tiler.accepts(shapes):
            fixed = _fixed_axes(session, tiler.images(shapes))
            smallest = tuple(
                _size_range(tiler, shapes, axis, 0 if axis in fixed else stride) for axis, stride in enumerate(strides)
            )
        return Overview(shapes, strides, tiler.extents(shapes), smallest, tiler.run_bytes(shapes))
    except UnpoolError as error:
        return Overview(shapes, refusal=str(error))


def _fixed_axes(session: "InferenceSession", images: Mapping[str, Axes]) -> set[int | None]:
    inputs = [(images.get(info.name, ()), info.shape or ()) for info in session.get_inputs()]
    return {axis for pair in inputs for axis, size in zip(*pair, strict=False) if isinstance(size, int)}
