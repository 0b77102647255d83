"""The largest element of every window, and its place.

A program has a tile of outputs. It walks the taps of all its windows at once, in row-major order, and keeps the largest
element of each window and its place in the plane, as indices count it. A tap in the padding reads the nearest tap of
its window inside the data: reading it twice changes nothing. So only windows without any data are masked.

The larger element is kept, of equal ones (both zeros are equal) the earlier one, and NaN before all numbers. Elements
are bits; only their comparisons are those of floats. These are exact: no compiler may round, reorder or flush numbers
that it only compares and selects.

Large windows are pooled in several passes (`__init__.py`), which pass on elements and, for indices, places.
"""

import triton
import triton.language as tl

from unpool.kernels.gpu.elements import activated
from unpool.kernels.gpu.tiles import place_of


@triton.jit
def pool_windows(x, read_places, y, places, args, meta: tl.constexpr):
    """One tile of y, and of the places of maxima if they are wanted.

    x: bits (N, C, D1..Dk) or (N, D1..Dk, C), or those of the pass before; read_places: their places, int32 or int64;
    y: bits of the sizes of the grid, in the same layout; places: like `read_places`, or int64 indices.
    """
    kind: tl.constexpr = meta.kind
    taps: tl.constexpr = meta.taps
    tile: tl.constexpr = meta.tile
    neighbours: tl.constexpr = meta.neighbours
    carries: tl.constexpr = meta.carries
    row, first = _tile_rows(args.grid, tile, carries)
    coords, lane, is_read = _tile_cells(row, first * neighbours, args.grid, tile, neighbours, meta.aligned)
    if meta.has_empty:
        is_read = is_read & ~_is_empty(coords, args, meta)
    windows = (coords, _element(row[1], 0, lane, args.planes.read, args, meta), is_read)
    best, best_place = _read(x, read_places, 0, windows, args, meta)
    if taps <= 16:  # unrolled, so that their loads overlap
        for tap in tl.static_range(1, taps):
            best, best_place = _reduce_tap(x, read_places, tap, windows, best, best_place, args, meta)
    else:
        for tap in range(1, taps):
            best, best_place = _reduce_tap(x, read_places, tap, windows, best, best_place, args, meta)
    bits = narrow_bits(best, kind)
    coords, lane, inside = _tile_cells(row, first, args.grid, tile, 1, 1)
    if meta.has_empty:
        bits = tl.where(is_read, bits, tl.full([1, 1], meta.lowest, y.dtype.element_ty))
        best_place = tl.where(is_read, best_place, -1)
    target = _element(row[1], place_of(coords, args.grid.sizes), lane, args.planes.written, args, meta)
    tl.store(y + target, activated(bits, meta), mask=inside)
    if meta.places != "none":
        index = best_place
        if meta.places == "indices":
            if not meta.per_plane:
                index = index + _element(row[1], 0, lane, 1, args, meta) * args.planes.counted
            if meta.has_empty:
                index = tl.where(best_place < 0, -1, index)
            index = index.to(tl.int64)
        tl.store(places + target, index, mask=inside)


@triton.jit
def _tile_rows(grid, tile: tl.constexpr, carries: tl.constexpr):
    """The rows of this program: coordinates, plane (of N * C, or N if lanes are channels), mask; and its first lane.

    Only the first row is divided, which is slow; the others carry over from axis to axis.
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
    mask = first + more < grid.extent.rows
    coords = ()
    for axis in tl.static_range(folded - 1, -1, -1):
        size = grid.sizes[axis]
        above = first // size
        digit = first - above * size + more
        more = _quotient(digit, size, carries[axis])
        coords = (digit - more * size,) + coords  # type: ignore[assignment]
        first = above
    return (coords, first + more, mask), (number - down * across) * tile.lanes


@triton.jit
def _quotient(number, size, most: tl.constexpr):
    """The quotient number // size, which is at most `most`."""
    if most > 4:
        more = number // size
    else:
        more = (number >= size).to(number.dtype)
        for times in tl.static_range(2, most + 1):
            more += (number >= times * size).to(number.dtype)
    return more


@triton.jit
def _tile_cells(row, first, grid, tile: tl.constexpr, neighbours: tl.constexpr, aligned: tl.constexpr):
    """Coordinates, lane and mask of `neighbours` cells for each output; `first` is the first lane."""
    LANES: tl.constexpr = tile.lanes * neighbours
    lane = first + tl.arange(0, LANES)[None, :]
    end = grid.extent.lanes * neighbours
    inside = row[2] & (lane < (tl.multiple_of(end, aligned) if neighbours > 1 else end))
    coords = row[0]
    if not tile.is_channels_last:
        coords = coords + (lane,)
    return coords, lane, inside


@triton.jit
def _element(outer, place, lane, plane, args, meta: tl.constexpr):
    """Offset of an element in a tensor whose planes have `plane` places."""
    element = outer * plane + place
    if meta.tile.is_channels_last:
        element = element * args.grid.extent.channels + lane
    return element


@triton.jit
def _reduce_tap(x, read_places, tap, windows, best, best_place, args, meta: tl.constexpr):
    other, place = _read(x, read_places, tap, windows, args, meta)
    return _keep_greater(other, place, best, best_place, meta)


@triton.jit
def _keep_greater(other, place, best, best_place, meta: tl.constexpr):
    """The larger elements and their places; the others come later."""
    kind: tl.constexpr = meta.kind
    nan_last: tl.constexpr = meta.nan_last
    is_better = is_greater(other, best, kind, nan_last)
    return tl.where(is_better, other, best), tl.where(is_better, place, best_place)


@triton.jit
def _read(x, read_places, tap, windows, args, meta: tl.constexpr):
    """The elements of a tap, and their places in a plane of x; of neighbours the largest one."""
    kind: tl.constexpr = meta.kind
    coords, base, is_read = windows
    place, counted = _place(tap, coords, args, meta)
    if meta.tile.is_channels_last:
        place = place * args.grid.extent.channels
    source = base + place
    if meta.neighbours > 1:
        aligned: tl.constexpr = meta.aligned
        source = tl.multiple_of(source, [1, aligned])
    if meta.places != "none" and not meta.is_first:
        counted = tl.load(read_places + source, mask=is_read)
    elements = tl.load(x + source, mask=is_read)
    counted = counted + tl.zeros_like(source)
    best, best_place = widen_bits(elements, kind), counted
    for _ in tl.static_range(meta.neighbours // 2):
        best, other = _split_lanes(best)
        best_place, place = _split_lanes(best_place)
        best, best_place = _keep_greater(other, place, best, best_place, meta)
    return best, best_place


@triton.jit
def _split_lanes(lanes):
    """The even and the odd lanes of (rows, lanes)."""
    ROWS: tl.constexpr = lanes.shape[0]
    HALF: tl.constexpr = lanes.shape[1] // 2
    return tl.split(tl.reshape(lanes, [ROWS, HALF, 2]))


@triton.jit
def _place(tap, coords, args, meta: tl.constexpr):
    """The place of a tap in a plane, as memory and as indices count it."""
    window: tl.constexpr = meta.window
    dilation: tl.constexpr = meta.dilation
    is_padded: tl.constexpr = meta.is_padded
    place = 0
    counted = 0
    for axis in tl.static_range(len(window) - 1, -1, -1):
        dim = args.dims[axis]
        corner = coords[axis] * dim.stride - dim.begin
        position = corner + (tap % window[axis]) * dilation[axis]
        tap = tap // window[axis]
        if is_padded[axis]:
            low, high = _edges(corner, dim.large, dilation[axis])
            position = tl.minimum(tl.maximum(position, low), high)
        place = place + position * dim.step
        counted = counted + position * dim.weight
    return place, counted if meta.is_column_major else place


@triton.jit
def _edges(corner, large, dilation: tl.constexpr):
    """The first and the last position inside the data among the taps of a window of unlimited size."""
    first = (corner % dilation + dilation) % dilation
    last = first - dilation + (large - 1 - first + dilation) // dilation * dilation
    return first, last


@triton.jit
def _is_empty(coords, args, meta: tl.constexpr):
    window: tl.constexpr = meta.window
    dilation: tl.constexpr = meta.dilation
    is_padded: tl.constexpr = meta.is_padded
    is_empty = coords[0] < 0
    for axis in tl.static_range(len(window)):
        if is_padded[axis]:
            dim = args.dims[axis]
            corner = coords[axis] * dim.stride - dim.begin
            low, high = _edges(corner, dim.large, dilation[axis])
            last = corner + (window[axis] - 1) * dilation[axis]
            is_empty = is_empty | (tl.maximum(corner, low) > tl.minimum(last, high))
    return is_empty


@triton.jit
def widen_bits(bits, kind: tl.constexpr):
    """Bits of elements as integers to compare: of bfloat16 those of the float32, of small integers the int32."""
    if kind == "bfloat16":
        bits = bits.to(tl.int32) << 16
    elif kind == "int8" or kind == "uint8":
        bits = bits.to(tl.int32)
    return bits


@triton.jit
def narrow_bits(kept, kind: tl.constexpr):
    """The inverse of `widen_bits`."""
    if kind == "bfloat16":
        kept = (kept >> 16).to(tl.int16)
    elif kind == "int8":
        kept = kept.to(tl.int8)
    elif kind == "uint8":
        kept = kept.to(tl.uint8)
    return kept


@triton.jit
def is_greater(other, kept, kind: tl.constexpr, nan_last: tl.constexpr):
    """True if a later element replaces the one kept; both come from `widen_bits`."""
    a = _number(other, kind)
    b = _number(kept, kind)
    if kind == "int8" or kind == "uint8":
        better = a > b
    elif nan_last:
        better = (a > b) | (a != a)
    else:
        better = (b == b) & ~(a <= b)
    return better


@triton.jit
def _number(kept, kind: tl.constexpr):
    if kind == "float64":
        kept = kept.to(tl.float64, bitcast=True)
    elif kind == "float16":
        kept = kept.to(tl.float16, bitcast=True)
    elif kind == "float32" or kind == "bfloat16":
        kept = kept.to(tl.float32, bitcast=True)
    return kept
