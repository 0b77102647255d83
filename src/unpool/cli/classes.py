"""ScoreFormat -> class numbers, their names, and the share of the area that each takes."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.exits import UsageError
from unpool.display import format_shape
from unpool.errors import ShapeError
from unpool.images.overlay import ClassView, rows_of
from unpool.runtime.streams.output_transform import ScoreFormat, class_type

LARGEST_CLASS = 65535
BEST = ScoreFormat(argmax=True)

_log = logging.getLogger("unpool.cli")


def class_map(scores: NDArray[Any], layout: str, where: str, how: ScoreFormat = BEST) -> tuple[NDArray[Any], int]:
    """Number of the class with the highest score at every position; the first one wins a tie.

    Args:
        scores: (N, C, D1..Dk), or (N, D1..Dk, C) when `layout` is nhwc. Integers (N, H, W), or with one
            channel, are class numbers already, unless there is a threshold.
        layout: nchw or nhwc.
        where: what the error message begins with.
        how: the best class, or a threshold for one channel of scores.

    Returns:
        (N, D1..Dk) class numbers, uint8 up to 256 classes, else uint16; and the number of classes.

    Raises:
        ShapeError: no channel axis, a single channel of scores without a threshold, several with one, or class numbers
            outside 0..65535.

    >>> class_map(np.array([[[0.1, 0.9], [0.2, 0.3]]]), "nchw", "y")[0].tolist()
    [[1, 0]]
    """
    axis = 1 if layout == "nchw" else scores.ndim - 1
    is_whole = scores.dtype.kind in "iub" and how.threshold is None
    if scores.ndim < 3:
        raise ShapeError(
            f"{where}: a class at each position needs a batch, channels and spatial axes, got "
            f"{format_shape(scores.shape)}. Write .npy as it is."
        )
    if is_whole and (scores.ndim == 3 or scores.shape[axis] == 1):
        return _given_classes(scores if scores.ndim == 3 else np.squeeze(scores, axis), where)
    count = how.class_count(scores.shape, axis, where)
    return how.apply(scores, axis), count


def view_of_array(scores: NDArray[Any], layout: str, where: str, how: ScoreFormat = BEST) -> ClassView:
    """The classes of scores that are held; arguments as those of `class_map`."""
    classes, count = class_map(scores, layout, where, how)
    return ClassView(classes.shape, classes.dtype, count, lambda slices: classes[slices])


def view_of_file(stored: Any, count: int, layout: str, where: str) -> ClassView:
    """The classes in a file.

    Args:
        stored: the file, of which windows are read.
        count: of the classes whose numbers it holds; 0 where it holds integers that are scores, or numbers as well.
        layout: nchw or nhwc.
        where: what the error message begins with.
    """
    if count:
        return ClassView(stored.shape, stored.dtype, count, stored.__getitem__)
    channel = None if len(stored.shape) == 3 else 1 if layout == "nchw" else len(stored.shape) - 1
    shape = tuple(size for axis, size in enumerate(stored.shape) if axis != channel)
    scores = 1 if channel is None else stored.shape[channel]

    def numbers(slices: tuple[slice, ...]) -> NDArray[Any]:
        if channel is None:
            window = stored[slices]
        else:
            window = stored[(*slices[:channel], slice(0, scores), *slices[channel:])]
            window = window.argmax(channel) if scores > 1 else np.squeeze(window, channel)
        found: NDArray[Any] = window
        return found

    if scores > 1:
        kind = class_type(scores)
        return ClassView(shape, kind, scores, lambda slices: numbers(slices).astype(kind))
    step = rows_of(shape)
    raw = ClassView(shape, stored.dtype, 0, numbers)
    largest = 0
    for start in range(0, shape[1], step):
        largest = max(largest, _given_classes(raw.rows(start, min(start + step, shape[1])), where)[1])
    kind = class_type(largest)
    return ClassView(shape, kind, largest, lambda slices: numbers(slices).astype(kind))


def _given_classes(numbers: NDArray[Any], where: str) -> tuple[NDArray[Any], int]:
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    if low < 0 or high > LARGEST_CLASS:
        raise ShapeError(f"{where}: class numbers are 0 to {LARGEST_CLASS}, got {low} to {high}. Write a .npy.")
    return numbers.astype(class_type(high + 1)), high + 1


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


def shares(counts: Sequence[int], names: Sequence[str]) -> dict[str, float]:
    """Share of the area, 0 to 1, of every class that occurs, from how many elements each has.

    >>> shares([3, 1], ["background", "coin"])
    {'background': 0.75, 'coin': 0.25}
    """
    total = sum(counts)
    return {names[number]: round(count / total, 6) for number, count in enumerate(counts) if count}
