"""Transposed convolution as small dense products, one per phase of the output.

    y[u * stride + phase] = b + sum over taps t of that phase, channels c: w[c, m, t] * x[c, u + shift(phase, t)]

Outputs of one phase read neighbours from neighbours, so the input is laid out once with its padding as a flat line per
channel, and every tap is an offset into it, whatever the rank. Phases with equal offsets form a class; its rows (phase,
output channel) are tiles of a register-blocked product that reads packed weights and the line, and nothing else.
Padding is multiplied, so weights must be finite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numba import types

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.rows import padded_rows, readonly
from unpool.kernels.cpu.threads import split
from unpool.kernels.cpu.vector import address_of, tile_add_product, tile_store, tile_zero

PANEL_BYTES = 3 << 17
"""The input of one block of positions, all channels, stays in the second cache."""

RESULT_BYTES = 1 << 18
"""So do the results of one block and one chunk of output channels."""

VECTORS = 3
"""Vectors of positions in a tile."""

_PRODUCTS = 16  # in about the time in which other kernels visit an element


@dataclass(frozen=True)
class Class:
    """Phases that read their input at equal offsets.

    Attributes:
        phases: flat phase numbers.
        taps: per phase the flat taps, one per offset.
        offsets: elements of the flat line, one per tap.
    """

    phases: tuple[int, ...]
    taps: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Grid:
    """The flat line of one channel, and where its positions go in the output.

    Attributes:
        padded: size of every axis of the line.
        begins: padding before the first element of every axis.
        length: positions that can be outputs.
        margin: elements that the last output reads beyond its position.
        classes: what is computed at every position.
        phases: per axis.
    """

    padded: tuple[int, ...]
    begins: tuple[int, ...]
    length: int
    margin: int
    classes: tuple[Class, ...]
    phases: tuple[int, ...]


def tile_rows() -> int:
    """Rows of a tile: with VECTORS vectors each they fill the registers."""
    return 8 if vector_bytes() == 64 else 4


@lru_cache(maxsize=64)
def grid(axes: tuple[Axis, ...]) -> Grid:
    """The line and the classes of a call."""
    shifts = [_shifts(axis) for axis in axes]
    found = [[shift for phase in each for _, shift in phase] or [0] for each in shifts]
    lowest, highest = [min(each) for each in found], [max(each) for each in found]
    steps = [-(-axis.large // axis.window.stride) for axis in axes]
    padded = [step + high - low for step, high, low in zip(steps, highest, lowest, strict=True)]
    pitches = [math.prod(padded[number + 1 :]) for number in range(len(axes))]
    length = sum((step - 1) * pitch for step, pitch in zip(steps, pitches, strict=True)) + 1
    classes = _classes(axes, shifts, lowest, pitches)
    margin = max((max(each.offsets, default=0) for each in classes), default=0)
    return Grid(
        tuple(padded),
        tuple(-low for low in lowest),
        length,
        margin,
        classes,
        tuple(min(axis.window.stride, axis.large) for axis in axes),
    )


def _shifts(axis: Axis) -> list[list[tuple[int, int]]]:
    """Per phase of an axis its taps, each with the input position it reads at output step 0."""
    window, result = axis.window, []
    for phase in range(min(window.stride, axis.large)):
        places = [phase + axis.begin - tap * window.dilation for tap in range(window.size)]
        result.append([(tap, place // window.stride) for tap, place in enumerate(places) if place % window.stride == 0])
    return result


def _classes(
    axes: Sequence[Axis], shifts: list[list[list[tuple[int, int]]]], lowest: Sequence[int], pitches: Sequence[int]
) -> tuple[Class, ...]:
    tap_pitches = [math.prod(axis.window.size for axis in axes[number + 1 :]) for number in range(len(axes))]
    found: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for number, phases in enumerate(product(*shifts)):
        pairs = []
        for taps in product(*phases):
            offset = sum((shift - low) * pitch for (_, shift), low, pitch in zip(taps, lowest, pitches, strict=True))
            pairs.append((offset, sum(tap * pitch for (tap, _), pitch in zip(taps, tap_pitches, strict=True))))
        pairs.sort()
        found.setdefault(tuple(offset for offset, _ in pairs), []).append((number, tuple(tap for _, tap in pairs)))
    return tuple(
        Class(tuple(phase for phase, _ in members), tuple(taps for _, taps in members), offsets)
        for offsets, members in found.items()
    )


@dataclass(frozen=True)
class Blocking:
    """How the work is cut: positions per block, output channels per chunk."""

    block: int
    chunk: int


def blocking(plan: Grid, channels: int, maps: int, size: int) -> Blocking:
    """Blocks and chunks that stay in the second cache."""
    step = VECTORS * vector_bytes() // size
    fitting = PANEL_BYTES // (channels * size) - plan.margin
    block = max(4, fitting // step) * step
    block = min(block, -(-plan.length // step) * step)
    chunk = max(1, RESULT_BYTES // (size * block * math.prod(plan.phases)))
    rows = tile_rows()
    chunk = min(maps, max(rows, chunk // rows * rows))
    return Blocking(block, min(chunk, max(rows, -(-maps // 2 // rows) * rows)))


def pack(w, plan: Grid, cut: Blocking, group: int):
    """The weights in the order in which tiles read them: group, chunk, class, tile, tap, channel, row.

    Args:
        w: (C, M/group, k1..kk).
        plan: of the call.
        cut: of the call.
        group: number of groups.
    """
    channels, maps = w.shape[0] // group, w.shape[1]
    flat, rows = w.reshape(group, channels, maps, -1), tile_rows()
    parts: list[Any] = []
    for each in range(group):
        for first in range(0, maps, cut.chunk):
            part = flat[each, :, first : first + cut.chunk]
            parts.extend(_pack_class(part, kind, rows) for kind in plan.classes)
    return np.concatenate(parts)


def _pack_class(part, kind: Class, rows: int):
    """(channels, maps, taps) as tile, tap, channel, row; missing rows of the last tile are zero."""
    taps = np.array(kind.taps, np.int64).reshape(len(kind.phases), len(kind.offsets))
    shape = len(kind.offsets), part.shape[0], len(kind.phases) * part.shape[1]
    chosen = part[:, :, taps].transpose(3, 0, 2, 1).reshape(shape)
    tiles = -(-len(kind.phases) * part.shape[1] // rows)
    padded = np.zeros((*chosen.shape[:2], tiles * rows), part.dtype)
    padded[..., : chosen.shape[2]] = chosen
    return padded.reshape(*chosen.shape[:2], tiles, rows).transpose(2, 0, 1, 3).reshape(-1)


def conv_transpose(x, packed, b, axes: tuple[Axis, ...], group: int, y, threads: int | None):
    """Write the transposed convolution to `y`.

    Args:
        x: C-contiguous (N, C, d1..dk), float32 or float64.
        packed: from `pack`, type of x.
        b: C-contiguous (M,), type of x.
        axes: one per spatial axis.
        group: number of groups.
        y: C-contiguous (N, M, D1..Dk), type of x.
        threads: at most so many; None for all cores.
    """
    plan = grid(axes)
    channels, maps = x.shape[1] // group, y.shape[1] // group
    cut = blocking(plan, channels, maps, x.itemsize)
    blocks, chunks = -(-plan.length // cut.block), -(-maps // cut.chunk)
    starts, targets = _tables(axes)
    kinds, offsets, sizes = _class_tables(plan, channels, maps, cut)
    kernel = _kernel(x.dtype.name)
    split(
        kernel, x.shape[0] * group * blocks * chunks, y.size * channels * len(offsets) // _PRODUCTS, threads,
        readonly(x), readonly(packed), readonly(b), y.reshape(-1),
        (group, channels, maps, blocks, chunks, cut.block, cut.chunk, plan.length, plan.margin, packed.size // group),
        (axes[-1].small, plan.padded[-1], plan.begins[-1], axes[-1].large, axes[-1].window.stride, plan.phases[-1]),
        (math.prod(x.shape[2:]), math.prod(y.shape[2:])),
        starts, targets, kinds, offsets, sizes,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _tables(axes: tuple[Axis, ...]):
    """Where the rows of the line start in x, and where they go in y for every phase of the leading axes; -1 nowhere."""
    plan, leading = grid(axes), axes[:-1]
    smalls, larges = [axis.small for axis in axes], [axis.large for axis in axes]
    inner = [math.prod(smalls[number + 1 :]) for number in range(len(leading))]
    starts = padded_rows(plan.padded[:-1], plan.begins[:-1], smalls[:-1], inner)
    targets = []
    for phases in product(*(range(count) for count in plan.phases[:-1])):
        rows = np.zeros(1, np.int64)
        for number, (axis, phase) in enumerate(zip(leading, phases, strict=True)):
            place = np.arange(plan.padded[number]) * axis.window.stride + phase
            both = (rows[:, None] >= 0) & (place < axis.large)
            rows = np.where(both, rows[:, None] + place * math.prod(larges[number + 1 :]), -1).reshape(-1)
        targets.append(rows)
    return starts, np.stack(targets)


@lru_cache(maxsize=64)
def _class_tables(plan: Grid, channels: int, maps: int, cut: Blocking):
    """Per class its taps, phases and where these stand in the flat lists; sizes of the packed weights per chunk."""
    kinds: list[tuple[int, int, int, int]] = []
    offsets: list[int] = []
    numbers: list[int] = []
    for kind in plan.classes:
        kinds.append((len(kind.offsets), len(kind.phases), len(offsets), len(numbers)))
        offsets.extend(kind.offsets)
        numbers.extend(kind.phases)
    rows, sizes = tile_rows(), []
    for first in range(0, maps, cut.chunk):
        chunk = min(cut.chunk, maps - first)
        tiles = [len(kind.offsets) * -(-len(kind.phases) * chunk // rows) for kind in plan.classes]
        sizes.append(sum(tiles) * channels * rows)
    table = np.array(kinds, np.int64).reshape(-1, 4)
    return table, np.array([*offsets, *numbers], np.int64), np.cumsum([0, *sizes])


@cache
def _kernel(dtype: str):
    size = np.dtype(dtype).itemsize
    return _make(getattr(types, dtype), vector_bytes() // size, size, tile_rows(), VECTORS, source_digest())


def _make(element, lanes, size, rows, vectors, digest):
    wide, registers = lanes * vectors, rows * vectors

    @compiled(fastmath={"contract"})
    def grow(x, packed, b, y, cuts, lane, planes, starts, targets, kinds, offsets, sizes, first, stop):
        """Memory order: batch and group, block of positions, chunk of output channels, class, tile of rows, tile of
        positions; then tap and channel in registers. Results of a block are interleaved into y when all are there.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        groups, channels, maps, blocks, chunks, block, chunk, length, margin, group_weights = cuts
        lane_phases = lane[5]
        line = block + margin + wide
        line += (16 - line) % 32
        panel = np.empty(channels * line, element)
        phase_count = targets.shape[0] * lane_phases
        results = np.empty((phase_count * chunk + rows) * block, element)
        taps_end = offsets.size - phase_count
        filled = -1
        for job in range(first, stop):
            part, piece = job // chunks, job % chunks
            outer, at = part // blocks, part % blocks * block
            if part != filled:
                _fill_panel(
                    panel, line, x, outer * channels * planes[0], planes[0], channels, at, block + margin, starts, lane
                )
                filled = part
            first_map = piece * chunk
            count = min(chunk, maps - first_map)
            weight = address_of(packed) + (outer % groups * group_weights + sizes[piece]) * size
            used = min(block, length - at)
            for kind in range(kinds.shape[0]):
                taps, members, first_tap, first_member = kinds[kind, 0], kinds[kind, 1], kinds[kind, 2], kinds[kind, 3]
                for tile in range(0, members * count, rows):
                    for position in range(0, used, wide):
                        total = tile_zero(element, lanes, registers)
                        a = weight
                        for tap in range(taps):
                            source = address_of(panel) + (position + offsets[first_tap + tap]) * size
                            for _channel in range(channels):
                                total = tile_add_product(total, a, source, element, lanes, rows, vectors)
                                a += rows * size
                                source += line * size
                        result = (first_member * count + tile) * block + position
                        tile_store(total, address_of(results) + result * size, block * size, rows, vectors)
                    weight += taps * channels * rows * size
            out = outer * maps + first_map
            for member in range(phase_count):
                phase = offsets[taps_end + member]
                for number in range(count):
                    values = results[(member * count + number) * block : (member * count + number) * block + used]
                    base = (out + number) * planes[1]
                    bias = b[outer % groups * maps + first_map + number]
                    _store_phase(y, base, values, at, targets[phase // lane_phases], phase % lane_phases, bias, lane)

    return grow


@compiled()
def _fill_panel(panel, line, x, base, plane, channels, at, length, starts, lane):
    """Copy the elements of [at, at + length) of every channel's line, zero where there is padding."""
    small, padded, begin = lane[0], lane[1], lane[2]
    for channel in range(channels):
        target = panel[channel * line : channel * line + line]
        done = 0
        while done < length:
            row, column = (at + done) // padded, (at + done) % padded
            until = min(length, done + padded - column)
            start = starts[row] if row < starts.size else -1
            low, high = done + max(0, begin - column), done + max(0, min(until - done, begin + small - column))
            if start < 0 or low >= high:
                _clear(target[done:until])
            else:
                source = base + channel * plane + start + column - begin
                _clear(target[done:low])
                for place in range(high - low):
                    target[low + place] = x[source + low - done + place]
                _clear(target[high:until])
            done = until
        _clear(target[length:])


@compiled()
def _clear(target):
    for place in range(target.size):
        target[place] = 0


@compiled()
def _store_phase(y, base, values, at, targets, phase, bias, lane):
    """Write the results of one phase to every `stride`-th element of its output rows."""
    padded, large, stride = lane[1], lane[3], lane[4]
    width = (large - phase + stride - 1) // stride
    done = 0
    while done < values.size:
        row, column = (at + done) // padded, (at + done) % padded
        until = min(values.size, done + padded - column)
        target = targets[row] if row < targets.size else -1
        stop = min(until - done, width - column)
        if target >= 0 and stop > 0:
            out = base + target + column * stride + phase
            _store_strided(y[out:], values[done : done + stop], bias, stride)
        done = until


@compiled()
def _store_strided(y, values, bias, stride):
    if stride == 1:
        for place in range(values.size):
            y[place] = values[place] + bias
    elif stride == 2:
        for place in range(values.size):
            y[2 * place] = values[place] + bias
    else:
        for place in range(values.size):
            y[stride * place] = values[place] + bias
