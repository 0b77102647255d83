"""The gradient of a transposed convolution by its weights: for each tap a product over all positions of x.

    dW[c, m, t] = sum over n, positions p: x[n, c, p] * grad[n, m, p * stride + t * dilation - begin]

A program has one tap, a block of channels and of maps, and one part of the positions, whose products it adds in order.
The sums of the parts are added in order, too: nothing is atomic, and results are the same every time. The number of
parts depends on sizes alone, not on the device. Sums are float32, or float64 for float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.conv_transpose.kernels import dense_block
from unpool.kernels.gpu.conv_transpose.phases import dim_of, positions_of
from unpool.kernels.gpu.conv_transpose.problem import BlockShape, GpuConvProblem, precision
from unpool.kernels.gpu.elements import IS_INTERPRETED
from unpool.kernels.gpu.launch import LIMIT32, Launcher, blocks, power_of_two
from unpool.kernels.gpu.tiles import to_channels_last

# dW (C, M/groups, k1..kk) of (x, the gradient of y), both without gaps in one layout
Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_MIN_STEPS = 4  # fewest blocks of positions of a part
# by is float32: the largest block, and the programs that keep a device busy; more would write more sums
_BLOCKS = {
    True: (BlockShape(32, 64, 64, warps=4, stages=3), 1024),
    False: (BlockShape(64, 128, 128, warps=4, stages=3), 256),
}


@dataclass(frozen=True)
class WeightGradientMeta:
    """Constants of the compiled kernel; blocks are of channels, positions and maps."""

    channels: int
    positions: int
    maps: int
    kind: str
    is_dense: bool
    is_wide: bool
    precision: str


def launch(problem: GpuConvProblem) -> Run:
    """A function that computes the gradient of a transposed convolution by its weights."""
    if problem.is_channels_last or not problem.is_dense:
        return _launch(problem)
    small, large = (math.prod(getattr(axis, name) for axis in problem.axes) for name in ("small", "large"))
    copy_x = to_channels_last(problem.batch, problem.groups * problem.channels, small)
    copy_grad = to_channels_last(problem.batch, problem.groups * problem.maps, large)
    run = _launch(replace(problem, is_channels_last=True))
    return lambda x, grad: run(copy_x(x), copy_grad(grad))


def _launch(problem: GpuConvProblem) -> Run:
    args = problem.args(tuple(dim_of(axis)._replace(length=axis.small) for axis in problem.axes))
    sizes, positions = args.sizes, args.sizes.positions  # of x, all of one phase
    most, programs = _BLOCKS[problem.kind == "float32"]
    if problem.is_dense:
        tile = dense_block(most, positions, problem.maps, problem.channels)
    else:  # a program holds channels, positions and maps in registers at once
        channels, maps = power_of_two(problem.channels, 8), power_of_two(problem.maps, 8)
        tile = BlockShape(power_of_two(positions, min(1024, 2048 // (channels * maps))), maps, channels)
    tiles = problem.groups * sizes.taps * blocks(problem.channels, tile.channels) * blocks(problem.maps, tile.maps)
    parts, steps = split_positions(blocks(positions, tile.positions), tiles, programs)
    shape = parts, sizes.taps, problem.groups, problem.channels, problem.maps
    is_wide = max(problem.largest_offset(args), math.prod(shape)) >= LIMIT32
    wide = torch.float64 if problem.kind == "float64" else torch.float32
    window = tuple(axis.window.size for axis in problem.axes)

    @lru_cache(4)
    def launcher(precision: str) -> Launcher:
        meta = WeightGradientMeta(
            tile.channels, tile.positions, tile.maps, problem.kind, problem.is_dense, is_wide, precision,
        )  # fmt: skip
        return Launcher(add_positions, parts * tiles, args, meta, tile.warps, tile.stages, floats=(0, 1, 2))

    def run(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        sums = torch.empty(shape, dtype=wide, device=x.device)
        launcher(precision())(x, grad, sums, steps)
        gradient = sums.sum(0).to(x.dtype).permute(1, 2, 3, 0).contiguous()
        return gradient.view(-1, problem.maps, *window)

    return run


def split_positions(steps: int, tiles: int, programs: int) -> tuple[int, int]:
    """The number of parts of `steps` blocks of positions, and the blocks of a part, for `tiles` tiles of weights.

    >>> [split_positions(*each, programs=1024) for each in ((1000, 64), (1000, 5000), (3, 1), (0, 1))]
    [(16, 63), (1, 1000), (1, 3), (1, 0)]
    """
    parts = max(1, min(blocks(programs, max(tiles, 1)), steps // _MIN_STEPS))
    per_part = blocks(steps, parts)
    return blocks(steps, per_part) if steps else 1, per_part


@triton.jit
def add_positions(x, grad, sums, steps, args, meta: tl.constexpr):
    """One block of the sums (parts, taps, groups, channels, maps), over the `steps` blocks of positions of a part."""
    CHANNELS: tl.constexpr = meta.channels
    POSITIONS: tl.constexpr = meta.positions
    MAPS: tl.constexpr = meta.maps
    precision: tl.constexpr = meta.precision
    wide: tl.constexpr = tl.float64 if meta.kind == "float64" else tl.float32
    sizes = args.sizes
    number = tl.program_id(0)
    if meta.is_wide:
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
    x += group * sizes.channels * args.x.channel
    grad += group * sizes.maps * args.y.channel
    total = tl.zeros([CHANNELS, MAPS], wide)
    position = part * steps * POSITIONS + tl.arange(0, POSITIONS)
    coords, image = positions_of(position, args.dims)
    stride, images = positions_of(tl.full([], POSITIONS, tl.int32), args.dims)
    coords, stride = coords + (image,), stride + (images,)
    for _ in range(steps):
        from_x, from_grad, mask = offsets_of(coords, tap, args)
        mask = mask & (position < sizes.positions)
        inputs = x + from_x[:, None] + (channels * args.x.channel)[None, :]
        left = tl.trans(tl.load(inputs, mask=mask[:, None] & is_channel[None, :], other=0))
        grads = grad + from_grad[:, None] + (maps * args.y.channel)[None, :]
        right = tl.load(grads, mask=mask[:, None] & is_map[None, :], other=0)
        if meta.is_dense:
            if IS_INTERPRETED:  # see elements.INTERPRETED
                left = left.to(tl.float32)
                right = right.to(tl.float32)
            total = tl.dot(left, right, total, input_precision=precision)
        else:
            total += tl.sum(left.to(wide)[:, :, None] * right.to(wide)[None, :, :], axis=1)
        position += POSITIONS
        coords = add_coordinates(coords, stride, args.dims)
    row = ((part * sizes.taps + tap) * sizes.groups + group) * sizes.channels + channels
    places = sums + row[:, None] * sizes.maps + maps[None, :]
    tl.store(places, total, mask=is_channel[:, None] & is_map[None, :])


@triton.jit
def add_coordinates(coords, other, dims):
    """Coordinates and images plus an offset, with carries: that is cheaper than a division in every step."""
    total = ()
    carry = 0
    for axis in tl.static_range(len(dims) - 1, -1, -1):
        small = dims[axis].small
        place = coords[axis] + other[axis] + carry
        carry = (place >= small).to(coords[axis].dtype)
        total = (place - carry * small,) + total
    return total + (coords[len(dims)] + other[len(dims)] + carry,)


@triton.jit
def offsets_of(coords, tap, args):
    """Offsets in x of positions, offsets in grad of their targets by a tap, and the mask of targets inside grad."""
    from_x = coords[0] * 0
    from_grad = coords[0] * 0
    mask = coords[0] >= 0
    small = 1
    large = 1
    for axis in tl.static_range(len(args.dims) - 1, -1, -1):
        dim = args.dims[axis]
        target = coords[axis] * dim.stride + tap % dim.window * dim.dilation - dim.begin
        tap = tap // dim.window
        mask = mask & (target >= 0) & (target < dim.large)
        from_x += coords[axis] * small
        from_grad += target * large
        small *= dim.small
        large *= dim.large
    image = coords[len(args.dims)]
    return image * args.x.batch + from_x * args.x.place, image * args.y.batch + from_grad * args.y.place, mask
