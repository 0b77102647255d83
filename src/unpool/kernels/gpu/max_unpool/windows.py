"""Max unpooling where every index lies in the window of its element: y is written once, in the order of memory.

A program has a tile of y. Of each element it walks the windows that reach it, in row-major order, and takes x where an
index says so: the last one wins, and where none does there is zero.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl

from unpool.kernels.gpu.activation import activated
from unpool.kernels.gpu.launch import Start
from unpool.kernels.gpu.max_unpool.judge import How, how_of, ruling
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

if TYPE_CHECKING:
    from unpool.kernels.gpu.max_unpool.unpool import Unpool


class Line(NamedTuple):
    """One spatial axis; `large` and `inferred` are its sizes in the two spaces."""

    small: int
    begin: int
    large: int
    inferred: int


class Planes(NamedTuple):
    """Elements of a plane in the two spaces."""

    large: int
    inferred: int


class Call(NamedTuple):
    """What the kernel gets beside its tensors."""

    grid: Grid
    lines: tuple[Line, ...]
    planes: Planes
    x: Strides
    y: Strides


@dataclass(frozen=True)
class Gather:
    """What the compiled kernel depends on."""

    tile: Tile
    judged: How
    reach: Reach
    kind: str
    activation: str
    params: tuple[float, ...]


def launch(unpool: "Unpool") -> Callable[..., None]:
    """What writes y of (x, indices, y, verdict), all but the verdict as bits, if it is its turn."""
    own, inferred = unpool.spaces
    grid = grid_of(unpool.batch, unpool.channels, own, unpool.is_channels_last)
    tile = tile_for(grid, unpool.is_channels_last, 2**31 if unpool.is_wide else 0)
    lines = tuple(Line(axis.small, axis.begin, *sizes) for axis, *sizes in zip(unpool.axes, own, inferred, strict=True))
    strides = (strides_of(unpool.channels, size, unpool.is_channels_last) for size in (unpool.small, unpool.large))
    call = Call(grid, lines, Planes(unpool.large, math.prod(inferred)), *strides)
    how = Gather(tile, how_of(unpool), reach_of(unpool.axes), unpool.kind, unpool.activation, unpool.params)
    return Start(unpool_windows, programs(grid, tile), call, how)


@triton.jit
def unpool_windows(x, indices, y, verdict, call, how: tl.constexpr):
    """One tile of y; nothing where an index lies elsewhere than in its window."""
    judged: tl.constexpr = how.judged
    is_inferred, _, is_near = ruling(verdict, judged)
    if is_near:
        tile: tl.constexpr = how.tile
        kind: tl.constexpr = how.kind
        activation: tl.constexpr = how.activation
        params: tl.constexpr = how.params
        at, batch, channel, inside = elements_of(call.grid, tile)
        own, is_counted = number_of(at, batch * call.grid.extent.channels + channel, call, is_inferred, judged)
        bits = _gathered(x, indices, (at, own, inside & is_counted), batch, channel, call, how)
        target = batch * call.y.batch + channel * call.y.channel + place_of(at, call.grid.sizes) * call.y.place
        tl.store(y + target, activated(bits, kind, activation, params), mask=inside)


@triton.jit
def number_of(at, plane, call, is_inferred, judged: tl.constexpr):
    """The index that means an element of y, and whether any index can."""
    number = at[0].to(tl.int64) * 0
    is_counted = at[0] >= 0
    large = call.planes.large
    for axis in tl.static_range(len(at)):
        size = call.lines[axis].large
        if judged.has_inferred:
            size = tl.where(is_inferred, call.lines[axis].inferred, size)
        number = number * size + at[axis]
        is_counted = is_counted & (at[axis] < size)
    if judged.has_inferred:
        large = tl.where(is_inferred, call.planes.inferred, large)
    if judged.per_plane == 0:
        number += plane.to(tl.int64) * large
    return number, is_counted


@triton.jit
def _gathered(x, indices, here, batch, channel, call, how: tl.constexpr):
    """The bits of the last window that has its maximum here, or zero.

    `here` are coordinates, the indices that mean them, and which elements are there and can be meant.
    """
    ROWS: tl.constexpr = how.tile.rows
    LANES: tl.constexpr = how.tile.lanes
    rows: tl.constexpr = how.reach.rows
    bits = tl.zeros([ROWS, LANES], x.dtype.element_ty)
    from_x = x + batch * call.x.batch + channel * call.x.channel
    from_indices = indices + (batch * call.grid.extent.channels + channel) * call.x.plane
    if how.reach.is_short:
        for number in tl.static_range(rows):
            bits = _with_row(from_x, from_indices, number, here, bits, call, how)
    else:
        for number in range(rows):
            bits = _with_row(from_x, from_indices, number, here, bits, call, how)
    return bits


@triton.jit
def _with_row(x, indices, number, here, bits, call, how: tl.constexpr):
    """The bits so far, or those of one row of windows more; windows come in row-major order."""
    reach: tl.constexpr = how.reach
    along: tl.constexpr = reach.along
    axis: tl.constexpr = len(call.lines) - 1
    row, is_row = window_row(number, here[0], call.lines, reach)
    first = first_window(here[0][axis], call.lines[axis], axis, reach)
    x += (row + first) * call.x.place
    indices += row + first
    windows = (first, is_row & here[2])
    if along <= 16:
        for each in tl.static_range(along):
            bits = _with_window(x, indices, each, windows, here[1], bits, call, how)
    else:
        for each in range(along):
            bits = _with_window(x, indices, each, windows, here[1], bits, call, how)
    return bits


@triton.jit
def _with_window(x, indices, number, windows, own, bits, call, how: tl.constexpr):
    """The bits so far, or those of one window of a row, if its index is the elements' own.

    `windows` are the first ones of rows, where x and indices are, and whether there is such a row.
    """
    steps: tl.constexpr = how.reach.steps
    first, is_row = windows
    ahead = tl.full([1, 1], number * steps[len(steps) - 1], first.dtype)
    is_there = is_row & (first >= -ahead) & (first < call.lines[len(steps) - 1].small - ahead)
    wins = tl.load(indices + ahead, mask=is_there, other=-1) == own
    return tl.where(wins, tl.load(x + ahead * call.x.place, mask=wins, other=0), bits)
