"""Messages about image sizes that a model cannot run: too small, or no multiple of its stride."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unpool.display import format_shape
from unpool.errors import UnpoolError
from unpool.runtime.tiles.overview import Overview, SizeRange, overview
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.walk import Shape

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

STEPS = (2, 4, 8, 16, 32, 64, 128, 256)
"""Multiples of these are tried, in elements, where the geometry of a model is not known."""
SECONDS = 10.0
"""In all; a run that has begun is not broken off."""


def smallest_size_error(session: "InferenceSession", shapes: Mapping[str, Shape], layout: str) -> str | None:
    """The sizes from which on a model runs, where an image is smaller; None where it is not, or where they are unknown.

    Args:
        session: of the model.
        shapes: of all inputs.
        layout: nchw or nhwc.
    """
    try:
        if Tiler(session, layout=layout.upper()).accepts(shapes):
            return None
        found = overview(session, {}, layout.upper())
    except UnpoolError:
        return None
    if found.smallest is None or 0 in (given := _given(found, shapes, layout)):
        return None
    return _smaller(found.smallest, given)


def size_error(session: "InferenceSession", arrays: Mapping[str, NDArray[Any]], layout: str) -> str | None:
    """The message about the size of an image on which a run has failed.

    This is read from the geometry of the graph. Where that is not known, as with global pooling, somewhat larger
    images of zeros are tried.

    Args:
        session: of the model.
        arrays: on which the run failed, by input.
        layout: nchw or nhwc.

    Returns:
        None where the size is not to blame, or where no size is found that runs.
    """
    found = overview(session, {}, layout.upper())
    if found.smallest is None:
        return _tried(session, arrays, layout)
    given = _given(found, {name: array.shape for name, array in arrays.items()}, layout)
    least = tuple(axis.least for axis in found.smallest)
    if (text := _smaller(found.smallest, given)) is not None:
        return text
    steps = tuple(axis.step or 1 for axis in found.smallest)
    larger = tuple(have + (need - have) % step for have, need, step in zip(given, least, steps, strict=True))
    if larger == given:
        return None
    return (
        f"the model runs on {format_shape(least)} and in steps of {format_shape(steps)} above, "
        f"got {format_shape(given)}. Pad it to {format_shape(larger)} or cut it, nothing is resized here."
    )


def _given(found: Overview, shapes: Mapping[str, Shape], layout: str) -> Shape:
    """The spatial sizes of the first image."""
    rank = len(found.smallest or ()) + 2
    image = next(shapes[name] for name, shape in found.shapes.items() if len(shape) == rank)
    return image[2:] if layout == "nchw" else image[1:-1]


def _smaller(smallest: Sequence[SizeRange], given: Shape) -> str | None:
    least = tuple(axis.least for axis in smallest)
    if all(have >= need for have, need in zip(given, least, strict=True)):
        return None
    return (
        f"the model runs from {format_shape(least)} on, got {format_shape(given)}. Enlarge it, nothing is resized here."
    )


def _tried(session: "InferenceSession", arrays: Mapping[str, NDArray[Any]], layout: str) -> str | None:
    """A larger size that runs, where the given one does not run on zeros either."""
    axes = slice(2, None) if layout == "nchw" else slice(1, -1)
    given = next((array.shape[axes] for array in arrays.values() if array.ndim > 2), ())
    if not given or _runs(session, _resized(arrays, axes, given, given)):
        return None
    end = time.monotonic() + SECONDS
    for larger in dict.fromkeys(tuple(size + -size % step for size in given) for step in STEPS):
        if time.monotonic() > end:
            return None
        if larger != given and _runs(session, _resized(arrays, axes, given, larger)):
            return (
                f"the model runs on {format_shape(larger)}, got {format_shape(given)}. Pad or enlarge it to that, "
                "nothing is resized here."
            )
    return None


def _resized(
    arrays: Mapping[str, NDArray[Any]], axes: slice, given: tuple[int, ...], size: tuple[int, ...]
) -> dict[str, NDArray[Any]]:
    """The inputs with zeros of another size in place of those of the given one."""
    made = dict(arrays)
    for name, array in arrays.items():
        if array.ndim > 2 and array.shape[axes] == given:
            shape = list(array.shape)
            shape[axes] = size
            made[name] = np.zeros(shape, array.dtype)
    return made


def _runs(session: "InferenceSession", feed: dict[str, NDArray[Any]]) -> bool:
    try:
        session.run(None, feed)
    except UnpoolError:
        return False
    return True
