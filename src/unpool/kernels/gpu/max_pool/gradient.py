"""The gradient of max pooling with respect to x, where the windows are known: nothing is written twice.

    dX[i] = sum of grad[p] over the windows p that reach i and have their maximum there

A program has a tile of dX. Of each element it walks the windows that reach it, in row-major order, in which it adds:
so results are the same every time. 16-bit floats are added in float32 and rounded once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.elements import bits_of, narrow, widen
from unpool.kernels.gpu.launch import launch as start
from unpool.kernels.gpu.tiles import (
    Grid,
    Strides,
    Tile,
    elements_of,
    grid_of,
    place_of,
    programs,
    strides_of,
    tile_for,
    window_at,
)

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Writes y of (grad, indices, y); all without gaps, in one layout; indices count inside their own plane."""


class _Line(NamedTuple):
    """One spatial axis."""

    small: int
    stride: int
    begin: int


class _Call(NamedTuple):
    """What the kernel gets beside its tensors."""

    grid: Grid
    lines: tuple[_Line, ...]
    grad: Strides
    y: Strides


@dataclass(frozen=True)
class _How:
    """What the compiled kernel depends on; `reaching` are windows that reach an element, at most, by axis."""

    tile: Tile
    reaching: tuple[int, ...]
    count: int
    kind: str


def launch(axes: tuple[Axis, ...], batch: int, channels: int, kind: str, *, is_channels_last: bool) -> Run:
    """What computes the gradient of a pool of these windows."""
    grid = grid_of(batch, channels, tuple(axis.large for axis in axes), is_channels_last)
    small, large = (math.prod(sizes) for sizes in ([axis.small for axis in axes], grid.sizes))
    reach = max(axis.large + axis.begin + axis.window.reach for axis in axes)
    tile = tile_for(grid, is_channels_last, max(batch * channels * max(small, large), reach))
    lines = tuple(_Line(axis.small, axis.window.stride, axis.begin) for axis in axes)
    call = _Call(grid, lines, *(strides_of(channels, places, is_channels_last) for places in (small, large)))
    reaching = tuple(-(-axis.window.reach // axis.window.stride) for axis in axes)
    how = _How(tile, reaching, math.prod(reaching), kind)

    def run(grad: torch.Tensor, indices: torch.Tensor, y: torch.Tensor) -> None:
        start(sum_windows, programs(grid, tile), y.device, (bits_of(grad), indices, bits_of(y), call, how))

    return run


@triton.jit
def sum_windows(grad, indices, y, call, how: tl.constexpr):
    """One tile of y, the gradient of x; grad and y are bits."""
    tile: tl.constexpr = how.tile
    ROWS: tl.constexpr = tile.rows
    LANES: tl.constexpr = tile.lanes
    kind: tl.constexpr = how.kind
    count: tl.constexpr = how.count
    at, batch, channel, inside = elements_of(call.grid, tile)
    base = batch * call.grad.batch + channel * call.grad.channel
    place = place_of(at, call.grid.sizes)
    here = (at, place, inside)
    total = tl.zeros([ROWS, LANES], tl.float64 if kind == "float64" else tl.float32)
    if count <= 16:
        for number in tl.static_range(count):
            total = _with_window(grad + base, indices + base, number, here, total, call, how)
    else:
        for number in range(count):
            total = _with_window(grad + base, indices + base, number, here, total, call, how)
    target = batch * call.y.batch + channel * call.y.channel + place * call.y.place
    tl.store(y + target, narrow(total, kind), mask=inside)


@triton.jit
def _with_window(grad, indices, number, here, total, call, how: tl.constexpr):
    """The sums so far, with one window more; `here` are coordinates, places, and which elements are there."""
    reaching: tl.constexpr = how.reaching
    kind: tl.constexpr = how.kind
    position, is_there = window_at(number, here[0], call.lines, reaching)
    position = position * call.grad.place
    is_there = is_there & here[2]
    is_here = is_there & (tl.load(indices + position, mask=is_there, other=-1) == here[1])
    added = widen(tl.load(grad + position, mask=is_here, other=0), kind)
    return tl.where(is_here, total + added, total)
