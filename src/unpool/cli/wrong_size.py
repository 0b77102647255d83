"""Why a model cannot run on an image of some size: it is too small, or no multiple of what the model needs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from unpool.cli.model import sizes
from unpool.runtime.tiles.overview import overview

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


def wrong_size(session: "InferenceSession", arrays: Mapping[str, NDArray[Any]], layout: str) -> str | None:
    """What is wrong with the size of an image on which a run has failed.

    This is read from the geometry of the graph, nothing runs.

    Args:
        session: of the model.
        arrays: on which the run failed, by input.
        layout: nchw or nhwc.

    Returns:
        None where the size is not to blame, or where the geometry is not known.
    """
    found = overview(session, {}, layout.upper())
    if found.smallest is None:
        return None
    rank = len(found.smallest) + 2
    image = next(arrays[name].shape for name, shape in found.shapes.items() if len(shape) == rank)
    given = image[2:] if layout == "nchw" else image[1:-1]
    least = tuple(axis.least for axis in found.smallest)
    if any(have < need for have, need in zip(given, least, strict=True)):
        return f"the model runs from {sizes(least)} on, got {sizes(given)}. Enlarge it, nothing is resized here."
    steps = tuple(axis.step or 1 for axis in found.smallest)
    larger = tuple(have + (need - have) % step for have, need, step in zip(given, least, steps, strict=True))
    if larger == given:
        return None
    return (
        f"the model runs on {sizes(least)} and in steps of {sizes(steps)} above, got {sizes(given)}. "
        f"Pad it to {sizes(larger)} or cut it, nothing is resized here."
    )
