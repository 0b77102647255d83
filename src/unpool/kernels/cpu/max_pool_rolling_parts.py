"""The parts of the rolling pool: a block of columns goes down a band of rows. All exist in compiled code only."""

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.max_pool_elements import INLINED, enter, leave, leave_marked
from unpool.kernels.cpu.vector import (
    IGNORED,
    any_beyond,
    any_unordered,
    convert,
    first_largest,
    load_parts,
    load_window,
    prefetch,
    slide_largest,
    splat,
    store,
    store_masked,
    store_past_cache,
    tile_columns,
    tile_mark_nan,
    tile_repeat,
    tile_roll,
    unordered,
)

LINE = 64
"""Bytes of a line of the caches."""

LOADED_TAPS = 7
"""Windows so wide are loaded tap by tap; wider ones slide over whole vectors."""


def bounds(infinity, element, lanes):
    """Minus and plus infinity as elements are compared, in every lane; exists in compiled code only."""


@overload(bounds, prefer_literal=True, jit_options=INLINED)
def _bounds(infinity, element, lanes):
    if element.dtype == types.int16:

        def of_bits(infinity, element, lanes):
            low, high = splat(element(infinity - 0x8000), lanes), splat(element(infinity), lanes)
            return enter(low, types.float32), enter(high, types.float32)

        return of_bits
    return lambda infinity, element, lanes: (splat(element(-np.inf), lanes), splat(element(np.inf), lanes))


def roll(at, walk, asking, ends, noticed, is_output, element, lanes, depth, taps, step, has_indices, is_whole, nan):
    """Pool a block of columns; exists in compiled code only.

    Args:
        at: addresses of the plane, of all results, and of all indices.
        walk: where the first row begins in the plane, rows of results, where the last row of the plane begins, its
            columns, the block's first column, place of the plane, number of the first result, results of a row, and
            the number behind the last one of this call.
        asking: address to ask for ahead of time, bytes to the next one, whether that is done at all, and whether
            indices are written past the cache.
        ends: minus infinity, and infinity, in every lane.
        noticed: lanes in which a NaN was met; of results, where NaN is known.
        is_output: lanes that are results, of a row that is shorter than a register.
        element: type of elements in memory.
        lanes: of a register.
        depth: rows of a window.
        taps: columns of a window.
        step: between windows.
        has_indices: whether indices are stored.
        is_whole: whether all columns are inside.
        nan: IGNORED where NaN is only noticed, and such a block is to be pooled again; or which NaN is a maximum.

    Returns:
        `noticed`.
    """


@overload(roll, prefer_literal=True, jit_options=INLINED)
def _roll(at, walk, asking, ends, noticed, is_output, element, lanes, depth, taps, step, has_indices, is_whole, nan):
    wants_indices, size = has_indices.literal_value, element.dtype.bitwidth // 8
    stored = leave if nan.literal_value == IGNORED else leave_marked
    kept = max(1, depth.literal_value - 1)
    parts, apart = _parts(taps.literal_value, lanes.literal_value)

    def down(at, walk, asking, ends, noticed, is_output, element, lanes, depth, taps, step, has_indices, is_whole, nan):
        plane, y, indices = at
        row, count, last, width, start, base, target, small, end = walk
        ask, asked, is_far, is_past = asking
        edges, columns = (plane, last, width, start, base), tile_columns(start, lanes, parts, step, apart)
        bests, places = tile_repeat(ends[0], kept), tile_repeat(columns[0], kept)
        for _ in range(depth - step):
            bests, places, best, place, noticed = push_row(
                bests, places, noticed, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole, nan
            )
            row += width
        for _ in range(count):
            if is_far:
                for line in range(step * step):
                    prefetch(ask + line * LINE)
                ask += asked
            for _ in range(step):
                bests, places, best, place, noticed = push_row(
                    bests, places, noticed, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole, nan
                )
                row += width
            if target + lanes <= end:
                store(y + target * size, stored(best, element))
                if wants_indices and is_past:
                    store_past_cache(indices + target * 8, convert(place, types.int64))
                elif wants_indices:
                    store(indices + target * 8, convert(place, types.int64))
            else:
                store_masked(y + target * size, stored(best, element), is_output)
                if wants_indices:
                    store_masked(indices + target * 8, convert(place, types.int64), is_output)
            target += small
        return noticed

    return down


def _parts(taps, lanes):
    """How many vectors are loaded for a register of windows, and how far apart."""
    return (taps, 1) if taps <= LOADED_TAPS else (1 - (1 - taps) // lanes, lanes)


def push_row(bests, places, noticed, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole, nan):
    """Put the maxima of a row, and their places, at the ends of two queues; exists in compiled code only.

    Args:
        bests: queue of maxima.
        places: queue of their places.
        noticed: lanes in which a NaN was met; of results, where NaN is known.
        row: where it begins in the plane; beside the plane it stands for the nearest one.
        edges: address of the plane, where its last row begins, its columns, first column, place of the plane.
        columns: of what is loaded, not below 0, so that padding of -inf has the place of the first element on data.
        ends: minus infinity, and infinity, in every lane.
        element: type of elements in memory.
        lanes: of a register.
        depth: rows of a window.
        taps: columns of a window.
        step: between windows.
        is_whole: whether all columns are inside.
        nan: as for `roll`.

    Returns:
        The queues, the results of the windows that end here and their places, and `noticed`.
    """


@overload(push_row, prefer_literal=True, jit_options=INLINED)
def _push_row(bests, places, noticed, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole, nan):
    size = element.dtype.bitwidth // 8

    def push(bests, places, noticed, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole, nan):
        plane, last, width, start, base = edges
        first = min(max(row, 0), last)
        address = plane + (first + start) * size
        best, column, met = row_largest(address, start, width, columns, ends, element, taps, step, is_whole, nan)
        place = column + splat(types.int32(first + base), lanes)
        bests, places, best, place = tile_roll(bests, places, best, place, depth, step, nan)
        return bests, places, best, place, noticed | met

    return push


def row_largest(address, start, width, columns, ends, element, taps, step, is_whole, nan):
    """The maxima of neighbouring windows of a row, their columns, and a mask with some lane set if there is a NaN.

    Arguments are those of `load_window` and `push_row`; exists in compiled code only.
    """


@overload(row_largest, prefer_literal=True, jit_options=INLINED)
def _row_largest(address, start, width, columns, ends, element, taps, step, is_whole, nan):
    count = columns.count
    if taps.literal_value <= LOADED_TAPS:

        def load_taps(address, start, width, columns, ends, element, taps, step, is_whole, nan):
            values = load_window(address, start, width, ends[0], element, taps, step, is_whole)
            values = known(values, ends[1], element, nan)
            best, column = first_largest(values, columns, nan)
            return best, column, met_nan(values, best, step, ends[1], element, nan)

        return load_taps

    def slide(address, start, width, columns, ends, element, taps, step, is_whole, nan):
        values = known(load_parts(address, start, width, ends[0], element, count, is_whole), ends[1], element, nan)
        best, column = slide_largest(values, columns, taps, nan)
        return best, column, met_nan(values, best, 0, ends[1], element, nan)

    return slide


def known(values, limit, element, nan):
    """Vectors in which a NaN is one of float32 too, unless it is ignored; exists in compiled code only."""


@overload(known, prefer_literal=True, jit_options=INLINED)
def _known(values, limit, element, nan):
    if element.dtype == types.int16 and nan.literal_value != IGNORED:
        return lambda values, limit, element, nan: tile_mark_nan(values, limit)
    return lambda values, limit, element, nan: values


def met_nan(values, best, step, limit, element, nan):
    """A mask with some lane set if vectors hold a NaN, or their largest is one; exists in compiled code only."""


@overload(met_nan, prefer_literal=True, jit_options=INLINED)
def _met_nan(values, best, step, limit, element, nan):
    if nan.literal_value != IGNORED:
        return lambda values, best, step, limit, element, nan: unordered(best, best)
    if element.dtype == types.int16:
        return lambda values, best, step, limit, element, nan: any_beyond(values, step, limit)
    return lambda values, best, step, limit, element, nan: any_unordered(values, step)
