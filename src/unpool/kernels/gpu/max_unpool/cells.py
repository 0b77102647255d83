"""Max unpooling in one pass, cell by cell: reads indices and x, checks the indices, and writes y.

    cell c of an axis: the elements c * stride - begin + tap of y, for the taps from 0 to stride - 1

The windows that reach a cell are c, c - 1, .. : few, and the same for all elements of the cell. So a program has a tile
of cells, reads the windows that reach them, and compares each of their indices with the places of all taps. If windows
lie side by side, every index is read once.

Lanes are the cells of the last axis, all others are folded into rows. Along the last axis two taps are joined, so that
y is written without gaps; with longer strides, each tap is written by itself. An index outside the window of its
element is recorded (`check_indices.py`); in any case only elements of the tile's cells are written.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.elements import BITS, activated, narrow, widen
from unpool.kernels.gpu.launch import LIMIT32, Launcher, blocks, power_of_two
from unpool.kernels.gpu.max_unpool.check_indices import GpuUnpoolProblem, IndexSpaces, read_result, record_first
from unpool.kernels.gpu.tiles import TileShape, reach_of

_BYTES = 1024  # of x that a program reads if windows lie side by side: a thread then writes 16 bytes of y at once
_MIN_CELLS = 256  # of a tile
_MAX_WINDOWS = 9  # that reach a cell: their loop is unrolled
_MAX_TAPS = 16  # of a cell or of a window: their loops are unrolled
_MAX_UNIT = 16


class CellDim(NamedTuple):
    """One spatial axis."""

    cells: int
    small: int
    large: int


class CellCounts(NamedTuple):
    """Rows of cells; elements of a row of x and of y, in `CellMeta.units`; of a plane of y, and of all its planes."""

    rows: int
    small: int
    large: int
    plane: int
    planes: int


class CellArgs(NamedTuple):
    """Arguments of the kernel in addition to its tensors."""

    counts: CellCounts
    dims: tuple[CellDim, ...]


@dataclass(frozen=True)
class CellMeta:
    """Constants of the compiled kernel; tuples are by axis."""

    tile: TileShape  # of cells
    strides: tuple[int, ...]  # of windows, which are the sizes of cells
    sizes: tuple[int, ...]  # of windows, in elements
    begins: tuple[int, ...]  # padding before the first element
    windows: tuple[tuple[int, ...], ...]  # that reach a cell, in row-major order: the distance of each in cells
    window_rows: tuple[tuple[int, ...], ...]  # taps of a window along all axes but the last
    cell_rows: tuple[tuple[int, ...], ...]  # taps of a cell along all axes but the last
    units: tuple[int, int]  # powers of two, up to 16, that divide the rows of x and of y: elements read at once
    is_covered: bool  # windows lie side by side and cover y exactly
    spaces: IndexSpaces
    check_indices: bool  # indices are checked here
    after_check: bool  # y is only written if all indices are in their windows
    accumulate: bool  # y is the sum over all windows, instead of the last one
    kind: str
    activation: str
    params: tuple[float, ...]


def fits(axes: tuple[Axis, ...], *, is_channels_last: bool) -> bool:
    """True if this kernel takes a call: its windows are small, and its tensors row-major."""
    sizes, strides = (math.prod(getattr(axis.window, name) for axis in axes) for name in ("size", "stride"))
    is_small = math.prod(reach_of(axes).counts) <= _MAX_WINDOWS and max(sizes, strides) <= _MAX_TAPS
    return is_small and not is_channels_last and all(axis.begin >= 0 for axis in axes)


def launch(
    problem: GpuUnpoolProblem, *, check_indices: bool = False, after_check: bool = False, accumulate: bool = False
) -> Callable[..., None]:
    """A function that writes y of (x, indices, y, result); only checks use the result."""
    dims = tuple(  # cells cover y, and there is at least one per window
        CellDim(max(blocks(axis.large + axis.begin, axis.window.stride), axis.small), axis.small, axis.large)
        for axis in problem.axes
    )
    rows, last = problem.planes * math.prod(dim.cells for dim in dims[:-1]), dims[-1]
    units = math.gcd(last.small, _MAX_UNIT), math.gcd(last.large, _MAX_UNIT)
    large = problem.large
    counts = CellCounts(rows, last.small // units[0], last.large // units[1], large, problem.planes * large)
    axes, windows = problem.axes, _windows(problem.axes)
    strides, sizes = (tuple(getattr(axis.window, name) for axis in axes) for name in ("stride", "size"))
    elements = max(_MIN_CELLS, _BYTES // BITS[problem.kind].itemsize) if len(windows) == 1 else _MIN_CELLS
    lanes = power_of_two(last.cells, elements)
    tile = TileShape(elements // lanes, lanes, False, problem.is_wide or rows >= LIMIT32)
    window_rows, cell_rows = (tuple(product(*map(range, taps[:-1]))) for taps in (sizes, strides))
    meta = CellMeta(
        tile, strides, sizes, tuple(axis.begin for axis in axes), windows, window_rows, cell_rows, units,
        all(map(_is_covered, axes)), problem.spaces, check_indices, after_check, accumulate, problem.kind,
        problem.activation, problem.params,
    )  # fmt: skip
    programs = blocks(rows, tile.rows) * blocks(last.cells, lanes)
    return Launcher(unpool_cells, programs, CellArgs(counts, dims), meta)


def _windows(axes: tuple[Axis, ...]) -> tuple[tuple[int, ...], ...]:
    """The windows that reach a cell, as their distance from it in cells, by axis.

    >>> from unpool.geometry import Window
    >>> _windows((Axis(8, 4, Window(3, 2), 1), Axis(8, 4, Window(2, 1, 2), 0)))
    ((1, 2), (1, 0), (0, 2), (0, 0))
    """
    reach = reach_of(axes)
    before = (range((count - 1) * step, -1, -step) for count, step in zip(reach.counts, reach.steps, strict=True))
    return tuple(product(*before))


def _is_covered(axis: Axis) -> bool:
    size, stride = axis.window.size, axis.window.stride
    return axis.begin == 0 and axis.window.reach == size == stride and axis.large == axis.small * stride


@triton.jit
def unpool_cells(x, indices, y, result, args, meta: tl.constexpr):
    """One tile of cells. x: bits, and indices: int64, (N, C, d1..dk); y: bits (N, C, D1..Dk)."""
    if meta.after_check:
        _, _, all_in_window = read_result(result, meta)
        if all_in_window:
            _write(y, _read(x, indices, result, args, meta), args, meta)
    else:
        _write(y, _read(x, indices, result, args, meta), args, meta)


@triton.jit
def _read(x, indices, result, args, meta: tl.constexpr):
    """Per window that reaches the cells, in row-major order, its index less the cell's place, and x; records faults."""
    kind: tl.constexpr = meta.kind
    spaces: tl.constexpr = meta.spaces
    windows: tl.constexpr = meta.windows
    strides: tl.constexpr = meta.strides
    begins: tl.constexpr = meta.begins
    axis: tl.constexpr = len(strides) - 1
    coords, plane, mask = _tile_cells(1, args, meta)
    first = _corner(coords, args, meta) + (coords[axis] * strides[axis] - begins[axis])
    if not spaces.per_plane:
        first += plane * args.counts.plane
    candidates = ()
    for number in tl.static_range(len(windows)):
        position, is_window = _window(number, coords, plane, args, meta)
        is_window = is_window & mask
        index = tl.load(indices + position, mask=is_window, other=-1)
        bits = tl.load(x + position, mask=is_window, other=0)
        value = widen(bits, kind) if meta.accumulate else activated(bits, meta)
        candidates = candidates + ((index - first, value),)  # type: ignore[assignment]
        if meta.check_indices and number == len(windows) - 1:
            outside = is_window & (_is_in_window(index - first, coords, args, meta) == 0)
            if tl.max(outside.to(tl.int32)) > 0:
                limit = args.counts.plane if spaces.per_plane else args.counts.planes
                record_first(result, position.to(tl.int64), is_window & ((index < 0) | (index >= limit)))
                record_first(result + 1, position.to(tl.int64), outside)
    return candidates


@triton.jit
def _write(y, candidates, args, meta: tl.constexpr):
    """Write all elements of the cells of a tile: along the last axis one tap, two joined ones, or one after another."""
    strides: tl.constexpr = meta.strides
    begins: tl.constexpr = meta.begins
    cell_rows: tl.constexpr = meta.cell_rows
    ROWS: tl.constexpr = meta.tile.rows
    LANES: tl.constexpr = meta.tile.lanes
    axis: tl.constexpr = len(strides) - 1
    last: tl.constexpr = strides[axis]
    joined: tl.constexpr = last if last <= 2 else 1
    coords, plane, mask = _tile_cells(joined, args, meta)
    place = plane * args.counts.plane + _corner(coords, args, meta)
    lane = coords[axis] * (last // joined) - begins[axis]
    for number in tl.static_range(len(cell_rows)):
        offset, is_row = _tap_row(number, coords, args, cell_rows, meta)
        is_row = is_row & mask
        for tap in tl.static_range(last // joined):
            bits = _value(candidates, offset + tap, meta)
            if joined == 2:
                bits = tl.join(bits, _value(candidates, offset + 1, meta)).reshape(ROWS, 2 * LANES)
            is_in = _is_in(lane + tap, _length(1, args, meta), begins[axis])
            tl.store(y + ((place + offset) + (lane + tap)), bits, mask=is_row & is_in)


@triton.jit
def _tile_cells(joined: tl.constexpr, args, meta: tl.constexpr):
    """Coordinates, planes and mask of rows of the cells of a tile; a cell of the last axis counts as `joined` cells."""
    tile: tl.constexpr = meta.tile
    rank: tl.constexpr = len(args.dims)
    ROWS: tl.constexpr = tile.rows
    LANES: tl.constexpr = tile.lanes * joined
    number = tl.program_id(0)
    if tile.is_wide:
        number = number.to(tl.int64)
    across = tl.cdiv(args.dims[rank - 1].cells, tile.lanes)
    row = number // across * ROWS + tl.arange(0, ROWS)[:, None]
    mask = row < args.counts.rows
    lane = number % across * LANES + tl.arange(0, LANES)[None, :]
    coords = ()
    for axis in tl.static_range(rank - 2, -1, -1):
        coords = (row % args.dims[axis].cells,) + coords  # type: ignore[assignment]
        row = row // args.dims[axis].cells
    return coords + (lane,), row, mask


@triton.jit
def _length(of_y: tl.constexpr, args, meta: tl.constexpr):
    units: tl.constexpr = meta.units
    return (args.counts.large if of_y else args.counts.small) * units[of_y]


@triton.jit
def _corner(coords, args, meta: tl.constexpr):
    """The offset of rows of cells in their plane of y, without the padding of the last axis."""
    strides: tl.constexpr = meta.strides
    begins: tl.constexpr = meta.begins
    place = coords[0] * 0
    step = _length(1, args, meta)
    for axis in tl.static_range(len(strides) - 2, -1, -1):
        place += (coords[axis] * strides[axis] - begins[axis]) * step
        step *= args.dims[axis].large
    return place


@triton.jit
def _window(number: tl.constexpr, coords, plane, args, meta: tl.constexpr):
    """The place in x of one of the windows that reach cells, and the mask of existing windows."""
    windows: tl.constexpr = meta.windows
    before: tl.constexpr = windows[number]
    last: tl.constexpr = len(before) - 1
    small = _length(0, args, meta)
    window = coords[last] - before[last]
    mask = _is_in(window, small, before[last])
    place = window
    step = small
    for axis in tl.static_range(last - 1, -1, -1):
        window = coords[axis] - before[axis]
        if not meta.is_covered:
            mask = mask & _is_in(window, args.dims[axis].small, before[axis])
        place += window * step
        step *= args.dims[axis].small
    return plane * step + place, mask


@triton.jit
def _tap_row(number: tl.constexpr, coords, args, rows: tl.constexpr, meta: tl.constexpr):
    """The distance in places from the first tap of cells to a row of taps, and whether the row is inside y."""
    taps: tl.constexpr = rows[number]
    strides: tl.constexpr = meta.strides
    begins: tl.constexpr = meta.begins
    offset = 0
    is_inside = True
    step = _length(1, args, meta)
    for axis in tl.static_range(len(taps) - 1, -1, -1):
        if not meta.is_covered:
            place = coords[axis] * strides[axis] + (taps[axis] - begins[axis])
            is_inside = _is_in(place, args.dims[axis].large, begins[axis]) & is_inside
        offset += taps[axis] * step
        step *= args.dims[axis].large
    return offset, is_inside


@triton.jit
def _is_in(place, size, below: tl.constexpr):
    """True if places are inside an axis; if `below` is 0, none is negative."""
    is_in = place < size
    if below > 0:
        is_in = is_in & (place >= 0)
    return is_in


@triton.jit
def _is_in_window(local, coords, args, meta: tl.constexpr):
    """True if places, counted from the first one of their cell, are inside its window and inside y."""
    sizes: tl.constexpr = meta.sizes
    strides: tl.constexpr = meta.strides
    begins: tl.constexpr = meta.begins
    rows: tl.constexpr = meta.window_rows
    axis: tl.constexpr = len(sizes) - 1
    first = 0
    size = sizes[axis]
    if not meta.is_covered:
        lane = coords[axis] * strides[axis] - begins[axis]
        first = tl.maximum(-lane, 0)
        size = tl.minimum(_length(1, args, meta) - lane, size)
    is_in_window = local != local
    for number in tl.static_range(len(rows)):
        offset, is_row = _tap_row(number, coords, args, rows, meta)
        is_in_window = is_in_window | ((local >= offset + first) & (local < offset + size) & is_row)
    return is_in_window


@triton.jit
def _value(candidates, offset, meta: tl.constexpr):
    """The bits of elements at `offset` in their cells: the last window with their index, or the sum of such windows."""
    kind: tl.constexpr = meta.kind
    ROWS: tl.constexpr = meta.tile.rows
    LANES: tl.constexpr = meta.tile.lanes
    value = tl.zeros([ROWS, LANES], candidates[0][1].dtype)
    if not meta.accumulate:
        value = activated(value, meta)
    for each in tl.static_range(len(candidates)):
        local, other = candidates[each]
        value = tl.where(local == offset, value + other if meta.accumulate else other, value)
    return narrow(value, kind) if meta.accumulate else value
