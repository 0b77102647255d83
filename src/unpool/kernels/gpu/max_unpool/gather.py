"""Max unpooling of indices that lie in the window of their element: y is written once, in the order of memory.

A program has a tile of y. For each element it walks the windows that reach it, in row-major order, and keeps the x of
the last window whose index is the element's own, else zero; or, for gradients, adds the x of all these windows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import triton
import triton.language as tl

from unpool.kernels.gpu import tiles
from unpool.kernels.gpu.elements import activated, narrow, widen
from unpool.kernels.gpu.launch import LIMIT32, Launcher
from unpool.kernels.gpu.max_unpool.check_indices import GpuUnpoolProblem, IndexArgs, IndexSpaces, read_result
from unpool.kernels.gpu.tiles import TensorStrides, elements_of, first_window, place_of, window_row


class GatherArgs(NamedTuple):
    """Arguments of the kernel in addition to its tensors."""

    grid: tiles.TileGrid
    indexing: IndexArgs
    x: TensorStrides
    y: TensorStrides


@dataclass(frozen=True)
class GatherMeta:
    """Constants of the compiled kernel."""

    tile: tiles.TileShape
    spaces: IndexSpaces
    reach: tiles.WindowReach
    accumulate: bool  # y is the sum over all windows, instead of the last one
    kind: str
    activation: str
    params: tuple[float, ...]


def launch(problem: GpuUnpoolProblem, *, accumulate: bool = False) -> Callable[..., None]:
    """A function that writes y of (x, indices, y, result); sums do not use the result."""
    sizes = tuple(axis.large for axis in problem.axes)
    grid = tiles.grid_of(problem.batch, problem.channels, sizes, problem.is_channels_last)
    tile = tiles.tile_for(grid, problem.is_channels_last, LIMIT32 if problem.is_wide else 0)
    reach = tiles.reach_of(problem.axes)
    if accumulate and not reach.is_short:
        tile = replace(tile, rows=max(1, tile.rows // 4))  # several windows are read at once
    planes = problem.small, problem.large
    strides = (tiles.strides_of(problem.channels, plane, problem.is_channels_last) for plane in planes)
    meta = GatherMeta(tile, problem.spaces, reach, accumulate, problem.kind, problem.activation, problem.params)
    args = GatherArgs(grid, problem.indexing, *strides)
    return Launcher(gather_windows, tiles.programs(grid, tile), args, meta)


@triton.jit
def gather_windows(x, indices, y, result, args, meta: tl.constexpr):
    """Write one tile of y; nothing if an index lies outside its window."""
    if meta.accumulate:
        _write_tile(x, indices, y, False, args, meta)
    else:
        uses_inferred, _, all_in_window = read_result(result, meta)
        if all_in_window:
            _write_tile(x, indices, y, uses_inferred, args, meta)


@triton.jit
def _write_tile(x, indices, y, uses_inferred, args, meta: tl.constexpr):
    ROWS: tl.constexpr = meta.tile.rows
    LANES: tl.constexpr = meta.tile.lanes
    tile: tl.constexpr = meta.tile
    spaces: tl.constexpr = meta.spaces
    kind: tl.constexpr = meta.kind
    rows: tl.constexpr = meta.reach.rows
    coords, batch, channel, inside = elements_of(args.grid, tile)
    plane = batch * args.grid.extent.channels + channel
    own_index, is_indexed = index_of(coords, plane, args, uses_inferred, spaces)
    element = (coords, own_index, inside & is_indexed)
    from_x = x + batch * args.x.batch + channel * args.x.channel
    from_indices = indices + plane * args.x.plane
    if meta.accumulate:
        value = tl.zeros([ROWS, LANES], tl.float64 if kind == "float64" else tl.float32)
    else:
        value = tl.zeros([ROWS, LANES], x.dtype.element_ty)
    if meta.reach.is_short:
        for number in tl.static_range(rows):
            value = _read_row(from_x, from_indices, number, element, value, args, meta)
    else:
        for number in range(rows):
            value = _read_row(from_x, from_indices, number, element, value, args, meta)
    if meta.accumulate:
        bits = narrow(value, kind)
    else:
        bits = activated(value, meta)
    target = batch * args.y.batch + channel * args.y.channel + place_of(coords, args.grid.sizes) * args.y.place
    tl.store(y + target, bits, mask=inside)


@triton.jit
def index_of(coords, plane, args, uses_inferred, spaces: tl.constexpr):
    """The index of an element of y, and whether it has one."""
    number = coords[0].to(tl.int64) * 0
    is_indexed = coords[0] >= 0
    large = args.indexing.counts.large
    for axis in tl.static_range(len(coords)):
        size = args.indexing.dims[axis].large
        if spaces.has_inferred:
            size = tl.where(uses_inferred, args.indexing.dims[axis].inferred, size)
        number = number * size + coords[axis]
        is_indexed = is_indexed & (coords[axis] < size)
    if spaces.has_inferred:
        large = tl.where(uses_inferred, args.indexing.counts.inferred, large)
    if spaces.per_plane == 0:
        number += plane.to(tl.int64) * large
    return number, is_indexed


@triton.jit
def _read_row(x, indices, number, element, value, args, meta: tl.constexpr):
    """The elements so far, or their sums, with one more row of windows; `element` are coordinates, indices, mask."""
    reach: tl.constexpr = meta.reach
    along: tl.constexpr = reach.along
    axis: tl.constexpr = len(args.indexing.dims) - 1
    row, is_row = window_row(number, element[0], args.indexing.dims, reach)
    first = first_window(element[0][axis], args.indexing.dims[axis], axis, reach)
    x += (row + first) * args.x.place
    indices += row + first
    windows = (first, is_row & element[2])
    if along <= 16:
        for each in tl.static_range(along):
            value = _read_window(x, indices, each, windows, element[1], value, args, meta)
    else:
        for each in range(along):
            value = _read_window(x, indices, each, windows, element[1], value, args, meta)
    return value


@triton.jit
def _read_window(x, indices, number, windows, own_index, value, args, meta: tl.constexpr):
    """The elements so far, or their sums, which are never -0, with window `number` after the first ones of rows."""
    kind: tl.constexpr = meta.kind
    steps: tl.constexpr = meta.reach.steps
    first, is_row = windows
    ahead = tl.full([1, 1], number * steps[len(steps) - 1], first.dtype)
    mask = is_row & (first >= -ahead) & (first < args.indexing.dims[len(steps) - 1].small - ahead)
    wins = tl.load(indices + ahead, mask=mask, other=-1) == own_index
    bits = tl.load(x + ahead * args.x.place, mask=wins, other=0)
    if meta.accumulate:
        value = value + widen(bits, kind)
    else:
        value = tl.where(wins, bits, value)
    return value
