"""Transposed convolution as small dense products, one per phase of the output.

    y[u * stride + phase] = b + sum over taps t of that phase, channels c: w[c, m, t] * x[c, u + shift(phase, t)]

The rows (phase, output channel) of a class of phases are tiles of a register-blocked product, which reads packed
weights and the flat line of the input, and nothing else. Padding is multiplied, so weights must be finite. Channels are
summed in pieces: the input of one piece stays in the first cache, every weight is read once, and errors stay small.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from unpool.geometry import Axis
from unpool.kept import kept
from unpool.kernels.cpu.activation import PLAIN, Ending
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.conv_transpose_costs import (
    LAYING,
    LIGHT,
    NEAR_BYTES,
    PANEL_BYTES,
    PIECE,
    RESULT_BYTES,
    SINGLE_ROW,
    SINGLE_ROW_ALIGNED,
    WORKSPACE_BYTES,
)
from unpool.kernels.cpu.conv_transpose_grid import Class, Grid, grid, line_fills, line_pitch, row_targets
from unpool.kernels.cpu.conv_transpose_line import fill_line, store_channels, store_plane
from unpool.kernels.cpu.conv_transpose_work import Work
from unpool.kernels.cpu.float16 import BITS
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.threads import Launch
from unpool.kernels.cpu.vector import (
    address_of,
    prefetch,
    splat,
    splat_rows,
    tile_add_product,
    tile_add_to,
    tile_store,
    tile_zero,
)

TILES = ((8, 3), (16, 1), (4, 5), (1, 8)) if vector_bytes() == 64 else ((4, 3), (6, 2), (2, 5), (1, 8))
"""Shapes of a tile: rows, and vectors of positions. Their sums stay in registers, enough of them to hide how long one
takes; channels are mostly powers of two, so some rows are."""


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


@kept(256)
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
    tiles, heights = -(-plan.length // step), -(-maps // rows)
    column = size * step * phases * rows
    for most in (max(4, fitting // step), 1):
        part, whole = _even(tiles, most), _even(heights, max(1, room // (column * tiles)))
        if tiles <= most and _share(heights, whole) <= _share(tiles, part):
            part = tiles
        block = part * step
        chunk = min(maps, _even(heights, max(1, room // (column * part))) * rows)
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
    return min(range(most, (most - 1) // 2, -1), key=lambda part: _share(tiles, part))


def _share(tiles: int, part: int) -> float:
    """How much of the work the busier one of two threads has."""
    count = -(-tiles // part)
    return max(count * part / 2, tiles - count // 2 * part) / tiles


def pack(w, cut: Blocking, group: int):
    """The weights in the order in which tiles read them: group, chunk, class, piece, tile, tap, channel, row.

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
    """(group, channels, maps, taps) as group, then piece, tile, tap, channel, row; zeros fill the last tile."""
    group, channels, maps = part.shape[:3]
    taps = np.array(kind.taps, np.int64).reshape(len(kind.phases), len(kind.offsets))
    count = len(kind.phases) * maps
    chosen = part[..., taps].transpose(0, 4, 1, 3, 2).reshape(group, len(kind.offsets), channels, count)
    tiles = -(-count // rows)
    padded = np.zeros((*chosen.shape[:3], tiles * rows), part.dtype)
    padded[..., :count] = chosen
    ordered = padded.reshape(*chosen.shape[:3], tiles, rows).transpose(0, 3, 1, 2, 4)
    deep = piece(channels, len(kind.offsets))
    most = longest(channels * len(kind.offsets))
    pieces = [
        ordered[:, :, tap : tap + most, first : first + deep]
        for first in range(0, channels, deep)
        for tap in range(0, max(1, len(kind.offsets)), most)
    ]
    return np.concatenate([each.reshape(group, -1) for each in pieces], axis=1)


def piece(channels: int, taps: int) -> int:
    """So many channels are summed at once: equal shares of all, with about as many products as `longest` says."""
    return -(-channels // max(1, -(-channels * taps // longest(channels * taps))))


def longest(products: int) -> int:
    """Products that are summed at once: about as many as there are such sums, because errors grow with both."""
    return max(PIECE, math.isqrt(products))


def prepare(work: Work, storage: np.dtype[Any], ending: Ending = PLAIN) -> Launch:
    """The call that writes a transposed convolution.

    It takes (x, packed, b, y), all C-contiguous: (N, C, d1..dk), or channels last, of type `storage`; what `pack` made;
    (M,) of the type that sums are formed in; (N, M, D1..Dk), or channels last, of type `storage`.

    Args:
        work: what is to be computed.
        storage: type of x and y: float32, float64, float16 or bfloat16.
        ending: the layout of x and y, and what is done to sums before they are stored.
    """
    channels, maps, last = work.channels // work.group, work.maps, work.axes[-1]
    cut = blocking(work.axes, channels, maps, work.dtype.itemsize)
    plan, y_maps = cut.plan, maps * work.group
    blocks, chunks, lanes = -(-plan.length // cut.block), -(-maps // cut.chunk), vector_bytes() // work.dtype.itemsize
    line, pitch = line_pitch(plan, cut.block, lanes)
    numbers = np.array([
        work.group, channels, maps, blocks, chunks, cut.block, cut.chunk, plan.length, pitch, cut.tile,
        *_steps(work.channels, work.small, ending), *_steps(y_maps, work.large, ending), ending.is_active,
    ])  # fmt: skip
    lane = np.array([plan.padded[-1], last.large, last.window.stride, plan.phases[-1]])
    classes = _class_tables(cut, channels, maps, line)
    return Launch(
        _kernel(work.dtype, BITS.get(storage.name, storage)), work.batch * work.group * blocks * chunks,
        work.batch * y_maps * work.large * channels * classes[1].size, numbers, np.array(ending.bounds, work.dtype),
        lane, *line_fills(work.axes, plan, cut.block, lanes), row_targets(work.axes, plan), *classes,
    )  # fmt: skip


def _steps(channels: int, plane: int, ending: Ending) -> tuple[int, int, int]:
    """Elements between neighbours along the batch, the channels and the lanes."""
    whole = channels * plane
    return (whole, 1, channels) if ending.is_channels_last else (whole, plane, 1)


def _class_tables(cut: Blocking, channels: int, maps: int, line: int):
    """Per class taps, phases, first tap, piece and taps at once; offsets of taps; slots of phases; chunks."""
    plan = cut.plan
    kinds: list[tuple[int, int, int, int, int]] = []
    offsets: list[int] = []
    slots = np.empty(math.prod(plan.phases), np.int64)
    done = 0
    for kind in plan.classes:
        taps = len(kind.offsets)
        kinds.append((taps, len(kind.phases), len(offsets), piece(channels, taps), longest(channels * taps)))
        offsets.extend(offset + copy * line for offset, copy in zip(kind.offsets, kind.copies, strict=True))
        slots[list(kind.phases)] = range(done, done + len(kind.phases))
        done += len(kind.phases)
    rows, sizes = TILES[cut.tile][0], []
    for first in range(0, maps, cut.chunk):
        chunk = min(cut.chunk, maps - first)
        tiles = [len(kind.offsets) * -(-len(kind.phases) * chunk // rows) for kind in plan.classes]
        sizes.append(sum(tiles) * channels * rows)
    return np.array(kinds, np.int64).reshape(-1, 5), np.array(offsets, np.int64), slots, np.cumsum([0, *sizes])


@cache
def _kernel(compute: np.dtype[Any], storage: np.dtype[Any]):
    size = compute.itemsize
    lanes = vector_bytes() // size
    kinds = getattr(types, compute.name), getattr(types, storage.name)
    return _make(*kinds, storage.itemsize, lanes, size, TILES, source_digest())


def _make(element, stored, storage_size, lanes, size, shapes, digest):
    (r0, v0), (r1, v1), (r2, v2), (r3, v3) = shapes

    @compiled()
    def grow(x, packed, b, y, numbers, bounds, lane, edges, fills, targets, kinds, offsets, slots, sizes, first, stop):
        """Memory order: batch and group, block of positions, chunk of output channels, class, tile of rows, tile of
        positions; then tap and channel in registers. Results of a block are interleaved into y when all are there.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        groups, channels, maps, blocks, chunks = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
        block, chunk, length, line, shape = numbers[5], numbers[6], numbers[7], numbers[8], numbers[9]
        x_batch, x_channel, x_lane = numbers[10], numbers[11], numbers[12]
        y_batch, y_map, y_lane = numbers[13], numbers[14], numbers[15]
        zero, blank = splat(element(0), lanes), splat(stored(0), lanes)
        slope, low, high = splat(bounds[0], lanes), splat(bounds[1], lanes), splat(bounds[2], lanes)
        ending = numbers[16] != 0, zero, slope, low, high
        rows = r0 if shape == 0 else r1 if shape == 1 else r2 if shape == 2 else r3
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
                    source = batch * x_batch + (outer % groups * channels + channel) * x_channel
                    source = address_of(x) + source * storage_size
                    target = panel_start + channel * line * size
                    vectors = fills[edges[part % blocks] : edges[part % blocks + 1]]
                    fill_line(target, source, x_lane * storage_size, vectors, blank, lanes, size)
                filled = part
            weight = address_of(packed) + (outer % groups * sizes[chunks] + sizes[piece]) * size
            used = min(block, length - at)
            result = address_of(results)
            for kind in range(kinds.shape[0]):
                taps = offsets[kinds[kind, 2] : kinds[kind, 2] + kinds[kind, 0]]
                height = kinds[kind, 1] * count
                runs = max(1, -(-taps.size // kinds[kind, 4]))
                for part_of_sum in range(-(-channels // kinds[kind, 3]) * runs):
                    lowest, tap = part_of_sum // runs * kinds[kind, 3], part_of_sum % runs * kinds[kind, 4]
                    some, more = taps[tap : tap + kinds[kind, 4]], part_of_sum > 0
                    deep, start = min(kinds[kind, 3], channels - lowest), panel_start + lowest * line * size
                    for tile in range(0, height, rows):
                        to = result + tile * block * size
                        if shape == 0:
                            multiply(weight, start, line, some, deep, to, block, used, more, element, lanes, r0, v0)
                        elif shape == 1:
                            multiply(weight, start, line, some, deep, to, block, used, more, element, lanes, r1, v1)
                        elif shape == 2:
                            multiply(weight, start, line, some, deep, to, block, used, more, element, lanes, r2, v2)
                        else:
                            multiply(weight, start, line, some, deep, to, block, used, more, element, lanes, r3, v3)
                        weight += some.size * deep * rows * size
                result += height * block * size
            for member in range(slots.size):
                places[member] = slots[member] * count * block * size
            out_map = outer % groups * maps + first_map
            out = address_of(y) + (batch * y_batch + out_map * y_map) * storage_size
            if y_lane != 1:
                store_channels(
                    out, y_lane * storage_size, address_of(results), block * size, places, at, used, count, targets,
                    lane, address_of(b) + out_map * size, ending, blank, lanes, size,
                )  # fmt: skip
            else:
                for number in range(count):
                    bias = splat_rows(address_of(b) + (out_map + number) * size, element, lanes, 1)
                    store_plane(
                        out + number * y_map * storage_size, address_of(results) + number * block * size,
                        address_of(places), address_of(stage), at, used, targets, lane, bias, ending, blank, lanes,
                        size,
                    )  # fmt: skip

    return grow


def multiply(weight, panel, line, taps, channels, target, block, used, is_more, element, lanes, rows, vectors):
    """Exists in compiled code only."""


@overload(multiply, prefer_literal=True)
def _multiply(weight, panel, line, taps, channels, target, block, used, is_more, element, lanes, rows, vectors):
    """One tile of rows at all positions, one piece of the channels; `is_more` adds it to what is there."""
    size, wide = element.dtype.bitwidth // 8, lanes.literal_value * vectors.literal_value
    registers = rows.literal_value * vectors.literal_value

    def product(weight, panel, line, taps, channels, target, block, used, is_more, element, lanes, rows, vectors):
        whole = taps.size * channels * rows * size
        each = rows * size * wide // used + 1
        for position in range(0, used, wide):
            total = tile_zero(element, lanes, registers)
            a = weight
            soon = weight + (used + position) * whole // used
            for tap in range(taps.size):
                source = panel + (position + taps[tap]) * size
                for _channel in range(channels):
                    total = tile_add_product(total, a, source, element, lanes, rows, vectors)
                    prefetch(soon)
                    soon += each
                    a += rows * size
                    source += line * size
            if is_more:
                tile_add_to(total, target + position * size, block * size, rows, vectors)
            else:
                tile_store(total, target + position * size, block * size, rows, vectors)

    return product
