"""Reads the flat line of a channel from x, and writes rows of y from the phases of its results.

    line[row, column] = x[row - begin, column - begin], zero in the padding
    y[row * stride + phase, column * stride + phase] = results[phase, row, column] + b

Whole vectors throughout: `zero` is a vector of the type that sums are formed in, `blank` one of the type of x or y.
Compiled functions; addresses and distances are in bytes, and results are followed by a vector of slack.
"""

from numba import types
from numba.extending import overload

from unpool.kernels.cpu.compiled import inlined
from unpool.kernels.cpu.float16 import narrow, widen
from unpool.kernels.cpu.vector import (
    first_lanes,
    gather,
    gather_at,
    load,
    load_like,
    load_masked,
    prefetch,
    select,
    store,
    store_masked,
    tile_add,
    tile_interleave,
    tile_store,
    tile_store_first,
)

AHEAD = 4096  # bytes between what is written and what is fetched to be written soon


@inlined
def fill_line(target, source, apart, fills, blank, lanes, size):
    """Lay out one channel's line, a vector for each of `fills`; neighbours are `apart` in x, and may be gathered."""
    for number in range(fills.shape[0]):
        to, place = target + fills[number, 0] * size, source + fills[number, 1] * apart
        skip, stop = fills[number, 2], fills[number, 3]
        if apart != width_of(blank):
            mask = first_lanes(stop, blank) & ~first_lanes(skip, blank)
            store(to, widen(gather(place, apart, mask, blank)))
        elif skip <= 0 and stop >= lanes:
            store(to, widen(load_like(place, blank)))
        else:
            mask = first_lanes(stop, blank) & ~first_lanes(skip, blank)
            store(to, widen(load_masked(place, mask, blank)))


def width_of(blank):
    """Bytes of one lane; exists in compiled code only."""


@overload(width_of)
def _width_of(blank):
    size = blank.element.bitwidth // 8
    return lambda blank: size


@inlined
def store_plane(y, source, places, stage, at, used, targets, lane, bias, ending, blank, lanes, size):
    """Write the results of one output channel, interleaving its phases; neighbouring rows of y follow each other.

    Args:
        y: where the plane begins.
        source: of the results at position `at`.
        places: address of the int64 distances of the phases from `source`.
        stage: room for a row of y, for results that are rounded or activated.
        at: position of the first result.
        used: how many results there are.
        targets: (phases of the leading axes, rows of the line) where they go in the plane, -1 nowhere.
        lane: sizes along the lanes.
        bias: a vector of it.
        ending: whether there is an activation, and vectors: zero, slope, lower and upper bound.
        blank: a vector of the type of y.
        lanes: in a vector.
        size: of an element of the results.
    """
    padded, large, stride, phases = lane[0], lane[1], lane[2], lane[3]
    row, column, done = at // padded, at % padded, 0
    step = width_of(blank)
    is_staged = ending[0] or not is_same(bias, blank)
    while done < used:
        until = min(used, done + padded - column)
        elements = min((until - done) * stride, large - column * stride)
        if elements > 0 and row < targets.shape[1]:
            for phase in range(targets.shape[0]):
                if targets[phase, row] >= 0:
                    out = y + (targets[phase, row] + column * stride) * step
                    table = places + phase * phases * 8
                    line = stage if is_staged else out
                    _store_row(line, source + done * size, table, elements, stride, phases, bias, lanes, size)
                    if is_staged:
                        for first in range(0, elements, lanes):
                            value = activated(load_like(stage + first * size, bias), ending)
                            mask = first_lanes(elements - first, blank)
                            store_masked(out + first * step, narrow(value, blank), mask)
        done = until
        row += 1
        column = 0


@inlined
def store_channels(y, apart, source, between, places, at, used, count, targets, lane, bias, ending, blank, lanes, size):
    """As `store_plane`, with channels last: the results of `count` output channels, neighbours in y, are gathered.

    Args:
        y: where the first of these channels begins.
        apart: distance of neighbours along the lanes of y.
        source: of the results of the first channel at position `at`.
        between: distance of the results of two channels.
        places: the distances of the phases from `source`, an array.
        at: as for `store_plane`, like all that is not named here.
        used: as there.
        count: output channels.
        targets: as there.
        lane: as there.
        bias: address of the first channel's.
        ending: as there.
        blank: as there.
        lanes: as there.
        size: as there.
    """
    padded, large, stride, phases = lane[0], lane[1], lane[2], lane[3]
    row, column = at // padded, at % padded
    step = width_of(blank)
    for done in range(used):
        for member in range(targets.shape[0] * phases):
            place = column * stride + member % phases
            target = targets[member // phases, row] if row < targets.shape[1] else -1
            if target >= 0 and place < large:
                origin, out = source + places[member] + done * size, y + (target + place) * apart
                for first in range(0, count, lanes):
                    mask = first_lanes(count - first, ending[1])
                    value = gather(origin + first * between, between, mask, ending[1])
                    value = activated(value + load_masked(bias + first * size, mask, ending[1]), ending)
                    store_masked(out + first * step, narrow(value, blank), mask)
        column += 1
        if column == padded:
            row, column = row + 1, 0


@inlined
def activated(value, ending):
    """`value`, times a slope where it is below 0, then not below nor above two bounds; NaN stays NaN."""
    _, zero, slope, low, high = ending
    value = select(value < zero, value * slope, value)
    value = select(value < low, low, value)
    return select(value > high, high, value)


@inlined
def _store_row(out, source, places, elements, stride, phases, bias, lanes, size):
    """`elements` neighbours in y."""
    if phases != stride:
        _scatter(out, source, places, elements, stride, phases, bias, lanes, size)
    elif stride == 1:
        _interleave(out, source, places, elements, bias, lanes, size, 1)
    elif stride == 2:
        _interleave(out, source, places, elements, bias, lanes, size, 2)
    elif stride == 4:
        _interleave(out, source, places, elements, bias, lanes, size, 4)
    elif stride == 8:
        _interleave(out, source, places, elements, bias, lanes, size, 8)
    else:
        _scatter(out, source, places, elements, stride, phases, bias, lanes, size)


def is_same(x, y):
    """Whether two vectors have one type; exists in compiled code only."""


@overload(is_same)
def _is_same(x, y):
    same = x == y
    return lambda x, y: same


def _interleave(out, source, places, elements, bias, lanes, size, step):
    """Exists in compiled code only."""


@overload(_interleave, prefer_literal=True)
def _interleave_step(out, source, places, elements, bias, lanes, size, step):
    """Vectors of all phases, interleaved in registers."""
    count = step.literal_value

    def interleave(out, source, places, elements, bias, lanes, size, step):
        left = elements
        while left >= lanes * count:
            for part in range(count):
                prefetch(out + AHEAD + part * lanes * size)
            tile_store(tile_add(tile_interleave(source, places, bias, count), bias), out, lanes * size, count, 1)
            out += lanes * count * size
            source += lanes * size
            left -= lanes * count
        if left > 0:
            tile_store_first(tile_add(tile_interleave(source, places, bias, count), bias), out, left)

    return interleave


def _scatter(out, source, places, elements, stride, phases, bias, lanes, size):
    """Exists in compiled code only."""


@overload(_scatter)
def _scatter_any(out, source, places, elements, stride, phases, bias, lanes, size):
    """Any stride: the phases of one position are gathered, which makes them neighbours."""
    width = bias.lanes

    def scatter(out, source, places, elements, stride, phases, bias, lanes, size):
        for first in range(0, elements, stride):
            count = min(phases, elements - first)
            for phase in range(0, count, lanes):
                mask = first_lanes(count - phase, bias)
                value = gather_at(source, load(places + phase * 8, types.int64, width), mask, bias)
                store_masked(out + (first + phase) * size, value + bias, mask)
            source += size

    return scatter
