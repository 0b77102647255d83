"""Starts max pooling: what the host knows of a call, as the kernel `windows.pool_windows` takes it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import torch

from unpool.geometry import Axis, Window, clipped
from unpool.kernels.gpu.activation import bounds
from unpool.kernels.gpu.elements import bits_of
from unpool.kernels.gpu.launch import Start
from unpool.kernels.gpu.max_pool.passes import Axes, passes, resting
from unpool.kernels.gpu.max_pool.windows import pool_windows
from unpool.kernels.gpu.tiles import Grid, Tile, grid_of, programs, tile_for

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


_MOST_TAPS = 8
"""Of tiles of the usual size: with more a program has half as many outputs, so that registers suffice."""

_MANY = 5
"""Quotients from which on they are divided for: smaller ones are counted."""


class _Line(NamedTuple):
    """One spatial axis; `step` are places between neighbours in memory, `weight` in what indices count."""

    large: int
    stride: int
    begin: int
    step: int
    weight: int


class _Planes(NamedTuple):
    """Elements of a plane of what is read, of x, in which indices count, and of what is written."""

    read: int
    counted: int
    written: int


class _Call(NamedTuple):
    """What the kernel gets beside its tensors; the grid is that of outputs."""

    grid: Grid
    lines: tuple[_Line, ...]
    planes: _Planes


@dataclass(frozen=True)
class _How:
    """What the compiled kernel depends on.

    Attributes:
        tile: of outputs.
        neighbours: taps along the last axis that are read together.
        aligned: what divides the places at which rows begin that neighbours are read from.
        carries: along each axis that rows are counted, how often at most it ends within a tile.
        window: its size along each axis.
        dilation: along each axis.
        is_cut: of each axis, whether taps lie beside the data.
        taps: of a window, in all.
        has_empty: whether there are windows without data.
        lowest: bits of what those give.
        kind: of the elements.
        nan_last: as in Pool.
        is_column_major: as in Pool.
        is_first: whether x is read, rather than what the pass before wrote.
        places: what is written of places: "none", "places" for the next pass, or "indices".
        per_plane: as in Pool.
        activation: of the last pass.
        params: what it takes.
    """

    tile: Tile
    neighbours: int
    aligned: int
    carries: tuple[int, ...]
    window: tuple[int, ...]
    dilation: tuple[int, ...]
    is_cut: tuple[bool, ...]
    taps: int
    has_empty: bool
    lowest: int
    kind: str
    nan_last: bool
    is_column_major: bool
    is_first: bool
    places: str
    per_plane: bool
    activation: str
    params: tuple[float, ...]


@dataclass(frozen=True)
class _Pass:
    """One start of the kernel, which writes so many bits and places of (bits, places known of them, bits, places)."""

    start: Start
    how: _How
    elements: int

    def between(self, x: torch.Tensor, known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The bits and the places that the next pass reads."""
        y = torch.empty(self.elements, dtype=x.dtype, device=x.device)
        if self.how.places == "none":
            places = y
        else:
            places = torch.empty(
                self.elements, dtype=torch.int64 if self.how.tile.is_wide else torch.int32, device=x.device
            )
        self.start(x, known, y, places)
        return y, places


def launch(pool: Pool, has_indices: bool) -> Run:
    """What computes a call."""
    steps = passes(tuple(map(clipped, pool.axes)))
    largest = max(_largest(pool, axes) for axes in steps)
    *before, last = (_pass(pool, steps, number, has_indices, largest) for number in range(len(steps)))

    def run(x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor | None) -> None:
        read = known = bits_of(x)
        for each in before:
            read, known = each.between(read, known)
        last.start(read, known, bits_of(y), bits_of(y) if indices is None else indices)

    return run


def _largest(pool: Pool, axes: Axes) -> int:
    """The largest number that places are computed with."""
    places = max(math.prod(axis.large for axis in axes), math.prod(axis.small for axis in axes))
    reach = max(axis.small * axis.window.stride + axis.window.reach + abs(axis.begin) for axis in axes)
    return max(pool.batch * pool.channels * places, reach)


def _pass(pool: Pool, steps: tuple[Axes, ...], number: int, has_indices: bool, largest: int) -> _Pass:
    """The pass of a number; places are computed with numbers up to `largest`."""
    axes, is_last = steps[number], number == len(steps) - 1
    has_empty = any(_has_empty(axis) for each in steps for axis in each)
    neighbours = 1 if pool.is_channels_last or has_empty else _neighbours_of(axes[-1])
    aligned = math.gcd(axes[-1].large, 16) if neighbours > 1 else 1
    walked = axes if neighbours == 1 else (*axes[:-1], resting(axes[-1].large))
    windows = [axis.window for axis in walked]
    grid = grid_of(pool.batch, pool.channels, tuple(axis.small for axis in axes), pool.is_channels_last)
    tile = tile_for(grid, pool.is_channels_last, largest)
    if math.prod(each.size for each in windows) > _MOST_TAPS:
        tile = replace(tile, rows=max(1, tile.rows // 2))
    folded = grid.sizes if pool.is_channels_last else grid.sizes[:-1]
    how = _How(
        tile, neighbours, aligned, _carries(folded, tile.rows), tuple(each.size for each in windows),
        tuple(each.dilation if each.size > 1 else 1 for each in windows), tuple(map(_is_cut, walked)),
        math.prod(each.size for each in windows), has_empty, pool.lowest, pool.kind, pool.nan_last,
        pool.is_column_major, number == 0, ("indices" if is_last else "places") if has_indices else "none",
        pool.per_plane, pool.activation if is_last else "", bounds(pool.kind, pool.params) if is_last else (),
    )  # fmt: skip
    lines = tuple(_line(walked, each, pool.is_column_major) for each in range(len(axes)))
    read, counted = (math.prod(axis.large for axis in each) for each in (axes, steps[0]))
    planes = _Planes(read, counted, math.prod(grid.sizes))
    start = Start(pool_windows, programs(grid, tile), _Call(grid, lines, planes), how)
    return _Pass(start, how, pool.batch * pool.channels * planes.written)


def _carries(sizes: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """How often each axis ends at most while so many rows are counted, the last axis first; or at least _MANY times.

    >>> _carries((28, 28), 32), _carries((), 1)
    ((1, 2), ())
    """
    carries: tuple[int, ...] = ()
    more = rows - 1
    for size in reversed(sizes):
        more = (size - 1 + more) // max(size, 1)
        carries = (min(more, _MANY), *carries)
    return carries


def _neighbours_of(axis: Axis) -> int:
    """How many taps along the last axis are read together: those of windows side by side, or just one.

    Rows that begin at multiples of 4, 8 or 16 elements are then read in wide loads; `aligned` says so to the compiler.
    """
    count = axis.window.size
    is_tiled = axis == Axis(axis.small * count, axis.small, Window(count, count))
    return count if is_tiled and count in (2, 4) and axis.large % 4 == 0 else 1


def _line(axes: Axes, number: int, is_column_major: bool) -> _Line:
    axis = axes[number]
    step = math.prod(other.large for other in axes[number + 1 :])
    before = math.prod(other.large for other in axes[:number])
    stride = axis.window.stride if axis.small > 1 else 1
    return _Line(axis.large, stride, axis.begin, step, before if is_column_major else step)


def _is_cut(axis: Axis) -> bool:
    """Whether a tap lies beside the data."""
    end = (axis.small - 1) * axis.window.stride + axis.window.reach - axis.begin
    return axis.begin > 0 or end > axis.large


def _has_empty(axis: Axis) -> bool:
    """Whether there may be a window without data."""
    window, corner = axis.window, (axis.small - 1) * axis.window.stride - axis.begin
    return window.reach <= axis.begin or corner >= axis.large or window.dilation > axis.large
