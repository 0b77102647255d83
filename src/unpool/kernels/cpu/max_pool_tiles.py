"""Max pooling of windows that tile the lanes: as wide as their stride, and all on data.

    best[lane], at[lane] = largest of x[corner + offset + lane * step + tap] over all offsets and taps, and its index

Every window has the same offsets from its corner, so a row of outputs needs no list of its own. Whole vectors are
loaded once and parted into taps. Memory is asked for in its own order, since rows that are read side by side, a few
lines of each, come at a third of the speed. Floats are compared without regard to NaN, which is only noticed by the
way; a block with NaN is done again in full. Large outputs are written past the cache: a plain store reads its line.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
from numba import types

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.order import beats, follow, order
from unpool.kernels.cpu.vector import (
    address_of,
    convert,
    count_set,
    count_up,
    fence,
    gather,
    load_every,
    load_taps,
    prefetch,
    select,
    splat,
    store,
    store_masked,
    store_past_cache,
    unordered,
)

STEPS = (1, 2, 4)
AHEAD = (
    4096  # bytes that are asked for in memory order before they are read, beyond the rows that are read side by side
)
REACH = 1 << 18  # bytes of such rows, beyond which what was asked for would be gone before it is read
CACHE_BYTES = 1 << 20  # x beyond this is worth asking for
LINE = 64  # bytes
PAST_CACHE = 1 << 26  # bytes of x and outputs from which on these are not kept in the cache


@dataclass(frozen=True, eq=False)
class Tiling:
    """Where windows begin, and what lies in each.

    Attributes:
        corners: (rows, 2) for every row of outputs the element at which its first window begins, and its place.
        offsets: (rows of a window, 2) the same from there on, in row-major order.
        reach: elements between the first and the last row that are read side by side.
    """

    corners: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    reach: int


@lru_cache(maxsize=64)
def tiling(leading: tuple[Axis, ...], lanes: Axis, unit: int) -> Tiling | None:
    """The tiling of a plane, None unless its windows lie on data, do not overlap, and leave no gaps along the lanes.

    Args:
        leading: the axes before the lanes.
        lanes: positions of the last axis, or channels.
        unit: elements between neighbours of the last leading axis that are one place of an index.
    """
    window, axes = lanes.window, (*leading, lanes)
    if window.reach != window.stride or window.stride not in STEPS or window.size != window.stride:
        return None
    if any(axis.window.reach > axis.window.stride or axis.begin for axis in axes):
        return None
    if any((axis.small - 1) * axis.window.stride + axis.window.reach > axis.large for axis in axes):
        return None
    corners, offsets = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for number, axis in enumerate(leading):
        weight = math.prod(each.large for each in axes[number + 1 :])
        corners = (corners[:, None] + np.arange(axis.small) * axis.window.stride * weight).reshape(-1)
        offsets = (offsets[:, None] + np.arange(axis.window.size) * axis.window.dilation * weight).reshape(-1)
    places, rows = np.stack([corners, corners // unit], axis=1), np.stack([offsets, offsets // unit], axis=1)
    return Tiling(places, rows, int(offsets[-1]))


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
def kernel(dtype: str, step: int, has_indices: bool, is_wide: bool, nan_last: bool, lanes: int):
    """The compiled kernel for one element type.

    Args:
        dtype: NumPy name of the elements as they are compared: float32, float64, int8, uint8; int16 means the bits of
            a 16-bit float.
        step: width of a window along the lanes: 1, 2 or 4.
        has_indices: whether indices are stored.
        is_wide: whether a plane has 2**31 elements or more.
        nan_last: whether the last NaN of a window is found, rather than the first.
        lanes: outputs in one block.
    """
    return _make(
        getattr(types, dtype),
        types.int64 if is_wide else types.int32,
        lanes,
        np.dtype(dtype).itemsize,
        step,
        int(has_indices),
        int(nan_last),
        int(dtype.startswith("float") or not nan_last),
        source_digest(),
    )


def _make(element, place_type, lanes, size, step, has_indices, nan_last, is_plain, digest):
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
        count = offsets.shape[0]
        share = plane // (corners.shape[0] * small)
        outer, row = first // corners.shape[0], first % corners.shape[0]
        for job in range(first, stop):
            done = 0
            while done < small:
                block = min(done, max(0, small - lanes))
                done = block + lanes
                base = source + (outer * plane + corners[row, 0] + block * step) * size
                is_safe = base + (offsets[count - 1, 0] + lanes * step) * size <= end
                best, key, at = nothing, lowest_key, splat(place_type(0), lanes)
                odd = is_output ^ is_output
                if ahead:
                    begin = source + (outer * plane + (row * small + block) * share) * size + ahead
                    for line in range(0, lanes * share * size, LINE):
                        prefetch(begin + line)
                if is_safe:
                    for place in range(count):
                        address, code = base + offsets[place, 0] * size, offsets[place, 1]
                        taps = load_taps(address, element, lanes, step)
                        odd = odd | unordered(taps[0], taps[-1])
                        if step == 4:
                            odd = odd | unordered(taps[1 % step], taps[2 % step])
                        for tap in range(step):
                            value = taps[tap]
                            rank = order(value, limit)
                            wins = rank > key if is_plain else beats(rank, key, nan_last)
                            key = select(wins, rank, key)
                            best = follow(wins, value, best, key)
                            at = select(wins, splat(place_type(code + tap), lanes), at)
                if not is_safe or count_set(odd & is_output):
                    best, key, at = nothing, lowest_key, splat(place_type(0), lanes)
                    for place in range(count):
                        for tap in range(step):
                            address = base + (offsets[place, 0] + tap) * size
                            if is_safe and address + lanes * step * size <= end:
                                value = load_every(address, element, lanes, step, step * size)
                            else:
                                value = gather(address, step * size, is_output, nothing)
                            rank = order(value, limit)
                            wins = beats(rank, key, nan_last)
                            key = select(wins, rank, key)
                            best = follow(wins, value, best, key)
                            at = select(wins, splat(place_type(offsets[place, 1] + tap), lanes), at)
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
