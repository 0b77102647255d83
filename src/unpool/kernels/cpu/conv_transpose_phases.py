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
from unpool.kernels.cpu.activation import PLAIN, Ending
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.conv_transpose_costs import (
    LAYING,
    LIGHT,
    NEAR_BYTES,
    PANEL_BYTES,
    RESULT_BYTES,
    SINGLE_ROW,
    SINGLE_ROW_ALIGNED,
    WORKSPACE_BYTES,
)
from unpool.kernels.cpu.conv_transpose_grid import Class, Grid, grid, row_tables
from unpool.kernels.cpu.conv_transpose_line import fill_line, store_channels, store_plane
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import split
from unpool.kernels.cpu.vector import address_of, splat, tile_add_product, tile_store, tile_zero

TILES = (
    ((8, 3), (12, 2), (4, 5), (24, 1), (1, 8)) if vector_bytes() == 64 else ((4, 3), (6, 2), (2, 5), (12, 1), (1, 8))
)
"""Shapes of a tile: rows, and vectors of positions; they fill the registers."""


@dataclass(frozen=True)
class Blocking:
    """How the work is cut, and what it will cost.

    Attributes:
        plan: the line.
        block: positions per block, whole tiles.
        chunk: output channels per chunk.
        tile: number of the shape of tiles in TILES.
        workspace: bytes that a thread needs, roughly.
        cost: multiply-adds of one group and one element of the batch, those of unfilled tiles counted.
    """

    plan: Grid
    block: int
    chunk: int
    tile: int
    workspace: int
    cost: float


@lru_cache(maxsize=256)
def blocking(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> Blocking:
    """The cheapest line and shape of tile, in blocks and chunks that stay in the second cache."""
    return min(blockings(axes, channels, maps, size), key=lambda each: each.cost)


def blockings(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> list[Blocking]:
    """What there is to choose from."""
    lanes = vector_bytes() // size
    plans = [grid(axes), grid(axes, is_spread=True), grid(axes, is_spread=True, whole=lanes)]
    return [_blocking(plan, channels, maps, lanes, tile) for plan in plans for tile in range(len(TILES))]


def _blocking(plan: Grid, channels: int, maps: int, lanes: int, tile: int) -> Blocking:
    """Blocks and chunks for one line and one shape of tiles; what needs too much memory costs infinitely much."""
    rows, vectors = TILES[tile]
    step, phases, copies = vectors * lanes, math.prod(plan.phases), len(plan.copies)
    size = vector_bytes() // lanes
    room = NEAR_BYTES if channels < LIGHT else RESULT_BYTES
    near = max(PANEL_BYTES // (channels * copies * size) - plan.margin, plan.margin // 2)
    fitting = min(near, room // (size * phases * min(maps, rows)))
    for most in (max(4, fitting // step), 1):
        block = _even(-(-plan.length // step), most) * step
        chunk = min(maps, _even(-(-maps // rows), max(1, room // (size * block * phases * rows))) * rows)
        panel = channels * (copies * (block + plan.margin + 2 * lanes) + 2 * lanes)
        workspace = size * (panel + (phases * chunk + rows) * block)
        if workspace <= WORKSPACE_BYTES:
            break
    columns, blocks = -(-plan.length // step) * step, -(-plan.length // block)
    filled = sum(len(each.offsets) * -(-len(each.phases) * maps // rows) * rows for each in plan.classes)
    is_aligned = copies > 1 and plan.padded[-1] % lanes == 0
    slowness = 1.0 if rows > 1 else SINGLE_ROW_ALIGNED if is_aligned else SINGLE_ROW
    laid_out = LAYING * copies * (plan.length + blocks * plan.margin)
    cost = channels * (filled * columns * slowness + laid_out) if workspace <= WORKSPACE_BYTES else math.inf
    return Blocking(plan, block, chunk, tile, workspace, cost)


def _even(tiles: int, most: int) -> int:
    """Tiles per part, at most so many and at least half of that, such that two threads have the most equal shares."""
    most = min(tiles, most)

    def larger_share(part: int) -> float:
        count = -(-tiles // part)
        return max(count * part / 2, tiles - count // 2 * part)

    return min(range(most, (most - 1) // 2, -1), key=larger_share)


def pack(w, cut: Blocking, group: int):
    """The weights in the order in which tiles read them: group, chunk, class, tile, tap, channel, row.

    Args:
        w: (C, M/group, k1..kk).
        cut: of the call.
        group: number of groups.
    """
    channels, maps = w.shape[0] // group, w.shape[1]
    flat, rows = w.reshape(group, channels, maps, -1), TILES[cut.tile][0]
    parts: list[Any] = []
    for first in range(0, maps, cut.chunk):
        part = flat[:, :, first : first + cut.chunk]
        parts.extend(_pack_class(part, kind, rows) for kind in cut.plan.classes)
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


def conv_transpose(x, packed, b, axes: tuple[Axis, ...], group: int, y, threads: int | None, ending: Ending = PLAIN):
    """Write the transposed convolution to `y`.

    Args:
        x: C-contiguous (N, C, d1..dk), or channels last: float32, float64, or the bits of 16-bit floats.
        packed: from `pack`, in the type that sums are formed in.
        b: C-contiguous (M,), type of `packed`.
        axes: one per spatial axis.
        group: number of groups.
        y: C-contiguous (N, M, D1..Dk), or channels last, type of x.
        threads: at most so many; None for all cores.
        ending: the layout of x and y, and what is done to sums before they are stored.
    """
    x_channels, maps = x.shape[-1 if ending.is_channels_last else 1], b.size // group
    setup = _setup(axes, x_channels // group, maps, packed.itemsize)
    split(
        _kernel(packed.dtype, x.dtype), x.shape[0] * group * setup.jobs, y.size * setup.work, threads,
        readonly(x), readonly(packed), readonly(b), y.reshape(-1), _steps(x.size, x.shape[0], x_channels, ending),
        _steps(y.size, x.shape[0], b.size, ending), (ending.is_active, *ending.bounds),
        (group, packed.size // group, *setup.sizes), setup.lane, *setup.tables,
    )  # fmt: skip


def _steps(size: int, batch: int, channels: int, ending: Ending) -> tuple[int, int, int]:
    """Elements between neighbours along the batch, the channels and the lanes."""
    whole = size // batch
    return (whole, 1, channels) if ending.is_channels_last else (whole, whole // channels, 1)


@dataclass(frozen=True)
class _Setup:
    """What the kernel is told of a call, whatever the batch and the number of groups.

    Attributes:
        jobs: per group and element of the batch.
        work: multiply-adds per output element, roughly.
        sizes: channels, maps, blocks, chunks, block, chunk, length, margin, tile, small size of the last axis.
        lane: of the last axis: padded, large, stride, phases.
        tables: arrays.
    """

    jobs: int
    work: int
    sizes: tuple[int, ...]
    lane: tuple[int, ...]
    tables: tuple[Any, ...]


@lru_cache(maxsize=256)
def _setup(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> _Setup:
    cut, last = blocking(axes, channels, maps, size), axes[-1]
    plan = cut.plan
    blocks, chunks = -(-plan.length // cut.block), -(-maps // cut.chunk)
    tables = (*row_tables(axes, plan), np.array(plan.copies), *_class_tables(cut, channels, maps))
    return _Setup(
        blocks * chunks,
        channels * tables[4].size,
        (channels, maps, blocks, chunks, cut.block, cut.chunk, plan.length, plan.margin, cut.tile, last.small),
        (plan.padded[-1], last.large, last.window.stride, plan.phases[-1]),
        tables,
    )


def _class_tables(cut: Blocking, channels: int, maps: int):
    """Per class its taps, phases and first tap; per tap its offset and line; slots of phases; weights before chunks."""
    plan = cut.plan
    kinds: list[tuple[int, int, int]] = []
    offsets: list[tuple[int, int]] = []
    slots = np.empty(math.prod(plan.phases), np.int64)
    done = 0
    for kind in plan.classes:
        kinds.append((len(kind.offsets), len(kind.phases), len(offsets)))
        offsets.extend(zip(kind.offsets, kind.copies, strict=True))
        slots[list(kind.phases)] = range(done, done + len(kind.phases))
        done += len(kind.phases)
    rows, sizes = TILES[cut.tile][0], []
    for first in range(0, maps, cut.chunk):
        chunk = min(cut.chunk, maps - first)
        tiles = [len(kind.offsets) * -(-len(kind.phases) * chunk // rows) for kind in plan.classes]
        sizes.append(sum(tiles) * channels * rows)
    places = np.array(offsets, np.int64).reshape(-1, 2)
    return np.array(kinds, np.int64).reshape(-1, 3), places, slots, np.cumsum([0, *sizes])


@cache
def _kernel(compute: np.dtype[Any], storage: np.dtype[Any]):
    size = compute.itemsize
    lanes = vector_bytes() // size
    return _make(getattr(types, compute.name), storage.itemsize, lanes, size, TILES, source_digest())


def _make(element, storage_size, lanes, size, shapes, digest):
    (r0, v0), (r1, v1), (r2, v2), (r3, v3), (r4, v4) = shapes

    @compiled()
    def grow(
        x,
        packed,
        b,
        y,
        x_steps,
        y_steps,
        end,
        cuts,
        lane,
        starts,
        targets,
        copies,
        kinds,
        terms,
        slots,
        sizes,
        first,
        stop,
    ):
        """Memory order: batch and group, block of positions, chunk of output channels, class, tile of rows, tile of
        positions; then tap and channel in registers. Results of a block are interleaved into y when all are there.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        groups, group_weights, channels, maps, blocks, chunks, block, chunk, length, margin, shape, small = cuts
        zero, blank = splat(element(0), lanes), splat(x.dtype.type(0), lanes)
        slope, low, high = splat(element(end[1]), lanes), splat(element(end[2]), lanes), splat(element(end[3]), lanes)
        ending = end[0], zero, slope, low, high
        rows = r0 if shape == 0 else r1 if shape == 1 else r2 if shape == 2 else r3 if shape == 3 else r4
        copy = -(-(block + margin + lanes) // 16) * 16
        line = copies.size * copy
        line += (16 - line) % 32
        offsets = terms[:, 0] + terms[:, 1] * copy
        panel = np.empty(channels * line + 16, element)
        results = np.empty((slots.size * chunk + rows) * block + lanes, element)
        stage = np.empty(min(lane[1], block * lane[2]) + 8 * lanes, element)
        places = np.zeros(slots.size + lanes, np.int64)
        filled = -1
        for job in range(first, stop):
            part, piece = job // chunks, job % chunks
            outer, at = part // blocks, part % blocks * block
            batch = outer // groups
            first_map = piece * chunk
            count = min(chunk, maps - first_map)
            panel_start = -(-address_of(panel) // 64) * 64  # for every job: Numba frees what no later line names
            if part != filled:
                for channel in range(channels):
                    source = batch * x_steps[0] + (outer % groups * channels + channel) * x_steps[1]
                    source = address_of(x) + source * storage_size
                    target = panel_start + channel * line * size
                    for number in range(copies.size):
                        fill_line(
                            target, source, x_steps[2] * storage_size, at, block + margin, starts, small, lane[0],
                            copies[number], zero, blank, lanes, size,
                        )  # fmt: skip
                        target += copy * size
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
                        multiply(weight, panel_start, line, taps, channels, target, block, used, element, lanes, r0, v0)
                    elif shape == 1:
                        multiply(weight, panel_start, line, taps, channels, target, block, used, element, lanes, r1, v1)
                    elif shape == 2:
                        multiply(weight, panel_start, line, taps, channels, target, block, used, element, lanes, r2, v2)
                    elif shape == 3:
                        multiply(weight, panel_start, line, taps, channels, target, block, used, element, lanes, r3, v3)
                    else:
                        multiply(weight, panel_start, line, taps, channels, target, block, used, element, lanes, r4, v4)
                    weight += taps.size * channels * rows * size
                result += height * block * size
            for member in range(slots.size):
                places[member] = slots[member] * count * block * size
            out_map = outer % groups * maps + first_map
            out = address_of(y) + (batch * y_steps[0] + out_map * y_steps[1]) * storage_size
            if y_steps[2] != 1:
                store_channels(
                    out, y_steps[2] * storage_size, address_of(results), block * size, places, at, used, count, targets,
                    lane, address_of(b) + out_map * size, ending, blank, lanes, size,
                )  # fmt: skip
            else:
                for number in range(count):
                    store_plane(
                        out + number * y_steps[1] * storage_size, address_of(results) + number * block * size,
                        address_of(places), address_of(stage), at, used, targets, lane,
                        splat(b[out_map + number], lanes), ending, blank, lanes, size,
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
