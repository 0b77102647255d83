"""The tables of `conv_transpose/direct.py` and `conv_transpose/rows.py` as loops, which Numba compiles.

Interpreted, those files make them by NumPy, which takes less time there. Both are equal, element by element.
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, tap_spans, upsampling_walk
from unpool.kernels.cpu.axes import axis_at, small_sizes
from unpool.kernels.cpu.conv_transpose import direct
from unpool.kernels.cpu.conv_transpose.problem import window_taps
from unpool.kernels.cpu.fold_axes import add_walk
from unpool.kernels.cpu.vector.registration import jit_inline


class PhaseTaps(NamedTuple):
    """The result of `direct.taps_of`."""

    table: Any  # taps, each with the element it reads at step 0, phase by phase
    starts: Any  # per phase, its first row; and their number
    left: int
    beyond: int


@jit_inline
def taps_of(axis: Axis, lanes: int) -> PhaseTaps:
    """As `direct.taps_of`."""
    spans, stride = tap_spans(axis), axis.window.stride
    highest, lowest = 0, 0
    for number in range(spans.shape[0]):
        highest, lowest = max(highest, spans[number, 3] // stride), min(lowest, spans[number, 3] // stride)
    left = -(-highest // lanes) * lanes
    table, starts, done = np.empty((spans.shape[0], 2), np.int64), np.zeros(stride + 1, np.int64), 0
    for phase in range(stride):
        for number in range(spans.shape[0]):
            if spans[number, 3] % stride == phase:
                table[done, 0], table[done, 1] = spans[number, 0], left - spans[number, 3] // stride
                done += 1
        starts[phase + 1] = done
    return PhaseTaps(table, starts, left, left - lowest)


class RowKinds(NamedTuple):
    """The result of `direct.rows_of`."""

    rows: Any
    reach: Any
    terms: Any  # of all kinds
    starts: Any  # per kind, its first term; and their number


@jit_inline
def rows_of(leading: Any) -> RowKinds:
    """As `direct.rows_of`."""
    rows, reach = np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64)
    terms, starts = np.zeros((1, 2), np.int64), np.zeros(2, np.int64)
    starts[1] = 1
    for number in range(len(leading)):
        axis = axis_at(leading, number)
        walk, (distinct, kinds) = upsampling_walk(axis), direct.kinds_of(axis)
        terms, starts = _next_terms(axis, distinct, (walk.tap_step, walk.other_step), terms, starts)
        new_rows, new_reach = (
            np.empty((len(rows) * axis.large, 2), np.int64),
            np.empty((len(rows) * axis.large, 2), np.int64),
        )
        for row in range(len(rows)):
            for place in range(axis.large):
                last, at = min(max(walk.other[place], 0), axis.small - 1), row * axis.large + place
                first = last + max(0, walk.count[place] - 1) * walk.other_step
                new_reach[at, 0], new_reach[at, 1] = (
                    reach[row, 0] * axis.small + first,
                    reach[row, 1] * axis.small + last,
                )
                new_rows[at, 0] = rows[row, 0] * axis.small + last
                new_rows[at, 1] = rows[row, 1] * len(distinct) + kinds[place]
        rows, reach = new_rows, new_reach
    return RowKinds(rows, reach, terms, starts)


@jit_inline
def _next_terms(axis: Axis, distinct: Any, steps: tuple[int, int], terms: Any, starts: Any) -> Any:
    """The terms of kinds of rows, and where they begin, with one more axis."""
    kinds, pairs = starts.size - 1, 0
    for number in range(len(distinct)):
        pairs += distinct[number, 1]
    table, firsts, done = np.empty((len(terms) * pairs, 2), np.int64), np.zeros(kinds * len(distinct) + 1, np.int64), 0
    for kind in range(kinds):
        for number in range(len(distinct)):
            for term in range(starts[kind], starts[kind + 1]):
                for pair in range(distinct[number, 1]):
                    table[done, 0] = terms[term, 0] * axis.window.size + distinct[number, 0] + pair * steps[0]
                    table[done, 1] = terms[term, 1] * axis.small + pair * steps[1]
                    done += 1
            firsts[kind * len(distinct) + number + 1] = done
    return table, firsts


@jit_inline
def bands_of(reach: Any, most: int, fewest: int) -> Any:
    """As `direct.bands_of`."""
    rows, count, highest = len(reach), 1, 0
    for row in range(rows):
        highest = max(highest, reach[row, 1])
    bands, (tallest, _) = _equal_bands(reach, 1), _heights(_equal_bands(reach, 1))
    while count < rows and (tallest > most or count < fewest):
        count = min(rows, 2 * count)
        finer = _equal_bands(reach, count)
        (tallest, total) = _heights(finer)
        if total > 2 * (highest + 1):
            break
        bands = finer
    return bands


@jit_inline
def _equal_bands(reach: Any, count: int) -> Any:
    bands = np.empty((count, 4), np.int64)
    for number in range(count):
        first, stop = number * len(reach) // count, (number + 1) * len(reach) // count
        low, high = reach[first, 0], reach[first, 1]
        for row in range(first, stop):
            low, high = min(low, reach[row, 0]), max(high, reach[row, 1])
        bands[number, 0], bands[number, 1], bands[number, 2], bands[number, 3] = first, stop, low, high + 1
    return bands


@jit_inline
def _heights(bands: Any) -> tuple[int, int]:
    """Input rows of the tallest band, and of all."""
    tallest, total = 0, 0
    for number in range(len(bands)):
        height = bands[number, 3] - bands[number, 2]
        tallest, total = max(tallest, height), total + height
    return tallest, total


@jit_inline
def in_strips(rows: Any, bands: Any, strip: int, units: tuple[int, int, int]) -> Any:
    """As `direct.in_strips`, with columns times units."""
    table, order, done = np.empty((len(rows), 3), np.int64), np.empty(len(rows), np.int64), 0
    for number in range(len(bands)):
        row, stop = bands[number, 0], bands[number, 1]
        while row < stop:
            end, start = min(stop, (row // strip + 1) * strip), done
            for each in range(row, end):
                place = done
                while place > start and rows[order[place - 1], 1] > rows[each, 1]:
                    order[place], place = order[place - 1], place - 1
                order[place], done = each, done + 1
            row = end
    for place in range(len(rows)):
        row = order[place]
        table[place, 0], table[place, 1], table[place, 2] = (
            row * units[0],
            rows[row, 0] * units[1],
            rows[row, 1] * units[2],
        )
    return table


@jit_inline
def products_of(channels: int, kinds: RowKinds, taps: PhaseTaps, apart: Any, spare: int) -> Any:
    """The terms of all phases of all kinds of rows, as `direct.products_of`, and `spare` zeros; where they begin."""
    phases, count = taps.starts.size - 1, kinds.starts.size - 1
    bounds, done = np.zeros(count * phases + 1, np.int64), 0
    terms = np.zeros((channels * len(kinds.terms) * len(taps.table) + spare, 2), np.int64)
    for kind in range(count):
        for phase in range(phases):
            for channel in range(channels):
                for row in range(kinds.starts[kind], kinds.starts[kind + 1]):
                    for tap in range(taps.starts[phase], taps.starts[phase + 1]):
                        for side in range(2):
                            terms[done, side] = (
                                channel * apart[0][side] + kinds.terms[row, side] * apart[1][side]
                                + taps.table[tap, side] * apart[2][side]
                            )  # fmt: skip
                        done += 1
            bounds[kind * phases + phase + 1] = done
    return bounds, terms


class RowsPlan(NamedTuple):
    """The result of `rows._tables`."""

    steps: Any
    reaching: Any
    spans: Any
    listed: int
    most: int  # maximum number of taps of a phase


@jit_inline
def rows_tables(axes: Any) -> RowsPlan:
    """As `rows._tables`."""
    leading, lanes = axes[: len(axes) - 1], axis_at(axes, len(axes) - 1)
    count, first, listed = 0, 0, 1
    for number in range(len(leading)):
        count += axis_at(leading, number).large
    steps, reaching = np.empty((len(leading), 4), np.int64), np.empty((count, 3), np.int64)
    for number in range(len(leading)):
        walk, rest = upsampling_walk(axis_at(leading, number)), axes[number + 1 :]
        weights = small_sizes(rest, 0), window_taps(rest)
        listed *= add_walk(steps, reaching, (number, first), walk, walk.tap, walk.tap_step, weights)
        first += axis_at(leading, number).large
    found, stride = tap_spans(lanes), lanes.window.stride
    spans, phases, most = np.empty((found.shape[0], 5), np.int64), np.zeros(stride, np.int64), 1
    for number in range(found.shape[0]):
        for column in range(3):
            spans[number, column] = found[number, column]
        phase = found[number, 3] % stride
        spans[number, 3], spans[number, 4] = phase, found[number, 3] // stride
        phases[phase] += 1
        most = max(most, phases[phase])
    return RowsPlan(steps, reaching, spans, listed, most)
