"""Max pooling on a GPU: one kernel, `pool_windows`, runs every call.

| windows | taps are read | why |
|---|---|---|
| few taps | all taps of a window, in row-major order | elements and places stay in registers |
| many taps, along several axes | one axis after the other, the last one first | 13 + 13 taps are fewer than 13 * 13 |
| side by side along the last axis, 2 or 4 wide | neighbours together | the widest loads |

    pooled[r, i] = max over taps t of x[r, i * stride + t * dilation]         for every row r of x
    y[j, i]      = max over taps t of pooled[j * stride + t * dilation, i]    for every other axis

Of equal elements the leftmost of a row is kept, and then the topmost row: the first in row-major order; the same holds
for the last NaN with `nan_last`. A pass writes the input of the next one: that pays if windows have many taps. The
gradient is in `max_unpool/gradient.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from unpool.geometry import Axis, Window, clipped
from unpool.kernels.gpu.elements import bounds
from unpool.kernels.gpu.launch import Launcher
from unpool.kernels.gpu.max_pool.kernel import pool_windows
from unpool.kernels.gpu.tiles import TileGrid, TileShape, grid_of, programs, tile_for

Axes = tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class GpuPoolProblem:
    """One call."""

    axes: tuple[Axis, ...]
    batch: int
    channels: int
    kind: str  # of the elements, by its name in `unpool.dtypes`
    lowest: int  # bits of the maximum of a window without data
    is_channels_last: bool = False  # x, y and indices are (N, D1..Dk, C) in memory
    is_column_major: bool = False  # indices count with the first spatial axis fastest
    nan_last: bool = False  # the last NaN of a window is its maximum, instead of the first
    per_plane: bool = False  # indices count inside their own plane, instead of the whole tensor
    activation: str = ""
    params: tuple[float, ...] = ()


_ELEMENTS, _LANES, _WARPS = 512, 64, 2  # of a tile, at most; of its lanes; of the warps of its program
_ONE_PASS_TAPS = 16  # that are always read in one pass
_PASS_COST = 8  # of a pass in addition to its taps, in taps: it writes elements and places, and reads them again
_MAX_TAPS = 8  # of tiles of the usual size: with more, a program has half as many outputs, so that registers suffice
_MAX_CARRIES = 5  # smallest quotient that is divided; smaller ones are counted by comparisons


class PoolDim(NamedTuple):
    """One spatial axis; `step` is the distance of neighbours in memory, `weight` their distance as indices count."""

    large: int
    stride: int
    begin: int
    step: int
    weight: int


class PoolPlanes(NamedTuple):
    """Elements of a plane of the input of the pass, of x, where indices count, and of the output."""

    read: int
    counted: int
    written: int


class PoolArgs(NamedTuple):
    """Arguments of the kernel in addition to its tensors; the grid is that of outputs."""

    grid: TileGrid
    dims: tuple[PoolDim, ...]
    planes: PoolPlanes


@dataclass(frozen=True)
class PoolMeta:
    """Constants of the compiled kernel; those without a comment are from the problem."""

    tile: TileShape  # of outputs
    neighbours: int  # taps along the last axis that are read together
    aligned: int  # a divisor of the places where rows of neighbours begin
    carries: tuple[int, ...]  # along each folded axis, the maximum number of its ends within a tile
    window: tuple[int, ...]  # its size along each axis
    dilation: tuple[int, ...]
    is_padded: tuple[bool, ...]  # along each axis, whether taps lie in the padding
    taps: int  # of a window
    has_empty: bool  # there are windows without data
    lowest: int
    kind: str
    nan_last: bool
    is_column_major: bool
    is_first: bool  # x is read, instead of the output of the pass before
    places: str  # the second output: "none", "places" for the next pass, or "indices"
    per_plane: bool
    activation: str  # of the last pass
    params: tuple[float, ...]


def launch(problem: GpuPoolProblem, has_indices: bool) -> Callable[[torch.Tensor, torch.Tensor, Any], None]:
    """A function that writes y and, where there are any, indices from x; all without gaps, in one layout."""
    steps = passes(tuple(map(clipped, problem.axes)))
    planes = problem.batch * problem.channels
    places = max(planes * max(math.prod(each.large for each in step), _outputs(step)) for step in steps)
    reach = max(x.small * x.window.stride + x.window.reach + abs(x.begin) for axes in steps for x in axes)
    launchers = [_pass(problem, steps, number, has_indices, max(places, reach)) for number in range(len(steps))]
    *before, last = zip(launchers, (planes * _outputs(step) for step in steps), strict=True)

    def run(x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor | None) -> None:
        read = read_places = x
        for launcher, elements in before:
            bits = places = torch.empty(elements, dtype=read.dtype, device=x.device)
            if has_indices:
                places = torch.empty_like(bits, dtype=torch.int64 if launcher.meta.tile.is_wide else torch.int32)
            launcher(read, read_places, bits, places)
            read, read_places = bits, places
        last[0](read, read_places, y, y if indices is None else indices)

    return run


def _pass(problem: GpuPoolProblem, steps: tuple[Axes, ...], number: int, has_indices: bool, largest: int) -> Launcher:
    """Pass `number` of `steps`, of (input, its places, output, places of the output); places up to `largest`."""
    axes, is_last = steps[number], number == len(steps) - 1
    has_empty = any(_may_be_empty(axis) for each in steps for axis in each)
    neighbours = 1 if problem.is_channels_last or has_empty else _neighbours_of(axes[-1])
    aligned = math.gcd(axes[-1].large, 16) if neighbours > 1 else 1
    walked = axes if neighbours == 1 else (*axes[:-1], identity_axis(axes[-1].large))
    windows = [axis.window for axis in walked]
    taps = math.prod(each.size for each in windows)
    grid = grid_of(problem.batch, problem.channels, tuple(axis.small for axis in axes), problem.is_channels_last)
    tile = tile_for(grid, problem.is_channels_last, largest, _ELEMENTS, _LANES)
    if taps > _MAX_TAPS:
        tile = replace(tile, rows=max(1, tile.rows // 2))
    folded = grid.sizes if problem.is_channels_last else grid.sizes[:-1]
    meta = PoolMeta(
        tile, neighbours, aligned, _carries(folded, tile.rows), tuple(each.size for each in windows),
        tuple(each.dilation if each.size > 1 else 1 for each in windows), tuple(map(_is_padded, walked)),
        taps, has_empty, problem.lowest, problem.kind, problem.nan_last, problem.is_column_major, number == 0,
        ("indices" if is_last else "places") if has_indices else "none", problem.per_plane,
        problem.activation if is_last else "", bounds(problem.kind, problem.params) if is_last else (),
    )  # fmt: skip
    dims = tuple(_dim(walked, each, problem.is_column_major) for each in range(len(axes)))
    read, counted = (math.prod(axis.large for axis in each) for each in (axes, steps[0]))
    planes = PoolPlanes(read, counted, math.prod(grid.sizes))
    return Launcher(pool_windows, programs(grid, tile), PoolArgs(grid, dims, planes), meta, _WARPS)


def _carries(sizes: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """The maximum number of ends of each axis in a tile of `rows` rows, but at most _MAX_CARRIES.

    >>> _carries((28, 28), 32), _carries((), 1)
    ((1, 2), ())
    """
    carries: tuple[int, ...] = ()
    more = rows - 1
    for size in reversed(sizes):
        more = (size - 1 + more) // max(size, 1)
        carries = (min(more, _MAX_CARRIES), *carries)
    return carries


def _neighbours_of(axis: Axis) -> int:
    """Number of taps along the last axis that are read together, in wide loads: of windows side by side, or one."""
    count = axis.window.size
    is_tiled = axis == Axis(axis.small * count, axis.small, Window(count, count))
    return count if is_tiled and count in (2, 4) and axis.large % 4 == 0 else 1


def _dim(axes: Axes, number: int, is_column_major: bool) -> PoolDim:
    axis = axes[number]
    step = math.prod(other.large for other in axes[number + 1 :])
    before = math.prod(other.large for other in axes[:number])
    stride = axis.window.stride if axis.small > 1 else 1
    return PoolDim(axis.large, stride, axis.begin, step, before if is_column_major else step)


def _is_padded(axis: Axis) -> bool:
    end = (axis.small - 1) * axis.window.stride + axis.window.reach - axis.begin
    return axis.begin > 0 or end > axis.large


def _may_be_empty(axis: Axis) -> bool:
    window, corner = axis.window, (axis.small - 1) * axis.window.stride - axis.begin
    return window.reach <= axis.begin or corner >= axis.large or window.dilation > axis.large


def passes(axes: Axes) -> tuple[Axes, ...]:
    """The passes of a pooling, each with all axes.

    >>> [tuple(axis.window.size for axis in each) for each in passes((Axis(32, 32, Window(13), 6),) * 2)]
    [(1, 13), (13, 1)]
    """
    if _taps(axes) <= _ONE_PASS_TAPS:
        return (axes,)
    # a pass for each axis where windows have several taps, the last one first; it also walks the axes with one tap
    turns = [number for number, axis in enumerate(axes) if axis.window.size > 1][::-1]
    turn_of = [number if axis.window.size > 1 else turns[0] for number, axis in enumerate(axes)]
    separate = tuple(
        tuple(
            axis if turn == now else identity_axis(axis.small if turn > now else axis.large)
            for turn, axis in zip(turn_of, axes, strict=True)
        )
        for now in turns
    )
    return separate if _cost(separate) < _cost((axes,)) else (axes,)


def identity_axis(size: int) -> Axis:
    """An axis that a pass does not change."""
    return Axis(size, size, Window(1))


def _taps(axes: Axes) -> int:
    return math.prod(axis.window.size for axis in axes)


def _outputs(axes: Axes) -> int:
    return math.prod(axis.small for axis in axes)


def _cost(steps: tuple[Axes, ...]) -> int:
    """Total number of taps that are read, plus the cost of the passes."""
    return sum(_outputs(axes) * (_taps(axes) + _PASS_COST) for axes in steps)
