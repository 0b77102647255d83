"""The gradient of a transposed convolution by its weights: for each tap a product over all positions of x.

    dW[c, m, t] = sum over n, positions p: x[n, c, p] * grad[n, m, p * stride + t * dilation - begin]

A program has one tap, a block of channels and of maps, and one part of the positions, of which it adds the products in
their order. The sums of the parts are added in theirs: nothing is atomic, and results are the same every time. Into how
many parts positions are cut depends on sizes alone, not on the device. Sums are float32, or float64 for float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.conv_transpose.blocks import Blocks
from unpool.kernels.gpu.conv_transpose.grow import Growth, call_of, farthest, is_dense, precision
from unpool.kernels.gpu.conv_transpose.phases import line_of
from unpool.kernels.gpu.conv_transpose.products import IS_WIDENED
from unpool.kernels.gpu.launch import LIMIT32, Start, blocks, power_of_two
from unpool.kernels.gpu.layouts import channels_last

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""dW (C, M/groups, k1..kk) of (x, the gradient of y), both without gaps in one layout."""

_PROGRAMS = 1024
"""So many are enough to keep a device busy."""

_FLOAT32 = Blocks(32, 64, 64, warps=4, stages=3)
_SIXTEEN_BITS = Blocks(64, 64, 128, warps=4, stages=4)

_LEAST_STEPS = 4
"""Blocks of positions that a part has at least."""


@dataclass(frozen=True)
class How:
    """What the compiled kernel depends on; blocks are of channels, positions and maps."""

    channels: int
    positions: int
    maps: int
    kind: str
    is_dense: bool
    is_wide: bool
    precision: str


def launch(growth: Growth) -> Run:
    """What computes the gradient of a call by its weights."""
    if growth.is_channels_last or not _is_dense(growth):
        return _launch(growth)
    small, large = (math.prod(sizes) for sizes in zip(*((axis.small, axis.large) for axis in growth.axes), strict=True))
    turn_x = channels_last(growth.batch, growth.groups * growth.channels, small)
    turn_grad = channels_last(growth.batch, growth.groups * growth.maps, large)
    run = _launch(replace(growth, is_channels_last=True))
    return lambda x, grad: run(turn_x(x), turn_grad(grad))


def _launch(growth: Growth) -> Run:
    lines = tuple(map(line_of, growth.axes))
    positions = growth.batch * math.prod(line.small for line in lines)
    call = call_of(growth, lines)
    sizes = call.sizes._replace(positions=positions)
    call = call._replace(sizes=sizes)
    tile = _blocks_of(growth, positions)
    tiles = growth.groups * sizes.taps * blocks(growth.channels, tile.channels) * blocks(growth.maps, tile.maps)
    parts, steps = cut(blocks(positions, tile.positions), tiles)
    is_wide = max(farthest(growth, call), parts * growth.groups * growth.channels * growth.maps * sizes.taps) >= LIMIT32
    wide = torch.float64 if growth.kind == "float64" else torch.float32
    shape = parts, sizes.taps, growth.groups, growth.channels, growth.maps
    window = tuple(line.window for line in lines)

    @lru_cache(4)
    def start(precision: str) -> Start:
        how = How(
            tile.channels, tile.positions, tile.maps, growth.kind, _is_dense(growth), is_wide, precision,
        )  # fmt: skip
        return Start(add_positions, parts * tiles, call, how, tile.warps, tile.stages)

    def run(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        sums = torch.empty(shape, dtype=wide, device=x.device)
        start(precision())(x, grad, sums, steps)
        found = sums.sum(0).to(x.dtype).permute(1, 2, 3, 0).contiguous()
        return found.view(-1, growth.maps, *window)

    return run


def cut(steps: int, tiles: int) -> tuple[int, int]:
    """Into how many parts blocks of positions are cut, and how many of them a part has, for so many tiles of weights.

    >>> cut(1000, 64), cut(1000, 5000), cut(3, 1), cut(0, 1)
    ((16, 63), (1, 1000), (1, 3), (1, 0))
    """
    wanted = max(1, min(blocks(_PROGRAMS, max(tiles, 1)), steps // _LEAST_STEPS))
    per_part = blocks(steps, wanted)
    return blocks(steps, per_part) if steps else 1, per_part


def _is_dense(growth: Growth) -> bool:
    return is_dense(growth.kind, growth.channels, growth.maps)


def _blocks_of(growth: Growth, positions: int) -> Blocks:
    """Sums that are no products of matrices hold channels, positions and maps at once."""
    if _is_dense(growth):
        largest = _FLOAT32 if growth.kind == "float32" else _SIXTEEN_BITS
        sizes = positions, growth.maps, growth.channels
        most = largest.positions, largest.maps, largest.channels
        positions, maps, channels = (max(16, power_of_two(*each)) for each in zip(sizes, most, strict=True))
        return largest._replace(positions=positions, maps=maps, channels=channels)
    channels, maps = power_of_two(growth.channels, 8), power_of_two(growth.maps, 8)
    return Blocks(power_of_two(positions, min(1024, 2048 // (channels * maps))), maps, channels)


@triton.jit
def add_positions(x, grad, sums, steps, call, how: tl.constexpr):
    """One block of the sums of one part, of so many blocks of positions: (parts, taps, groups, channels, maps)."""
    CHANNELS: tl.constexpr = how.channels
    POSITIONS: tl.constexpr = how.positions
    MAPS: tl.constexpr = how.maps
    precision: tl.constexpr = how.precision
    wide: tl.constexpr = tl.float64 if how.kind == "float64" else tl.float32
    sizes = call.sizes
    number = tl.program_id(0)
    if how.is_wide:
        number = number.to(tl.int64)
    columns, rows = tl.cdiv(sizes.maps, MAPS), tl.cdiv(sizes.channels, CHANNELS)
    maps = number % columns * MAPS + tl.arange(0, MAPS)
    number = number // columns
    channels = number % rows * CHANNELS + tl.arange(0, CHANNELS)
    number = number // rows
    tap = number % sizes.taps
    number = number // sizes.taps
    group = number % sizes.groups
    part = number // sizes.groups
    is_channel, is_map = channels < sizes.channels, maps < sizes.maps
    x += group * sizes.channels * call.x.channel
    grad += group * sizes.maps * call.y.channel
    total = tl.zeros([CHANNELS, MAPS], wide)
    position = part * steps * POSITIONS + tl.arange(0, POSITIONS)
    at = coordinates_of(position, call.lines)
    stride = coordinates_of(tl.full([], POSITIONS, tl.int32), call.lines)
    for _ in range(steps):
        from_x, from_grad, is_there = sources_of(at, tap, call)
        is_there = is_there & (position < sizes.positions)
        inputs = x + from_x[:, None] + (channels * call.x.channel)[None, :]
        left = tl.trans(tl.load(inputs, mask=is_there[:, None] & is_channel[None, :], other=0))
        grads = grad + from_grad[:, None] + (maps * call.y.channel)[None, :]
        right = tl.load(grads, mask=is_there[:, None] & is_map[None, :], other=0)
        if how.is_dense:
            if IS_WIDENED:
                left = left.to(tl.float32)
                right = right.to(tl.float32)
            total = tl.dot(left, right, total, input_precision=precision)
        else:
            total += tl.sum(left.to(wide)[:, :, None] * right.to(wide)[None, :, :], axis=1)
        position += POSITIONS
        at = sum_of(at, stride, call.lines)
    row = ((part * sizes.taps + tap) * sizes.groups + group) * sizes.channels + channels
    places = sums + row[:, None] * sizes.maps + maps[None, :]
    tl.store(places, total, mask=is_channel[:, None] & is_map[None, :])


@triton.jit
def coordinates_of(position, lines):
    """Where positions of x are along each axis, and their images."""
    at = ()
    for axis in tl.static_range(len(lines) - 1, -1, -1):
        at = (position % lines[axis].small,) + at
        position = position // lines[axis].small
    return at + (position,)


@triton.jit
def sum_of(at, other, lines):
    """Coordinates so much farther, added as digits are: that is cheaper than a division in every step."""
    total = ()
    carry = 0
    for axis in tl.static_range(len(lines) - 1, -1, -1):
        small = lines[axis].small
        place = at[axis] + other[axis] + carry
        carry = (place >= small).to(at[axis].dtype)
        total = (place - carry * small,) + total
    return total + (at[len(lines)] + other[len(lines)] + carry,)


@triton.jit
def sources_of(at, tap, call):
    """Where positions of x, and what a tap makes of them, lie in x and in grad, and whether both are there."""
    from_x = at[0] * 0
    from_grad = at[0] * 0
    is_there = at[0] >= 0
    small = 1
    large = 1
    for axis in tl.static_range(len(call.lines) - 1, -1, -1):
        line = call.lines[axis]
        target = at[axis] * line.stride + tap % line.window * line.dilation - line.begin
        tap = tap // line.window
        is_there = is_there & (target >= 0) & (target < line.large)
        from_x += at[axis] * small
        from_grad += target * large
        small *= line.small
        large *= line.large
    image = at[len(call.lines)]
    return image * call.x.batch + from_x * call.x.place, image * call.y.batch + from_grad * call.y.place, is_there
