"""Max pooling in registers: each block of neighbouring outputs walks its windows once.

    best[lane], at[lane] = largest of x[row + (lane * stride + tap * dilation)], and the index it has

Any rank, stride, dilation and padding; lanes are positions of the last axis, or channels.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from unpool.geometry import Window, shrinking_walk
from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest, vector_bytes
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool import compare
from unpool.kernels.cpu.max_pool.compare import Best, place_type, take
from unpool.kernels.cpu.max_pool.pool import Plane, Pool
from unpool.kernels.cpu.rows import list_rows, row_plan
from unpool.kernels.cpu.vector import (
    IGNORED,
    address_of,
    convert,
    count_set,
    count_up,
    gather,
    load_every,
    prefetch,
    select,
    splat,
    store,
    store_masked,
    total_of,
)
from unpool.kernels.cpu.vector.named import record
from unpool.kernels.cpu.vector.order import is_amiss, order
from unpool.shape_cache import cached

AHEAD = 4096
"""Bytes between what is read and what is asked for."""


class About(NamedTuple):
    """What the kernel reads of a call. Places are those that indices count, see `Pool`.

    Attributes:
        elements: of x.
        plane: elements of x in one outer.
        rows: of lanes in one outer of y.
        outer_places: from one outer to the next.
        lane_places: from one lane to the next.
        small: lanes of y.
        large: lanes of x.
        begin: padding before the first lane.
        window: taps along the lanes.
        stride: of the window, in lanes.
        dilation: from tap to tap, in lanes.
        listed: the most rows of x in one window.
        ahead: bytes between what is read and what is asked for; 0 where nothing is asked for.
        first_row: of all rows of y, the one that job 0 is.
        nan: FIRST or LAST, which NaN is found.
        lowest: what a window without data gives.
        infinity: bits of +infinity, of 16-bit floats.
    """

    elements: int
    plane: int
    rows: int
    outer_places: int
    lane_places: int
    small: int
    large: int
    begin: int
    window: int
    stride: int
    dilation: int
    listed: int
    ahead: int
    first_row: int
    nan: int
    lowest: Any
    infinity: Any


def launch(pool: Pool, first: int, stop: int) -> Launch:
    """The call that pools the rows of outputs from `first` up to `stop`, of those of all planes."""
    plane, element, lanes, window = pool.plane, pool.elements, pool.plane.lanes, pool.plane.lanes.window
    steps, table, listed = _rows(plane)
    reach = lanes.large + lanes.begin + _register_lanes(element.size) * window.stride + window.reach
    is_wide = compare.is_wide(reach + _window_places(plane), element.size)
    about = About(
        elements=pool.size, plane=plane.large, rows=plane.rows,
        outer_places=pool.outer_places, lane_places=pool.lane_places,
        small=lanes.small, large=lanes.large, begin=lanes.begin,
        window=window.size, stride=window.stride, dilation=window.dilation,
        listed=listed, ahead=AHEAD if pool.is_asked_for else 0, first_row=first, nan=pool.mode.nan,
        lowest=element.value(element.lowest), infinity=element.value(element.infinity),
    )  # fmt: skip
    return Launch(
        _kernel(element.name, _known_step(window), pool.has_indices, is_wide, _registers(element.size, lanes.small)),
        stop - first, (stop - first) * lanes.small * listed * window.size,
        record(about, lowest=element.name, infinity=element.name), steps, table,
    )  # fmt: skip


@cached(64)
def _rows(plane: Plane):
    """The rows of x that each row of y walks, as `list_rows` takes them; with each goes its place in the plane."""
    sizes = [axis.large for axis in plane.axes]
    weights = [math.prod(sizes[number + 1 :]) for number in range(len(plane.leading))]
    walks = [shrinking_walk(axis) for axis in plane.leading]
    places = [weight // plane.unit for weight in weights]
    return row_plan(walks, weights, [(walk.other, walk.other_step) for walk in walks], places)


def _window_places(plane: Plane) -> int:
    """Places between the first and the last tap of a window."""
    sizes = [axis.large for axis in plane.spatial]
    return sum((axis.window.reach - 1) * math.prod(sizes[number + 1 :]) for number, axis in enumerate(plane.spatial))


def _known_step(window: Window) -> int:
    """The stride that the kernel is compiled for; 0 for any."""
    return window.stride if window.stride in (1, 2) else 0


def _register_lanes(size: int) -> int:
    """Elements of so many bytes in one register."""
    return vector_bytes() // size


def _registers(size: int, small: int) -> int:
    """Registers in one block: two independent ones of 32-bit elements hide each other's waiting."""
    return 2 if size == 4 and small >= 2 * _register_lanes(size) else 1


@cache
def _kernel(element: str, step: int, has_indices: bool, is_wide: bool, registers: int):
    """The compiled kernel for one element type.

    Args:
        element: as `Elements` names it.
        step: stride of the lanes: 1 or 2; 0 for any.
        has_indices: whether indices are stored.
        is_wide: whether places have 64 bits.
        registers: how many hold the outputs of one block.
    """
    size = np.dtype(element).itemsize
    return _make(
        getattr(types, element), place_type(element, is_wide=is_wide), _register_lanes(size) * registers, size, step,
        int(has_indices), source_digest(),
    )  # fmt: skip


def _make(element, place_type, lanes, size, step, has_indices, digest):
    offset_type = getattr(types, f"u{place_type}")

    @compiled()
    def pool_rows(x, y, indices, given, steps, table, first, stop):
        """Write some rows, in the order of memory.

            for every outer, for every row of its outputs, for every block of lanes
                for every row of the block's windows, for every tap

        A block whose taps all fall on data loads whole vectors and compares without regard to NaN; where NaN is
        noticed, this block and the next one compare in full. The other blocks also mask what is padding. A last block
        moves back over its neighbour rather than ending short.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        about = given[0]
        plane, rows, small, large, begin = about.plane, about.rows, about.small, about.large, about.begin
        window, stride, dilation, lane_places = about.window, about.stride, about.dilation, about.lane_places
        outer_places, ahead, first_row, nan = about.outer_places, about.ahead, about.first_row, about.nan
        starts, places = np.empty(about.listed, np.int64), np.empty(about.listed, np.int64)
        source, end = address_of(x), address_of(x) + about.elements * size
        nothing, limit = splat(about.lowest, lanes), splat(about.infinity, lanes)
        lowest_key, nowhere = order(nothing, limit), splat(place_type(-1), lanes)
        ramp = count_up(types.int64, lanes, 1)
        weights = ramp * splat(np.int64(stride * lane_places), lanes)
        lane_starts = convert(ramp * splat(stride, lanes), place_type)
        row_end = convert(splat(place_type(large), lanes), offset_type)
        span, has_nan = (window - 1) * dilation, False
        for job in range(first_row + first, first_row + stop):
            outer, row = job // rows, job % rows
            count = list_rows(steps, table, row, starts, places)
            done = 0
            while done < small:
                block = min(done, max(0, small - lanes))
                done = block + lanes
                start = block * stride - begin
                base = source + (outer * plane + start) * size
                last = base + (starts[max(count, 1) - 1] + span + lanes * step) * size
                is_safe = step > 0 and count > 0 and base + starts[0] * size >= source and last <= end
                is_whole = start >= 0 and start + span + (lanes - 1) * stride < large and small >= lanes and count > 0
                is_whole = is_whole and last <= end
                best = Best(nothing, lowest_key, splat(place_type(0), lanes))
                if is_whole and not has_nan:
                    total = splat(element(0), lanes)
                    for listed in range(count):
                        address, place = base + starts[listed] * size, places[listed] - places[0]
                        if ahead:
                            for line in range(0, lanes * max(step, 1) * size, 64):
                                prefetch(address + ahead + line)
                        for _tap in range(window):
                            value = load_every(address, element, lanes, step, stride * size)
                            total = total_of(total, value)
                            best = take(best, value, place, limit, IGNORED, None)
                            address += dilation * size
                            place += dilation * lane_places
                    has_nan = count_set(is_amiss(total, best.key, nan)) > 0
                if has_nan or not is_whole:
                    best = Best(nothing, lowest_key, nowhere)
                    for listed in range(count):
                        address, place = base + starts[listed] * size, places[listed] - places[0]
                        position = lane_starts + splat(place_type(start), lanes)
                        for _tap in range(window):
                            is_data = convert(position, offset_type) < row_end
                            if is_safe:
                                value = load_every(address, element, lanes, step, stride * size)
                            else:
                                value = gather(address, stride * size, is_data, nothing)
                            best = take(best, value, place, limit, nan, is_data)
                            address += dilation * size
                            place += dilation * lane_places
                            position = position + splat(place_type(dilation), lanes)
                    has_nan = is_whole and count_set(is_amiss(best.key, best.key, nan)) > 0
                target = job * small + block
                first_index = splat(np.int64(outer * outer_places + places[0] + start * lane_places), lanes)
                index = convert(best.place, types.int64) + first_index + weights
                if not is_whole:
                    index = select(best.place == nowhere, splat(np.int64(-1), lanes), index)
                if small >= lanes:
                    store(address_of(y) + target * size, best.value)
                    if has_indices:
                        store(address_of(indices) + target * 8, index)
                else:
                    is_output = ramp < splat(small, lanes)
                    store_masked(address_of(y) + target * size, best.value, is_output)
                    if has_indices:
                        store_masked(address_of(indices) + target * 8, index, is_output)

    return pool_rows
