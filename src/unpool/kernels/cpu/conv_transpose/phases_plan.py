"""The flat line that a transposed convolution reads, the phases of its output, and their blocking.

    y[u * stride + phase] = b + sum over taps t of that phase, channels c: w[c, m, t] * x[c, u + shift(phase, t)]

Neighbouring outputs of a phase read neighbouring inputs. So the input is laid out once, with its padding, as a flat
line per channel, and every tap is an offset into it, for any rank. Phases with equal offsets form a class.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, phase_count, window_taps
from unpool.kernels.cpu.fold_axes import padded_rows
from unpool.kernels.cpu.machine.host import vector_bytes, vector_registers
from unpool.kernels.cpu.machine.jobs import (
    JobSplit,
    choose_time,
    even_sizes,
    finish_time,
    has_even_shares,
    parts_per_thread,
)
from unpool.kernels.cpu.machine.threads import max_threads
from unpool.kernels.cpu.tuning import PHASES_COSTS, PHASES_SIZES, PHASES_TILES, SUMS
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline
from unpool.shape_cache import cached


class PhaseClass(NamedTuple):
    """Phases that read their input at equal offsets."""

    phases: tuple[int, ...]  # flat phase numbers
    taps: tuple[tuple[int, ...], ...]  # per phase the flat taps, one per offset
    offsets: tuple[int, ...]  # elements of the flat line, one per tap
    copies: tuple[int, ...]  # number of the line that each tap reads


class PhaseGrid(NamedTuple):
    """The flat line of one channel, and where its positions go in the output."""

    padded: tuple[int, ...]  # size of every axis of the line
    begins: tuple[int, ...]  # padding before the first element of the leading axes
    copies: tuple[int, ...]  # padding before the first element of the last axis, one per line
    length: int  # positions that can be outputs
    margin: int  # elements that the last output reads beyond its position
    classes: tuple[PhaseClass, ...]  # what is computed at every position
    phases: tuple[int, ...]  # per axis


class ClassSize(NamedTuple):
    """The size of a class."""

    phases: int
    taps: int  # of a phase


def class_count(plan: PhaseGrid) -> int:
    """The number of classes."""
    return len(plan.classes)


def class_size(plan: PhaseGrid, number: int) -> ClassSize:
    """The size of a class."""
    return ClassSize(len(plan.classes[number].phases), len(plan.classes[number].offsets))


@jit_inline
def grid_phases(plan: PhaseGrid) -> int:
    """Phases of all axes together."""
    count = 1
    for phases in plan.phases:
        count *= phases
    return count


@jit_inline
def line_pitch(plan: PhaseGrid, block: int, lanes: int) -> tuple[int, int]:
    """Elements between the lines of a channel that one block reads, and between channels: odd numbers of 64 bytes."""
    line = -(-(block + plan.margin + lanes) // 16) * 16
    whole = len(plan.copies) * line
    return line, whole + (16 - whole) % 32


@cached(256)
def phase_grid(axes: tuple[Axis, ...], is_spread: bool = False, whole: int = 1) -> PhaseGrid:
    """The line and the classes of a call; the size of the last axis of the line is a multiple of `whole`.

    With `is_spread` there is a line per shift along the last axis, none of which then needs padding between its rows.
    """
    shifts = [_shifts(axis) for axis in axes]
    distinct = [sorted({shift for phase in each for _, shift in phase} or {0}) for each in shifts]
    lowest, highest = [each[0] for each in distinct], [each[-1] for each in distinct]
    steps = [-(-axis.large // axis.window.stride) for axis in axes]
    padded = [step + high - low for step, high, low in zip(steps, highest, lowest, strict=True)]
    if is_spread:
        padded[-1] = steps[-1]
    padded[-1] = -(-padded[-1] // whole) * whole
    pitches = [math.prod(padded[number + 1 :]) for number in range(len(axes))]
    length = sum((step - 1) * pitch for step, pitch in zip(steps, pitches, strict=True)) + 1
    lines = distinct[-1] if is_spread else [lowest[-1]]
    classes = _classes(axes, shifts, lowest, pitches, lines)
    margin = max((max(each.offsets, default=0) for each in classes), default=0)
    begins, copies = tuple(-low for low in lowest[:-1]), tuple(-line for line in lines)
    phases = tuple(min(axis.window.stride, axis.large) for axis in axes)
    return PhaseGrid(tuple(padded), begins, copies, length, margin, classes, phases)


def _shifts(axis: Axis) -> list[list[tuple[int, int]]]:
    """Per phase of an axis its taps, each with the input position it reads at output step 0."""
    window = axis.window
    result: list[list[tuple[int, int]]] = [[] for _ in range(min(axis.window.stride, axis.large))]
    for tap in range(window.size):
        phase = (tap * window.dilation - axis.begin) % window.stride
        if phase < len(result):
            result[phase].append((tap, (phase + axis.begin - tap * window.dilation) // window.stride))
    return result


def _classes(axes, shifts, lowest, pitches, lines) -> tuple[PhaseClass, ...]:
    """The phases by their offsets, by the results of `_shifts`, the smallest shifts and elements between positions."""
    tap_pitches = [math.prod(axis.window.size for axis in axes[number + 1 :]) for number in range(len(axes))]
    members_of: dict[tuple[tuple[int, int], ...], list[tuple[int, tuple[int, ...]]]] = {}
    for number, phases in enumerate(product(*shifts)):
        terms = []
        for taps in product(*phases):
            line = lines.index(taps[-1][1]) if len(lines) > 1 else 0
            starts = [*lowest[:-1], lines[line]]
            offset = sum((shift - low) * pitch for (_, shift), low, pitch in zip(taps, starts, pitches, strict=True))
            terms.append((line, offset, sum(tap * pitch for (tap, _), pitch in zip(taps, tap_pitches, strict=True))))
        terms.sort()
        members_of.setdefault(tuple(term[:2] for term in terms), []).append((number, tuple(term[2] for term in terms)))
    return tuple(
        PhaseClass(
            tuple(phase for phase, _ in members),
            tuple(taps for _, taps in members),
            tuple(offset for _, offset in places),
            tuple(line for line, _ in places),
        )
        for places, members in members_of.items()
    )


def row_starts(axes: tuple[Axis, ...], plan: PhaseGrid):
    """The element of a plane of x at which each row of the line starts, -1 in the padding."""
    smalls = [axis.small for axis in axes]
    inner = [math.prod(smalls[number + 1 :]) for number in range(len(axes) - 1)]
    return padded_rows(plan.padded[:-1], plan.begins, smalls[:-1], inner)


def row_targets(axes: tuple[Axis, ...], plan: PhaseGrid):
    """The place of each row of the line in y, for every phase of the leading axes; -1 for none."""
    leading, larges, targets = axes[:-1], [axis.large for axis in axes], []
    for phases in product(*(range(count) for count in plan.phases[:-1])):
        rows = np.zeros(1, np.int64)
        for number, (axis, phase) in enumerate(zip(leading, phases, strict=True)):
            place = np.arange(plan.padded[number]) * axis.window.stride + phase
            both = (rows[:, None] >= 0) & (place < axis.large)
            rows = np.where(both, rows[:, None] + place * math.prod(larges[number + 1 :]), -1).reshape(-1)
        targets.append(rows)
    return np.stack(targets)


def tile_shapes() -> tuple[tuple[int, int], ...]:
    """The shapes of tiles on this processor."""
    return PHASES_TILES[vector_registers()]


@compile_as(tile_shapes)
def _tile_shapes() -> Callable[..., Any]:
    shapes = tile_shapes()
    return lambda: shapes


class Blocking(NamedTuple):
    """Blocks, chunks and tiles of the work, and its cost."""

    plan: PhaseGrid  # the line
    block: int  # positions per block, whole tiles
    chunk: int  # output channels per chunk
    tile: int  # number of the shape of tiles in `tile_shapes`
    step: int  # positions of a tile
    workspace: int  # bytes that a thread needs, roughly
    cost: float  # multiply-adds of one group and one element of the batch, those of unfilled tiles included


def blocking(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> Blocking:
    """The cheapest blocking; weights are packed for its chunks, so no chunk depends on the threads of a call."""
    return _cheapest(axes, channels, maps, size, max_threads())


@jit_inline
def is_listed(problem: ConvTransposeProblem) -> bool:
    """True if tables of all phases and taps have a sensible size."""
    return max(window_taps(problem.axes), phase_count(problem.axes)) <= PHASES_SIZES.taps


def blocking_of(problem: ConvTransposeProblem) -> Blocking:
    """The cheapest blocking of a call."""
    return blocking(problem.axes, *problem.group_shape)


@cached(256)
def _cheapest(axes: tuple[Axis, ...], channels: int, maps: int, size: int, cores: int) -> Blocking:
    return min(blockings(axes, channels, maps, size, cores), key=lambda each: each.cost)


def blockings(axes: tuple[Axis, ...], channels: int, maps: int, size: int, cores: int) -> list[Blocking]:
    """The candidates of `blocking`."""
    lanes = vector_bytes() // size
    plans = [phase_grid(axes), phase_grid(axes, is_spread=True), phase_grid(axes, is_spread=True, whole=lanes)]
    return [cut_for(plan, channels, maps, lanes, tile, cores) for plan in plans for tile in range(len(tile_shapes()))]


@jit_inline
def cut_for(plan: PhaseGrid, channels: int, maps: int, lanes: int, tile: int, cores: int) -> Blocking:
    """Blocks and chunks for one line and one shape of tiles; infinite cost where it needs too much memory.

    A chunk for each core is enough, unless it is very large: all tiles of a chunk share the input in the first cache.
    """
    rows, vectors = tile_shapes()[tile]
    step, phases, copies = vectors * lanes, grid_phases(plan), len(plan.copies)
    size = vector_bytes() // lanes
    room = PHASES_SIZES.near_results if channels < PHASES_SIZES.few_channels else PHASES_SIZES.results
    near = max(PHASES_SIZES.panel // (channels * copies * size) - plan.margin, plan.margin // 2)
    fitting = min(near, room // (size * phases * min(maps, rows)))
    tiles, fewest = -(-plan.length // step), phases
    for number in range(class_count(plan)):
        fewest = min(fewest, class_size(plan, number).phases)
    by_products = PHASES_SIZES.job // max(1, channels * _filled(plan, rows, rows) * step)
    small = max(by_products, -(-PHASES_SIZES.tiles // fewest))
    small = max(small, -(-maps // rows) // cores)
    block, chunk, workspace = 0, 0, 0
    for most in (max(4, fitting // step), 1):
        block = -(-tiles // -(-tiles // most)) * step
        chunk = min(maps, max(1, min(small, room // (size * phases * rows * block))) * rows)
        panel = channels * (copies * (block + plan.margin + 2 * lanes) + 2 * lanes)
        workspace = size * (panel + (phases * chunk + rows) * block)
        if workspace <= PHASES_SIZES.workspace:
            break
    columns, blocks = tiles * step, -(-plan.length // block)
    is_aligned = copies > 1 and plan.padded[-1] % lanes == 0
    slowness = 1.0 if rows > 1 else PHASES_COSTS.single_row_aligned if is_aligned else PHASES_COSTS.single_row
    laid_out = PHASES_COSTS.laying * copies * (plan.length + blocks * plan.margin)
    cost = channels * (_filled(plan, maps, rows) * columns * slowness + laid_out)
    cost = cost if workspace <= PHASES_SIZES.workspace else math.inf
    return Blocking(plan, block, chunk, tile, step, workspace, cost)


def blocking_for_threads(base: Blocking, problem: ConvTransposeProblem, threads: int) -> tuple[Blocking, int]:
    """The blocking with the blocks that the threads finish first, chunks unchanged; and the parts of each thread."""
    block, parts = block_for_threads(base, problem, threads)
    return base._replace(block=block), parts


@jit_inline
def block_for_threads(base: Blocking, problem: ConvTransposeProblem, threads: int) -> tuple[int, int]:
    """The block that the threads finish first, and the parts of each thread."""
    sizes = even_sizes(-(-base.plan.length // base.step), base.block // base.step)
    times, are_even = np.empty(len(sizes), np.float64), np.empty(len(sizes), np.bool_)
    for number in range(len(sizes)):
        split = _split_of(base, sizes[number] * base.step, problem)
        times[number], are_even[number] = finish_time(split, threads), has_even_shares(split, threads)
    block = sizes[choose_time(times, are_even)] * base.step
    return block, parts_per_thread(_split_of(base, block, problem), threads)


@jit_inline
def _split_of(base: Blocking, block: int, problem: ConvTransposeProblem) -> JobSplit:
    """Cost of jobs with blocks of `block` positions, in multiply-adds."""
    plan, rows, channels = base.plan, tile_shapes()[base.tile][0], problem.channels // problem.group
    planes, blocks, chunks = problem.batch * problem.group, -(-plan.length // block), -(-problem.maps // base.chunk)
    columns, stores = -(-plan.length // base.step) * base.step, grid_phases(plan) * PHASES_COSTS.storing
    last = plan.padded[-1]
    vectors = -(-(block + plan.margin) // last) * -(-last * tile_shapes()[base.tile][1] // base.step)
    some, every = channels * _filled(plan, base.chunk, rows), channels * _filled(plan, problem.maps, rows)
    each = some * (block + PHASES_COSTS.reloading) + base.chunk * stores * block
    total = planes * (every * (columns + blocks * PHASES_COSTS.reloading) + problem.maps * stores * columns)
    before = PHASES_COSTS.filling * channels * len(plan.copies) * vectors
    return JobSplit(planes * blocks * chunks, each, total, chunks, before)


@jit_inline
def _filled(plan: PhaseGrid, maps: int, rows: int) -> int:
    """Products of one channel and position for `maps` output channels, those of unfilled tiles included."""
    products = 0
    for number in range(class_count(plan)):
        size = class_size(plan, number)
        products += size.taps * -(-size.phases * maps // rows) * rows
    return products


@jit_inline
def channels_together(channels: int, taps: int) -> int:
    """Channels that are summed at once: equal shares of all, with about `products_together` products."""
    return -(-channels // max(1, -(-channels * taps // products_together(channels * taps))))


@jit_inline
def products_together(products: int) -> int:
    """Products that are summed at once: about the number of such sums, because errors grow with both."""
    root = int(math.sqrt(products))
    while root * root > products:
        root -= 1
    while (root + 1) * (root + 1) <= products:
        root += 1
    return max(SUMS.together, root)
