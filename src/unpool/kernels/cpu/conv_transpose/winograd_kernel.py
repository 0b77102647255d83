"""The compiled part of Winograd's transposed convolution: transform, multiply, transform back.

Positions are tiles of 4x4 inputs that give m x m outputs of every phase; they are listed image by image, row by row.
A block of positions goes through three arrays, each with its positions along the lanes:

    panel[point, channel, position]         the input tiles, transformed
    products[point, phase, map, position]   their products with the transformed weights, summed over the channels
    lines[phase, row, position * m + column]  outputs of one map, before the phases are interleaved
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.conv_transpose import winograd_transform as transform
from unpool.kernels.cpu.conv_transpose.winograd_tiling import DepthAxis
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes, vector_registers
from unpool.kernels.cpu.machine.jit import jit, specialize
from unpool.kernels.cpu.tuning import WINOGRAD
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline, overload_by_type

# a product that is not left out: its point of the inputs, and its phase of the outputs
ENTRY = np.dtype([("point", np.int64), ("phase", np.int64)], align=True)


class WinogradCut(NamedTuple):
    """Blocks of positions, and chunks of maps."""

    blocks: int  # number of blocks
    block: int  # positions in a block; the last one may have fewer
    chunks: int  # number of chunks
    chunk: int  # maps in a chunk; the last one may have fewer


class WinogradGrid(NamedTuple):
    """The tiles of a slice."""

    down: int  # number along the first axis
    across: int  # number along the last axis
    top: int  # row of x where the first tile begins; it may be above
    left: int  # column of x where it begins; it may be to the left


class SliceSizes(NamedTuple):
    """Slices of x and of y."""

    height: int  # rows of x
    width: int  # columns of x
    large_height: int  # rows of y
    large_width: int  # columns of y
    stride_down: int  # of windows, along the first axis
    stride_across: int  # along the last axis
    phases_down: int  # of y, along the first axis
    phases_across: int  # along the last axis


class WinogradParams(NamedTuple):
    """Arguments of a call."""

    depth: DepthAxis  # the axis before the others
    groups: int  # of channels
    channels: int  # of x, in one group, of all slices that reach an output
    maps: int  # channels of y, in one group
    positions: int  # tiles of all slices of all images
    cut: WinogradCut
    tiles: WinogradGrid
    slices: SliceSizes
    origins: Any  # (2, MOST_PHASES) per axis and phase the position in x where the window of its first output begins
    activation: vec.ActivationParams  # of the sums


def tile_rows() -> int:
    """Rows of a tile of the product: with WINOGRAD.tile_vectors vectors each they fill the registers."""
    return 8 if vector_registers() == 32 else 4


@compile_as(tile_rows)
def _tile_rows() -> Callable[..., Any]:
    rows = tile_rows()
    return lambda: rows


@specialize
def make_kernel(compute: np.dtype[Any], storage: np.dtype[Any], outputs: int):
    """The kernel that forms sums in one type and stores them in another, 16-bit floats as bits, for m = `outputs`."""
    size, element, stored = compute.itemsize, getattr(types, compute.name), getattr(types, storage.name)
    static = vec.StaticArgs(
        element=element, stored=stored, lanes=vector_bytes() // size, size=size, rows=tile_rows(), outputs=outputs
    )  # fmt: skip
    lanes, rows = static.lanes, static.rows
    of_any, of_sums, step = static.drop("outputs", "stored"), static.drop("stored"), static.stored.bitwidth // 8
    tile_run = transform.RUN

    @jit(fastmath={"contract"})
    def conv_transpose_winograd(x, packed, b, y, args, entries, first, stop):
        """Write the maps of some chunks, for some blocks.

        for every group, for every block of positions, for every chunk of maps
            for every point and phase, tile of maps, tile of positions: sum over the channels
            for every map, for every run of neighbouring tiles: rows of y
        """
        params = args[0]
        channels, maps, phases = params.channels, params.maps, params.slices.phases_down * params.slices.phases_across
        blocks, block, chunks, chunk = params.cut.blocks, params.cut.block, params.cut.chunks, params.cut.chunk
        point = odd_vectors(channels * block, lanes)
        panel_memory = np.empty(16 * point + lanes, element)
        reach = outputs * (min(block, params.tiles.across) + 2 * lanes) + 2 * lanes
        strip_memory = np.zeros(4 * reach, element)
        jump = odd_vectors(phases * chunk * block, lanes)
        product_memory = np.empty(16 * jump + lanes, element)
        if entries.shape[0] < 16 * phases:
            product_memory[:] = 0  # those that are left out
        pitch = odd_vectors(outputs * block, lanes)
        line_memory = np.empty(phases * outputs * pitch + lanes, element)
        runs = np.empty(block, tile_run)
        group_weights = -(-maps // rows) * rows * channels * entries.shape[0]
        filled, count_runs = -1, 0
        for job in range(first, stop):
            part, first_map = job // chunks, job % chunks * chunk
            group, at = part // blocks, part % blocks * block
            used, count = min(block, params.positions - at), min(chunk, maps - first_map)
            panel = transform.Panel(vec.address_of(panel_memory), channels, point * size, block * size)
            if part != filled:
                count_runs = list_runs(runs, at, used, params)
                volume = params.depth.small * params.slices.height * params.slices.width
                source = group * (channels // params.depth.taps) * volume
                strip = transform.LineBuffer(vec.address_of(strip_memory), reach * size)
                clear_last(panel, used, of_any)
                inputs = vec.address_of(x) + source * step
                transform.transform_inputs(inputs, runs[:count_runs], panel, strip, params, static)
                filled = part
            weights = vec.address_of(packed) + (group * group_weights + first_map * channels * entries.shape[0]) * size
            products = transform.Products(
                vec.address_of(product_memory), jump * size, chunk * block * size, block * size
            )
            multiply_block(weights, panel, products, entries, used, count, of_any)
            lines = transform.LineBuffer(vec.address_of(line_memory), pitch * size)
            for number in range(count):
                out_map = group * maps + first_map + number
                bias = vec.address_of(b) + out_map * size
                plane = params.depth.large * params.slices.large_height * params.slices.large_width
                transform.transform_back(products, lines, phases, vectors_of(used, lanes), of_sums)
                out = vec.address_of(y) + out_map * plane * step
                for run in range(count_runs):
                    transform.write_run(runs[run], lines, out, bias, params, static)
                products = next_map(products)

    return conv_transpose_winograd


@jit_inline
def odd_vectors(count, lanes):
    """An odd number of vectors, at least one more than `count` elements: no power of two apart."""
    return (count // lanes // 2 * 2 + 3) * lanes


@jit_inline
def vectors_of(used, lanes):
    """Vectors that are computed for `used` positions: a tile of the product has two at least."""
    return max(2, -(-used // lanes))


@overload_by_type()
def clear_last(panel, used, static):
    """Zeros in the vectors that positions do not fill: other contents of memory can be slow to multiply."""
    element, lanes, size = static.element, static.lanes, static.size

    def clear(panel, used, static):
        for vector in range(used // lanes, vectors_of(used, lanes)):
            for channel in range(panel.channels):
                target = panel.address + channel * panel.channel_bytes + vector * lanes * size
                vec.tile_store(vec.tile_zero(element, lanes, 16), target, panel.point_bytes, 16, 1)

    return clear


@jit_inline
def list_runs(runs, at, used, params):
    """Fill `runs` with those of a block of `used` positions from `at` on; their number."""
    high, wide, slices = params.tiles.down, params.tiles.across, params.depth.large
    done, count = 0, 0
    while done < used:
        position = at + done
        row, column = position // wide, position % wide
        run = runs[count]
        run.image, run.slice = row // high // slices, row // high % slices
        run.row, run.column = row % high, column
        run.tiles, run.position = min(wide - column, used - done), done
        done += run.tiles
        count += 1
    return count


@overload_by_type(inline=True)
def next_map(products):
    """The products of the next map. Written out in the kernel, this would make it 7 % longer."""
    return lambda products: transform.Products(
        products.address + products.map_bytes, products.point_bytes, products.phase_bytes, products.map_bytes
    )


@overload_by_type()
def multiply_block(weights, panel, products, entries, used, count, static):
    """Products of a block and a chunk of maps; `weights` is the address of the first map's.

        for every point and phase
            for every few positions, for every few channels: their inputs stay in the first cache
                for every tile of maps

    A last vector that is used up to its half is computed as such.
    """
    lanes, size, rows, wide, half = static.lanes, static.size, static.rows, WINOGRAD.tile_vectors, static.lanes // 2
    three, two, one = static.replace(vectors=wide), static.replace(vectors=2), static.replace(vectors=1, lanes=half)

    def multiply(weights, panel, products, entries, used, count, static):
        vectors = vectors_of(used, lanes)
        is_half = vectors > 2 and used <= vectors * lanes - half
        vectors -= is_half
        tiles, apart = -(-count // rows), entries.shape[0] * rows * panel.channels * size
        for number in range(entries.shape[0]):
            entry = entries[number]
            source = panel.address + entry.point * panel.point_bytes
            target = products.address + entry.point * products.point_bytes + entry.phase * products.phase_bytes
            weight = weights + number * rows * panel.channels * size
            done = 0
            while done < vectors:
                at = done * lanes * size
                if vectors - done == wide or vectors - done > wide + 1:
                    sum_tiles(weight, source + at, target + at, panel, products, tiles, apart, three)
                    done += wide
                else:
                    sum_tiles(weight, source + at, target + at, panel, products, tiles, apart, two)
                    done += 2
            if is_half:
                at = vectors * lanes * size
                sum_tiles(weight, source + at, target + at, panel, products, tiles, apart, one)

    return multiply


@overload_by_type()
def sum_tiles(weight, source, target, panel, products, tiles, apart, static):
    """Products of vectors of positions with all maps, tile by tile in registers; tiles of weights are `apart` bytes."""
    element, lanes, size, rows, vectors = static.element, static.lanes, static.size, static.rows, static.vectors
    registers, piece = rows * vectors, WINOGRAD.summed_channels

    def sum_all(weight, source, target, panel, products, tiles, apart, static):
        channels, channel_bytes = panel.channels, panel.channel_bytes
        for first in range(0, channels, piece):
            some = min(piece, channels - first)
            for tile in range(tiles):
                at, place = weight + tile * apart, source
                total = vec.tile_zero(element, lanes, registers)
                for _ in range(some):
                    vec.prefetch(at + apart)
                    total = vec.tile_add_product(total, at, place, element, lanes, rows, vectors)
                    at += rows * size
                    place += channel_bytes
                to = target + tile * rows * products.map_bytes
                if first == 0:
                    vec.tile_store(total, to, products.map_bytes, rows, vectors)
                else:
                    vec.tile_add_to(total, to, products.map_bytes, rows, vectors)
            weight += some * rows * size
            source += some * channel_bytes

    return sum_all
