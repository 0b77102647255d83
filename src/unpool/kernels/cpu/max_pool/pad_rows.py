"""The first part of the separable pool: lays out rows with their padding, if needed even and odd elements apart.

    one phase:    | padding | x[row_start], x[row_start + 1], ... | padding |
    two phases:   | padding | x[row_start], x[row_start + 2], ... | padding | x[row_start + 1], ... | padding |

Addresses are bytes; `params` are `SeparablePoolParams`, `static` comes from `separable.py`.
"""

import numpy as np
from numba import types

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.max_pool.compare import has_nan, widen_element, widen_marking_nan
from unpool.kernels.cpu.vector.specialize import overload_by_type


@overload_by_type()
def lay_out(plane, laid, starts, first, rows, params, static):
    """Write rows between the padding of the lines; True if one holds a NaN.

    `plane` and `laid` are addresses, of the plane's elements and of lines whose padding is already written. `starts`
    has the element at which each row starts, -1 in the padding.
    """
    element, compare_type, one, phases = static.element, static.compare_type, static.lanes, static.phases
    size, width, two, is_bits = element.bitwidth // 8, compare_type.bitwidth // 8, 2 * one, element == types.int16
    to_next = two * width // phases

    def write(plane, laid, starts, first, rows, params, static):
        pitch, low, count = params.line_pitch, params.even, params.row_elements
        infinity, prefetch_distance = params.infinity, params.prefetch_distance
        source = plane + params.row_start * size
        nothing, zero, ramp = vec.splat(params.fill, one), vec.splat(element(0), one), vec.count_up(types.int32, one, 1)
        nan_lanes = vec.widen_mask(has_nan(zero, zero, infinity), zero)
        aside = (params.odd - low) * width if phases == 2 else one * width
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
                is_near, is_far = (
                    ramp < vec.splat(types.int32(left), one),
                    ramp < vec.splat(types.int32(left - one), one),
                )
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
            vec.store(to, vec.every_second(near, far, 0))
            vec.store(to + aside, vec.every_second(near, far, 1))

    return write
