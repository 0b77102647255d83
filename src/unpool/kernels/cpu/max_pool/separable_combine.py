"""The parts of the separable pool: rows are laid out, runs of neighbours combined, and the last result stored.

Rows are laid out with their padding, if needed even and odd elements apart.

    one phase:    | padding | x[row_start], x[row_start + 1], ... | padding |
    two phases:   | padding | x[row_start], x[row_start + 2], ... | padding | x[row_start + 1], ... | padding |

Addresses are bytes; reductions and `params` are those of `separable_plan.py`. `static` has

    element       type of elements in memory, when rows are laid out and of the last reduction
    compare_type  type of elements while they are compared
    place         type of places, as wide as `compare_type`
    lanes         of one register
    step          1 where neighbouring windows are neighbours in memory; 0 for any distance
    origin        the source of places: NOWHERE, FROM_TAPS or CARRIED
    phases        2 where even and odd elements are laid out apart, else 1
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.max_pool.elements import (
    has_nan,
    maxima,
    narrow_element,
    narrow_marked_nan,
    widen_element,
    widen_marking_nan,
)
from unpool.kernels.cpu.tuning import CACHE_LINE, SEPARABLE_POOL
from unpool.kernels.cpu.vector import IGNORED
from unpool.kernels.cpu.vector.registration import LazyModule, overload_by_type

wide = LazyModule("unpool.kernels.cpu.max_pool.wide_registers")

NOWHERE = 0  # the call has no indices: elements have no places
FROM_TAPS = 1  # the first reduction of a row: the place of an element follows from its tap
CARRIED = 2  # every later reduction: its predecessor has stored the places of its results, which are passed on


class BufferRef(NamedTuple):
    """Elements in memory, and their places."""

    address: int  # of the first one
    to_places: int  # bytes from an element to its place


class RowPlaces(NamedTuple):
    """The places of rows, for a reduction that takes places from its taps."""

    address: int  # of the place of the first element of every row
    more: int  # added to each


class TapTable(NamedTuple):
    """The table of taps."""

    bytes: Any  # distance of each tap
    places: Any  # added to the place
    nan: int  # FIRST or LAST, the NaN that is larger than all; IGNORED where there is none


class WindowTaps(NamedTuple):
    """The taps of one window of a reduction."""

    first: int  # row of the table of taps
    stop: int  # end of its taps there
    stride: int  # elements from window to window


class StripOutputs(NamedTuple):
    """The outputs of a strip."""

    y: int  # address of the first one
    indices: int  # address of its index
    total: int  # number of results
    place: int  # added to every place
    fill: Any  # value of padding, as elements are compared


@overload_by_type(inline=True)
def aligned(array):
    """The first address in the array that is a multiple of `CACHE_LINE`."""
    mask = ~(CACHE_LINE - 1)
    return lambda array: (vec.address_of(array) + CACHE_LINE - 1) & mask


@overload_by_type()
def lay_out(plane, laid, starts, first, rows, params, static):
    """Write rows between the padding of the lines, which is there already; True if one holds a NaN.

    `plane` and `laid` are addresses; `starts` has the element at which each row starts, -1 in the padding.
    """
    element, compare_type, one, phases = static.element, static.compare_type, static.lanes, static.phases
    size, width, two, is_bits = element.bitwidth // 8, compare_type.bitwidth // 8, 2 * one, element == types.int16
    to_next = two * width // phases

    def write(plane, laid, starts, first, rows, params, static):
        lines, infinity, prefetch_distance = params.strips.lines, params.infinity, params.prefetch_distance
        pitch, low, count = lines.line_pitch, lines.even, lines.row_elements
        source = plane + lines.row_start * size
        nothing, zero, ramp = vec.splat(params.fill, one), vec.splat(element(0), one), vec.count_up(types.int32, one, 1)
        nan_lanes = vec.widen_mask(has_nan(zero, zero, infinity), zero)
        aside = (lines.odd - low) * width if phases == 2 else one * width
        for number in range(rows):
            start, left = starts[np.uintp(first + number)], count
            to = laid + (number * pitch + low) * width
            if start < 0:
                while left > 0:
                    vec.store(to, nothing)
                    vec.store(to + aside, nothing)
                    to += to_next
                    left -= two
                continue
            address = source + start * size
            while left >= two:
                if prefetch_distance:
                    vec.prefetch(address + prefetch_distance)
                    if two * size > 64:
                        vec.prefetch(address + prefetch_distance + 64)
                near, far = vec.load(address, element, one), vec.load(address + one * size, element, one)
                odd = has_nan(near, far, infinity)
                nan_lanes = nan_lanes | vec.widen_mask(odd, zero)
                if is_bits and vec.any_of(odd):
                    marked = widen_marking_nan(near, compare_type, infinity)
                    put(to, aside, marked, widen_marking_nan(far, compare_type, infinity), phases)
                else:
                    put(to, aside, widen_element(near, compare_type), widen_element(far, compare_type), phases)
                address += two * size
                to += to_next
                left -= two
            while left > 0:
                is_near = ramp < vec.splat(types.int32(left), one)
                is_far = ramp < vec.splat(types.int32(left - one), one)
                near = vec.load_masked(address, is_near, zero)
                nan_lanes = nan_lanes | vec.widen_mask(has_nan(near, near, infinity), zero)
                near = vec.select(is_near, widen_marking_nan(near, compare_type, infinity), nothing)
                if phases == 1:
                    vec.store(to, near)
                    address += one * size
                    to += one * width
                    left -= one
                else:
                    far = vec.load_masked(address + one * size, is_far, zero)
                    nan_lanes = nan_lanes | vec.widen_mask(has_nan(far, far, infinity), zero)
                    far = vec.select(is_far, widen_marking_nan(far, compare_type, infinity), nothing)
                    put(to, aside, near, far, phases)
                    left = 0
        return vec.any_of(nan_lanes)

    return write


@overload_by_type(inline=True)
def put(to, aside, near, far, phases):
    """Store two registers of neighbours one after the other, or with two phases even ones here and odd ones aside."""
    if phases.literal_value == 1:

        def write(to, aside, near, far, phases):
            vec.store(to, near)
            vec.store(to + aside, far)

    else:

        def write(to, aside, near, far, phases):
            vec.store(to, wide.every_second(near, far, 0))
            vec.store(to + aside, wide.every_second(near, far, 1))

    return write


@overload_by_type(inline=True)
def fetch(address, apart, stride, left, kind, step, lanes, rows):
    """A register of each of some rows, `apart` bytes apart, whose lanes are neighbours in memory.

    With step 0 there is one row, its lanes are `stride` elements apart, and at most `left` elements are read.
    """
    number, width = kind.dtype, kind.dtype.bitwidth // 8
    if step.literal_value:
        return lambda address, apart, stride, left, kind, step, lanes, rows: wide.load_rows(
            address, apart, number, lanes, rows
        )

    def gather_row(address, apart, stride, left, kind, step, lanes, rows):
        is_wanted = vec.count_up(types.int64, lanes, 1) < vec.splat(left, lanes)
        return vec.gather(address, stride * width, is_wanted, vec.splat(number(0), lanes))

    return gather_row


@overload_by_type(inline=True)
def window_max(near, apart, window, left, taps, rows, static):
    """The maxima of neighbouring windows of some rows, the first at `near`, and their places, counted from a window."""
    compare_type, place, step, lanes = static.compare_type, static.place, static.step, static.lanes
    is_counted, is_carried = static.origin == FROM_TAPS, static.origin == CARRIED
    knows_nan, all_lanes = isinstance(compare_type, types.Float), lanes * rows.literal_value

    def walk(near, apart, window, left, taps, rows, static):
        start, stride, nan = near.address + taps.bytes[np.uintp(window.first)], window.stride, taps.nan
        best, at = fetch(start, apart, stride, left, compare_type, step, lanes, rows), vec.splat(place(0), all_lanes)
        if is_counted:
            at = vec.splat(place(taps.places[np.uintp(window.first)]), all_lanes)
        if is_carried:
            at = fetch(start + near.to_places, apart, stride, left, place, step, lanes, rows)
        for tap in range(window.first + 1, window.stop):
            start = near.address + taps.bytes[np.uintp(tap)]
            value = fetch(start, apart, stride, left, compare_type, step, lanes, rows)
            is_new = maxima.is_larger(value, best, nan) if knows_nan and nan != IGNORED else value > best
            best = vec.select(is_new, value, best)
            if is_counted:
                at = vec.select(is_new, vec.splat(place(taps.places[np.uintp(tap)]), all_lanes), at)
            if is_carried:
                carried = fetch(start + near.to_places, apart, stride, left, place, step, lanes, rows)
                at = vec.select(is_new, carried, at)
        return best, at

    return walk


@overload_by_type()
def combine(source, target, reduction, rows, base_places, taps, static):
    """Every run of a reduction, a register of some rows at a time, each run from its end.

    Whole registers are stored: elements after a run are written again by the next run, or never read.
    """
    place, width, one, step = static.place, static.compare_type.bitwidth // 8, static.lanes, static.step
    has_places, is_counted, together = static.origin != NOWHERE, static.origin == FROM_TAPS, SEPARABLE_POOL.rows
    all_lanes = static.lanes * together

    def walk(source, target, reduction, rows, base_places, taps, static):
        window, run = WindowTaps(reduction.first_tap, reduction.stop_tap, reduction.stride), reduction.run
        row_in, row_out, blocks = reduction.rows.read * width, reduction.rows.written * width, (run - 1) // one + 1
        step_in, step_out, step_places = one * reduction.stride * width, one * width, place(one * reduction.lane_places)
        last_left = run - (blocks - 1) * one
        last_place = place(base_places.more + (blocks - 1) * one * reduction.lane_places)
        ramp = vec.count_up(place, one, 1) * vec.splat(place(reduction.lane_places), one)
        for group in range(reduction.groups.number):
            group_near = source.address + group * reduction.groups.read * width + (blocks - 1) * step_in
            group_far = target.address + group * reduction.groups.written * width + (blocks - 1) * step_out
            row = 0
            if step:
                while row + together <= rows:
                    near, far = group_near + row * row_in, group_far + row * row_out
                    start, left = last_place, last_left
                    if is_counted:
                        row_places = vec.splat_rows(base_places.address + row * width, place, one, together)
                        row_places = wide.repeat(ramp, together) + row_places
                    for _block in range(blocks):
                        buffer = BufferRef(near, source.to_places)
                        best, at = window_max(buffer, row_in, window, left, taps, together, static)
                        wide.store_rows(far, row_out, best, together)
                        if has_places:
                            if is_counted:
                                at = at + row_places + vec.splat(start, all_lanes)
                            wide.store_rows(far + target.to_places, row_out, at, together)
                        near, far, start, left = near - step_in, far - step_out, place(start - step_places), one
                    row += together
            while row < rows:
                near, far = group_near + row * row_in, group_far + row * row_out
                start, left = last_place, last_left
                if is_counted:
                    own_places = ramp + vec.splat_rows(base_places.address + row * width, place, one, 1)
                for _block in range(blocks):
                    best, at = window_max(BufferRef(near, source.to_places), row_in, window, left, taps, 1, static)
                    vec.store(far, best)
                    if has_places:
                        if is_counted:
                            at = at + own_places + vec.splat(start, one)
                        vec.store(far + target.to_places, at)
                    near, far, start, left = near - step_in, far - step_out, place(start - step_places), one
                row += 1

    return walk


@overload_by_type()
def store_outputs(source, outputs, reduction, taps, static):
    """The last reduction: store results to y, and places to indices; True if a result is `fill`, if it has places."""
    width, one, of_moves = static.compare_type.bitwidth // 8, static.lanes, static.drop("element")
    together = SEPARABLE_POOL.rows

    def walk(source, outputs, reduction, taps, static):
        window, rows = WindowTaps(reduction.first_tap, reduction.stop_tap, 1), reduction.rows.number
        row_in, row_out, end = reduction.rows.read * width, reduction.rows.written, (reduction.run - 1) // one * one
        total, nan, is_odd = outputs.total, taps.nan, False
        for group in range(reduction.groups.number):
            row = 0
            while row < rows:
                near = source.address + group * reduction.groups.read * width + row * row_in + end * width
                target, left = group * reduction.groups.written + row * row_out + end, reduction.run - end
                for _block in range(0, end + 1, one):
                    if row + together <= rows and target + (together - 1) * row_out + one <= total:
                        place = BufferRef(near, source.to_places)
                        found = window_max(place, row_in, window, left, taps, together, of_moves)
                        is_odd |= store_block(found, outputs, target, row_out, left, nan, together, static)
                    else:
                        for number in range(min(together, rows - row)):
                            place = BufferRef(near + number * row_in, source.to_places)
                            found = window_max(place, row_in, window, left, taps, 1, of_moves)
                            to = target + number * row_out
                            is_odd |= store_block(found, outputs, to, row_out, left, nan, 1, static)
                    near, target, left = near - one * width, target - one, one
                row += together
        return is_odd

    return walk


@overload_by_type(inline=True)
def store_block(found, outputs, target, apart, left, nan, rows, static):
    """Store the results of some rows, but none after the last of the strip; True if one is `fill`, if they have places.

    `found` are a register of each row and their places, `target` the number of the first result; rows are `apart`
    results apart, and have `left` results.
    """
    element, lanes, count = static.element, static.lanes, rows.literal_value
    has_places, size, is_bits = static.origin != NOWHERE, element.bitwidth // 8, element == types.int16
    all_lanes = lanes * count

    def write(found, outputs, target, apart, left, nan, rows, static):
        best, at = found
        ramp, total = vec.count_up(types.int32, lanes, 1), outputs.total
        value = narrow_marked_nan(best, element) if is_bits and nan != IGNORED else narrow_element(best, element)
        if count > 1 or total - target >= lanes:
            wide.store_rows(outputs.y + target * size, apart * size, value, rows)
            if has_places:
                index = vec.convert(at, types.int64) + vec.splat(outputs.place, all_lanes)
                wide.store_rows(outputs.indices + target * 8, apart * 8, index, rows)
        else:
            is_output = ramp < vec.splat(types.int32(total - target), lanes)
            vec.store_masked(outputs.y + target * size, value, wide.repeat(is_output, rows))
            if has_places:
                index = vec.convert(at, types.int64) + vec.splat(outputs.place, all_lanes)
                vec.store_masked(outputs.indices + target * 8, index, wide.repeat(is_output, rows))
        if not has_places:
            return False
        is_fill = best == vec.splat(outputs.fill, all_lanes)
        wanted = min(left, total - target)
        if wanted < lanes:
            is_fill = is_fill & wide.repeat(ramp < vec.splat(types.int32(wanted), lanes), rows)
        return vec.any_of(is_fill)

    return write
