"""The gradient of max pooling with respect to x, for known windows: each element is written once.

    dX[i] = sum of grad[p] over the windows p that reach i and have their maximum there

| windows that reach an element | kernel | method |
|---|---|---|
| nearly all of a plane | sum_planes | compares every window with every element |
| others | sum_windows | walks the windows that reach each element |

If few windows reach an element, `max_unpool/gradient.py` has a faster kernel. All add in row-major order of the
windows: so results are the same every time. 16-bit floats are added in float32 and rounded once.
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
from unpool.kernels.gpu.launch import Launcher, blocks, power_of_two
from unpool.kernels.gpu.tiles import (
    TensorStrides,
    TileGrid,
    TileShape,
    WindowReach,
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


_MAX_PLANE_WINDOWS = 4
"""Windows of a plane per window that reaches an element, up to which `sum_planes` is faster."""

_BLOCK = 512


class GradientDim(NamedTuple):
    """One spatial axis."""

    small: int
    begin: int


class GradientArgs(NamedTuple):
    """Arguments of the kernel in addition to its tensors."""

    grid: TileGrid
    dims: tuple[GradientDim, ...]
    grad: TensorStrides
    y: TensorStrides


class GradientPlanes(NamedTuple):
    """Elements of a plane of grad and of y."""

    small: int
    large: int


@dataclass(frozen=True)
class PlaneGradientMeta:
    """Constants of `sum_planes`; is_wide means that places have 64 bits."""

    size: int
    is_wide: bool
    kind: str


@dataclass(frozen=True)
class PoolGradientMeta:
    """Constants of `sum_windows`."""

    tile: TileShape
    reach: WindowReach
    kind: str


def launch(axes: tuple[Axis, ...], batch: int, channels: int, kind: str, *, is_channels_last: bool) -> Run:
    """A function that computes the gradient of a pool of these windows."""
    grid = grid_of(batch, channels, tuple(axis.large for axis in axes), is_channels_last)
    small, large = (math.prod(sizes) for sizes in ([axis.small for axis in axes], grid.sizes))
    reach = max(axis.large + axis.begin + axis.window.reach for axis in axes)
    tile = tile_for(grid, is_channels_last, max(batch * channels * max(small, large), reach))
    window_reach = reach_of(axes)
    if not is_channels_last and small <= _MAX_PLANE_WINDOWS * math.prod(window_reach.counts):
        block = PlaneGradientMeta(power_of_two(large, _BLOCK), tile.is_wide, kind)
        count = batch * channels * blocks(large, block.size)
        return _run(Launcher(sum_planes, count, GradientPlanes(small, large), block, warps=2))
    if not window_reach.is_short:
        tile = replace(tile, rows=max(1, tile.rows // 4))  # several windows are read at once
    dims = tuple(GradientDim(axis.small, axis.begin) for axis in axes)
    args = GradientArgs(grid, dims, *(strides_of(channels, places, is_channels_last) for places in (small, large)))
    return _run(Launcher(sum_windows, programs(grid, tile), args, PoolGradientMeta(tile, window_reach, kind)))


def _run(start: Launcher) -> Run:
    return lambda grad, indices, y: start(bits_of(grad), indices, bits_of(y))


@triton.jit
def sum_planes(grad, indices, y, planes, meta: tl.constexpr):
    """One block of a plane of y, the gradient of x; grad and y are bits. Sums are never -0, so that 0 may be added."""
    SIZE: tl.constexpr = meta.size
    kind: tl.constexpr = meta.kind
    number = tl.program_id(0)
    if meta.is_wide:
        number = number.to(tl.int64)
    across = tl.cdiv(planes.large, SIZE)
    plane = number // across
    place = number % across * SIZE + tl.arange(0, SIZE)
    grad += plane * planes.small
    indices += plane * planes.small
    total = tl.zeros([SIZE], tl.float64 if kind == "float64" else tl.float32)
    for first in range(0, planes.small, 8):
        for ahead in tl.static_range(8):
            mask = first + ahead < planes.small
            index = tl.load(indices + (first + ahead), mask=mask, other=-1)
            added = widen(tl.load(grad + (first + ahead), mask=mask, other=0), kind)
            inside = tl.where(index < planes.large, index, -1).to(place.dtype)
            total += tl.where(place == inside, added, 0.0)
    tl.store(y + (plane * planes.large + place), narrow(total, kind), mask=place < planes.large)


@triton.jit
def sum_windows(grad, indices, y, args, meta: tl.constexpr):
    """One tile of y, the gradient of x; grad and y are bits."""
    tile: tl.constexpr = meta.tile
    ROWS: tl.constexpr = tile.rows
    LANES: tl.constexpr = tile.lanes
    kind: tl.constexpr = meta.kind
    rows: tl.constexpr = meta.reach.rows
    coords, batch, channel, inside = elements_of(args.grid, tile)
    base = batch * args.grad.batch + channel * args.grad.channel
    place = place_of(coords, args.grid.sizes)
    element = (coords, place.to(tl.int64), inside)
    total = tl.zeros([ROWS, LANES], tl.float64 if kind == "float64" else tl.float32)
    if meta.reach.is_short:
        for number in tl.static_range(rows):
            total = _add_row(grad + base, indices + base, number, element, total, args, meta)
    else:
        for number in range(rows):
            total = _add_row(grad + base, indices + base, number, element, total, args, meta)
    target = batch * args.y.batch + channel * args.y.channel + place * args.y.place
    tl.store(y + target, narrow(total, kind), mask=inside)


@triton.jit
def _add_row(grad, indices, number, element, total, args, meta: tl.constexpr):
    """The sums so far plus one row of windows; `element` are coordinates, places, and the mask of elements."""
    reach: tl.constexpr = meta.reach
    along: tl.constexpr = reach.along
    axis: tl.constexpr = len(args.dims) - 1
    row, is_row = window_row(number, element[0], args.dims, reach)
    first = first_window(element[0][axis], args.dims[axis], axis, reach)
    position = (row + first) * args.grad.place
    windows = (first, is_row & element[2])
    if along <= 16:
        for each in tl.static_range(along):
            total = _add_window(grad + position, indices + position, each, windows, element[1], total, args, meta)
    else:
        for each in range(along):
            total = _add_window(grad + position, indices + position, each, windows, element[1], total, args, meta)
    return total


@triton.jit
def _add_window(grad, indices, number, windows, place, total, args, meta: tl.constexpr):
    """The sums so far plus one window of a row.

    `windows` are the first ones of rows, where grad and indices start, and the mask of rows. Sums are never -0, so that
    0 may be added.
    """
    steps: tl.constexpr = meta.reach.steps
    kind: tl.constexpr = meta.kind
    first, is_row = windows
    ahead = tl.full([1, 1], number * steps[len(steps) - 1], first.dtype)
    mask = is_row & (first >= -ahead) & (first < args.dims[len(steps) - 1].small - ahead)
    ahead *= args.grad.place
    is_here = tl.load(indices + ahead, mask=mask, other=-1) == place
    return total + widen(tl.load(grad + ahead, mask=is_here, other=0), kind)
