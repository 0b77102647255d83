"""Plans of ConvTranspose: as `unpool/execute/conv_transpose.py` prepares them.

A node whose weights are constant has two plans. That of a run has the bias and the packed weights as constants, in this
order, of the weights alone if a run passes the bias. The one of `PACK` computes them once: its outputs are these
constants, which begin as zeros, and its inputs are the node's.
"""

import math
from typing import Any

import numpy as np

from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.axes import axis_at, large_sizes, set_axis, small_sizes
from unpool.kernels.cpu.conv_transpose import phases, phases_plan, winograd_steps
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, Storage, phase_count, window_taps
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.plan import NOT_MET, Kind
from unpool.kernels.cpu.planner import blob as plan
from unpool.kernels.cpu.planner import conv_transpose_request as asked
from unpool.kernels.cpu.planner import conv_transpose_steps as steps
from unpool.kernels.cpu.planner import request as words
from unpool.kernels.cpu.planner.conv_transpose_call import (
    CONSTANT_B,
    B,
    Call,
    W,
    X,
    Y,
    add_convert,
    element_of,
    new_scratch,
    next_constant,
    sums_element,
)
from unpool.kernels.cpu.planner.conv_transpose_request import ConvTransposeLists
from unpool.kernels.cpu.planner.phase_tables import cheapest
from unpool.kernels.cpu.planner.request import ASK
from unpool.kernels.cpu.tuning import PHASES_SIZES
from unpool.kernels.cpu.vector.registration import jit_inline

_NAME = tuple(b"ConvTranspose")
_MOST_WORK = float(1 << 60)
"""Products from which on no plan is made here, so that no cost exceeds 64 bits."""


@jit()
def plan_conv_transpose(request, out, first, stop):
    """Write the plan of a ConvTranspose to `out`, which holds zeros; its bytes, or ASK."""
    lists = asked.lists_of(request)
    if not asked.is_known(request, lists):
        return ASK
    rank, maps = request[words.X] - 2, request[lists.w + 1] * request[asked.GROUP]
    axes, y_shape = np.empty((rank, 6), np.int64), request[lists.x : lists.x + rank + 2].copy()
    for number in range(rank):
        axis = asked.axis_of(request, lists, number)
        if axis.large < 0 or max(axis.large, axis.small) > words.MOST_POSITIONS:
            return ASK
        set_axis(axes, number, axis)
        y_shape[words.spatial_first(request) + number] = axis.large
    y_shape[words.channel_axis(request)] = maps
    if words.bytes_of(y_shape, 8) > words.MOST_BYTES or not asked.is_shape_fine(request, lists, maps):
        return ASK
    products = float(request[lists.w + 1]) * request[lists.w] * request[lists.x] * window_taps(axes)
    if products * max(small_sizes(axes, 0), large_sizes(axes, 0)) > _MOST_WORK:
        return ASK
    size: int = _write(request, lists, axes, y_shape, out)
    return size


ELEMENT, CORES, BATCH, GROUP, CHANNELS, MAPS, AXES = range(7)
"""Words that a cost is asked for: bytes of an element, cores, the batch, the group, channels of x, those of y in one
group, and six numbers for each axis."""


@jit()
def cost_conv_transpose(request, out, first, stop):
    """Write the cost of a plain call with constant weights to `out`, as `unpool.execute` has it; 0, or ASK."""
    rank, size = (request.size - AXES) // 6, request[ELEMENT]
    group, channels, maps = request[GROUP], request[CHANNELS], request[MAPS]
    axes, work = np.empty((rank, 6), np.int64), float(request[BATCH]) * channels * maps
    for number in range(rank):
        axes[number] = request[AXES + 6 * number : AXES + 6 * number + 6]
        axis = axis_at(axes, number)
        longest = max(axis.large, axis.small, axis.window.size * axis.window.dilation)
        if longest > words.MOST_POSITIONS:
            return ASK
        work *= float(axis.window.size) * longest
    if work > _MOST_WORK:
        return ASK
    is_empty = is_empty_axes(axes) or request[BATCH] * channels * maps == 0
    cut = _cut_of(axes, channels // group, maps, size, request[CORES], is_empty)
    problem = ConvTransposeProblem(
        axes, request[BATCH], group, channels, maps, size, Storage(True, False, False), True, False, None, cut
    )
    chosen, count = conv_transpose.choose(problem)
    out[0] = math.inf
    if chosen[count - 1] == conv_transpose.WINOGRAD:
        out[0] = winograd_steps.cost(problem)
    if chosen[count - 1] == conv_transpose.PHASES:
        out[0] = phases.cost(problem)
    return 0


@jit_inline
def _write(request: Any, lists: ConvTransposeLists, axes: Any, y_shape: Any, out: Any) -> int:
    """Write the plan of a ConvTranspose with these axes and this shape of Y."""
    rank, kind, is_last = request[words.X] - 2, request[words.TYPE], request[words.CHANNELS_LAST] != 0
    stored, group, maps = words.element_bytes(kind), request[asked.GROUP], request[lists.w + 1]
    channels, batch, is_constant = request[lists.w], request[lists.x], request[asked.WEIGHTS] != asked.RUN
    size: Any = max(stored, 4)
    is_pack, results = request[asked.PART] == asked.PACK, 1
    for number in range(rank + 2):
        results *= y_shape[number]
    if results * stored >= request[words.LARGEST_OUTPUT]:
        return ASK
    blob = plan.new_blob(out, request[words.CORES], rank + 2)
    b_shape = np.empty(1, np.int64)
    b_shape[0] = maps * group
    plan.set_operand(blob, X, Kind.INPUT, 0, stored, request[lists.x : lists.x + rank + 2])
    plan.set_operand(blob, W, Kind.INPUT, 1, stored, request[lists.w : lists.w + rank + 2])
    plan.set_operand(blob, B, Kind.INPUT, 2, stored, b_shape)
    plan.set_operand(blob, Y, Kind.OUTPUT, 0, stored, y_shape)
    if not is_pack:
        plan.use(blob, Y)
    outputs = 0 if is_pack else 1
    if results > 0:
        storage = Storage(stored == size and not is_last, is_last, False)
        empty = is_empty_axes(axes) or batch * channels * maps == 0
        problem = ConvTransposeProblem(
            axes, batch, group, channels, maps, size, storage, is_constant, request[asked.EXACT] != 0, None,
            _cut_of(axes, channels // group, maps, size, request[words.CORES], empty),
        )  # fmt: skip
        call = Call(
            blob, request, problem, stored, element_of(kind), np.zeros(2, np.int64), request[asked.WEIGHTS],
            asked.bounds_of(request),
        )  # fmt: skip
        outputs = _add_steps(call, b_shape) if not is_pack else _add_packing(call, b_shape)
        if outputs < 0:
            return ASK
    label = plan.label_of(_NAME, asked.version(request), is_last)
    size_of_plan: int = plan.finish(blob, request, lists.key, request[words.KEY], request[words.INPUTS], outputs, label)
    return size_of_plan


@jit_inline
def is_empty_axes(axes: Any) -> bool:
    """True if an axis has no elements."""
    return small_sizes(axes, 0) == 0 or large_sizes(axes, 0) == 0


@jit_inline
def _cut_of(axes: Any, channels: int, maps: int, size: int, cores: int, is_empty: bool) -> Any:
    """The cheapest blocking by phases; one of infinite cost where there is none."""
    if is_empty or max(window_taps(axes), phase_count(axes)) > PHASES_SIZES.taps:
        single = np.ones((1, 6), np.int64)
        single[0, 5] = 0
        made = cheapest(single, 1, 1, size, cores)
        return phases_plan.Blocking(made.plan, made.block, made.chunk, made.tile, made.step, made.workspace, math.inf)
    return cheapest(axes, channels, maps, size, cores)


@jit_inline
def _add_steps(call: Call, b_shape: Any) -> int:
    """The steps that write Y, as `ConvTransposeDispatcher.steps` has them; the number of outputs, or ASK."""
    request, problem, bias = call.request, call.problem, B
    if request[asked.BIAS] != asked.RUN:
        plan.set_operand(call.blob, CONSTANT_B, Kind.CONSTANT, next_constant(call), problem.dtype, b_shape)
        bias = CONSTANT_B
    elif call.stored != problem.dtype:
        bias = new_scratch(call, b_shape)
        add_convert(call, (B, bias), (call.element, sums_element(call)), (1, b_shape[0], 1))
    numbers, count = conv_transpose.choose(problem)
    if numbers[count - 1] == conv_transpose.GEMM_1X1:
        numbers[0], count = conv_transpose.GEMM_1X1, 1
    begin = 0
    for place in range(count - 1, -1, -1):
        number = numbers[place]
        takes_all = number == conv_transpose.GEMM_1X1 or number == conv_transpose.ROWS
        is_refused = call.weights == asked.NOT_FINITE and not takes_all
        if number == conv_transpose.WINOGRAD and not is_refused:
            return ASK
        if begin > 0:
            plan.connect_next(call.blob, 0, NOT_MET)
        if not steps.add_algorithm(call, number, bias, is_refused):
            return ASK
        if not is_refused:
            begin = plan.step_count(call.blob)
        if not is_refused and (takes_all or call.weights != asked.RUN):
            break
    return 1


@jit_inline
def _add_packing(call: Call, b_shape: Any) -> int:
    """The steps that compute constants; their number, or ASK."""
    request, problem, count = call.request, call.problem, 0
    if request[asked.BIAS] != asked.RUN:
        plan.set_operand(call.blob, CONSTANT_B, Kind.OUTPUT, 0, problem.dtype, b_shape)
        plan.use(call.blob, CONSTANT_B)
        count = 1
    if call.weights != asked.RUN:
        numbers, chosen = conv_transpose.choose(problem)
        number = numbers[chosen - 1]
        if call.weights == asked.NOT_FINITE and number != conv_transpose.GEMM_1X1:
            number = conv_transpose.ROWS
        if number == conv_transpose.WINOGRAD:
            return ASK
        steps.add_pack(call, number, count)
        count += 1
    if request[asked.BIAS] == asked.CONSTANT:
        add_convert(call, (B, CONSTANT_B), (call.element, sums_element(call)), (1, b_shape[0], 1))
    return count
