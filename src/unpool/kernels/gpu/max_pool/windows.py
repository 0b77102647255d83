"""The largest element of every window, and where it was found.

A program has a tile of outputs. It walks the taps of all its windows at once, in row-major order, and keeps of each
window the largest element (`largest.py`) and its place in the plane, as indices count it. A tap beside the data reads
what the nearest tap of its window reads that is not beside it: the same once more, which changes nothing. So only
windows without any data are masked, where there are such.

Large windows are pooled in several passes (`passes.py`). What is between them is elements and, for indices, places.
"""

import triton
import triton.language as tl

from unpool.kernels.gpu.activation import activated
from unpool.kernels.gpu.max_pool.largest import gathered, spread, wins
from unpool.kernels.gpu.tiles import place_of


@triton.jit
def pool_windows(x, known, y, places, call, how: tl.constexpr):
    """One tile of y, and of the places found if they are wanted.

    x: bits (N, C, D1..Dk) or (N, D1..Dk, C), or those of the pass before; known: places of these, int32 or int64;
    y: bits of the sizes of the grid, in the same layout; places: as `known`, or indices, int64, of the shape of y.
    """
    kind: tl.constexpr = how.kind
    taps: tl.constexpr = how.taps
    activation: tl.constexpr = how.activation
    params: tl.constexpr = how.params
    tile: tl.constexpr = how.tile
    neighbours: tl.constexpr = how.neighbours
    carries: tl.constexpr = how.carries
    row, first = _rows(call.grid, tile, carries)
    at, lane, is_read = _cells(row, first * neighbours, call.grid, tile, neighbours, how.aligned)
    if how.has_empty:
        is_read = is_read & ~_is_empty(at, call, how)
    windows = (at, _element(row[1], 0, lane, call.planes.read, call, how), is_read)
    best, found = _read(x, known, 0, windows, call, how)
    if taps <= 16:  # written out, so that their loads are under way together
        for tap in tl.static_range(1, taps):
            best, found = _with_tap(x, known, tap, windows, best, found, call, how)
    else:
        for tap in range(1, taps):
            best, found = _with_tap(x, known, tap, windows, best, found, call, how)
    bits = gathered(best, kind)
    at, lane, inside = _cells(row, first, call.grid, tile, 1, 1)
    if how.has_empty:
        bits = tl.where(is_read, bits, tl.full([1, 1], how.lowest, y.dtype.element_ty))
        found = tl.where(is_read, found, -1)
    target = _element(row[1], place_of(at, call.grid.sizes), lane, call.planes.written, call, how)
    tl.store(y + target, activated(bits, kind, activation, params), mask=inside)
    if how.places != "none":
        tl.store(places + target, _index(found, row[1], lane, call, how), mask=inside)


@triton.jit
def _rows(grid, tile: tl.constexpr, carries: tl.constexpr):
    """The rows of this program: coordinates, plane, and which are there, all (rows, 1); and its first lane.

    A plane is one of N * C, or of N where channels are the lanes. Divisions are slow: so the first row is divided, and
    the others carry over from axis to axis.
    """
    ROWS: tl.constexpr = tile.rows
    folded: tl.constexpr = len(grid.sizes) if tile.is_channels_last else len(grid.sizes) - 1
    number = tl.program_id(0)
    if tile.is_wide:
        number = number.to(tl.int64)
    across = tl.cdiv(grid.extent.lanes, tile.lanes)
    down = number // across
    first = down * ROWS
    more = tl.arange(0, ROWS)[:, None]
    is_there = first + more < grid.extent.rows
    at = ()
    for axis in tl.static_range(folded - 1, -1, -1):
        size = grid.sizes[axis]
        above = first // size
        here = first - above * size + more
        more = _carried(here, size, carries[axis])
        at = (here - more * size,) + at  # type: ignore[assignment]
        first = above
    return (at, first + more, is_there), (number - down * across) * tile.lanes


@triton.jit
def _carried(here, size, most: tl.constexpr):
    """The quotient here // size, which is `most` at most."""
    if most > 4:
        more = here // size
    else:
        more = (here >= size).to(here.dtype)
        for times in tl.static_range(2, most + 1):
            more += (here >= times * size).to(here.dtype)
    return more


@triton.jit
def _cells(row, first, grid, tile: tl.constexpr, neighbours: tl.constexpr, aligned: tl.constexpr):
    """Coordinates, lane and which are there, of so many cells for each output; `first` is the first lane."""
    LANES: tl.constexpr = tile.lanes * neighbours
    lane = first + tl.arange(0, LANES)[None, :]
    end = grid.extent.lanes * neighbours
    inside = row[2] & (lane < (tl.multiple_of(end, aligned) if neighbours > 1 else end))
    at = row[0]
    if not tile.is_channels_last:
        at = at + (lane,)
    return at, lane, inside


@triton.jit
def _element(outer, place, lane, plane, call, how: tl.constexpr):
    """Where an element is in a tensor whose planes have so many places."""
    element = outer * plane + place
    if how.tile.is_channels_last:
        element = element * call.grid.extent.channels + lane
    return element


@triton.jit
def _with_tap(x, known, tap, windows, best, found, call, how: tl.constexpr):
    """The largest elements so far, and their places, with those that a tap reads."""
    other, place = _read(x, known, tap, windows, call, how)
    return _kept(other, place, best, found, how)


@triton.jit
def _kept(other, place, best, found, how: tl.constexpr):
    """The larger elements and their places; the others come later."""
    kind: tl.constexpr = how.kind
    nan_last: tl.constexpr = how.nan_last
    is_better = wins(other, best, kind, nan_last)
    return tl.where(is_better, other, best), tl.where(is_better, place, found)


@triton.jit
def _read(x, known, tap, windows, call, how: tl.constexpr):
    """The elements that a tap reads, and their places in a plane of x; of neighbours the largest one."""
    kind: tl.constexpr = how.kind
    at, base, is_read = windows
    place, counted = _place(tap, at, call, how)
    if how.tile.is_channels_last:
        place = place * call.grid.extent.channels
    source = base + place
    if how.neighbours > 1:
        aligned: tl.constexpr = how.aligned
        source = tl.multiple_of(source, [1, aligned])
    if how.places != "none" and not how.is_first:
        counted = tl.load(known + source, mask=is_read)
    read = tl.load(x + source, mask=is_read)
    counted = counted + tl.zeros_like(source)
    best, found = spread(read, kind), counted
    for _ in tl.static_range(how.neighbours // 2):
        best, other = _even_and_odd(best)
        found, place = _even_and_odd(found)
        best, found = _kept(other, place, best, found, how)
    return best, found


@triton.jit
def _even_and_odd(lanes):
    """Every other lane of (rows, lanes), and those between."""
    ROWS: tl.constexpr = lanes.shape[0]
    HALF: tl.constexpr = lanes.shape[1] // 2
    return tl.split(tl.reshape(lanes, [ROWS, HALF, 2]))


@triton.jit
def _place(tap, at, call, how: tl.constexpr):
    """Where a tap reads, as memory and as indices count it."""
    window: tl.constexpr = how.window
    dilation: tl.constexpr = how.dilation
    is_cut: tl.constexpr = how.is_cut
    place = 0
    counted = 0
    for axis in tl.static_range(len(window) - 1, -1, -1):
        line = call.lines[axis]
        corner = at[axis] * line.stride - line.begin
        position = corner + (tap % window[axis]) * dilation[axis]
        tap = tap // window[axis]
        if is_cut[axis]:
            low, high = _edges(corner, line.large, dilation[axis])
            position = tl.minimum(tl.maximum(position, low), high)
        place = place + position * line.step
        counted = counted + position * line.weight
    return place, counted if how.is_column_major else place


@triton.jit
def _edges(corner, large, dilation: tl.constexpr):
    """The first and the last position with data that taps of a window read, if there were no end to its taps."""
    first = (corner % dilation + dilation) % dilation
    last = first - dilation + (large - 1 - first + dilation) // dilation * dilation
    return first, last


@triton.jit
def _is_empty(at, call, how: tl.constexpr):
    """Which windows have no data."""
    window: tl.constexpr = how.window
    dilation: tl.constexpr = how.dilation
    is_cut: tl.constexpr = how.is_cut
    is_empty = at[0] < 0
    for axis in tl.static_range(len(window)):
        if is_cut[axis]:
            line = call.lines[axis]
            corner = at[axis] * line.stride - line.begin
            low, high = _edges(corner, line.large, dilation[axis])
            last = corner + (window[axis] - 1) * dilation[axis]
            is_empty = is_empty | (tl.maximum(corner, low) > tl.minimum(last, high))
    return is_empty


@triton.jit
def _index(found, outer, lane, call, how: tl.constexpr):
    """What is written of places: themselves for the next pass, or indices."""
    index = found
    if how.places == "indices":
        if not how.per_plane:
            index = found + _element(outer, 0, lane, 1, call, how) * call.planes.counted
        if how.has_empty:
            index = tl.where(found < 0, -1, index)
        index = index.to(tl.int64)
    return index
