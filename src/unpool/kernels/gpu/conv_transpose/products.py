"""Transposed convolution by dense products: an implicit product of matrices for each phase.

A program has a block of positions of one phase, and of maps. For each tap that the phase meets, and each block of
channels, it multiplies a block of x, whose places follow from the tap, by a block of weights. Sums are float32.
Positions where a tap meets no input read zero, which multiplies weights: so weights have to be finite.
"""

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from unpool.kernels.gpu.conv_transpose.ending import share, write
from unpool.kernels.gpu.conv_transpose.phases import source_of, taps_of
from unpool.kernels.gpu.launch import INTERPRETED, power_of_two

if TYPE_CHECKING:
    from unpool.kernels.gpu.conv_transpose.grow import Sizes

IS_WIDENED = tl.constexpr(INTERPRETED)
"""Whether operands become float32 before they are multiplied: see `launch.INTERPRETED`."""


def blocks_of(sizes: "Sizes", kind: str, is_tight: bool) -> tuple[int, int, int]:
    """Positions, maps and channels of a block; `is_tight` says that sums have to share registers."""
    most = 64 if kind == "float32" else 128
    positions, maps = power_of_two(sizes.positions, 64 if is_tight else most), power_of_two(sizes.maps, most)
    return max(16, positions), max(16, maps), max(16, power_of_two(sizes.channels, 32))


@triton.jit
def add_products(x, w, b, y, is_finite, call, how: tl.constexpr):
    """One block of y, as bits; nothing where weights are not finite. w is (groups, taps, channels, maps)."""
    POSITIONS: tl.constexpr = how.positions
    MAPS: tl.constexpr = how.maps
    CHANNELS: tl.constexpr = how.channels
    precision: tl.constexpr = how.precision
    sizes = call.sizes
    is_wanted = tl.load(is_finite)
    spot, block = share(call, is_wanted, how)
    at, batch, axes = spot
    group, is_position, maps = block
    x += group * sizes.channels * call.x.channel
    w += group * sizes.taps * sizes.channels * sizes.maps
    columns = tl.cdiv(sizes.channels, CHANNELS)
    total = tl.zeros([POSITIONS, MAPS], tl.float32)
    for step in range(taps_of(axes) * columns * is_wanted):
        tap, place, is_there = source_of(step // columns, at, axes, call.lines)
        is_there = is_there & is_position
        channels = step % columns * CHANNELS + tl.arange(0, CHANNELS)
        is_channel = channels < sizes.channels
        rows = batch * call.x.batch + place * call.x.place
        inputs = x + rows[:, None] + (channels * call.x.channel)[None, :]
        left = tl.load(inputs, mask=is_there[:, None] & is_channel[None, :], other=0)
        lines = (tap * sizes.channels + channels) * sizes.maps
        weights = w + lines[:, None] + maps[None, :]
        right = tl.load(weights, mask=is_channel[:, None] & (maps < sizes.maps)[None, :], other=0)
        if IS_WIDENED:
            left = left.to(tl.float32)
            right = right.to(tl.float32)
        total = tl.dot(left, right, total, input_precision=precision)
    write(total, (b, y), spot, block, call, how)
