"""Max pooling of windows that tile the lanes: as wide as their stride, and all on data; any, with channels as lanes.

    best[lane], at[lane] = largest of x[corner + offset + lane * step + tap] over all offsets and taps, and its index

Most windows have the same offsets from their corners, so a row of outputs needs no list of its own; windows that reach
into padding have a few others. Whole vectors are loaded once and split into taps. x is prefetched in memory order,
because rows that are read side by side, a few lines of each, come at a third of the speed. Comparisons ignore NaN; a
block in which one occurs is compared again in full, and the next block in full at once. Outputs that no cache holds are
stored non-temporally: a plain store reads its line, and displaces x.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, pooling_walk
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool import compare
from unpool.kernels.cpu.max_pool.compare import RunningMax, update_best
from unpool.kernels.cpu.max_pool.pool import PlaneAxes, PoolProblem
from unpool.kernels.cpu.vector import IGNORED
from unpool.shape_cache import cached

STEPS = (1, 2, 4)  # strides along the lanes, which are the widths of windows
PREFETCH_DISTANCE = 4096  # bytes from a load to what is prefetched with it, beyond the rows that are read side by side
REACH = 1 << 18  # bytes of such rows above which prefetched lines would be evicted before they are read
LINE = 64  # bytes of a cache line
MOST_OFFSETS = 1 << 16  # maximum number of offsets in all lists
NON_TEMPORAL_BYTES = 1 << 25  # bytes of x and outputs from which on outputs are stored non-temporally


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


@dataclass(frozen=True, eq=False)
class WindowTiling:
    """The places where windows begin, and the offsets of their rows."""

    corners: npt.NDArray[np.int64]  # (rows, 3) per row of outputs its first window's element and place, and its list
    offsets: npt.NDArray[np.int64]  # (lists, rows of a window, 2) elements and places from there; all on data
    reach: int  # elements between the first and the last row that are read side by side
    is_disjoint: bool  # whether no element lies in two windows


@cached(64)
def tiling(plane: PlaneAxes) -> WindowTiling | None:
    """The tiling of a plane, None unless its windows tile the lanes, all on data, and none of them is empty."""
    leading, lanes, unit = plane.leading, plane.lanes, plane.unit
    window, axes = lanes.window, (*leading, lanes)
    if window.reach != window.stride or window.stride not in STEPS or window.size != window.stride:
        return None
    if lanes.begin or lanes.small * window.stride > lanes.large:
        return None
    if not all(pooling_walk(axis).count.all() for axis in leading):
        return None
    corners, offsets = np.zeros((1, 2), np.int64), np.zeros((1, 1), np.int64)
    for number, axis in enumerate(leading):
        listed = _rows(axis, MOST_OFFSETS // offsets.size)
        if listed is None:
            return None
        (starts, lists), weight = listed, math.prod(each.large for each in axes[number + 1 :])
        corners = corners[:, np.newaxis] * (1, len(lists)) + starts * (weight, 1)
        offsets = offsets[:, np.newaxis, :, np.newaxis] + lists[:, np.newaxis] * weight
        corners, offsets = corners.reshape(-1, 2), offsets.reshape(-1, math.prod(offsets.shape[2:]))
    places = np.stack([corners[:, 0], corners[:, 0] // unit, corners[:, 1]], axis=1)
    is_disjoint = all(axis.window.reach <= axis.window.stride for axis in leading)
    return WindowTiling(places, np.stack([offsets, offsets // unit], axis=-1), int(offsets[:, -1].max()), is_disjoint)


def _rows(axis: Axis, most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """For every position the first of its taps on data and the number of its list; and the lists of taps from there.

    Taps in padding become the nearest one on data, which changes no result. None for lists of more than `most` taps.
    """
    walk = pooling_walk(axis)
    kinds, number = np.unique(np.stack([walk.tap, walk.count], axis=1), axis=0, return_inverse=True)
    if len(kinds) * axis.window.size > most:
        return None
    taps = np.clip(np.arange(axis.window.size) - kinds[:, :1], 0, kinds[:, 1:] - 1) * axis.window.dilation
    return np.stack([walk.other, number.reshape(-1)], axis=1), taps


def is_wide(pool: PoolProblem, tiling: WindowTiling) -> bool:
    """True if places need more bits than usual next to elements of this type."""
    return compare.is_wide(int(tiling.offsets[..., 1].max()) + pool.plane.lanes.window.size, pool.elements.size)


def launch(pool: PoolProblem, tiling: WindowTiling) -> Launch:
    """The call that pools planes of such a tiling."""
    lanes, element = pool.plane.lanes, pool.elements
    is_non_temporal = pool.mode.is_recycled and pool.nbytes >= NON_TEMPORAL_BYTES
    block = block_lanes(element.size, lanes.small, is_exact=is_non_temporal)
    rows = tiling.reach * element.size
    params = TilePoolParams(
        elements=pool.size, plane=pool.plane.large, small=lanes.small,
        outer_places=pool.outer_places, lane_places=pool.lane_places,
        prefetch_distance=PREFETCH_DISTANCE + rows if pool.has_prefetch and rows <= REACH else 0,
        y_non_temporal=is_non_temporal and fills_lines(element.size, lanes.small, block),
        indices_non_temporal=is_non_temporal and pool.has_indices and fills_lines(8, lanes.small, block),
        nan=pool.mode.nan, lowest=element.value(element.lowest), infinity=element.value(element.infinity),
    )  # fmt: skip
    return Launch(
        _make_kernel(element.name, lanes.window.size, pool.has_indices, is_wide(pool, tiling), block),
        pool.outer * len(tiling.corners), pool.work,
        record(params, lowest=element.name, infinity=element.name), tiling.corners, tiling.offsets,
    )  # fmt: skip


def block_lanes(size: int, small: int, *, is_exact: bool) -> int:
    """Outputs in one block; with `is_exact`, blocks do not overlap where half a register prevents it."""
    register = vector_bytes() // size
    half = register // 2
    is_exact_in_halves = is_exact and small % register > 0 and small % half == 0
    return half if small <= half or is_exact_in_halves else register


def fills_lines(size: int, small: int, block: int) -> bool:
    """True if rows of blocks, of elements of `size` bytes, are whole lines of memory if the first begins one."""
    return small % block == 0 and small * size % LINE == 0


@specialize
def _make_kernel(element: str, step: int, has_indices: bool, is_wide: bool, lanes: int):
    """The kernel for windows `step` wide along the lanes, and blocks of `lanes` outputs; `is_wide`: 64-bit places."""
    size, place_type = np.dtype(element).itemsize, compare.place_type(element, is_wide=is_wide)
    number, stores_indices = getattr(types, element), int(has_indices)

    @jit()
    def pool_tiles(x, y, indices, args, corners, offsets, first, stop):
        """Write rows of y in memory order: by outer, row of outputs, block of lanes (the last overlaps), window row."""
        params = args[0]
        plane, small, prefetch_distance = params.plane, params.small, params.prefetch_distance
        nan, has_nan = params.nan, False
        outer_places, lane_places = params.outer_places, params.lane_places
        y_non_temporal = params.y_non_temporal and vec.address_of(y) % LINE == 0
        indices_non_temporal = params.indices_non_temporal and vec.address_of(indices) % LINE == 0
        source, end = vec.address_of(x), vec.address_of(x) + params.elements * size
        nothing, limit = vec.splat(params.lowest, lanes), vec.splat(params.infinity, lanes)
        none = RunningMax(nothing, vec.to_keys(nothing, limit), vec.splat(place_type(0), lanes))
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
                    for line in range(0, lanes * share * size, LINE):
                        vec.prefetch(begin + line)
                if is_safe and not has_nan:
                    for tap_row in range(count):
                        address, place = base + rows[tap_row, 0] * size, rows[tap_row, 1]
                        taps = vec.load_taps(address, number, lanes, step)
                        for tap in range(step):
                            total = vec.total_of(total, taps[tap])
                            best = update_best(best, taps[tap], place + tap, limit, IGNORED, None)
                    has_nan = vec.count_set(vec.may_have_nan(total, best.key, nan) & is_output) > 0
                if has_nan or not is_safe:
                    best = none
                    for tap_row in range(count):
                        for tap in range(step):
                            address = base + (rows[tap_row, 0] + tap) * size
                            if is_safe and address + lanes * step * size <= end:
                                value = vec.load_every(address, number, lanes, step, step * size)
                            else:
                                value = vec.gather(address, step * size, is_output, nothing)
                            best = update_best(best, value, rows[tap_row, 1] + tap, limit, nan, None)
                    has_nan = is_safe and vec.count_set(vec.may_have_nan(best.key, best.key, nan) & is_output) > 0
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
