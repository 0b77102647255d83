"""Max pooling of windows that tile the lanes: as wide as their stride, and all on data. So do channels, any window.

    best[lane], at[lane] = largest of x[corner + offset + lane * step + tap] over all offsets and taps, and its index

Most windows have the same offsets from their corners, so a row of outputs needs no list of its own; those that reach
into padding have a few others. Whole vectors are loaded once and parted into taps. Memory is asked for in its own
order, since rows that are read side by side, a few lines of each, come at a third of the speed. Elements are compared
without regard to NaN, which is only noticed by the way; such a block is done again in full, and the next one in full at
once. Outputs that no cache holds are written past it: a plain store reads its line, and displaces x.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from numba import types

from unpool.geometry import Axis, shrinking_walk
from unpool.kept import kept
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.max_pool_direct import place_type
from unpool.kernels.cpu.order import beats, follow, is_amiss, order
from unpool.kernels.cpu.vector import (
    address_of,
    convert,
    count_set,
    count_up,
    fence,
    gather,
    load_taps,
    prefetch,
    select,
    splat,
    store,
    store_masked,
    store_past_cache,
    total_of,
)

STEPS = (1, 2, 4)
AHEAD = (
    4096  # bytes that are asked for in memory order before they are read, beyond the rows that are read side by side
)
REACH = 1 << 18  # bytes of such rows, beyond which what was asked for would be gone before it is read
CACHE_BYTES = 1 << 20  # x beyond this is worth asking for
LINE = 64  # bytes
MOST_OFFSETS = 1 << 16  # in all lists
PAST_CACHE = 1 << 25  # bytes of x and outputs from which on outputs are not kept in the cache


@dataclass(frozen=True, eq=False)
class Tiling:
    """Where windows begin, and what lies in each.

    Attributes:
        corners: (rows, 3) for every row of outputs the element at which its first window begins, its place, and the
            number of its list.
        offsets: (lists, rows of a window, 2) elements and places from there on, in row-major order; rows in padding
            repeat one of the same window on data, so that all lists are equally long.
        reach: elements between the first and the last row that are read side by side.
        is_disjoint: whether no element lies in two windows.
    """

    corners: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    reach: int
    is_disjoint: bool


@kept(64)
def tiling(leading: tuple[Axis, ...], lanes: Axis, unit: int) -> Tiling | None:
    """The tiling of a plane, None unless its windows tile the lanes, all on data, and none of them is empty.

    Args:
        leading: the axes before the lanes.
        lanes: positions of the last axis, or channels.
        unit: elements between neighbours of the last leading axis that are one place of an index.
    """
    window, axes = lanes.window, (*leading, lanes)
    if window.reach != window.stride or window.stride not in STEPS or window.size != window.stride:
        return None
    if lanes.begin or lanes.small * window.stride > lanes.large:
        return None
    if not all(shrinking_walk(axis).count.all() for axis in leading):
        return None
    corners, offsets = np.zeros((1, 2), np.int64), np.zeros((1, 1), np.int64)
    for number, axis in enumerate(leading):
        found = _rows(axis, MOST_OFFSETS // offsets.size)
        if found is None:
            return None
        (starts, lists), weight = found, math.prod(each.large for each in axes[number + 1 :])
        corners = corners[:, np.newaxis] * (1, len(lists)) + starts * (weight, 1)
        offsets = offsets[:, np.newaxis, :, np.newaxis] + lists[:, np.newaxis] * weight
        corners, offsets = corners.reshape(-1, 2), offsets.reshape(-1, math.prod(offsets.shape[2:]))
    places = np.stack([corners[:, 0], corners[:, 0] // unit, corners[:, 1]], axis=1)
    is_disjoint = all(axis.window.reach <= axis.window.stride for axis in leading)
    return Tiling(places, np.stack([offsets, offsets // unit], axis=-1), int(offsets[:, -1].max()), is_disjoint)


def _rows(axis: Axis, most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """For every position the first of its taps on data and the number of its list; and the lists, from there on.

    Taps in padding are moved to the nearest one on data: a maximum, and the first of equals, stay what they are.

    Returns:
        None where the lists have more than `most` taps.
    """
    walk = shrinking_walk(axis)
    kinds, number = np.unique(np.stack([walk.tap, walk.count], axis=1), axis=0, return_inverse=True)
    if len(kinds) * axis.window.size > most:
        return None
    taps = np.clip(np.arange(axis.window.size) - kinds[:, :1], 0, kinds[:, 1:] - 1) * axis.window.dilation
    return np.stack([walk.other, number.reshape(-1)], axis=1), taps


def lanes_of(size: int, small: int, *, is_exact: bool) -> int:
    """Outputs in one block.

    Args:
        size: bytes of an element.
        small: outputs in a row.
        is_exact: whether blocks are not to overlap, where half a register prevents it.
    """
    register = vector_bytes() // size
    half = register // 2
    is_exact_in_halves = is_exact and small % register > 0 and small % half == 0
    return half if small <= half or is_exact_in_halves else register


def ahead(x, reach: int) -> int:
    """Bytes between what is read and what is asked for; 0 where nothing is to be asked for."""
    rows = reach * x.itemsize
    return AHEAD + rows if x.nbytes > CACHE_BYTES and rows <= REACH else 0


def is_line_wise(size: int, small: int, lanes: int) -> bool:
    """Whether rows of blocks, of elements of so many bytes, are whole lines of memory if the first one begins one."""
    return small % lanes == 0 and small * size % LINE == 0


@cache
def kernel(dtype: str, step: int, has_indices: bool, is_wide: bool, lanes: int):
    """The compiled kernel for one element type.

    Args:
        dtype: NumPy name of the elements as they are compared: float32, float64, int8, uint8; int16 means the bits of
            a 16-bit float.
        step: width of a window along the lanes: 1, 2 or 4.
        has_indices: whether indices are stored.
        is_wide: whether places have 64 bits.
        lanes: outputs in one block.
    """
    return _make(
        getattr(types, dtype),
        place_type(dtype, is_wide=is_wide),
        lanes,
        np.dtype(dtype).itemsize,
        step,
        int(has_indices),
        source_digest(),
    )


def _make(element, place_type, lanes, size, step, has_indices, digest):
    @compiled()
    def pool_tiles(x, y, indices, numbers, corners, offsets, lowest, infinity, first, stop):
        """Memory order: outer, row of outputs, block of lanes. A last block moves back over its neighbour rather than
        ending short.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        elements, plane, small, outer_weight, lane_weight = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
        ahead = numbers[5]
        y_past_cache = numbers[6] != 0 and address_of(y) % LINE == 0
        indices_past_cache = numbers[7] != 0 and address_of(indices) % LINE == 0
        source, end = address_of(x), address_of(x) + elements * size
        nothing, limit = splat(element(lowest), lanes), splat(element(infinity), lanes)
        lowest_key = order(nothing, limit)
        ramp = count_up(types.int64, lanes, 1)
        is_output = ramp < splat(small, lanes)
        weights = ramp * splat(np.int64(step * lane_weight), lanes)
        count = offsets.shape[1]
        share = plane // (corners.shape[0] * small)
        outer, row = first // corners.shape[0], first % corners.shape[0]
        is_last, has_nan = numbers[8] != 0, False
        for job in range(first, stop):
            done, rows = 0, offsets[corners[row, 2]]
            while done < small:
                block = min(done, max(0, small - lanes))
                done = block + lanes
                base = source + (outer * plane + corners[row, 0] + block * step) * size
                is_safe = base + (rows[count - 1, 0] + lanes * step) * size <= end
                best, key, at = nothing, lowest_key, splat(place_type(0), lanes)
                total = splat(element(0), lanes)
                if ahead:
                    begin = source + (outer * plane + (row * small + block) * share) * size + ahead
                    for line in range(0, lanes * share * size, LINE):
                        prefetch(begin + line)
                if is_safe and not has_nan:
                    for place in range(count):
                        address, code = base + rows[place, 0] * size, rows[place, 1]
                        taps = load_taps(address, element, lanes, step)
                        for tap in range(step):
                            value = taps[tap]
                            total = total_of(total, value)
                            rank = order(value, limit)
                            wins = rank > key
                            key = select(wins, rank, key)
                            best = follow(wins, value, best, key)
                            at = select(wins, splat(place_type(code + tap), lanes), at)
                    has_nan = count_set(is_amiss(total, key, is_last) & is_output) > 0
                if is_safe and has_nan:
                    best, key, at = nothing, lowest_key, splat(place_type(0), lanes)
                    for place in range(count):
                        address, code = base + rows[place, 0] * size, rows[place, 1]
                        taps = load_taps(address, element, lanes, step)
                        for tap in range(step):
                            value = taps[tap]
                            rank = order(value, limit)
                            wins = beats(rank, key, is_last)
                            key = select(wins, rank, key)
                            best = follow(wins, value, best, key)
                            at = select(wins, splat(place_type(code + tap), lanes), at)
                    has_nan = count_set(is_amiss(key, key, is_last) & is_output) > 0
                if not is_safe:
                    for place in range(count):
                        for tap in range(step):
                            address = base + (rows[place, 0] + tap) * size
                            value = gather(address, step * size, is_output, nothing)
                            rank = order(value, limit)
                            wins = beats(rank, key, is_last)
                            key = select(wins, rank, key)
                            best = follow(wins, value, best, key)
                            at = select(wins, splat(place_type(rows[place, 1] + tap), lanes), at)
                target = job * small + block
                start = outer * outer_weight + corners[row, 1] + block * step * lane_weight
                index = convert(at, types.int64) + splat(start, lanes) + weights
                if small >= lanes:
                    if y_past_cache:
                        store_past_cache(address_of(y) + target * size, best)
                    else:
                        store(address_of(y) + target * size, best)
                    if has_indices and indices_past_cache:
                        store_past_cache(address_of(indices) + target * 8, index)
                    elif has_indices:
                        store(address_of(indices) + target * 8, index)
                else:
                    store_masked(address_of(y) + target * size, best, is_output)
                    if has_indices:
                        store_masked(address_of(indices) + target * 8, index, is_output)
            row += 1
            if row == corners.shape[0]:
                outer, row = outer + 1, 0
        if y_past_cache or indices_past_cache:
            fence()

    return pool_tiles
