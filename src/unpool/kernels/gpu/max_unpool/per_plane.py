"""Gradients on indices that count inside their own plane, wherever they point.

    spread:   y[n, c, i] = sum of grad[n, c, p] over the positions p with indices[n, c, p] = i; 0 elsewhere
    collect:  y[n, c, p] = grad[n, c, indices[n, c, p]]

Spreading sorts the positions by their index, stably, and adds each run of equal ones in its order: no two programs add
to one place, and results are the same every time. -1 leaves an element out, or gives 0. An index outside its plane does
so too, and the verdict, a tensor of one int64, is its flat position; NOTHING if there is none.
"""

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.elements import KINDS, bits_of, narrow, widen
from unpool.kernels.gpu.launch import blocks
from unpool.kernels.gpu.launch import launch as start
from unpool.kernels.gpu.max_unpool.judge import NOTHING

_BLOCK = 1024


def spread(grad: torch.Tensor, indices: torch.Tensor, large: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of grad, (N, C, large), and the verdict; grad and int64 indices are (N, C, ..) without gaps."""
    count, outer = grad.numel(), tuple(grad.shape[:2])
    y = torch.zeros((*outer, large), dtype=grad.dtype, device=grad.device)
    verdict = _verdict(grad)
    places = torch.empty(count, dtype=torch.int64, device=grad.device)
    small = count // max(1, outer[0] * outer[1])
    start(number_places, blocks(count, _BLOCK), grad.device, (indices, places, verdict, count, small, large, _BLOCK))
    places, positions = torch.sort(places, stable=True)
    arguments = bits_of(grad), places, positions, bits_of(y), count, KINDS[grad.dtype], _BLOCK
    start(sum_runs, blocks(count, _BLOCK), grad.device, arguments)
    return y, verdict


def collect(grad: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What grad, (N, C, large), holds at the indices, in their shape, and the verdict; both have no gaps."""
    count, large = indices.numel(), grad.shape[-1]
    y = torch.empty(indices.shape, dtype=grad.dtype, device=grad.device)
    verdict = _verdict(grad)
    places = torch.empty(count, dtype=torch.int64, device=grad.device)
    small = count // max(1, grad.shape[0] * grad.shape[1])
    start(number_places, blocks(count, _BLOCK), grad.device, (indices, places, verdict, count, small, large, _BLOCK))
    start(take, blocks(count, _BLOCK), grad.device, (bits_of(grad), places, bits_of(y), count, _BLOCK))
    return y, verdict


def _verdict(model: torch.Tensor) -> torch.Tensor:
    return torch.full((1,), NOTHING, dtype=torch.int64, device=model.device)


@triton.jit
def number_places(indices, places, verdict, count, small, large, block: tl.constexpr):
    """Places in the whole tensor, -1 for an index that counts for nothing."""
    position = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_there = position < count
    index = tl.load(indices + position, mask=is_there, other=-1)
    is_inside = (index >= 0) & (index < large)
    tl.store(places + position, tl.where(is_inside, position // small * large + index, -1), mask=is_there)
    first = tl.min(tl.where((index < -1) | (index >= large), position, 9223372036854775807))
    tl.atomic_min(verdict, first, mask=first < 9223372036854775807)


@triton.jit
def sum_runs(grad, places, positions, y, count, kind: tl.constexpr, block: tl.constexpr):
    """Of each run of equal places that begins in this block the sum; grad and y are bits."""
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
def take(grad, places, y, count, block: tl.constexpr):
    """Elements at places, as bits; 0 at -1."""
    position = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_there = position < count
    place = tl.load(places + position, mask=is_there, other=-1)
    tl.store(y + position, tl.load(grad + place, mask=place >= 0, other=0), mask=is_there)
