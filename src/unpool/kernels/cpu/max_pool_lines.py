"""The first part of the separable pool: rows are laid out with their padding, even and odd elements apart if need be.

All exist in compiled code only. Addresses are bytes; rows are those of `max_pool_separable_plan.Plan`.
"""

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.max_pool_elements import INLINED, enter, enter_marked, has_nan
from unpool.kernels.cpu.vector import (
    any_of,
    count_up,
    every_second,
    load,
    load_masked,
    prefetch,
    select,
    splat,
    store,
)


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
    is_bits = element.dtype == types.int16
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
                odd = has_nan(near, far, infinity)
                noticed = noticed | odd
                if is_bits and any_of(odd):
                    put(
                        to, aside, enter_marked(near, compared, infinity), enter_marked(far, compared, infinity), phases
                    )
                else:
                    put(to, aside, enter(near, compared), enter(far, compared), phases)
                address += two * size
                to += to_next
                left -= two
            while left > 0:
                is_near, is_far = ramp < splat(types.int32(left), one), ramp < splat(types.int32(left - one), one)
                near = load_masked(address, is_near, zero)
                noticed = noticed | has_nan(near, near, infinity)
                near = select(is_near, enter_marked(near, compared, infinity), nothing)
                if parts == 1:
                    store(to, near)
                    address += one * size
                    to += one * width
                    left -= one
                else:
                    far = load_masked(address + one * size, is_far, zero)
                    noticed = noticed | has_nan(far, far, infinity)
                    far = select(is_far, enter_marked(far, compared, infinity), nothing)
                    put(to, aside, near, far, phases)
                    left = 0
        return any_of(noticed)

    return write


def put(to, aside, near, far, phases):
    """Store two registers of neighbours one after the other, or with two phases even ones here and odd ones aside."""


@overload(put, prefer_literal=True, jit_options=INLINED)
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
