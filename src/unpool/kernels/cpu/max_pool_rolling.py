"""Max pooling of overlapping windows of two axes, up to 13 wide: the maxima of rows roll through registers.

    pooled[r, i] = max over taps t of x[r, i * step + t]              the leftmost of equals
    y[j, i]      = max over rows q of pooled[j * step + q, i]         the topmost of equals

A block of neighbouring columns goes down a band of rows. Queues hold the maxima of the last rows and their places, so
that every row is read once. A maximum of many is one of two that overlap, each of two of half the size, and so on: both
among the vectors of a row and down the rows. The bits of 16-bit floats are compared as the upper half of a
float32, which orders them alike; what is beyond their infinity is NaN.

Columns beside the plane are -inf, with the places of the first element on data; a row beside it stands for the nearest
one, which the same window holds too. NaN is only noticed: then the job's flag is set, and its outputs are for the
caller to find in another way.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.max_pool_moves import enter, leave
from unpool.kernels.cpu.vector import (
    address_of,
    any_beyond,
    any_of,
    any_unordered,
    convert,
    fence,
    first_lanes,
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
    tile_repeat,
    tile_roll,
)

INLINED: Any = {"forceinline": True, "error_model": "numpy"}

_MOST_TAPS = {(1, True): 13, (1, False): 13, (2, True): 5, (2, False): 5}
"""By stride, and whether indices are wanted: windows so wide and high are pooled faster than in another way."""

BAND_BYTES = 1 << 14
"""So much of x is read at a time, to stay in the first cache."""

LOADED_TAPS = 7
"""Windows so wide are loaded tap by tap; wider ones slide over whole vectors."""

_LEAST_ROWS = 8  # of a band, for each row before it that is pooled twice
_LINE = 64


@dataclass(frozen=True, slots=True)
class Bands:
    """How planes are cut into jobs: every plane into `count` bands of `height` rows of outputs."""

    count: int
    height: int


def is_possible(axes: tuple[Axis, ...], dtype: str, *, has_indices: bool) -> bool:
    """Whether windows are small, overlap, step alike along both axes, and hold a row of the plane each."""
    if len(axes) != 2 or dtype not in ("float32", "float64", "int16"):
        return False
    windows = [axis.window for axis in axes]
    stride = windows[0].stride
    most = _MOST_TAPS.get((stride, has_indices), 0)
    return (
        stride == windows[1].stride
        and all(stride <= window.size <= most and window.dilation == 1 for window in windows)
        and windows[0].size * windows[1].size > stride**2
        and all(0 <= axis.begin < axis.window.size for axis in axes)
        and all((axis.small - 1) * stride - axis.begin < axis.large for axis in axes)
    )


def bands(axes: tuple[Axis, ...], size: int) -> Bands:
    """The bands of a plane, for elements of so many bytes."""
    rows, columns = axes
    fitting = BAND_BYTES // max(1, columns.large * size * rows.window.stride)
    count = -(-rows.small // max(1, _LEAST_ROWS * (rows.window.size - rows.window.stride), fitting))
    height = -(-rows.small // count)
    return Bands(-(-rows.small // height), height)


def numbers(
    axes: tuple[Axis, ...],
    cut: Bands,
    elements: int,
    size: int,
    infinity: int,
    *,
    is_far: bool,
    was_written: bool,
    per_plane: bool,
) -> npt.NDArray[np.int64]:
    """What the kernel takes as `numbers`.

    Args:
        axes: rows and columns.
        cut: the jobs.
        elements: of x.
        size: bytes of each.
        infinity: its bits.
        is_far: whether x comes from memory, and is asked for ahead of time.
        was_written: whether the memory of outputs has been in use: then far indices are written past the cache.
        per_plane: whether places count inside their own plane.
    """
    rows, columns = axes
    blocks = -(-columns.small // lanes_of(size))
    asked = rows.window.stride * columns.large * size // blocks
    return np.array([
        rows.large, columns.large, rows.small, columns.small, rows.begin, columns.begin,
        elements, cut.count, cut.height, int(not per_plane), asked, int(is_far),
        infinity, int(is_far and was_written and is_line_wise(columns.small, size)),
    ])  # fmt: skip


def is_line_wise(small: int, size: int) -> bool:
    """Whether blocks of indices are whole lines of memory, in rows of `small` outputs of `size` bytes."""
    line = _LINE // 8
    return small % line == 0 and lanes_of(size) % line == 0 and small >= lanes_of(size)


def lanes_of(size: int) -> int:
    """Outputs in one register, for elements of so many bytes, which are compared in 4 or more."""
    return vector_bytes() // max(4, size)


@cache
def kernel(dtype: str, depth: int, taps: int, step: int, has_indices: bool):
    """The compiled kernel for one element type and window.

    Args:
        dtype: float32 or float64; int16 means the bits of a 16-bit float.
        depth: rows of a window.
        taps: columns of a window.
        step: rows, and columns, between windows: 1 or 2.
        has_indices: whether indices are stored.
    """
    size = np.dtype(dtype).itemsize
    return _make(getattr(types, dtype), size, lanes_of(size), depth, taps, step, int(has_indices), source_digest())


def _make(element, size, lanes, depth, taps, step, has_indices, digest):
    span = (lanes - 1) * step + taps
    read = span if step == 1 and taps <= LOADED_TAPS else -(-span // lanes) * lanes

    @compiled()
    def roll_planes(x, y, indices, flags, numbers, first, stop):
        """Memory order: outer, band, block of columns, row. A last block moves back over its neighbour.

        Returns whether a flag was set.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        height, width, small_height, small = numbers[0], numbers[1], numbers[2], numbers[3]
        top, begin, elements, count, band_height = numbers[4], numbers[5], numbers[6], numbers[7], numbers[8]
        counted, asked, is_far = numbers[9], numbers[10], numbers[11] != 0
        ends, is_past = bounds(numbers[12], element, lanes), numbers[13] != 0 and address_of(indices) % _LINE == 0
        nothing = ends[0]
        is_output, none, found = first_lanes(small, nothing), first_lanes(0, nothing), False
        end = (stop // count * small_height + min(stop % count * band_height, small_height)) * small
        outer, low = first // count, first % count * band_height
        for job in range(first, stop):
            high = min(low + band_height, small_height)
            plane, last_row = outer * height * width, min((high - 1) * step - top + depth, height) - 1
            ask = address_of(x) + (plane + (last_row + 1) * width) * size
            noticed = none
            for block in range(0, small, lanes):
                column = max(0, min(block, small - lanes))
                start = column * step - begin
                target = (outer * small_height + low) * small + column
                is_whole = start >= 0 and start + span <= width and plane + last_row * width + start + read <= elements
                at = address_of(x) + plane * size, address_of(y), address_of(indices)
                walk = ((low * step - top) * width, high - low, (height - 1) * width, width, start, plane * counted,
                        target, small, end)  # fmt: skip
                asking = ask, asked, is_far, is_past
                if is_whole:
                    noticed = roll(at, walk, asking, ends, noticed, is_output, element, lanes, depth, taps, step,
                                   has_indices, 1)  # fmt: skip
                else:
                    noticed = roll(at, walk, asking, ends, noticed, is_output, element, lanes, depth, taps, step,
                                   has_indices, 0)  # fmt: skip
                ask += asked * (high - low)
            flags[job] = any_of(noticed)
            found |= flags[job]
            low += band_height
            if low >= small_height:
                outer, low = outer + 1, 0
        if is_past:
            fence()
        return found

    return roll_planes


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


def roll(at, walk, asking, ends, noticed, is_output, element, lanes, depth, taps, step, has_indices, is_whole):
    """Pool a block of columns; exists in compiled code only.

    Args:
        at: addresses of the plane, of the block's first result, and of its index.
        walk: first row, rows of results, rows and columns of the plane, first column, place of the plane, results of a
            row, and how many of them are left to this call from the first one on.
        asking: address to ask for ahead of time, bytes to the next one, and how many lines of a cache.
        ends: minus infinity, and infinity, in every lane.
        noticed: lanes in which a NaN was met.
        is_output: lanes that are results, of a row that is shorter than a register.
        element: type of elements in memory.
        lanes: of a register.
        depth: rows of a window.
        taps: columns of a window.
        step: between windows.
        has_indices: whether indices are stored.
        is_whole: whether all columns are inside.

    Returns:
        `noticed`.
    """


@overload(roll, prefer_literal=True, jit_options=INLINED)
def _roll(at, walk, asking, ends, noticed, is_output, element, lanes, depth, taps, step, has_indices, is_whole):
    wants_indices, size = has_indices.literal_value, element.dtype.bitwidth // 8
    kept = max(1, depth.literal_value - 1)
    parts, apart = _parts(taps.literal_value, lanes.literal_value)

    def go_down(at, walk, asking, ends, noticed, is_output, element, lanes, depth, taps, step, has_indices, is_whole):
        plane, y, indices = at
        row, count, last, width, start, base, target, small, end = walk
        ask, asked, is_far, is_past = asking
        edges, columns = (last, width, start, base), tile_columns(start, lanes, parts, step, apart)
        bests, places = tile_repeat(ends[0], kept), tile_repeat(columns[0], kept)
        for _ in range(depth - step):
            bests, places, best, place, noticed = push_row(
                bests, places, noticed, plane, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole
            )
            row += width
        for _ in range(count):
            if is_far:
                for line in range(step * step):
                    prefetch(ask + line * _LINE)
                ask += asked
            for _ in range(step):
                bests, places, best, place, noticed = push_row(
                    bests,
                    places,
                    noticed,
                    plane,
                    row,
                    edges,
                    columns,
                    ends,
                    element,
                    lanes,
                    depth,
                    taps,
                    step,
                    is_whole,
                )
                row += width
            if target + lanes <= end:
                store(y + target * size, leave(best, element))
                if wants_indices and is_past:
                    store_past_cache(indices + target * 8, convert(place, types.int64))
                elif wants_indices:
                    store(indices + target * 8, convert(place, types.int64))
            else:
                store_masked(y + target * size, leave(best, element), is_output)
                if wants_indices:
                    store_masked(indices + target * 8, convert(place, types.int64), is_output)
            target += small
        return noticed

    return go_down


def _parts(taps, lanes):
    """How many vectors are loaded for a register of windows, and how far apart."""
    return (taps, 1) if taps <= LOADED_TAPS else (1 - (1 - taps) // lanes, lanes)


def push_row(
    bests, places, noticed, plane, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole
):  # fmt: skip
    """Put the maxima of a row, and their places, at the ends of two queues; exists in compiled code only.

    Args:
        bests: queue of maxima.
        places: queue of their places.
        noticed: lanes in which a NaN was met.
        plane: its address.
        row: its number; beside the plane it stands for the nearest one.
        edges: rows and columns of the plane, first column, place of the plane.
        columns: of what is loaded, not below 0, so that padding of -inf has the place of the first element on data.
        ends: minus infinity, and infinity, in every lane.
        element: type of elements in memory.
        lanes: of a register.
        depth: rows of a window.
        taps: columns of a window.
        step: between windows.
        is_whole: whether all columns are inside.

    Returns:
        The queues, the results of the windows that end here and their places, and `noticed`.
    """


@overload(push_row, prefer_literal=True, jit_options=INLINED)
def _push_row(bests, places, noticed, plane, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole):
    size = element.dtype.bitwidth // 8

    def push(bests, places, noticed, plane, row, edges, columns, ends, element, lanes, depth, taps, step, is_whole):
        last, width, start, base = edges
        first = min(max(row, 0), last)
        address = plane + (first + start) * size
        best, column, nan = row_largest(address, start, width, columns, ends, element, taps, step, is_whole)
        place = column + splat(types.int32(first + base), lanes)
        bests, places, best, place = tile_roll(bests, places, best, place, depth, step)
        return bests, places, best, place, noticed | nan

    return push


def row_largest(address, start, width, columns, ends, element, taps, step, is_whole):
    """The maxima of neighbouring windows of a row, their columns, and a mask with some lane set if there is a NaN.

    Arguments are those of `load_window` and `push_row`; exists in compiled code only.
    """


@overload(row_largest, prefer_literal=True, jit_options=INLINED)
def _row_largest(address, start, width, columns, ends, element, taps, step, is_whole):
    if taps.literal_value <= LOADED_TAPS:

        def load_taps(address, start, width, columns, ends, element, taps, step, is_whole):
            values = load_window(address, start, width, ends[0], element, taps, step, is_whole)
            best, column = first_largest(values, columns)
            return best, column, any_nan(values, step, ends[1], element)

        return load_taps
    count = columns.count

    def slide(address, start, width, columns, ends, element, taps, step, is_whole):
        values = load_parts(address, start, width, ends[0], element, count, is_whole)
        best, column = slide_largest(values, columns, taps)
        return best, column, any_nan(values, 0, ends[1], element)

    return slide


def any_nan(values, step, limit, element):
    """A mask with some lane set if vectors hold a NaN; exists in compiled code only."""


@overload(any_nan, prefer_literal=True, jit_options=INLINED)
def _any_nan(values, step, limit, element):
    if element.dtype == types.int16:
        return lambda values, step, limit, element: any_beyond(values, step, limit)
    return lambda values, step, limit, element: any_unordered(values, step)
