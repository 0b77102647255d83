"""Transposed convolution by sums of products, one channel and one tap at a time.

A program has a block of positions of one phase, and of maps. Products are formed where a tap meets an input, and
nowhere else: so weights may be infinite. Sums are float32, or float64 for float64.
"""

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from unpool.kernels.gpu.conv_transpose.blocks import Blocks
from unpool.kernels.gpu.conv_transpose.ending import share, write
from unpool.kernels.gpu.conv_transpose.phases import first_of, next_of, source_of, taps_of
from unpool.kernels.gpu.conv_transpose.products import is_finite
from unpool.kernels.gpu.launch import power_of_two

if TYPE_CHECKING:
    from unpool.kernels.gpu.conv_transpose.grow import Sizes

_ELEMENTS = 1024
_MOST_MAPS = 16


def blocks_of(sizes: "Sizes", kind: str, is_tight: bool) -> Blocks:
    """Channels are taken one by one; `is_tight` says that places, or sums, have to share registers."""
    maps = power_of_two(sizes.maps, _MOST_MAPS)
    elements = _ELEMENTS // (2 if is_tight or kind == "float64" else 1)
    return Blocks(power_of_two(sizes.positions, elements // maps), maps, 1)


@triton.jit
def add_sums(x, w, b, y, check, call, how: tl.constexpr):
    """Blocks of y, as bits; none where products have been added. w is (groups, taps, channels, maps)."""
    sizes = call.sizes
    blocks = sizes.phases * sizes.groups * tl.cdiv(sizes.positions, how.positions) * tl.cdiv(sizes.maps, how.maps)
    if how.may_skip:
        if is_finite(check):
            blocks = 0
    for number in range(tl.program_id(0), blocks, tl.num_programs(0)):
        _add_block(x, w, b, y, number, call, how)


@triton.jit
def _add_block(x, w, b, y, number, call, how: tl.constexpr):
    POSITIONS: tl.constexpr = how.positions
    MAPS: tl.constexpr = how.maps
    wide: tl.constexpr = tl.float64 if how.kind == "float64" else tl.float32
    sizes = call.sizes
    spot, block = share(number, call, how)
    at, batch, axes = spot
    group, is_position, maps = block
    x += group * sizes.channels * call.x.channel
    w += group * sizes.taps * sizes.channels * sizes.maps
    total = tl.zeros([POSITIONS, MAPS], wide)
    turns = first_of(axes)
    for _ in range(taps_of(axes) * sizes.channels):
        channel = turns[len(axes)]
        tap, place, is_there = source_of(turns, at, axes, call.lines)
        is_there = is_there & is_position
        rows = batch * call.x.batch + place * call.x.place + channel * call.x.channel
        left = tl.load(x + rows, mask=is_there, other=0).to(wide)
        line = (tap * sizes.channels + channel) * sizes.maps
        right = tl.load(w + line + maps, mask=maps < sizes.maps, other=0).to(wide)
        total = tl.where(is_there[:, None], total + left[:, None] * right[None, :], total)
        turns = next_of(turns, axes, sizes.channels)
    write(total, (b, y), spot, block, call, how)


KERNEL = add_sums
