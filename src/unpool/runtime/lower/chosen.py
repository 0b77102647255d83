"""Writes which tap every window of a MaxPool chose, without Indices: the first one that holds the largest value.

    taps = -1
    for tap in the taps of a window, from the last to the first:
        taps = Where(Equal(elements of x under the tap, y), tap, taps)

Padding is NaN, which equals nothing. Taps are counted row-major and kept in the type of x, where the largest is exact.
"""

from itertools import product

import numpy as np

from unpool.runtime.lower.pooling import Pooling
from unpool.runtime.lower.writer import TO_THE_END, Writer

NO_TAP = -1


def chosen_taps(writer: Writer, pooling: Pooling) -> str:
    """Write the number of the tap that each window chose, (N, C, d1..dk) in the type of x; -1 where it chose none."""
    padded = writer.padded(pooling.x, pooling.begins, pooling.overhang(), np.nan, pooling.dtype)
    reached = _reached(writer, pooling, padded)
    taps = writer.constant(NO_TAP, "no_tap", pooling.dtype)
    places = list(product(*(range(window.size) for window in pooling.windows)))
    for number, place in reversed(list(enumerate(places))):
        found = writer.node("Equal", [_under(writer, pooling, reached, place), pooling.y], "is_largest")
        taps = writer.node("Where", [found, writer.constant(number, "tap", pooling.dtype), taps], "taps")
    return taps


def _reached(writer: Writer, pooling: Pooling, padded: str) -> str:
    """The elements from the first tap of the first window to the last tap of the last."""
    starts = [0] * pooling.rank
    if pooling.small is not None and pooling.large is not None:
        spans = pooling.spans(pooling.small)
        longest = zip(pooling.begins, pooling.large, pooling.overhang(), strict=True)
        return padded if spans == tuple(map(sum, longest)) else writer.cut(padded, starts, spans)
    strides = writer.constant(pooling.strides, "strides")
    rest = writer.constant([window.reach - window.stride for window in pooling.windows], "rest")
    steps = writer.node("Mul", [writer.spatial_sizes(pooling.y, pooling.rank), strides], "steps")
    return writer.cut(padded, starts, writer.node("Add", [steps, rest], "spans"))


def _under(writer: Writer, pooling: Pooling, reached: str, place: tuple[int, ...]) -> str:
    """The elements under one tap, one per window."""
    starts = [tap * window.dilation for tap, window in zip(place, pooling.windows, strict=True)]
    behind = [start + 1 - window.reach for start, window in zip(starts, pooling.windows, strict=True)]
    return writer.cut(reached, starts, [end or TO_THE_END for end in behind], pooling.strides)
