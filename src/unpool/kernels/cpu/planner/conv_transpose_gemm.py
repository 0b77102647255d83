"""The steps of a ConvTranspose of inputs with one element per channel, as `conv_transpose/gemm_1x1.py` has them."""

from typing import Any

import numpy as np

from unpool.kernels.cpu.axes import axis_at
from unpool.kernels.cpu.conv_transpose import gemm_1x1
from unpool.kernels.cpu.conv_transpose.problem import split_cost, window_taps
from unpool.kernels.cpu.machine.jobs import PARTS_PER_THREAD
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, thread_count_of
from unpool.kernels.cpu.planner import blob as plan
from unpool.kernels.cpu.planner.blob import kernel_number
from unpool.kernels.cpu.planner.conv_transpose_call import (
    RECORD_WORDS,
    Call,
    add_arrays,
    add_bounds,
    add_views,
    find_weights,
    new_scratch,
    plane_shape,
    sums_element,
    weights_shape,
)
from unpool.kernels.cpu.vector.registration import jit_inline


@jit_inline
def add_gemm(call: Call, x: int, b: int, y: int) -> None:
    """As `gemm_1x1.steps`, with weights as its `Algorithm.steps` has them."""
    problem, w = call.problem, find_weights(call)
    axes, batch, maps = problem.axes, problem.batch, problem.maps
    if gemm_1x1.is_whole(axes):
        _add_multiply(call, (x, w, b, y))
        return
    spans, sizes = _used_spans(axes), weights_shape(batch, maps, axes)
    windows = new_scratch(call, sizes)
    used = 1
    for number in range(len(axes)):
        used *= spans[number, 1] - spans[number, 0]
    if used > 0:
        _add_multiply(call, (x, w, b, windows))
    _add_place(call, (windows, y, b), sizes[2:], spans)


@jit_inline
def _used_spans(axes: Any) -> Any:
    """The first tap of each axis that reaches an output, and the end of such taps."""
    spans = np.empty((len(axes), 2), np.int64)
    for number in range(len(axes)):
        first, stop = gemm_1x1.used_span(axis_at(axes, number))
        spans[number, 0], spans[number, 1] = first, stop
    return spans


@jit_inline
def _add_place(call: Call, operands: Any, window: Any, spans: Any) -> None:
    """As `copy_rows.launch` with `box_rows`: the taps of spans, from windows to y, on the bias."""
    (windows, y, bias), rank, count, problem = operands, len(spans), 1, call.problem
    planes, maps, taps, large = problem.batch * problem.maps, problem.maps, 1, 1
    larges = plane_shape(call, problem.batch, True, maps)[2:]
    for number in range(rank):
        taps *= window[number]
        large *= larges[number]
        if number < rank - 1:
            count *= spans[number, 1] - spans[number, 0]
    length = spans[rank - 1, 1] - spans[rank - 1, 0]
    if length == 0:
        count = 0
    rows, record = np.zeros((count, 2), np.int64), np.zeros(4, np.int64)
    for row in range(count):
        rest, tap, place = row, spans[rank - 1, 0], 0
        tap_weight, weight = window[rank - 1], larges[rank - 1]
        for number in range(rank - 2, -1, -1):
            extent = spans[number, 1] - spans[number, 0]
            tap += (spans[number, 0] + rest % extent) * tap_weight
            place += rest % extent * weight
            rest, tap_weight, weight = rest // extent, tap_weight * window[number], weight * larges[number]
        rows[row, 0], rows[row, 1] = tap, place
    at = plan.add_fields(record, 0, (taps, large, length, maps))
    work = planes * (count * length + (large if maps > 0 else 0)) // VECTOR_SPEEDUP
    for operand in (windows, y, bias):
        plan.add_view(call.blob, operand, problem.dtype, plan.operand_bytes(call.blob, operand) // problem.dtype)
    plan.add_record(call.blob, record, at, 8)
    plan.add_array(call.blob, rows)
    plan.add_step(call.blob, kernel_number(plan.COPY_ROWS, sums_element(call), 0, 0, 0, 0), planes, work)


@jit_inline
def _add_multiply(call: Call, operands: Any) -> None:
    """As `gemm_1x1._multiply`."""
    (x, w, b, windows), problem, blob = operands, call.problem, call.blob
    taps = window_taps(problem.axes)
    columns = problem.maps * taps
    if gemm_1x1.is_narrow(problem):
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
    threads = thread_count_of(split_cost(problem), blob.cores)
    kernel = kernel_number(plan.GEMM_OF_ONE if is_one else plan.GEMM, sums_element(call), 0, 0, 0, 0)
    parts = 1 if is_one else PARTS_PER_THREAD
    plan.add_parted_step(blob, kernel, -(-columns // gemm_1x1.width(problem)), threads, parts)
