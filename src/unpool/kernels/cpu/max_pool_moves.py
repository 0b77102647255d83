"""The parts of the separable pool: rows are laid out, runs of neighbours are combined, the last result is delivered.

All exist in compiled code only, and become part of the kernel. Addresses are bytes; moves and their fields are those of
`max_pool_separable_plan.Move`.
"""

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.max_pool_separable_plan import ALIGNMENT
from unpool.kernels.cpu.vector import (
    address_of,
    any_of,
    convert,
    count_up,
    every_second,
    gather,
    load,
    load_every,
    load_masked,
    prefetch,
    select,
    splat,
    store,
    store_masked,
    unordered,
)

NOWHERE, AT_TAPS, CARRIED = 0, 1, 2
"""Where the place of an element comes from: it is not wanted, from the tap, from the move before."""


def aligned(array):
    """The first address in the array that is a multiple of `ALIGNMENT`."""


@overload(aligned, inline="always")
def _aligned(array):
    mask = ~(ALIGNMENT - 1)
    return lambda array: (address_of(array) + ALIGNMENT - 1) & mask


def enter(value, compared):
    """Elements as they are compared."""


@overload(enter, inline="always")
def _enter(value, compared):
    if value.element == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, compared: convert(convert(value, types.int32) << splat(sixteen, lanes), types.float32)
    if isinstance(value.element, types.Float):
        return lambda value, compared: value
    return lambda value, compared: convert(value, types.int32)


def leave(value, element):
    """Elements as they are stored."""


@overload(leave, inline="always")
def _leave(value, element):
    kind = element.dtype
    if kind == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, element: convert(convert(value, types.int32) >> splat(sixteen, lanes), kind)
    if isinstance(kind, types.Float):
        return lambda value, element: value
    return lambda value, element: convert(value, kind)


def has_nan(x, y, infinity):
    """Whether two registers of elements as stored hold a NaN, as a mask."""


@overload(has_nan, inline="always")
def _has_nan(x, y, infinity):
    lanes, kind = x.lanes, x.element
    if isinstance(kind, types.Float):
        return lambda x, y, infinity: unordered(x, y)
    if kind == types.int16:
        magnitude = np.int16(0x7FFF)

        def is_beyond(x, y, infinity):
            limit, bits = splat(types.int16(infinity), lanes), splat(magnitude, lanes)
            return ((x & bits) > limit) | ((y & bits) > limit)

        return is_beyond
    return lambda x, y, infinity: x != x


def lay_out(base, laid, starts, first, rows, row, fill, infinity, ahead, element, compared, phases, lanes):
    """Write rows between the padding of the lines; whether one holds a NaN.

    Args:
        base: address of the plane.
        laid: address of the lines, whose padding is written already.
        starts: element at which each row starts, -1 in the padding.
        first: row among them.
        rows: how many.
        row: pitch of the lines; where data begins in them; with two phases, where its odd elements begin; how many
            elements there are; the element of the row they begin with.
        fill: what padding holds.
        infinity: bits of +infinity, of 16-bit floats.
        ahead: bytes between what is read and what is asked for, or 0.
        element: type that is stored.
        compared: type that is compared.
        phases: 2 to lay out even and odd elements apart, otherwise 1.
        lanes: of one register.
    """


@overload(lay_out, prefer_literal=True)
def _lay_out(base, laid, starts, first, rows, row, fill, infinity, ahead, element, compared, phases, lanes):
    one, size, width = lanes.literal_value, element.dtype.bitwidth // 8, compared.dtype.bitwidth // 8
    kind, two, parts, to_next = element.dtype, 2 * one, phases.literal_value, 2 * one * width // phases.literal_value

    def write(base, laid, starts, first, rows, row, fill, infinity, ahead, element, compared, phases, lanes):
        pitch, low, odd_low, count, skipped = row
        nothing, zero, ramp = splat(fill, one), splat(kind(0), one), count_up(types.int32, one, 1)
        noticed = has_nan(zero, zero, infinity)
        aside = (odd_low - low) * width if parts == 2 else one * width
        for number in range(rows):
            start, left = starts[np.uintp(first + number)], count
            to = laid + (number * pitch + low) * width
            if start < 0:
                while left > 0:
                    store(to, nothing)
                    store(to + aside, nothing)
                    to += to_next
                    left -= two
                continue
            address = base + (start + skipped) * size
            while left >= two:
                if ahead:
                    prefetch(address + ahead)
                    if two * size > 64:
                        prefetch(address + ahead + 64)
                near, far = load(address, element, lanes), load(address + one * size, element, lanes)
                noticed = noticed | has_nan(near, far, infinity)
                put(to, aside, enter(near, compared), enter(far, compared), phases)
                address += two * size
                to += to_next
                left -= two
            while left > 0:
                is_near, is_far = ramp < splat(types.int32(left), one), ramp < splat(types.int32(left - one), one)
                near = load_masked(address, is_near, zero)
                noticed = noticed | has_nan(near, near, infinity)
                near = select(is_near, enter(near, compared), nothing)
                if parts == 1:
                    store(to, near)
                    address += one * size
                    to += one * width
                    left -= one
                else:
                    far = load_masked(address + one * size, is_far, zero)
                    noticed = noticed | has_nan(far, far, infinity)
                    put(to, aside, near, select(is_far, enter(far, compared), nothing), phases)
                    left = 0
        return any_of(noticed)

    return write


def put(to, aside, near, far, phases):
    """Store two registers of neighbours one after the other, or with two phases even ones here and odd ones aside."""


@overload(put, prefer_literal=True, inline="always")
def _put(to, aside, near, far, phases):
    if phases.literal_value == 1:

        def write(to, aside, near, far, phases):
            store(to, near)
            store(to + aside, far)

    else:

        def write(to, aside, near, far, phases):
            store(to, every_second(near, far, 0))
            store(to + aside, every_second(near, far, 1))

    return write


def fetch(address, stride, left, like, step, lanes):
    """Elements `stride` apart, in type `like`; of lanes beyond `left` nothing is read that is far away.

    Args:
        address: of the first.
        stride: elements between neighbours.
        left: how many are wanted.
        like: any number of the type.
        step: the stride again, if `load_every` knows it; 0 if not.
        lanes: how many there are.
    """


@overload(fetch, prefer_literal=True, inline="always")
def _fetch(address, stride, left, like, step, lanes):
    kind = types.unliteral(like)
    width = kind.bitwidth // 8
    if step.literal_value:
        return lambda address, stride, left, like, step, lanes: load_every(address, kind, lanes, step, 0)

    def read(address, stride, left, like, step, lanes):
        is_wanted = count_up(types.int64, lanes, 1) < splat(left, lanes)
        return gather(address, stride * width, is_wanted, splat(like, lanes))

    return read


def largest(source, source_at, taps, first, stop, stride, left, fill, zero, step, origin, lanes):
    """The maximum over the taps of a move, of neighbouring windows, and its place.

    Args:
        source: address of the first window.
        source_at: address of its place, if places are carried.
        taps: how many bytes each goes, and the code it adds.
        first: the first of the window's.
        stop: the one after its last.
        stride: elements between neighbouring windows.
        left: how many windows are wanted.
        fill: any number of the type of the elements.
        zero: of the type of places.
        step: as `fetch` takes it.
        origin: where places come from; those from taps count from where the window starts.
        lanes: how many windows there are.
    """


@overload(largest, prefer_literal=True, inline="always")
def _largest(source, source_at, taps, first, stop, stride, left, fill, zero, step, origin, lanes):
    place = types.unliteral(zero)
    is_counted, is_carried = origin.literal_value == AT_TAPS, origin.literal_value == CARRIED

    def walk(source, source_at, taps, first, stop, stride, left, fill, zero, step, origin, lanes):
        offsets, codes = taps
        offset, code = offsets[np.uintp(first)], codes[np.uintp(first)]
        best = fetch(source + offset, stride, left, fill, step, lanes)
        at = splat(place(code), lanes)
        if is_carried:
            at = fetch(source_at + offset, stride, left, zero, step, lanes)
        for tap in range(first + 1, stop):
            offset, code = offsets[np.uintp(tap)], codes[np.uintp(tap)]
            value = fetch(source + offset, stride, left, fill, step, lanes)
            wins = value > best
            best = select(wins, value, best)
            if is_counted:
                at = select(wins, splat(place(code), lanes), at)
            if is_carried:
                at = select(wins, fetch(source_at + offset, stride, left, zero, step, lanes), at)
        return best, at

    return walk


def combine(source, source_at, target, target_at, move, rows, codes, first, taps, fill, zero, step, origin, lanes):
    """Every run of a move, whole registers at a time: what is written behind a run is written again, or never read.

    Args:
        source: address of the elements.
        source_at: address of their places.
        target: address of the results.
        target_at: address of their places.
        move: the runs.
        rows: how many of its rows.
        codes: place of the first element of every row, if places come from taps.
        first: the first row among them.
        taps: how many bytes each goes, and the code it adds.
        fill: any number of the type of the elements.
        zero: of the type of places.
        step: as `fetch` takes it.
        origin: where places come from.
        lanes: of one register.
    """


@overload(combine, prefer_literal=True)
def _combine(source, source_at, target, target_at, move, rows, codes, first, taps, fill, zero, step, origin, lanes):
    place, width, one = types.unliteral(zero), types.unliteral(fill).bitwidth // 8, lanes.literal_value
    has_places, is_counted, two = origin.literal_value != NOWHERE, origin.literal_value == AT_TAPS, 2 * one

    def walk(source, source_at, target, target_at, move, rows, codes, first, taps, fill, zero, step, origin, lanes):
        tap, stop, stride, run, groups = move.first_tap, move.stop_tap, move.stride, move.run, move.groups
        block_in, lane_code, group_code = two * stride * width, move.lane_code, move.group_code
        row_in, row_out = move.row_in * width, move.row_out * width
        group_in, group_out = move.group_in * width, move.group_out * width
        narrow = count_up(place, one, 1) * splat(place(lane_code), one)
        wide = count_up(place, two, 1) * splat(place(lane_code), two)
        for row in range(rows):
            near, far = source + row * row_in, target + row * row_out
            aside, away = source_at - source, target_at - target
            group_place = place(codes[np.uintp(first + row)]) if is_counted else place(0)
            for _group in range(groups):
                near_block, far_block, left, at_block = near, far, run, group_place
                while left > one:
                    best, at = largest(near_block, near_block + aside, taps, tap, stop, stride, left, fill, zero, step,
                                       origin, two)  # fmt: skip
                    store(far_block, best)
                    if has_places:
                        store(far_block + away, at + wide + splat(at_block, two) if is_counted else at)
                    left -= two
                    near_block += block_in
                    far_block += two * width
                    at_block = place(at_block + two * lane_code)
                if left > 0:
                    best, at = largest(near_block, near_block + aside, taps, tap, stop, stride, left, fill, zero, step,
                                       origin, one)  # fmt: skip
                    store(far_block, best)
                    if has_places:
                        store(far_block + away, at + narrow + splat(at_block, one) if is_counted else at)
                near += group_in
                far += group_out
                group_place = place(group_place + group_code)

    return walk


def deliver(source, source_at, y, indices, move, base, taps, fill, zero, element, origin, lanes):
    """The last move: results are stored to y, and places to indices; whether a result is `fill`, if places are wanted.

    Args:
        source: address of the elements.
        source_at: address of their places.
        y: address of the strip's results.
        indices: address of the strip's indices.
        move: the runs, whose results follow one another.
        base: what is added to every place.
        taps: how many bytes each goes, and the code it adds.
        fill: what padding holds.
        zero: of the type of places.
        element: type that is stored.
        origin: whether places are carried.
        lanes: of one register.
    """


@overload(deliver, prefer_literal=True)
def _deliver(source, source_at, y, indices, move, base, taps, fill, zero, element, origin, lanes):
    width, one = types.unliteral(fill).bitwidth // 8, lanes.literal_value
    two = 2 * one

    def walk(source, source_at, y, indices, move, base, taps, fill, zero, element, origin, lanes):
        tap, stop, run, groups, group_in = move.first_tap, move.stop_tap, move.run, move.groups, move.group_in * width
        aside, end, is_odd = source_at - source, move.rows * groups * run, False
        for number in range(move.rows * groups):
            row, group = number // groups, number % groups
            near, target, left = source + row * move.row_in * width + group * group_in, number * run, run
            while left > one:
                best, at = largest(near, near + aside, taps, tap, stop, 1, left, fill, zero, 1, origin, two)
                is_odd |= hand_over(best, at, y, indices, target, left, end, base, fill, element, origin)
                left -= two
                target += two
                near += two * width
            if left > 0:
                best, at = largest(near, near + aside, taps, tap, stop, 1, left, fill, zero, 1, origin, one)
                is_odd |= hand_over(best, at, y, indices, target, left, end, base, fill, element, origin)
        return is_odd

    return walk


def hand_over(best, at, y, indices, target, left, end, base, fill, element, origin):
    """Store results number `target` and up, but none from number `end`; whether one of the first `left` is `fill`."""


@overload(hand_over, prefer_literal=True, inline="always")
def _hand_over(best, at, y, indices, target, left, end, base, fill, element, origin):
    has_places, lanes, size = origin.literal_value != NOWHERE, best.lanes, element.dtype.bitwidth // 8

    def write(best, at, y, indices, target, left, end, base, fill, element, origin):
        ramp = count_up(types.int32, lanes, 1)
        value = leave(best, element)
        if end - target >= lanes:
            store(y + target * size, value)
            if has_places:
                store(indices + target * 8, convert(at, types.int64) + splat(base, lanes))
        else:
            is_output = ramp < splat(types.int32(end - target), lanes)
            store_masked(y + target * size, value, is_output)
            if has_places:
                store_masked(indices + target * 8, convert(at, types.int64) + splat(base, lanes), is_output)
        if not has_places:
            return False
        is_fill = best == splat(fill, lanes)
        if left < lanes:
            is_fill = is_fill & (ramp < splat(types.int32(left), lanes))
        return any_of(is_fill)

    return write
