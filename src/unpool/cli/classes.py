"""Scores -> class numbers, their names, and the share of the area that each takes."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.exits import UsageError
from unpool.cli.model import sizes
from unpool.errors import ShapeError

LARGEST_CLASS = 65535

_log = logging.getLogger("unpool.cli")


def class_map(scores: NDArray[Any], layout: str, where: str) -> tuple[NDArray[Any], int]:
    """Number of the class with the highest score at every position; the first one wins a tie.

    Args:
        scores: (N, C, D1..Dk), or (N, D1..Dk, C) when `layout` is nhwc. Integers (N, H, W), or with one
            channel, are class numbers already.
        layout: nchw or nhwc.
        where: what the error message begins with.

    Returns:
        (N, D1..Dk) class numbers, uint8 up to 256 classes, else uint16; and the number of classes.

    Raises:
        ShapeError: no channel axis, a single channel of scores, or class numbers outside 0..65535.

    >>> class_map(np.array([[[0.1, 0.9], [0.2, 0.3]]]), "nchw", "y")[0].tolist()
    [[1, 0]]
    """
    axis = 1 if layout == "nchw" else -1
    is_whole = scores.dtype.kind in "iub"
    if scores.ndim < 3:
        raise ShapeError(f"{where}: --argmax needs a batch, a class axis and spatial axes, got {sizes(scores.shape)}.")
    if is_whole and (scores.ndim == 3 or scores.shape[axis] == 1):
        return _given_classes(scores if scores.ndim == 3 else np.squeeze(scores, axis), where)
    count = scores.shape[axis]
    if count < 2 or scores.size == 0:
        raise ShapeError(
            f"{where}: --argmax needs scores of 2 or more classes, got {sizes(scores.shape)}. Leave it out."
        )
    return scores.argmax(axis).astype(_type_for(count)), count


def _given_classes(numbers: NDArray[Any], where: str) -> tuple[NDArray[Any], int]:
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    if low < 0 or high > LARGEST_CLASS:
        raise ShapeError(f"{where}: class numbers are 0 to {LARGEST_CLASS}, got {low} to {high}. Write a .npy.")
    return numbers.astype(_type_for(high + 1)), high + 1


def _type_for(count: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if count <= 256 else np.uint16


def names_for(count: int, given: Sequence[str] | None, stored: Sequence[str] | None) -> list[str] | None:
    """Names of `count` classes: those given on the command line, else those stored in the model, else None.

    >>> names_for(2, None, ["background", "coin"]), names_for(3, None, ["background", "coin"])
    (['background', 'coin'], None)
    """
    if given is not None:
        if len(given) < count:
            raise UsageError(
                f"--classes: expected {count} names, got {len(given)} ({', '.join(given)}). Name every class."
            )
        return list(given)
    if stored is not None and len(stored) < count:
        _log.info("the model names %d classes but tells %d apart: the names are not used", len(stored), count)
        return None
    return None if stored is None else list(stored)


def shares(classes: NDArray[Any], names: Sequence[str]) -> dict[str, float]:
    """Share of the area, 0 to 1, of every class that occurs.

    >>> shares(np.array([[0, 0, 0, 1]], np.uint8), ["background", "coin"])
    {'background': 0.75, 'coin': 0.25}
    """
    counts = np.bincount(classes.ravel()).tolist()
    return {names[number]: round(count / classes.size, 6) for number, count in enumerate(counts) if count}
