"""The steps of the algorithms of ConvTranspose, as those in `unpool/kernels/cpu/conv_transpose` have them."""

from typing import Any

import numpy as np

from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.axes import axis_at, large_sizes, small_sizes
from unpool.kernels.cpu.conv_transpose import gemm_1x1, phases_plan
from unpool.kernels.cpu.conv_transpose.problem import split_cost, window_taps
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jobs import even_job_count
from unpool.kernels.cpu.machine.plan import Kind
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, thread_count_of
from unpool.kernels.cpu.planner import blob as plan
from unpool.kernels.cpu.planner import conv_transpose_request as asked
from unpool.kernels.cpu.planner import direct_tables, phase_tables
from unpool.kernels.cpu.planner.blob import kernel_number
from unpool.kernels.cpu.planner.conv_transpose_call import (
    CONSTANT_W,
    RECORD_WORDS,
    Call,
    W,
    X,
    Y,
    add_arrays,
    add_bounds,
    add_convert,
    add_views,
    checked_weights,
    constant_weights,
    find_weights,
    new_scratch,
    plane_shape,
    sums_element,
    weights_shape,
    wide_weights,
)
from unpool.kernels.cpu.planner.conv_transpose_gemm import add_gemm
from unpool.kernels.cpu.tuning import DIRECT_CONV, PACKING, SUMS
from unpool.kernels.cpu.vector.registration import jit_inline


@jit_inline
def _fits(call: Call, number: int) -> bool:
    """As `Algorithm.fits`, without an activation."""
    problem = call.problem
    if number == conv_transpose.GEMM_1X1:
        return bool(problem.storage.is_plain and gemm_1x1.activates(problem))
    if number == conv_transpose.DIRECT:
        return bool(problem.storage.is_plain)
    if number == conv_transpose.PHASES:
        return not (problem.storage.is_channels_last and problem.maps < SUMS.narrow_store)
    return False


@jit_inline
def add_algorithm(call: Call, number: int, bias: int, is_refused: bool) -> bool:
    """As `dispatch._steps_of`; False for an activation that needs a step.

    With `is_refused` there are no steps, because the algorithm cannot take the weights.
    """
    problem, x, y, fits = call.problem, X, Y, _fits(call, number)
    sums, maps = sums_element(call), problem.maps * problem.group
    small, large = small_sizes(problem.axes, 0), large_sizes(problem.axes, 0)
    if not fits and not problem.storage.is_plain:
        x = new_scratch(call, plane_shape(call, problem.batch, False, problem.channels))
        y = new_scratch(call, plane_shape(call, problem.batch, True, maps))
    if is_refused:
        return True
    if call.bounds.is_active and not fits:
        return False
    if x != X:
        sizes = (1, problem.batch * problem.channels * small, 1)
        if problem.storage.is_channels_last:
            sizes = (problem.batch, small, problem.channels)
        add_convert(call, (X, x), (call.element, sums), sizes)
    is_plain = not fits or call.problem.storage.is_plain
    if number == conv_transpose.GEMM_1X1:
        add_gemm(call, x, bias, y)
    elif number == conv_transpose.DIRECT:
        _add_direct(call, x, checked_weights(call), bias, y)
    elif number == conv_transpose.PHASES:
        _add_phases(call, x, bias, y, is_plain)
    else:
        _add_rows(call, x, find_weights(call), bias, y)
    if y != Y:
        sizes = (1, problem.batch * maps * large, 1)
        if problem.storage.is_channels_last:
            sizes = (problem.batch, maps, large)
        add_convert(call, (y, Y), (sums, call.element), sizes)
    return True


@jit_inline
def _add_rows(call: Call, x: int, w: int, b: int, y: int) -> None:
    problem, record = call.problem, np.zeros(9, np.int64)
    axes, channels = problem.axes, problem.channels // problem.group
    made, lanes, rows = direct_tables.rows_tables(axes), axis_at(axes, len(axes) - 1), 1
    for number in range(len(axes) - 1):
        rows *= axis_at(axes, number).large
    together = SUMS.together * max(1, len(made.spans) // made.most)
    fields = (
        channels, problem.maps, small_sizes(axes, 0), window_taps(axes), rows, lanes.large, lanes.window.stride,
        made.listed, together,
    )  # fmt: skip
    at = plan.add_fields(record, 0, fields)
    jobs = problem.batch * problem.group * problem.maps * rows
    cost = jobs * lanes.large * max(1, channels * made.listed * lanes.window.size // lanes.window.stride)
    add_views(call, x, w, b, y)
    plan.add_record(call.blob, record, at, 8)
    plan.add_array(call.blob, made.steps)
    plan.add_array(call.blob, made.reaching)
    plan.add_array(call.blob, made.spans)
    plan.add_step(call.blob, kernel_number(plan.ROWS, sums_element(call), 0, 0, 0, 0), jobs, cost)


@jit_inline
def _add_direct(call: Call, x: int, w: int, b: int, y: int) -> None:
    problem, blob = call.problem, call.blob
    axes, size, channels, maps = problem.axes, problem.dtype, problem.channels // problem.group, problem.maps
    small, large, taps = small_sizes(axes, 0), large_sizes(axes, 0), window_taps(axes)
    work = problem.batch * problem.group * maps * large + problem.batch * problem.channels * maps * small * taps
    work = work // VECTOR_SPEEDUP
    threads = thread_count_of(work, blob.cores)
    last, lanes = axis_at(axes, len(axes) - 1), vector_bytes() // size
    found, steps = direct_tables.taps_of(last, lanes), -(-last.large // last.window.stride)
    stretch = min(DIRECT_CONV.steps, -(-steps // (4 * lanes)) * 4 * lanes)
    stretches, pitch = -(-steps // stretch), -(-(stretch + found.beyond) // lanes) * lanes * size
    kinds, outer = direct_tables.rows_of(axes[: len(axes) - 1]), problem.batch * problem.group * stretches
    most = DIRECT_CONV.panel // (channels * pitch)
    bands, height = direct_tables.bands_of(kinds.reach, most, -(-even_job_count(threads) // outer)), 0
    for number in range(len(bands)):
        height = max(height, bands[number, 3] - bands[number, 2])
    apart = ((maps * taps * size, height * pitch), (last.window.size * size, pitch), (size, size))
    strip, units = max(1, DIRECT_CONV.strip // (last.large * size)), (last.large * size, pitch, 8 * last.window.stride)
    rows = direct_tables.in_strips(kinds.rows, bands, strip, units)
    bounds, terms = direct_tables.products_of(channels, kinds, found, apart, _spare_terms(last.window.stride))
    record = np.zeros(RECORD_WORDS, np.int64)
    at = plan.add_fields(
        record, 0,
        (
            problem.group, channels, maps, stretches, stretch, pitch, height, last.small, last.large,
            last.window.stride, found.left, found.beyond, small, taps * size,
        ),
    )  # fmt: skip
    at = add_bounds(call, record, at)
    add_arrays(call, x, w, b, y)
    plan.add_record(blob, record, at, 8)
    plan.add_array(blob, bands)
    plan.add_array(blob, rows)
    plan.add_array(blob, bounds)
    plan.add_array(blob, terms)
    kernel = kernel_number(plan.FEW_CHANNELS, sums_element(call), 0, 0, 0, 0)
    plan.add_split_step(blob, kernel, outer * len(bands), threads)


@jit_inline
def _spare_terms(stride: int) -> int:
    """As `direct.loaded_terms`."""
    return 8 if stride == 1 else 0 if stride == 8 else 4


@jit_inline
def _add_phases(call: Call, x: int, b: int, y: int, is_plain: bool) -> None:
    """The steps of an X and Y in the type of sums, channels first, or in their own."""
    problem, blob = call.problem, call.blob
    base, channels, axes = problem.cut, problem.channels // problem.group, problem.axes
    packed = _packed_weights(call, base, channels)
    work = split_cost(problem)
    threads = thread_count_of(work, blob.cores)
    block, parts = phases_plan.block_for_threads(base, problem, threads)
    grid, lanes, maps = base.plan, vector_bytes() // problem.dtype, problem.maps
    line, pitch = phases_plan.line_pitch(grid, block, lanes)
    kinds, offsets, slots = phase_tables.class_tables(grid, channels, line)
    targets, sizes = phase_tables.row_targets(axes, grid), phase_tables.chunk_sizes(base, channels, maps)
    small, large, last = small_sizes(axes, 0), large_sizes(axes, 0), axis_at(axes, len(axes) - 1)
    blocks, chunks, all_maps = -(-grid.length // block), -(-maps // base.chunk), maps * problem.group
    x_channel, x_lane, y_map, y_lane = small, 1, large, 1
    if problem.storage.is_channels_last and not is_plain:
        x_channel, x_lane, y_map, y_lane = 1, problem.channels, 1, all_maps
    record = np.zeros(RECORD_WORDS, np.int64)
    at = plan.add_fields(
        record, 0,
        (
            problem.group, channels, maps, blocks, chunks, block, base.chunk, grid.length, grid.margin, line, pitch,
            base.tile, 0, problem.channels * small, x_channel, x_lane, all_maps * large, y_map, y_lane, last.small,
            grid.padded[-1], last.large, last.window.stride, grid.phases[-1],
        ),
    )  # fmt: skip
    at = add_bounds(call, record, at)
    add_arrays(call, x, packed, b, y)
    plan.add_record(blob, record, at, 8)
    plan.add_array(blob, phase_tables.row_starts(axes, grid))
    plan.add_array(blob, grid.copies)
    plan.add_array(blob, targets)
    plan.add_rows(blob, kinds)
    plan.add_array(blob, offsets)
    plan.add_array(blob, slots)
    plan.add_array(blob, sizes)
    stored = sums_element(call) if is_plain else call.element
    kernel = kernel_number(plan.PHASES, sums_element(call), stored, 0, 0, 0)
    plan.add_parted_step(blob, kernel, problem.batch * problem.group * blocks * chunks, threads, parts)


@jit_inline
def _packed_weights(call: Call, cut: Any, channels: int) -> int:
    """The weights in the order of tiles."""
    whole, tiles, taps = phase_tables.pack_tables(cut, channels, call.problem.maps)
    shape = np.empty(1, np.int64)
    shape[0] = call.problem.group * whole
    if call.weights != asked.RUN:
        return constant_weights(call, shape)
    w = checked_weights(call)
    packed = new_scratch(call, shape)
    _add_pack_phases(call, (w, packed), whole, tiles, taps)
    return packed


@jit_inline
def _add_pack_phases(call: Call, operands: tuple[int, int], whole: int, tiles: Any, taps: Any) -> None:
    problem, blob, record = call.problem, call.blob, np.zeros(5, np.int64)
    (w, packed), channels = operands, problem.channels // problem.group
    rows = phases_plan.tile_shapes()[problem.cut.tile][0]
    at = plan.add_fields(record, 0, (channels, problem.maps, window_taps(problem.axes), rows, whole))
    plan.add_handle(blob, w)
    plan.add_handle(blob, packed)
    plan.add_record(blob, record, at, 8)
    plan.add_rows(blob, tiles)
    plan.add_array(blob, taps)
    kernel = kernel_number(plan.PACK_PHASES, sums_element(call), rows, 0, 0, 0)
    jobs = problem.group * -(-channels // PACKING.channels)
    plan.add_parted_step(blob, kernel, jobs, thread_count_of(problem.group * whole, blob.cores), 1)


@jit_inline
def add_pack(call: Call, number: int, output: int) -> None:
    """The steps that write an output of this number, the packed weights of an algorithm."""
    problem, size = call.problem, call.problem.dtype
    elements, shape = (call.element, sums_element(call)), weights_shape(problem.channels, problem.maps, problem.axes)
    count = problem.channels * problem.maps * window_taps(problem.axes)
    if number == conv_transpose.PHASES:
        whole, tiles, taps = phase_tables.pack_tables(problem.cut, problem.channels // problem.group, problem.maps)
        flat = np.empty(1, np.int64)
        flat[0] = problem.group * whole
        plan.set_operand(call.blob, CONSTANT_W, Kind.OUTPUT, output, size, flat)
        plan.use(call.blob, CONSTANT_W)
        _add_pack_phases(call, (wide_weights(call, shape), CONSTANT_W), whole, tiles, taps)
    else:
        plan.set_operand(call.blob, CONSTANT_W, Kind.OUTPUT, output, size, shape)
        plan.use(call.blob, CONSTANT_W)
        add_convert(call, (W, CONSTANT_W), elements, (1, count, 1))
