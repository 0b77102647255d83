"""Winograd's transforms in registers: from inputs to points, from products to outputs, and from there to memory.

Parts of one kernel, compiled into it; the arrays that they read and write are described there.
"""

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.conv_transpose_line import activated
from unpool.kernels.cpu.vector import (
    address_of,
    count_up,
    interleave,
    load,
    load_masked,
    splat,
    store,
    store_masked,
    tile_combine,
    tile_load,
    tile_load_every,
    tile_store,
    tile_store_every,
)

POINTS = "0-2 1+2 2-1 1-3"
"""Values of a line of four inputs at the points 0, 1, -1 and infinity."""

BACK = {2: "1+2+0 1-2-3", 3: "1+2+0 1-2 1+2-3"}
"""By the number of outputs, these from the products at the four points."""


def lay_out(panel, apart, line, strips, reach, x, jump, channels, runs, count, grid, planes, element, lanes, size,
            outputs, points):  # fmt: skip
    """Fill the panel with a block of transformed inputs; exists in compiled code only."""


@overload(lay_out, prefer_literal=True)
def _lay_out(panel, apart, line, strips, reach, x, jump, channels, runs, count, grid, planes, element, lanes, size,
             outputs, points):  # fmt: skip
    """Per channel and run: four input rows, combined, become a strip of four; their columns are combined from there."""

    def lay(panel, apart, line, strips, reach, x, jump, channels, runs, count, grid, planes, element, lanes, size,
            outputs, points):  # fmt: skip
        high, wide = planes[0], planes[1]
        ramp = count_up(types.int32, lanes, 1)
        for channel in range(channels):
            for run in range(count):
                row, column = grid[2] + outputs * runs[run, 1], grid[3] + outputs * runs[run, 2]
                length = runs[run, 3]
                plane = x + (runs[run, 0] * jump + channel) * high * wide * size
                for done in range(0, outputs * length + 4 - outputs, lanes):
                    at = column + done
                    source = plane + (row * wide + at) * size
                    if row >= 0 and row + 4 <= high and at >= 0 and at + lanes <= wide:
                        rows = tile_load(source, wide * size, element, lanes, 4)
                    else:
                        rows = load_edge(source, wide, row, high, at, ramp, element, lanes, size)
                    tile_store(tile_combine(rows, 4, 1, points), strips + done * size, reach, 4, 1)
                target = panel + channel * line + runs[run, 4] * size
                for tile in range(0, length, lanes):
                    strip = strips + tile * outputs * size
                    for each in range(4):
                        left = tile_load_every(strip, element, lanes, outputs)
                        right = tile_load_every(strip + outputs * size, element, lanes, outputs)
                        found = tile_combine((left + right)[:4], 4, 1, points)
                        tile_store(found, target + tile * size + 4 * each * apart, apart, 4, 1)
                        strip += reach

    return lay


def load_edge(source, wide, row, high, at, ramp, element, lanes, size):
    """Four rows of an image, zero outside it; exists in compiled code only."""


@overload(load_edge, prefer_literal=True)
def _load_edge(source, wide, row, high, at, ramp, element, lanes, size):
    number = np.dtype(str(element.dtype)).type

    def load_rows(source, wide, row, high, at, ramp, element, lanes, size):
        zero = splat(number(0), lanes)
        none, some = between(ramp, 0, 0), between(ramp, -at, wide - at)
        return (
            load_masked(source, some if 0 <= row < high else none, zero),
            load_masked(source + wide * size, some if 0 <= row + 1 < high else none, zero),
            load_masked(source + 2 * wide * size, some if 0 <= row + 2 < high else none, zero),
            load_masked(source + 3 * wide * size, some if 0 <= row + 3 < high else none, zero),
        )

    return load_rows


def collect(products, jump, phase_jump, phases, vectors, lines, pitch, element, lanes, size, outputs, back):
    """Results of one output channel from its products; exists in compiled code only."""


@overload(collect, prefer_literal=True)
def _collect(products, jump, phase_jump, phases, vectors, lines, pitch, element, lanes, size, outputs, back):
    def collect_map(products, jump, phase_jump, phases, vectors, lines, pitch, element, lanes, size, outputs, back):
        for phase in range(phases):
            for vector in range(vectors):
                source = products + phase * phase_jump + vector * lanes * size
                found = tile_load(source, jump, element, lanes, 16)
                found = tile_combine(tile_combine(found, 4, 4, back), 4, 1, back)
                target = lines + phase * outputs * pitch + vector * lanes * outputs * size
                tile_store_every(found, target, pitch, outputs)

    return collect_map


def place(lines, pitch, y, out_map, maps, bias, run, grid, planes, lows, ends, ending, element, lanes, size, outputs):
    """Write the results of one output channel and one run; exists in compiled code only."""


@overload(place, prefer_literal=True)
def _place(lines, pitch, y, out_map, maps, bias, run, grid, planes, lows, ends, ending, element, lanes, size, outputs):
    """Row by row of every phase; two phases along the lanes, side by side in the output, go together."""
    double = 2 * lanes.literal_value

    def place_run(
        lines, pitch, y, out_map, maps, bias, run, grid, planes, lows, ends, ending, element, lanes, size, outputs
    ):
        high, wide, stride, down, across = planes[2], planes[3], grid[5], grid[6], grid[7]
        column, length = grid[3] + outputs * run[2], outputs * run[3]
        biases = splat(bias, lanes)
        ramp, long_ramp = count_up(types.int32, lanes, 1), count_up(types.int32, double, 1)
        nearest = min(-2 * lows[1, 0], 1 - 2 * lows[1, 1]) if across == 2 else 0
        is_paired = across == 2 and stride == 2 and abs(1 + 2 * (lows[1, 0] - lows[1, 1])) == 1
        for number in range(outputs):
            for phase in range(down):
                step = grid[2] + outputs * run[1] + number - lows[0, phase]
                row = step * grid[4] + phase
                if step < 0 or row >= high:
                    continue
                target = ((run[0] * maps + out_map) * high + row) * wide
                start = (phase * across * outputs + number) * pitch + outputs * run[4]
                out, source = address_of(y) + target * size, address_of(lines) + start * size
                if across == 1 and stride == 1:
                    stop = min(wide, column - lows[1, 0] + length)
                    for done in range(0, length, lanes):
                        at = column - lows[1, 0] + done
                        value = load(source + done * size, element, lanes) + biases
                        if ending[0]:
                            value = activated(value, ending)
                        if at >= 0 and at + lanes <= stop:
                            store(out + at * size, value)
                        else:
                            store_masked(out + at * size, value, between(ramp, -at, stop - at))
                elif is_paired:
                    other = source + outputs * pitch * size
                    if nearest != -2 * lows[1, 0]:
                        source, other = other, source
                    stop = min(wide, 2 * (column + length) + nearest)
                    for done in range(0, length, lanes):
                        at = 2 * (column + done) + nearest
                        left = load(source + done * size, element, lanes) + biases
                        right = load(other + done * size, element, lanes) + biases
                        if ending[0]:
                            left, right = activated(left, ending), activated(right, ending)
                        value = interleave(left, right)
                        if at >= 0 and at + double <= stop:
                            store(out + at * size, value)
                        else:
                            store_masked(out + at * size, value, between(long_ramp, -at, stop - at))
                else:
                    for each in range(across):
                        low = lows[1, each]
                        for at in range(max(0, column - low), column + length - low):
                            if at * stride + each < wide:
                                value = lines[start + each * outputs * pitch + at - column + low] + bias
                                if ends[0]:
                                    value = value * ends[1] if value < 0 else value
                                    value = ends[2] if value < ends[2] else value
                                    value = ends[3] if value > ends[3] else value
                                y[target + each + at * stride] = value

    return place_run


def between(ramp, first, stop):
    """A mask of the lanes [first, stop); exists in compiled code only."""


@overload(between)
def _between(ramp, first, stop):
    lanes, largest = ramp.lanes, 1 << 30

    def lanes_between(ramp, first, stop):
        above = ramp > splat(np.int32(max(first, 0) - 1), lanes)
        return above & (ramp < splat(np.int32(max(0, min(stop, largest))), lanes))

    return lanes_between
