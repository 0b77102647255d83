"""Plans of MaxPool: as `unpool/execute/max_pool.py` prepares them."""

from typing import Any

import numpy as np

from unpool.geometry import Axis, Padding, PoolRule, Window, place_pool
from unpool.kernels.cpu import indices as recount
from unpool.kernels.cpu.axes import axis_at, large_sizes, set_axis, small_sizes
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.plan import DONE, Condition, Kind
from unpool.kernels.cpu.max_pool import direct, doubling, rolling, separable, separable_plan, tiles
from unpool.kernels.cpu.max_pool.elements import compare_size
from unpool.kernels.cpu.max_pool.pool import (
    UNFLAGGED,
    ElementType,
    FlaggedBands,
    PlaneAxes,
    PoolMode,
    PoolProblem,
    clip_axes,
    element_size,
    pool_work,
)
from unpool.kernels.cpu.planner import blob as plan
from unpool.kernels.cpu.planner import request as words
from unpool.kernels.cpu.planner.activation import add_activation, can_activate
from unpool.kernels.cpu.planner.blob import kernel_number
from unpool.kernels.cpu.planner.request import ASK, Lists, lists_of
from unpool.kernels.cpu.vector.registration import jit_inline

_X, _Y, _INDICES, _FLAGS, _PLACES = range(5)  # operands
_NAME = tuple(b"MaxPool")
MIN_RECYCLED_BYTES = 1 << 19
"""Bytes of Y from which on onnxruntime recycles its memory, as `unpool/memory.py` has it."""


@jit()
def plan_max_pool(request, out, first, stop):
    """Write the plan of a MaxPool to `out`, which holds zeros; its bytes, or ASK."""
    lists = lists_of(request)
    if not words.is_known(request, lists) or not _is_version_fine(request):
        return ASK
    rank = request[words.KERNEL]
    axes = np.empty((rank, 6), np.int64)
    y_shape = request[lists.x : lists.x + rank + 2].copy()
    for number in range(rank):
        axis = _axis(request, lists, number)
        if axis.small < 0 or axis.small > words.MOST_POSITIONS:
            return ASK
        set_axis(axes, number, axis)
        y_shape[words.spatial_first(request) + number] = axis.small
    if words.bytes_of(y_shape, 8) > words.MOST_BYTES:
        return ASK
    return _write(request, lists, axes, y_shape, out)


@jit_inline
def _is_version_fine(request: Any) -> bool:
    """True if the version has all that is asked for."""
    since, kind = _version(request), request[words.TYPE]
    if request[words.OUTPUTS] > 2 or request[words.OUTPUTS] < 1 or request[words.INPUTS] != 1:
        return False
    if since > 0:
        if since < 10 and (request[words.DILATIONS] >= 0 or request[words.CEIL] >= 0):
            return False
        if since < 8 and (request[words.COLUMN_MAJOR] >= 0 or request[words.OUTPUTS] > 1):
            return False
        if (since < 22 and kind == words.BFLOAT16) or (since < 12 and (kind == words.INT8 or kind == words.UINT8)):
            return False
        if words.has_activation(request) and request[words.DOMAIN] == words.STANDARD:
            return False
    if request[words.OPSET] > 0 and since == 0:
        return False
    return request[words.CEIL] <= 1 and request[words.COLUMN_MAJOR] <= 1 and can_activate(request)


@jit_inline
def _version(request: Any) -> int:
    """The version that an opset selects; 0 for the newest, and for none."""
    since = 0
    for version in (1, 8, 10, 11, 12, 22):
        if version <= request[words.OPSET] and not (version == 22 and request[words.DOMAIN] == words.NHWC):
            since = version
    return since


@jit_inline
def _axis(request: Any, lists: Lists, number: int) -> Axis:
    """A spatial axis; a small size below 0 if it is refused."""
    rank, stride, dilation, begin, end = request[words.KERNEL], 1, 1, 0, 0
    if request[words.STRIDES] >= 0:
        stride = request[lists.strides + number]
    if request[words.DILATIONS] >= 0:
        dilation = request[lists.dilations + number]
    if request[words.PADS] >= 0:
        begin, end = request[lists.pads + number], request[lists.pads + rank + number]
    window, is_ort = Window(request[lists.kernel + number], stride, dilation), request[words.IS_ORT] != 0
    large = request[lists.x + words.spatial_first(request) + number]
    is_refused = is_ort and max(begin, end) >= window.size
    if not is_ort and request[words.PADDING] != Padding.EXPLICIT and not words.no_padding(request, lists):
        is_refused = True
    rule = PoolRule(request[words.PADDING], request[words.CEIL] == 1, is_ort)
    before, small = place_pool(large, window, (begin, end), rule)
    return Axis(large, -1 if is_refused else small, window, before)


@jit_inline
def elements_of(kind: int) -> ElementType:
    """The element type of arrays; its bits are its number in `axes.ELEMENTS`."""
    if kind == words.FLOAT:
        return ElementType(0, _FLOAT32[0], _FLOAT32[1])
    if kind == words.DOUBLE:
        return ElementType(1, _FLOAT64[0], _FLOAT64[1])
    if kind == words.FLOAT16:
        return ElementType(2, _FLOAT16[0], _FLOAT16[1])
    if kind == words.BFLOAT16:
        return ElementType(2, _BFLOAT16[0], _BFLOAT16[1])
    return ElementType(3, 0, -128) if kind == words.INT8 else ElementType(4, 0, 0)


_FLOAT32 = 0x7F800000, -0x800000
_FLOAT64 = 0x7FF0000000000000, -0x10000000000000
_FLOAT16 = 0x7C00, -0x400
_BFLOAT16 = 0x7F80, -0x80
"""Bits of infinity, and of minus infinity."""


@jit_inline
def _write(request: Any, lists: Lists, axes: Any, y_shape: Any, out: Any) -> int:
    """Write the plan of a MaxPool with these axes and this shape of Y."""
    rank, is_last = request[words.KERNEL], request[words.CHANNELS_LAST] != 0
    size, has_indices = words.element_bytes(request[words.TYPE]), request[words.OUTPUTS] == 2
    x_shape = request[lists.x : lists.x + rank + 2]
    batch, channels = x_shape[0], x_shape[words.channel_axis(request)]
    results = batch * channels * small_sizes(axes, 0)
    places_shape = np.empty(rank + 2, np.int64)
    places_shape[0], places_shape[1] = batch, channels
    for number in range(rank):
        places_shape[2 + number] = axes[number, 1]
    if results * (size + (8 if has_indices else 0)) >= request[words.LARGEST_OUTPUT]:
        return ASK
    blob = plan.new_blob(out, request[words.CORES], rank + 2)
    plan.set_operand(blob, _X, Kind.INPUT, 0, size, x_shape)
    plan.set_operand(blob, _Y, Kind.OUTPUT, 0, size, y_shape)
    plan.set_operand(blob, _INDICES, Kind.OUTPUT, 1, 8, places_shape)
    plan.set_operand(blob, _PLACES, Kind.SCRATCH, 1, 8, y_shape)
    plan.use(blob, _Y)
    if has_indices:
        plan.use(blob, _INDICES)
    if results > 0:
        mode = PoolMode(is_last, False, False, results * size >= MIN_RECYCLED_BYTES)
        elements = elements_of(request[words.TYPE])
        clipped = clip_axes(axes)
        outer, plane = batch, PlaneAxes(clipped, Axis(channels, channels, Window(1, 1, 1), 0), channels)
        if not is_last:
            last = axis_at(clipped, rank - 1)
            outer, plane = batch * channels, PlaneAxes(clipped[: rank - 1], last, 1)
        pool = PoolProblem(outer, plane, elements, has_indices, mode)
        is_final = not has_indices or not (is_last or request[words.COLUMN_MAJOR] == 1)
        places = _INDICES if has_indices else _Y
        if not is_final and is_last:
            places = _PLACES
        _add_pool(blob, pool, places, request[words.MAY_COMPILE] != 0)
        if not is_final:
            plan.connect_next(blob, 0, DONE)
            _add_recount(blob, request, axes, batch, channels, places, x_shape)
        if words.has_activation(request):
            plan.connect_next(blob, 0, DONE)
            add_activation(blob, request, _Y, results)
    label = plan.label_of(_NAME, _version(request), is_last)
    size_of_plan: int = plan.finish(blob, request, lists.key, request[words.KEY], 1, 2 if has_indices else 1, label)
    return size_of_plan


@jit_inline
def _add_pool(blob: Any, pool: PoolProblem, places: int, may_compile: bool) -> None:
    """The steps of the kernel that `unpool.kernels.cpu.max_pool.kernels` has first."""
    tiling = tiles.find_tiling(pool.plane)
    if tiling.is_there and element_size(pool.elements) != 2 and tiles.is_wide(pool, tiling):
        tiling = tiles.WindowTiling(tiling.corners, tiling.offsets, 0, False, False)
    is_shared = doubling.is_worthwhile(pool)
    is_float = pool.elements.bits <= 2
    if tiling.is_there and tiling.is_disjoint:
        _add_tiles(blob, pool, tiling, places)
    elif is_float and rolling.is_rolling(pool) and (may_compile or rolling.is_common(pool)):
        _add_rolling(blob, pool, places)
    elif separable.is_possible(pool) and separable.is_cheaper(pool):
        _add_separable(blob, pool, places, is_shared)
    elif tiling.is_there and not is_shared:
        _add_tiles(blob, pool, tiling, places)
    elif is_shared:
        _add_doubling(blob, pool, places, UNFLAGGED, False)
    else:
        _add_direct(blob, pool, places, UNFLAGGED, False)


@jit_inline
def _add_arrays(blob: Any, places: int) -> None:
    plan.add_handle(blob, _X)
    plan.add_handle(blob, _Y)
    plan.add_handle(blob, places)


@jit_inline
def _add_tiles(blob: Any, pool: PoolProblem, tiling: Any, places: int) -> None:
    made, size = tiles.plan(pool, tiling), element_size(pool.elements)
    params, record = made.params, np.zeros(16, np.int64)
    at = plan.add_fields(
        record, 0,
        (
            params.elements, params.plane, params.small, params.outer_places, params.lane_places,
            params.prefetch_distance,
        ),
    )  # fmt: skip
    at = plan.add_field(record, at, int(params.y_non_temporal), 1)
    at = plan.add_field(record, at, int(params.indices_non_temporal), 1)
    at = plan.add_field(record, at, params.nan, 8)
    at = plan.add_field(record, at, params.lowest, size)
    at = plan.add_field(record, at, params.infinity, size)
    _add_arrays(blob, places)
    plan.add_record(blob, record, at, 8)
    plan.add_array(blob, tiling.corners)
    plan.add_array(blob, tiling.offsets)
    kernel = kernel_number(
        plan.TILES, pool.elements.bits, pool.plane.lanes.window.size, int(pool.has_indices), int(made.is_wide),
        made.block,
    )  # fmt: skip
    plan.add_step(blob, kernel, made.jobs, pool_work(pool))


@jit_inline
def _add_rolling(blob: Any, pool: PoolProblem, places: int) -> None:
    params, jobs = rolling.plan(pool)
    record, sizes = np.zeros(16, np.int64), params.plane
    at = plan.add_fields(
        record, 0,
        (
            params.elements, sizes.height, sizes.width, sizes.small_height, sizes.small_width, sizes.top,
            sizes.left, params.bands, params.band_height, params.outer_places, params.prefetch_bytes,
        ),
    )  # fmt: skip
    at = plan.add_field(record, at, int(params.has_prefetch), 1)
    at = plan.add_field(record, at, int(params.indices_non_temporal), 1)
    at = plan.add_field(record, at, params.infinity, 8)
    at = plan.add_field(record, at, params.nan, 8)
    _add_arrays(blob, places)
    plan.add_record(blob, record, at, 8)
    rows, columns = axis_at(pool.plane.leading, 0).window, pool.plane.lanes.window
    kernel = kernel_number(
        plan.ROLLING, pool.elements.bits, rows.size, columns.size, rows.stride, int(pool.has_indices)
    )
    plan.add_step(blob, kernel, jobs, pool_work(pool))


@jit_inline
def _add_separable(blob: Any, pool: PoolProblem, places: int, is_shared: bool) -> None:
    element, axes = pool.elements.bits, pool.plane.leading
    strips, tables = separable_plan.make_strips(pool.plane, element, pool.has_indices, pool.outer, pool.mode.per_plane)
    params, jobs, bands = separable.plan(pool, strips)
    planes, lines = strips.planes, strips.lines
    record, width = np.zeros(32, np.int64), compare_size(element)
    at = plan.add_fields(
        record, 0,
        (
            planes.plane, planes.outputs, planes.strips, planes.strip_rows, planes.strip_elements,
            planes.strip_outputs, planes.used_rows, planes.last_used_rows,
        ),
    )  # fmt: skip
    at = plan.add_field(record, at, int(planes.counts_planes), 1)
    at = plan.add_fields(
        record, at + -at % 8,
        (
            lines.line_pitch, lines.even, lines.odd, lines.row_elements, lines.row_start, lines.line_rows,
            lines.line_size, lines.shift, strips.pooled_size, strips.pooled_pitch,
        ),
    )  # fmt: skip
    at = plan.add_field(record, at, int(strips.has_channels), 1)
    at = plan.add_fields(record, at + -at % 8, (params.prefetch_distance, params.nan, params.infinity))
    at = plan.add_field(record, at, separable.fill_bits(element, pool.elements.lowest, pool.has_indices), width)
    flags = np.empty(1, np.int64)
    flags[0] = jobs
    plan.set_operand(blob, _FLAGS, Kind.SCRATCH, 0, 8, flags)
    _add_arrays(blob, places)
    plan.add_view(blob, _FLAGS, 8, jobs)
    plan.add_record(blob, record, at, 8)
    plan.add_array(blob, tables.starts)
    plan.add_places(blob, tables.row_places, width)
    plan.add_places(blob, tables.lane_places, width)
    plan.add_array(blob, tables.tap_bytes)
    plan.add_array(blob, tables.tap_places)
    plan.add_rows(blob, tables.line_reductions)
    plan.add_rows(blob, tables.plane_reductions)
    last = pool.plane.lanes if pool.plane.unit == 1 else axis_at(axes, len(axes) - 1)
    stride = separable_plan.known_stride(last, pool.plane.unit)
    kernel = kernel_number(plan.SEPARABLE, element, stride, int(pool.has_indices), 0, 0)
    step = plan.add_step(blob, kernel, jobs, pool_work(pool))
    plan.set_outcome(blob, step, Condition.ALL_FALSE, (DONE, 1, plan.UNUSED))
    if is_shared:
        _add_doubling(blob, pool, places, bands, True)
    else:
        _add_direct(blob, pool, places, bands, True)


@jit_inline
def _add_flags(blob: Any, has_flags: bool) -> None:
    if has_flags:
        plan.add_handle(blob, _FLAGS)
    else:
        plan.add_number(blob, 0)


@jit_inline
def _add_direct(blob: Any, pool: PoolProblem, places: int, bands: FlaggedBands, has_flags: bool) -> None:
    steps, table, listed = direct.row_walks(pool.plane)
    made, size = direct.plan(pool, listed, bands), element_size(pool.elements)
    params, lanes, record = made.params, made.params.lanes, np.zeros(24, np.int64)
    at = plan.add_fields(
        record, 0,
        (
            params.elements, params.plane, params.rows, params.outer_places, params.lane_places, lanes.small,
            lanes.large, lanes.begin, lanes.window, lanes.stride, lanes.dilation, params.listed,
            params.prefetch_distance, bands.rows, bands.in_group, bands.group_rows, params.nan,
        ),
    )  # fmt: skip
    at = plan.add_field(record, at, params.lowest, size)
    at = plan.add_field(record, at, params.infinity, size)
    _add_arrays(blob, places)
    _add_flags(blob, has_flags)
    plan.add_record(blob, record, at, 8)
    plan.add_array(blob, steps)
    plan.add_array(blob, table)
    kernel = kernel_number(
        plan.DIRECT, pool.elements.bits, made.step, int(pool.has_indices), int(made.is_wide), made.registers
    )
    plan.add_step(blob, kernel, made.jobs, made.work)


@jit_inline
def _add_doubling(blob: Any, pool: PoolProblem, places: int, bands: FlaggedBands, has_flags: bool) -> None:
    made = doubling.plan(pool, bands)
    params, record, tables = made.params, np.zeros(20, np.int64), made.tables
    at = plan.add_fields(
        record, 0,
        (
            params.large, params.small, params.channels, params.plane_places, params.most, params.longest,
            params.rows, bands.rows, bands.in_group, bands.group_rows,
        ),
    )  # fmt: skip
    at = plan.add_field(record, at, int(params.nan_last), 1)
    at = plan.add_fields(record, at + -at % 8, (params.infinity, params.lowest))
    _add_arrays(blob, places)
    _add_flags(blob, has_flags)
    plan.add_record(blob, record, at, 8)
    plan.add_array(blob, tables.axes)
    plan.add_array(blob, tables.firsts)
    plan.add_array(blob, tables.counts)
    plan.add_array(blob, tables.inverses)
    kernel = kernel_number(plan.DOUBLING, pool.elements.bits, int(pool.has_indices), 0, 0, 0)
    plan.add_step(blob, kernel, made.jobs, made.work)


@jit_inline
def _add_recount(
    blob: Any, request: Any, axes: Any, batch: int, channels: int, places: int, x_shape: Any
) -> None:  # fmt: skip
    """The step that writes indices in their order."""
    rank, is_last = request[words.KERNEL], request[words.CHANNELS_LAST] != 0
    count = batch * channels * small_sizes(axes, 0)
    outer, lanes = (batch, channels) if is_last else (1, 1)
    if request[words.COLUMN_MAJOR] == 1:
        pairs = np.empty((rank + 1, 2), np.int64)
        pairs[0, 0], pairs[0, 1], weight = batch * channels, large_sizes(axes, 0), 1
        for number in range(rank):
            pairs[1 + number, 0], pairs[1 + number, 1] = axes[number, 0], weight
            weight *= axes[number, 0]
    else:
        pairs = np.ones((1, 2), np.int64)
        pairs[0, 0] = batch * channels * large_sizes(axes, 0)
    add_recount(blob, recount.plan(pairs, outer, lanes, count // (outer * lanes)), (places, _INDICES, count))


@jit_inline
def add_recount(blob: Any, made: Any, operands: Any) -> None:
    """The step of a call of `unpool.kernels.cpu.indices` of a number of indices, from an operand to another one."""
    source, target, count = operands
    record = np.zeros(4, np.int64)
    params = made.params
    at = plan.add_fields(record, 0, (params.limit, params.channels, params.places, params.block))
    plan.add_view(blob, source, 8, count)
    plan.add_view(blob, target, 8, count)
    plan.add_array(blob, made.axes)
    plan.add_record(blob, record, at, 8)
    plan.add_step(blob, kernel_number(plan.RECOUNT, 0, 0, 0, 0, 0), made.jobs, made.work)
