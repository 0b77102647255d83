"""The phases of a transposed convolution, and the inputs that their positions read.

    large position = small position * stride + tap * dilation - begin

A phase holds the positions of y that are equal modulo the stride along every axis. Along an axis, all positions of a
phase read the same taps: the first follows from a modular inverse, the others come at equal steps.

If strides divide the window, and nothing is dilated, all phases read the same inputs, by taps of their own. Then they
are computed together, as more maps of a convolution with stride 1, whose maps are shuffled into y: a sub-pixel
convolution. It reads x once instead of once per phase, and makes dense products of phases with few maps.

The gradient by x is a convolution, which walks the same line from small to large: there y is the small side, x the
large one, and all positions are one phase that reads every tap.
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl

from unpool.geometry import Axis


class PhaseDim(NamedTuple):
    """One spatial axis."""

    large: int  # size of y
    small: int  # size of x
    window: int
    stride: int
    dilation: int
    begin: int
    phases: int  # number of phases that hold a position
    length: int  # positions of the longest phase
    common: int  # the greatest common divisor of stride and dilation
    tap_step: int  # distance between taps of a phase
    back: int  # steps back in x from one of these taps to the next
    inverse: int  # of `back`, modulo `tap_step`
    step: int  # steps in x from a position of a phase to the next


def dim_of(axis: Axis) -> PhaseDim:
    """An axis of a transposed convolution."""
    window = axis.window
    # if x has one position, any stride will do: with one longer than y, each position of y is a phase with its one tap
    stride = window.stride if axis.small > 1 or axis.begin < 0 else max(window.reach, axis.large + axis.begin)
    common = math.gcd(stride, window.dilation)
    tap_step, back = stride // common, window.dilation // common
    return PhaseDim(
        axis.large, axis.small, window.size, stride, window.dilation, axis.begin,
        min(stride, axis.large), -(-axis.large // stride), common, tap_step, back,
        pow(back, -1, tap_step), 1,
    )  # fmt: skip


def adjoint_dim_of(axis: Axis) -> PhaseDim:
    """An axis of the convolution that is the gradient by x; `large` is the size of its output here, too."""
    window = axis.window
    return PhaseDim(
        axis.small, axis.large, window.size, 1, window.dilation, -axis.begin,
        1, axis.small, 1, 1, -window.dilation, 0, window.stride,
    )  # fmt: skip


class ShuffleDim(NamedTuple):
    """One spatial axis of y, which the maps of a sub-pixel convolution are shuffled into."""

    stride: int  # phases
    large: int  # size of y
    skipped: int  # phases before the first element of y


def subpixel_dim_of(axis: Axis) -> PhaseDim:
    """An axis of a sub-pixel convolution; `large` and `length` are its own size."""
    stride, first = axis.window.stride, axis.begin // axis.window.stride
    length = -(-(axis.large + axis.begin) // stride) - first
    return PhaseDim(length, axis.small, axis.window.size // stride, 1, 1, first, 1, length, 1, 1, 1, 0, 1)


def shuffle_dim_of(axis: Axis) -> ShuffleDim:
    """An axis of y after a sub-pixel convolution."""
    return ShuffleDim(axis.window.stride, axis.large, axis.begin % axis.window.stride)


@triton.jit
def phase_of(number, dims):
    """Phase `number`: for each axis a tuple of (offset, first tap, taps, small position at the first tap)."""
    phase = ()
    for axis in tl.static_range(len(dims) - 1, -1, -1):
        dim = dims[axis]
        offset = number % dim.phases
        number = number // dim.phases
        rest = (offset + dim.begin) % dim.stride
        tap = (rest // dim.common) * dim.inverse % dim.tap_step
        is_met = (rest % dim.common == 0) & (tap < dim.window)
        taps = tl.where(is_met, (dim.window - tap + dim.tap_step - 1) // dim.tap_step, 0)
        small = (offset + dim.begin - tl.where(is_met, tap * dim.dilation, rest)) // dim.stride
        phase = ((offset, tap, taps, small),) + phase
    return phase


@triton.jit
def count_taps(phase):
    """Number of taps of a phase."""
    taps = phase[0][2]
    for axis in tl.static_range(1, len(phase)):
        taps = taps * phase[axis][2]
    return taps


@triton.jit
def positions_of(number, dims):
    """Positions of a phase, by their numbers: along each axis the number of strides, and the image."""
    coords = ()
    for axis in tl.static_range(len(dims) - 1, -1, -1):
        coords = (number % dims[axis].length,) + coords
        number = number // dims[axis].length
    return coords, number


@triton.jit
def target_of(coords, phase, dims):
    """Places of positions in a plane of y, and the mask of those inside y."""
    place = coords[0] * 0
    mask = coords[0] >= 0
    for axis in tl.static_range(len(dims)):
        position = coords[axis] * dims[axis].stride + phase[axis][0]
        mask = mask & (position < dims[axis].large)
        place = place * dims[axis].large + position
    return place, mask


@triton.jit
def shuffled_of(coords, number, dims):
    """Places in a plane of y of positions and phases, of (positions, phases), and the mask of those inside y."""
    rows = coords[0] * 0
    columns = number * 0
    mask = (coords[0] >= 0)[:, None] & (number >= 0)[None, :]
    step = 1
    for axis in tl.static_range(len(dims) - 1, -1, -1):
        dim = dims[axis]
        first = coords[axis] * dim.stride
        more = number % dim.stride - dim.skipped
        number = number // dim.stride
        position = first[:, None] + more[None, :]
        mask = mask & (position >= 0) & (position < dim.large)
        rows += first * step
        columns += more * step
        step *= dim.large
    return rows, columns, mask


@triton.jit
def first_step(phase):
    """The first step: for each axis the number of the tap among those of the phase, and the block of channels."""
    step = (tl.zeros([], tl.int32),)
    for _ in tl.static_range(len(phase)):
        step = step + (tl.zeros([], tl.int32),)
    return step


@triton.jit
def next_step(step, phase, columns):
    """The next of `columns` blocks of channels, or the first of the next tap: cheaper than dividing in every step."""
    carry = step[len(phase)] + 1 == columns
    following = (tl.where(carry, 0, step[len(phase)] + 1),)
    for axis in tl.static_range(len(phase) - 1, -1, -1):
        tap = step[axis] + carry.to(tl.int32)
        carry = tap >= tl.maximum(phase[axis][2], 1)
        following = (tl.where(carry, 0, tap),) + following
    return following


@triton.jit
def source_of(step, coords, phase, dims):
    """Inputs of a step: the tap's number in the window, places in a plane of x, and the mask of those inside x."""
    tap = step[0] * 0
    place = coords[0] * 0
    mask = coords[0] >= 0
    tap_stride = 1
    x_stride = 1
    for axis in tl.static_range(len(dims) - 1, -1, -1):
        dim = dims[axis]
        tap += (phase[axis][1] + step[axis] * dim.tap_step) * tap_stride
        position = coords[axis] * dim.step + (phase[axis][3] - step[axis] * dim.back)
        mask = mask & (position >= 0) & (position < dim.small)
        place += position * x_stride
        tap_stride *= dim.window
        x_stride *= dim.small
    return tap, place, mask
