"""Gradients on indices that count inside their own plane.

    spread:   y[n, c, i] = sum of grad[n, c, p] over the positions p with indices[n, c, p] = i; 0 elsewhere
    add_near: the same, where every index lies in the window of its position, and few windows reach an element
    collect:  y[n, c, p] = grad[n, c, indices[n, c, p]]

Spreading sorts the positions by their index, stably, and adds each run of equal ones in its order: no two programs add
to one place, and results are the same every time. -1 leaves an element out, or gives 0. An index outside its plane does
so too, and the verdict, a tensor of one int64, is its flat position; NOTHING if there is none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.elements import KINDS, bits_of, narrow, widen
from unpool.kernels.gpu.launch import Start, blocks
from unpool.kernels.gpu.max_unpool import cells
from unpool.kernels.gpu.max_unpool.judge import NOTHING, note
from unpool.kernels.gpu.max_unpool.unpool import Unpool
from unpool.kernels.gpu.tiles import Grid, elements_of, grid_of, programs, tile_for

_BLOCK = 1024
_KEPT = 1024


class Counts(NamedTuple):
    """Elements of small tensors, of a plane of them, and of a plane of large ones."""

    all: int
    small: int
    large: int


class Taking(NamedTuple):
    """What `take` gets beside its tensors."""

    grid: Grid
    counts: Counts


@dataclass(frozen=True)
class Summing:
    """What `sum_runs` depends on."""

    kind: str
    block: int = _BLOCK


def spread(grad: torch.Tensor, indices: torch.Tensor, large: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of grad, (N, C, large), and the verdict; grad and int64 indices are (N, C, ..) without gaps."""
    count, outer = grad.numel(), tuple(grad.shape[:2])
    y = torch.zeros((*outer, large), dtype=grad.dtype, device=grad.device)
    verdict = _verdict(grad)
    places = torch.empty(count, dtype=torch.int64, device=grad.device)
    numbering, summing = _spreading(Counts(count, count // max(1, outer[0] * outer[1]), large), KINDS[grad.dtype])
    numbering(indices, places, verdict)
    places, positions = torch.sort(places, stable=True)
    summing(bits_of(grad), places, positions, bits_of(y))
    return y, verdict


@lru_cache(_KEPT)
def _spreading(counts: Counts, kind: str) -> tuple[Start, Start]:
    programs = blocks(counts.all, _BLOCK)
    return Start(number_places, programs, counts, _BLOCK), Start(sum_runs, programs, counts, Summing(kind))


def add_near(
    axes: tuple[Axis, ...], batch: int, channels: int, kind: str
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]:
    """What writes y of (grad, indices, y), all without gaps, where `cells.fits`: an unpooling that adds."""
    unpooling = cells.launch(Unpool(axes, (), batch, channels, kind, per_plane=True), adds=True)

    def run(grad: torch.Tensor, indices: torch.Tensor, y: torch.Tensor) -> None:
        unpooling(bits_of(grad), indices, bits_of(y), indices)

    return run


def collect(grad: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What grad, (N, C, large), holds at the indices, in their shape, and the verdict; both have no gaps."""
    planes, large = grad.shape[0] * grad.shape[1], grad.shape[-1]
    y = torch.empty(indices.shape, dtype=grad.dtype, device=grad.device)
    verdict = _verdict(grad)
    counts = Counts(indices.numel(), indices.numel() // max(1, planes), large)
    _taking(counts, planes)(bits_of(grad), indices, bits_of(y), verdict)
    return y, verdict


@lru_cache(_KEPT)
def _taking(counts: Counts, planes: int) -> Start:
    grid = grid_of(planes, 1, (counts.small,), False)
    tile = tile_for(grid, False, planes * max(counts.small, counts.large))
    return Start(take, programs(grid, tile), Taking(grid, counts), tile)


def _verdict(model: torch.Tensor) -> torch.Tensor:
    return torch.full((1,), NOTHING, dtype=torch.int64, device=model.device)


@triton.jit
def number_places(indices, places, verdict, counts, block: tl.constexpr):
    """Places in the whole tensor, -1 for an index that counts for nothing."""
    position = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_there = position < counts.all
    index = tl.load(indices + position, mask=is_there, other=-1)
    is_inside = (index >= 0) & (index < counts.large)
    place = position // counts.small * counts.large + index
    tl.store(places + position, tl.where(is_inside, place, -1), mask=is_there)
    note(verdict, position, (index < -1) | (index >= counts.large))


@triton.jit
def sum_runs(grad, places, positions, y, counts, how: tl.constexpr):
    """Of each run of equal places that begins in this block the sum; grad and y are bits."""
    kind: tl.constexpr = how.kind
    block: tl.constexpr = how.block
    count = counts.all
    number = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    place = tl.load(places + number, mask=number < count, other=-1)
    before = tl.load(places + (number - 1), mask=(number > 0) & (number < count), other=-1)
    begins = (place >= 0) & (place != before)
    total = tl.zeros([block], tl.float64 if kind == "float64" else tl.float32)
    runs = begins
    while tl.max(runs.to(tl.int32)) > 0:
        position = tl.load(positions + number, mask=runs, other=0)
        added = widen(tl.load(grad + position, mask=runs, other=0), kind)
        total = tl.where(runs, total + added, total)
        number += 1
        following = tl.load(places + number, mask=runs & (number < count), other=-1)
        runs = runs & (following == place)
    tl.store(y + place, narrow(total, kind), mask=begins)


@triton.jit
def take(grad, indices, y, verdict, call, tile: tl.constexpr):
    """One tile of y, whose rows are planes: elements of grad, as bits; 0 for an index that counts for nothing."""
    large = call.counts.large
    at, plane, _, is_there = elements_of(call.grid, tile)
    position = plane * call.counts.small + at[0]
    index = tl.load(indices + position, mask=is_there, other=-1)
    is_inside = (index >= 0) & (index < large)
    bits = tl.load(grad + (plane.to(tl.int64) * large + index), mask=is_inside, other=0)
    tl.store(y + position, bits, mask=is_there)
    wrong = is_there & (is_inside == 0) & (index != -1)
    if tl.max(wrong.to(tl.int32)) > 0:
        note(verdict, position.to(tl.int64), wrong)
