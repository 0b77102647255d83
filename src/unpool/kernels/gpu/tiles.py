"""Tiles of (N, C, D1..Dk), for any number of axes and both layouts: the elements of each program.

The fastest axis in memory is the lanes: the last spatial axis, or the channels of a channels-last tensor. All other
axes are folded into rows. A program has a tile of rows and lanes. Copies from one layout to the other, where the last
two axes of (N, rows, columns) change places, have blocks of both.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.launch import LIMIT32, Launcher, blocks, power_of_two

MOST_LANES = 128
ELEMENTS = 1024  # of a tile, if they have up to 4 bytes


class TensorStrides(NamedTuple):
    """Elements between neighbouring images, channels, and places of the row-major plane; and elements of a plane."""

    batch: int
    channel: int
    place: int
    plane: int


class TileExtent(NamedTuple):
    """Numbers of channels, rows and lanes."""

    channels: int
    rows: int
    lanes: int


class TileGrid(NamedTuple):
    """The shape of a tensor that tiles cover: `sizes` are its spatial sizes."""

    sizes: tuple[int, ...]
    extent: TileExtent


@dataclass(frozen=True)
class TileShape:
    """Constants of the compiled kernel about its tiles; is_wide means that places have 64 bits."""

    rows: int
    lanes: int
    is_channels_last: bool
    is_wide: bool


def strides_of(channels: int, places: int, is_channels_last: bool) -> TensorStrides:
    """Strides of a tensor without gaps, (N, C, D1..Dk) or (N, D1..Dk, C); `places` are the elements of a plane."""
    return TensorStrides(channels * places, *((1, channels) if is_channels_last else (places, 1)), places)


def grid_of(batch: int, channels: int, sizes: tuple[int, ...], is_channels_last: bool) -> TileGrid:
    """The grid that tiles cover."""
    lanes = channels if is_channels_last else sizes[-1]
    rows = batch * math.prod(sizes) if is_channels_last else batch * channels * math.prod(sizes[:-1])
    return TileGrid(sizes, TileExtent(channels, rows, lanes))


def tile_for(
    grid: TileGrid, is_channels_last: bool, largest: int, elements: int = ELEMENTS, most_lanes: int = MOST_LANES
) -> TileShape:
    """Tiles of a grid; `largest` is the largest number that places are computed with."""
    lanes = power_of_two(grid.extent.lanes, most_lanes)
    return TileShape(power_of_two(grid.extent.rows, elements // lanes), lanes, is_channels_last, largest >= LIMIT32)


def programs(grid: TileGrid, tile: TileShape) -> int:
    """Number of tiles that cover a grid."""
    return blocks(grid.extent.rows, tile.rows) * blocks(grid.extent.lanes, tile.lanes)


@dataclass(frozen=True)
class WindowReach:
    """The windows that may reach a position: by axis their number, the distance between them, and their stride."""

    counts: tuple[int, ...]
    steps: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int  # the product of all counts but the last
    along: int  # the last count
    is_short: bool  # whether they are few enough to unroll


def reach_of(axes: tuple[Axis, ...]) -> WindowReach:
    """The windows that may reach a position, without those of stride 1 that have a gap there.

    >>> from unpool.geometry import Window
    >>> reach = reach_of((Axis(8, 4, Window(3, 2), 1), Axis(8, 4, Window(3, 1, 2))))
    >>> reach.counts, reach.steps, reach.strides
    ((2, 3), (1, 2), (2, 1))
    """
    windows = [axis.window for axis in axes]
    *rows, along = counts = tuple(each.size if each.stride == 1 else -(-each.reach // each.stride) for each in windows)
    steps = tuple(each.dilation if each.stride == 1 else 1 for each in windows)
    strides = tuple(each.stride for each in windows)
    return WindowReach(counts, steps, strides, math.prod(rows), along, math.prod(counts) <= 16)


@triton.jit
def elements_of(grid, tile: tl.constexpr):
    """The elements of this program: coordinates that broadcast to (rows, lanes), image, channel, and mask."""
    ROWS: tl.constexpr = tile.rows
    LANES: tl.constexpr = tile.lanes
    folded: tl.constexpr = len(grid.sizes) if tile.is_channels_last else len(grid.sizes) - 1
    number = tl.program_id(0)
    if tile.is_wide:
        number = number.to(tl.int64)
    extent = grid.extent
    across = tl.cdiv(extent.lanes, LANES)
    row = (number // across) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = (number % across) * LANES + tl.arange(0, LANES)[None, :]
    inside = (row < extent.rows) & (lane < extent.lanes)
    coords = ()
    for axis in tl.static_range(folded - 1, -1, -1):
        coords = (row % grid.sizes[axis],) + coords
        row = row // grid.sizes[axis]
    if tile.is_channels_last:
        batch, channel = row, lane
    else:
        coords = coords + (lane,)
        batch, channel = row // extent.channels, row % extent.channels
    return coords, batch, channel, inside


@triton.jit
def place_of(coords, sizes):
    """The row-major place of coordinates in a plane."""
    place = coords[0]
    for axis in tl.static_range(1, len(sizes)):
        place = place * sizes[axis] + coords[axis]
    return place


@triton.jit
def first_window(coord, dim, axis: tl.constexpr, reach: tl.constexpr):
    """Along one axis the first of the windows that may reach positions; it may be negative. Reads `begin` of a dim."""
    counts: tl.constexpr = reach.counts
    steps: tl.constexpr = reach.steps
    strides: tl.constexpr = reach.strides
    return tl.maximum(coord + dim.begin, 0) // strides[axis] - (counts[axis] - 1) * steps[axis]


@triton.jit
def window_row(number, coords, dims, reach: tl.constexpr):
    """Row `number`, in row-major order, of the windows that reach positions, in windows; the mask of existing rows."""
    counts: tl.constexpr = reach.counts
    steps: tl.constexpr = reach.steps
    row = coords[0] * 0
    mask = coords[0] >= 0
    step = dims[len(dims) - 1].small
    for axis in tl.static_range(len(counts) - 2, -1, -1):
        window = first_window(coords[axis], dims[axis], axis, reach) + number % counts[axis] * steps[axis]
        number = number // counts[axis]
        mask = mask & (window >= 0) & (window < dims[axis].small)
        row += window * step
        step *= dims[axis].small
    return row, mask


_SIDE = 64  # of a block that is transposed


class _MatrixSize(NamedTuple):
    """Arguments of the kernel in addition to its tensors: the size of a matrix of x."""

    rows: int
    columns: int


@dataclass(frozen=True)
class _TransposeMeta:
    """Constants of the compiled kernel: sides of a block, and whether places have 64 bits."""

    rows: int
    columns: int
    is_wide: bool


def transpose(batch: int, rows: int, columns: int) -> Launcher:
    """A function that writes the transposes of `batch` matrices x of (rows, columns) to y, both without gaps."""
    is_wide = batch * rows * columns >= LIMIT32
    meta = _TransposeMeta(power_of_two(rows, _SIDE), power_of_two(columns, _SIDE), is_wide)
    programs = batch * blocks(rows, meta.rows) * blocks(columns, meta.columns)
    return Launcher(transpose_blocks, programs, _MatrixSize(rows, columns), meta)


def to_channels_last(batch: int, channels: int, places: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that copies (N, C, D1..Dk) without gaps to (N, D1..Dk, C); the copy keeps the shape of its input."""
    run = transpose(batch, channels, places)

    def copy(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        run(x, y)
        return y

    return copy


@triton.jit
def transpose_blocks(x, y, sizes, meta: tl.constexpr):
    """Transpose one block of a matrix."""
    ROWS: tl.constexpr = meta.rows
    COLUMNS: tl.constexpr = meta.columns
    number = tl.program_id(0)
    if meta.is_wide:
        number = number.to(tl.int64)
    across = tl.cdiv(sizes.columns, COLUMNS)
    down = tl.cdiv(sizes.rows, ROWS)
    column = number % across * COLUMNS + tl.arange(0, COLUMNS)
    number = number // across
    row = number % down * ROWS + tl.arange(0, ROWS)
    first = number // down * sizes.rows * sizes.columns
    is_row, is_column = row < sizes.rows, column < sizes.columns
    block = tl.load(
        x + first + row[:, None] * sizes.columns + column[None, :], mask=is_row[:, None] & is_column[None, :], other=0
    )
    places = y + first + column[:, None] * sizes.rows + row[None, :]
    tl.store(places, tl.trans(block), mask=is_column[:, None] & is_row[None, :])
