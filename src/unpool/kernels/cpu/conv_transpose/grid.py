"""The flat line that a transposed convolution reads, and the phases of its output.

    y[u * stride + phase] = b + sum over taps t of that phase, channels c: w[c, m, t] * x[c, u + shift(phase, t)]

Outputs of one phase read neighbours from neighbours. So the input is laid out once, with its padding, as a flat line
per channel, and every tap is an offset into it, whatever the rank. Phases with equal offsets form a class.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.rows import padded_rows
from unpool.shape_cache import cached


@dataclass(frozen=True)
class Class:
    """Phases that read their input at equal offsets.

    Attributes:
        phases: flat phase numbers.
        taps: per phase the flat taps, one per offset.
        offsets: elements of the flat line, one per tap.
        copies: number of the line that each tap reads.
    """

    phases: tuple[int, ...]
    taps: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    copies: tuple[int, ...]


@dataclass(frozen=True)
class Grid:
    """The flat line of one channel, and where its positions go in the output.

    Attributes:
        padded: size of every axis of the line.
        begins: padding before the first element of the leading axes.
        copies: padding before the first element of the last axis, one per line.
        length: positions that can be outputs.
        margin: elements that the last output reads beyond its position.
        classes: what is computed at every position.
        phases: per axis.
    """

    padded: tuple[int, ...]
    begins: tuple[int, ...]
    copies: tuple[int, ...]
    length: int
    margin: int
    classes: tuple[Class, ...]
    phases: tuple[int, ...]


@cached(256)
def grid(axes: tuple[Axis, ...], is_spread: bool = False, whole: int = 1) -> Grid:
    """The line and the classes of a call.

    Args:
        axes: one per spatial axis.
        is_spread: a line per shift along the last axis, none of which then needs padding between its rows.
        whole: the size of the last axis of the line is a multiple of this.
    """
    shifts = [_shifts(axis) for axis in axes]
    found = [sorted({shift for phase in each for _, shift in phase} or {0}) for each in shifts]
    lowest, highest = [each[0] for each in found], [each[-1] for each in found]
    steps = [-(-axis.large // axis.window.stride) for axis in axes]
    padded = [step + high - low for step, high, low in zip(steps, highest, lowest, strict=True)]
    if is_spread:
        padded[-1] = steps[-1]
    padded[-1] = -(-padded[-1] // whole) * whole
    pitches = [math.prod(padded[number + 1 :]) for number in range(len(axes))]
    length = sum((step - 1) * pitch for step, pitch in zip(steps, pitches, strict=True)) + 1
    lines = found[-1] if is_spread else [lowest[-1]]
    classes = _classes(axes, shifts, lowest, pitches, lines)
    margin = max((max(each.offsets, default=0) for each in classes), default=0)
    return Grid(
        tuple(padded),
        tuple(-low for low in lowest[:-1]),
        tuple(-line for line in lines),
        length,
        margin,
        classes,
        tuple(min(axis.window.stride, axis.large) for axis in axes),
    )


def _shifts(axis: Axis) -> list[list[tuple[int, int]]]:
    """Per phase of an axis its taps, each with the input position it reads at output step 0."""
    window = axis.window
    result: list[list[tuple[int, int]]] = [[] for _ in range(min(axis.window.stride, axis.large))]
    for tap in range(window.size):
        phase = (tap * window.dilation - axis.begin) % window.stride
        if phase < len(result):
            result[phase].append((tap, (phase + axis.begin - tap * window.dilation) // window.stride))
    return result


def _classes(
    axes: Sequence[Axis],
    shifts: list[list[list[tuple[int, int]]]],
    lowest: Sequence[int],
    pitches: Sequence[int],
    lines: Sequence[int],
) -> tuple[Class, ...]:
    tap_pitches = [math.prod(axis.window.size for axis in axes[number + 1 :]) for number in range(len(axes))]
    found: dict[tuple[tuple[int, int], ...], list[tuple[int, tuple[int, ...]]]] = {}
    for number, phases in enumerate(product(*shifts)):
        terms = []
        for taps in product(*phases):
            line = lines.index(taps[-1][1]) if len(lines) > 1 else 0
            starts = [*lowest[:-1], lines[line]]
            offset = sum((shift - low) * pitch for (_, shift), low, pitch in zip(taps, starts, pitches, strict=True))
            terms.append((line, offset, sum(tap * pitch for (tap, _), pitch in zip(taps, tap_pitches, strict=True))))
        terms.sort()
        found.setdefault(tuple(term[:2] for term in terms), []).append((number, tuple(term[2] for term in terms)))
    return tuple(
        Class(
            tuple(phase for phase, _ in members),
            tuple(taps for _, taps in members),
            tuple(offset for _, offset in places),
            tuple(line for line, _ in places),
        )
        for places, members in found.items()
    )


def line_pitch(plan: Grid, block: int, lanes: int) -> tuple[int, int]:
    """Elements between the lines of a channel that one block reads, and between channels: odd numbers of 64 bytes."""
    line = -(-(block + plan.margin + lanes) // 16) * 16
    whole = len(plan.copies) * line
    return line, whole + (16 - whole) % 32


def line_fills(axes: tuple[Axis, ...], plan: Grid, block: int, lanes: int):
    """How the lines of every block are laid out, vector by vector; one may write beyond its row, where the next begins.

    Returns:
        edges: per block its first vector; and their number.
        fills: per vector its place in the block's lines, the element of x in its first lane, and the first lane, and
            the one behind the last, that come from x: the others are zero.
    """
    small, padded, line = axes[-1].small, plan.padded[-1], line_pitch(plan, block, lanes)[0]
    smalls = [axis.small for axis in axes]
    inner = [math.prod(smalls[number + 1 :]) for number in range(len(axes) - 1)]
    starts = padded_rows(plan.padded[:-1], plan.begins, smalls[:-1], inner)
    at = np.arange(0, plan.length, block)
    end = at + block + plan.margin
    size = -(-end // padded) - at // padded
    part, row = np.repeat(np.arange(at.size), size), _counted(size) + np.repeat(at // padded, size)
    low, high = np.maximum(row * padded, at[part]), np.minimum((row + 1) * padded, end[part])
    size = -(-(high - low) // lanes)
    first = np.repeat(low, size) + _counted(size) * lanes
    part, row = np.repeat(part, size), np.repeat(row, size)
    vectors = np.bincount(part, minlength=at.size) + 1
    edges = np.concatenate([[0], np.cumsum(vectors * len(plan.copies))])
    fills = np.zeros((edges[-1], 4), np.int64)
    place = edges[part] + _counted(vectors - 1)
    start = np.where(row < starts.size, starts[np.minimum(row, starts.size - 1)], -1)
    for number, begin in enumerate(plan.copies):
        column = first - row * padded - begin
        stop = np.where(start < 0, 0, np.clip(small - column, 0, lanes))
        each = np.stack([number * line + first - at[part], start + column, np.clip(-column, 0, lanes), stop], axis=-1)
        fills[place + number * vectors[part]] = each
        fills[edges[:-1] + (number + 1) * vectors - 1, 0] = number * line + block + plan.margin
    return edges, fills


def _counted(sizes):
    """0, 1, 2, .. for each of the sizes, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def row_targets(axes: tuple[Axis, ...], plan: Grid):
    """Where the rows of the line go in y for every phase of the leading axes; -1 nowhere."""
    leading, larges, targets = axes[:-1], [axis.large for axis in axes], []
    for phases in product(*(range(count) for count in plan.phases[:-1])):
        rows = np.zeros(1, np.int64)
        for number, (axis, phase) in enumerate(zip(leading, phases, strict=True)):
            place = np.arange(plan.padded[number]) * axis.window.stride + phase
            both = (rows[:, None] >= 0) & (place < axis.large)
            rows = np.where(both, rows[:, None] + place * math.prod(larges[number + 1 :]), -1).reshape(-1)
        targets.append(rows)
    return np.stack(targets)
