"""Which elements of (N, C, D1..Dk) a program works on, whatever the number of axes and the layout.

The fastest axis in memory is the lanes: the last spatial axis, or the channels of a channels-last tensor. All other
axes are folded into rows. A program has a tile of rows and lanes.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.launch import LIMIT32, blocks, power_of_two

MOST_LANES = 128
ELEMENTS = 1024
"""Of a tile, for elements of up to 4 bytes."""


class Strides(NamedTuple):
    """Elements between neighbours: images, channels, and places of the row-major plane; and elements of a plane."""

    batch: int
    channel: int
    place: int
    plane: int


class Extent(NamedTuple):
    """How many channels, rows and lanes there are."""

    channels: int
    rows: int
    lanes: int


class Grid(NamedTuple):
    """A tensor's shape as kernels get it: `sizes` are its spatial sizes."""

    sizes: tuple[int, ...]
    extent: Extent


@dataclass(frozen=True)
class Tile:
    """What a compiled kernel knows of its tiles; is_wide means that places have 64 bits."""

    rows: int
    lanes: int
    is_channels_last: bool
    is_wide: bool


def strides_of(channels: int, places: int, is_channels_last: bool) -> Strides:
    """Of a tensor without gaps, (N, C, D1..Dk) or (N, D1..Dk, C); `places` are the elements of a plane."""
    return Strides(channels * places, *((1, channels) if is_channels_last else (places, 1)), places)


def grid_of(batch: int, channels: int, sizes: tuple[int, ...], is_channels_last: bool) -> Grid:
    """The grid that tiles cover."""
    lanes = channels if is_channels_last else sizes[-1]
    others = batch if is_channels_last else batch * channels
    for size in sizes if is_channels_last else sizes[:-1]:
        others *= size
    return Grid(sizes, Extent(channels, others, lanes))


def tile_for(grid: Grid, is_channels_last: bool, largest: int) -> Tile:
    """Tiles of a grid; `largest` is the largest number that places are computed with."""
    lanes = power_of_two(grid.extent.lanes, MOST_LANES)
    return Tile(power_of_two(grid.extent.rows, ELEMENTS // lanes), lanes, is_channels_last, largest >= LIMIT32)


def programs(grid: Grid, tile: Tile) -> int:
    """How many tiles cover a grid."""
    return blocks(grid.extent.rows, tile.rows) * blocks(grid.extent.lanes, tile.lanes)


@dataclass(frozen=True)
class Reach:
    """Which windows may reach a position.

    Attributes:
        counts: how many, by axis.
        steps: how far apart they are.
        strides: of all windows.
        rows: the product of all counts but the last.
        along: the last of them.
        is_short: whether they are few enough to be written out.
    """

    counts: tuple[int, ...]
    steps: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int
    along: int
    is_short: bool


def reach_of(axes: tuple[Axis, ...]) -> Reach:
    """Which windows may reach a position; those of stride 1 that meet it with a gap are left out.

    >>> from unpool.geometry import Window
    >>> reach = reach_of((Axis(8, 4, Window(3, 2), 1), Axis(8, 4, Window(3, 1, 2))))
    >>> reach.counts, reach.steps, reach.strides
    ((2, 3), (1, 2), (2, 1))
    """
    windows = [axis.window for axis in axes]
    *rows, along = counts = tuple(each.size if each.stride == 1 else -(-each.reach // each.stride) for each in windows)
    steps = tuple(each.dilation if each.stride == 1 else 1 for each in windows)
    strides = tuple(each.stride for each in windows)
    return Reach(counts, steps, strides, math.prod(rows), along, math.prod(counts) <= 16)


@triton.jit
def elements_of(grid, tile: tl.constexpr):
    """The elements of this program: their spatial coordinates, image and channel, and which of them are there.

    Coordinates are a tuple of tensors that broadcast to (rows, lanes).
    """
    ROWS: tl.constexpr = tile.rows
    LANES: tl.constexpr = tile.lanes
    rank: tl.constexpr = len(grid.sizes)
    number = tl.program_id(0)
    if tile.is_wide:
        number = number.to(tl.int64)
    extent = grid.extent
    across = tl.cdiv(extent.lanes, LANES)
    row = (number // across) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = (number % across) * LANES + tl.arange(0, LANES)[None, :]
    inside = (row < extent.rows) & (lane < extent.lanes)
    if tile.is_channels_last:
        coordinates = ()
        for axis in tl.static_range(rank - 1, -1, -1):
            coordinates = (row % grid.sizes[axis],) + coordinates
            row = row // grid.sizes[axis]
        batch, channel = row, lane
    else:
        coordinates = (lane,)
        for axis in tl.static_range(rank - 2, -1, -1):
            coordinates = (row % grid.sizes[axis],) + coordinates
            row = row // grid.sizes[axis]
        batch, channel = row // extent.channels, row % extent.channels
    return coordinates, batch, channel, inside


@triton.jit
def place_of(coordinates, sizes):
    """The row-major place of coordinates in a plane."""
    place = coordinates[0]
    for axis in tl.static_range(1, len(sizes)):
        place = place * sizes[axis] + coordinates[axis]
    return place


@triton.jit
def first_window(at, line, axis: tl.constexpr, reach: tl.constexpr):
    """Along one axis the first of the windows that may reach positions; it may be before the axis. Of a line: begin."""
    counts: tl.constexpr = reach.counts
    steps: tl.constexpr = reach.steps
    strides: tl.constexpr = reach.strides
    return tl.maximum(at + line.begin, 0) // strides[axis] - (counts[axis] - 1) * steps[axis]


@triton.jit
def window_row(number, at, lines, reach: tl.constexpr):
    """Along all axes but the last a row of windows that reach positions, and whether there is one.

    Rows come in row-major order, and are counted in windows. Of a line are read: small and begin.
    """
    counts: tl.constexpr = reach.counts
    steps: tl.constexpr = reach.steps
    row = at[0] * 0
    is_there = at[0] >= 0
    step = lines[len(lines) - 1].small
    for axis in tl.static_range(len(counts) - 2, -1, -1):
        window = first_window(at[axis], lines[axis], axis, reach) + number % counts[axis] * steps[axis]
        number = number // counts[axis]
        is_there = is_there & (window >= 0) & (window < lines[axis].small)
        row += window * step
        step *= lines[axis].small
    return row, is_there
