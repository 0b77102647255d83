"""The compiled part of Winograd's transposed convolution: transform, multiply, transform back.

Positions are tiles of 4x4 inputs that give m x m outputs of every phase; they are listed image by image, row by row.
A block of positions goes through three arrays, each with its positions along the lanes:

    panel[point, channel, position]         the input tiles, transformed
    products[point, phase, map, position]   their products with the transformed weights, summed over the channels
    lines[phase, row, position * m + column]  outputs of one map, before the phases are interleaved
"""

from functools import cache

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.conv_transpose_winograd_tiles import BACK, POINTS, collect, lay_out, place
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.vector import (
    address_of,
    prefetch,
    splat,
    tile_add_product,
    tile_add_to,
    tile_store,
    tile_zero,
)

VECTORS = 3
"""Vectors of positions in a tile of the product; two where three do not divide them."""

AHEAD = 2048  # bytes between the weights that are read and those that are fetched

PIECE = 64
"""Channels that are summed before they are added to others: errors grow with the length of a sum."""


def tile_rows() -> int:
    """Rows of a tile: with VECTORS vectors each they fill the registers."""
    return 8 if vector_bytes() == 64 else 4


@cache
def kernel(dtype: str, outputs: int):
    """The compiled kernel for one element type and for tiles of `outputs` x `outputs` results, 2 or 3."""
    size = np.dtype(dtype).itemsize
    lanes = vector_bytes() // size
    return _make(getattr(types, dtype), lanes, size, tile_rows(), outputs, BACK[outputs], source_digest())


def _make(element, lanes, size, rows, outputs, back, digest):
    points = POINTS

    @compiled(fastmath={"contract"})
    def grow_tiles(x, packed, b, y, ends, cuts, grid, planes, entries, lows, first, stop):
        """Memory order: group, block of positions, chunk of output channels; then point and phase, tile of rows, tile
        of positions, channel.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        groups, channels, maps, blocks, chunks, block, chunk, positions = cuts
        low, top = splat(ends[2], lanes), splat(ends[3], lanes)
        ending = ends[0] != 0, splat(element(0), lanes), splat(ends[1], lanes), low, top
        apart = _odd(channels * block, lanes)
        panel = np.empty(16 * apart + lanes, element)
        phases = grid[6] * grid[7]
        jump = _odd(phases * chunk * block, lanes)
        products = np.zeros(16 * jump + lanes, element)
        pitch = _odd(outputs * block, lanes)
        lines = np.empty(phases * outputs * pitch + lanes, element)
        reach = outputs * (min(block, grid[1]) + 2 * lanes) + 2 * lanes
        strips = np.zeros(4 * reach, element)
        runs = np.empty((block, 5), np.int64)
        weights = -(-maps // rows) * rows * channels * entries.shape[0]
        filled, count_runs = -1, 0
        for job in range(first, stop):
            part, first_map = job // chunks, job % chunks * chunk
            group, at = part // blocks, part % blocks * block
            used = min(block, positions - at)
            if part != filled:
                count_runs = _list_runs(runs, at, used, grid)
                lay_out(
                    address_of(panel), apart * size, block * size, address_of(strips), reach * size,
                    address_of(x) + group * channels * planes[0] * planes[1] * size, groups * channels, channels,
                    runs, count_runs, grid, planes, element, lanes, size, outputs, points,
                )  # fmt: skip
                filled = part
            count = min(chunk, maps - first_map)
            vectors = max(2, -(-used // lanes))
            multiply(
                address_of(packed) + (group * weights + first_map * channels * entries.shape[0]) * size,
                address_of(panel), apart * size, address_of(products), jump * size,
                entries, channels, count, chunk, block * size, used, element, lanes, size, rows,
            )  # fmt: skip
            for number in range(count):
                out_map = group * maps + first_map + number
                collect(
                    address_of(products) + number * block * size, jump * size, chunk * block * size, phases, vectors,
                    address_of(lines), pitch * size, element, lanes, size, outputs, back,
                )  # fmt: skip
                for run in range(count_runs):
                    place(lines, pitch, y, out_map, groups * maps, b[out_map], runs[run], grid, planes, lows,
                          ends, ending, element, lanes, size, outputs)  # fmt: skip

    return grow_tiles


@compiled()
def _odd(count, lanes):
    """An odd number of vectors, at least one more than `count` elements: no power of two apart."""
    return (count // lanes // 2 * 2 + 3) * lanes


@compiled()
def _list_runs(runs, at, used, grid):
    """Neighbouring positions of a block in one row of tiles: image, row and column of tiles, how many, and where."""
    high, wide = grid[0], grid[1]
    done, count = 0, 0
    while done < used:
        position = at + done
        row, column = position // wide, position % wide
        length = min(wide - column, used - done)
        runs[count, 0], runs[count, 1], runs[count, 2] = row // high, row % high, column
        runs[count, 3], runs[count, 4] = length, done
        done += length
        count += 1
    return count


def multiply(weights, panel, apart, products, jump, entries, channels, count, chunk, line, used, element, lanes,
             size, rows):  # fmt: skip
    """Products of a block and a chunk of output channels; exists in compiled code only."""


@overload(multiply, prefer_literal=True)
def _multiply(weights, panel, apart, products, jump, entries, channels, count, chunk, line, used, element, lanes,
              size, rows):  # fmt: skip
    """Every tile of rows stays in the first cache while it meets all positions; it is read from memory once.

    A last vector that is not used beyond its half is computed as such.
    """
    wide, half = VECTORS, lanes.literal_value // 2

    def product(weights, panel, apart, products, jump, entries, channels, count, chunk, line, used, element, lanes,
                size, rows):  # fmt: skip
        vectors = max(2, -(-used // lanes))
        is_half = vectors > 2 and used <= vectors * lanes - half
        vectors -= is_half
        for entry in range(entries.shape[0]):
            source = panel + entries[entry, 0] * apart
            target = products + entries[entry, 0] * jump + entries[entry, 1] * chunk * line
            for tile in range(0, count, rows):
                weight = weights + (tile * entries.shape[0] + entry * rows) * channels * size
                done = 0
                while done < vectors:
                    at = done * lanes * size
                    if vectors - done == wide or vectors - done > wide + 1:
                        add_up(weight, source + at, target + at, channels, line, element, lanes, size, rows, wide)
                        done += wide
                    else:
                        add_up(weight, source + at, target + at, channels, line, element, lanes, size, rows, 2)
                        done += 2
                if is_half:
                    at = vectors * lanes * size
                    add_up(weight, source + at, target + at, channels, line, element, half, size, rows, 1)
                target += rows * line

    return product


def add_up(weight, source, target, channels, line, element, lanes, size, rows, vectors):
    """One tile of a product, summed over pieces of the channels in registers; exists in compiled code only."""


@overload(add_up, prefer_literal=True)
def _add_up(weight, source, target, channels, line, element, lanes, size, rows, vectors):
    registers, piece = rows.literal_value * vectors.literal_value, PIECE

    def tile(weight, source, target, channels, line, element, lanes, size, rows, vectors):
        for first in range(0, channels, piece):
            total = tile_zero(element, lanes, registers)
            for _channel in range(min(piece, channels - first)):
                prefetch(weight + AHEAD)
                total = tile_add_product(total, weight, source, element, lanes, rows, vectors)
                weight += rows * size
                source += line
            if first == 0:
                tile_store(total, target, line, rows, vectors)
            else:
                tile_add_to(total, target, line, rows, vectors)

    return tile
