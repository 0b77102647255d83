"""What the separable pool does to one plane, as tables of numbers: which rows are laid out, and every move after that.

A move is a maximum over a few taps, of `rows` times `groups` runs of neighbouring elements. All sizes count elements.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, Window
from unpool.kernels.cpu.rows import padded_rows

STRIP_BYTES = 1 << 18
"""A strip of a plane is cut so that its pooled rows stay in the second cache."""

LINE_BYTES = 1 << 13
"""So much is laid out at a time, to stay in the first cache."""

ALIGNMENT = 64
"""Bytes of a line of the caches; rows start at a multiple of it."""

_WIDEST_STEP = 5  # taps of one move

Table = npt.NDArray[np.int64]


class Move(NamedTuple):
    """A row of a table of moves. Taps are rows of the table of taps; the code of an element is its place.

    Row r and group g start at element r * row_in + g * group_in, go to r * row_out + g * group_out, and their first
    element has the code of row r plus g * group_code. Neighbours of a run are `stride` apart, their codes `lane_code`.
    """

    first_tap: int
    stop_tap: int
    rows: int
    row_in: int
    row_out: int
    run: int
    stride: int = 1
    lane_code: int = 0
    groups: int = 1
    group_in: int = 0
    group_out: int = 0
    group_code: int = 0
    in_place: int = 0


MOVE = np.dtype([(name, np.int64) for name in Move._fields])


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything about a plane that does not depend on its elements.

    Attributes:
        strips: elements of a plane; into how many strips it is cut; padded rows and outputs from one strip to the next;
            outputs of a plane.
        row: of every laid out row: its pitch; where data begins and ends in it; the element of x's row it begins with.
        line: rows that are laid out at a time; elements of them; elements of the pooled rows of one strip.
        used: padded rows of a strip, and of the last one.
        starts: element at which each padded row starts in the plane, -1 in the padding.
        codes: place of the first position of each padded row.
        taps: how many bytes each goes, and the code it adds.
        line_moves: (moves) along a row.
        plane_moves: (2, moves) along the other axes, of a strip and of the last one; the last move delivers.
    """

    strips: tuple[int, int, int, int, int]
    row: tuple[int, int, int, int]
    line: tuple[int, int, int]
    used: tuple[int, int]
    starts: Table
    codes: Table
    taps: tuple[Table, Table]
    line_moves: npt.NDArray[np.void]
    plane_moves: npt.NDArray[np.void]

    @property
    def tables(self) -> tuple[Table, Table, tuple[Table, Table], npt.NDArray[np.void], npt.NDArray[np.void]]:
        """All arrays, as the kernel takes them."""
        return self.starts, self.codes, self.taps, self.line_moves, self.plane_moves


def padded_size(axis: Axis) -> int:
    """Elements of an axis with all the padding that a window touches."""
    return (axis.small - 1) * axis.window.stride + axis.window.reach


def chain(window: int) -> list[list[int]]:
    """A window of many taps as windows of few, each over the results of the one before.

    >>> chain(3), chain(6), chain(13)
    ([[0, 1, 2]], [[0, 1, 2, 3], [0, 2]], [[0, 1, 2, 3], [0, 4, 8, 9]])
    """
    found, covered = [], 1
    while -(-window // covered) > _WIDEST_STEP:
        found.append([tap * covered for tap in range(4)])
        covered *= 4
    taps = -(-window // covered)
    return [*found, [*(tap * covered for tap in range(taps - 1)), window - covered]]


class _Taps:
    """The table of taps while it grows."""

    def __init__(self, width: int):
        self.width = width
        self.rows: list[tuple[int, int]] = []

    def add(self, taps: list[int], pitch: int, code: int) -> tuple[int, int]:
        """The rows of these taps."""
        first = len(self.rows)
        self.rows += [(tap * pitch * self.width, tap * code) for tap in taps]
        return first, len(self.rows)

    def columns(self) -> tuple[Table, Table]:
        """Bytes and codes."""
        table = np.array(self.rows, np.int64)
        return table[:, 0].copy(), table[:, 1].copy()


def plan(spatial: Sequence[Axis], inner: int, channel_code: int, width: int, place_width: int, slack: int) -> Plan:
    """Cut a plane and list its moves.

    Args:
        spatial: the axes that windows slide along.
        inner: elements of one position: 1, or the channels.
        channel_code: what one channel adds to a place.
        width: bytes of an element while it is compared.
        place_width: bytes of its place; 0 if it is not wanted.
        slack: elements behind every buffer.
    """
    axes = (Axis(1, 1, Window(1)), *spatial) if len(spatial) == 1 else tuple(spatial)
    padded = [padded_size(axis) for axis in axes]
    sizes = [axis.large for axis in axes]
    weights = [prod(sizes[number + 1 :]) * inner for number in range(len(axes) - 1)]
    begins = [axis.begin for axis in axes]
    starts = padded_rows(padded[:-1], begins[:-1], sizes[:-1], weights)
    first, last, whole = axes[0], axes[-1], ALIGNMENT // width
    low = min(max(begins[-1], 0), padded[-1])
    high = max(low, min(begins[-1] + last.large, padded[-1]))
    rest, run = prod(padded[1:-1]), last.small * inner
    pitch, pooled = _round_up(padded[-1] * inner, whole), run
    if len(axes) == 2 and first.window.stride > 1:
        pooled = _round_up(run, whole)
    strips, height = _strips(first, rest * pooled * (width + place_width))
    heights = (height, first.small - (strips - 1) * height)
    depths = [padded_size(Axis(0, each, first.window)) for each in heights]
    line_rows = min(max(depths) * rest, max(1, LINE_BYTES // (pitch * width)))
    taps = _Taps(width)
    line_moves = list(_line_moves(last, inner, channel_code, place_width > 0, (line_rows, pitch, pooled), taps))
    kept = len(taps.rows)
    moves = []
    for each, depth in zip(heights, depths, strict=True):
        del taps.rows[kept:]
        moves.append(list(_plane_moves(axes, inner, (each, depth, pooled), taps)))
    after = prod(axis.small for axis in axes[1:]) * inner
    return Plan(
        (prod(sizes) * inner, strips, height * first.window.stride * rest, height * after, first.small * after),
        (pitch, low * inner, high * inner, (low - begins[-1]) * inner),
        (line_rows, line_rows * pitch + slack, max(depths) * rest * pooled + slack, -low * inner % whole),
        (depths[0] * rest, depths[1] * rest),
        starts, starts // inner - begins[-1], taps.columns(),
        np.array(line_moves, MOVE), np.array(moves, MOVE),
    )  # fmt: skip


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _strips(first: Axis, row_bytes: int) -> tuple[int, int]:
    """How many strips of how many output positions; at most about half of a strip overlaps the next."""
    window = first.window
    fitting = (STRIP_BYTES // max(1, row_bytes) - window.reach) // window.stride + 1
    height = min(first.small, max((window.reach - 1) // window.stride + 1, fitting))
    count = -(-first.small // height)
    height = -(-first.small // count)
    return -(-first.small // height), height


def _line_moves(
    axis: Axis, inner: int, channel_code: int, has_places: bool, line: tuple[int, int, int], taps: _Taps
) -> Iterator[Move]:
    """From laid out rows to pooled rows; `line` is how many rows, and the pitch of either."""
    stride, dilation, padded = axis.window.stride, axis.window.dilation, padded_size(axis)
    (line_rows, pitch, pooled), small = line, axis.small
    steps = chain(axis.window.size)
    for number, step in enumerate(steps):
        tap_rows = taps.add(step, dilation * inner, dilation)
        is_first, is_last = number == 0, number == len(steps) - 1
        if not is_first and not is_last:
            yield Move(*tap_rows, 1, 0, 0, line_rows * pitch - step[-1] * dilation * inner, in_place=1)
            continue
        now = stride if is_last else 1
        count = small if is_last else padded - step[-1] * dilation
        out = pooled if is_last else pitch
        if inner == 1:
            yield Move(*tap_rows, line_rows, pitch, out, count, now, now)
        elif now == 1 and not (is_first and has_places):
            yield Move(*tap_rows, line_rows, pitch, out, count * inner)
        else:
            yield Move(*tap_rows, line_rows, pitch, out, inner, 1, channel_code, count, now * inner, inner, now)


def _plane_moves(axes: tuple[Axis, ...], inner: int, strip: tuple[int, int, int], taps: _Taps) -> Iterator[Move]:
    """From pooled rows to outputs; `strip` is its pooled and its padded positions of the first axis, and a row's pitch."""
    height, depth, pooled = strip
    padded = [depth, *(padded_size(axis) for axis in axes[1:])]
    small = [height, *(axis.small for axis in axes[1:])]
    for number in range(len(axes) - 2, -1, -1):
        window, run = axes[number].window, prod(small[number + 1 :]) * inner
        pitch = pooled if len(axes) == 2 else run
        if number > 0 and window.size == window.stride == 1:
            continue
        rows = prod(padded[:number])
        *steps, final = chain(window.size)
        for step in steps:
            tap_rows = taps.add(step, window.dilation * pitch, 0)
            yield Move(*tap_rows, 1, 0, 0, (rows * padded[number] - step[-1] * window.dilation) * pitch, in_place=1)
        tap_rows = taps.add(final, window.dilation * pitch, 0)
        row_in, row_out = padded[number] * pitch, small[number] * run
        if window.stride == 1:
            yield Move(*tap_rows, rows, row_in, row_out, row_out)
        else:
            yield Move(*tap_rows, rows, row_in, row_out, run, 1, 0, small[number], window.stride * pitch, run)
