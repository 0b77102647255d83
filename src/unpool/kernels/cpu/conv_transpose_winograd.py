"""Transposed convolution with fewer products, by the method of Toom, Cook and Winograd.

A phase of the output is a dense convolution. Where that has 2 x 2 taps, 4 x 4 inputs give 3 x 3 outputs

    Y = A (sum over channels c: (G w[c] G') * (B x[c] B')) A'        * element by element, ' transposed

with 16 products instead of 36; where it has 3 x 3 taps, 2 x 2 outputs with 16 instead of 36. Both stand on the points
0, 1, -1 and infinity, so B is the same, and because the windows of all phases are the same inputs, each a step apart,
one transformed input serves them all. A tap that a phase lacks is a zero weight, and a product that is zero at every
point is left out.

Sums and differences of neighbours are formed before they are multiplied: relative to the largest output, errors are up
to two or three times those of a direct sum in as many pieces, and what is far larger than its neighbours, or no number,
would spoil them. So tiles have to be even (`conv_transpose_winograd_even.py`); others, and those of weights that are
not, have to be computed in another way.

Workspace per thread: PANEL_BYTES and PRODUCT_BYTES, or what two vectors of positions need with all channels, and one
tile of rows in all phases: 32 MiB at most.

Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015; the points are theirs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.activation import PLAIN, Ending
from unpool.kernels.cpu.conv_transpose_winograd_even import find_uneven, limits_of, windows_of
from unpool.kernels.cpu.conv_transpose_winograd_kernel import kernel, tile_rows
from unpool.kernels.cpu.conv_transpose_winograd_pack import pack_tiles
from unpool.kernels.cpu.host import vector_bytes
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import split

PANEL_BYTES = 1 << 22
"""Transformed inputs of one block of positions, all channels, stay in the third cache."""

MOST_VECTORS = 16
"""Of positions in a block: more of them meet each weight, but their products leave the second cache."""

PRODUCT_BYTES = 1 << 19
"""Products of one block with a chunk of output channels stay in the second cache."""

MOST_PHASES = 16

MOST_CHANNELS = 1 << 13
"""With two vectors of positions, the least that a block has, a panel is then 16 MiB."""

_INPUT_COST = 350  # as many products as the transform of one tile of one channel costs
_OUTPUT_COST = 250  # and that back, of one tile and phase of one output channel, with its stores
_SCATTER_COST = 50  # and one output whose neighbours are of other phases, more than two
_WEIGHT_COST = 10  # and one transformed weight that every block reads from memory
_PACK_COST = 90  # and one that is not kept
_DENSE_COST = 1.2  # and a product of the direct way, whose lines have borders
_STORE_COST = 10  # and one output of that way

WEIGHTS = {
    2: ((1, 0), (0.5, 0.5), (0.5, -0.5), (0, 1)),
    3: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
}
"""By the number of taps, their transform to the points 0, 1, -1 and infinity: G."""


@dataclass(frozen=True)
class Side:
    """One axis.

    Attributes:
        span: taps of the longest phase.
        first: input position where the first tile starts.
        steps: windows that some phase needs.
        lows: per phase the input position that its first output starts at.
        taps: per phase its taps, each with its place in the window.
    """

    span: int
    first: int
    steps: int
    lows: tuple[int, ...]
    taps: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class Plan:
    """Two sides; `outputs` per tile and side; `entries`, the (point, phase) pairs with products that are not zero."""

    sides: tuple[Side, Side]
    outputs: int
    tiles: tuple[int, int]
    entries: tuple[tuple[int, int], ...]


@lru_cache(maxsize=64)
def plan(axes: tuple[Axis, ...]) -> Plan | None:
    """How a call is cut into tiles; None where the method does not fit."""
    if len(axes) != 2 or any(axis.large == 0 for axis in axes):
        return None
    if math.prod(min(axis.window.stride, axis.large) for axis in axes) > MOST_PHASES:
        return None
    rows, columns = (_side(axis) for axis in axes)
    if rows.span != columns.span or rows.span not in WEIGHTS:
        return None
    outputs = 5 - rows.span
    used = np.argwhere(_transform((rows, columns), [axis.window.size for axis in axes]).any(axis=2))
    entries = tuple((int(point), int(phase)) for point, phase in used)
    return Plan((rows, columns), outputs, (-(-rows.steps // outputs), -(-columns.steps // outputs)), entries)


def _side(axis: Axis) -> Side:
    window, found = axis.window, []
    for phase in range(min(window.stride, axis.large)):
        places = [phase + axis.begin - tap * window.dilation for tap in range(window.size)]
        found.append([(tap, place // window.stride) for tap, place in enumerate(places) if place % window.stride == 0])
    spans = [max(shifts) - min(shifts) + 1 if (shifts := [shift for _, shift in each]) else 0 for each in found]
    span = max(spans)
    lowest = min((shift for each in found for _, shift in each), default=0)
    lows = [
        max(min((shift for _, shift in each), default=lowest) - (span - short), lowest)
        for each, short in zip(found, spans, strict=True)
    ]
    steps = [-(-(axis.large - phase) // window.stride) for phase in range(len(found))]
    last = max(low + step for low, step in zip(lows, steps, strict=True))
    taps = tuple(tuple((tap, shift - low) for tap, shift in each) for each, low in zip(found, lows, strict=True))
    return Side(span, min(lows), last - min(lows), tuple(lows), taps)


def _transform(sides: tuple[Side, Side], sizes: Sequence[int]):
    """What turns the taps of a window into its values at every point for every phase: (16, phases, taps)."""
    lines = []
    for side, size in zip(sides, sizes, strict=True):
        line = np.zeros((len(side.taps), 4, size))
        for phase, taps in enumerate(side.taps):
            for tap, place in taps:
                line[phase, :, tap] = np.array(WEIGHTS[side.span])[:, place]
        lines.append(line)
    both = np.einsum("aik,bjl->ijabkl", *lines)
    return both.reshape(16, len(lines[0]) * len(lines[1]), -1)


@dataclass(frozen=True)
class Blocking:
    """How the work is cut: positions per block, output channels per chunk."""

    block: int
    chunk: int


def blocking(found: Plan, batch: int, channels: int, maps: int, size: int) -> Blocking:
    """Blocks that share their positions evenly, and chunks, both in whole vectors and tiles."""
    lanes, rows = vector_bytes() // size, tile_rows()
    vectors = -(-batch * math.prod(found.tiles) // lanes)
    fitting = max(2, min(MOST_VECTORS, PANEL_BYTES // (16 * channels * vector_bytes())))
    block = max(2, -(-vectors // -(-vectors // fitting))) * lanes
    phases = len(found.sides[0].lows) * len(found.sides[1].lows)
    fitting = max(1, PRODUCT_BYTES // (16 * phases * block * size * rows))
    tiles = -(-maps // rows)
    chunks = max(-(-tiles // fitting), min(2, tiles))
    return Blocking(block, -(-tiles // chunks) * rows)


def cost(axes: tuple[Axis, ...], batch: int, channels: int, maps: int, size: int, *, is_kept: bool) -> float:
    """What one group costs, in multiply-adds of full tiles; infinity where the method does not fit.

    Args:
        axes: one per spatial axis.
        batch: images.
        channels: of the input, in one group.
        maps: channels of the output, in one group.
        size: bytes of an element.
        is_kept: whether the transformed weights are there already.
    """
    found = plan(axes)
    if found is None or not 0 < channels <= MOST_CHANNELS or maps == 0 or batch == 0:
        return math.inf
    lanes, rows = vector_bytes() // size, tile_rows()
    block = blocking(found, batch, channels, maps, size).block
    blocks = -(-batch * math.prod(found.tiles) // block)
    positions = max(2 * lanes, -(-batch * math.prod(found.tiles) // lanes) * lanes)
    weights = len(found.entries) * -(-maps // rows) * rows * channels
    phases = len(found.sides[0].lows) * len(found.sides[1].lows)
    moved = positions * (channels * _INPUT_COST + maps * phases * _OUTPUT_COST)
    if axes[1].window.stride > 2:
        moved += batch * maps * math.prod(axis.large for axis in axes) * _SCATTER_COST
    return weights * (positions + blocks * _WEIGHT_COST + (0 if is_kept else _PACK_COST)) + moved


@lru_cache(maxsize=1024)
def pays(axes: tuple[Axis, ...], batch: int, channels: int, maps: int, size: int, *, is_kept: bool) -> bool:
    """Whether a call costs less this way than by a product for every tap; arguments as for `cost`."""
    taps = math.prod(axis.small * axis.window.size for axis in axes)
    outputs = math.prod(axis.large for axis in axes)
    dense = batch * maps * (channels * taps * _DENSE_COST + outputs * _STORE_COST)
    return cost(axes, batch, channels, maps, size, is_kept=is_kept) < dense


def layout(axes: tuple[Axis, ...]) -> tuple[object, ...]:
    """Equal for calls that share packed weights: how the taps stand in the windows of all phases."""
    return tuple((side.span, side.taps) for side in known(axes).sides)


def pack(w, axes: tuple[Axis, ...], group: int, threads: int | None):
    """The transformed weights in the order in which tiles read them: group, tile, entry, channel, row.

    They are rounded once: sums are formed in float64.

    Args:
        w: (C, M/group, k1, k2), finite.
        axes: of a call that has a plan.
        group: number of groups.
        threads: at most so many; None for all cores.
    """
    found, rows = known(axes), tile_rows()
    channels, maps = w.shape[0] // group, w.shape[1]
    tiles = -(-maps // rows)
    packed = np.empty((group * tiles, len(found.entries), channels, rows), w.dtype)
    terms = _terms(found, tuple(axis.window.size for axis in axes))
    work = packed.size * len(terms[1]) // len(found.entries)
    size = w[0, 0].size
    split(pack_tiles, group * tiles, work, threads, readonly(w), packed, *terms, size, maps, tiles)
    return packed.reshape(-1)


@lru_cache(maxsize=64)
def _terms(found: Plan, sizes: tuple[int, ...]):
    """Where the terms of every entry start, and their taps and factors."""
    points, phases = np.array(found.entries).T
    transform = _transform(found.sides, sizes)[points, phases]
    entries, taps = np.nonzero(transform)
    starts = np.searchsorted(entries, np.arange(len(transform) + 1))
    return starts, taps, transform[entries, taps]


def known(axes: tuple[Axis, ...]) -> Plan:
    """The plan of axes that have one."""
    found = plan(axes)
    assert found is not None
    return found


def limits(w, axes: tuple[Axis, ...], group: int):
    """What tiles have to keep to with these weights; None if none may be computed. Arguments as for `pack`."""
    rows, columns = known(axes).sides
    return limits_of(w, (rows.taps, columns.taps), group)


def uneven(x, bounds, axes: tuple[Axis, ...], group: int, threads: int | None):
    """The numbers of the tiles that must not be computed so; `bounds` from `limits`, others as for `conv_transpose`."""
    windows, grid = _looks(axes)
    return find_uneven(x, bounds, windows, grid, group, threads)


@lru_cache(maxsize=64)
def _looks(axes: tuple[Axis, ...]):
    """What telling even tiles from others reads of a call."""
    found = known(axes)
    parts = zip(axes, found.sides, found.tiles, strict=True)
    windows = [windows_of(axis, side.taps, side.lows, side.first, found.outputs * count) for axis, side, count in parts]
    return tuple(windows), (*found.tiles, *(side.first for side in found.sides), found.outputs)


def conv_transpose(
    x, packed, b, axes: tuple[Axis, ...], group: int, y, threads: int | None, ending: Ending = PLAIN
) -> None:
    """Write the transposed convolution to `y`; tiles that are `uneven` may be far off, or no numbers.

    Args:
        x: C-contiguous (N, C, d1, d2), float32 or float64.
        packed: from `pack`, type of x.
        b: C-contiguous (M,), type of x.
        axes: two that have a plan.
        group: number of groups.
        y: C-contiguous (N, M, D1, D2), type of x.
        threads: at most so many; None for all cores.
        ending: the activation of the sums.
    """
    outputs, jobs, *tables = setup(axes, *x.shape[:2], y.shape[1], group, x.itemsize)
    split(
        kernel(x.dtype.name, outputs), jobs, y.size * x.shape[1] // group * 4, threads,
        readonly(x), readonly(packed), readonly(b), y.reshape(-1),
        np.array([ending.is_active, *ending.bounds], x.dtype), *tables,
    )  # fmt: skip


@lru_cache(maxsize=64)
def setup(axes: tuple[Axis, ...], batch: int, channels: int, maps: int, group: int, size: int):
    """Outputs of a tile and side, the number of jobs, and what the kernel reads of a call."""
    found, channels, maps = known(axes), channels // group, maps // group
    cut = blocking(found, batch, channels, maps, size)
    positions = batch * math.prod(found.tiles)
    blocks, chunks = -(-positions // cut.block), -(-maps // cut.chunk)
    cuts = (group, channels, maps, blocks, chunks, cut.block, cut.chunk, positions)
    strides, sides = (axis.window.stride for axis in axes), found.sides
    grid = (*found.tiles, *(side.first for side in sides), *strides, *(len(side.lows) for side in sides))
    planes = (*(axis.small for axis in axes), *(axis.large for axis in axes))
    lows = np.zeros((2, max(len(side.lows) for side in sides)), np.int64)
    for number, side in enumerate(sides):
        lows[number, : len(side.lows)] = side.lows
    entries = np.array(found.entries, np.int64).reshape(-1, 2)
    return found.outputs, group * blocks * chunks, cuts, grid, planes, entries, lows
