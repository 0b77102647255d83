"""The other parts of the separable pool: runs of neighbours are combined, and the last result is delivered.

All exist in compiled code only, and become part of the kernel. Addresses are bytes; moves and their fields are those of
`max_pool_separable_plan.Move`.
"""

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.max_pool_elements import INLINED, leave, leave_marked
from unpool.kernels.cpu.max_pool_separable_plan import ALIGNMENT
from unpool.kernels.cpu.vector import (
    IGNORED,
    LAST,
    address_of,
    any_of,
    convert,
    count_up,
    gather,
    load_rows,
    repeat,
    select,
    splat,
    splat_rows,
    store,
    store_masked,
    store_rows,
    unordered,
)

ROWS = 4
"""Rows that are combined at once: so many independent registers hide each other's waiting."""

NOWHERE, AT_TAPS, CARRIED = 0, 1, 2
"""Where the place of an element comes from: it is not wanted, from the tap, from the move before."""


def aligned(array):
    """The first address in the array that is a multiple of `ALIGNMENT`."""


@overload(aligned, jit_options=INLINED)
def _aligned(array):
    mask = ~(ALIGNMENT - 1)
    return lambda array: (address_of(array) + ALIGNMENT - 1) & mask


def fetch(address, apart, stride, left, like, step, lanes, rows):
    """A register of each of some rows, in the type of `like`.

    Args:
        address: of the first element.
        apart: bytes between rows.
        stride: elements between neighbours.
        left: how many elements of a row are wanted.
        like: any number of the type.
        step: 1 for neighbours in memory; 0 for any stride, of one row, of which nothing else is read.
        lanes: elements of one register.
        rows: how many.
    """


@overload(fetch, prefer_literal=True, jit_options=INLINED)
def _fetch(address, apart, stride, left, like, step, lanes, rows):
    kind = types.unliteral(like)
    width = kind.bitwidth // 8
    if step.literal_value:
        return lambda address, apart, stride, left, like, step, lanes, rows: load_rows(
            address, apart, kind, lanes, rows
        )

    return lambda address, apart, stride, left, like, step, lanes, rows: gather(
        address, stride * width, count_up(types.int64, lanes, 1) < splat(left, lanes), splat(like, lanes)
    )


def largest(source, aside, apart, taps, first, stop, stride, left, fill, zero, step, origin, lanes, rows):
    """The maximum over the taps of a move, of neighbouring windows in some rows, and its place.

    Args:
        source: address of the first window.
        aside: bytes from there to its place, if places are carried.
        apart: bytes between rows.
        taps: how many bytes each goes, the code it adds, and which NaN is larger than all: IGNORED where there is none.
        first: the first of the window's.
        stop: the one after its last.
        stride: elements between neighbouring windows.
        left: how many windows of a row are wanted.
        fill: any number of the type of the elements.
        zero: of the type of places.
        step: as `fetch` takes it.
        origin: where places come from; those from taps count from where the window starts.
        lanes: windows of a row.
        rows: how many rows.
    """


@overload(largest, prefer_literal=True, jit_options=INLINED)
def _largest(source, aside, apart, taps, first, stop, stride, left, fill, zero, step, origin, lanes, rows):
    place, all_lanes = types.unliteral(zero), lanes.literal_value * rows.literal_value
    is_counted, is_carried = origin.literal_value == AT_TAPS, origin.literal_value == CARRIED
    knows_nan = isinstance(types.unliteral(fill), types.Float)

    def walk(source, aside, apart, taps, first, stop, stride, left, fill, zero, step, origin, lanes, rows):
        offsets, codes, nan = taps
        near = source + offsets[np.uintp(first)]
        best, at = fetch(near, apart, stride, left, fill, step, lanes, rows), splat(place(0), all_lanes)
        if is_counted:
            at = splat(place(codes[np.uintp(first)]), all_lanes)
        if is_carried:
            at = fetch(near + aside, apart, stride, left, zero, step, lanes, rows)
        for tap in range(first + 1, stop):
            near = source + offsets[np.uintp(tap)]
            value = fetch(near, apart, stride, left, fill, step, lanes, rows)
            wins = takes(value, best, nan) if knows_nan and nan != IGNORED else value > best
            best = select(wins, value, best)
            if is_counted:
                at = select(wins, splat(place(codes[np.uintp(tap)]), all_lanes), at)
            if is_carried:
                at = select(wins, fetch(near + aside, apart, stride, left, zero, step, lanes, rows), at)
        return best, at

    return walk


def takes(value, best, nan):
    """Lanes in which a value takes the place of the best before it, where NaN is larger than all numbers."""


@overload(takes, jit_options=INLINED)
def _takes(value, best, nan):
    lanes = value.lanes

    def compare(value, best, nan):
        is_last = splat(nan, lanes) == splat(np.int64(LAST), lanes)
        return (value > best) | (unordered(value, value) & (is_last | (best == best)))

    return compare


def combine(source, aside, target, away, move, rows, codes, base, taps, fill, zero, step, origin, lanes):
    """Every run of a move, a register of some rows at a time, each run from its end.

    Registers are stored whole: what is written behind a run is written again by the next, or never read.

    Args:
        source: address of the elements.
        aside: bytes from there to their places.
        target: address of the results.
        away: bytes from there to their places.
        move: the runs.
        rows: how many of its rows.
        codes: address of the place of the first element of every row, if places come from taps.
        base: what is added to those.
        taps: how many bytes each goes, the code it adds, and which NaN is larger than all: IGNORED where there is none.
        fill: any number of the type of the elements.
        zero: of the type of places.
        step: as `fetch` takes it.
        origin: where places come from.
        lanes: of one register.
    """


@overload(combine, prefer_literal=True)
def _combine(source, aside, target, away, move, rows, codes, base, taps, fill, zero, step, origin, lanes):
    place, width, one = types.unliteral(zero), types.unliteral(fill).bitwidth // 8, lanes.literal_value
    has_places, is_counted = origin.literal_value != NOWHERE, origin.literal_value == AT_TAPS
    is_blocked, all_lanes = step.literal_value > 0, one * ROWS

    def walk(source, aside, target, away, move, rows, codes, base, taps, fill, zero, step, origin, lanes):
        tap, stop, stride, run = move.first_tap, move.stop_tap, move.stride, move.run
        row_in, row_out, blocks = move.row_in * width, move.row_out * width, (run - 1) // one + 1
        step_in, step_out, step_code = one * stride * width, one * width, place(one * move.lane_code)
        last_left, last_code = run - (blocks - 1) * one, place(base + (blocks - 1) * one * move.lane_code)
        ramp = count_up(place, one, 1) * splat(place(move.lane_code), one)
        for group in range(move.groups):
            group_near = source + group * move.group_in * width + (blocks - 1) * step_in
            group_far = target + group * move.group_out * width + (blocks - 1) * step_out
            row = 0
            if is_blocked:
                while row + ROWS <= rows:
                    near, far = group_near + row * row_in, group_far + row * row_out
                    code, left = last_code, last_left
                    if is_counted:
                        row_codes = repeat(ramp, ROWS) + splat_rows(codes + row * width, place, lanes, ROWS)
                    for _block in range(blocks):
                        best, at = largest(near, aside, row_in, taps, tap, stop, stride, left, fill, zero, step, origin,
                                           lanes, ROWS)  # fmt: skip
                        store_rows(far, row_out, best, ROWS)
                        if has_places:
                            if is_counted:
                                at = at + row_codes + splat(code, all_lanes)
                            store_rows(far + away, row_out, at, ROWS)
                        near, far, code, left = near - step_in, far - step_out, place(code - step_code), one
                    row += ROWS
            while row < rows:
                near, far = group_near + row * row_in, group_far + row * row_out
                code, left = last_code, last_left
                if is_counted:
                    row_code = ramp + splat_rows(codes + row * width, place, lanes, 1)
                for _block in range(blocks):
                    best, at = largest(near, aside, row_in, taps, tap, stop, stride, left, fill, zero, step, origin,
                                       lanes, 1)  # fmt: skip
                    store(far, best)
                    if has_places:
                        if is_counted:
                            at = at + row_code + splat(code, one)
                        store(far + away, at)
                    near, far, code, left = near - step_in, far - step_out, place(code - step_code), one
                row += 1

    return walk


def deliver(source, aside, y, indices, move, base, taps, fill, zero, element, origin, lanes):
    """The last move: results are stored to y, and places to indices; whether a result is `fill`, if places are wanted.

    Args:
        source: address of the elements.
        aside: bytes from there to their places.
        y: address of the strip's results.
        indices: address of the strip's indices.
        move: the runs; none of them is written behind the last result.
        base: what is added to every place.
        taps: how many bytes each goes, the code it adds, and which NaN is larger than all: IGNORED where there is none.
        fill: what padding holds.
        zero: of the type of places.
        element: type that is stored.
        origin: whether places are carried.
        lanes: of one register.
    """


@overload(deliver, prefer_literal=True)
def _deliver(source, aside, y, indices, move, base, taps, fill, zero, element, origin, lanes):
    width, one = types.unliteral(fill).bitwidth // 8, lanes.literal_value

    def walk(source, aside, y, indices, move, base, taps, fill, zero, element, origin, lanes):
        tap, stop, rows, total, is_odd = move.first_tap, move.stop_tap, move.rows, move.total, False
        row_in, row_out, end = move.row_in * width, move.row_out, (move.run - 1) // one * one
        for group in range(move.groups):
            row = 0
            while row < rows:
                near = source + group * move.group_in * width + row * row_in + end * width
                target, left = group * move.group_out + row * row_out + end, move.run - end
                for _block in range(0, end + 1, one):
                    if row + ROWS <= rows and target + (ROWS - 1) * row_out + one <= total:
                        best, at = largest(
                            near, aside, row_in, taps, tap, stop, 1, left, fill, zero, 1, origin, lanes, ROWS
                        )
                        is_odd |= hand_over(best, at, y, indices, target, row_out, left, total, base, fill, element,
                                            origin, taps[2], ROWS)  # fmt: skip
                    else:
                        for number in range(min(ROWS, rows - row)):
                            best, at = largest(near + number * row_in, aside, row_in, taps, tap, stop, 1, left, fill,
                                               zero, 1, origin, lanes, 1)  # fmt: skip
                            is_odd |= hand_over(best, at, y, indices, target + number * row_out, row_out, left, total,
                                                base, fill, element, origin, taps[2], 1)  # fmt: skip
                    near, target, left = near - one * width, target - one, one
                row += ROWS
        return is_odd

    return walk


def hand_over(best, at, y, indices, target, apart, left, total, base, fill, element, origin, nan, rows):
    """Store results number `target` and up of some rows, but none from number `total`.

    Returns:
        Whether one of the first `left` of a row is `fill`, if places are wanted.
    """


@overload(hand_over, prefer_literal=True, jit_options=INLINED)
def _hand_over(best, at, y, indices, target, apart, left, total, base, fill, element, origin, nan, rows):
    has_places, size, count = origin.literal_value != NOWHERE, element.dtype.bitwidth // 8, rows.literal_value
    all_lanes, lanes, is_bits = best.lanes, best.lanes // rows.literal_value, element.dtype == types.int16

    def write(best, at, y, indices, target, apart, left, total, base, fill, element, origin, nan, rows):
        ramp = count_up(types.int32, lanes, 1)
        value = leave_marked(best, element) if is_bits and nan != IGNORED else leave(best, element)
        if count > 1 or total - target >= lanes:
            store_rows(y + target * size, apart * size, value, rows)
            if has_places:
                store_rows(indices + target * 8, apart * 8, convert(at, types.int64) + splat(base, all_lanes), rows)
        else:
            is_output = ramp < splat(types.int32(total - target), lanes)
            store_masked(y + target * size, value, repeat(is_output, rows))
            if has_places:
                index = convert(at, types.int64) + splat(base, all_lanes)
                store_masked(indices + target * 8, index, repeat(is_output, rows))
        if not has_places:
            return False
        is_fill = best == splat(fill, all_lanes)
        wanted = min(left, total - target)
        if wanted < lanes:
            is_fill = is_fill & repeat(ramp < splat(types.int32(wanted), lanes), rows)
        return any_of(is_fill)

    return write
