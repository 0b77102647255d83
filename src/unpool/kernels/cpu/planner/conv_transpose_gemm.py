"""The steps of a ConvTranspose of inputs with one element per channel, as `conv_transpose/gemm_1x1.py` has them."""

from typing import Any

import numpy as np

from unpool.kernels.cpu.axes import axis_at, set_axis
from unpool.kernels.cpu.conv_transpose import gemm_1x1
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, split_cost, window_taps
from unpool.kernels.cpu.machine.jobs import PARTS_PER_THREAD
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, thread_count_of
from unpool.kernels.cpu.planner import blob as plan
from unpool.kernels.cpu.planner import conv_transpose_request as asked
from unpool.kernels.cpu.planner.blob import kernel_number
from unpool.kernels.cpu.planner.conv_transpose_call import (
    RECORD_WORDS,
    Call,
    W,
    add_arrays,
    add_bounds,
    add_views,
    constant_weights,
    find_weights,
    new_scratch,
    plane_shape,
    sums_element,
    weights_shape,
)
from unpool.kernels.cpu.vector.registration import jit_inline


@jit_inline
def met_problem(problem: Any) -> Any:
    """As `gemm_1x1.crop_to_met_taps`."""
    axes = problem.axes.copy()
    if gemm_1x1.meets_some(problem.axes):
        for number in range(len(axes)):
            set_axis(axes, number, gemm_1x1.met_axis(axis_at(problem.axes, number)))
    return ConvTransposeProblem(
        axes, problem.batch, problem.group, problem.channels, problem.maps, problem.dtype, problem.is_plain,
        problem.is_cached, problem.is_channels_last, problem.is_exact, problem.is_amx, problem.algorithm, problem.cut,
    )  # fmt: skip


@jit_inline
def add_gemm(call: Call, x: int, b: int, y: int) -> None:
    """As `gemm_1x1.steps`, with weights as its `Algorithm.steps` has them."""
    problem = call.problem
    met, w = met_problem(problem), W
    if call.weights != asked.RUN:
        used = met if window_taps(met.axes) < window_taps(problem.axes) else problem
        w = constant_weights(call, weights_shape(problem.channels, problem.maps, used.axes))
        problem = used
    else:
        w = find_weights(call)
    axes, batch, maps, channels = problem.axes, problem.batch, problem.maps, problem.channels
    if gemm_1x1.is_whole(axes):
        _add_multiply(call, problem, window_taps(axes), (x, w, b, y))
        return
    spans, sizes = met_spans(axes), weights_shape(batch, maps, axes)
    taps, overlap = window_taps(axes), window_taps(met.axes)
    starts = spans[:, 0].copy()
    if not gemm_1x1.meets_some(axes):
        overlap = 0
    if gemm_1x1.is_cropped(problem):
        kept, extents = new_scratch(call, _cropped_shape(channels, maps, spans)), spans[:, 1] - spans[:, 0]
        if overlap > 0:
            add_copy(call, (w, kept, w), channels * maps, 0, (sizes[2:], extents), (starts, 0 * starts), spans)
        w, starts = kept, 0 * starts
        sizes = _cropped_shape(batch, maps, spans)
        taps = overlap
    windows = new_scratch(call, sizes)
    if overlap > 0:
        _add_multiply(call, problem, taps, (x, w, b, windows))
    larges = plane_shape(call, batch, True, maps)[2:]
    add_copy(call, (windows, y, b), batch * maps, maps, (sizes[2:], larges), (starts, 0 * starts), spans)


@jit_inline
def met_spans(axes: Any) -> Any:
    """The first tap of each axis that reaches an output, and the end of such taps."""
    spans = np.empty((len(axes), 2), np.int64)
    for number in range(len(axes)):
        first, stop = gemm_1x1.met_span(axis_at(axes, number))
        spans[number, 0], spans[number, 1] = first, stop
    return spans


@jit_inline
def _cropped_shape(rows: int, maps: int, spans: Any) -> Any:
    shape = np.empty(len(spans) + 2, np.int64)
    shape[0], shape[1] = rows, maps
    for number in range(len(spans)):
        shape[2 + number] = spans[number, 1] - spans[number, 0]
    return shape


@jit_inline
def add_copy(call: Call, operands: Any, planes: int, maps: int, sizes: Any, starts: Any, spans: Any) -> None:
    """As `copy_rows.launch` with `box_rows`, of the box of spans."""
    (source, target, background), rank, count = operands, len(spans), 1
    planes_of = np.ones(2, np.int64)
    for number in range(rank):
        planes_of[0] *= sizes[0][number]
        planes_of[1] *= sizes[1][number]
        if number < rank - 1:
            count *= spans[number, 1] - spans[number, 0]
    length = spans[rank - 1, 1] - spans[rank - 1, 0]
    if length == 0:
        count = 0
    rows, record = np.zeros((count, 2), np.int64), np.zeros(4, np.int64)
    for row in range(count):
        for side in range(2):
            rest, weight = row, sizes[side][rank - 1]
            place = starts[side][rank - 1]
            for number in range(rank - 2, -1, -1):
                extent = spans[number, 1] - spans[number, 0]
                place += (starts[side][number] + rest % extent) * weight
                rest, weight = rest // extent, weight * sizes[side][number]
            rows[row, side] = place
    at = plan.add_fields(record, 0, (planes_of[0], planes_of[1], length, maps))
    work = planes * (count * length + (planes_of[1] if maps > 0 else 0)) // VECTOR_SPEEDUP
    for operand in (source, target, background):
        plan.add_view(
            call.blob, operand, call.problem.dtype, plan.operand_bytes(call.blob, operand) // call.problem.dtype
        )
    plan.add_record(call.blob, record, at, 8)
    plan.add_array(call.blob, rows)
    plan.add_step(call.blob, kernel_number(plan.COPY_ROWS, sums_element(call), 0, 0, 0, 0), planes, work)


@jit_inline
def _add_multiply(call: Call, problem: Any, taps: int, operands: Any) -> None:
    """As `gemm_1x1._multiply`."""
    (x, w, b, windows), columns, blob = operands, problem.maps * taps, call.blob
    if gemm_1x1.is_narrow(problem, taps):
        add_views(call, x, w, b, windows)
        plan.add_number(blob, problem.batch)
        kernel = kernel_number(plan.GEMM_OF_MAPS, sums_element(call), 0, 0, 0, 0)
        plan.add_step(blob, kernel, problem.maps, problem.batch * problem.channels * columns)
        return
    record, is_one = np.zeros(RECORD_WORDS, np.int64), problem.batch == 1
    at = plan.add_fields(record, 0, (problem.batch, problem.channels, columns, taps))
    at = add_bounds(call, record, at)
    add_arrays(call, x, w, b, windows)
    plan.add_record(blob, record, at, 8)
    threads = thread_count_of(split_cost(problem) * taps // window_taps(problem.axes), blob.cores)
    kernel = kernel_number(plan.GEMM_OF_ONE if is_one else plan.GEMM, sums_element(call), 0, 0, 0, 0)
    parts = 1 if is_one else PARTS_PER_THREAD
    plan.add_parted_step(blob, kernel, -(-columns // gemm_1x1.width(problem)), threads, parts)
