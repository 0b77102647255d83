"""Max unpooling of indices that lie in the window of their element: y is written once, in the order of memory.

A program has a tile of y. For each element it walks the windows that reach it, in row-major order, and keeps the x of
the last window whose index is the element's own, or zero if there is none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl

from unpool.kernels.gpu.activation import activated
from unpool.kernels.gpu.launch import Launcher
from unpool.kernels.gpu.max_unpool.check_indices import IndexSpaces, index_spaces, read_result
from unpool.kernels.gpu.max_unpool.problem import GpuUnpoolProblem
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


class GatherDim(NamedTuple):
    """One spatial axis; `large` and `inferred` are its sizes in the two spaces."""

    small: int
    begin: int
    large: int
    inferred: int


class PlaneSizes(NamedTuple):
    """Elements of a plane in the two spaces."""

    large: int
    inferred: int


class GatherArgs(NamedTuple):
    """Arguments of the kernel in addition to its tensors."""

    grid: TileGrid
    dims: tuple[GatherDim, ...]
    planes: PlaneSizes
    x: TensorStrides
    y: TensorStrides


@dataclass(frozen=True)
class GatherMeta:
    """Constants of the compiled kernel."""

    tile: TileShape
    spaces: IndexSpaces
    reach: WindowReach
    kind: str
    activation: str
    params: tuple[float, ...]


def launch(problem: GpuUnpoolProblem) -> Callable[..., None]:
    """A function that writes y of (x, indices, y, result), x and y as bits, if the result allows it."""
    large, inferred = problem.index_sizes
    grid = grid_of(problem.batch, problem.channels, large, problem.is_channels_last)
    tile = tile_for(grid, problem.is_channels_last, 2**31 if problem.is_wide else 0)
    dims = tuple(
        GatherDim(axis.small, axis.begin, *sizes) for axis, *sizes in zip(problem.axes, large, inferred, strict=True)
    )
    strides = (strides_of(problem.channels, size, problem.is_channels_last) for size in (problem.small, problem.large))
    args = GatherArgs(grid, dims, PlaneSizes(problem.large, math.prod(inferred)), *strides)
    meta = GatherMeta(
        tile, index_spaces(problem), reach_of(problem.axes), problem.kind, problem.activation, problem.params
    )
    return Launcher(gather_windows, programs(grid, tile), args, meta)


@triton.jit
def gather_windows(x, indices, y, result, args, meta: tl.constexpr):
    """Write one tile of y; nothing if an index lies outside its window."""
    spaces: tl.constexpr = meta.spaces
    uses_inferred, _, all_in_window = read_result(result, spaces)
    if all_in_window:
        tile: tl.constexpr = meta.tile
        kind: tl.constexpr = meta.kind
        activation: tl.constexpr = meta.activation
        params: tl.constexpr = meta.params
        coords, batch, channel, inside = elements_of(args.grid, tile)
        own_index, is_indexed = index_of(
            coords, batch * args.grid.extent.channels + channel, args, uses_inferred, spaces
        )
        bits = _gather(x, indices, (coords, own_index, inside & is_indexed), batch, channel, args, meta)
        target = batch * args.y.batch + channel * args.y.channel + place_of(coords, args.grid.sizes) * args.y.place
        tl.store(y + target, activated(bits, kind, activation, params), mask=inside)


@triton.jit
def index_of(coords, plane, args, uses_inferred, spaces: tl.constexpr):
    """The index of an element of y, and whether it has one."""
    number = coords[0].to(tl.int64) * 0
    is_indexed = coords[0] >= 0
    large = args.planes.large
    for axis in tl.static_range(len(coords)):
        size = args.dims[axis].large
        if spaces.has_inferred:
            size = tl.where(uses_inferred, args.dims[axis].inferred, size)
        number = number * size + coords[axis]
        is_indexed = is_indexed & (coords[axis] < size)
    if spaces.has_inferred:
        large = tl.where(uses_inferred, args.planes.inferred, large)
    if spaces.per_plane == 0:
        number += plane.to(tl.int64) * large
    return number, is_indexed


@triton.jit
def _gather(x, indices, element, batch, channel, args, meta: tl.constexpr):
    """The bits of the last window that has its maximum at an element, or zero.

    `element` are coordinates, their indices, and the mask of elements that exist and have an index.
    """
    ROWS: tl.constexpr = meta.tile.rows
    LANES: tl.constexpr = meta.tile.lanes
    rows: tl.constexpr = meta.reach.rows
    bits = tl.zeros([ROWS, LANES], x.dtype.element_ty)
    from_x = x + batch * args.x.batch + channel * args.x.channel
    from_indices = indices + (batch * args.grid.extent.channels + channel) * args.x.plane
    if meta.reach.is_short:
        for number in tl.static_range(rows):
            bits = _select_row(from_x, from_indices, number, element, bits, args, meta)
    else:
        for number in range(rows):
            bits = _select_row(from_x, from_indices, number, element, bits, args, meta)
    return bits


@triton.jit
def _select_row(x, indices, number, element, bits, args, meta: tl.constexpr):
    """The bits so far, or those of one more row of windows; windows come in row-major order."""
    reach: tl.constexpr = meta.reach
    along: tl.constexpr = reach.along
    axis: tl.constexpr = len(args.dims) - 1
    row, is_row = window_row(number, element[0], args.dims, reach)
    first = first_window(element[0][axis], args.dims[axis], axis, reach)
    x += (row + first) * args.x.place
    indices += row + first
    windows = (first, is_row & element[2])
    if along <= 16:
        for each in tl.static_range(along):
            bits = _select_window(x, indices, each, windows, element[1], bits, args, meta)
    else:
        for each in range(along):
            bits = _select_window(x, indices, each, windows, element[1], bits, args, meta)
    return bits


@triton.jit
def _select_window(x, indices, number, windows, own_index, bits, args, meta: tl.constexpr):
    """The bits so far, or those of one window of a row, if its index is that of the elements.

    `windows` are the first ones of rows, where x and indices start, and the mask of rows.
    """
    steps: tl.constexpr = meta.reach.steps
    first, is_row = windows
    ahead = tl.full([1, 1], number * steps[len(steps) - 1], first.dtype)
    mask = is_row & (first >= -ahead) & (first < args.dims[len(steps) - 1].small - ahead)
    wins = tl.load(indices + ahead, mask=mask, other=-1) == own_index
    return tl.where(wins, tl.load(x + ahead * args.x.place, mask=wins, other=0), bits)
