"""Max pooling in registers: each block of neighbouring outputs walks its windows once.

    best[lane], at[lane] = largest of x[row + (lane * stride + tap * dilation)], and its index

Any rank, stride, dilation and padding; lanes are positions of the last axis, or channels.
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import pooling_walk, reach
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import axis_at, large_sizes, times
from unpool.kernels.cpu.fold_axes import add_walk, list_rows
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool import running_max
from unpool.kernels.cpu.max_pool.elements import may_have_nan, to_keys
from unpool.kernels.cpu.max_pool.pool import (
    UNFLAGGED,
    FlaggedBands,
    PlaneAxes,
    PoolProblem,
    element_size,
    has_prefetch,
    lane_places,
    nan_of,
    outer_places,
    plane_large,
    plane_rows,
    pool_size,
    spatial_axes,
)
from unpool.kernels.cpu.max_pool.pool_kernel import PoolKernel
from unpool.kernels.cpu.max_pool.running_max import RunningMax, update_best
from unpool.kernels.cpu.tuning import POOL_MEMORY
from unpool.kernels.cpu.vector import IGNORED
from unpool.kernels.cpu.vector.registration import jit_inline, overload_by_type
from unpool.shape_cache import cached


class LaneWindows(NamedTuple):
    """The windows along the lanes."""

    small: int  # lanes of y
    large: int  # lanes of x
    begin: int  # padding before the first lane
    window: int  # taps along the lanes
    stride: int  # of the window, in lanes
    dilation: int  # from tap to tap, in lanes


class DirectPoolParams(NamedTuple):
    """Arguments of a call. Places are those that indices count, see `PoolProblem`."""

    elements: int  # of x
    plane: int  # elements of x in one outer
    rows: int  # rows of lanes in one outer of y
    outer_places: int  # from one outer to the next
    lane_places: int  # from one lane to the next
    lanes: LaneWindows
    listed: int  # maximum number of rows of x in one window
    prefetch_distance: int  # bytes; 0 for no prefetch
    flagged: FlaggedBands  # rows that have flags
    nan: int  # FIRST or LAST, the NaN whose index is found
    lowest: Any  # output of a window without data
    infinity: Any  # bits of +infinity, of 16-bit floats


@jit_inline
def is_flagged(flags, bands, row):
    """True if the band of a row of y has a flag."""
    band = row // bands.group_rows * bands.in_group + row % bands.group_rows // bands.rows
    return vec.int64_at(vec.address_of(flags) + 8 * band) != 0


class RowWalks(NamedTuple):
    """The arrays of `row_plan`."""

    steps: Any
    table: Any


class DirectPlan(NamedTuple):
    """A call, without its tables."""

    params: DirectPoolParams  # `lowest` and `infinity` as bits
    step: int  # a constant of the kernel, as the next ones
    is_wide: bool
    registers: int
    jobs: int
    work: int


def launch(pool: PoolProblem, bands: FlaggedBands | None = None) -> Launch:
    """The call that pools all planes; with `bands` it takes flags after the indices, and pools those that have one."""
    element, (steps, table, listed) = pool.elements, _rows(pool.plane)
    made = plan(pool, listed, bands or UNFLAGGED)
    params = made.params._replace(lowest=element.value(element.lowest), infinity=element.value(element.infinity))
    flags = (0,) if bands is None else ()
    args = record(params, lowest=element.name, infinity=element.name)
    kernel = _make_kernel(element.name, made.step, pool.has_indices, made.is_wide, made.registers)
    return Launch(kernel, made.jobs, made.work, *flags, args, RowWalks(steps, table))


@jit_inline
def plan(pool: PoolProblem, listed: int, bands: FlaggedBands) -> DirectPlan:
    """The call that pools all planes; a window has `listed` rows at most."""
    plane, size, lanes = pool.plane, element_size(pool.elements), pool.plane.lanes
    register, window = vector_bytes() // size, lanes.window
    axes, places = spatial_axes(plane), 0
    for number in range(len(axes)):
        places += (reach(axis_at(axes, number).window) - 1) * large_sizes(axes, number + 1)
    read = lanes.large + lanes.begin + register * window.stride + reach(window)
    is_wide = running_max.is_wide(read + places, size)
    params = DirectPoolParams(
        pool_size(pool), plane_large(plane), plane_rows(plane), outer_places(pool), lane_places(pool),
        LaneWindows(lanes.small, lanes.large, lanes.begin, window.size, window.stride, window.dilation),
        listed, POOL_MEMORY.prefetch_distance if has_prefetch(pool) else 0, bands, nan_of(pool.mode),
        pool.elements.lowest, pool.elements.infinity,
    )  # fmt: skip
    is_rare = is_wide and size != 2  # planes of 2**31 elements, or such dilations: one kernel for all strides
    step = window.stride if (window.stride == 1 or window.stride == 2) and not is_rare else 0
    # two independent registers of 32-bit elements hide each other's latency
    registers = 2 if size == 4 and lanes.small >= 2 * register and not is_rare else 1
    rows = pool.outer * plane_rows(plane)
    work = times(times(times(rows, lanes.small), listed), window.size)
    return DirectPlan(params, step, is_wide, registers, rows, work)


@jit_inline
def row_walks(plane: PlaneAxes) -> Any:
    """The rows of x that each row of y walks, and their places in the plane, for `list_rows`."""
    leading, first, width = plane.leading, 0, 1
    count = 0
    for number in range(len(leading)):
        count += axis_at(leading, number).small
    steps, table = np.empty((len(leading), 4), np.int64), np.empty((count, 3), np.int64)
    for number in range(len(leading)):
        axis = axis_at(leading, number)
        weight = large_sizes(leading, number + 1) * plane.lanes.large
        walk = pooling_walk(axis)
        place = weight // plane.unit
        width *= add_walk(steps, table, (number, first), walk, walk.other, walk.other_step, (weight, place))
        first += axis.small
    return steps, table, width


_rows = cached(64)(row_walks)


@specialize
def _make_kernel(element: str, step: int, has_indices: bool, is_wide: bool, registers: int):
    """The kernel for a stride of the lanes of 1 or 2, 0 for any, `registers` in a block; `is_wide`: 64-bit places."""
    size, place_type = np.dtype(element).itemsize, running_max.place_type(element, is_wide=is_wide)
    lanes, number, stores_indices = vector_bytes() // size * registers, getattr(types, element), int(has_indices)
    offset_type = getattr(types, f"u{place_type}")

    @jit()
    def pool_rows(x, y, indices, flags, args, walks, first, stop):
        """Write rows of y in memory order: for every outer, row of outputs, block of lanes, row of its windows, tap.

        A block whose taps all fall on data loads whole vectors and compares without regard to NaN; after a NaN this
        block and the next one compare in full. Other blocks also mask padding. A last block overlaps its neighbour.
        """
        params, along = args[0], args[0].lanes
        plane, rows, small, large, begin = params.plane, params.rows, along.small, along.large, along.begin
        window, stride, dilation, lane_places = along.window, along.stride, along.dilation, params.lane_places
        outer_places, prefetch_distance = params.outer_places, params.prefetch_distance
        nan = params.nan
        starts, places = np.empty(params.listed, np.int64), np.empty(params.listed, np.int64)
        source, end = vec.address_of(x), vec.address_of(x) + params.elements * size
        nothing, limit = vec.splat(params.lowest, lanes), vec.splat(params.infinity, lanes)
        lowest_key, nowhere = to_keys(nothing, limit), vec.splat(place_type(-1), lanes)
        ramp = vec.count_up(types.int64, lanes, 1)
        weights = ramp * vec.splat(np.int64(stride * lane_places), lanes)
        lane_starts = vec.convert(ramp * vec.splat(stride, lanes), place_type)
        row_end = vec.convert(vec.splat(place_type(large), lanes), offset_type)
        span, has_nan = (window - 1) * dilation, False
        for job in range(first, stop):
            outer, row = job // rows, job % rows
            if flags != 0:
                if not is_flagged(flags, params.flagged, job):
                    continue
            count = list_rows(walks.steps, walks.table, row, starts, places)
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
                best = RunningMax(nothing, lowest_key, vec.splat(place_type(0), lanes))
                if is_whole and not has_nan:
                    total = vec.splat(number(0), lanes)
                    for listed in range(count):
                        address, place = base + starts[listed] * size, places[listed] - places[0]
                        if prefetch_distance:
                            for line in range(0, lanes * max(step, 1) * size, 64):
                                vec.prefetch(address + prefetch_distance + line)
                        for _tap in range(window):
                            value = load_lanes(address, stride * size, number, lanes, step)
                            total = vec.total_of(total, value)
                            best = update_best(best, value, place, limit, IGNORED, None)
                            address += dilation * size
                            place += dilation * lane_places
                    has_nan = vec.count_set(may_have_nan(total, best.key, nan)) > 0
                if has_nan or not is_whole:
                    best = RunningMax(nothing, lowest_key, nowhere)
                    for listed in range(count):
                        address, place = base + starts[listed] * size, places[listed] - places[0]
                        position = lane_starts + vec.splat(place_type(start), lanes)
                        for _tap in range(window):
                            is_data = vec.convert(position, offset_type) < row_end
                            if is_safe:
                                value = load_lanes(address, stride * size, number, lanes, step)
                            else:
                                value = vec.gather(address, stride * size, is_data, nothing)
                            best = update_best(best, value, place, limit, nan, is_data)
                            address += dilation * size
                            place += dilation * lane_places
                            position = position + vec.splat(place_type(dilation), lanes)
                    has_nan = is_whole and vec.count_set(may_have_nan(best.key, best.key, nan)) > 0
                target = job * small + block
                first_index = vec.splat(np.int64(outer * outer_places + places[0] + start * lane_places), lanes)
                index = vec.convert(best.place, types.int64) + first_index + weights
                if not is_whole:
                    index = vec.select(best.place == nowhere, vec.splat(np.int64(-1), lanes), index)
                if small >= lanes:
                    vec.store(vec.address_of(y) + target * size, best.value)
                    if stores_indices:
                        vec.store(vec.address_of(indices) + target * 8, index)
                else:
                    is_output = ramp < vec.splat(small, lanes)
                    vec.store_masked(vec.address_of(y) + target * size, best.value, is_output)
                    if stores_indices:
                        vec.store_masked(vec.address_of(indices) + target * 8, index, is_output)

    return pool_rows


@overload_by_type(inline=True)
def load_lanes(address, bytes_between, element, lanes, step):
    """Every `step`-th element; for step 0 elements that are `bytes_between` apart, and no others are read."""
    if step.literal_value == 0:
        return lambda address, bytes_between, element, lanes, step: vec.gather_lanes(
            address, bytes_between, element, lanes
        )
    return lambda address, bytes_between, element, lanes, step: vec.load_taps(address, element, lanes, step)[0]


KERNEL = PoolKernel("direct", lambda _: True, lambda *_: False, lambda pool: launch(pool))
