"""The flat line that a transposed convolution reads, and the phases of its output.

    y[u * stride + phase] = b + sum over taps t of that phase, channels c: w[c, m, t] * x[c, u + shift(phase, t)]

Outputs of one phase read neighbours from neighbours. So the input is laid out once, with its padding, as a flat line
per channel, and every tap is an offset into it, whatever the rank. Phases with equal offsets form a class.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.rows import padded_rows


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


@lru_cache(maxsize=64)
def row_tables(axes: tuple[Axis, ...]):
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
