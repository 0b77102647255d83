"""The kernel of the phases' dense products, and what it reads beside its arrays."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from unpool.kernels.cpu.conv_transpose.line import Results, fill_line, store_channels, store_plane
from unpool.kernels.cpu.conv_transpose.phases_blocking import TILES
from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest, vector_bytes
from unpool.kernels.cpu.vector import (
    Activation,
    activation_in_lanes,
    address_of,
    prefetch,
    splat_rows,
    tile_add_product,
    tile_add_to,
    tile_store,
    tile_zero,
)
from unpool.kernels.cpu.vector.by_type import by_type
from unpool.kernels.cpu.vector.named import Fixed

Table = npt.NDArray[np.int64]


class About(NamedTuple):
    """What the kernel reads of a call. Sizes and distances are in elements.

    Attributes:
        group: number of groups.
        channels: of x, in a group.
        maps: of y, in a group.
        blocks: of positions.
        chunks: of output channels.
        block: positions in one of them.
        chunk: output channels in one of them.
        length: positions that can be outputs.
        pitch: between the lines of channels.
        tile: number of the shape of tiles.
        x_batch: between neighbours along the batch of x.
        x_channel: along its channels.
        x_lane: along its lanes.
        y_batch: along the batch of y.
        y_map: along its channels.
        y_lane: along its lanes.
        padded: lanes of the line.
        large: lanes of y.
        stride: along the lanes.
        phases: along the lanes.
        activation: of the sums.
    """

    group: int
    channels: int
    maps: int
    blocks: int
    chunks: int
    block: int
    chunk: int
    length: int
    pitch: int
    tile: int
    x_batch: int
    x_channel: int
    x_lane: int
    y_batch: int
    y_map: int
    y_lane: int
    padded: int
    large: int
    stride: int
    phases: int
    activation: Activation


class Kind(NamedTuple):
    """What the kernel reads of a class of phases.

    Attributes:
        phases: how many they are.
        first_tap: number of its first tap in `offsets`.
        taps: that it has.
        taps_together: so many are summed at once.
        channels_together: of so many channels.
    """

    phases: int
    first_tap: int
    taps: int
    taps_together: int
    channels_together: int


KIND = np.dtype([(name, np.int64) for name in Kind._fields])


class Tables(NamedTuple):
    """All tables that the kernel takes.

    Attributes:
        edges: per block of positions its first fill; and their number.
        fills: how lines are laid out, see `line_fills`.
        targets: where rows go in y, see `row_targets`.
        kinds: a `Kind` for every class.
        offsets: of all taps of all classes, elements from a position of the line.
        slots: per phase, how many phases have their results before it.
        sizes: per chunk of output channels, the weights before it; and their number.
    """

    edges: Table
    fills: Table
    targets: Table
    kinds: npt.NDArray[np.void]
    offsets: Table
    slots: Table
    sizes: Table


@cache
def kernel_of(compute: np.dtype[Any], storage: np.dtype[Any]):
    """The compiled kernel that forms sums in one type and stores them in another; 16-bit floats as their bits."""
    element, stored = getattr(types, compute.name), getattr(types, storage.name)
    return _make(
        Fixed(element=element, stored=stored, lanes=vector_bytes() // compute.itemsize), TILES, source_digest()
    )


class Part(NamedTuple):
    """Some channels and taps of the sums of a class.

    Attributes:
        panel: address of the first of the channels.
        channels: how many they are.
        is_more: whether their sums are added to what is there.
    """

    panel: int
    channels: int
    is_more: bool


def _make(fixed, tiles, digest):
    element, lanes, size = fixed.element, fixed.lanes, fixed.element.bitwidth // 8
    stored_size = fixed.stored.bitwidth // 8
    first_tile, second_tile, third_tile, fourth_tile = (fixed.but(rows=rows, vectors=wide) for rows, wide in tiles)
    heights = tuple(rows for rows, _ in tiles)

    @compiled()
    def grow_phases(x, packed, b, y, given, tables, first, stop):
        """Write some chunks of output channels at some blocks of positions.

            for every element of the batch and group, for every block of positions, for every chunk of output channels
                for every class, for every tile of rows, for every tile of positions
                    for every tap and channel, in registers

        Results of a block are interleaved into y when all are there.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        about, kinds, slots, sizes = given[0], tables.kinds, tables.slots, tables.sizes
        channels, maps, blocks, chunks = about.channels, about.maps, about.blocks, about.chunks
        block, chunk, pitch, tile = about.block, about.chunk, about.pitch, about.tile
        activation, rows = activation_in_lanes(about.activation, lanes), heights[tile]
        panel = np.empty(channels * pitch + 16, element)
        results = np.empty((slots.size * chunk + rows) * block + lanes, element)
        stage = np.empty(min(about.large, block * about.stride) + 8 * lanes, element)
        places = np.empty(slots.size + lanes, np.int64)
        filled = -1
        for job in range(first, stop):
            part, piece = job // chunks, job % chunks
            outer, at = part // blocks, part % blocks * block
            batch, group, first_map = outer // about.group, outer % about.group, piece * chunk
            count, used = min(chunk, maps - first_map), min(block, about.length - at)
            panel_start = -(-address_of(panel) // 64) * 64  # for every job: Numba frees what no later line names
            if part != filled:
                vectors = tables.fills[tables.edges[part % blocks] : tables.edges[part % blocks + 1]]
                for channel in range(channels):
                    source = batch * about.x_batch + (group * channels + channel) * about.x_channel
                    source = address_of(x) + source * stored_size
                    target = panel_start + channel * pitch * size
                    fill_line(target, source, about.x_lane * stored_size, vectors, fixed)
                filled = part
            weight = address_of(packed) + (group * sizes[chunks] + sizes[piece]) * size
            result = address_of(results)
            for number in range(kinds.shape[0]):
                kind = kinds[number]
                height, most, deep = kind.phases * count, kind.taps_together, kind.channels_together
                runs = max(1, -(-kind.taps // most))
                for share in range(-(-channels // deep) * runs):
                    lowest, tap = share // runs * deep, share % runs * most
                    taps = tables.offsets[kind.first_tap + tap : kind.first_tap + min(tap + most, kind.taps)]
                    some = Part(panel_start + lowest * pitch * size, min(deep, channels - lowest), share > 0)
                    for row in range(0, height, rows):
                        to = result + row * block * size
                        if tile == 0:
                            weight = sum_line(weight, some, taps, to, used, about, first_tile)
                        elif tile == 1:
                            weight = sum_line(weight, some, taps, to, used, about, second_tile)
                        elif tile == 2:
                            weight = sum_line(weight, some, taps, to, used, about, third_tile)
                        else:
                            weight = sum_line(weight, some, taps, to, used, about, fourth_tile)
                result += height * block * size
            for member in range(slots.size):
                places[member] = slots[member] * count * block * size
            out_map = group * maps + first_map
            out = address_of(y) + (batch * about.y_batch + out_map * about.y_map) * stored_size
            found = Results(address_of(results), address_of(places), at, used)
            if about.y_lane != 1:
                bias = address_of(b) + out_map * size
                store_channels(out, found, tables.targets, bias, count, about, activation, fixed)
            else:
                for number in range(count):
                    bias = splat_rows(address_of(b) + (out_map + number) * size, element, lanes, 1)
                    ready = Results(address_of(results) + number * block * size, address_of(places), at, used)
                    to = out + number * about.y_map * stored_size
                    store_plane(to, ready, tables.targets, bias, address_of(stage), about, activation, fixed)

    return grow_phases


@by_type()
def sum_line(weights, part, taps, target, used, about, fixed):
    """Sums of one tile of rows at all positions; where the weights of the next one are."""
    element, lanes, rows, vectors = fixed.element, fixed.lanes, fixed.rows, fixed.vectors
    size, wide, registers = element.bitwidth // 8, lanes * vectors, rows * vectors

    def sum_up(weights, part, taps, target, used, about, fixed):
        line, apart, channels = about.pitch * size, about.block * size, part.channels
        whole = taps.size * channels * rows * size
        each = rows * size * wide // max(used, wide) + 1
        for position in range(0, used, wide):
            total = tile_zero(element, lanes, registers)
            a = weights
            soon = weights + (used + position) * whole // used
            for tap in range(taps.size):
                source = part.panel + (position + taps[tap]) * size
                for _channel in range(channels):
                    total = tile_add_product(total, a, source, element, lanes, rows, vectors)
                    prefetch(soon)
                    soon += each
                    a += rows * size
                    source += line
            if part.is_more:
                tile_add_to(total, target + position * size, apart, rows, vectors)
            else:
                tile_store(total, target + position * size, apart, rows, vectors)
        return weights + whole

    return sum_up
