"""Reads the flat line of a channel from x, and writes rows of y from the phases of its results.

    line[row, column] = x[row - begin, column - begin], zero in the padding
    y[row * stride + phase, column * stride + phase] = results[phase, row, column] + b

Whole vectors throughout: `zero` is a vector of the type that sums are formed in, `blank` one of the type of x or y.
Compiled functions; addresses and distances are in bytes, and results are followed by a vector of slack.
"""

from numba import types
from numba.extending import overload

from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.float16 import narrow, widen
from unpool.kernels.cpu.vector import (
    first_lanes,
    gather,
    gather_at,
    load,
    load_like,
    load_masked,
    prefetch,
    store,
    store_masked,
    tile_add,
    tile_interleave,
    tile_store,
    tile_store_first,
)

AHEAD = 4096  # bytes between what is written and what is fetched to be written soon


@compiled()
def fill_line(target, source, apart, at, length, starts, lane, begin, zero, blank, lanes, size):
    """Lay out the elements [at, at + length) of one channel's line, and a vector of zeros behind them.

    Neighbours are `apart` in x, which may be gathered; `starts` holds where the rows of x begin, -1 for padding.
    Rows are written in order, so that a vector may reach into the next one.
    """
    small, padded = lane[0], lane[1]
    row, column, done = at // padded, at % padded, 0
    while done < length:
        until = min(length, done + padded - column)
        start = starts[row] if row < starts.size else -1
        low = min(until, done + max(0, begin - column))
        high = max(low, min(until, done + begin + small - column)) if start >= 0 else low
        _clear(target + done * size, low - done, zero, lanes, size)
        filled = low
        place = source + (start + column + low - done - begin) * apart
        if apart == blank_size(blank):
            while filled + lanes <= high:
                store(target + filled * size, widen(load_like(place, blank)))
                filled += lanes
                place += lanes * apart
        while filled < high:
            mask = first_lanes(high - filled, blank)
            if apart == blank_size(blank):
                store(target + filled * size, widen(load_masked(place, mask, blank)))
            else:
                store(target + filled * size, widen(gather(place, apart, mask, blank)))
            filled += lanes
            place += lanes * apart
        _clear(target + filled * size, until - filled, zero, lanes, size)
        done = until
        row += 1
        column = 0
    store(target + length * size, zero)


def blank_size(blank):
    """Bytes of one lane; exists in compiled code only."""


@overload(blank_size)
def _blank_size(blank):
    size = blank.element.bitwidth // 8
    return lambda blank: size


@compiled()
def _clear(target, count, zero, lanes, size):
    """`count` zeros and up to a vector more; none if that is not above 0."""
    done = 0
    while done < count:
        store(target + done * size, zero)
        done += lanes


@compiled()
def store_plane(y, source, places, stage, at, used, targets, lane, bias, blank, lanes, size):
    """Write the results of one output channel, interleaving its phases. Rows of y that are neighbours follow each other.

    Args:
        y: where the plane begins.
        source: of the results at position `at`.
        places: address of the int64 distances of the phases from `source`.
        stage: room for a row of y, for types that are rounded.
        at: position of the first result.
        used: how many results there are.
        targets: (phases of the leading axes, rows of the line) where they go in the plane, -1 nowhere.
        lane: sizes along the lanes.
        bias: a vector of it.
        blank: a vector of the type of y.
        lanes: in a vector.
        size: of an element of the results.
    """
    padded, large, stride, phases = lane[1], lane[3], lane[4], lane[5]
    row, column, done = at // padded, at % padded, 0
    step = blank_size(blank)
    while done < used:
        until = min(used, done + padded - column)
        elements = min((until - done) * stride, large - column * stride)
        if elements > 0 and row < targets.shape[1]:
            for phase in range(targets.shape[0]):
                if targets[phase, row] >= 0:
                    out = y + (targets[phase, row] + column * stride) * step
                    table = places + phase * phases * 8
                    _store_row(out, source + done * size, table, stage, elements, stride, phases, bias, blank, lanes, size)
        done = until
        row += 1
        column = 0


@compiled()
def _store_row(out, source, places, stage, elements, stride, phases, bias, blank, lanes, size):
    """`elements` neighbours in y."""
    row = out if is_same(bias, blank) else stage
    if phases != stride:
        _scatter(row, source, places, elements, stride, phases, bias, lanes, size)
    elif stride == 1:
        _interleave(row, source, places, elements, bias, lanes, size, 1)
    elif stride == 2:
        _interleave(row, source, places, elements, bias, lanes, size, 2)
    elif stride == 4:
        _interleave(row, source, places, elements, bias, lanes, size, 4)
    elif stride == 8:
        _interleave(row, source, places, elements, bias, lanes, size, 8)
    else:
        _scatter(row, source, places, elements, stride, phases, bias, lanes, size)
    if not is_same(bias, blank):
        _round_row(out, stage, elements, bias, blank, lanes, size)


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


@compiled()
def _round_row(out, stage, elements, bias, blank, lanes, size):
    """Sums of a row, rounded once to the type of y."""
    step = blank_size(blank)
    for done in range(0, elements, lanes):
        value = narrow(load_like(stage + done * size, bias), blank)
        store_masked(out + done * step, value, first_lanes(elements - done, blank))
