"""The largest element of every window, and where it was found.

A program has a tile of outputs. It walks the taps of all its windows at once, in row-major order, and keeps of each
window the largest element and the tap that read it. Elements are compared as integers (`elements.order`), so that NaN,
both zeros and ties are what they are on the CPU, bit for bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl

from unpool.geometry import Axis, clipped
from unpool.kernels.gpu.activation import activated, bounds
from unpool.kernels.gpu.elements import bits_of, order
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
)

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], None]
"""Writes y and, where there are any, indices from x; all without gaps, in one layout."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One call.

    Attributes:
        axes: one per spatial axis.
        batch: N.
        channels: C.
        kind: of the elements, as `unpool.dtypes` calls it.
        lowest: bits of what a window without data gives.
        is_channels_last: whether x, y and indices are (N, D1..Dk, C) in memory.
        is_column_major: whether indices count with the first spatial axis fastest.
        nan_last: whether the last NaN of a window is found, rather than the first.
        per_plane: whether indices count inside their own plane, rather than in the whole tensor.
        activation: its name, "" for none.
        params: what it takes.
    """

    axes: tuple[Axis, ...]
    batch: int
    channels: int
    kind: str
    lowest: int
    is_channels_last: bool = False
    is_column_major: bool = False
    nan_last: bool = False
    per_plane: bool = False
    activation: str = ""
    params: tuple[float, ...] = ()


class _Line(NamedTuple):
    """One spatial axis; `step` are places between neighbours in memory, `weight` in what indices count."""

    large: int
    stride: int
    dilation: int
    begin: int
    step: int
    weight: int


class _Call(NamedTuple):
    """What the kernel gets beside its tensors."""

    grid: Grid
    lines: tuple[_Line, ...]
    x: Strides
    y: Strides


@dataclass(frozen=True)
class _How:
    """What the compiled kernel depends on."""

    tile: Tile
    window: tuple[int, ...]
    taps: int
    kind: str
    lowest: int
    nan_last: bool
    per_plane: bool
    has_indices: bool
    activation: str
    params: tuple[float, ...]


def launch(pool: Pool, has_indices: bool) -> Run:
    """What computes a call."""
    axes = tuple(map(clipped, pool.axes))
    large = math.prod(axis.large for axis in axes)
    grid = grid_of(pool.batch, pool.channels, tuple(axis.small for axis in axes), pool.is_channels_last)
    lines = tuple(_line(axes, number, pool.is_column_major) for number in range(len(axes)))
    outer, small = pool.batch * pool.channels, math.prod(grid.sizes)
    reach = max(axis.small * axis.window.stride + axis.window.reach + abs(axis.begin) for axis in axes)
    tile = tile_for(grid, pool.is_channels_last, max(outer * large, outer * small, reach))
    strides = (strides_of(pool.channels, places, pool.is_channels_last) for places in (large, small))
    call = _Call(grid, lines, *strides)
    window = tuple(axis.window.size for axis in axes)
    how = _How(
        tile, window, math.prod(window), pool.kind, pool.lowest, pool.nan_last, pool.per_plane,
        has_indices, pool.activation, bounds(pool.kind, pool.params),
    )  # fmt: skip

    def run(x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor | None) -> None:
        bits = bits_of(y)
        tensors = bits_of(x), bits, bits if indices is None else indices
        start(pool_windows, programs(grid, tile), y.device, (*tensors, call, how))

    return run


def _line(axes: tuple[Axis, ...], number: int, is_column_major: bool) -> _Line:
    axis, window = axes[number], axes[number].window
    step = math.prod(other.large for other in axes[number + 1 :])
    before = math.prod(other.large for other in axes[:number])
    stride, dilation = window.stride if axis.small > 1 else 1, window.dilation if window.size > 1 else 1
    return _Line(axis.large, stride, dilation, axis.begin, step, before if is_column_major else step)


@triton.jit
def pool_windows(x, y, indices, call, how: tl.constexpr):
    """One tile of y, and of indices if they are wanted.

    x: bits (N, C, D1..Dk) or (N, D1..Dk, C); y: bits, and indices: int64, of the small sizes in the same layout.
    """
    tile: tl.constexpr = how.tile
    ROWS: tl.constexpr = tile.rows
    LANES: tl.constexpr = tile.lanes
    window: tl.constexpr = how.window
    taps: tl.constexpr = how.taps
    kind: tl.constexpr = how.kind
    activation: tl.constexpr = how.activation
    params: tl.constexpr = how.params
    corners, batch, channel, inside = elements_of(call.grid, tile)
    windows = (corners, inside)
    base = batch * call.x.batch + channel * call.x.channel
    if kind == "float64":
        key = tl.full([ROWS, LANES], -9223372036854775808, tl.int64)
    else:
        key = tl.full([ROWS, LANES], -2147483648, tl.int32)
    bits = tl.full([ROWS, LANES], how.lowest, y.dtype.element_ty)
    found = tl.full([ROWS, LANES], -1, tl.int32)
    if taps <= 16:  # written out, so that their loads are under way together
        for tap in tl.static_range(taps):
            key, bits, found = _with_tap(x + base, tap, windows, key, bits, found, call, how)
    else:
        for tap in range(taps):
            key, bits, found = _with_tap(x + base, tap, windows, key, bits, found, call, how)
    target = batch * call.y.batch + channel * call.y.channel + place_of(corners, call.grid.sizes) * call.y.place
    tl.store(y + target, activated(bits, kind, activation, params), mask=inside)
    if how.has_indices:
        index = _place(tl.maximum(found, 0), corners, call, window, True)[0].to(tl.int64)
        if not how.per_plane:
            index += (batch.to(tl.int64) * call.grid.extent.channels + channel) * call.x.plane
        tl.store(indices + target, tl.where(found < 0, -1, index), mask=inside)


@triton.jit
def _with_tap(x, tap, windows, key, bits, found, call, how: tl.constexpr):
    """The largest elements so far, with those that a tap reads; a NaN counts as larger than all before."""
    window: tl.constexpr = how.window
    kind: tl.constexpr = how.kind
    place, is_data = _place(tap, windows[0], call, window, False)
    is_data = is_data & windows[1]
    read = tl.load(x + place * call.x.place, mask=is_data, other=0)
    other = order(read, kind)
    wins = other > key
    if how.nan_last:
        if kind == "float64":
            wins = wins | (other == 0x7FFFFFFFFFFFFFFF)
        elif kind != "int8" and kind != "uint8":
            wins = wins | (other == 0x7FFFFFFF)
    wins = wins & is_data
    return tl.where(wins, other, key), tl.where(wins, read, bits), tl.where(wins, tap, found)


@triton.jit
def _place(tap, corners, call, window: tl.constexpr, is_index: tl.constexpr):
    """Where a tap reads, as memory or as indices count it, and whether there is data."""
    place = corners[0] * 0
    is_data = corners[0] >= 0
    for axis in tl.static_range(len(window) - 1, -1, -1):
        line = call.lines[axis]
        position = corners[axis] * line.stride + (tap % window[axis]) * line.dilation - line.begin
        tap = tap // window[axis]
        is_data = is_data & (position >= 0) & (position < line.large)
        place = place + position * (line.weight if is_index else line.step)
    return place, is_data
