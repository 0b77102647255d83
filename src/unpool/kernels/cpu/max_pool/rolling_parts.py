"""The parts of the rolling pool: a block of columns goes down a band of rows.

All are compiled into the kernel. `fixed` is what the kernel is compiled for:

    element      type of elements in memory
    lanes        of a register
    depth, taps  rows and columns of a window
    step         rows, and columns, between windows
    has_indices  whether indices are stored
    is_inside    whether all columns of the block are inside the plane

`nan` is the literal IGNORED where NaN is only noticed, and such a block is to be pooled again. Where NaN is known, it
is FIRST or LAST: which of several is the maximum.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types

from unpool.kernels.cpu.max_pool.elements import enter, leave, leave_marked
from unpool.kernels.cpu.vector import (
    any_beyond,
    any_of,
    any_unordered,
    convert,
    first_largest,
    lasting,
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
from unpool.kernels.cpu.vector.by_type import by_type

LINE = 64
"""Bytes of a line of the caches."""

LOADED_TAPS = 7
"""Windows so wide are loaded tap by tap; wider ones slide over whole vectors."""


class Columns(NamedTuple):
    """A block of columns of a plane. Rows of x are named by the element of the plane that they begin with.

    Attributes:
        plane: its address.
        last_row: of the plane.
        width: columns of the plane.
        first: column of the block, below 0 where that is beside the plane.
        place: of the plane, as indices count.
    """

    plane: int
    last_row: int
    width: int
    first: int
    place: int


class Band(NamedTuple):
    """The way of a block of columns down a band of rows.

    Attributes:
        y: address of all results.
        indices: address of all indices.
        first_row: of x in the band; it may be beside the plane.
        target: number of the first result.
        small: results of a row of y.
        rows: of results.
        end: number behind the last result of this call.
        ask: address to ask for ahead of time.
        asked_bytes: from there to the next one.
        is_asked_for: whether that is done at all.
        indices_past_cache: whether indices are written past the cache.
    """

    y: int
    indices: int
    first_row: int
    target: int
    small: int
    rows: int
    end: int
    ask: int
    asked_bytes: int
    is_asked_for: bool
    indices_past_cache: bool


class Queues(NamedTuple):
    """The maxima of the last rows, vectors of each, the oldest first.

    Attributes:
        values: tuple of maxima.
        places: tuple of their places in the tensor, or in the plane.
    """

    values: Any
    places: Any


@by_type(inline=True)
def bounds(infinity, fixed):
    """Minus and plus infinity as elements are compared, in every lane, from the bits of the second."""
    element, lanes = fixed.element, fixed.lanes
    if element == types.int16:

        def of_bits(infinity, fixed):
            low, high = splat(element(infinity - 0x8000), lanes), splat(element(infinity), lanes)
            return enter(low, types.float32), enter(high, types.float32)

        return of_bits
    return lambda infinity, fixed: (splat(element(-np.inf), lanes), splat(element(np.inf), lanes))


@by_type(inline=True)
def roll(block, band, ends, noticed, is_output, nan, fixed):
    """Pool a block of columns, row by row.

    Args:
        block: its columns.
        band: its way.
        ends: minus infinity, and infinity, in every lane.
        noticed: lanes in which a NaN was met, as a lasting mask; of results, where NaN is known.
        is_output: lanes that are results, of a row that is shorter than a register.
        nan: which NaN is a maximum.
        fixed: what the kernel is compiled for.

    Returns:
        `noticed`.
    """
    element, lanes, step, has_indices = fixed.element, fixed.lanes, fixed.step, fixed.has_indices
    size, stored = element.bitwidth // 8, leave if isinstance(nan, types.IntegerLiteral) else leave_marked
    kept, before, (parts, apart) = max(1, fixed.depth - 1), fixed.depth - step, _parts(fixed.taps, lanes)
    of_rows = fixed.without("has_indices")

    def down(block, band, ends, noticed, is_output, nan, fixed):
        row, target, ask = band.first_row, band.target, band.ask
        columns = tile_columns(block.first, lanes, parts, step, apart)
        queues = Queues(tile_repeat(ends[0], kept), tile_repeat(columns[0], kept))
        for _ in range(before):
            queues, best, place, noticed = push_row(queues, noticed, row, block, columns, ends, nan, of_rows)
            row += block.width
        for _ in range(band.rows):
            if band.is_asked_for:
                for line in range(step * step):
                    prefetch(ask + line * LINE)
                ask += band.asked_bytes
            for _ in range(step):
                queues, best, place, noticed = push_row(queues, noticed, row, block, columns, ends, nan, of_rows)
                row += block.width
            if target + lanes <= band.end:
                store(band.y + target * size, stored(best, element))
                if has_indices and band.indices_past_cache:
                    store_past_cache(band.indices + target * 8, convert(place, types.int64))
                elif has_indices:
                    store(band.indices + target * 8, convert(place, types.int64))
            else:
                store_masked(band.y + target * size, stored(best, element), is_output)
                if has_indices:
                    store_masked(band.indices + target * 8, convert(place, types.int64), is_output)
            target += band.small
        return noticed

    return down


@by_type()
def roll_again(block, band, ends, noticed, is_output, nan, fixed):
    """As `roll`, with regard to NaN; whether there was one. Not inlined, so that its caller keeps its registers."""
    return lambda block, band, ends, noticed, is_output, nan, fixed: any_of(
        roll(block, band, ends, noticed, is_output, nan, fixed)
    )


def _parts(taps, lanes):
    """How many vectors are loaded for a register of windows, and how far apart."""
    return (taps, 1) if taps <= LOADED_TAPS else (1 - (1 - taps) // lanes, lanes)


@by_type(inline=True)
def push_row(queues, noticed, row, block, columns, ends, nan, fixed):
    """Put the maxima of a row of x, and their places, at the ends of the queues.

    Args:
        queues: of the rows before.
        noticed: lanes in which a NaN was met, as a lasting mask; of results, where NaN is known.
        row: of x; for one beside the plane the nearest one is taken.
        block: its columns.
        columns: of what is loaded, not below 0, so that padding of -inf has the place of the first element on data.
        ends: minus infinity, and infinity, in every lane.
        nan: which NaN is a maximum.
        fixed: what the kernel is compiled for.

    Returns:
        The queues, the results of the windows that end here and their places, and `noticed`.
    """
    size, lanes, depth, step = fixed.element.bitwidth // 8, fixed.lanes, fixed.depth, fixed.step

    def push(queues, noticed, row, block, columns, ends, nan, fixed):
        nearest = min(max(row, 0), block.last_row)
        address = block.plane + (nearest + block.first) * size
        best, column, met = row_largest(address, block, columns, ends, nan, fixed)
        place = column + splat(types.int32(nearest + block.place), lanes)
        values, places, best, place = tile_roll(queues.values, queues.places, best, place, depth, step, nan)
        return Queues(values, places), best, place, noticed | lasting(met, best)

    return push


@by_type(inline=True)
def row_largest(address, block, columns, ends, nan, fixed):
    """The maxima of neighbouring windows of a row, their columns, and a mask with some lane set if there is a NaN.

    Args:
        address: of the first window.
        block: its columns.
        columns: of the vectors that are loaded.
        ends: minus infinity, and infinity, in every lane.
        nan: which NaN is a maximum.
        fixed: what the kernel is compiled for.
    """
    element, taps, step, is_inside, count = fixed.element, fixed.taps, fixed.step, fixed.is_inside, columns.count
    if taps <= LOADED_TAPS:

        def load_taps(address, block, columns, ends, nan, fixed):
            values = load_window(address, block.first, block.width, ends[0], element, taps, step, is_inside)
            values = known(values, ends[1], element, nan)
            best, column = first_largest(values, columns, nan)
            return best, column, met_nan(values, best, step, ends[1], element, nan)

        return load_taps

    def slide(address, block, columns, ends, nan, fixed):
        values = load_parts(address, block.first, block.width, ends[0], element, count, is_inside)
        values = known(values, ends[1], element, nan)
        best, column = slide_largest(values, columns, taps, nan)
        return best, column, met_nan(values, best, 0, ends[1], element, nan)

    return slide


@by_type(inline=True)
def known(values, limit, element, nan):
    """Vectors in which a NaN is one of float32 too, unless it is ignored."""
    if element.dtype == types.int16 and not isinstance(nan, types.IntegerLiteral):
        return lambda values, limit, element, nan: tile_mark_nan(values, limit)
    return lambda values, limit, element, nan: values


@by_type(inline=True)
def met_nan(values, best, step, limit, element, nan):
    """A mask with some lane set if vectors hold a NaN, or their largest is one."""
    if not isinstance(nan, types.IntegerLiteral):
        return lambda values, best, step, limit, element, nan: unordered(best, best)
    if element.dtype == types.int16:
        return lambda values, best, step, limit, element, nan: any_beyond(values, step, limit)
    return lambda values, best, step, limit, element, nan: any_unordered(values, step)
