"""The phases of a transposed convolution, and which inputs their positions meet.

    large position = small position * stride + tap * dilation - begin

Positions of y that are equal modulo the stride along every axis are a phase. Along an axis, all of a phase meet the
same taps: the first of them follows from a modular inverse, the others come at equal steps.

The gradient by x is a convolution, which walks the same line from small to large: there y is the small side, x the
large one, and all positions are one phase that meets every tap.
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl

from unpool.geometry import Axis


class Line(NamedTuple):
    """One spatial axis.

    Attributes:
        large: size of y.
        small: size of x.
        window: taps.
        stride: between windows.
        dilation: between taps.
        begin: padding before the first element.
        phases: that hold a position.
        length: positions of the longest phase.
        common: the greatest common divisor of stride and dilation.
        tap_step: between taps that a phase meets.
        back: steps back in x from one of these taps to the next.
        inverse: of `back`, modulo `tap_step`.
        step: steps in x from a position of a phase to the next.
    """

    large: int
    small: int
    window: int
    stride: int
    dilation: int
    begin: int
    phases: int
    length: int
    common: int
    tap_step: int
    back: int
    inverse: int
    step: int


def line_of(axis: Axis) -> Line:
    """What kernels get of an axis of a transposed convolution.

    Where x has one position, any stride says the same: with one that is longer than y, every position of y is a phase
    of its own, which meets the one tap that reads x.
    """
    window = axis.window
    stride = window.stride if axis.small > 1 or axis.begin < 0 else max(window.reach, axis.large + axis.begin)
    common = math.gcd(stride, window.dilation)
    tap_step, back = stride // common, window.dilation // common
    return Line(
        axis.large, axis.small, window.size, stride, window.dilation, axis.begin,
        min(stride, axis.large), -(-axis.large // stride), common, tap_step, back,
        pow(back, -1, tap_step), 1,
    )  # fmt: skip


def adjoint_line_of(axis: Axis) -> Line:
    """What kernels get of an axis of the convolution that gives its gradient by x; large is y's size here, too."""
    window = axis.window
    return Line(
        axis.small, axis.large, window.size, 1, window.dilation, -axis.begin,
        1, axis.small, 1, 1, -window.dilation, 0, window.stride,
    )  # fmt: skip


@triton.jit
def phase_of(number, lines):
    """A phase, by its number: for each axis a tuple of (phase, first tap, taps, small position at the first tap)."""
    axes = ()
    for axis in tl.static_range(len(lines) - 1, -1, -1):
        line = lines[axis]
        phase = number % line.phases
        number = number // line.phases
        rest = (phase + line.begin) % line.stride
        tap = (rest // line.common) * line.inverse % line.tap_step
        is_met = (rest % line.common == 0) & (tap < line.window)
        taps = tl.where(is_met, (line.window - tap + line.tap_step - 1) // line.tap_step, 0)
        small = (phase + line.begin - tl.where(is_met, tap * line.dilation, rest)) // line.stride
        axes = ((phase, tap, taps, small),) + axes
    return axes


@triton.jit
def taps_of(axes):
    """How many taps a phase meets."""
    taps = axes[0][2]
    for axis in tl.static_range(1, len(axes)):
        taps = taps * axes[axis][2]
    return taps


@triton.jit
def positions_of(number, lines):
    """Positions of a phase, by their numbers: along each axis the number of strides, and the image."""
    at = ()
    for axis in tl.static_range(len(lines) - 1, -1, -1):
        at = (number % lines[axis].length,) + at
        number = number // lines[axis].length
    return at, number


@triton.jit
def target_of(at, axes, lines):
    """The places of positions in a plane of y, and whether there are such positions."""
    place = at[0] * 0
    is_there = at[0] >= 0
    for axis in tl.static_range(len(lines)):
        position = at[axis] * lines[axis].stride + axes[axis][0]
        is_there = is_there & (position < lines[axis].large)
        place = place * lines[axis].large + position
    return place, is_there


@triton.jit
def first_of(axes):
    """The first channels of the first tap: what `next_of` goes on from."""
    turns = (tl.zeros([], tl.int32),)
    for _ in tl.static_range(len(axes)):
        turns = turns + (tl.zeros([], tl.int32),)
    return turns


@triton.jit
def next_of(turns, axes, columns):
    """The step after this one: the next block of channels, of which there are so many, or the first of the next tap.

    Steps are tuples: for each axis the number of the tap among those that the phase meets, and the block of channels.
    Counting up is cheaper than a division in every step.
    """
    over = turns[len(axes)] + 1 == columns
    following = (tl.where(over, 0, turns[len(axes)] + 1),)
    for axis in tl.static_range(len(axes) - 1, -1, -1):
        turn = turns[axis] + over.to(tl.int32)
        over = turn >= tl.maximum(axes[axis][2], 1)
        following = (tl.where(over, 0, turn),) + following
    return following


@triton.jit
def source_of(turns, at, axes, lines):
    """What a step reads: the tap's number in the window, places in a plane of x, and which of them are there."""
    tap = turns[0] * 0
    place = at[0] * 0
    is_there = at[0] >= 0
    tap_step = 1
    step = 1
    for axis in tl.static_range(len(lines) - 1, -1, -1):
        line = lines[axis]
        turn = turns[axis]
        tap += (axes[axis][1] + turn * line.tap_step) * tap_step
        position = at[axis] * line.step + (axes[axis][3] - turn * line.back)
        is_there = is_there & (position >= 0) & (position < line.small)
        place += position * step
        tap_step *= line.window
        step *= line.small
    return tap, place, is_there
