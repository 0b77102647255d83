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

from unpool.kernels.gpu.launch import blocks
from unpool.kernels.gpu.launch import launch as start

if TYPE_CHECKING:
    from unpool.kernels.gpu.max_unpool.unpool import Unpool

NOTHING = 2**63 - 1
_BLOCK = 1024


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
    block: int = _BLOCK


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


def launch(unpool: "Unpool") -> Callable[[torch.Tensor], torch.Tensor]:
    """What judges indices: a new tensor of four int64 on their device."""
    call, how = judged_of(unpool), how_of(unpool)

    def run(indices: torch.Tensor) -> torch.Tensor:
        verdict = torch.full((4,), NOTHING, dtype=torch.int64, device=indices.device)
        start(judge_indices, blocks(call.counts.positions, how.block), indices.device, (indices, verdict, call, how))
        return verdict

    return run


@triton.jit
def judge_indices(indices, verdict, call, how: tl.constexpr):
    """One block of indices, int64 (N, C, d1..dk); in a block without fault nothing is written."""
    BLOCK: tl.constexpr = how.block
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_there = position < call.counts.positions
    index = tl.load(indices + position, mask=is_there, other=0)
    _judge_space(position, index, is_there, verdict, call, how, 0)
    if how.has_inferred:
        _judge_space(position, index, is_there, verdict + 2, call, how, 1)


@triton.jit
def _judge_space(position, index, is_there, verdict, call, how: tl.constexpr, space: tl.constexpr):
    counts = call.counts
    large = counts.inferred if space else counts.large
    plane = position // counts.small
    if how.per_plane:
        inside = index
        is_inside = (index >= 0) & (index < large)
        is_own = is_inside
    else:
        inside = index - plane * large
        is_inside = (index >= 0) & (index < counts.planes * large)
        is_own = (inside >= 0) & (inside < large)
    wrong = is_there & (is_inside == 0)
    _note(verdict, position, wrong)
    apart = is_there & ((is_own & _is_in_window(position, tl.where(is_own, inside, 0), call, space)) == 0)
    _note(verdict + 1, position, apart)


@triton.jit
def _is_in_window(position, inside, call, space: tl.constexpr):
    """Whether a place of a plane lies in the window of an element, axis by axis."""
    is_in = position >= 0
    for number in tl.static_range(len(call.lines) - 1, -1, -1):
        line = call.lines[number]
        first = (position % line.small) * line.stride - line.begin
        position = position // line.small
        size = tl.maximum(line.inferred if space else line.large, 1)
        at = inside % size
        inside = inside // size
        is_in = is_in & (at >= first) & (at < first + line.window)
    return is_in


@triton.jit
def _note(place, position, is_wrong):
    """Keep the first position; blocks without any touch no memory."""
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
