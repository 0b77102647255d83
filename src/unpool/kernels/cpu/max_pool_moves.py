"""The parts of the separable pool: rows are laid out, runs of neighbours are combined, the last result is delivered.

All exist in compiled code only, and become part of the kernel. Addresses are bytes; moves and their fields are those of
`max_pool_separable_plan.Move`.
"""

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.vector import (
    any_of,
    convert,
    count_up,
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


def enter(value, compared):
    """Elements as they are compared."""


@overload(enter)
def _enter(value, compared):
    if value.element == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, compared: convert(convert(value, types.int32) << splat(sixteen, lanes), types.float32)
    if isinstance(value.element, types.Float):
        return lambda value, compared: value
    return lambda value, compared: convert(value, types.int32)


def leave(value, element):
    """Elements as they are stored."""


@overload(leave)
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


@overload(has_nan)
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


def lay_out(base, laid, starts, first, rows, row, fill, infinity, ahead, element, compared, lanes):
    """Write rows between the padding of the lines; whether one holds a NaN.

    Args:
        base: address of the plane.
        laid: address of the lines, whose padding is written already.
        starts: element at which each row starts, -1 in the padding.
        first: row among them.
        rows: how many.
        row: pitch of the lines; where data begins and ends in them; the element of the row it begins with.
        fill: what padding holds.
        infinity: bits of +infinity, of 16-bit floats.
        ahead: bytes between what is read and what is asked for, or 0.
        element: type that is stored.
        compared: type that is compared.
        lanes: of one register.
    """


@overload(lay_out, prefer_literal=True)
def _lay_out(base, laid, starts, first, rows, row, fill, infinity, ahead, element, compared, lanes):
    kind, two = element.dtype, 2 * lanes.literal_value
    size, width = kind.bitwidth // 8, compared.dtype.bitwidth // 8

    def write(base, laid, starts, first, rows, row, fill, infinity, ahead, element, compared, lanes):
        pitch, low, high, skipped = row
        nothing, zero, ramp = splat(fill, lanes), splat(kind(0), lanes), count_up(types.int32, lanes, 1)
        noticed = has_nan(zero, zero, infinity)
        for number in range(first, first + rows):
            to = laid + ((number - first) * pitch + low) * width
            left = high - low
            if starts[number] < 0:
                while left > 0:
                    store(to, nothing)
                    to += lanes * width
                    left -= lanes
            else:
                address = base + (starts[number] + skipped) * size
                while left >= two:
                    if ahead:
                        prefetch(address + ahead)
                        if two * size > 64:
                            prefetch(address + ahead + 64)
                    near, far = load(address, element, lanes), load(address + lanes * size, element, lanes)
                    noticed = noticed | has_nan(near, far, infinity)
                    store(to, enter(near, compared))
                    store(to + lanes * width, enter(far, compared))
                    address += two * size
                    to += two * width
                    left -= two
                while left > 0:
                    is_data = ramp < splat(types.int32(left), lanes)
                    near = load_masked(address, is_data, zero)
                    noticed = noticed | has_nan(near, near, infinity)
                    store(to, select(is_data, enter(near, compared), nothing))
                    address += lanes * size
                    to += lanes * width
                    left -= lanes
        return any_of(noticed)

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


@overload(fetch, prefer_literal=True)
def _fetch(address, stride, left, like, step, lanes):
    kind = types.unliteral(like)
    width = kind.bitwidth // 8
    if step.literal_value:
        return lambda address, stride, left, like, step, lanes: load_every(address, kind, lanes, step, 0)

    def read(address, stride, left, like, step, lanes):
        is_wanted = count_up(types.int64, lanes, 1) < splat(left, lanes)
        return gather(address, stride * width, is_wanted, splat(like, lanes))

    return read


def largest(source, source_at, taps, move, left, fill, zero, step, origin, lanes):
    """The maximum over the taps of a move, of neighbouring windows, and its place.

    Args:
        source: address of the first window.
        source_at: address of its place, if places are carried.
        taps: the table of taps.
        move: which of them, and how far apart windows are.
        left: how many windows are wanted.
        fill: any number of the type of the elements.
        zero: of the type of places.
        step: as `fetch` takes it.
        origin: where places come from; those from taps count from where the window starts.
        lanes: how many windows there are.
    """


@overload(largest, prefer_literal=True)
def _largest(source, source_at, taps, move, left, fill, zero, step, origin, lanes):
    place = types.unliteral(zero)
    is_counted, is_carried = origin.literal_value == AT_TAPS, origin.literal_value == CARRIED

    def walk(source, source_at, taps, move, left, fill, zero, step, origin, lanes):
        offset, code = taps[move.first_tap, 0], taps[move.first_tap, 1]
        best = fetch(source + offset, move.stride, left, fill, step, lanes)
        at = splat(place(code), lanes)
        if is_carried:
            at = fetch(source_at + offset, move.stride, left, zero, step, lanes)
        for tap in range(move.first_tap + 1, move.stop_tap):
            offset, code = taps[tap, 0], taps[tap, 1]
            value = fetch(source + offset, move.stride, left, fill, step, lanes)
            wins = value > best
            best = select(wins, value, best)
            if is_counted:
                at = select(wins, splat(place(code), lanes), at)
            if is_carried:
                at = select(wins, fetch(source_at + offset, move.stride, left, zero, step, lanes), at)
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
        taps: the table of taps.
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
        run, narrow, wide = move.run, count_up(place, one, 1), count_up(place, two, 1)
        narrow = narrow * splat(place(move.lane_code), one)
        wide = wide * splat(place(move.lane_code), two)
        for row in range(rows):
            code = codes[first + row] if is_counted else 0
            for group in range(move.groups):
                near = (row * move.row_in + group * move.group_in) * width
                far = (row * move.row_out + group * move.group_out) * width
                done = 0
                while done < run:
                    place_code = place(code + done * move.lane_code)
                    if run - done > one:
                        best, at = largest(
                            source + near, source_at + near, taps, move, run - done, fill, zero, step, origin, two
                        )
                        store(target + far, best)
                        if has_places:
                            store(target_at + far, at + wide + splat(place_code, two) if is_counted else at)
                    else:
                        best, at = largest(
                            source + near, source_at + near, taps, move, run - done, fill, zero, step, origin, one
                        )
                        store(target + far, best)
                        if has_places:
                            store(target_at + far, at + narrow + splat(place_code, one) if is_counted else at)
                    done += two
                    near += two * move.stride * width
                    far += two * width
                code += move.group_code

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
        taps: the table of taps.
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
        run, is_odd = move.run, False
        end = move.rows * move.groups * run
        for group in range(move.rows * move.groups):
            near = group * move.group_in * width
            done = 0
            while done < run:
                target = group * run + done
                if run - done > one:
                    best, at = largest(source + near, source_at + near, taps, move, run - done, fill, zero, 1, origin, two)
                    is_odd |= hand_over(best, at, y, indices, target, run - done, end, base, fill, element, origin)
                else:
                    best, at = largest(source + near, source_at + near, taps, move, run - done, fill, zero, 1, origin, one)
                    is_odd |= hand_over(best, at, y, indices, target, run - done, end, base, fill, element, origin)
                done += two
                near += two * width
        return is_odd

    return walk


def hand_over(best, at, y, indices, target, left, end, base, fill, element, origin):
    """Store results number `target` and up, but none from number `end`; whether one of the first `left` is `fill`."""


@overload(hand_over, prefer_literal=True)
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
