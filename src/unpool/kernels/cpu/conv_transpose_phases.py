"""Transposed convolution as small dense products, one per phase of the output.

    y[u * stride + phase] = b + sum over taps t of that phase, channels c: w[c, m, t] * x[c, u + shift(phase, t)]

The rows (phase, output channel) of a class of phases are tiles of a register-blocked product, which reads packed
weights and the flat line of the input, and nothing else. Padding is multiplied, so weights must be finite.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.conv_transpose_grid import Class, Grid, grid, row_tables
from unpool.kernels.cpu.conv_transpose_line import fill_line, store_plane
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import split
from unpool.kernels.cpu.vector import address_of, splat, tile_add_product, tile_store, tile_zero

PANEL_BYTES = 3 << 17
"""The input of one block of positions, all channels, stays in the second cache."""

RESULT_BYTES = 1 << 18
"""So do the results of one block and one chunk of output channels."""

TILES = ((8, 3), (4, 5), (1, 8)) if vector_bytes() == 64 else ((4, 3), (2, 5), (1, 8))
"""Shapes of a tile: rows, and vectors of positions; they fill the registers."""


@dataclass(frozen=True)
class Blocking:
    """How the work is cut: positions per block, output channels per chunk, shape of a tile, and what it will cost.

    Attributes:
        block: positions, whole tiles.
        chunk: output channels.
        tile: number of the shape in TILES.
        cost: multiply-adds of one group and one element of the batch, those of unfilled tiles counted.
    """

    block: int
    chunk: int
    tile: int
    cost: float


def blocking(plan: Grid, channels: int, maps: int, size: int) -> Blocking:
    """The cheapest shape of tile, in blocks and chunks that stay in the second cache."""
    found = [_blocking(plan, channels, maps, size, tile) for tile in range(len(TILES))]
    return min(found, key=lambda each: each.cost)


def _blocking(plan: Grid, channels: int, maps: int, size: int, tile: int) -> Blocking:
    rows, vectors = TILES[tile]
    step = vectors * vector_bytes() // size
    fitting = PANEL_BYTES // (channels * size) - plan.margin
    phases = math.prod(plan.phases)
    fitting = min(fitting, RESULT_BYTES // (size * phases * min(maps, rows)))
    blocks = -(-plan.length // (max(4, fitting // step) * step))
    block = -(-plan.length // (blocks * step)) * step
    chunk = RESULT_BYTES // (size * block * phases) // rows * rows
    chunk = min(maps, max(rows, chunk), max(rows, -(-maps // 2 // rows) * rows))
    columns = -(-plan.length // step) * step
    filled = sum(len(each.offsets) * -(-len(each.phases) * maps // rows) * rows for each in plan.classes)
    return Blocking(block, chunk, tile, filled * columns * channels * (1.5 if rows == 1 else 1))


def pack(w, plan: Grid, cut: Blocking, group: int):
    """The weights in the order in which tiles read them: group, chunk, class, tile, tap, channel, row.

    Args:
        w: (C, M/group, k1..kk).
        plan: of the call.
        cut: of the call.
        group: number of groups.
    """
    channels, maps = w.shape[0] // group, w.shape[1]
    flat, rows = w.reshape(group, channels, maps, -1), TILES[cut.tile][0]
    parts: list[Any] = []
    for first in range(0, maps, cut.chunk):
        part = flat[:, :, first : first + cut.chunk]
        parts.extend(_pack_class(part, kind, rows) for kind in plan.classes)
    return np.concatenate(parts, axis=1).reshape(-1)


def _pack_class(part, kind: Class, rows: int):
    """(group, channels, maps, taps) as group, then tile, tap, channel, row; the last tile is filled with zeros."""
    group, channels, maps = part.shape[:3]
    taps = np.array(kind.taps, np.int64).reshape(len(kind.phases), len(kind.offsets))
    count = len(kind.phases) * maps
    chosen = part[..., taps].transpose(0, 4, 1, 3, 2).reshape(group, len(kind.offsets), channels, count)
    tiles = -(-count // rows)
    padded = np.zeros((*chosen.shape[:3], tiles * rows), part.dtype)
    padded[..., :count] = chosen
    return padded.reshape(*chosen.shape[:3], tiles, rows).transpose(0, 3, 1, 2, 4).reshape(group, -1)


def conv_transpose(x, packed, b, axes: tuple[Axis, ...], group: int, y, threads: int | None):
    """Write the transposed convolution to `y`.

    Args:
        x: C-contiguous (N, C, d1..dk): float32, float64, or the bits of 16-bit floats.
        packed: from `pack`, in the type that sums are formed in.
        b: C-contiguous (M,), type of `packed`.
        axes: one per spatial axis.
        group: number of groups.
        y: C-contiguous (N, M, D1..Dk), type of x.
        threads: at most so many; None for all cores.
    """
    plan = grid(axes)
    channels, maps = x.shape[1] // group, y.shape[1] // group
    cut = blocking(plan, channels, maps, packed.itemsize)
    blocks, chunks = -(-plan.length // cut.block), -(-maps // cut.chunk)
    starts, targets = row_tables(axes)
    kinds, offsets, slots, sizes = _class_tables(plan, channels, maps, cut)
    kernel = _kernel(packed.dtype.name, x.dtype.name)
    split(
        kernel, x.shape[0] * group * blocks * chunks, y.size * channels * len(offsets), threads,
        readonly(x), readonly(packed), readonly(b), y.reshape(-1),
        (group, channels, maps, blocks, chunks, cut.block, cut.chunk, plan.length, plan.margin, packed.size // group),
        (axes[-1].small, plan.padded[-1], plan.begins[-1], axes[-1].large, axes[-1].window.stride, plan.phases[-1]),
        (math.prod(x.shape[2:]), math.prod(y.shape[2:])), cut.tile,
        starts, targets, kinds, offsets, slots, sizes,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _class_tables(plan: Grid, channels: int, maps: int, cut: Blocking):
    """Per class its taps, phases and first tap in the flat list; slots of the phases; weights before each chunk."""
    kinds: list[tuple[int, int, int]] = []
    offsets: list[int] = []
    slots = np.empty(math.prod(plan.phases), np.int64)
    done = 0
    for kind in plan.classes:
        kinds.append((len(kind.offsets), len(kind.phases), len(offsets)))
        offsets.extend(kind.offsets)
        slots[list(kind.phases)] = range(done, done + len(kind.phases))
        done += len(kind.phases)
    rows, sizes = TILES[cut.tile][0], []
    for first in range(0, maps, cut.chunk):
        chunk = min(cut.chunk, maps - first)
        tiles = [len(kind.offsets) * -(-len(kind.phases) * chunk // rows) for kind in plan.classes]
        sizes.append(sum(tiles) * channels * rows)
    return np.array(kinds, np.int64).reshape(-1, 3), np.array(offsets, np.int64), slots, np.cumsum([0, *sizes])


@cache
def _kernel(compute: str, storage: str):
    size = np.dtype(compute).itemsize
    shapes = [number for shape in TILES for number in shape]
    lanes = vector_bytes() // size
    return _make(getattr(types, compute), np.dtype(storage).itemsize, lanes, size, *shapes, source_digest())


def _make(element, storage_size, lanes, size, rows_a, vectors_a, rows_b, vectors_b, rows_c, vectors_c, digest):
    slack = lanes * max(vectors_a, vectors_b, vectors_c)

    @compiled()
    def grow(x, packed, b, y, cuts, lane, planes, shape, starts, targets, kinds, offsets, slots, sizes, first, stop):
        """Memory order: batch and group, block of positions, chunk of output channels, class, tile of rows, tile of
        positions; then tap and channel in registers. Results of a block are interleaved into y when all are there.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        groups, channels, maps, blocks, chunks, block, chunk, length, margin, group_weights = cuts
        zero, blank = splat(element(0), lanes), splat(x.dtype.type(0), lanes)
        rows = rows_a if shape == 0 else rows_b if shape == 1 else rows_c
        line = block + margin + slack
        line += (16 - line) % 32
        panel = np.empty(channels * line + 16, element)
        results = np.empty((slots.size * chunk + rows) * block + slack, element)
        stage = np.empty(lane[3] + 8 * lanes if storage_size != size else 0, element)
        places = np.zeros(slots.size + lanes, np.int64)
        panel_start = -(-address_of(panel) // 64) * 64
        filled = -1
        for job in range(first, stop):
            part, piece = job // chunks, job % chunks
            outer, at = part // blocks, part % blocks * block
            first_map = piece * chunk
            count = min(chunk, maps - first_map)
            if part != filled:
                for channel in range(channels):
                    source = address_of(x) + (outer * channels + channel) * planes[0] * storage_size
                    target = panel_start + channel * line * size
                    fill_line(
                        target, source, storage_size, at, block + margin, starts, lane, zero, blank, lanes, size
                    )
                filled = part
            weight = address_of(packed) + (outer % groups * group_weights + sizes[piece]) * size
            used = min(block, length - at)
            result = address_of(results)
            for kind in range(kinds.shape[0]):
                taps = offsets[kinds[kind, 2] : kinds[kind, 2] + kinds[kind, 0]]
                height = kinds[kind, 1] * count
                for tile in range(0, height, rows):
                    target = result + tile * block * size
                    if shape == 0:
                        multiply(
                            weight, panel_start, line, taps, channels, target, block, used, element, lanes, rows_a, vectors_a
                        )
                    elif shape == 1:
                        multiply(
                            weight, panel_start, line, taps, channels, target, block, used, element, lanes, rows_b, vectors_b
                        )
                    else:
                        multiply(
                            weight, panel_start, line, taps, channels, target, block, used, element, lanes, rows_c, vectors_c
                        )
                    weight += taps.size * channels * rows * size
                result += height * block * size
            for member in range(slots.size):
                places[member] = slots[member] * count * block * size
            for number in range(count):
                out_map = outer % groups * maps + first_map + number
                out = address_of(y) + (outer * maps + first_map + number) * planes[1] * storage_size
                source = address_of(results) + number * block * size
                bias = splat(b[out_map], lanes)
                for phase in range(targets.shape[0]):
                    store_plane(
                        out, source, address_of(places) + phase * lane[5] * 8, address_of(stage), at, used,
                        targets[phase], lane, bias, blank, lanes, size,
                    )  # fmt: skip

    return grow


def multiply(weight, panel, line, taps, channels, target, block, used, element, lanes, rows, vectors):
    """Exists in compiled code only."""


@overload(multiply, prefer_literal=True)
def _multiply(weight, panel, line, taps, channels, target, block, used, element, lanes, rows, vectors):
    """One tile of rows at all positions."""
    size, wide = element.dtype.bitwidth // 8, lanes.literal_value * vectors.literal_value
    registers = rows.literal_value * vectors.literal_value

    def product(weight, panel, line, taps, channels, target, block, used, element, lanes, rows, vectors):
        for position in range(0, used, wide):
            total = tile_zero(element, lanes, registers)
            a = weight
            for tap in range(taps.size):
                source = panel + (position + taps[tap]) * size
                for _channel in range(channels):
                    total = tile_add_product(total, a, source, element, lanes, rows, vectors)
                    a += rows * size
                    source += line * size
            tile_store(total, target + position * size, block * size, rows, vectors)

    return product
