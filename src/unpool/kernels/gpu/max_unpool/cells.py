"""Max unpooling in one pass, cell by cell: indices and x are read, indices are judged, and y is written.

    cell c of an axis: the elements c * stride - begin + tap of y, for the taps from 0 to stride - 1

The windows that reach a cell are c, c - 1, .. : few, and the same for all elements of the cell. So a program has a tile
of cells, reads the windows that reach them, and compares each of their indices with the places of all taps. Where
windows lie side by side, every index is read once.

Lanes are the cells of the last axis, all others are folded into rows. Along the last axis two taps are joined, so that
y is written without gaps; of longer strides, each tap is written by itself. An index that lies outside the window of
its element is noted, see `judge.py`; whatever it says, only elements of the tile's cells are written.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.activation import activated
from unpool.kernels.gpu.elements import BITS, narrow, widen
from unpool.kernels.gpu.launch import LIMIT32, Start, blocks, power_of_two
from unpool.kernels.gpu.max_unpool.judge import How, how_of, note, ruling
from unpool.kernels.gpu.tiles import Tile, reach_of

if TYPE_CHECKING:
    from unpool.kernels.gpu.max_unpool.unpool import Unpool

_BYTES = 1024
"""Of x that a program reads where windows lie side by side: a thread then writes 16 bytes of a row of y at once."""

_LEAST = 256
"""Cells of a tile."""

_MOST_WINDOWS = 9
_MOST_TAPS = 16
"""That reach a cell, and of a cell or of a window: they are all written out."""

_LARGEST_UNIT = 16


class Line(NamedTuple):
    """One spatial axis."""

    cells: int
    small: int
    large: int


class Counts(NamedTuple):
    """Rows of cells; elements of a row of x and of y in `Cells.units`; of a plane of y, and of all its planes."""

    rows: int
    small: int
    large: int
    plane: int
    planes: int


class Call(NamedTuple):
    """What the kernel gets beside its tensors."""

    counts: Counts
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Cells:
    """What the compiled kernel depends on.

    Attributes:
        tile: of cells.
        strides: of windows, by axis, which are the sizes of cells.
        sizes: of windows, in elements.
        begins: padding before the first element.
        windows: that reach a cell, in row-major order: how many cells each of them is before it, by axis.
        near: taps of a window along all axes but the last.
        strips: taps of a cell, the same.
        units: the powers of two, up to 16, that rows of x and of y are multiples of: they say what may be read at once.
        is_covered: whether windows lie side by side and cover y exactly.
        judged: how indices are judged.
        judges: whether they are judged here.
        waits: whether nothing is written unless all indices have been found in their windows.
        adds: whether y are sums over all windows, and not what the last one says.
        kind: of the elements.
        activation: its name, "" for none.
        params: what it takes.
    """

    tile: Tile
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    begins: tuple[int, ...]
    windows: tuple[tuple[int, ...], ...]
    near: tuple[tuple[int, ...], ...]
    strips: tuple[tuple[int, ...], ...]
    units: tuple[int, int]
    is_covered: bool
    judged: How
    judges: bool
    waits: bool
    adds: bool
    kind: str
    activation: str
    params: tuple[float, ...]


def fits(axes: tuple[Axis, ...], *, is_channels_last: bool) -> bool:
    """Whether a call is run here: its windows are small, and its tensors row-major."""
    sizes, strides = (math.prod(getattr(axis.window, name) for axis in axes) for name in ("size", "stride"))
    is_small = math.prod(reach_of(axes).counts) <= _MOST_WINDOWS and max(sizes, strides) <= _MOST_TAPS
    return is_small and not is_channels_last and all(axis.begin >= 0 for axis in axes)


def launch(unpool: "Unpool", *, judges: bool = False, waits: bool = False, adds: bool = False) -> Callable[..., None]:
    """What writes y of (x, indices, y, verdict), x and y as bits; the verdict matters if it judges or waits."""
    lines = tuple(map(_line, unpool.axes))
    rows, last = unpool.planes * math.prod(line.cells for line in lines[:-1]), lines[-1]
    units = math.gcd(last.small, _LARGEST_UNIT), math.gcd(last.large, _LARGEST_UNIT)
    counts = Counts(rows, last.small // units[0], last.large // units[1], unpool.large, unpool.planes * unpool.large)
    how = _how(unpool, rows, units, (judges, waits, adds))
    call = Call(counts, lines)
    programs = blocks(rows, how.tile.rows) * blocks(last.cells, how.tile.lanes)
    return Start(unpool_cells, programs, call, how)


def _line(axis: Axis) -> Line:
    """Of cells there are as many as cover y, and one for each window."""
    return Line(max(blocks(axis.large + axis.begin, axis.window.stride), axis.small), axis.small, axis.large)


def _how(unpool: "Unpool", rows: int, units: tuple[int, int], does: tuple[bool, bool, bool]) -> Cells:
    axes = unpool.axes
    strides, sizes = (tuple(getattr(axis.window, name) for axis in axes) for name in ("stride", "size"))
    windows = _windows(axes)
    elements = max(_LEAST, _BYTES // BITS[unpool.kind].itemsize) if len(windows) == 1 else _LEAST
    lanes = power_of_two(_line(axes[-1]).cells, elements)
    return Cells(
        Tile(elements // lanes, lanes, False, unpool.is_wide or rows >= LIMIT32), strides, sizes,
        tuple(axis.begin for axis in axes), windows, _taps(sizes[:-1]), _taps(strides[:-1]), units,
        all(map(_is_covered, axes)), how_of(unpool), *does, unpool.kind, unpool.activation, unpool.params,
    )  # fmt: skip


def _windows(axes: tuple[Axis, ...]) -> tuple[tuple[int, ...], ...]:
    """How many cells before a cell the windows are that reach it, by axis.

    >>> from unpool.geometry import Window
    >>> _windows((Axis(8, 4, Window(3, 2), 1), Axis(8, 4, Window(2, 1, 2), 0)))
    ((1, 2), (1, 0), (0, 2), (0, 0))
    """
    reach = reach_of(axes)
    before = (range((count - 1) * step, -1, -step) for count, step in zip(reach.counts, reach.steps, strict=True))
    return tuple(product(*before))


def _taps(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(product(*map(range, sizes)))


def _is_covered(axis: Axis) -> bool:
    size, stride = axis.window.size, axis.window.stride
    return axis.begin == 0 and axis.window.reach == size == stride and axis.large == axis.small * stride


@triton.jit
def unpool_cells(x, indices, y, verdict, call, how: tl.constexpr):
    """One tile of cells. x: bits, and indices: int64, (N, C, d1..dk); y: bits (N, C, D1..Dk)."""
    judged: tl.constexpr = how.judged
    if how.waits:
        _, _, is_near = ruling(verdict, judged)
        if is_near:
            _write(y, _read(x, indices, verdict, call, how), call, how)
    else:
        _write(y, _read(x, indices, verdict, call, how), call, how)


@triton.jit
def _read(x, indices, verdict, call, how: tl.constexpr):
    """Of each window that reaches the cells, in row-major order, the place that its index says, and its element.

    Places are counted from the first one of the cell. What is wrong with the indices of a cell's own window is noted.
    """
    judged: tl.constexpr = how.judged
    windows: tl.constexpr = how.windows
    strides: tl.constexpr = how.strides
    begins: tl.constexpr = how.begins
    axis: tl.constexpr = len(strides) - 1
    at, plane, is_there = _cells(1, call, how)
    first = _corner(at, call, how) + (at[axis] * strides[axis] - begins[axis])
    if not judged.per_plane:
        first += plane * call.counts.plane
    found = ()
    for number in tl.static_range(len(windows)):
        position, is_window = _window(number, at, plane, call, how)
        is_window = is_window & is_there
        index = tl.load(indices + position, mask=is_window, other=-1)
        bits = tl.load(x + position, mask=is_window, other=0)
        found = found + ((index - first, _valued(bits, how)),)  # type: ignore[assignment]
        if how.judges and number == len(windows) - 1:
            apart = is_window & (_is_near(index - first, at, call, how) == 0)
            if tl.max(apart.to(tl.int32)) > 0:
                limit = call.counts.plane if judged.per_plane else call.counts.planes
                note(verdict, position.to(tl.int64), is_window & ((index < 0) | (index >= limit)))
                note(verdict + 1, position.to(tl.int64), apart)
    return found


@triton.jit
def _write(y, found, call, how: tl.constexpr):
    """All elements of the cells of a tile: along the last axis one tap, two that are joined, or one after another."""
    strides: tl.constexpr = how.strides
    begins: tl.constexpr = how.begins
    strips: tl.constexpr = how.strips
    ROWS: tl.constexpr = how.tile.rows
    LANES: tl.constexpr = how.tile.lanes
    axis: tl.constexpr = len(strides) - 1
    last: tl.constexpr = strides[axis]
    together: tl.constexpr = last if last <= 2 else 1
    at, plane, is_there = _cells(together, call, how)
    place = plane * call.counts.plane + _corner(at, call, how)
    lane = at[axis] * (last // together) - begins[axis]
    for number in tl.static_range(len(strips)):
        offset, is_strip = _strip(number, at, call, strips, how)
        is_strip = is_strip & is_there
        for tap in tl.static_range(last // together):
            bits = _value(found, offset + tap, how)
            if together == 2:
                bits = tl.join(bits, _value(found, offset + 1, how)).reshape(ROWS, 2 * LANES)
            is_in = _is_in(lane + tap, _length(1, call, how), begins[axis])
            tl.store(y + ((place + offset) + (lane + tap)), bits, mask=is_strip & is_in)


@triton.jit
def _cells(together: tl.constexpr, call, how: tl.constexpr):
    """Coordinates of the cells of a tile along all axes, their planes, and whether there are such rows.

    A cell of the last axis counts as so many.
    """
    tile: tl.constexpr = how.tile
    rank: tl.constexpr = len(call.lines)
    ROWS: tl.constexpr = tile.rows
    LANES: tl.constexpr = tile.lanes * together
    number = tl.program_id(0)
    if tile.is_wide:
        number = number.to(tl.int64)
    across = tl.cdiv(call.lines[rank - 1].cells, tile.lanes)
    row = number // across * ROWS + tl.arange(0, ROWS)[:, None]
    is_there = row < call.counts.rows
    lane = number % across * LANES + tl.arange(0, LANES)[None, :]
    at = ()
    for axis in tl.static_range(rank - 2, -1, -1):
        at = (row % call.lines[axis].cells,) + at  # type: ignore[assignment]
        row = row // call.lines[axis].cells
    return at + (lane,), row, is_there


@triton.jit
def _length(of_y: tl.constexpr, call, how: tl.constexpr):
    """Elements of a row of x or of y."""
    units: tl.constexpr = how.units
    return (call.counts.large if of_y else call.counts.small) * units[of_y]


@triton.jit
def _corner(at, call, how: tl.constexpr):
    """Where rows of cells begin in their plane of y, but for the begin of the last axis."""
    strides: tl.constexpr = how.strides
    begins: tl.constexpr = how.begins
    place = at[0] * 0
    step = _length(1, call, how)
    for axis in tl.static_range(len(strides) - 2, -1, -1):
        place += (at[axis] * strides[axis] - begins[axis]) * step
        step *= call.lines[axis].large
    return place


@triton.jit
def _window(number: tl.constexpr, at, plane, call, how: tl.constexpr):
    """Where in x one of the windows is that reach cells, and whether there is such a window."""
    windows: tl.constexpr = how.windows
    before: tl.constexpr = windows[number]
    last: tl.constexpr = len(before) - 1
    small = _length(0, call, how)
    window = at[last] - before[last]
    is_there = _is_in(window, small, before[last])
    place = window
    step = small
    for axis in tl.static_range(last - 1, -1, -1):
        window = at[axis] - before[axis]
        if not how.is_covered:
            is_there = is_there & _is_in(window, call.lines[axis].small, before[axis])
        place += window * step
        step *= call.lines[axis].small
    return plane * step + place, is_there


@triton.jit
def _strip(number: tl.constexpr, at, call, strips: tl.constexpr, how: tl.constexpr):
    """Places from the first tap of cells to one of the strips, and whether that is inside y."""
    taps: tl.constexpr = strips[number]
    strides: tl.constexpr = how.strides
    begins: tl.constexpr = how.begins
    offset = 0
    is_inside = True
    step = _length(1, call, how)
    for axis in tl.static_range(len(taps) - 1, -1, -1):
        if not how.is_covered:
            place = at[axis] * strides[axis] + (taps[axis] - begins[axis])
            is_inside = _is_in(place, call.lines[axis].large, begins[axis]) & is_inside
        offset += taps[axis] * step
        step *= call.lines[axis].large
    return offset, is_inside


@triton.jit
def _is_in(place, size, below: tl.constexpr):
    """Whether places are inside an axis; they are not below it if `below` is 0."""
    is_in = place < size
    if below > 0:
        is_in = is_in & (place >= 0)
    return is_in


@triton.jit
def _is_near(local, at, call, how: tl.constexpr):
    """Whether places, counted from the first one of their cell, are inside its window and inside y."""
    sizes: tl.constexpr = how.sizes
    strides: tl.constexpr = how.strides
    begins: tl.constexpr = how.begins
    strips: tl.constexpr = how.near
    axis: tl.constexpr = len(sizes) - 1
    first = 0
    size = sizes[axis]
    if not how.is_covered:
        lane = at[axis] * strides[axis] - begins[axis]
        first = tl.maximum(-lane, 0)
        size = tl.minimum(_length(1, call, how) - lane, size)
    is_near = local != local
    for number in tl.static_range(len(strips)):
        offset, is_strip = _strip(number, at, call, strips, how)
        is_near = is_near | ((local >= offset + first) & (local < offset + size) & is_strip)
    return is_near


@triton.jit
def _valued(bits, how: tl.constexpr):
    """What elements of x become: bits, or numbers where they are added."""
    kind: tl.constexpr = how.kind
    activation: tl.constexpr = how.activation
    params: tl.constexpr = how.params
    return widen(bits, kind) if how.adds else activated(bits, kind, activation, params)


@triton.jit
def _value(found, offset, how: tl.constexpr):
    """The bits of elements of y: of the windows that mean them the last one, or the sum of all.

    `offset` are places from the first elements of their cells.
    """
    kind: tl.constexpr = how.kind
    activation: tl.constexpr = how.activation
    params: tl.constexpr = how.params
    ROWS: tl.constexpr = how.tile.rows
    LANES: tl.constexpr = how.tile.lanes
    value = tl.zeros([ROWS, LANES], found[0][1].dtype)
    if not how.adds:
        value = activated(value, kind, activation, params)
    for each in tl.static_range(len(found)):
        local, other = found[each]
        value = tl.where(local == offset, value + other if how.adds else other, value)
    return narrow(value, kind) if how.adds else value
