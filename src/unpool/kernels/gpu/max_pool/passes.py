"""In how many passes windows are pooled: in one that reads all taps, or one axis after the other, the last one first.

    pooled[r, i] = max over taps t of x[r, i * stride + t * dilation]         for every row r of x
    y[j, i]      = max over taps t of pooled[j * stride + t * dilation, i]    for every other axis

Of equal elements the leftmost of a row is kept, and then the topmost row: the first in row-major order; and so is the
last NaN, where that is asked for. A pass writes what the next one reads: it pays where windows have many taps.
"""

import math

from unpool.geometry import Axis, Window

FEW = 16
"""Taps that are always read in one pass."""

COST = 8
"""Of a pass beside its taps, in taps: it writes elements and places, and reads them again."""

Axes = tuple[Axis, ...]


def passes(axes: Axes) -> tuple[Axes, ...]:
    """The passes, each with all axes as it sees them.

    >>> [tuple(axis.window.size for axis in each) for each in passes((Axis(32, 32, Window(13), 6),) * 2)]
    [(1, 13), (13, 1)]
    """
    separate = _one_by_one(axes) if _taps(axes) > FEW else (axes,)
    return separate if _cost(separate) < _cost((axes,)) else (axes,)


def _one_by_one(axes: Axes) -> tuple[Axes, ...]:
    """A pass for each axis along which windows have several taps; the first one walks all axes with one tap too."""
    turns = [number for number, axis in enumerate(axes) if axis.window.size > 1][::-1]
    turn = [number if axis.window.size > 1 else turns[0] for number, axis in enumerate(axes)]
    return tuple(tuple(_at(now, *each) for each in zip(turn, axes, strict=True)) for now in turns)


def _at(now: int, turn: int, axis: Axis) -> Axis:
    """An axis as the pass of that turn sees it."""
    return axis if turn == now else resting(axis.small if turn > now else axis.large)


def resting(size: int) -> Axis:
    """An axis that a pass leaves as it is."""
    return Axis(size, size, Window(1))


def _taps(axes: Axes) -> int:
    return math.prod(axis.window.size for axis in axes)


def _cost(steps: tuple[Axes, ...]) -> int:
    """Taps that are read in all, with what passes cost beside."""
    return sum(math.prod(axis.small for axis in axes) * (_taps(axes) + COST) for axes in steps)
