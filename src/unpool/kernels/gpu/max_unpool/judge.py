"""Reads every index of max unpooling and notes what is wrong with it.

    verdict[RANGE + 2 * space]      flat position of the first index that is outside the tensor that it counts in
    verdict[RANGE + 2 * space + 1]  flat position of the first index that is outside the window of its element

Space 0 is the tensor that is written, space 1 the inferred one. A verdict of NOTHING means that there is no such index.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.launch import LIMIT32, Start
from unpool.kernels.gpu.tiles import Grid, Tile, elements_of, grid_of, place_of, programs, tile_for

if TYPE_CHECKING:
    from unpool.kernels.gpu.max_unpool.unpool import Unpool

NOTHING = 2**63 - 1


class Line(NamedTuple):
    """One spatial axis; `large` and `inferred` are its sizes in the two spaces."""

    small: int
    window: int
    stride: int
    begin: int
    large: int
    inferred: int


class Counts(NamedTuple):
    """Elements of indices, and of a plane of them; planes, and the elements of one in the two spaces."""

    positions: int
    small: int
    planes: int
    large: int
    inferred: int


class Judged(NamedTuple):
    """What kernels get of a call."""

    lines: tuple[Line, ...]
    counts: Counts


@dataclass(frozen=True)
class How:
    """What the compiled kernels depend on."""

    per_plane: bool
    has_inferred: bool
    prefers_inferred: bool


class Call(NamedTuple):
    """What the kernel gets beside its tensors; the grid is that of the indices."""

    grid: Grid
    judged: Judged


@dataclass(frozen=True)
class Judging:
    """What the compiled kernel depends on; has_wide_planes means that indices inside a plane have 64 bits."""

    tile: Tile
    judged: How
    has_wide_planes: bool


def judged_of(unpool: "Unpool") -> Judged:
    """What kernels get of a call."""
    own, inferred = unpool.spaces
    lines = tuple(
        Line(axis.small, axis.window.size, axis.window.stride, axis.begin, own[number], inferred[number])
        for number, axis in enumerate(unpool.axes)
    )
    counts = Counts(unpool.planes * unpool.small, unpool.small, unpool.planes, unpool.large, math.prod(inferred))
    return Judged(lines, counts)


def how_of(unpool: "Unpool") -> How:
    """What the compiled kernels depend on."""
    return How(unpool.per_plane, unpool.index_space != "output", unpool.index_space == "inferred")


def blank(device: torch.device) -> torch.Tensor:
    """A new verdict, four int64, that finds nothing wrong."""
    return torch.full((4,), NOTHING, dtype=torch.int64, device=device)


def launch(unpool: "Unpool") -> Callable[[torch.Tensor, torch.Tensor], None]:
    """What judges (indices, verdict)."""
    grid = grid_of(unpool.batch, unpool.channels, tuple(axis.small for axis in unpool.axes), False)
    tile = tile_for(grid, False, LIMIT32 if unpool.is_wide else 0)
    call = Call(grid, judged_of(unpool))
    planes = call.judged.counts.large, call.judged.counts.inferred
    how = Judging(tile, how_of(unpool), max(planes) >= LIMIT32)
    return Start(judge_indices, programs(grid, tile), call, how)


@triton.jit
def judge_indices(indices, verdict, call, how: tl.constexpr):
    """One tile of indices, int64 (N, C, d1..dk); in a tile without fault nothing is written."""
    tile: tl.constexpr = how.tile
    judged: tl.constexpr = how.judged
    at, batch, channel, is_there = elements_of(call.grid, tile)
    plane = batch * call.grid.extent.channels + channel
    position = plane * call.judged.counts.small + place_of(at, call.grid.sizes)
    index = tl.load(indices + position, mask=is_there, other=0)
    read = (index, plane, is_there)
    _judge_space(position, read, at, verdict, call.judged, how, 0)
    if judged.has_inferred:
        _judge_space(position, read, at, verdict + 2, call.judged, how, 1)


@triton.jit
def _judge_space(position, read, at, verdict, call, how: tl.constexpr, space: tl.constexpr):
    """Notes what is wrong in one space; `read` are indices, their planes, and whether there are such indices."""
    judged: tl.constexpr = how.judged
    index, plane, is_there = read
    large = (call.counts.inferred if space else call.counts.large).to(tl.int64)
    if judged.per_plane:
        inside = index
        is_inside = (index >= 0) & (index < large)
        is_own = is_inside
    else:
        inside = index - plane * large
        is_inside = (index >= 0) & (index < call.counts.planes * large)
        is_own = (inside >= 0) & (inside < large)
    inside = tl.where(is_own, inside, 0)
    if not how.has_wide_planes:
        inside = inside.to(tl.int32)
    apart = is_there & ((is_own & _is_in_window(at, inside, call, space)) == 0)
    if tl.max(apart.to(tl.int32)) > 0:  # what is wrong is apart, too
        note(verdict, position.to(tl.int64), is_there & (is_inside == 0))
        note(verdict + 1, position.to(tl.int64), apart)


@triton.jit
def _is_in_window(at, inside, call, space: tl.constexpr):
    """Whether places of a plane lie in the windows of the elements at coordinates, axis by axis."""
    is_in = inside >= 0
    for number in tl.static_range(len(call.lines) - 1, -1, -1):
        line = call.lines[number]
        first = at[number] * line.stride - line.begin
        if number:
            size = tl.maximum(line.inferred if space else line.large, 1)
            place = inside % size
            inside = inside // size
        else:
            place = inside
        is_in = is_in & (place >= first) & (place < first + line.window)
    return is_in


@triton.jit
def note(place, position, is_wrong):
    """Keep the first position, int64; without any no memory is touched."""
    first = tl.min(tl.where(is_wrong, position, 9223372036854775807))
    tl.atomic_min(place, first, mask=first < 9223372036854775807)


@triton.jit
def ruling(verdict, how: tl.constexpr):
    """What is to be done: whether indices count in space 1, and whether all are in range, and in their windows."""
    nothing: tl.constexpr = 9223372036854775807
    is_inferred = False
    is_right = tl.load(verdict) == nothing
    is_near = tl.load(verdict + 1) == nothing
    if how.has_inferred:
        fits = tl.load(verdict + 3) == nothing
        is_inferred = (fits & (is_near == 0)) | how.prefers_inferred
        is_right = tl.where(is_inferred, tl.load(verdict + 2) == nothing, is_right)
        is_near = tl.where(is_inferred, fits, is_near)
    return is_inferred, is_right, is_near
