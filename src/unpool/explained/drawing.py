"""One axis drawn as text: which large cells every small one covers, the padding, and what is left over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unpool.errors import UnpoolError
from unpool.geometry import Axis, Span, growing_walk, span_read

LONGEST = 2**16
"""Elements of an axis, or of a window from its first to its last tap, that can be drawn."""

MOST_ROWS = 12
MOST_COLUMNS = 24
DATA, PADDING, GAP, OUTSIDE = "#", "o", "-", "."


@dataclass(frozen=True)
class Cover:
    """The cells that the window at one small position has taps on.

    Attributes:
        small: the position.
        large: positions on the large axis; below 0 and from its size on they are padding, or are cut off.
    """

    small: int
    large: tuple[int, ...]


@dataclass(frozen=True)
class Drawn:
    """What windows do on an axis.

    Attributes:
        covers: of the first and the last windows, of all where there are few.
        left_over: large positions that no window covers, as spans (first, stop); the second is not one of them.
        times: by how many windows each large cell is covered.
    """

    covers: tuple[Cover, ...]
    left_over: tuple[Span, ...]
    times: tuple[int, ...]


def draw(axis: Axis) -> Drawn:
    """What is drawn of an axis.

    Raises:
        UnpoolError: it is too long.

    >>> from unpool.geometry import Window
    >>> done = draw(Axis(5, 2, Window(2, 2)))
    >>> [one.large for one in done.covers], done.left_over, done.times
    ([(0, 1), (2, 3)], (Span(first=4, stop=5),), (1, 1, 1, 1, 0))
    """
    longest = max(axis.large, axis.small, axis.window.reach)
    if longest > LONGEST:
        raise UnpoolError(
            f"explain: expected axes and windows of at most {LONGEST} elements, got {longest}. Reduce it."
        )
    times = growing_walk(axis).count
    shown = [*range(min(axis.small, MOST_ROWS)), *range(max(MOST_ROWS, axis.small - MOST_ROWS), axis.small)]
    return Drawn(tuple(_cover(axis, one) for one in shown), tuple(_spans(times == 0)), tuple(times.tolist()))


def picture(axis: Axis, drawn: Drawn) -> Iterator[str]:
    """Lines: a row of large positions, a row per window, a row of counts; of a long axis the begin and the end."""
    low = min([0, *(cover.large[0] for cover in drawn.covers)])
    stop = max([axis.large, *(cover.large[-1] + 1 for cover in drawn.covers)])
    if stop - low <= MOST_COLUMNS and len(drawn.covers) == axis.small <= MOST_ROWS:
        yield from _piece(axis, drawn, drawn.covers, Span(low, stop))
        return
    half = MOST_COLUMNS // 2
    begin, end = Span(low, min(low + half, stop)), Span(max(low + half, stop - half), stop)
    for title, cells in (("the beginning:", begin), ("the end:", end)):
        yield title
        yield from _piece(axis, drawn, [one for one in drawn.covers if _meets(one, cells)], cells)


def _piece(axis: Axis, drawn: Drawn, covers: Sequence[Cover], cells: Span) -> Iterator[str]:
    inside = [0 <= cell < axis.large for cell in range(*cells)]
    width = max(len(str(axis.large)), 1) + 1
    labels = ["large", *(f"small {one.small}" for one in covers), "windows"]
    rows = [
        [str(cell) if known else OUTSIDE for cell, known in zip(range(*cells), inside, strict=True)],
        *([_mark(one, cell, known) for cell, known in zip(range(*cells), inside, strict=True)] for one in covers),
        [str(drawn.times[cell]) if known else "" for cell, known in zip(range(*cells), inside, strict=True)],
    ]
    left = max(map(len, labels))
    for label, row in zip(labels, rows, strict=True):
        yield f"{label.ljust(left)} {''.join(mark.rjust(width) for mark in row)}".rstrip()


def _mark(cover: Cover, cell: int, is_data: bool) -> str:
    if cell in cover.large:
        return DATA if is_data else PADDING
    return GAP if cover.large[0] < cell < cover.large[-1] else ""


def _meets(cover: Cover, cells: Span) -> bool:
    return any(cells.first <= cell < cells.stop for cell in cover.large)


def _cover(axis: Axis, small: int) -> Cover:
    read = span_read(Span(small, small + 1), axis.window, axis.begin)
    return Cover(small, tuple(range(read.first, read.stop, axis.window.dilation)))


def _spans(mask: NDArray[np.bool_]) -> Iterator[Span]:
    """Where a mask is set, as spans."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    for first, stop in edges.reshape(-1, 2).tolist():
        yield Span(first, stop)
