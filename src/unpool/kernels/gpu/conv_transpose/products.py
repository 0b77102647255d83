"""Transposed convolution by dense products: an implicit product of matrices for each phase.

A program has a block of positions of one phase, and of maps. For each tap that the phase meets, and each block of
channels, it multiplies a block of x, whose places follow from the tap, by a block of weights. Sums are float32. x and y
are channels-last in memory, so that what a program reads and writes are neighbours. Positions where a tap meets no
input read zero, which multiplies weights: so weights have to be finite.
"""

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from unpool.kernels.gpu.conv_transpose.blocks import Blocks
from unpool.kernels.gpu.conv_transpose.ending import share, write
from unpool.kernels.gpu.conv_transpose.phases import first_of, next_of, source_of, taps_of
from unpool.kernels.gpu.launch import INTERPRETED, power_of_two

if TYPE_CHECKING:
    from unpool.kernels.gpu.conv_transpose.grow import Sizes

IS_WIDENED = tl.constexpr(INTERPRETED)
"""Whether operands become float32 before they are multiplied: see `launch.INTERPRETED`."""

_FEW = 32
"""Maps that are too few for the usual blocks."""

_LARGEST = {
    (True, False): Blocks(64, 64, 32, warps=4, stages=3),
    (True, True): Blocks(128, 32, 16, warps=4, stages=3),
    (False, False): Blocks(128, 128, 32, warps=4, stages=4),
    (False, True): Blocks(128, 32, 32, warps=4, stages=4),
}
"""By whether elements are float32, and whether there are few maps: the fastest of several on an H100."""


def blocks_of(sizes: "Sizes", kind: str, is_tight: bool) -> Blocks:
    """`is_tight` says that sums have to share registers: then twice as many warps have half as many."""
    most = _LARGEST[kind == "float32", sizes.maps <= _FEW]
    if is_tight:
        most = most._replace(positions=most.positions // 2, warps=2 * most.warps)
    positions, maps = power_of_two(sizes.positions, most.positions), power_of_two(sizes.maps, most.maps)
    channels = power_of_two(sizes.channels, most.channels)
    return most._replace(positions=max(16, positions), maps=max(16, maps), channels=max(16, channels))


@triton.jit
def add_products(x, w, b, y, check, call, how: tl.constexpr):
    """One block of y, as bits; nothing where weights are not finite. w is (groups, taps, channels, maps)."""
    POSITIONS: tl.constexpr = how.positions
    MAPS: tl.constexpr = how.maps
    CHANNELS: tl.constexpr = how.channels
    precision: tl.constexpr = how.precision
    if is_finite(check):
        sizes = call.sizes
        spot, block = share(tl.program_id(0), call, how)
        at, batch, axes = spot
        group, is_position, maps = block
        x += group * sizes.channels * call.x.channel
        w += group * sizes.taps * sizes.channels * sizes.maps
        columns = tl.cdiv(sizes.channels, CHANNELS)
        total = tl.zeros([POSITIONS, MAPS], tl.float32)
        turns = first_of(axes)
        for _ in range(taps_of(axes) * columns):
            tap, place, is_there = source_of(turns, at, axes, call.lines)
            is_there = is_there & is_position
            channels = turns[len(axes)] * CHANNELS + tl.arange(0, CHANNELS)
            is_channel = channels < sizes.channels
            rows = batch * call.x.batch + place * call.x.place
            inputs = x + (rows[:, None] + (channels * call.x.channel)[None, :])
            left = tl.load(inputs, mask=is_there[:, None] & is_channel[None, :], other=0)
            lines = (tap * sizes.channels + channels) * sizes.maps
            weights = w + (lines[:, None] + maps[None, :])
            right = tl.load(weights, mask=is_channel[:, None] & (maps < sizes.maps)[None, :], other=0)
            if IS_WIDENED:
                left = left.to(tl.float32)
                right = right.to(tl.float32)
            total = tl.dot(left, right, total, input_precision=precision)
            turns = next_of(turns, axes, columns)
        write(total, (b, y), spot, block, call, how)


@triton.jit
def is_finite(check):
    """Whether all weights are finite: their sum is, then. A sum too large for float32 counts as infinite."""
    total = tl.load(check)
    return total - total == 0


KERNEL = add_products
