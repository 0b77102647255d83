"""Winograd's transforms in registers: from inputs to points, from products to outputs, and from there to memory.

Parts of one kernel, compiled into it. `params` is what that reads of a call, and `static` what it is compiled for:

    element, lanes, size   type of the sums, how many a register holds, bytes of one
    stored                 type of x and y; 16-bit floats as their bits
    outputs                of a phase in a tile, along each axis: 2 or 3
    rows                   output channels whose products are summed together

The work arrays are named by the address where they begin and by bytes from one place to the next.
"""

from typing import NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.vector.registration import LazyModule, overload_by_type

registers = LazyModule("unpool.kernels.cpu.conv_transpose.winograd_registers")

POINTS = "0-2 1+2 2-1 1-3"  # values of a line of four inputs at the points 0, 1, -1 and infinity
OUTPUTS = {2: "1+2+0 1-2-3", 3: "1+2+0 1-2 1+2-3"}  # by their number, outputs from the products at the four points


# neighbouring tiles of a block, in one row of tiles: their image, its slice, the row, the column of the first one,
# their number, and the position of the first one in the block
RUN = np.dtype([(name, np.int64) for name in ("image", "slice", "row", "column", "tiles", "position")], align=True)


class Panel(NamedTuple):
    """panel[point, channel, position]: the inputs of a block, transformed."""

    address: int  # where it begins
    channels: int  # how many
    point_bytes: int  # from one point to the next
    channel_bytes: int  # from one channel to the next


class Products(NamedTuple):
    """products[point, phase, map, position]: summed over all channels, of a block and a chunk of maps."""

    address: int  # where they begin
    point_bytes: int  # from one point to the next
    phase_bytes: int  # from one phase to the next
    map_bytes: int  # from one map to the next


class LineBuffer(NamedTuple):
    """lines[row, column]: neighbours in the plane of a single channel, or of a single phase."""

    address: int  # where they begin
    row_bytes: int  # from one row to the next


class OutputRow(NamedTuple):
    """A row of y."""

    address: int  # where it begins
    width: int  # its elements


@overload_by_type()
def transform_inputs(source, runs, panel, strip, params, static):
    """Fill the panel with the inputs of a block, transformed; `source` is the address of x's first channel and image.

    for every channel and slice that it is of, for every run
        for every vector of columns: combine four rows of inputs to four rows of the strip
        for every vector of tiles, for every row of the strip: combine four columns to points
    """
    element, lanes, size, outputs, points = static.element, static.lanes, static.size, static.outputs, POINTS
    of_any, step = static.drop("outputs"), static.stored.bitwidth // 8

    def transform(source, runs, panel, strip, params, static):
        top, left, height, width = params.tiles.top, params.tiles.left, params.slices.height, params.slices.width
        taps, slices, further, begin = params.depth.taps, params.depth.small, params.depth.step, params.depth.begin
        plane, volume = height * width * step, slices * height * width * step
        image, ramp = params.groups * (params.channels // taps) * volume, vec.count_up(types.int32, lanes, 1)
        for channel in range(panel.channels):
            first_slice = begin - channel % taps * further
            base, to_channel = source + channel // taps * volume, panel.address + channel * panel.channel_bytes
            for number in range(runs.shape[0]):
                run = runs[number]
                tiles, met, target = run.tiles, run.slice + first_slice, to_channel + run.position * size
                if not 0 <= met < slices:
                    for tile in range(0, tiles, lanes):
                        zeros = vec.tile_zero(element, lanes, 16)
                        vec.tile_store(zeros, target + tile * size, panel.point_bytes, 16, 1)
                    continue
                row, column = top + outputs * run.row, left + outputs * run.column
                first = base + run.image * image + met * plane
                for done in range(0, outputs * tiles + 4 - outputs, lanes):
                    at = column + done
                    place = first + (row * width + at) * step
                    if row >= 0 and row + 4 <= height and at >= 0 and at + lanes <= width:
                        rows = load_inside(place, width * step, of_any)
                    else:
                        rows = load_edge(place, row, at, ramp, params, of_any)
                    combined = registers.tile_combine(rows, 4, 1, points)
                    vec.tile_store(combined, strip.address + done * size, strip.row_bytes, 4, 1)
                for tile in range(0, tiles, lanes):
                    place, to = strip.address + tile * outputs * size, target + tile * size
                    for _ in range(4):
                        near = vec.load_taps(place, element, lanes, outputs)
                        far = vec.load_taps(place + outputs * size, element, lanes, outputs)
                        values = registers.tile_combine((near + far)[:4], 4, 1, points)
                        vec.tile_store(values, to, panel.point_bytes, 4, 1)
                        place += strip.row_bytes
                        to += 4 * panel.point_bytes

    return transform


@overload_by_type()
def load_inside(place, apart, static):
    """Four rows of an image, a vector of each, `apart` bytes apart."""
    stored, lanes = static.stored, static.lanes

    def load_rows(place, apart, static):
        return (
            vec.widen(vec.load(place, stored, lanes)),
            vec.widen(vec.load(place + apart, stored, lanes)),
            vec.widen(vec.load(place + 2 * apart, stored, lanes)),
            vec.widen(vec.load(place + 3 * apart, stored, lanes)),
        )

    return load_rows


@overload_by_type()
def load_edge(place, row, column, ramp, params, static):
    """Four rows of an image, a vector of each, zero outside the image, where `place` may point."""
    stored, lanes, step = static.stored, static.lanes, static.stored.bitwidth // 8

    def load_rows(place, row, column, ramp, params, static):
        height, width = params.slices.height, params.slices.width
        zero, apart = vec.splat(stored(0), lanes), width * step
        none, some = lanes_between(ramp, 0, 0), lanes_between(ramp, -column, width - column)
        return (
            vec.widen(vec.load_masked(place, some if 0 <= row < height else none, zero)),
            vec.widen(vec.load_masked(place + apart, some if 0 <= row + 1 < height else none, zero)),
            vec.widen(vec.load_masked(place + 2 * apart, some if 0 <= row + 2 < height else none, zero)),
            vec.widen(vec.load_masked(place + 3 * apart, some if 0 <= row + 3 < height else none, zero)),
        )

    return load_rows


@overload_by_type()
def transform_back(products, lines, phases, vectors, static):
    """The outputs of one map, phase by phase: `outputs` lines for each row of tiles."""
    element, lanes, size, outputs = static.element, static.lanes, static.size, static.outputs
    pattern = OUTPUTS[outputs]

    def transform(products, lines, phases, vectors, static):
        for phase in range(phases):
            for vector in range(vectors):
                place = products.address + phase * products.phase_bytes + vector * lanes * size
                values = vec.tile_load(place, products.point_bytes, element, lanes, 16)
                values = registers.tile_combine(registers.tile_combine(values, 4, 4, pattern), 4, 1, pattern)
                target = lines.address + phase * outputs * lines.row_bytes + vector * lanes * outputs * size
                registers.tile_store_every(values, target, lines.row_bytes, outputs)

    return transform


@overload_by_type()
def write_run(run, lines, plane, bias, params, static):
    """Write the outputs of one run and map, at `plane` in image 0, row by row of every phase along the first axis."""
    element, lanes, size, outputs = static.element, static.lanes, static.size, static.outputs
    of_any, step = static.drop("outputs"), static.stored.bitwidth // 8

    def write(run, lines, plane, bias, params, static):
        height, width = params.slices.large_height, params.slices.large_width
        stride, phases = params.slices.stride_down, params.slices.phases_across
        image = run.image * params.groups * params.maps * params.depth.large + run.slice
        image = plane + image * height * width * step
        top, column = params.tiles.top + outputs * run.row, params.tiles.left + outputs * run.column
        count, place = outputs * run.tiles, outputs * run.position * size
        one, other = params.origins[1, 0], params.origins[1, 1]
        is_paired = phases == 2 and params.slices.stride_across == 2 and (one == other or one + 1 == other)
        biases, activation = vec.splat_rows(bias, element, lanes, 1), vec.splat_activation(params.activation, lanes)
        for number in range(outputs):
            for phase in range(params.slices.phases_down):
                at = top + number - params.origins[0, phase]
                row = at * stride + phase
                if at < 0 or row >= height:
                    continue
                target = OutputRow(image + row * width * step, width)
                source = lines.address + (phase * phases * outputs + number) * lines.row_bytes + place
                next_phase = source + outputs * lines.row_bytes
                if phases == 1 and params.slices.stride_across == 1:
                    write_phase(target, source, column - one, count, biases, activation, of_any)
                elif is_paired:
                    is_first = one == other
                    pair = (source, next_phase) if is_first else (next_phase, source)
                    begin = 2 * (column - one) if is_first else 2 * (column - other) + 1
                    write_pair(target, pair, begin, count, biases, activation, of_any)
                else:
                    scatter(target, LineBuffer(source, outputs * lines.row_bytes), column, count, bias, params, of_any)

    return write


@overload_by_type()
def write_phase(row, source, begin, count, biases, activation, static):
    """Write `count` neighbours to the row, from column `begin` on: those that it has."""
    element, lanes, size, stored = static.element, static.lanes, static.size, static.stored
    step = stored.bitwidth // 8

    def write(row, source, begin, count, biases, activation, static):
        ramp, like = vec.count_up(types.int32, lanes, 1), vec.splat(stored(0), lanes)
        stop = min(row.width, begin + count)
        for done in range(0, count, lanes):
            value = vec.activate_sums(vec.load(source + done * size, element, lanes) + biases, activation)
            store_between(row.address, vec.narrow(value, like), begin + done, stop, ramp, step)

    return write


@overload_by_type()
def write_pair(row, sources, begin, count, biases, activation, static):
    """As `write_phase`, for two phases, `count` neighbours of each, that take turns."""
    element, lanes, size, stored = static.element, static.lanes, static.size, static.stored
    double, step = 2 * lanes, stored.bitwidth // 8

    def write(row, sources, begin, count, biases, activation, static):
        ramp, like = vec.count_up(types.int32, double, 1), vec.splat(stored(0), lanes)
        stop = min(row.width, begin + 2 * count)
        for done in range(0, count, lanes):
            left = vec.activate_sums(vec.load(sources[0] + done * size, element, lanes) + biases, activation)
            right = vec.activate_sums(vec.load(sources[1] + done * size, element, lanes) + biases, activation)
            both = vec.interleave(vec.narrow(left, like), vec.narrow(right, like))
            store_between(row.address, both, begin + 2 * done, stop, ramp, step)

    return write


@overload_by_type(inline=True)
def store_between(address, value, column, stop, ramp, step):
    """Store the lanes of a value that belong to the columns [0, stop); the first lane belongs to `column`."""
    lanes = value.lanes

    def store_some(address, value, column, stop, ramp, step):
        if column >= 0 and column + lanes <= stop:
            vec.store(address + column * step, value)
        else:
            vec.store_masked(address + column * step, value, lanes_between(ramp, -column, stop - column))

    return store_some


@overload_by_type()
def scatter(row, phases, column, count, bias, params, static):
    """Write the phases along the last axis one by one, element by element; `column`, of x, is the first tile's."""
    element, size, stored = static.element, static.size, static.stored
    bytes_of_one = stored.bitwidth // 8

    def write(row, phases, column, count, bias, params, static):
        stride, like = params.slices.stride_across, vec.splat(stored(0), 1)
        summand, activation = vec.splat_rows(bias, element, 1, 1), vec.splat_activation(params.activation, 1)
        for phase in range(params.slices.phases_across):
            first = column - params.origins[1, phase]
            source = phases.address + phase * phases.row_bytes - first * size
            for step in range(max(0, first), min(first + count, -(-(row.width - phase) // stride))):
                value = vec.activate_sums(vec.load(source + step * size, element, 1) + summand, activation)
                vec.store(row.address + (step * stride + phase) * bytes_of_one, vec.narrow(value, like))

    return write


@overload_by_type()
def lanes_between(ramp, first, stop):
    """A mask of the lanes [first, stop)."""
    lanes, largest = ramp.lanes, 1 << 30

    def between(ramp, first, stop):
        above = ramp > vec.splat(np.int32(max(first, 0) - 1), lanes)
        return above & (ramp < vec.splat(np.int32(max(0, min(stop, largest))), lanes))

    return between
