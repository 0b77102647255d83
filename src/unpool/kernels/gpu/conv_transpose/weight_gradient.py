"""The gradient of a transposed convolution by its weights: for each tap a product over all positions of x.

    dW[c, m, t] = sum over n, positions p: x[n, c, p] * grad[n, m, p * stride + t * dilation - begin]

A program has one tap, a block of channels and of maps, and one part of the positions, of which it adds the products in
their order. The sums of the parts are added in theirs: nothing is atomic, and results are the same every time. Into how
many parts positions are cut depends on sizes alone, not on the device. Sums are float32, or float64 for float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.conv_transpose.grow import Growth, call_of, farthest, is_dense, precision
from unpool.kernels.gpu.conv_transpose.phases import line_of
from unpool.kernels.gpu.conv_transpose.products import IS_WIDENED
from unpool.kernels.gpu.launch import LIMIT32, blocks, power_of_two, warps_for
from unpool.kernels.gpu.launch import launch as start

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""dW (C, M/groups, k1..kk) of (x, the gradient of y), both without gaps in one layout."""

_PROGRAMS = 1024
"""So many are enough to keep a device busy."""

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
    lines = tuple(map(line_of, growth.axes))
    positions = growth.batch * math.prod(line.small for line in lines)
    call = call_of(growth, lines)
    sizes = call.sizes._replace(positions=positions)
    call = call._replace(sizes=sizes)
    tile = _blocks_of(growth, positions)
    tiles = growth.groups * sizes.taps * blocks(growth.channels, tile[0]) * blocks(growth.maps, tile[2])
    parts, steps = cut(blocks(positions, tile[1]), tiles)
    is_wide = max(farthest(growth, call), parts * growth.groups * growth.channels * growth.maps * sizes.taps) >= LIMIT32
    wide = torch.float64 if growth.kind == "float64" else torch.float32
    window = tuple(line.window for line in lines)

    def run(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        shape = parts, growth.groups, growth.channels, growth.maps, sizes.taps
        sums = torch.empty(shape, dtype=wide, device=x.device)
        how = How(*tile, growth.kind, _is_dense(growth), is_wide, precision())
        start(add_positions, parts * tiles, x.device, (x, grad, sums, steps, call, how), warps_for(tile[0] * tile[2]))
        return sums.sum(0).to(x.dtype).view(-1, growth.maps, *window)

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


def _blocks_of(growth: Growth, positions: int) -> tuple[int, int, int]:
    """Channels, positions and maps of a block; sums that are no products of matrices hold all three at once."""
    if _is_dense(growth):
        most = 64 if growth.kind == "float32" else 128
        sizes = power_of_two(growth.channels, most), power_of_two(positions, 32), power_of_two(growth.maps, most)
        return max(16, sizes[0]), max(16, sizes[1]), max(16, sizes[2])
    channels, maps = power_of_two(growth.channels, 8), power_of_two(growth.maps, 8)
    return channels, power_of_two(positions, min(1024, 2048 // (channels * maps))), maps


@triton.jit
def add_positions(x, grad, sums, steps, call, how: tl.constexpr):
    """One block of the sums of one part, of so many blocks of positions: (parts, groups, channels, maps, taps)."""
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
    for step in range(steps):
        position = (part * steps + step) * POSITIONS + tl.arange(0, POSITIONS)
        from_x, from_grad, is_there = sources_of(position, tap, call)
        inputs = x + (channels * call.x.channel)[:, None] + from_x[None, :]
        left = tl.load(inputs, mask=is_channel[:, None] & is_there[None, :], other=0)
        grads = grad + from_grad[:, None] + (maps * call.y.channel)[None, :]
        right = tl.load(grads, mask=is_there[:, None] & is_map[None, :], other=0)
        if how.is_dense:
            if IS_WIDENED:
                left = left.to(tl.float32)
                right = right.to(tl.float32)
            total = tl.dot(left, right, total, input_precision=precision)
        else:
            total += tl.sum(left.to(wide)[:, :, None] * right.to(wide)[None, :, :], axis=1)
    place = ((part * sizes.groups + group) * sizes.channels + channels)[:, None] * sizes.maps + maps[None, :]
    tl.store(sums + place * sizes.taps + tap, total, mask=is_channel[:, None] & is_map[None, :])


@triton.jit
def sources_of(position, tap, call):
    """Where positions of x, and what a tap makes of them, lie in x and in grad, and whether there are such elements."""
    from_x = position * 0
    from_grad = position * 0
    is_there = position < call.sizes.positions
    small = 1
    large = 1
    for axis in tl.static_range(len(call.lines) - 1, -1, -1):
        line = call.lines[axis]
        at = position % line.small
        position = position // line.small
        target = at * line.stride + tap % line.window * line.dilation - line.begin
        tap = tap // line.window
        is_there = is_there & (target >= 0) & (target < line.large)
        from_x += at * small
        from_grad += target * large
        small *= line.small
        large *= line.large
    from_x = position * call.x.batch + from_x * call.x.place
    return from_x, position * call.y.batch + from_grad * call.y.place, is_there
