"""Max unpooling as a stream, for windows of two along the last axis that do not overlap.

Two forms of torch's exporter become such windows. Axes of one element, which it adds to calls of a single axis, are
left out. Windows longer than their stride, which it writes where an odd size was pooled, are tried as windows of their
stride: the first slab that has an index beyond these ends the trial.

    y[row, 2 * lane], y[row, 2 * lane + 1] = x or 0, as the index of the lane is this place, the next, or neither

If every index lies in the window of its element, rows of y are made in memory order from registers. Indices are checked
by counting: each element has to be found exactly once. Stores to a large y whose rows are whole cache lines are
non-temporal, because a plain store reads its line first.
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, Window, upsampling_walk
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import axis_at, large_sizes, select, small_sizes
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch
from unpool.kernels.cpu.tuning import CACHE_LINE, UNPOOL
from unpool.kernels.cpu.vector.registration import jit_inline
from unpool.shape_cache import cached


class WindowUnpoolParams(NamedTuple):
    """Arguments of a call."""

    slabs: int  # of a plane of y
    rows: int  # of a plane of y
    small: int  # lanes of a row of x
    large: int  # lanes of a row of y
    plane: int  # elements of x in a plane
    elements: int  # of x in a slab, all of which have to be found there
    is_non_temporal: bool  # whether stores to y are non-temporal if it begins a cache line


def route(
    axes: tuple[Axis, ...], planes: int, size: int, *, channels_last: bool, counts_in_y: bool, is_recycled: bool
) -> Launch | None:
    """The call that writes all of y if every index lies in its element's own window; None if `scatter` has to.

    It takes C-contiguous (x, indices, y): elements of 2, 4 or 8 bytes, unchecked int64 that count in y. Unless it
    returns True only, y holds anything.
    """
    if channels_last or not counts_in_y:
        return None
    made = _plan(axes, planes, size, is_recycled)
    if not made.is_possible:
        return None
    return Launch(_make_kernel(size), made.jobs, made.work, record(made.params), made.cuts, made.sources)


class StreamPlan(NamedTuple):
    """A call."""

    params: WindowUnpoolParams
    cuts: Any  # the first row of every slab and the number of rows
    sources: Any  # per row of y the row of x that it belongs to, -1 for none
    jobs: int
    work: int
    is_possible: bool  # False where `scatter` has to write y


@jit_inline
def plan(axes: Any, planes: int, size: int, is_recycled: bool) -> StreamPlan:
    """As `route`, for channels first and indices that count in y.

    Slabs are parts of a plane of y, cut along its first axis so that each window lies in one. No windows but those that
    are two wide, do not overlap, and cover the last axis have any.
    """
    is_kept = np.zeros(len(axes), np.bool_)
    for number in range(len(axes)):
        is_kept[number] = not _is_single(axis_at(axes, number))
    if not is_kept.any():
        is_kept[len(axes) - 1] = True
    axes = select(axes, is_kept)
    count, small, large = len(axes), small_sizes(axes, 0), large_sizes(axes, 0)
    last, sources, cuts = _without_overlap(axis_at(axes, count - 1)), np.zeros(1, np.int64), np.arange(2)
    is_two_wide = last.window.size == 2 and last.window.stride == 2 and last.begin == 0
    if planes * small * large == 0 or not is_two_wide or last.large < 2 * last.small:
        return StreamPlan(WindowUnpoolParams(0, 0, 0, 0, 0, 0, False), cuts, sources, 0, 0, False)
    for number in range(count - 1):
        axis = _without_overlap(axis_at(axes, number))
        walk = upsampling_walk(axis)
        is_row = walk.count > 0
        grown = np.empty((sources.size, axis.large), np.int64)
        for row in range(sources.size):
            grown[row] = (sources[row] * axis.small + walk.other + 1) * (is_row & (sources[row] >= 0)) - 1
        sources = grown.reshape(-1)
    if count > 1:
        first = _without_overlap(axis_at(axes, 0))
        corner = np.arange(first.small + 1) * first.window.stride - first.begin
        cuts = np.minimum(np.maximum(corner, 0), first.large)
        cuts[0], cuts[-1] = 0, first.large
        cuts = cuts * (large_sizes(axes, 1) // last.large)
    slabs = cuts.size - 1
    is_non_temporal = is_recycled and is_worth_non_temporal(planes * large * size, last.large * size)
    params = WindowUnpoolParams(slabs, sources.size, last.small, last.large, small, small // slabs, is_non_temporal)
    return StreamPlan(params, cuts, sources, planes * slabs, planes * (small + large) // VECTOR_SPEEDUP, True)


_plan = cached(64)(plan)


@jit_inline
def _is_single(axis: Axis) -> bool:
    """True for an axis of one element, and windows of one."""
    window = axis.window
    return axis.large == 1 and axis.small == 1 and window.size == 1 and window.stride == 1 and axis.begin == 0


@jit_inline
def _without_overlap(axis: Axis) -> Axis:
    stride = axis.window.stride
    size = min(axis.window.size, stride)
    return Axis(axis.large, axis.small, Window(size, stride, axis.window.dilation), axis.begin)


@jit_inline
def is_worth_non_temporal(size: int, row: int) -> bool:
    """True if y, of `size` bytes, is large, and its rows, of `row` bytes, are whole cache lines."""
    return size >= UNPOOL.non_temporal and row % CACHE_LINE == 0


@specialize
def _make_kernel(size: int):
    element, lanes, wide = getattr(types, f"int{8 * size}"), vector_bytes() // size, 2 * vector_bytes() // size

    @jit()
    def stream_slabs(x, indices, y, args, cuts, sources, first, stop):
        """Write some slabs, in the memory order of y; whether every index lies in its element's window.

        for every plane, for every slab of it, for every row of the slab, for every block of lanes
        """
        params = args[0]
        slabs, rows, small, large = params.slabs, params.rows, params.small, params.large
        x_plane, elements = params.plane, params.elements
        is_non_temporal = params.is_non_temporal and vec.address_of(y) % CACHE_LINE == 0
        ramp, nothing = vec.count_up(types.int64, lanes, 1), vec.splat(element(0), lanes)
        one, nowhere = vec.splat(np.int64(1), lanes), vec.splat(np.int64(-1), lanes)
        columns = vec.count_up(types.int64, wide, 1)
        plane, slab = first // slabs, first % slabs
        for _job in range(first, stop):
            met = 0
            for row in range(cuts[slab], cuts[slab + 1]):
                ready = small if sources[row] >= 0 else 0
                source = plane * x_plane + sources[row] * small
                target = (plane * rows + row) * large
                for block in range(0, (large + 1) // 2, lanes):
                    place, left = source + block, ready - block
                    expected = vec.splat(target + 2 * block, lanes) + ramp + ramp
                    if left >= lanes:
                        value = vec.load(vec.address_of(x) + place * size, element, lanes)
                        offset = vec.load(vec.address_of(indices) + place * 8, types.int64, lanes) - expected
                    elif left > 0:
                        is_element = ramp < vec.splat(left, lanes)
                        value = vec.load_masked(vec.address_of(x) + place * size, is_element, nothing)
                        index = vec.load_masked(vec.address_of(indices) + place * 8, is_element, expected + nowhere)
                        offset = index - expected
                    else:
                        value, offset = nothing, nowhere
                    is_first, is_second = offset == nowhere + one, offset == one
                    met += vec.count_set(is_first | is_second)
                    pair = vec.interleave(vec.select(is_first, value, nothing), vec.select(is_second, value, nothing))
                    address, room = vec.address_of(y) + (target + 2 * block) * size, large - 2 * block
                    if room < wide:
                        vec.store_masked(address, pair, columns < vec.splat(room, wide))
                    elif is_non_temporal:
                        vec.store_nontemporal(address, pair)
                    else:
                        vec.store(address, pair)
            if met != elements:
                return False
            slab += 1
            if slab == slabs:
                plane, slab = plane + 1, 0
        if is_non_temporal:
            vec.fence()
        return True

    return stream_slabs
