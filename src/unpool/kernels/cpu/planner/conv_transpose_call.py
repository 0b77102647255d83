"""A ConvTranspose that is planned: its operands and weights."""

from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import convert
from unpool.kernels.cpu.axes import axis_at
from unpool.kernels.cpu.conv_transpose.problem import window_taps
from unpool.kernels.cpu.machine.plan import NOT_MET, Condition, Kind
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP
from unpool.kernels.cpu.planner import blob as plan
from unpool.kernels.cpu.planner import conv_transpose_request as asked
from unpool.kernels.cpu.planner import request as words
from unpool.kernels.cpu.planner.blob import kernel_number
from unpool.kernels.cpu.tuning import PACKING
from unpool.kernels.cpu.vector.registration import jit_inline

X, W, B, Y, CONSTANT_B, CONSTANT_W, _SCRATCH = range(7)  # operands
RECORD_WORDS = 32
"""Words for the record of a kernel's arguments."""

_FLOAT32, _FLOAT64, _INT16, _UINT16 = 0, 1, 2, 5
"""Element types of kernels: as `axes.ELEMENTS`, and the bits of bfloat16."""


class Call(NamedTuple):
    """A ConvTranspose that is planned."""

    blob: plan.Blob
    request: Any
    problem: Any  # a `ConvTransposeProblem`
    stored: int  # bytes of an element of X and Y
    element: int  # type of X and Y
    counts: Any  # scratch and constants so far
    weights: int  # as in the request
    bounds: asked.Bounds


@jit_inline
def element_of(kind: int) -> int:
    """The element type of arrays of a type."""
    if kind == words.FLOAT16:
        return _INT16
    if kind == words.BFLOAT16:
        return _UINT16
    return _FLOAT64 if kind == words.DOUBLE else _FLOAT32


@jit_inline
def sums_element(call: Call) -> int:
    """The element type of sums."""
    return _FLOAT64 if call.problem.dtype == 8 else _FLOAT32


@jit_inline
def next_constant(call: Call) -> int:
    """The number of a new constant."""
    call.counts[1] += 1
    return int(call.counts[1] - 1)


@jit_inline
def new_scratch(call: Call, shape: Any) -> int:
    """A new operand of a run, in the type of sums."""
    number = int(call.counts[0])
    plan.set_operand(call.blob, _SCRATCH + number, Kind.SCRATCH, number, call.problem.dtype, shape)
    call.counts[0] += 1
    return _SCRATCH + number


@jit_inline
def add_convert(call: Call, operands: tuple[int, int], elements: tuple[int, int], sizes: tuple[int, int, int]) -> None:
    """As `algorithm.convert_steps`, for a number of images, rows and columns."""
    (source, target), (first, second), (images, rows, columns) = operands, elements, sizes
    if images * rows * columns == 0:
        return
    size = 8 if first == _FLOAT64 else 4
    made, record = convert.plan(size, images, rows, columns), np.zeros(3, np.int64)
    at = plan.add_fields(record, 0, (made.params.rows, made.params.columns, made.params.block))
    plan.add_handle(call.blob, source)
    plan.add_handle(call.blob, target)
    plan.add_record(call.blob, record, at, 8)
    plan.add_step(call.blob, kernel_number(plan.CONVERT, first, second, 0, 0, 0), made.jobs, made.work)


@jit_inline
def plane_shape(call: Call, rows: int, axes_are_large: bool, maps: int) -> Any:
    """A shape of (rows, maps, sizes of axes)."""
    axes = call.problem.axes
    shape = np.empty(len(axes) + 2, np.int64)
    shape[0], shape[1] = rows, maps
    for number in range(len(axes)):
        axis = axis_at(axes, number)
        shape[2 + number] = axis.large if axes_are_large else axis.small
    return shape


@jit_inline
def weights_shape(channels: int, maps: int, axes: Any) -> Any:
    """The shape of weights."""
    shape = np.empty(len(axes) + 2, np.int64)
    shape[0], shape[1] = channels, maps
    for number in range(len(axes)):
        shape[2 + number] = axis_at(axes, number).window.size
    return shape


@jit_inline
def constant_weights(call: Call, shape: Any) -> int:
    """The constant with packed weights."""
    plan.set_operand(call.blob, CONSTANT_W, Kind.CONSTANT, next_constant(call), call.problem.dtype, shape)
    return CONSTANT_W


@jit_inline
def find_weights(call: Call) -> int:
    """The weights in the type of sums, as `CallContext.wide_weights` has them."""
    problem = call.problem
    shape = weights_shape(problem.channels, problem.maps, problem.axes)
    if call.weights != asked.RUN:
        return constant_weights(call, shape)
    return wide_weights(call, shape)


@jit_inline
def wide_weights(call: Call, shape: Any) -> int:
    """The weights of a run in the type of sums."""
    if call.stored == call.problem.dtype:
        return W
    wide = new_scratch(call, shape)
    count = call.problem.channels * call.problem.maps * window_taps(call.problem.axes)
    add_convert(call, (W, wide), (call.element, sums_element(call)), (1, count, 1))
    return wide


@jit_inline
def checked_weights(call: Call) -> int:
    """As `find_weights`, where NaN and infinity end the steps with NOT_MET."""
    problem, w = call.problem, find_weights(call)
    if call.weights == asked.RUN:
        size = problem.channels * problem.maps * window_taps(problem.axes)
        plan.add_handle(call.blob, w)
        plan.add_number(call.blob, size)
        kernel = kernel_number(plan.CHECK_FINITE, sums_element(call), 0, 0, 0, 0)
        step = plan.add_step(call.blob, kernel, -(-size // PACKING.checked), size // VECTOR_SPEEDUP)
        plan.set_outcome(call.blob, step, Condition.ALL_TRUE, (1, NOT_MET, plan.UNUSED))
    return w


@jit_inline
def add_arrays(call: Call, x: int, w: int, b: int, y: int) -> None:
    """Arguments that are the handles of operands."""
    plan.add_handle(call.blob, x)
    plan.add_handle(call.blob, w)
    plan.add_handle(call.blob, b)
    plan.add_handle(call.blob, y)


@jit_inline
def add_views(call: Call, x: int, w: int, b: int, y: int) -> None:
    """Arguments that are flat arrays of sums."""
    size = call.problem.dtype
    for operand in (x, w, b, y):
        plan.add_view(call.blob, operand, size, plan.operand_bytes(call.blob, operand) // size)


@jit_inline
def add_bounds(call: Call, record: Any, at: int) -> int:
    """The fields of the activation of sums."""
    size, bounds = int(call.problem.dtype), call.bounds
    at = plan.add_field(record, at, int(bounds.is_active), 1)
    for value in (bounds.slope, bounds.low, bounds.high):
        at = plan.add_field(record, at, _bits_of(value, size), size)
    return at + -at % size


@jit_inline
def _bits_of(value: float, size: int) -> int:
    """The bits of a float of 4 or 8 bytes."""
    if size == 8:
        double = np.full(1, value, np.float64)
        return int(double.view(np.int64)[0])
    single = np.full(1, value, np.float32)
    return int(single.view(np.int32)[0])
