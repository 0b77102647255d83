"""The gradient of max pooling with respect to x, where the windows are known: nothing is written twice.

    dX[i] = sum of grad[p] over the windows p that reach i and have their maximum there

| windows | kernel | how |
|---|---|---|
| nearly all of a plane do | sum_planes | every window is compared with all elements: there is nothing else to compute |
| others | sum_windows | of each element the windows that reach it are walked |

Where few reach an element, `max_unpool/per_plane.py` has a faster one. All add in row-major order of the windows: so
results are the same every time. 16-bit floats are added in float32 and rounded once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.elements import bits_of, narrow, widen
from unpool.kernels.gpu.launch import Start, blocks, power_of_two
from unpool.kernels.gpu.tiles import (
    Grid,
    Reach,
    Strides,
    Tile,
    elements_of,
    first_window,
    grid_of,
    place_of,
    programs,
    reach_of,
    strides_of,
    tile_for,
    window_row,
)

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Writes y of (grad, indices, y); all without gaps, in one layout; indices count inside their own plane."""


_FEW = 4
"""Windows of a plane, for each that reaches an element, up to which it is cheaper not to ask which ones these are."""

_BLOCK = 512


class _Line(NamedTuple):
    """One spatial axis."""

    small: int
    begin: int


class _Call(NamedTuple):
    """What the kernel gets beside its tensors."""

    grid: Grid
    lines: tuple[_Line, ...]
    grad: Strides
    y: Strides


class _Planes(NamedTuple):
    """Elements of a plane of grad and of y."""

    small: int
    large: int


@dataclass(frozen=True)
class _Block:
    """What the kernel for planes depends on; is_wide means that places have 64 bits."""

    size: int
    is_wide: bool
    kind: str


@dataclass(frozen=True)
class _How:
    """What the compiled kernel depends on."""

    tile: Tile
    reach: Reach
    kind: str


def launch(axes: tuple[Axis, ...], batch: int, channels: int, kind: str, *, is_channels_last: bool) -> Run:
    """What computes the gradient of a pool of these windows."""
    grid = grid_of(batch, channels, tuple(axis.large for axis in axes), is_channels_last)
    small, large = (math.prod(sizes) for sizes in ([axis.small for axis in axes], grid.sizes))
    reach = max(axis.large + axis.begin + axis.window.reach for axis in axes)
    tile = tile_for(grid, is_channels_last, max(batch * channels * max(small, large), reach))
    reached = reach_of(axes)
    if not is_channels_last and small <= _FEW * math.prod(reached.counts):
        block = _Block(power_of_two(large, _BLOCK), tile.is_wide, kind)
        count = batch * channels * blocks(large, block.size)
        return _run(Start(sum_planes, count, _Planes(small, large), block, warps=2))
    if not reached.is_short:
        tile = replace(tile, rows=max(1, tile.rows // 4))  # several windows are read at once
    lines = tuple(_Line(axis.small, axis.begin) for axis in axes)
    call = _Call(grid, lines, *(strides_of(channels, places, is_channels_last) for places in (small, large)))
    return _run(Start(sum_windows, programs(grid, tile), call, _How(tile, reached, kind)))


def _run(start: Start) -> Run:
    return lambda grad, indices, y: start(bits_of(grad), indices, bits_of(y))


@triton.jit
def sum_planes(grad, indices, y, planes, how: tl.constexpr):
    """One block of a plane of y, the gradient of x; grad and y are bits. Sums are never -0, so that 0 may be added."""
    SIZE: tl.constexpr = how.size
    kind: tl.constexpr = how.kind
    number = tl.program_id(0)
    if how.is_wide:
        number = number.to(tl.int64)
    across = tl.cdiv(planes.large, SIZE)
    plane = number // across
    place = number % across * SIZE + tl.arange(0, SIZE)
    grad += plane * planes.small
    indices += plane * planes.small
    total = tl.zeros([SIZE], tl.float64 if kind == "float64" else tl.float32)
    for first in range(0, planes.small, 8):
        for ahead in tl.static_range(8):
            is_there = first + ahead < planes.small
            index = tl.load(indices + (first + ahead), mask=is_there, other=-1)
            added = widen(tl.load(grad + (first + ahead), mask=is_there, other=0), kind)
            inside = tl.where(index < planes.large, index, -1).to(place.dtype)
            total += tl.where(place == inside, added, 0.0)
    tl.store(y + (plane * planes.large + place), narrow(total, kind), mask=place < planes.large)


@triton.jit
def sum_windows(grad, indices, y, call, how: tl.constexpr):
    """One tile of y, the gradient of x; grad and y are bits."""
    tile: tl.constexpr = how.tile
    ROWS: tl.constexpr = tile.rows
    LANES: tl.constexpr = tile.lanes
    kind: tl.constexpr = how.kind
    rows: tl.constexpr = how.reach.rows
    at, batch, channel, inside = elements_of(call.grid, tile)
    base = batch * call.grad.batch + channel * call.grad.channel
    place = place_of(at, call.grid.sizes)
    here = (at, place.to(tl.int64), inside)
    total = tl.zeros([ROWS, LANES], tl.float64 if kind == "float64" else tl.float32)
    if how.reach.is_short:
        for number in tl.static_range(rows):
            total = _with_row(grad + base, indices + base, number, here, total, call, how)
    else:
        for number in range(rows):
            total = _with_row(grad + base, indices + base, number, here, total, call, how)
    target = batch * call.y.batch + channel * call.y.channel + place * call.y.place
    tl.store(y + target, narrow(total, kind), mask=inside)


@triton.jit
def _with_row(grad, indices, number, here, total, call, how: tl.constexpr):
    """The sums so far, with one row of windows more; `here` are coordinates, places, and which elements are there."""
    reach: tl.constexpr = how.reach
    along: tl.constexpr = reach.along
    axis: tl.constexpr = len(call.lines) - 1
    row, is_row = window_row(number, here[0], call.lines, reach)
    first = first_window(here[0][axis], call.lines[axis], axis, reach)
    position = (row + first) * call.grad.place
    windows = (first, is_row & here[2])
    if along <= 16:
        for each in tl.static_range(along):
            total = _with_window(grad + position, indices + position, each, windows, here[1], total, call, how)
    else:
        for each in range(along):
            total = _with_window(grad + position, indices + position, each, windows, here[1], total, call, how)
    return total


@triton.jit
def _with_window(grad, indices, number, windows, place, total, call, how: tl.constexpr):
    """The sums so far, with one window of a row more.

    `windows` are the first ones of rows, where grad and indices are, and whether there is such a row. Sums are never
    -0, so that 0 may be added.
    """
    steps: tl.constexpr = how.reach.steps
    kind: tl.constexpr = how.kind
    first, is_row = windows
    ahead = tl.full([1, 1], number * steps[len(steps) - 1], first.dtype)
    is_there = is_row & (first >= -ahead) & (first < call.lines[len(steps) - 1].small - ahead)
    ahead *= call.grad.place
    is_here = tl.load(indices + ahead, mask=is_there, other=-1) == place
    return total + widen(tl.load(grad + ahead, mask=is_here, other=0), kind)
