"""Plans of MaxUnpool: as `unpool/execute/max_unpool.py` prepares them."""

from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, Window
from unpool.kernels.cpu import indices as recount
from unpool.kernels.cpu.axes import axis_at, large_sizes, set_axis, small_sizes, times
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.plan import DONE, NOT_MET, OUT_OF_RANGE, Condition, Kind
from unpool.kernels.cpu.machine.threads import thread_count_of
from unpool.kernels.cpu.max_unpool import scatter, windows
from unpool.kernels.cpu.planner import blob as plan
from unpool.kernels.cpu.planner import request as words
from unpool.kernels.cpu.planner.activation import add_activation, can_activate
from unpool.kernels.cpu.planner.blob import kernel_number
from unpool.kernels.cpu.planner.max_pool import MIN_RECYCLED_BYTES, add_recount
from unpool.kernels.cpu.planner.request import ASK, AUTO, INFERRED, OUTPUT, Lists, lists_of
from unpool.kernels.cpu.tuning import UNPOOL
from unpool.kernels.cpu.vector.registration import jit_inline

_X, _I, _Y, _MOVED = range(4)  # operands
_NAME = tuple(b"MaxUnpool")
_UNKNOWN = -1  # in place of an index space


class _Problem(NamedTuple):
    """A call."""

    planes: int
    channels: int  # of one outer, the last axis; 1 where planes are outer
    size: int  # bytes of an element
    x: int  # elements
    y: int
    axes: Any
    inferred: Any  # axes with the sizes that follow from attributes alone


@jit()
def plan_max_unpool(request, out, first, stop):
    """Write the plan of a MaxUnpool to `out`, which holds zeros; its bytes, or ASK."""
    lists = lists_of(request)
    if not words.is_known(request, lists) or not _is_version_fine(request) or not _are_inputs_fine(request, lists):
        return ASK
    rank = request[words.KERNEL]
    axes, inferred = np.empty((rank, 6), np.int64), np.empty((rank, 6), np.int64)
    y_shape = request[lists.x : lists.x + rank + 2].copy()
    for number in range(rank):
        if request[lists.x + words.spatial_first(request) + number] > words.MOST_POSITIONS:
            return ASK
        guess = _axis(request, lists, number)
        large = guess.large if request[words.SHAPE] < 0 else request[lists.shape + 2 + number]
        if large < 0 or large > words.MOST_POSITIONS:
            return ASK
        set_axis(inferred, number, guess)
        set_axis(axes, number, Axis(large, guess.small, guess.window, guess.begin))
        y_shape[words.spatial_first(request) + number] = large
    space = _index_space(request, request[lists.i] * request[lists.i + 1], axes, inferred)
    if space == _UNKNOWN or words.bytes_of(y_shape, 8) > words.MOST_BYTES:
        return ASK
    return _write(request, lists, (axes, inferred, y_shape), space, out)


@jit_inline
def _is_version_fine(request: Any) -> bool:
    """True if the version has all that is asked for."""
    since, kind = _version(request), request[words.TYPE]
    if request[words.OUTPUTS] != 1 or request[words.INPUTS] < 2 or request[words.INPUTS] > 3:
        return False
    if kind == words.INT8 or kind == words.UINT8 or (0 < since < 22 and kind == words.BFLOAT16):
        return False
    if since > 0 and words.has_activation(request) and request[words.DOMAIN] == words.STANDARD:
        return False
    return (request[words.OPSET] == 0 or since > 0) and can_activate(request)


@jit_inline
def _version(request: Any) -> int:
    """The version that an opset selects; 0 for the newest, and for none."""
    since = 0
    for version in (9, 11, 22):
        if version <= request[words.OPSET] and not (version == 22 and request[words.DOMAIN] == words.NHWC):
            since = version
    return since


@jit_inline
def _are_inputs_fine(request: Any, lists: Lists) -> bool:
    """True if I has the shape of X, and output_shape its batch and channels."""
    rank, x = request[words.X], lists.x
    if request[words.INDEX_TYPE] != words.INT64 or request[words.INDICES] != rank:
        return False
    batch, channels = request[x], request[x + words.channel_axis(request)]
    if request[lists.i] != batch or request[lists.i + 1] != channels:
        return False
    for number in range(rank - 2):
        if request[lists.i + 2 + number] != request[x + words.spatial_first(request) + number]:
            return False
    if request[words.SHAPE] < 0:
        return True
    return bool(request[words.SHAPE] == rank and request[lists.shape] == batch and request[lists.shape + 1] == channels)


@jit_inline
def _axis(request: Any, lists: Lists, number: int) -> Axis:
    """A spatial axis with the size that follows from attributes; below 0 if there is none."""
    rank, stride, begin, end = request[words.KERNEL], 1, 0, 0
    if request[words.STRIDES] >= 0:
        stride = request[lists.strides + number]
    if request[words.PADS] >= 0:
        begin, end = request[lists.pads + number], request[lists.pads + rank + number]
    small = request[lists.x + words.spatial_first(request) + number]
    window = Window(request[lists.kernel + number], stride, 1)
    return Axis((small - 1) * stride + window.size - begin - end, small, window, begin)


@jit_inline
def _index_space(request: Any, planes: int, axes: Any, inferred: Any) -> int:
    """The index space as far as shapes settle it; _UNKNOWN if the call is refused."""
    is_same, covers, is_whole, space = True, True, True, request[words.INDEX_SPACE]
    count, expected, is_ort = planes, planes, request[words.IS_ORT] != 0
    for number in range(len(axes)):
        large, guess = axis_at(axes, number).large, axis_at(inferred, number).large
        is_same, covers, is_whole = is_same and large == guess, covers and large >= guess >= 0, is_whole and guess >= 0
        count, expected = times(count, large), times(expected, max(0, guess))
    if is_same:
        return OUTPUT
    if is_ort and is_whole and count < expected:
        return _UNKNOWN
    if is_ort and space == AUTO:
        return OUTPUT
    if space != OUTPUT and (not covers or expected > words.MOST_BYTES):
        return OUTPUT if space == AUTO and not covers else _UNKNOWN
    return int(space)


@jit_inline
def _write(request: Any, lists: Lists, shapes: Any, space: int, out: Any) -> int:
    """Write the plan of a MaxUnpool with these axes, its own and those that are inferred, and this shape of Y."""
    (axes, inferred, y_shape), rank = shapes, request[words.X]
    x_shape, i_shape = request[lists.x : lists.x + rank], request[lists.i : lists.i + rank]
    size, planes = words.element_bytes(request[words.TYPE]), i_shape[0] * i_shape[1]
    is_last = request[words.CHANNELS_LAST] != 0
    problem = _Problem(
        planes, i_shape[1] if is_last else 1, size, planes * small_sizes(axes, 0), planes * large_sizes(axes, 0),
        axes, inferred,
    )  # fmt: skip
    if problem.y * size >= request[words.LARGEST_OUTPUT]:
        return ASK
    blob = plan.new_blob(out, request[words.CORES], rank)
    plan.set_operand(blob, _X, Kind.INPUT, 0, size, x_shape)
    plan.set_operand(blob, _I, Kind.INPUT, 1, 8, i_shape)
    plan.set_operand(blob, _Y, Kind.OUTPUT, 0, size, y_shape)
    plan.set_operand(blob, _MOVED, Kind.SCRATCH, 0, 8, i_shape)
    plan.use(blob, _Y)
    if not is_last and space != INFERRED:
        _add_stream(blob, problem)
    if space == OUTPUT or problem.x * problem.y == 0:
        _add_scatter(blob, problem, _I, problem.y)
    elif space == INFERRED:
        _add_rebased(blob, problem)
    else:
        first = _add_window_check(blob, problem, axes)
        second = _add_window_check(blob, problem, inferred)
        _add_scatter(blob, problem, _I, problem.y)
        plan.set_outcome(blob, first, Condition.ALL_TRUE, (2, 1, plan.UNUSED))
        plan.set_outcome(blob, second, Condition.ALL_TRUE, (plan.step_count(blob) - second, 1, plan.UNUSED))
        _add_rebased(blob, problem)
    if words.has_activation(request):
        plan.connect_next(blob, 0, DONE)
        add_activation(blob, request, _Y, problem.y)
    label = plan.label_of(_NAME, _version(request), is_last)
    bytes_of_plan: int = plan.finish(blob, request, lists.key, request[words.KEY], request[words.INPUTS], 1, label)
    return bytes_of_plan


@jit_inline
def _add_stream(blob: Any, problem: _Problem) -> None:
    """The step that writes new memory if every index lies in its element's window; none for windows without one."""
    size = problem.size
    made = windows.plan(problem.axes, problem.planes, size, problem.y * size >= MIN_RECYCLED_BYTES)
    if not made.is_possible:
        return
    params, record = made.params, np.zeros(8, np.int64)
    fields = params.slabs, params.rows, params.small, params.large, params.plane, params.elements
    at = plan.add_field(record, plan.add_fields(record, 0, fields), int(params.is_non_temporal), 1)
    plan.add_handle(blob, _X)
    plan.add_handle(blob, _I)
    plan.add_handle(blob, _Y)
    plan.add_record(blob, record, at, 8)
    plan.add_array(blob, made.cuts)
    plan.add_array(blob, made.sources)
    step = plan.add_step(blob, kernel_number(plan.STREAM, size, 0, 0, 0, 0), made.jobs, made.work)
    plan.set_outcome(blob, step, Condition.ALL_TRUE, (DONE, 1, plan.UNUSED))


@jit_inline
def _add_window_check(blob: Any, problem: _Problem, axes: Any) -> int:
    """The step that tells whether every index lies in its own window; its number."""
    rows = np.empty((len(axes), 5), np.int64)
    for number in range(len(axes)):
        axis = axis_at(axes, number)
        rows[number, 0], rows[number, 1], rows[number, 2] = axis.large, axis.small, axis.window.size
        rows[number, 3], rows[number, 4] = axis.window.stride, axis.begin
    plan.add_view(blob, _I, 8, problem.x)
    plan.add_number(blob, problem.x // problem.planes)
    plan.add_rows(blob, rows)
    kernel = kernel_number(plan.IN_WINDOWS, 0, 0, 0, 0, 0)
    step: int = plan.add_step(blob, kernel, problem.planes, problem.x * len(axes))
    return step


@jit_inline
def _add_scatter(blob: Any, problem: _Problem, indices: int, limit: int) -> None:
    """As `scatter.steps`; errors tell the caller's indices, and their limit."""
    planes = problem.planes
    if problem.x == 0:
        if problem.y > 0:
            _add_clear(blob, problem)
        return
    small = problem.x // planes
    parts = -(-small // UNPOOL.checked)
    plan.add_view(blob, indices, 8, problem.x)
    plan.add_number(blob, small)
    plan.add_number(blob, parts)
    plan.add_number(blob, problem.y // planes)
    plan.add_number(blob, problem.y)
    check = plan.add_step(blob, kernel_number(plan.CHECK, 0, 0, 0, 0, 0), planes * parts, problem.x)
    plan.set_range(blob, check, _I, limit)
    plan.set_outcome(blob, check, Condition.IN_RANGE, (DONE, DONE, OUT_OF_RANGE))
    if problem.y == 0:
        return
    clears, work = problem.channels == 1, problem.x + problem.y
    if clears:
        threads = thread_count_of(work, blob.cores)
        cuts = scatter.plane_parts(planes, small, problem.y // planes, threads)
        _add_scatter_planes(blob, problem, indices, cuts, threads)
    else:
        _add_clear(blob, problem)
        _add_scatter_planes(blob, problem, indices, 0, thread_count_of(work, blob.cores))
    plan.set_outcome(blob, check, Condition.IN_RANGE, (1, plan.step_count(blob) - check, OUT_OF_RANGE))
    _add_clear(blob, problem)
    _add_scatter_planes(blob, problem, indices, 0, 1)


@jit_inline
def _add_scatter_planes(blob: Any, problem: _Problem, indices: int, parts: int, threads: int) -> None:
    """The step that writes elements, in this many parts of each plane, or 0."""
    plan.add_view(blob, _X, problem.size, problem.x)
    plan.add_view(blob, indices, 8, problem.x)
    plan.add_view(blob, _Y, problem.size, problem.y)
    plan.add_number(blob, problem.planes)
    plan.add_number(blob, parts)
    plan.add_number(blob, problem.channels)
    kernel = kernel_number(plan.SCATTER, problem.size, 0, 0, 0, 0)
    step = plan.add_split_step(blob, kernel, problem.planes * max(1, parts), threads)
    plan.set_outcome(blob, step, Condition.ALL_TRUE, (DONE, NOT_MET, plan.UNUSED))


@jit_inline
def _add_clear(blob: Any, problem: _Problem) -> None:
    """The step that writes zeros to Y."""
    count = problem.y * problem.size
    plan.add_handle(blob, _Y)
    plan.add_number(blob, count)
    plan.add_step(blob, kernel_number(plan.CLEAR, 0, 0, 0, 0, 0), -(-count // UNPOOL.cleared), count // 8)


@jit_inline
def _add_rebased(blob: Any, problem: _Problem) -> None:
    """The steps for indices that count in the inferred shape."""
    rank, planes = len(problem.axes), problem.planes
    pairs = np.empty((rank + 1, 2), np.int64)
    pairs[0, 0], pairs[0, 1] = planes, large_sizes(problem.axes, 0)
    for number in range(rank):
        pairs[1 + number, 0] = axis_at(problem.inferred, number).large
        pairs[1 + number, 1] = large_sizes(problem.axes, number + 1)
    add_recount(blob, recount.plan(pairs, 1, 1, problem.x), (_I, _MOVED, problem.x))
    _add_scatter(blob, problem, _MOVED, planes * large_sizes(problem.inferred, 0))
