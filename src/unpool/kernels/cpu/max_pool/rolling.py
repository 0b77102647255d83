"""Max pooling of overlapping windows of two axes, up to 13 wide: the maxima of rows roll through registers.

    pooled[r, i] = max over taps t of x[r, i * step + t]              the leftmost of equals
    y[j, i]      = max over rows q of pooled[j * step + q, i]         the topmost of equals

A block of neighbouring columns moves down a band of rows. Queues hold the maxima of the last rows and their places, so
every row is read once. A maximum of many elements is that of two overlapping halves, and so on, both within a row and
down the rows. The bits of 16-bit floats are compared as the upper half of a float32, which has the same order; bits
beyond their infinity are NaN.

Columns outside the plane are -inf, with the place of the first element on data. A row outside the plane counts as the
nearest row inside, which the same window holds, too. Comparisons ignore NaN; a block in which one occurs is pooled
again, with one extra comparison that handles NaN: `nan` is the literal IGNORED, or FIRST or LAST. `static` has

    element      type of elements in memory
    lanes        of a register
    depth, taps  rows and columns of a window
    step         rows, and columns, between windows
    has_indices  whether indices are stored
    is_inside    whether all columns of the block are inside the plane
"""

from typing import NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import axis_at
from unpool.kernels.cpu.machine import libraries, types
from unpool.kernels.cpu.machine.host import vector_registers
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool.elements import compare_lanes, maxima, narrow_element, narrow_marked_nan, widen_element
from unpool.kernels.cpu.max_pool.pool import (
    PoolProblem,
    element_name,
    element_size,
    has_prefetch,
    is_far,
    nan_of,
    outer_places,
    pool_size,
)
from unpool.kernels.cpu.max_pool.pool_kernel import PoolKernel
from unpool.kernels.cpu.tuning import CACHE_LINE, ROLLING_POOL
from unpool.kernels.cpu.vector import IGNORED
from unpool.kernels.cpu.vector.registration import LazyModule, jit_inline, overload_by_type

row_vectors = LazyModule("unpool.kernels.cpu.max_pool.row_vectors")

COMMON_WINDOWS = ((2, 1), (3, 1), (5, 1), (7, 1), (9, 1), (13, 1), (3, 2), (4, 2), (5, 2))
"""Sizes and strides of square windows whose kernels are shipped."""


class RollingPlane(NamedTuple):
    """Sizes of a plane."""

    height: int  # rows of x
    width: int  # columns of x
    small_height: int  # rows of y
    small_width: int  # columns of y
    top: int  # padding before the first row
    left: int  # padding before the first column


class RollingPoolParams(NamedTuple):
    """Arguments of a call."""

    elements: int  # of x
    plane: RollingPlane
    bands: int  # number of bands in a plane
    band_height: int  # rows of y in a band
    outer_places: int  # from one plane to the next, as indices count; 0 where they count inside their own plane
    prefetch_bytes: int  # of x that one row of results of a block prefetches
    has_prefetch: bool  # whether x is prefetched
    indices_non_temporal: bool  # whether stores to indices are non-temporal if they begin a line of memory
    infinity: int  # its bits
    nan: int  # FIRST or LAST, the NaN of a window whose index is found


def is_possible(pool: PoolProblem) -> bool:
    """True if windows are small, overlap, step alike along both axes, and hold an element of the plane each.

    The maxima of the rows above, and their places, have to fit into registers: otherwise each row loads and stores
    them, and pooling axis by axis is faster. No kernel is compiled for the window of a small call, or without Numba.
    """
    if pool.elements.name not in ("float32", "float64", "int16") or len(pool.plane.leading) != 1:
        return False
    return is_rolling(pool) and (libraries.can_compile() or is_common(pool))


@jit_inline
def is_rolling(pool: PoolProblem) -> bool:
    """As `is_possible` for planes of floats with two axes, no matter which kernels are compiled."""
    if pool.mode.channels_last or len(pool.plane.leading) != 1 or not ROLLING_POOL.elements <= pool_size(pool) < 2**31:
        return False
    rows, columns = axis_at(pool.plane.leading, 0), pool.plane.lanes
    depth, taps, stride = rows.window.size, columns.window.size, rows.window.stride
    if stride != columns.window.stride or stride > 2:
        return False
    most = ROLLING_POOL.taps[stride]
    queued = (depth - 1) * (2 if pool.has_indices else 1)
    return (
        queued <= vector_registers()
        and stride <= depth <= most
        and stride <= taps <= most
        and rows.window.dilation == 1
        and columns.window.dilation == 1
        and depth * taps > stride**2
        and 0 <= rows.begin < depth
        and 0 <= columns.begin < taps
        and (rows.small - 1) * stride - rows.begin < rows.large
        and (columns.small - 1) * stride - columns.begin < columns.large
    )


@jit_inline
def is_common(pool: PoolProblem) -> bool:
    """True if the kernel for such windows is shipped."""
    rows, columns = axis_at(pool.plane.leading, 0).window, pool.plane.lanes.window
    return rows.size == columns.size and (rows.size, rows.stride) in COMMON_WINDOWS


def launch(pool: PoolProblem) -> Launch:
    """The call that pools all planes."""
    (rows,), columns, element = pool.plane.leading, pool.plane.lanes, pool.elements
    params, jobs = plan(pool)
    kernel = _make_kernel(element.name, rows.window.size, columns.window.size, rows.window.stride, pool.has_indices)
    return Launch(kernel, jobs, pool.work, record(params))


@jit_inline
def plan(pool: PoolProblem) -> tuple[RollingPoolParams, int]:
    """The arguments and the number of jobs of the call that pools all planes."""
    rows, columns = axis_at(pool.plane.leading, 0), pool.plane.lanes
    size, element = element_size(pool.elements), element_name(pool.elements)
    fitting = ROLLING_POOL.band // max(1, columns.large * size * rows.window.stride)
    count = -(-rows.small // max(1, max(ROLLING_POOL.band_rows * (rows.window.size - rows.window.stride), fitting)))
    height = -(-rows.small // count)
    count = -(-rows.small // height)
    blocks = -(-columns.small // compare_lanes(element))
    is_non_temporal = is_far(pool) and pool.mode.is_recycled and indices_fill_lines(columns.small, element)
    params = RollingPoolParams(
        pool_size(pool),
        RollingPlane(rows.large, columns.large, rows.small, columns.small, rows.begin, columns.begin),
        count, height, outer_places(pool), rows.window.stride * columns.large * size // blocks,
        is_far(pool) or (has_prefetch(pool) and not pool.has_indices),  # indices are stored for longer
        is_non_temporal, pool.elements.infinity, nan_of(pool.mode),
    )  # fmt: skip
    return params, pool.outer * count


@jit_inline
def indices_fill_lines(small: int, element: str) -> bool:
    """True if blocks of indices are whole lines of memory, in rows of `small` outputs."""
    in_line, lanes = CACHE_LINE // 8, compare_lanes(element)
    return small % in_line == 0 and lanes % in_line == 0 and small >= lanes


@specialize
def _make_kernel(element: str, depth: int, taps: int, step: int, has_indices: bool):
    """The compiled kernel for one element type, int16 for the bits of a 16-bit float, and one window."""
    lanes, size = compare_lanes(element), np.dtype(element).itemsize
    inside, outside = (
        vec.StaticArgs(
            element=getattr(types, element), lanes=lanes, depth=depth, taps=taps, step=step,
            has_indices=int(has_indices), is_inside=is_inside,
        )
        for is_inside in (1, 0)
    )  # fmt: skip
    span = (lanes - 1) * step + taps
    read = span if step == 1 and taps <= ROLLING_POOL.loaded_taps else -(-span // lanes) * lanes

    @jit()
    def roll_planes(x, y, indices, args, first, stop):
        """Write bands in memory order: for every plane, band of its rows, block of columns, row of the band.

        A last block overlaps its neighbour. A block with NaN is pooled again in full, and the next one in full at once.
        """
        params, sizes = args[0], args[0].plane
        height, width, small_height, small = sizes.height, sizes.width, sizes.small_height, sizes.small_width
        top, left, bands, band_height = sizes.top, sizes.left, params.bands, params.band_height
        elements, outer_places, nan = params.elements, params.outer_places, params.nan
        prefetch_bytes, has_prefetch = params.prefetch_bytes, params.has_prefetch
        indices_non_temporal = params.indices_non_temporal and vec.address_of(indices) % CACHE_LINE == 0
        ends, has_nan = bounds(params.infinity, inside), False
        is_output, none = vec.first_lanes(small, ends[0]), vec.widen_mask(vec.first_lanes(0, ends[0]), ends[0])
        end = (stop // bands * small_height + min(stop % bands * band_height, small_height)) * small
        outer, low = first // bands, first % bands * band_height
        for _job in range(first, stop):
            high = min(low + band_height, small_height)
            plane, last_row = outer * height * width, min((high - 1) * step - top + depth, height) - 1
            prefetch_address = vec.address_of(x) + (plane + (last_row + 1) * width) * size
            for start in range(0, small, lanes):
                column = max(0, min(start, small - lanes))
                first_column = column * step - left
                block = Columns(
                    plane=vec.address_of(x) + plane * size, last_row=(height - 1) * width, width=width,
                    first=first_column, place=outer * outer_places,
                )  # fmt: skip
                band = Band(
                    y=vec.address_of(y), indices=vec.address_of(indices), first_row=(low * step - top) * width,
                    target=(outer * small_height + low) * small + column, small=small, rows=high - low, end=end,
                    prefetch_address=prefetch_address, prefetch_bytes=prefetch_bytes, has_prefetch=has_prefetch,
                    indices_non_temporal=indices_non_temporal,
                )  # fmt: skip
                is_inside = first_column >= 0 and first_column + span <= width
                is_inside = is_inside and plane + last_row * width + first_column + read <= elements
                if not has_nan and is_inside:
                    has_nan = vec.any_of(roll(block, band, ends, none, is_output, IGNORED, inside))
                elif not has_nan:
                    has_nan = vec.any_of(roll(block, band, ends, none, is_output, IGNORED, outside))
                if has_nan and is_inside:
                    has_nan = roll_again(block, band, ends, none, is_output, nan, inside)
                elif has_nan:
                    has_nan = roll_again(block, band, ends, none, is_output, nan, outside)
                prefetch_address += prefetch_bytes * (high - low)
            low += band_height
            if low >= small_height:
                outer, low = outer + 1, 0
        if indices_non_temporal:
            vec.fence()

    return roll_planes


class Columns(NamedTuple):
    """A block of columns of a plane. Rows of x are named by the element of the plane that they begin with."""

    plane: int  # its address
    last_row: int  # of the plane
    width: int  # columns of the plane
    first: int  # column of the block, below 0 outside the plane
    place: int  # of the plane, as indices count


class Band(NamedTuple):
    """A band of rows that a block of columns moves down."""

    y: int  # address of all results
    indices: int  # address of all indices
    first_row: int  # of x in the band; it may be outside the plane
    target: int  # number of the first result
    small: int  # results of a row of y
    rows: int  # of results
    end: int  # number after the last result of this call
    prefetch_address: int  # of x, for the next row
    prefetch_bytes: int  # from there to the next address
    has_prefetch: bool  # whether x is prefetched
    indices_non_temporal: bool  # whether stores to indices are non-temporal


@overload_by_type(inline=True)
def bounds(infinity, static):
    """Minus and plus infinity as elements are compared, in every lane, from the bits of the second."""
    element, lanes = static.element, static.lanes
    if element == types.int16:

        def of_bits(infinity, static):
            low, high = vec.splat(element(infinity - 0x8000), lanes), vec.splat(element(infinity), lanes)
            return widen_element(low, types.float32), widen_element(high, types.float32)

        return of_bits
    return lambda infinity, static: (vec.splat(element(-np.inf), lanes), vec.splat(element(np.inf), lanes))


@overload_by_type(inline=True)
def roll(block, band, ends, nan_lanes, is_output, nan, static):
    """Pool a block of columns, row by row; the result are the lanes that have seen a NaN.

    `ends` are minus infinity and infinity. `nan_lanes` is a wide mask, of results where NaN is compared. `is_output`
    are the lanes that are results, of a row that is shorter than a register.
    """
    element, lanes, step, has_indices = static.element, static.lanes, static.step, static.has_indices
    size, stored = element.bitwidth // 8, narrow_element if isinstance(nan, types.IntegerLiteral) else narrow_marked_nan
    queued, before, taps = max(1, static.depth - 1), static.depth - step, static.taps
    is_short = taps <= ROLLING_POOL.loaded_taps
    parts, apart = (taps, 1) if is_short else (1 - (1 - taps) // lanes, lanes)  # vectors that are loaded
    of_rows = static.drop("has_indices")

    def down(block, band, ends, nan_lanes, is_output, nan, static):
        row, target, prefetch_address = band.first_row, band.target, band.prefetch_address
        columns = row_vectors.tile_columns(block.first, lanes, parts, step, apart)
        queues = maxima.tile_repeat(ends[0], queued), maxima.tile_repeat(columns[0], queued)
        for _ in range(before):
            queues, best, place, nan_lanes = push_row(queues, nan_lanes, row, block, columns, ends, nan, of_rows)
            row += block.width
        for _ in range(band.rows):
            if band.has_prefetch:
                for line in range(step * step):
                    vec.prefetch(prefetch_address + line * CACHE_LINE)
                prefetch_address += band.prefetch_bytes
            for _ in range(step):
                queues, best, place, nan_lanes = push_row(queues, nan_lanes, row, block, columns, ends, nan, of_rows)
                row += block.width
            if target + lanes <= band.end:
                vec.store(band.y + target * size, stored(best, element))
                if has_indices and band.indices_non_temporal:
                    vec.store_nontemporal(band.indices + target * 8, vec.convert(place, types.int64))
                elif has_indices:
                    vec.store(band.indices + target * 8, vec.convert(place, types.int64))
            else:
                vec.store_masked(band.y + target * size, stored(best, element), is_output)
                if has_indices:
                    vec.store_masked(band.indices + target * 8, vec.convert(place, types.int64), is_output)
            target += band.small
        return nan_lanes

    return down


@overload_by_type()
def roll_again(block, band, ends, nan_lanes, is_output, nan, static):
    """As `roll`, for blocks with NaN; whether there was one. Not inlined, so that its caller keeps its registers."""
    return lambda block, band, ends, nan_lanes, is_output, nan, static: vec.any_of(
        roll(block, band, ends, nan_lanes, is_output, nan, static)
    )


@overload_by_type(inline=True)
def push_row(queues, nan_lanes, row, block, columns, ends, nan, static):
    """Put the maxima of a row of x, and their places, at the ends of the queues, two tuples, the oldest first.

    Columns are not below 0, so that padding of -inf has the place of the first element on data. The results are the
    queues, the maxima of the windows that end here, their places, and `nan_lanes`.
    """
    size, lanes, depth, step = static.element.bitwidth // 8, static.lanes, static.depth, static.step

    def push(queues, nan_lanes, row, block, columns, ends, nan, static):
        nearest = min(max(row, 0), block.last_row)
        address = block.plane + (nearest + block.first) * size
        best, column, met = row_largest(address, block, columns, ends, nan, static)
        place = column + vec.splat(types.int32(nearest + block.place), lanes)
        values, places, best, place = maxima.tile_roll(queues[0], queues[1], best, place, depth, step, nan)
        return (values, places), best, place, nan_lanes | vec.widen_mask(met, best)

    return push


@overload_by_type(inline=True)
def row_largest(address, block, columns, ends, nan, static):
    """The maxima of neighbouring windows of a row, their columns, and a mask with some lane set if there is a NaN."""
    element, taps, step, is_inside, count = static.element, static.taps, static.step, static.is_inside, columns.count
    if taps <= ROLLING_POOL.loaded_taps:

        def load_taps(address, block, columns, ends, nan, static):
            values = row_vectors.load_window(address, block.first, block.width, ends[0], element, taps, step, is_inside)
            values = with_nan(values, ends[1], element, nan)
            best, column = maxima.argmax(values, columns, nan)
            return best, column, met_nan(values, best, step, ends[1], element, nan)

        return load_taps

    def slide(address, block, columns, ends, nan, static):
        values = row_vectors.load_parts(address, block.first, block.width, ends[0], element, count, is_inside)
        values = with_nan(values, ends[1], element, nan)
        best, column = maxima.sliding_argmax(values, columns, taps, nan)
        return best, column, met_nan(values, best, 0, ends[1], element, nan)

    return slide


@overload_by_type(inline=True)
def with_nan(values, limit, element, nan):
    """Vectors in which a NaN of 16 bits is a NaN of float32, unless NaN is ignored."""
    if element.dtype == types.int16 and not isinstance(nan, types.IntegerLiteral):
        return lambda values, limit, element, nan: maxima.mark_nan(values, limit)
    return lambda values, limit, element, nan: values


@overload_by_type(inline=True)
def met_nan(values, best, step, limit, element, nan):
    """A mask with some lane set if vectors hold a NaN, or their largest is one."""
    if not isinstance(nan, types.IntegerLiteral):
        return lambda values, best, step, limit, element, nan: vec.unordered(best, best)
    if element.dtype == types.int16:
        return lambda values, best, step, limit, element, nan: maxima.any_beyond(values, step, limit)
    return lambda values, best, step, limit, element, nan: maxima.any_unordered(values, step)


KERNEL = PoolKernel("rolling", lambda pool: is_possible(pool), lambda *_: True, lambda pool: launch(pool))
