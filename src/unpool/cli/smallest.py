"""Why a model cannot run on an image of some size: it is too small, or no multiple of what the model needs.

The model is asked: it runs on zeros of small sizes. This is done after a run has failed, not before.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.model import Slot, sizes
from unpool.errors import UnpoolError

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

LARGEST = 512
"""Elements along an axis up to which sizes are tried."""
FINEST = 32
"""Sizes tried between a power of two that runs and the one below."""
SECONDS = 10.0
"""In all."""

Runs = Callable[[tuple[int, ...]], bool]


def too_small(
    session: "InferenceSession", slots: Mapping[str, Slot], arrays: Mapping[str, NDArray[Any]], layout: str
) -> str | None:
    """What is wrong with the size of an image on which a run has failed; None where its size is not to blame.

    Args:
        session: of the model.
        slots: its inputs.
        arrays: on which the run failed, by input.
        layout: nchw or nhwc.
    """
    images = {name: _spatial(slot, layout) for name, slot in slots.items() if _is_image(slot, layout)}
    if not images:
        return None
    first = next(iter(images))
    given = tuple(arrays[first].shape[axis] for axis in images[first])
    alike = [name for name in images if tuple(arrays[name].shape[axis] for axis in images[name]) == given]

    def feed(size: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        return {name: _zeros(array, images[name], size) if name in alike else array for name, array in arrays.items()}

    end = time.monotonic() + SECONDS

    def runs(size: tuple[int, ...]) -> bool:
        if time.monotonic() > end:
            return False
        try:
            session.run(None, feed(size))
        except UnpoolError:
            return False
        return True

    fixed = tuple(slots[first].shape[axis] for axis in images[first])  # type: ignore[index] # images have shapes
    found = _smallest(runs, fixed)
    return None if found is None else _reason(runs, found, fixed, given)


def _is_image(slot: Slot, layout: str) -> bool:
    return slot.shape is not None and len(slot.shape) > 2 and None in [slot.shape[at] for at in _spatial(slot, layout)]


def _spatial(slot: Slot, layout: str) -> range:
    rank = len(slot.shape or ())
    return range(2, rank) if layout == "nchw" else range(1, rank - 1)


def _zeros(array: NDArray[Any], axes: range, size: tuple[int, ...]) -> NDArray[Any]:
    shape = list(array.shape)
    for axis, elements in zip(axes, size, strict=True):
        shape[axis] = elements
    return np.zeros(shape, array.dtype)


def _smallest(runs: Runs, fixed: tuple[int | None, ...]) -> tuple[int, ...] | None:
    """The smallest size of equal axes that runs, then of each axis by itself."""
    equal = next((size for size in _candidates() if runs(_sized(fixed, size))), None)
    if equal is None:
        return None
    found = list(_sized(fixed, equal))
    for axis, size in enumerate(fixed):
        if size is None:
            tried = (one for one in range(1, found[axis]) if runs((*found[:axis], one, *found[axis + 1 :])))
            found[axis] = next(tried, found[axis])
    return tuple(found)


def _candidates() -> Iterator[int]:
    below = 0
    size = 1
    while size <= LARGEST:
        step = max(1, (size - below) // FINEST)
        yield from range(below + step, size + 1, step)
        below, size = size, 2 * size


def _sized(fixed: tuple[int | None, ...], size: int) -> tuple[int, ...]:
    return tuple(size if one is None else one for one in fixed)


def _reason(runs: Runs, smallest: tuple[int, ...], fixed: tuple[int | None, ...], given: tuple[int, ...]) -> str | None:
    if any(have < need for have, need in zip(given, smallest, strict=True)):
        return f"the model runs from {sizes(smallest)} on, got {sizes(given)}. Enlarge it, nothing is resized here."
    steps = tuple(_step(runs, smallest, axis) if size is None else 1 for axis, size in enumerate(fixed))
    fits = [(have - need) % step == 0 for have, need, step in zip(given, smallest, steps, strict=True)]
    if all(fits):
        return None
    larger = tuple(have + (need - have) % step for have, need, step in zip(given, smallest, steps, strict=True))
    return (
        f"the model runs on {sizes(smallest)} and in steps of {sizes(steps)} above, got {sizes(given)}. "
        f"Pad it to {sizes(larger)} or cut it, nothing is resized here."
    )


def _step(runs: Runs, smallest: tuple[int, ...], axis: int) -> int:
    """By how much an axis has to grow until the model runs again."""
    grown = ((*smallest[:axis], smallest[axis] + step, *smallest[axis + 1 :]) for step in range(1, 2 * FINEST + 1))
    return next((size[axis] - smallest[axis] for size in grown if runs(size)), 1)
