"""How the dense products of the phases are cut into blocks, chunks and tiles, and what that costs."""

import math
from dataclasses import dataclass, replace

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose.costs import (
    FEW,
    FILLING,
    JOB_PRODUCTS,
    LAYING,
    NEAR_BYTES,
    PANEL_BYTES,
    RELOADING,
    RESULT_BYTES,
    SINGLE_ROW,
    SINGLE_ROW_ALIGNED,
    STORING,
    TILES_TOGETHER,
    TOGETHER,
    WORKSPACE_BYTES,
)
from unpool.kernels.cpu.conv_transpose.grid import Grid, grid
from unpool.kernels.cpu.conv_transpose.work import Work
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jobs import Cut, choose, even_parts, pieces
from unpool.kernels.cpu.machine.threads import cores
from unpool.shape_cache import cached

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
        step: positions of a tile.
        workspace: bytes that a thread needs, roughly.
        cost: multiply-adds of one group and one element of the batch, those of unfilled tiles counted.
    """

    plan: Grid
    block: int
    chunk: int
    tile: int
    step: int
    workspace: int
    cost: float


def blocking(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> Blocking:
    """The cheapest line and shape of tile, in blocks and chunks that stay in the second cache.

    Weights are packed for its chunks, so these depend on the machine's cores and not on the threads of a call.
    """
    return _cheapest(axes, channels, maps, size, cores())


@cached(256)
def _cheapest(axes: tuple[Axis, ...], channels: int, maps: int, size: int, cores: int) -> Blocking:
    return min(blockings(axes, channels, maps, size, cores), key=lambda each: each.cost)


def blockings(axes: tuple[Axis, ...], channels: int, maps: int, size: int, cores: int) -> list[Blocking]:
    """What there is to choose from."""
    lanes = vector_bytes() // size
    plans = [grid(axes), grid(axes, is_spread=True), grid(axes, is_spread=True, whole=lanes)]
    return [_blocking(plan, channels, maps, lanes, tile, cores) for plan in plans for tile in range(len(TILES))]


def _blocking(plan: Grid, channels: int, maps: int, lanes: int, tile: int, cores: int) -> Blocking:
    """Blocks and chunks for one line and one shape of tiles; what needs too much memory costs infinitely much.

    A chunk for each core is enough, unless it is very large: all tiles of a chunk share the input in the first cache.
    """
    rows, vectors = TILES[tile]
    step, phases, copies = vectors * lanes, math.prod(plan.phases), len(plan.copies)
    size = vector_bytes() // lanes
    room = NEAR_BYTES if channels < FEW else RESULT_BYTES
    near = max(PANEL_BYTES // (channels * copies * size) - plan.margin, plan.margin // 2)
    fitting = min(near, room // (size * phases * min(maps, rows)))
    tiles = -(-plan.length // step)
    small = max(
        JOB_PRODUCTS // max(1, channels * _filled(plan, rows, rows) * step),
        -(-TILES_TOGETHER // min(len(each.phases) for each in plan.classes)),
    )
    small = max(small, -(-maps // rows) // cores)
    for most in (max(4, fitting // step), 1):
        block = -(-tiles // -(-tiles // most)) * step
        chunk = min(maps, max(1, min(small, room // (size * phases * rows * block))) * rows)
        panel = channels * (copies * (block + plan.margin + 2 * lanes) + 2 * lanes)
        workspace = size * (panel + (phases * chunk + rows) * block)
        if workspace <= WORKSPACE_BYTES:
            break
    columns, blocks = tiles * step, -(-plan.length // block)
    is_aligned = copies > 1 and plan.padded[-1] % lanes == 0
    slowness = 1.0 if rows > 1 else SINGLE_ROW_ALIGNED if is_aligned else SINGLE_ROW
    laid_out = LAYING * copies * (plan.length + blocks * plan.margin)
    cost = channels * (_filled(plan, maps, rows) * columns * slowness + laid_out)
    return Blocking(plan, block, chunk, tile, step, workspace, cost if workspace <= WORKSPACE_BYTES else math.inf)


def shared(found: Blocking, work: Work, threads: int) -> tuple[Blocking, int]:
    """The blocking with blocks, as large or smaller, that so many threads finish first; into how many parts for each.

    Chunks stay what they are, since weights are packed for them.
    """
    tiles = -(-found.plan.length // found.step)
    blocks = [part * found.step for part in even_parts(tiles, found.block // found.step)]
    cuts = [_cut(found, block, work) for block in blocks]
    cut = choose(cuts, threads)
    return replace(found, block=blocks[cuts.index(cut)]), pieces(cut, threads)


def _cut(found: Blocking, block: int, work: Work) -> Cut:
    """What jobs cost with blocks of so many positions, in multiply-adds."""
    plan, rows, channels = found.plan, TILES[found.tile][0], work.channels // work.group
    planes, blocks, chunks = work.batch * work.group, -(-plan.length // block), -(-work.maps // found.chunk)
    columns, stores = -(-plan.length // found.step) * found.step, math.prod(plan.phases) * STORING
    last = plan.padded[-1]
    vectors = -(-(block + plan.margin) // last) * -(-last * TILES[found.tile][1] // found.step)
    some, every = (channels * _filled(plan, maps, rows) for maps in (found.chunk, work.maps))
    return Cut(
        jobs=planes * blocks * chunks,
        each=some * (block + RELOADING) + found.chunk * stores * block,
        total=planes * (every * (columns + blocks * RELOADING) + work.maps * stores * columns),
        along=chunks,
        before=FILLING * channels * len(plan.copies) * vectors,
    )


def _filled(plan: Grid, maps: int, rows: int) -> int:
    """Products of one channel and position, for so many output channels, those of unfilled tiles counted."""
    return sum(len(each.offsets) * -(-len(each.phases) * maps // rows) * rows for each in plan.classes)


def channels_together(channels: int, taps: int) -> int:
    """So many channels are summed at once: equal shares of all, with about `products_together` products."""
    return -(-channels // max(1, -(-channels * taps // products_together(channels * taps))))


def products_together(products: int) -> int:
    """Products that are summed at once: about as many as there are such sums, because errors grow with both."""
    return max(TOGETHER, math.isqrt(products))
