"""Transposed convolution over rows and lanes: every output row gathers the input rows that reach it.

    y[n, m, q] = b[m] + sum over c, taps t with p * stride + t * dilation - begin = q of x[n, c, p] * w[c, m, t]

Along the lanes the output is kept by phase (q modulo stride), where neighbours come from neighbours: each tap is then
one multiply-add of contiguous vectors, and no product with an inserted zero is ever formed.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, tap_spans, upsampling_walk
from unpool.kernels.cpu.axes import axis_at, small_sizes
from unpool.kernels.cpu.conv_transpose.algorithm import Algorithm, CallContext, Steps
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, group_shape, window_taps
from unpool.kernels.cpu.fold_axes import list_rows, row_plan
from unpool.kernels.cpu.machine.jit import jit, record
from unpool.kernels.cpu.machine.plan import KernelStep, Operand
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.tuning import ROWS_COSTS, SUMS
from unpool.kernels.cpu.vector.registration import jit_inline
from unpool.shape_cache import cached

Table = npt.NDArray[np.int64]


class RowsParams(NamedTuple):
    """Arguments of a call."""

    channels: int  # of x, in a group
    maps: int  # of y, in a group
    plane: int  # elements of x in one channel
    window: int  # elements of w in one
    rows: int  # of lanes in one channel of y
    large: int  # lanes of y
    stride: int  # along the lanes
    listed: int  # maximum number of rows of x that reach a row of y
    together: int  # taps that bring `SUMS.together` products to the outputs of one phase


class RowsTables(NamedTuple):
    """Tables of the kernel."""

    steps: Table  # for `list_rows`
    reaching: Table  # for `list_rows`
    spans: Table  # per tap along the lanes its number, the small positions [low, high) it carries, its phase and shift


@jit_inline
def cost(problem: ConvTransposeProblem) -> float:
    """The cost of one image and group, in multiply-adds."""
    axes, (channels, maps, _) = problem.axes, group_shape(problem)
    products = channels * maps * window_taps(axes) * small_sizes(axes, 0)
    return products * (ROWS_COSTS.product + ROWS_COSTS.call / axis_at(axes, len(axes) - 1).small)


def _steps(context: CallContext, x: Operand, b: Operand, y: Operand) -> Steps:
    w, before = context.wide_weights()
    return (*before, _step(context.problem, x, w, b, y))


def _step(problem: ConvTransposeProblem, x: Operand, w: Operand, b: Operand, y: Operand) -> KernelStep:
    """The step that writes y of (x, w, b), all float32 or all float64."""
    *leading, lanes = problem.axes
    tables, listed, together = _tables(problem.axes)
    rows, channels = math.prod(axis.large for axis in leading), problem.channels // problem.group
    params = RowsParams(
        channels=channels, maps=problem.maps, plane=problem.small, window=problem.taps, rows=rows, large=lanes.large,
        stride=lanes.window.stride, listed=listed, together=together,
    )  # fmt: skip
    jobs = problem.batch * problem.group * problem.maps * rows
    cost = jobs * lanes.large * max(1, channels * listed * lanes.window.size // lanes.window.stride)
    launch = Launch(conv_transpose_rows, jobs, cost, record(params), tables)
    return KernelStep(launch, (), (x.flat(), w.flat(), b.flat(), y.flat(is_writable=True)))


@cached(64)
def _tables(axes: tuple[Axis, ...]):
    """Tables, `listed` and `together` of the axes."""
    leading, lanes = axes[:-1], axes[-1]
    others = [math.prod(axis.small for axis in axes[number + 1 :]) for number in range(len(leading))]
    taps = [math.prod(axis.window.size for axis in axes[number + 1 :]) for number in range(len(leading))]
    walks = [upsampling_walk(axis) for axis in leading]
    steps, reaching, listed = row_plan(walks, others, [(walk.tap, walk.tap_step) for walk in walks], taps)
    spans = tap_spans(lanes)
    shift, phase = np.divmod(spans[:, 3], lanes.window.stride)
    most = int(np.bincount(phase).max(initial=1))
    tables = RowsTables(steps, reaching, np.column_stack([spans[:, :3], phase, shift]))
    return tables, listed, SUMS.together * max(1, len(spans) // most)


@jit(fastmath={"contract"})
def conv_transpose_rows(x, w, b, y, args, tables, first, stop):
    """Write some rows, in the memory order of y.

    for every image, for every output channel, for every row of it
        for every channel of the group, for every row of x that reaches it, for every tap along the lanes
            for every lane: the innermost loop is a vector's
    """
    params, steps, reaching, spans = args[0], tables.steps, tables.reaching, tables.spans
    channels, maps, rows, large, stride = params.channels, params.maps, params.rows, params.large, params.stride
    together = params.together
    others = np.empty(params.listed, np.int64)
    taps = np.empty(params.listed, np.int64)
    phase_size = large // stride + 1
    phases = np.empty((min(stride, large), phase_size), x.dtype)
    part, lost = np.empty_like(phases), np.empty_like(phases)
    for job in range(first, stop):
        outer, row = job // rows, job % rows
        batch, out_map = outer // b.size, outer % b.size
        group = out_map // maps
        phases[:] = 0
        part[:] = 0
        lost[:] = 0
        done = 0
        count = list_rows(steps, reaching, row, others, taps)
        for number in range(channels):
            channel = group * channels + number
            plane = (batch * (b.size // maps) * channels + channel) * params.plane
            window = (channel * maps + out_map % maps) * params.window
            for place in range(count):
                for span in range(spans.shape[0]):
                    low, high, phase, shift = spans[span, 1], spans[span, 2], spans[span, 3], spans[span, 4]
                    if low < high:
                        start = plane + others[place] + low
                        weight = w[window + taps[place] + spans[span, 0]]
                        _add_tap(part[phase, low + shift : high + shift], x[start : start + high - low], weight)
                        done += 1
                        if done % together == 0:
                            _add_part(phases, part, lost)
        _add_part(phases, part, lost)
        _interleave(y[job * large : (job + 1) * large], phases, stride, b[out_map])


@jit(fastmath={"contract"})
def _add_tap(line, x, weight):
    """One tap of one channel."""
    for lane in range(line.size):
        line[lane] += x[lane] * weight


@jit()
def _add_part(totals, part, lost):
    """Add a part of the sums, compensated for earlier rounding, and begin a new part.

    Source: W. Kahan, "Further remarks on reducing truncation errors", 1965.
    """
    for phase in range(part.shape[0]):
        for place in range(part.shape[1]):
            old, value = totals[phase, place], part[phase, place] - lost[phase, place]
            total = old + value
            rest = (total - old) - value
            totals[phase, place] = total
            lost[phase, place] = rest if rest - rest == 0 else 0
            part[phase, place] = 0


@jit(fastmath={"contract"})
def _interleave(y, phases, stride, bias):
    """Write a row from its phases, adding the bias once."""
    for phase in range(phases.shape[0]):
        line = phases[phase]
        for lane in range((y.size - phase + stride - 1) // stride):
            y[lane * stride + phase] = line[lane] + bias


ALGORITHM = Algorithm("rows", supports=lambda _: True, is_faster=lambda *_: False, steps=_steps)
