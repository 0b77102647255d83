"""How the dense products of the phases are cut into blocks, chunks and tiles, and what that costs."""

import math
from dataclasses import dataclass

from unpool.geometry import Axis
from unpool.kept import kept
from unpool.kernels.cpu.conv_transpose.costs import (
    FEW,
    LAYING,
    NEAR_BYTES,
    PANEL_BYTES,
    RESULT_BYTES,
    SINGLE_ROW,
    SINGLE_ROW_ALIGNED,
    TOGETHER,
    WORKSPACE_BYTES,
)
from unpool.kernels.cpu.conv_transpose.grid import Grid, grid
from unpool.kernels.cpu.machine.host import vector_bytes

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
    room = NEAR_BYTES if channels < FEW else RESULT_BYTES
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


def channels_together(channels: int, taps: int) -> int:
    """So many channels are summed at once: equal shares of all, with about `products_together` products."""
    return -(-channels // max(1, -(-channels * taps // products_together(channels * taps))))


def products_together(products: int) -> int:
    """Products that are summed at once: about as many as there are such sums, because errors grow with both."""
    return max(TOGETHER, math.isqrt(products))
