"""The tables of `conv_transpose/phases_plan.py`, `phases.py` and `phases_pack.py` as loops, which Numba compiles.

Interpreted, those files make them by NumPy, which takes less time there. Both are equal, element by element.

A compiled `PhaseGrid` has arrays in place of tuples, and a `PhaseClasses`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu.axes import axis_at
from unpool.kernels.cpu.conv_transpose import phases_plan
from unpool.kernels.cpu.conv_transpose.phases_plan import ClassSize, PhaseGrid
from unpool.kernels.cpu.conv_transpose.problem import phase_count, window_taps
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline

PHASES, FIRST_PHASE, TAPS, FIRST_OFFSET, FIRST_TAP = range(5)
"""Columns of classes: phases; the first of them in `phases`; taps of each; the first of them in `offsets`, and in
`taps`, which lists them for every phase."""


class PhaseClasses(NamedTuple):
    """The classes of a compiled `PhaseGrid`."""

    sizes: Any  # a row for each, see above
    phases: Any  # flat phase numbers
    taps: Any  # flat taps
    offsets: Any  # elements of the flat line
    copies: Any  # numbers of lines


@compile_as(phases_plan.class_count)
def _class_count(plan: Any) -> Callable[..., Any]:
    return lambda plan: plan.classes.sizes.shape[0]


@compile_as(phases_plan.class_size)
def _class_size(plan: Any, number: Any) -> Callable[..., Any]:
    return lambda plan, number: ClassSize(plan.classes.sizes[number, PHASES], plan.classes.sizes[number, TAPS])


class AxisShifts(NamedTuple):
    """The taps of every phase of all axes, and the input positions that they read at output step 0."""

    starts: Any  # per axis, where its phases begin in `counts`, and their number
    counts: Any  # per phase of an axis, its first row in `taps`, and their number
    taps: Any  # taps and shifts, phase by phase


@jit_inline
def _shifts(axes: Any) -> AxisShifts:
    """As `phases_plan._shifts`, of all axes."""
    phases, taps = 0, 0
    for number in range(len(axes)):
        axis = axis_at(axes, number)
        phases, taps = phases + min(axis.window.stride, axis.large), taps + axis.window.size
    starts, counts = np.zeros((len(axes), 2), np.int64), np.zeros((phases, 2), np.int64)
    table, phases, taps = np.zeros((taps, 2), np.int64), 0, 0
    for number in range(len(axes)):
        axis = axis_at(axes, number)
        window = axis.window
        starts[number, 0], starts[number, 1] = phases, min(window.stride, axis.large)
        for phase in range(starts[number, 1]):
            counts[phases, 0] = taps
            for tap in range(window.size):
                place = phase + axis.begin - tap * window.dilation
                if place % window.stride == 0:
                    table[taps, 0], table[taps, 1], taps = tap, place // window.stride, taps + 1
            counts[phases, 1] = taps - counts[phases, 0]
            phases += 1
    return AxisShifts(starts, counts, table)


@jit_inline
def _axis_range(shifts: AxisShifts, axis: int) -> tuple[int, int]:
    """The least and the largest shift of an axis; 0 without taps."""
    low, high, is_first = 0, 0, True
    first = shifts.starts[axis, 0]
    for phase in range(first, first + shifts.starts[axis, 1]):
        start, count = shifts.counts[phase]
        for row in range(start, start + count):
            shift = shifts.taps[row, 1]
            low, high = (shift, shift) if is_first else (min(low, shift), max(high, shift))
            is_first = False
    return low, high


@jit_inline
def _lines(shifts: AxisShifts, axis: int, low: int, high: int) -> Any:
    """The different shifts of an axis, sorted; 0 without any."""
    is_met, first, count = np.zeros(high - low + 1, np.int64), shifts.starts[axis, 0], 0
    for phase in range(first, first + shifts.starts[axis, 1]):
        start, taps = shifts.counts[phase]
        for row in range(start, start + taps):
            count += 1 - is_met[shifts.taps[row, 1] - low]
            is_met[shifts.taps[row, 1] - low] = 1
    lines, number = np.zeros(max(1, count), np.int64), 0
    for place in range(is_met.size):
        if is_met[place]:
            lines[number], number = low + place, number + 1
    return lines


@jit_inline
def phase_grid(axes: Any, is_spread: bool, whole: int) -> Any:
    """As `phases_plan.phase_grid`."""
    rank, shifts = len(axes), _shifts(axes)
    begins: Any = np.empty(rank - 1, np.int64)
    padded: Any = np.empty(rank, np.int64)
    phases: Any = np.empty(rank, np.int64)
    lowest, pitches, last = np.empty(rank, np.int64), np.empty(rank, np.int64), rank - 1
    low, high = _axis_range(shifts, last)
    lines = np.zeros(1, np.int64)
    lines[0] = low
    if is_spread:
        lines = _lines(shifts, last, low, high)
    for number in range(rank):
        axis = axis_at(axes, number)
        lowest[number], highest = _axis_range(shifts, number)
        padded[number] = -(-axis.large // axis.window.stride)
        if number < last or not is_spread:
            padded[number] += highest - lowest[number]
        if number < last:
            begins[number] = -lowest[number]
        phases[number] = min(axis.window.stride, axis.large)
    padded[last] = -(-padded[last] // whole) * whole
    pitch, length = 1, 1
    for number in range(last, -1, -1):
        axis = axis_at(axes, number)
        pitches[number] = pitch
        length += (-(-axis.large // axis.window.stride) - 1) * pitch
        pitch *= padded[number]
    copies: Any = np.empty(lines.size, np.int64)
    for number in range(lines.size):
        copies[number] = -lines[number]
    classes: Any = _classes(axes, shifts, lowest, pitches, lines)
    margin = 0
    for number in range(classes.offsets.size):
        margin = max(margin, classes.offsets[number])
    return PhaseGrid(padded, begins, copies, length, margin, classes, phases)


@jit_inline
def _classes(axes: Any, shifts: AxisShifts, lowest: Any, pitches: Any, lines: Any) -> PhaseClasses:
    """As `phases_plan._classes`."""
    phases = phase_count(axes)
    bounds, terms, first = np.zeros((phases, 2), np.int64), np.empty((window_taps(axes), 3), np.int64), 0
    class_of, firsts, count = np.empty(phases, np.int64), np.empty(phases, np.int64), 0
    offsets = 0
    for phase in range(phases):
        total = _list_terms(axes, shifts, (phase, first), lowest, pitches, lines, terms)
        bounds[phase, 0], bounds[phase, 1], first = first, total, first + total
        number = 0
        while number < count and not _are_equal(terms, bounds, firsts[number], phase):
            number += 1
        class_of[phase] = number
        if number == count:
            firsts[number], count, offsets = phase, count + 1, offsets + total
    sizes = np.zeros((count, 5), np.int64)
    order, taps = np.empty(phases, np.int64), np.empty(first, np.int64)
    places, copies = np.empty(offsets, np.int64), np.empty(offsets, np.int64)
    member, tap, offset = 0, 0, 0
    for number in range(count):
        start, total = bounds[firsts[number]]
        size = sizes[number]
        size[FIRST_PHASE], size[TAPS], size[FIRST_OFFSET], size[FIRST_TAP] = member, total, offset, tap
        for row in range(start, start + total):
            copies[offset], places[offset], offset = terms[row, 0], terms[row, 1], offset + 1
        for phase in range(phases):
            if class_of[phase] == number:
                order[member], member = phase, member + 1
                for row in range(bounds[phase, 0], bounds[phase, 0] + total):
                    taps[tap], tap = terms[row, 2], tap + 1
        size[PHASES] = member - size[FIRST_PHASE]
    return PhaseClasses(sizes, order, taps, places, copies)


@jit_inline
def _list_terms(
    axes: Any, shifts: AxisShifts, at: tuple[int, int], lowest: Any, pitches: Any, lines: Any, terms: Any
) -> int:
    """Write the (line, offset, tap) of every tap of a phase, sorted, from a row on; their number."""
    (phase, first), rank, total = at, len(axes), 1
    for number in range(rank - 1, -1, -1):
        part = shifts.starts[number, 0] + phase % shifts.starts[number, 1]
        phase //= shifts.starts[number, 1]
        total *= shifts.counts[part, 1]
    for each in range(total):
        line, offset, flat, tap_pitch = 0, 0, 0, 1
        (phase, _), rest = at, total - 1 - each  # from the last tap on, where offsets are nearly sorted
        for number in range(rank - 1, -1, -1):
            part = shifts.starts[number, 0] + phase % shifts.starts[number, 1]
            phase //= shifts.starts[number, 1]
            start, taps = shifts.counts[part]
            tap, shift = shifts.taps[start + rest % taps]
            rest //= taps
            low = lowest[number]
            if number == rank - 1 and lines.size > 1:
                while lines[line] != shift:
                    line += 1
                low = shift
            elif number == rank - 1:
                low = lines[0]
            offset += (shift - low) * pitches[number]
            flat += tap * tap_pitch
            tap_pitch *= axis_at(axes, number).window.size
        place = first + each
        while place > first and (terms[place - 1, 0], terms[place - 1, 1]) > (line, offset):
            terms[place, 0], terms[place, 1] = terms[place - 1, 0], terms[place - 1, 1]
            terms[place, 2], place = terms[place - 1, 2], place - 1
        terms[place, 0], terms[place, 1], terms[place, 2] = line, offset, flat
    return total


@jit_inline
def _are_equal(terms: Any, bounds: Any, phase: int, other: int) -> bool:
    """True if two phases read at equal offsets."""
    if bounds[phase, 1] != bounds[other, 1]:
        return False
    for number in range(bounds[phase, 1]):
        first, second = bounds[phase, 0] + number, bounds[other, 0] + number
        if terms[first, 0] != terms[second, 0] or terms[first, 1] != terms[second, 1]:
            return False
    return True


@jit_inline
def cheapest(axes: Any, channels: int, maps: int, size: int, cores: int) -> Any:
    """As `phases_plan._cheapest`."""
    lanes = vector_bytes() // size
    best = phases_plan.cut_for(phase_grid(axes, False, 1), channels, maps, lanes, 0, cores)
    for number in range(3):
        plan = phase_grid(axes, number > 0, lanes if number == 2 else 1)
        for tile in range(len(phases_plan.tile_shapes())):
            cut = phases_plan.cut_for(plan, channels, maps, lanes, tile, cores)
            if cut.cost < best.cost:
                best = cut
    return best


@compile_as(phases_plan.blocking_of)
def _blocking_of(problem: Any) -> Callable[..., Any]:
    return lambda problem: problem.cut


@jit_inline
def row_starts(axes: Any, plan: Any) -> Any:
    """As `phases_plan.row_starts`."""
    rows = 1
    for number in range(len(axes) - 1):
        rows *= plan.padded[number]
    starts = np.empty(rows, np.int64)
    for row in range(rows):
        starts[row] = _row_start(axes, plan, row)
    return starts


@jit_inline
def _row_start(axes: Any, plan: Any, row: int) -> int:
    """The element of a plane of x at which a row of the line starts, -1 in the padding."""
    start, weight = 0, axis_at(axes, len(axes) - 1).small
    for number in range(len(axes) - 2, -1, -1):
        position = row % plan.padded[number] - plan.begins[number]
        row //= plan.padded[number]
        small = axis_at(axes, number).small
        if position < 0 or position >= small:
            return -1
        start, weight = start + position * weight, weight * small
    return start


@jit_inline
def row_targets(axes: Any, plan: Any) -> Any:
    """As `phases_plan.row_targets`."""
    leading, rows, phases = len(axes) - 1, 1, 1
    for number in range(leading):
        rows, phases = rows * plan.padded[number], phases * plan.phases[number]
    targets = np.empty((phases, rows), np.int64)
    for member in range(phases):
        for row in range(rows):
            phase, rest, target, weight = member, row, 0, axis_at(axes, leading).large
            for number in range(leading - 1, -1, -1):
                axis = axis_at(axes, number)
                place = rest % plan.padded[number] * axis.window.stride + phase % plan.phases[number]
                phase, rest = phase // plan.phases[number], rest // plan.padded[number]
                if place >= axis.large:
                    target = -1
                    break
                target, weight = target + place * weight, weight * axis.large
            targets[member, row] = target
    return targets


@jit_inline
def class_tables(plan: Any, channels: int, line: int) -> Any:
    """As `phases_params.class_tables`; kinds are rows of numbers."""
    classes, phases = plan.classes, phases_plan.grid_phases(plan)
    kinds, slots = np.empty((classes.sizes.shape[0], 5), np.int64), np.empty(phases, np.int64)
    offsets = np.empty(classes.offsets.size, np.int64)
    for number in range(kinds.shape[0]):
        size, taps = classes.sizes[number], classes.sizes[number, TAPS]
        kinds[number, 0], kinds[number, 1], kinds[number, 2] = size[PHASES], size[FIRST_OFFSET], taps
        kinds[number, 3] = phases_plan.products_together(channels * taps)
        kinds[number, 4] = phases_plan.channels_together(channels, taps)
    for number in range(offsets.size):
        offsets[number] = classes.offsets[number] + classes.copies[number] * line
    for number in range(phases):
        slots[classes.phases[number]] = number
    return kinds, offsets, slots


@jit_inline
def chunk_sizes(cut: Any, channels: int, maps: int) -> Any:
    """As `phases._chunk_sizes`."""
    rows, chunks = phases_plan.tile_shapes()[cut.tile][0], -(-maps // cut.chunk)
    sizes = np.zeros(chunks + 1, np.int64)
    for number in range(chunks):
        chunk, tiles = min(cut.chunk, maps - number * cut.chunk), 0
        for kind in range(phases_plan.class_count(cut.plan)):
            size = phases_plan.class_size(cut.plan, kind)
            tiles += size.taps * -(-size.phases * chunk // rows)
        sizes[number + 1] = sizes[number] + tiles * channels * rows
    return sizes


@jit_inline
def pack_tables(cut: Any, channels: int, maps: int) -> Any:
    """As `phases_pack._tables`: packed weights of a group, rows of tiles, and taps."""
    rows, plan, begin = phases_plan.tile_shapes()[cut.tile][0], cut.plan, 0
    chunks, kinds = -(-maps // cut.chunk), phases_plan.class_count(cut.plan)
    tiles = 0
    for number in range(chunks):
        chunk = min(cut.chunk, maps - number * cut.chunk)
        for kind in range(kinds):
            tiles += -(-phases_plan.class_size(plan, kind).phases * chunk // rows)
    table, done = np.empty((tiles, 10), np.int64), 0
    for number in range(chunks):
        first = number * cut.chunk
        chunk, start = min(cut.chunk, maps - first), done
        for kind in range(kinds):
            each = plan.classes.sizes[kind]
            size, taps = each[PHASES] * chunk, each[TAPS]
            apart = -(-size // rows) * rows
            for row in range(0, size, rows):
                entry = (
                    begin, row, first, chunk, size, each[FIRST_TAP], taps,
                    phases_plan.channels_together(channels, taps), phases_plan.products_together(channels * taps),
                    apart,
                )  # fmt: skip
                for column in range(10):
                    table[done, column] = entry[column]
                done += 1
            begin += apart * taps * channels
        unsorted = table[start:done].copy()
        order = np.argsort(unsorted[:, 1] % chunk, kind="mergesort")  # by first output channels; the sort is stable
        for number in range(done - start):
            for column in range(10):
                table[start + number, column] = unsorted[order[number], column]
    return begin, table, plan.classes.taps
