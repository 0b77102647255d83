"""Transposed convolution with fewer products, by the method of Toom, Cook and Winograd.

A phase of the output is a dense convolution. Where that has 2 x 2 taps, 4 x 4 inputs give 3 x 3 outputs

    Y = A (sum over channels c: (G w[c] G') * (B x[c] B')) A'        * element by element, ' transposed

with 16 products instead of 36; where it has 3 x 3 taps, 2 x 2 outputs with 16 instead of 36. Both use the points 0, 1,
-1 and infinity, so B is the same. The windows of all phases are the same inputs, each a step apart, so one transformed
input serves them all. A tap that a phase lacks is a zero weight, and a product that is zero at every point is left out.

A tile is 4 x 4 inputs, and the m x m outputs of every phase that they give (`winograd_tiling.py`).
This file compares costs, packs weights and prepares the kernel (`winograd_kernel.py`, `winograd_transform.py`):

    packed[tile, entry, channel, row] = sum over taps t: factor[entry, t] * w[channel, tile * rows + row, t]

Sums and differences of neighbours are formed before they are multiplied. So errors, relative to the largest output, are
two or three times those of a direct sum in the same number of parts. NaN, or a value far larger than its neighbours,
spoils a tile. Tiles are checked for it, and inaccurate ones are computed again by phases (`winograd_accuracy.py`). If
there are too many, or the weights vary too much, the next algorithm runs the whole call.

Workspace per thread: `WINOGRAD.panel` and `WINOGRAD.products`, or the size of three vectors of positions with all
channels and one tile of rows in all phases; 32 MiB at most.

Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015; the points are theirs.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, tap_spans, upsampling_walk
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.axes import axis_at, large_sizes, small_sizes
from unpool.kernels.cpu.conv_transpose import winograd_kernel, winograd_tiling
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, window_taps
from unpool.kernels.cpu.conv_transpose.winograd_tiling import (
    FLAT,
    DepthAxis,
    WinogradTiling,
    tiling_of,
    tiling_size,
)
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import second_cache_bytes, vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.jobs import JobSplit, choose_split, even_sizes
from unpool.kernels.cpu.machine.plan import KernelStep, Operand, PlanMemory
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch, Launches
from unpool.kernels.cpu.tuning import WINOGRAD, WINOGRAD_COSTS
from unpool.kernels.cpu.vector import BITS
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline


class WinogradBlocks(NamedTuple):
    """Blocks and chunks of the work."""

    block: int  # positions of a block, whole vectors
    chunk: int  # output channels of a chunk, whole tiles
    jobs: JobSplit  # costs in multiply-adds of full tiles


def choose_blocks(problem: ConvTransposeProblem, threads: int) -> WinogradBlocks:
    """The blocks and chunks that the threads finish first, limited by the caches."""
    tiling, size, rows = tiling_of(problem.axes), problem.dtype.itemsize, winograd_kernel.tile_rows()
    lanes, candidates = vector_bytes() // size, []
    vectors, tiles = -(-problem.batch * math.prod(tiling.tiles) // lanes), -(-problem.maps // rows)
    channels = problem.channels // problem.group
    fitting = _most_vectors(channels)
    if second_cache_bytes() >= WINOGRAD.large_cache:
        near = min(WINOGRAD.near_vectors, fitting, WINOGRAD.near // (16 * channels * vector_bytes()))
        fitting = max(WINOGRAD.tile_vectors, near)
    for wide in even_sizes(vectors, fitting):
        block = max(2, wide) * lanes
        highest = max(1, WINOGRAD.products // (16 * tiling.phases * block * size * rows))
        candidates += [_blocks(problem, block, high * rows) for high in even_sizes(tiles, highest)]
    chosen = choose_split((each.jobs for each in candidates), threads)
    return next(each for each in candidates if each.jobs is chosen)


@jit_inline
def _most_vectors(channels: int) -> int:
    """Vectors of positions in a block, on any processor: algorithms are compared by it, everywhere with one result."""
    return max(WINOGRAD.tile_vectors, min(WINOGRAD.vectors, WINOGRAD.panel // (16 * channels * vector_bytes())))


def _blocks(problem: ConvTransposeProblem, block: int, chunk: int) -> WinogradBlocks:
    """Blocks and chunks of these sizes, and their costs."""
    tiling, channels, rows = tiling_of(problem.axes), problem.channels // problem.group, winograd_kernel.tile_rows()
    lanes = vector_bytes() // problem.dtype.itemsize
    positions = -(-problem.batch * math.prod(tiling.tiles) // lanes) * lanes
    blocks, chunks = -(-positions // block), -(-problem.maps // chunk)
    weights = len(tiling.entries) * channels
    costs = WINOGRAD_COSTS
    scatter = costs.scatter if problem.axes[1].window.stride > 2 else 0
    outputs = tiling.phases * (costs.output + scatter * tiling.outputs**2)
    each = chunk * (weights * (block + costs.weight) + outputs * block) + costs.panel * 16 * channels * block
    whole = -(-problem.maps // rows) * rows * (weights * (positions + blocks * costs.weight) + outputs * positions)
    total = problem.group * (whole + costs.panel * 16 * channels * positions * chunks)
    before = channels * block * costs.input
    return WinogradBlocks(block, chunk, JobSplit(problem.group * blocks * chunks, each, total, chunks, before))


@jit_inline
def cost(axes: Any, batch: int, channels: int, maps: int, size: int, is_cached: bool) -> float:
    """The cost of a group of channels and maps, in multiply-adds of full tiles; infinity where it does not fit."""
    if not 0 < channels <= WINOGRAD.channels or maps == 0 or batch == 0:
        return math.inf
    tiling, fewest = tiling_size(axes), channels
    if tiling.tiles == 0:
        return math.inf
    for number in range(2):
        fewest *= fewest_met(axis_at(axes, number))
    if fewest < WINOGRAD.terms:
        return math.inf
    lanes, rows = vector_bytes() // size, winograd_kernel.tile_rows()
    blocks = -(-batch * tiling.tiles // (_most_vectors(channels) * lanes))
    positions = max(2 * lanes, -(-batch * tiling.tiles // lanes) * lanes)
    weights = tiling.entries * -(-maps // rows) * rows * channels
    moved = positions * (channels * WINOGRAD_COSTS.input + maps * tiling.phases * WINOGRAD_COSTS.output)
    if axis_at(axes, 1).window.stride > 2:
        moved += batch * maps * large_sizes(axes, 0) * WINOGRAD_COSTS.scatter
    packing = 0 if is_cached else WINOGRAD_COSTS.pack
    return float(weights * (positions + blocks * WINOGRAD_COSTS.weight + packing) + moved)


def fewest_met(axis: Axis) -> int:
    """The least positions of x that an output at a border reads along an axis."""
    met = np.zeros(axis.large, np.int64)
    for _, low, high, offset in tap_spans(axis):
        met[low * axis.window.stride + offset : high * axis.window.stride + offset : axis.window.stride] += 1
    return int(met[met > 0].min(initial=axis.window.size))


@compile_as(fewest_met)
def _fewest_met(axis: Any) -> Callable[..., Any]:
    def compiled(axis):
        fewest, counts = axis.window.size, upsampling_walk(axis).count
        for place in range(counts.size):
            if counts[place] > 0:
                fewest = min(fewest, counts[place])
        return fewest

    return compiled


@jit_inline
def share(axes: Any, batch: int, channels: int, maps: int, size: int, is_cached: bool) -> float:
    """The cost of a call over that of a product for every tap; arguments are those of `cost`."""
    taps = small_sizes(axes, 0) * window_taps(axes)
    dense = batch * maps * (channels * taps + large_sizes(axes, 0) * WINOGRAD_COSTS.store)
    return cost(axes, batch, channels, maps, size, is_cached) / dense if dense > 0 else math.inf


@jit_inline
def is_cheapest(axes: Any, batch: int, channels: int, maps: int, size: int, is_cached: bool) -> bool:
    """True if a call costs less than a product for every tap."""
    return share(axes, batch, channels, maps, size, is_cached) < 1


def packing_key(axes: tuple[Axis, ...]) -> tuple[object, ...]:
    """The places of the taps in the windows of all phases, equal for calls that share packed weights."""
    return tuple((side.span, side.taps) for side in tiling_of(axes).sides)


def pack(w, axes: tuple[Axis, ...], group: int, threads: int | None):
    """The transformed weights: group, tile, entry, channel, row; of finite (C, M/group, k1, k2), summed in float64."""
    size, launch, tables = _packing(axes, w.shape, w.dtype, group)
    packed = np.empty(size, w.dtype)
    launch.run((w, packed), threads, *tables)
    return packed


def pack_step(w: Operand, axes: tuple[Axis, ...], group: int, memory: PlanMemory) -> tuple[Operand, KernelStep]:
    """The transformed weights, and the step that computes them."""
    size, launch, tables = _packing(axes, w.shape, w.dtype, group)
    packed = memory.scratch((size,), w.dtype)
    return packed, KernelStep(launch, (w, packed), tables)


@lru_cache(maxsize=64)
def _packing(axes: tuple[Axis, ...], shape: tuple[int, ...], dtype: np.dtype[Any], group: int):
    """The number of transformed weights, the call on (w, packed), and what follows these."""
    tiling, rows = tiling_of(axes), winograd_kernel.tile_rows()
    channels, maps = shape[0] // group, shape[1]
    tiles, taps = -(-maps // rows), math.prod(shape[2:])
    starts, summands = list_summands(tiling, tuple(axis.window.size for axis in axes))
    size = group * tiles * len(tiling.entries) * channels * rows
    work = size * len(summands) // (len(tiling.entries) * VECTOR_SPEEDUP)
    launch = Launch(_make_packing_kernel(dtype, rows), group * tiles, work, parts=1)
    return size, launch, (record(WinogradPackParams(channels, maps, tiles, taps)), starts, summands)


def launch(
    problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue = PLAIN, depth: DepthAxis = FLAT
) -> Launches:
    """The call on C-contiguous (x, packed, b, y), x and y of type `storage`; inaccurate tiles may hold anything."""
    tiling, channels = tiling_of(problem.axes), problem.channels // problem.group
    positions, (rows, columns), (down, across) = problem.batch * math.prod(tiling.tiles), problem.axes, tiling.sides
    origins = np.zeros((2, winograd_tiling.MOST_PHASES), np.int64)
    for line, side in zip(origins, tiling.sides, strict=True):
        line[: len(side.origins)] = side.origins
    dtypes = {"depth": record(FLAT).dtype, "origins": np.dtype((np.int64, origins.shape))}
    dtypes["activation"] = vec.activation_dtype(problem.dtype)
    kernel = winograd_kernel.make_kernel(problem.dtype, BITS.get(storage.name, storage), tiling.outputs)
    entries = np.array(list(tiling.entries), winograd_kernel.ENTRY)

    def for_threads(threads: int) -> Launch:
        cut = choose_blocks(problem, threads)
        params = winograd_kernel.WinogradParams(
            depth=depth, groups=problem.group, channels=channels, maps=problem.maps, positions=positions,
            cut=winograd_kernel.WinogradCut(
                -(-positions // cut.block), cut.block, -(-problem.maps // cut.chunk), cut.chunk
            ),
            tiles=winograd_kernel.WinogradGrid(tiling.tiles[0], tiling.tiles[1], down.first, across.first),
            slices=winograd_kernel.SliceSizes(
                rows.small, columns.small, rows.large, columns.large, rows.window.stride, columns.window.stride,
                len(down.origins), len(across.origins),
            ),
            origins=origins,
            activation=vec.ActivationParams(epilogue.is_active, *epilogue.bounds),
        )  # fmt: skip
        return Launch(kernel, cut.jobs.jobs, problem.split_cost, record(params, **dtypes), entries, parts=1)

    return Launches(problem.split_cost, for_threads)


class WinogradPackParams(NamedTuple):
    """Arguments of packing."""

    channels: int  # of x, in a group
    maps: int  # output channels of a group
    tiles: int  # of output channels; the last one may have fewer rows
    taps: int  # of a window


SUMMAND = np.dtype([("tap", np.int64), ("factor", np.float64)], align=True)  # a factor that is not zero, and its tap


@lru_cache(maxsize=64)
def list_summands(tiling: WinogradTiling, sizes: tuple[int, ...]):
    """Where the summands of each entry of the transformed weights begin, and their number; the summands."""
    points, phases = np.array(tiling.entries).T
    transform = winograd_tiling.transform_of(tiling.sides, sizes)[points, phases]
    entries, taps = np.nonzero(transform)
    starts = np.searchsorted(entries, np.arange(len(transform) + 1))
    summands = np.empty(len(taps), SUMMAND)
    summands["tap"], summands["factor"] = taps, transform[entries, taps]
    return starts, summands


@specialize
def _make_packing_kernel(dtype: np.dtype[Any], rows: int) -> Any:
    """The compiled kernel that packs weights of a type for tiles of `rows` rows."""
    element, width = getattr(types, dtype.name), dtype.itemsize
    wide = rows * np.dtype(np.float64).itemsize

    @jit()
    def pack_tiles(w, packed, args, starts, summands, first, stop):
        """Jobs are tiles of all groups, of w (C, M / group, taps) and packed (group * tiles, entries, C / group, rows).

        for every tile, for `packed_channels` channels
            for every channel, for every tap: lay the rows out
            for every entry, for every channel: sum, all rows at once
        """
        params = args[0]
        channels, maps, tiles, taps, entries = params.channels, params.maps, params.tiles, params.taps, starts.size - 1
        lines, zeros = np.empty((WINOGRAD.packed_channels, taps, rows)), vec.splat(element(0), rows)
        for job in range(first, stop):
            group, begin = job // tiles, job % tiles * rows
            is_used = vec.first_lanes(min(rows, maps - begin), zeros)
            for start in range(0, channels, WINOGRAD.packed_channels):
                together = min(WINOGRAD.packed_channels, channels - start)
                for channel in range(together):
                    source = ((group * channels + start + channel) * maps + begin) * taps
                    for tap in range(taps):
                        line = vec.gather(vec.address_of(w) + (source + tap) * width, taps * width, is_used, zeros)
                        vec.store(
                            vec.address_of(lines) + (channel * taps + tap) * wide, vec.convert(line, types.float64)
                        )
                for entry in range(entries):
                    target = vec.address_of(packed) + ((job * entries + entry) * channels + start) * rows * width
                    for channel in range(together):
                        total = vec.splat(0.0, rows)
                        for number in range(starts[entry], starts[entry + 1]):
                            summand = summands[number]
                            source = vec.address_of(lines) + (channel * taps + summand.tap) * wide
                            line = vec.load(source, types.float64, rows)
                            total = total + line * vec.splat(summand.factor, rows)
                        vec.store(target + channel * rows * width, vec.convert(total, element))

    return pack_tiles
