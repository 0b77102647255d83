"""What can be said about the tiles of a model before there is an image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpool.errors import UnpoolError
from unpool.runtime.session.signature import ValueInfo
from unpool.runtime.tiles.grid import Extent
from unpool.runtime.tiles.smallest import Taken, smallest
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.walk import Shape

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

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
