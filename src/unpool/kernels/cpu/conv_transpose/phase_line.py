"""Reads the flat line of a channel from x, and writes rows of y from the phases of its results.

    line[row, column] = x[row - begin, column - begin], zero in the padding
    y[row * stride + phase, column * stride + phase] = results[phase, row, column] + b

Parts of one kernel, compiled into it; `params` is what that reads of a call. Addresses and distances are in bytes, and
results are followed by a vector of slack. What is fixed: `element` and `lanes` of the sums, and `stored`, the type of x
and y.
"""

from typing import NamedTuple

from numba import types

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.vector.specialize import overload_by_type

PREFETCH_DISTANCE = 4096  # bytes between what is written and what is fetched to be written soon


class BlockResults(NamedTuple):
    """The results of a block of positions."""

    source: int  # address of those of one output channel, at the first position
    places: int  # address of the int64 distances of its phases from there
    at: int  # the first position
    used: int  # how many positions there are


@overload_by_type()
def fill_line(target, source, apart, fills, static):
    """Lays out one channel's line, a vector for each of `fills`; neighbours are `apart` in x, and may be gathered."""
    lanes, stored = static.lanes, static.stored
    size, stored_size = static.element.bitwidth // 8, stored.bitwidth // 8

    def fill(target, source, apart, fills, static):
        blank = vec.splat(stored(0), lanes)
        for number in range(fills.shape[0]):
            to, place = target + fills[number, 0] * size, source + fills[number, 1] * apart
            skip, stop = fills[number, 2], fills[number, 3]
            if apart != stored_size:
                mask = vec.first_lanes(stop, blank) & ~vec.first_lanes(skip, blank)
                vec.store(to, vec.widen(vec.gather(place, apart, mask, blank)))
            elif skip <= 0 and stop >= lanes:
                vec.store(to, vec.widen(vec.load_like(place, blank)))
            else:
                mask = vec.first_lanes(stop, blank) & ~vec.first_lanes(skip, blank)
                vec.store(to, vec.widen(vec.load_masked(place, mask, blank)))

    return fill


@overload_by_type()
def store_plane(y, results, targets, bias, stage, params, activation, static):
    """Writes the results of one output channel, interleaving its phases; neighbouring rows of y follow each other.

    `targets`, (phases of the leading axes, rows of the line), has where they go in the plane `y`, -1 for nowhere.
    `stage` has room for a row of y, for results that are rounded or activated.
    """
    lanes, size, stored, step = static.lanes, static.element.bitwidth // 8, static.stored, static.stored.bitwidth // 8
    is_rounded = static.element != stored

    def write(y, results, targets, bias, stage, params, activation, static):
        padded, large, stride, phases = params.padded, params.large, params.stride, params.phases
        row, column, done, used = results.at // padded, results.at % padded, 0, results.used
        blank, is_staged = vec.splat(stored(0), lanes), activation.is_active or is_rounded
        while done < used:
            until = min(used, done + padded - column)
            elements = min((until - done) * stride, large - column * stride)
            if elements > 0 and row < targets.shape[1]:
                for phase in range(targets.shape[0]):
                    if targets[phase, row] >= 0:
                        out = y + (targets[phase, row] + column * stride) * step
                        source, places = results.source + done * size, results.places + phase * phases * 8
                        store_row(stage if is_staged else out, source, places, elements, bias, params, static)
                        if is_staged:
                            for first in range(0, elements, lanes):
                                value = vec.activate_sums(vec.load_like(stage + first * size, bias), activation)
                                mask = vec.first_lanes(elements - first, blank)
                                vec.store_masked(out + first * step, vec.narrow(value, blank), mask)
            done = until
            row += 1
            column = 0

    return write


@overload_by_type()
def store_channels(y, results, targets, bias, count, params, activation, static):
    """As `store_plane`, channels last: the results of `count` output channels, neighbours in y, are gathered."""
    lanes, size, element = static.lanes, static.element.bitwidth // 8, static.element
    stored, step = static.stored, static.stored.bitwidth // 8

    def write(y, results, targets, bias, count, params, activation, static):
        padded, large, stride, phases = params.padded, params.large, params.stride, params.phases
        apart, between = params.y_lane * step, params.block * size
        row, column = results.at // padded, results.at % padded
        zero, blank = vec.splat(element(0), lanes), vec.splat(stored(0), lanes)
        for done in range(results.used):
            for member in range(targets.shape[0] * phases):
                place = column * stride + member % phases
                target = targets[member // phases, row] if row < targets.shape[1] else -1
                if target >= 0 and place < large:
                    source = results.source + vec.int64_at(results.places + member * 8) + done * size
                    out = y + (target + place) * apart
                    for first in range(0, count, lanes):
                        mask = vec.first_lanes(count - first, zero)
                        value = vec.gather(source + first * between, between, mask, zero)
                        value = vec.activate_sums(value + vec.load_masked(bias + first * size, mask, zero), activation)
                        vec.store_masked(out + first * step, vec.narrow(value, blank), mask)
            column += 1
            if column == padded:
                row, column = row + 1, 0

    return write


@overload_by_type()
def store_row(out, source, places, elements, bias, params, static):
    """Writes `elements` neighbours, of all phases."""
    by_one, by_two, by_four, by_eight = (static.replace(step=step) for step in (1, 2, 4, 8))

    def write(out, source, places, elements, bias, params, static):
        stride, phases = params.stride, params.phases
        if phases != stride:
            scatter(out, source, places, elements, bias, params, static)
        elif stride == 1:
            store_interleaved(out, source, places, elements, bias, by_one)
        elif stride == 2:
            store_interleaved(out, source, places, elements, bias, by_two)
        elif stride == 4:
            store_interleaved(out, source, places, elements, bias, by_four)
        elif stride == 8:
            store_interleaved(out, source, places, elements, bias, by_eight)
        else:
            scatter(out, source, places, elements, bias, params, static)

    return write


@overload_by_type()
def store_interleaved(out, source, places, elements, bias, static):
    """Writes vectors of `static.step` phases, interleaved in registers."""
    step, lanes, size = static.step, static.lanes, static.element.bitwidth // 8

    def write(out, source, places, elements, bias, static):
        left = elements
        while left >= lanes * step:
            for part in range(step):
                vec.prefetch(out + PREFETCH_DISTANCE + part * lanes * size)
            total = vec.tile_add(vec.tile_interleave(source, places, bias, step), bias)
            vec.tile_store(total, out, lanes * size, step, 1)
            out += lanes * step * size
            source += lanes * size
            left -= lanes * step
        if left > 0:
            vec.tile_store_first(vec.tile_add(vec.tile_interleave(source, places, bias, step), bias), out, left)

    return write


@overload_by_type()
def scatter(out, source, places, elements, bias, params, static):
    """Any stride: the phases of one position are gathered, which makes them neighbours."""
    lanes, size = static.lanes, static.element.bitwidth // 8

    def write(out, source, places, elements, bias, params, static):
        stride, phases = params.stride, params.phases
        for first in range(0, elements, stride):
            count = min(phases, elements - first)
            for phase in range(0, count, lanes):
                mask = vec.first_lanes(count - phase, bias)
                value = vec.gather_at(source, vec.load(places + phase * 8, types.int64, lanes), mask, bias)
                vec.store_masked(out + (first + phase) * size, value + bias, mask)
            source += size

    return write
