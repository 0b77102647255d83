"""Max pooling of overlapping windows, one axis after the other, the last one first.

    pooled[r, i] = max over taps t of row[r, i * stride + t * dilation]        for every row of the padded plane
    y[j, i]      = max over taps t of pooled[j * stride + t * dilation, i]     for every other axis

A strict comparison keeps the leftmost of a row, and then the topmost row: the first in row-major order. A wide window
is a chain of small ones (`separable_plan.py`): a maximum of 4 neighbours, then of 4 of those results, reaches 16.

Elements are compared as float32, float64 or int32; padding is `fill`. NaN is detected while rows are laid out, and only
results of such rows are compared in full (`separable_combine.py`). A maximum that equals `fill` may be padding: then
the job's flag is set, and a kernel that walks whole windows pools its outputs again.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from unpool.geometry import reach
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import axis_at, times
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.plan import DONE, Condition, KernelStep, Kind, Operand
from unpool.kernels.cpu.machine.threads import Launch, Launches
from unpool.kernels.cpu.max_pool import direct, doubling
from unpool.kernels.cpu.max_pool import separable_combine as steps
from unpool.kernels.cpu.max_pool.elements import COMPARE_TYPES, compare_lanes
from unpool.kernels.cpu.max_pool.pool import (
    ElementType,
    FlaggedBands,
    PoolProblem,
    element_name,
    has_prefetch,
    is_far,
    nan_of,
    plane_large,
    plane_small,
    pool_size,
    spatial_axes,
)
from unpool.kernels.cpu.max_pool.pool_kernel import PoolKernel
from unpool.kernels.cpu.max_pool.separable_plan import (
    SeparablePoolParams,
    StripParams,
    chain_form,
    known_stride,
    padded_size,
    plan_strips,
)
from unpool.kernels.cpu.tuning import POOL_MEMORY, SEPARABLE_COSTS, SEPARABLE_POOL
from unpool.kernels.cpu.vector import IGNORED
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline


def launch(pool: PoolProblem) -> "PaddingGuard":
    """The call that pools all planes; another kernel walks the windows of bands with a flag."""
    element, plane, walker = pool.elements, pool.plane, doubling if doubling.is_worthwhile(pool) else direct
    strips, tables = plan_strips(plane, element.name, pool.has_indices, pool.outer, pool.mode.per_plane)
    params, jobs, bands = plan(pool, strips)
    params = params._replace(fill=_fill(element, pool.has_indices))
    stride = known_stride(spatial_axes(plane)[-1], plane.unit)
    call = Launch(
        _make_kernel(element.name, stride, pool.has_indices), jobs, pool.work,
        record(params, fill=COMPARE_TYPES[element.name]), tables,
    )  # fmt: skip
    return PaddingGuard(call, jobs, Launches(pool.work, lambda _: walker.launch(pool, bands)))


@jit_inline
def plan(pool: PoolProblem, strips: StripParams) -> tuple[SeparablePoolParams, int, FlaggedBands]:
    """The arguments, without `fill`, and the jobs of the call that pools all planes; the bands that may have a flag."""
    distance, lanes = POOL_MEMORY.prefetch_distance if has_prefetch(pool) else 0, pool.plane.lanes.small
    params = SeparablePoolParams(strips, distance, nan_of(pool.mode), pool.elements.infinity, 0)
    planes = strips.planes
    jobs = pool_size(pool) // planes.plane * planes.strips
    return params, jobs, FlaggedBands(planes.strip_outputs // lanes, planes.strips, planes.outputs // lanes)


class PaddingGuard:
    """Pools bands of planes, and walks the windows of those that may have padding as a maximum."""

    def __init__(self, call: Launch, jobs: int, walk: Launches) -> None:
        self._call, self._walk, self._jobs = call, walk, jobs
        self._flags = Operand(Kind.SCRATCH, 0, (jobs,), np.dtype(np.int64))
        self.nbytes = call.nbytes

    def __call__(self, x: Any, y: Any, indices: Any, threads: int | None) -> None:
        """As `Launch`; in less time than its steps take."""
        flags = np.empty(self._jobs, np.int64)
        if any(self._call(x, y, indices, threads, flags)):
            self._walk.run((x, y, indices, flags), threads)

    def steps(self, arrays: tuple[Operand, ...]) -> tuple[KernelStep, ...]:
        """The steps of a call."""
        flags = self._flags.flat(is_writable=True)
        return (
            KernelStep(self._call, arrays, (flags,), Condition.ALL_FALSE, (DONE, 1)),
            KernelStep(self._walk, (*arrays, self._flags)),
        )


def _fill(element: ElementType, has_indices: bool):
    """The value of padding, as elements are compared: less than every element, or `lowest` without indices."""
    kind = np.dtype(COMPARE_TYPES[element.name]).type
    if kind == np.int32:
        return kind(element.lowest - has_indices)
    if element.name == "int16" and not has_indices:
        return np.int32(element.lowest << 16).view(np.float32)
    return kind(-np.inf)


def fill_bits(element: str, lowest: int, has_indices: bool) -> int:
    """The bits of `_fill`."""
    raise NotImplementedError


@compile_as(fill_bits)
def _fill_bits(element: Any, lowest: Any, has_indices: Any) -> Callable[..., Any]:
    lowest32, lowest64 = (
        int(np.array(-np.inf, kind).view(f"i{kind(0).itemsize}")) for kind in (np.float32, np.float64)
    )

    def compiled(element, lowest, has_indices):
        if element >= 3:
            return lowest - (1 if has_indices else 0)
        if element == 1:
            return lowest64
        return lowest << 16 if element == 2 and not has_indices else lowest32

    return compiled


@specialize
def _make_kernel(element: str, stride: int, has_indices: bool):
    """The kernel for a stride of the last axis of 1; 2 if its windows are pooled in one reduction; 0 for any."""
    compare_type, number = getattr(types, COMPARE_TYPES[element]), getattr(types, element)
    size, width, counts = np.dtype(element).itemsize, compare_type.bitwidth // 8, int(has_indices)
    lanes = compare_lanes(element)
    place = types.int64 if width == 8 else types.int32
    from_taps, from_before = (steps.FROM_TAPS, steps.CARRIED) if has_indices else (steps.NOWHERE, steps.NOWHERE)
    laid_out = vec.StaticArgs(element=number, compare_type=compare_type, lanes=lanes, phases=max(stride, 1))
    final = vec.StaticArgs(  # the last reduction along a row: the only one whose step may not be 1
        compare_type=compare_type, place=place, lanes=lanes, step=min(stride, 1), origin=from_before
    )
    only, carried = final.replace(origin=from_taps), final.replace(step=1)
    first_of_many, last = carried.replace(origin=from_taps), carried.replace(element=number)

    @jit()
    def pool_strips(x, y, indices, flags, args, tables, first, stop):
        """Write some strips, in the order of memory; whether a flag was set.

        for every plane, for every strip of it
            for some padded rows at a time: laid out as lines in the first cache, then pooled along the row
            for every other axis, from last to first: pooled in the second cache; the first one goes to y
        """
        params, starts, row_places, lane_places = args[0], tables.starts, tables.row_places, tables.lane_places
        tap_bytes, tap_places = tables.tap_bytes, tables.tap_places
        line_reductions, plane_reductions = tables.line_reductions, tables.plane_reductions
        sizes, planes, layout = params.strips, params.strips.planes, params.strips.lines
        strips, line_rows, line_size, pooled_size = planes.strips, layout.line_rows, layout.line_size, sizes.pooled_size
        lines, line_places = np.empty(2 * line_size, compare_type), np.empty(line_size * counts, place)
        pooled, places = np.empty(2 * pooled_size, compare_type), np.empty(2 * pooled_size * counts, place)
        lines[:] = params.fill
        found, last_line, last_plane, zero = False, line_reductions.size - 1, plane_reductions.shape[1] - 1, np.int64(0)
        out, nowhere = line_reductions[last_line], steps.RowPlaces(zero, zero)
        for job in range(first, stop):
            outer, strip = job // strips, job % strips
            part = 1 if strip == strips - 1 else 0
            used = planes.last_used_rows if part else planes.used_rows
            begin = outer * planes.plane + strip * planes.strip_elements
            # Addresses are taken here, for every job: Numba frees an array after the last line that names it.
            laid, to_places = steps.aligned(lines) + layout.shift * width, steps.aligned(places) - steps.aligned(pooled)
            line = steps.BufferRef(laid, zero)
            chained = steps.BufferRef(laid + line_size * width, steps.aligned(line_places) - laid - line_size * width)
            near, far, met = steps.aligned(pooled), steps.aligned(pooled) + pooled_size * width, False
            for done in range(0, used, line_rows):
                rows, now = min(line_rows, used - done), strip * planes.strip_rows + done
                has_nan = steps.lay_out(vec.address_of(x) + begin * size, laid, starts, now, rows, params, laid_out)
                met |= has_nan
                taps = steps.TapTable(tap_bytes, tap_places, params.nan if has_nan else IGNORED)
                to = steps.BufferRef(near + done * sizes.pooled_pitch * width, to_places)
                base_places = steps.RowPlaces(vec.address_of(row_places) + now * width, zero)
                if sizes.has_channels:
                    base_places = steps.RowPlaces(vec.address_of(lane_places), np.int64(row_places[now]))
                    rows = out.rows.number
                if last_line == 0:
                    steps.combine(line, to, out, rows, base_places, taps, only)
                else:
                    reduction = line_reductions[0]
                    count = reduction.rows.number if sizes.has_channels else rows
                    steps.combine(line, chained, reduction, count, base_places, taps, first_of_many)
                    for number in range(1, last_line):
                        reduction = line_reductions[number]
                        steps.combine(chained, chained, reduction, reduction.rows.number, nowhere, taps, carried)
                    steps.combine(chained, to, out, rows, nowhere, taps, final)
            taps = steps.TapTable(tap_bytes, tap_places, params.nan if met else IGNORED)
            for number in range(last_plane):
                reduction = plane_reductions[part, number]
                to = steps.BufferRef(near if reduction.in_place else far, to_places)
                steps.combine(
                    steps.BufferRef(near, to_places), to, reduction, reduction.rows.number, nowhere, taps, carried
                )
                if not reduction.in_place:
                    near, far = far, near
            target = outer * planes.outputs + strip * planes.strip_outputs
            reduction = plane_reductions[part, last_plane]
            outputs = steps.StripOutputs(
                y=vec.address_of(y) + target * size, indices=vec.address_of(indices) + target * 8,
                total=reduction.total,
                place=begin if planes.counts_planes else 0, fill=params.fill,
            )  # fmt: skip
            is_open = steps.store_outputs(steps.BufferRef(near, to_places), outputs, reduction, taps, last)
            flags[job] = is_open
            found |= is_open
        return found

    return pool_strips


@jit_inline
def is_possible(pool: PoolProblem) -> bool:
    """True if places fit their type, channels fill a register, and every laid out line is short."""
    plane, size = pool.plane, plane_large(pool.plane)
    axes = spatial_axes(plane)
    count = len(axes)
    last = padded_size(axis_at(axes, count - 1)) * plane.unit
    padded, after = last, last
    for number in range(count - 1):
        padded = times(padded, padded_size(axis_at(axes, number)))
        if number > 0:
            after = times(after, padded_size(axis_at(axes, number)))
    if padded > SEPARABLE_POOL.padding * (size + plane_small(plane)):
        return False
    longest = max(last, reach(axis_at(axes, 0).window) * after if count > 1 else 1)
    is_filled = not 1 < plane.unit < compare_lanes(element_name(pool.elements))
    return 0 < size < 2**31 and longest <= SEPARABLE_POOL.line_elements and is_filled


@jit_inline
def is_cheaper(pool: PoolProblem) -> bool:
    """True if the elements that the separable kernel moves in caches cost less than the taps of all windows."""
    plane, axes = pool.plane, spatial_axes(pool.plane)
    far = SEPARABLE_COSTS.far if pool.has_indices and is_far(pool) else 1.0
    now = 1
    for number in range(len(axes)):
        now = times(now, padded_size(axis_at(axes, number)))
    moved = now
    for number in range(len(axes) - 1, -1, -1):
        axis = axis_at(axes, number)
        steps, _, taps = chain_form(axis.window)
        moved += now * (5 * steps)  # four taps and a result
        now = now // max(1, padded_size(axis)) * axis.small
        moved += now * (taps + 1)
    if len(axes) == 1:
        moved = (moved + 2 * now) * SEPARABLE_COSTS.long_line
    visits = now
    for number in range(len(axes)):
        visits = times(visits, axis_at(axes, number).window.size)
    cost = times(visits, SEPARABLE_COSTS.tap)
    lanes = compare_lanes(element_name(pool.elements))
    if plane.unit == 1 and plane.lanes.small < 2 * lanes:
        cost = times(cost, SEPARABLE_COSTS.short if plane.lanes.small >= lanes else SEPARABLE_COSTS.ragged)
    return times(times(pool.outer, visits), plane.unit) >= SEPARABLE_COSTS.taps and moved * far < cost


KERNEL = PoolKernel(
    "separable", lambda pool: is_possible(pool), lambda pool, _: is_cheaper(pool), lambda pool: launch(pool)
)
