"""Gradients of pools and unpoolings on indices that count inside their own plane, in row-major tensors.

    scatter_add, launch: y[n, c, i] = sum of grad[n, c, p] over the positions p with indices[n, c, p] = i; 0 elsewhere
    gather_elements:     y[n, c, p] = grad[n, c, indices[n, c, p]]

`launch` is for pools whose windows are known: every index lies in the window of its position, and each element of y is
written once.

| windows that reach an element | kernel | method |
|---|---|---|
| few | unpool_cells | an unpooling that adds |
| nearly all of a plane | sum_planes | compares every window with every element |
| others | gather_windows | walks the windows that reach each element |

`scatter_add` sorts the positions by their index, stably, and adds each run of equal ones in order. So all add in
row-major order, and results are the same every time; 16-bit floats are added in float32 and rounded once. An index of
-1 skips an element, or gives 0. So does an index outside its plane in `scatter_add` and `gather_elements`; their
result, a tensor of one int64, is the flat position of the first such index, or NO_POSITION.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.elements import KINDS, narrow, widen
from unpool.kernels.gpu.launch import Launcher, blocks, power_of_two
from unpool.kernels.gpu.max_unpool import cells, gather
from unpool.kernels.gpu.max_unpool.check_indices import GpuUnpoolProblem, new_result, record_first
from unpool.kernels.gpu.tiles import TileGrid, elements_of, grid_of, programs, reach_of, tile_for

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]  # (grad, indices, y), all without gaps

_BLOCK = 1024
_CACHED_CALLS = 1024
_MAX_PLANE_WINDOWS = 4  # of a plane per window that reaches an element, up to which `sum_planes` is faster
_PLANE_BLOCK = 512


class PlaneCounts(NamedTuple):
    """Elements of small tensors, of a plane of them, and of a plane of large ones."""

    all: int
    small: int
    large: int


class GatherElementsArgs(NamedTuple):
    """Arguments of `gather_kernel` in addition to its tensors."""

    grid: TileGrid
    counts: PlaneCounts


@dataclass(frozen=True)
class SumMeta:
    """Constants of `sum_planes` and `sum_runs`; is_wide means that places have 64 bits."""

    kind: str
    block: int
    is_wide: bool = True


def launch(axes: tuple[Axis, ...], batch: int, channels: int, kind: str) -> Run:
    """A function that computes the gradient of a pool of these windows."""
    problem = GpuUnpoolProblem(axes, (), batch, channels, kind, per_plane=True)
    small, large = problem.small, problem.large
    if cells.fits(axes, is_channels_last=False):
        run = cells.launch(problem, accumulate=True)
    elif small <= _MAX_PLANE_WINDOWS * math.prod(reach_of(axes).counts):
        meta = SumMeta(kind, power_of_two(large, _PLANE_BLOCK), problem.is_wide)
        counts = PlaneCounts(problem.planes * small, small, large)
        start = Launcher(sum_planes, problem.planes * blocks(large, meta.block), counts, meta, warps=2)
        return lambda grad, indices, y: start(grad, indices, y)
    else:
        run = gather.launch(problem, accumulate=True)
    return lambda grad, indices, y: run(grad, indices, y, indices)


def scatter_add(grad: torch.Tensor, indices: torch.Tensor, large: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of grad, (N, C, large), and the result of the check; grad and int64 indices are (N, C, ..) without gaps."""
    count, outer = grad.numel(), tuple(grad.shape[:2])
    y = torch.zeros((*outer, large), dtype=grad.dtype, device=grad.device)
    result = new_result(grad.device, 1)
    places = torch.empty(count, dtype=torch.int64, device=grad.device)
    counts = PlaneCounts(count, count // max(1, outer[0] * outer[1]), large)
    flatten, sum_equal = _scatter_launchers(counts, KINDS[grad.dtype])
    flatten(indices, places, result)
    places, positions = torch.sort(places, stable=True)
    sum_equal(grad, places, positions, y)
    return y, result


@lru_cache(_CACHED_CALLS)
def _scatter_launchers(counts: PlaneCounts, kind: str) -> tuple[Launcher, Launcher]:
    kernels = ((flatten_indices, _BLOCK), (sum_runs, SumMeta(kind, _BLOCK)))
    flatten, sum_equal = (Launcher(kernel, blocks(counts.all, _BLOCK), counts, meta) for kernel, meta in kernels)
    return flatten, sum_equal


def gather_elements(grad: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements of grad (N, C, large) at the indices, in their shape, and the result of the check; without gaps."""
    planes, large = grad.shape[0] * grad.shape[1], grad.shape[-1]
    y = torch.empty(indices.shape, dtype=grad.dtype, device=grad.device)
    result = new_result(grad.device, 1)
    counts = PlaneCounts(indices.numel(), indices.numel() // max(1, planes), large)
    _gather_launcher(counts, planes, grad.dtype)(grad, indices, y, result)
    return y, result


@lru_cache(_CACHED_CALLS)
def _gather_launcher(counts: PlaneCounts, planes: int, _: torch.dtype) -> Launcher:
    grid = grid_of(planes, 1, (counts.small,), False)
    tile = tile_for(grid, False, planes * max(counts.small, counts.large))
    return Launcher(gather_kernel, programs(grid, tile), GatherElementsArgs(grid, counts), tile)


@triton.jit
def sum_planes(grad, indices, y, counts, meta: tl.constexpr):
    """One block of a plane of y, the gradient of x; grad and y are bits. Sums are never -0, so that 0 may be added."""
    SIZE: tl.constexpr = meta.block
    kind: tl.constexpr = meta.kind
    number = tl.program_id(0)
    if meta.is_wide:
        number = number.to(tl.int64)
    across = tl.cdiv(counts.large, SIZE)
    plane = number // across
    place = number % across * SIZE + tl.arange(0, SIZE)
    grad += plane * counts.small
    indices += plane * counts.small
    total = tl.zeros([SIZE], tl.float64 if kind == "float64" else tl.float32)
    for first in range(0, counts.small, 8):
        for ahead in tl.static_range(8):
            mask = first + ahead < counts.small
            index = tl.load(indices + (first + ahead), mask=mask, other=-1)
            added = widen(tl.load(grad + (first + ahead), mask=mask, other=0), kind)
            inside = tl.where(index < counts.large, index, -1).to(place.dtype)
            total += tl.where(place == inside, added, 0.0)
    tl.store(y + (plane * counts.large + place), narrow(total, kind), mask=place < counts.large)


@triton.jit
def flatten_indices(indices, places, result, counts, block: tl.constexpr):
    """Places in the whole tensor, or -1 for an index that is skipped."""
    position = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = position < counts.all
    index = tl.load(indices + position, mask=mask, other=-1)
    is_inside = (index >= 0) & (index < counts.large)
    place = position // counts.small * counts.large + index
    tl.store(places + position, tl.where(is_inside, place, -1), mask=mask)
    record_first(result, position, (index < -1) | (index >= counts.large))


@triton.jit
def sum_runs(grad, places, positions, y, counts, meta: tl.constexpr):
    """The sum of each run of equal places that begins in this block; grad and y are bits."""
    kind: tl.constexpr = meta.kind
    block: tl.constexpr = meta.block
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
def gather_kernel(grad, indices, y, result, args, tile: tl.constexpr):
    """One tile of y, whose rows are planes: elements of grad, as bits; 0 for an index that is skipped."""
    large = args.counts.large
    coords, plane, _, mask = elements_of(args.grid, tile)
    position = plane * args.counts.small + coords[0]
    index = tl.load(indices + position, mask=mask, other=-1)
    is_inside = (index >= 0) & (index < large)
    bits = tl.load(grad + (plane.to(tl.int64) * large + index), mask=is_inside, other=0)
    tl.store(y + position, bits, mask=mask)
    is_fault = mask & (is_inside == 0) & (index != -1)
    if tl.max(is_fault.to(tl.int32)) > 0:
        record_first(result, position.to(tl.int64), is_fault)
