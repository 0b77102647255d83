"""What the separable pool does to one plane, as tables of numbers: which rows are laid out, and every move after that.

A move is a maximum over a few taps, of `rows` times `groups` runs of neighbouring elements. All sizes count elements.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, Window
from unpool.kernels.cpu.rows import padded_rows

STRIP_BYTES = 1 << 18
"""A strip of a plane is cut so that its pooled rows stay in the second cache."""

PLANES_BYTES = 1 << 15
"""Pooled rows of small planes are put together up to this."""

LINE_BYTES = 1 << 14
"""So much is laid out at a time, to stay in the first cache."""

MOST_PLACES = 2**31 - 1
"""Elements of planes that are pooled together: places are counted with 32 bits."""

ALIGNMENT = 64
"""Bytes of a line of the caches; rows start at a multiple of it."""

_MOST_TAPS = 5  # of one move, at stride 1
_MOST_STRIDE = 64  # for which a move has so many times more

Table = npt.NDArray[np.signedinteger]


class Move(NamedTuple):
    """A row of a table of moves. Taps are rows of the table of taps.

    Group g and row r start at element g * group_in + r * row_in, and go to g * group_out + r * row_out. They are `run`
    elements long, `stride` apart, and of a place that grows by `lane_code`. `total` elements are delivered.
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
    total: int = 0
    in_place: int = 0


MOVE = np.dtype([(name, np.int64) for name in Move._fields])


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything about a plane that does not depend on its elements.

    Attributes:
        strips: elements of a plane; into how many strips it is cut; padded rows, elements of x and outputs from one
            strip to the next; outputs of a plane; 0 if places count inside their own plane, otherwise 1.
            Where small planes are put together, this counts all as one.
        row: of every laid out row its pitch, where its even and odd elements begin, how many there are, and the element
            of x's row they begin with.
        line: rows that are laid out at a time; elements of them; elements of the pooled rows of one strip; elements
            before the first row, so that data starts with a line of the cache; pitch of pooled rows; whether there are
            channels.
        used: padded rows of a strip, and of the last one.
        starts: element at which each padded row starts in the plane, -1 in the padding.
        codes: place of the first position of each padded row.
        row_codes: with channels, what each position of a row adds to it.
        taps: how many bytes each goes, and the code it adds.
        line_moves: (moves) along a row.
        plane_moves: (2, moves) along the other axes, of a strip and of the last one; the last move delivers.
    """

    strips: tuple[int, int, int, int, int, int, int]
    row: tuple[int, int, int, int, int]
    line: tuple[int, int, int, int, int, int]
    used: tuple[int, int]
    starts: Table
    codes: Table
    row_codes: Table
    taps: tuple[Table, Table]
    line_moves: npt.NDArray[np.void]
    plane_moves: npt.NDArray[np.void]

    @property
    def numbers(self) -> tuple[tuple[int, ...], ...]:
        """All numbers, as the kernel takes them."""
        return self.strips, self.row, self.line, self.used

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All arrays, as the kernel takes them."""
        return self.starts, self.codes, self.row_codes, *self.taps, self.line_moves, self.plane_moves


def padded_size(axis: Axis) -> int:
    """Elements of an axis with all the padding that a window touches."""
    return (axis.small - 1) * axis.window.stride + axis.window.reach


def chain(window: Window) -> list[list[int]]:
    """A window of many taps as windows of few, each over the results of the one before.

    Only the last of them is asked at every `stride`-th position, and may have so many times more taps.

    >>> chain(Window(3)), chain(Window(6)), chain(Window(13))
    ([[0, 1, 2]], [[0, 1, 2, 3], [0, 2]], [[0, 1, 2, 3], [0, 4, 8, 9]])
    """
    found, covered = [], 1
    while -(-window.size // covered) > _MOST_TAPS * min(window.stride, _MOST_STRIDE):
        found.append([tap * covered for tap in range(4)])
        covered *= 4
    taps = -(-window.size // covered)
    return [*found, [*(tap * covered for tap in range(taps - 1)), window.size - covered]]


def known_stride(axis: Axis, inner: int) -> int:
    """The stride of the last axis as the kernel is compiled for it: 1; 2, if one move is enough; 0 for any."""
    if inner > 1 or axis.window.stride == 1:
        return 1
    return 2 if axis.window.stride == 2 and len(chain(axis.window)) == 1 else 0


class _Taps:
    """The table of taps while it grows."""

    def __init__(self, width: int):
        self.width = width
        self.rows: list[tuple[int, int]] = []

    def add(self, offsets: Iterable[int], codes: Iterable[int]) -> tuple[int, int]:
        """Taps that go so many elements; from the first of them to the one after the last."""
        first = len(self.rows)
        self.rows += [(offset * self.width, code) for offset, code in zip(offsets, codes, strict=False)]
        return first, len(self.rows)

    def columns(self) -> tuple[Table, Table]:
        """Bytes and codes."""
        table = np.array(self.rows, np.int64)
        return table[:, 0].copy(), table[:, 1].copy()


class _Line(NamedTuple):
    """How rows are laid out.

    Attributes:
        pitch: elements from one to the next.
        even: where the data of a row begins; with two phases, where its even elements do.
        odd: where its odd elements do, with two phases.
        apart: from even to odd positions of the padded row, with two phases; 0 if all are neighbours.
    """

    pitch: int
    even: int
    odd: int
    apart: int

    def place(self, position: int) -> int:
        """Where a position of the padded row is."""
        return position // 2 + position % 2 * self.apart if self.apart else position


def _line(padded: int, low: int, count: int, phases: int, whole: int) -> _Line:
    """Even and odd elements both begin at the same place of a line of the cache."""
    if phases == 1:
        return _Line(_round_up(padded, whole), low, 0, 0)
    half = _round_up(max(padded, low + 1 + _round_up(count, 2 * whole)) // 2 + 1, whole)
    line = _Line(2 * half + whole, 0, 0, half + low % 2)
    return line._replace(even=line.place(low), odd=line.place(low + 1))


def plan(
    spatial: tuple[Axis, ...],
    inner: int,
    outer: int,
    channel_code: int,
    width: int,
    place_width: int,
    lanes: int,
    *,
    per_plane: bool = False,
) -> Plan:
    """Cut planes into strips, or put small planes together, and list the moves.

    Args:
        spatial: the axes that windows slide along.
        inner: elements of one position: 1, or the channels.
        outer: how many planes there are.
        channel_code: what one channel adds to a place.
        width: bytes of an element while it is compared.
        place_width: bytes of its place; 0 if it is not wanted.
        lanes: elements of one register.
        per_plane: whether places count inside their own plane.
    """
    last, whole = spatial[-1], ALIGNMENT // width
    pooled = last.small * inner
    if len(spatial) == 2 and spatial[0].window.stride > 1:
        pooled = _round_up(pooled, whole)
    row_bytes = pooled * (width + place_width)
    rows, size = prod(padded_size(axis) for axis in spatial[:-1]), prod(axis.large for axis in spatial)
    planes = 1 if inner > 1 else _planes(outer, row_bytes * rows, size)
    axes = spatial if planes == 1 and len(spatial) > 1 else (Axis(planes, planes, Window(1)), *spatial)
    padded, sizes = [padded_size(axis) for axis in axes], [axis.large for axis in axes]
    weights = [prod(sizes[number + 1 :]) * inner for number in range(len(axes) - 1)]
    starts = padded_rows(padded[:-1], [axis.begin for axis in axes[:-1]], sizes[:-1], weights)
    first, rest, after = axes[0], prod(padded[1:-1]), prod(axis.small for axis in axes[1:]) * inner
    strips, height = (-(-outer // planes), planes) if planes > 1 else _strips(first, rest * row_bytes)
    heights = (height, (outer if planes > 1 else first.small) - (strips - 1) * height)
    depths = [padded_size(Axis(0, each, first.window)) for each in heights]
    low = min(max(last.begin, 0), padded[-1])
    count = (max(low, min(last.begin + last.large, padded[-1])) - low) * inner
    line = _line(padded[-1] * inner, low * inner, count, max(1, known_stride(last, inner)), whole)
    line_rows = 1 if inner > 1 else min(max(depths) * rest, max(1, LINE_BYTES // (line.pitch * width)))
    taps, slack = _Taps(width), 4 * lanes + 2 * whole
    line_moves = list(_line_moves(last, inner, channel_code, (line_rows, pooled, lanes), line, taps))
    kept, moves = len(taps.rows), []
    for each, depth in zip(heights, depths, strict=True):
        del taps.rows[kept:]
        moves.append(list(_plane_moves(axes, inner, (each, depth, pooled, lanes), taps)))
    plane, place = prod(sizes[1:]) * inner, np.int64 if width == 8 else np.int32
    codes = (starts % plane if per_plane and planes > 1 else starts) // inner
    positions = np.arange(padded[-1] if inner > 1 else 0) * (last.window.stride if len(line_moves) == 1 else 1)
    between = (0, planes * plane) if planes > 1 else (height * first.window.stride * rest, 0)
    total = (outer * plane, outer * after) if planes > 1 else (sizes[0] * plane, first.small * after)
    return Plan(
        (total[0], strips, *between, height * after, total[1], int(not per_plane)),
        (line.pitch, line.even, line.odd, count, (low - last.begin) * inner),
        (line_rows, line_rows * line.pitch + slack, max(depths) * rest * pooled + slack, -line.even % whole,
         pooled, int(inner > 1)),
        (depths[0] * rest, depths[1] * rest),
        starts, (codes - last.begin).astype(place), positions.astype(place), taps.columns(),
        np.array(line_moves, MOVE), np.array(moves, MOVE),
    )  # fmt: skip


def _planes(outer: int, plane_bytes: int, size: int) -> int:
    """How many small planes, of so many elements, are pooled together, such that places fit their type.

    There remain some parts for threads to share.
    """
    return max(1, min(PLANES_BYTES // max(1, plane_bytes), outer // 8, MOST_PLACES // size))


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
    axis: Axis, inner: int, channel_code: int, sizes: tuple[int, int, int], line: _Line, taps: _Taps
) -> Iterator[Move]:
    """From laid out rows to pooled rows; `sizes` are how many rows, the pitch of the pooled ones, lanes of a register.

    With channels the moves are of one row, and what they call rows are its positions.
    """
    stride, dilation, padded = axis.window.stride, axis.window.dilation, padded_size(axis)
    (rows, pooled, lanes), small, pitch = sizes, axis.small, line.pitch
    *steps, final = chain(axis.window)
    for number, step in enumerate(steps):
        tap_rows = taps.add((tap * dilation * inner for tap in step), (tap * dilation for tap in step))
        reach = step[-1] * dilation
        if number > 0:
            yield _flat(tap_rows, rows * pitch - reach * inner, lanes)._replace(in_place=1)
        elif inner > 1:
            yield Move(*tap_rows, padded - reach, inner, inner, inner, 1, channel_code)
        else:
            yield Move(*tap_rows, rows, pitch, pitch, padded - reach, 1, 1)
    tap_rows = taps.add((line.place(tap * dilation * inner) for tap in final), (tap * dilation for tap in final))
    if inner > 1:
        yield Move(*tap_rows, small, stride * inner, inner, inner, 1, channel_code)
    else:
        yield Move(*tap_rows, rows, pitch, pooled, small, 1 if line.apart else stride, stride)


def _flat(tap_rows: tuple[int, int], run: int, lanes: int) -> Move:
    """One long run, as rows of one register each."""
    return Move(*tap_rows, -(-run // lanes), lanes, lanes, lanes)


def _plane_moves(axes: tuple[Axis, ...], inner: int, strip: tuple[int, int, int, int], taps: _Taps) -> Iterator[Move]:
    """From pooled rows to outputs.

    The numbers of a strip are its pooled and its padded positions of the first axis, a row's pitch, a register's lanes.
    """
    height, depth, pooled, lanes = strip
    is_pooled = False
    padded = [depth, *(padded_size(axis) for axis in axes[1:])]
    small = [height, *(axis.small for axis in axes[1:])]
    for number in range(len(axes) - 2, -1, -1):
        window, run = axes[number].window, prod(small[number + 1 :]) * inner
        pitch = prod(small[number + 1 : -1]) * pooled
        if window.size == window.stride == 1 and (number > 0 or is_pooled):
            continue
        rows, is_pooled = prod(padded[:number]), True
        *steps, final = chain(window)
        for step in steps:
            tap_rows = taps.add((tap * window.dilation * pitch for tap in step), step)
            run_in_place = (rows * padded[number] - step[-1] * window.dilation) * pitch
            yield _flat(tap_rows, run_in_place, lanes)._replace(in_place=1)
        tap_rows = taps.add((tap * window.dilation * pitch for tap in final), final)
        group_in, group_out = padded[number] * pitch, small[number] * run
        total = rows * group_out
        if window.stride > 1:
            apart = window.stride * pitch
            yield Move(*tap_rows, small[number], apart, run, run, 1, 0, rows, group_in, group_out, total)
        elif rows == 1:
            yield _flat(tap_rows, total, lanes)._replace(total=total)
        else:
            yield Move(*tap_rows, rows, group_in, group_out, group_out, total=total)
