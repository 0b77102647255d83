"""Max pooling of windows that tile the lanes: as wide as their stride, and all on data; any, with channels as lanes.

    best[lane], at[lane] = largest of x[corner + offset + lane * step + tap] over all offsets and taps, and its index

Most windows have the same offsets from their corners, so a row of outputs needs no list of its own; windows that reach
into padding have their own offsets. Whole vectors are loaded once and split into taps. A block reads some cache lines
of each of several rows in turn. In this order memory delivers a third of its speed, so x is prefetched in memory order.
Comparisons ignore NaN; a block in which one occurs is compared again in full, and the next block in full at once.
Outputs that no cache holds are stored non-temporally: a plain store reads its line, and displaces x.
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, pooling_walk, reach
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import axis_at, large_sizes, sorted_unique
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool import running_max
from unpool.kernels.cpu.max_pool.elements import may_have_nan, to_keys
from unpool.kernels.cpu.max_pool.pool import (
    PlaneAxes,
    PoolProblem,
    element_size,
    has_prefetch,
    lane_places,
    nan_of,
    outer_places,
    plane_large,
    pool_bytes,
    pool_size,
)
from unpool.kernels.cpu.max_pool.pool_kernel import PoolKernel
from unpool.kernels.cpu.max_pool.running_max import RunningMax, update_best
from unpool.kernels.cpu.tuning import CACHE_LINE, POOL_MEMORY, TILE_POOL
from unpool.kernels.cpu.vector import IGNORED
from unpool.kernels.cpu.vector.registration import jit_inline
from unpool.shape_cache import cached

STEPS = (1, 2, 4)  # strides along the lanes, which are the widths of windows


class TilePoolParams(NamedTuple):
    """Arguments of a call. Places are those that indices count, see `PoolProblem`."""

    elements: int  # of x
    plane: int  # elements of x in one outer
    small: int  # lanes of y
    outer_places: int  # from one outer to the next
    lane_places: int  # from one lane to the next
    prefetch_distance: int  # bytes; 0 for no prefetch
    y_non_temporal: bool  # whether stores to y are non-temporal if it begins a line of memory
    indices_non_temporal: bool  # the same of indices
    nan: int  # FIRST or LAST, the NaN whose index is found
    lowest: Any  # less than all elements
    infinity: Any  # bits of +infinity, of 16-bit floats


class WindowTiling(NamedTuple):
    """The places where windows begin, and the offsets of their rows."""

    corners: Any  # int64 (rows, 3) per row of outputs its first window's element and place, and its list
    offsets: Any  # int64 (lists, rows of a window, 2) elements and places from there; all on data
    reach: int  # elements between the first and the last row that are read side by side
    is_disjoint: bool  # whether no element lies in two windows
    is_there: bool  # False if the windows have no tiling


class TilePlan(NamedTuple):
    """A call, without its tables."""

    params: TilePoolParams  # `lowest` and `infinity` as bits
    is_wide: bool  # a constant of the kernel, as the next one
    block: int
    jobs: int


@cached(64)
def tiling(plane: PlaneAxes) -> WindowTiling | None:
    """The tiling of a plane; None unless its windows tile the lanes, lie on data, and are not empty."""
    found = find_tiling(plane)
    return found if found.is_there else None


@jit_inline
def find_tiling(plane: PlaneAxes) -> WindowTiling:
    """As `tiling`."""
    leading, lanes, unit = plane.leading, plane.lanes, plane.unit
    window = lanes.window
    corners, offsets, none = np.zeros((1, 2), np.int64), np.zeros((1, 1), np.int64), np.zeros((0, 0, 2), np.int64)
    nothing = WindowTiling(corners, none, 0, False, False)
    if reach(window) != window.stride or window.size != window.stride or window.stride not in STEPS:
        return nothing
    if lanes.begin != 0 or lanes.small * window.stride > lanes.large:
        return nothing
    for number in range(len(leading)):
        if not pooling_walk(axis_at(leading, number)).count.all():
            return nothing
    is_disjoint = True
    for number in range(len(leading)):
        axis = axis_at(leading, number)
        is_disjoint = is_disjoint and reach(axis.window) <= axis.window.stride
        starts, lists = _rows(axis, TILE_POOL.offsets // offsets.size)
        if lists.shape[0] == 0 and axis.small > 0:
            return nothing
        weight, count = large_sizes(leading, number + 1) * lanes.large, lists.shape[0]
        rows, before = starts.shape[0], corners.shape[0]
        grown = np.empty((before, rows, 2), np.int64)
        grown[:, :, 0] = corners[:, 0].copy().reshape((before, 1)) + starts[:, 0].copy().reshape((1, rows)) * weight
        grown[:, :, 1] = corners[:, 1].copy().reshape((before, 1)) * count + starts[:, 1].copy().reshape((1, rows))
        corners = grown.reshape((before * rows, 2))
        some, taps = offsets.shape[0], offsets.shape[1]
        more = np.empty((some, count, taps, lists.shape[1]), np.int64)
        more[:] = offsets.reshape((some, 1, taps, 1)) + lists.reshape((1, count, 1, lists.shape[1])) * weight
        offsets = more.reshape((some * count, taps * lists.shape[1]))
    places = np.empty((corners.shape[0], 3), np.int64)
    places[:, 0] = corners[:, 0]
    places[:, 1] = corners[:, 0] // unit
    places[:, 2] = corners[:, 1]
    both = np.empty((offsets.shape[0], offsets.shape[1], 2), np.int64)
    both[:, :, 0] = offsets
    both[:, :, 1] = offsets // unit
    furthest = 0
    for number in range(offsets.shape[0]):
        furthest = max(furthest, int(offsets[number, offsets.shape[1] - 1]))
    return WindowTiling(places, both, furthest, is_disjoint, True)


@jit_inline
def _rows(axis: Axis, most: int) -> Any:
    """For every position the first of its taps on data and the number of its list; and the lists of taps from there.

    A tap in padding becomes the nearest one on data, which changes no result. None if they had more than `most` taps.
    """
    walk, size = pooling_walk(axis), axis.window.size
    keys = walk.tap * (size + 1) + walk.count
    kinds = sorted_unique(keys)
    starts = np.empty((keys.size, 2), np.int64)
    starts[:, 0] = walk.other
    starts[:, 1] = np.searchsorted(kinds, keys)
    if kinds.size * size > most:
        return starts, np.empty((0, size), np.int64)
    taps = np.empty((kinds.size, size), np.int64)
    for number in range(kinds.size):
        first, count = kinds[number] // (size + 1), kinds[number] % (size + 1)
        taps[number] = np.minimum(np.maximum(np.arange(size) - first, 0), count - 1) * axis.window.dilation
    return starts, taps


def fitting_tiling(pool: PoolProblem) -> WindowTiling | None:
    """The tiling of a call's planes; None also where rows have 2**31 elements."""
    found = tiling(pool.plane)
    return None if found is None or (pool.elements.size != 2 and is_wide(pool, found)) else found


@jit_inline
def is_wide(pool: PoolProblem, tiling: WindowTiling) -> bool:
    """True if places need more bits than usual next to elements of this type."""
    return running_max.is_wide(
        int(tiling.offsets[:, :, 1].max()) + pool.plane.lanes.window.size, element_size(pool.elements)
    )


def launch(pool: PoolProblem, tiling: WindowTiling) -> Launch:
    """The call that pools planes of such a tiling."""
    element, made = pool.elements, plan(pool, tiling)
    params = made.params._replace(lowest=element.value(element.lowest), infinity=element.value(element.infinity))
    return Launch(
        _make_kernel(element.name, pool.plane.lanes.window.size, pool.has_indices, made.is_wide, made.block),
        made.jobs, pool.work, record(params, lowest=element.name, infinity=element.name),
        tiling.corners, tiling.offsets,
    )  # fmt: skip


@jit_inline
def plan(pool: PoolProblem, tiling: WindowTiling) -> TilePlan:
    """The call that pools planes of such a tiling."""
    small, size = pool.plane.lanes.small, element_size(pool.elements)
    is_non_temporal = pool.mode.is_recycled and pool_bytes(pool) >= POOL_MEMORY.non_temporal
    block = block_lanes(size, small, is_non_temporal)
    rows = tiling.reach * size
    params = TilePoolParams(
        pool_size(pool), plane_large(pool.plane), small, outer_places(pool), lane_places(pool),
        POOL_MEMORY.prefetch_distance + rows if has_prefetch(pool) and rows <= POOL_MEMORY.prefetch_reach else 0,
        is_non_temporal and fills_lines(size, small, block),
        is_non_temporal and pool.has_indices and fills_lines(8, small, block),
        nan_of(pool.mode), pool.elements.lowest, pool.elements.infinity,
    )  # fmt: skip
    return TilePlan(params, is_wide(pool, tiling), block, pool.outer * tiling.corners.shape[0])


@jit_inline
def block_lanes(size: int, small: int, is_exact: bool) -> int:
    """Outputs in one block; with `is_exact`, blocks do not overlap where half a register prevents it."""
    register = vector_bytes() // size
    half = register // 2
    is_exact_in_halves = is_exact and small % register > 0 and small % half == 0
    return half if small <= half or is_exact_in_halves else register


@jit_inline
def fills_lines(size: int, small: int, block: int) -> bool:
    """True if rows of blocks, of elements of `size` bytes, are whole lines of memory if the first begins one."""
    return small % block == 0 and small * size % CACHE_LINE == 0


@specialize
def _make_kernel(element: str, step: int, has_indices: bool, is_wide: bool, lanes: int):
    """The kernel for windows `step` wide along the lanes, and blocks of `lanes` outputs; `is_wide`: 64-bit places."""
    size, place_type = np.dtype(element).itemsize, running_max.place_type(element, is_wide=is_wide)
    number, stores_indices = getattr(types, element), int(has_indices)

    @jit()
    def pool_tiles(x, y, indices, args, corners, offsets, first, stop):
        """Write rows of y in memory order: by outer, row of outputs, block of lanes (the last overlaps), window row."""
        params = args[0]
        plane, small, prefetch_distance = params.plane, params.small, params.prefetch_distance
        nan, has_nan = params.nan, False
        outer_places, lane_places = params.outer_places, params.lane_places
        y_non_temporal = params.y_non_temporal and vec.address_of(y) % CACHE_LINE == 0
        indices_non_temporal = params.indices_non_temporal and vec.address_of(indices) % CACHE_LINE == 0
        source, end = vec.address_of(x), vec.address_of(x) + params.elements * size
        nothing, limit = vec.splat(params.lowest, lanes), vec.splat(params.infinity, lanes)
        none = RunningMax(nothing, to_keys(nothing, limit), vec.splat(place_type(0), lanes))
        ramp = vec.count_up(types.int64, lanes, 1)
        is_output = ramp < vec.splat(small, lanes)
        weights = ramp * vec.splat(np.int64(step * lane_places), lanes)
        count = offsets.shape[1]
        share = plane // (corners.shape[0] * small)
        outer, row = first // corners.shape[0], first % corners.shape[0]
        for job in range(first, stop):
            done, rows = 0, offsets[corners[row, 2]]
            while done < small:
                block = min(done, max(0, small - lanes))
                done = block + lanes
                base = source + (outer * plane + corners[row, 0] + block * step) * size
                is_safe = base + (rows[count - 1, 0] + lanes * step) * size <= end
                best, total = none, vec.splat(number(0), lanes)
                if prefetch_distance:
                    begin = source + (outer * plane + (row * small + block) * share) * size + prefetch_distance
                    for line in range(0, lanes * share * size, CACHE_LINE):
                        vec.prefetch(begin + line)
                if is_safe and not has_nan:
                    for tap_row in range(count):
                        address, place = base + rows[tap_row, 0] * size, rows[tap_row, 1]
                        taps = vec.load_taps(address, number, lanes, step)
                        for tap in range(step):
                            total = vec.total_of(total, taps[tap])
                            best = update_best(best, taps[tap], place + tap, limit, IGNORED, None)
                    has_nan = vec.count_set(may_have_nan(total, best.key, nan) & is_output) > 0
                if has_nan or not is_safe:
                    best = none
                    for tap_row in range(count):
                        for tap in range(step):
                            address = base + (rows[tap_row, 0] + tap) * size
                            if is_safe and address + lanes * step * size <= end:
                                value = vec.load_taps(address, number, lanes, step)[0]
                            else:
                                value = vec.gather(address, step * size, is_output, nothing)
                            best = update_best(best, value, rows[tap_row, 1] + tap, limit, nan, None)
                    has_nan = is_safe and vec.count_set(may_have_nan(best.key, best.key, nan) & is_output) > 0
                target = job * small + block
                start = outer * outer_places + corners[row, 1] + block * step * lane_places
                index = vec.convert(best.place, types.int64) + vec.splat(start, lanes) + weights
                if small >= lanes:
                    if y_non_temporal:
                        vec.store_nontemporal(vec.address_of(y) + target * size, best.value)
                    else:
                        vec.store(vec.address_of(y) + target * size, best.value)
                    if stores_indices and indices_non_temporal:
                        vec.store_nontemporal(vec.address_of(indices) + target * 8, index)
                    elif stores_indices:
                        vec.store(vec.address_of(indices) + target * 8, index)
                else:
                    vec.store_masked(vec.address_of(y) + target * size, best.value, is_output)
                    if stores_indices:
                        vec.store_masked(vec.address_of(indices) + target * 8, index, is_output)
            row += 1
            if row == corners.shape[0]:
                outer, row = outer + 1, 0
        if y_non_temporal or indices_non_temporal:
            vec.fence()

    return pool_tiles


def _takes(pool: PoolProblem) -> bool:
    return fitting_tiling(pool) is not None


def _is_faster(pool: PoolProblem, other: PoolKernel) -> bool:
    found = fitting_tiling(pool)
    return found is not None and (found.is_disjoint or other.name == "direct")


def _launch(pool: PoolProblem) -> Launch:
    found = fitting_tiling(pool)
    assert found is not None, "it takes the call"
    return launch(pool, found)


KERNEL = PoolKernel("tiles", _takes, _is_faster, _launch)
