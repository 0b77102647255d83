"""Transposed convolution over rows and lanes: every output row gathers the input rows that reach it.

    y[n, m, q] = b[m] + sum over c, taps t with p * stride + t * dilation - begin = q of x[n, c, p] * w[c, m, t]

Along the lanes the output is kept by phase (q modulo stride), where neighbours come from neighbours: each tap is then
one multiply-add of contiguous vectors, and no product with an inserted zero is ever formed.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from unpool.geometry import Axis, growing_walk, tap_spans
from unpool.kept import kept
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest
from unpool.kernels.cpu.rows import list_rows, readonly, row_plan
from unpool.kernels.cpu.threads import split

TOGETHER = 64
"""Products that are summed before they are added to others: errors grow with the length of a sum."""


def conv_transpose(x, w, b, axes: Sequence[Axis], group: int, y, threads: int | None):
    """Write the transposed convolution of x and w to `y`.

    Args:
        x: C-contiguous (N, C, d1..dk), float32 or float64.
        w: C-contiguous (C, M/group, k1..kk), type of x.
        b: C-contiguous (M,), type of x.
        axes: one per spatial axis.
        group: number of independent groups of channels.
        y: C-contiguous (N, M, D1..Dk), type of x.
        threads: at most so many; None for all cores.
    """
    if y.size == 0:
        return
    lanes = axes[-1]
    steps, table, width, spans, together = _tables(tuple(axes))
    rows = y.size // (y.shape[0] * y.shape[1] * lanes.large)
    sizes = (x.shape[1] // group, w.shape[1], math.prod(x.shape[2:]), math.prod(w.shape[2:]))
    work = y.size * max(1, sizes[0] * width * lanes.window.size // lanes.window.stride)
    split(
        _kernel(), y.shape[0] * y.shape[1] * rows, work, threads,
        readonly(x), readonly(w), readonly(b), y.reshape(-1), sizes, rows, lanes.large, lanes.window.stride,
        steps, table, width, spans, together,
    )  # fmt: skip


@kept(64)
def _tables(axes: tuple[Axis, ...]):
    """What the kernel reads of the axes: the rows that reach every output row, and the lanes that a tap carries.

    A tap along the lanes is its number, the small positions [low, high) it carries, its phase, and their shift in it.
    The last one is how many taps bring TOGETHER products to the outputs of one phase.
    """
    leading, lanes = axes[:-1], axes[-1]
    others = [math.prod(axis.small for axis in axes[number + 1 :]) for number in range(len(leading))]
    taps = [math.prod(axis.window.size for axis in axes[number + 1 :]) for number in range(len(leading))]
    walks = [growing_walk(axis) for axis in leading]
    plan = row_plan(walks, others, [(walk.tap, walk.tap_step) for walk in walks], taps)
    spans = tap_spans(lanes)
    shift, phase = np.divmod(spans[:, 3], lanes.window.stride)
    most = int(np.bincount(phase).max(initial=1))
    return *plan, np.column_stack([spans[:, :3], phase, shift]), TOGETHER * max(1, len(spans) // most)


@cache
def _kernel():
    return _make(source_digest())


def _make(digest):
    @compiled(fastmath={"contract"})
    def grow_rows(x, w, b, y, sizes, rows, large, stride, steps, table, width, spans, together, first, stop):
        """Memory order: batch and output channel, leading position, lane. Each output row visits the channels of its
        group, the input rows that reach it, the taps along the lanes, then the lanes: the innermost loop is a vector's.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        channels, maps, x_plane, w_plane = sizes
        others = np.empty(width, np.int64)
        taps = np.empty(width, np.int64)
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
            count = list_rows(steps, table, row, others, taps)
            for number in range(channels):
                channel = group * channels + number
                plane = (batch * (b.size // maps) * channels + channel) * x_plane
                window = (channel * maps + out_map % maps) * w_plane
                for place in range(count):
                    for span in range(spans.shape[0]):
                        low, high, phase, shift = spans[span, 1], spans[span, 2], spans[span, 3], spans[span, 4]
                        if low < high:
                            start = plane + others[place] + low
                            weight = w[window + taps[place] + spans[span, 0]]
                            _add_row(part[phase, low + shift : high + shift], x[start : start + high - low], weight)
                            done += 1
                            if done % together == 0:
                                _move_rows(phases, part, lost)
            _move_rows(phases, part, lost)
            _store_row(y[job * large : (job + 1) * large], phases, stride, b[out_map])

    return grow_rows


@compiled(fastmath={"contract"})
def _add_row(line, x, weight):
    """One tap of one channel."""
    for lane in range(line.size):
        line[lane] += x[lane] * weight


@compiled()
def _move_rows(totals, part, lost):
    """Add what was summed, and what rounding lost when that was done before, and begin anew.

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


@compiled(fastmath={"contract"})
def _store_row(y, phases, stride, bias):
    """Interleave the phases, adding the bias once."""
    for phase in range(phases.shape[0]):
        line = phases[phase]
        for lane in range((y.size - phase + stride - 1) // stride):
            y[lane * stride + phase] = line[lane] + bias
