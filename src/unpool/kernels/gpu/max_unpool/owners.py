"""Max unpooling of any indices: the last element that points to a place owns it.

Elements of a tensor as large as y hold the flat position of their owner, the largest of all that point there: it is
found by atomic maxima, whose order does not matter, so that the result is the same every time. Where an index is out of
range, y becomes NaN if it is memory of our own, and stays as it is if it is the caller's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.activation import activated
from unpool.kernels.gpu.elements import narrow
from unpool.kernels.gpu.launch import LIMIT32, Start, blocks
from unpool.kernels.gpu.max_unpool.judge import How, Judged, how_of, judged_of, ruling
from unpool.kernels.gpu.tiles import Strides, strides_of

if TYPE_CHECKING:
    from unpool.kernels.gpu.max_unpool.unpool import Unpool

_BLOCK = 1024
_MOST_PROGRAMS = 2048
"""Each takes several blocks, so that those with nothing to do are gone quickly."""


class Size(NamedTuple):
    """All elements of y, and its channels."""

    places: int
    channels: int


class Call(NamedTuple):
    """What the kernels get beside their tensors."""

    judged: Judged
    size: Size
    x: Strides
    y: Strides


@dataclass(frozen=True)
class Owned:
    """What the compiled kernels depend on."""

    judged: How
    kind: str
    activation: str
    params: tuple[float, ...]
    block: int = _BLOCK


def launch(unpool: "Unpool") -> Callable[..., None]:
    """What writes y of (x, indices, y, verdict, whether y is the caller's), if it is its turn."""
    strides = (strides_of(unpool.channels, size, unpool.is_channels_last) for size in (unpool.small, unpool.large))
    call = Call(judged_of(unpool), Size(unpool.planes * unpool.large, unpool.channels), *strides)
    how = Owned(how_of(unpool), unpool.kind, unpool.activation, unpool.params)
    kind = torch.int64 if call.judged.counts.positions >= LIMIT32 else torch.int32
    over_y, over_x = (
        min(_MOST_PROGRAMS, blocks(count, _BLOCK)) for count in (call.size.places, call.judged.counts.positions)
    )
    clearing, claiming, collecting = (
        Start(kernel, programs, call, how) for kernel, programs in ((clear, over_y), (claim, over_x), (collect, over_y))
    )

    def run(x, indices, y, verdict, is_callers):
        owners = torch.empty(call.size.places, dtype=kind, device=y.device)
        clearing(owners, verdict)
        claiming(indices, owners, verdict)
        collecting(x, owners, y, verdict, is_callers)

    return run


@triton.jit
def clear(owners, verdict, call, how: tl.constexpr):
    """Nobody owns anything."""
    BLOCK: tl.constexpr = how.block
    judged: tl.constexpr = how.judged
    _, is_right, is_near = ruling(verdict, judged)
    if is_right & (is_near == 0):
        for block in range(tl.program_id(0), tl.cdiv(call.size.places, BLOCK), tl.num_programs(0)):
            place = (tl.zeros([BLOCK], tl.int64) + block) * BLOCK + tl.arange(0, BLOCK)
            tl.store(owners + place, tl.full([BLOCK], -1, owners.dtype.element_ty), mask=place < call.size.places)


@triton.jit
def claim(indices, owners, verdict, call, how: tl.constexpr):
    """Of the elements that point to a place the last one becomes its owner."""
    BLOCK: tl.constexpr = how.block
    judged: tl.constexpr = how.judged
    is_inferred, is_right, is_near = ruling(verdict, judged)
    if is_right & (is_near == 0):
        for block in range(tl.program_id(0), tl.cdiv(call.judged.counts.positions, BLOCK), tl.num_programs(0)):
            position = (tl.zeros([BLOCK], tl.int64) + block) * BLOCK + tl.arange(0, BLOCK)
            is_there = position < call.judged.counts.positions
            place = tl.load(indices + position, mask=is_there, other=0)
            if judged.per_plane:
                place += position // call.judged.counts.small * call.judged.counts.large
            if judged.has_inferred:
                place = tl.where(is_inferred, _rebased(place, call.judged), place)
            tl.atomic_max(owners + place, position.to(owners.dtype.element_ty), mask=is_there)


@triton.jit
def _rebased(index, judged):
    """An index of the inferred tensor as that of the same coordinates in y."""
    place = index * 0
    step = 1
    for number in tl.static_range(len(judged.lines) - 1, -1, -1):
        line = judged.lines[number]
        size = tl.maximum(line.inferred, 1)
        place += index % size * step
        index = index // size
        step *= line.large
    return place + index * judged.counts.large


@triton.jit
def collect(x, owners, y, verdict, is_callers, call, how: tl.constexpr):
    """Every element of y is that of its owner, or zero; or NaN, where an index is wrong."""
    BLOCK: tl.constexpr = how.block
    judged: tl.constexpr = how.judged
    kind: tl.constexpr = how.kind
    activation: tl.constexpr = how.activation
    params: tl.constexpr = how.params
    _, is_right, is_near = ruling(verdict, judged)
    if (is_right & (is_near == 0)) | ((is_right == 0) & (is_callers == 0)):
        owned = tl.where(is_right, call.size.places, 0)
        for block in range(tl.program_id(0), tl.cdiv(call.size.places, BLOCK), tl.num_programs(0)):
            place = (tl.zeros([BLOCK], tl.int64) + block) * BLOCK + tl.arange(0, BLOCK)
            is_there = place < call.size.places
            owner = tl.load(owners + place, mask=place < owned, other=-1).to(tl.int64)
            source = _offset(tl.maximum(owner, 0), call.x, call.size.channels)
            bits = tl.load(x + source, mask=owner >= 0, other=0)
            bits = activated(bits, kind, activation, params)
            wide: tl.constexpr = tl.float64 if kind == "float64" else tl.float32
            nothing = narrow(tl.full([BLOCK], float("nan"), wide), kind)
            target = _offset(place, call.y, call.size.channels)
            tl.store(y + target, tl.where(is_right, bits, nothing), mask=is_there)


@triton.jit
def _offset(flat, strides, channels):
    """Where element `flat` of (N, C, D1..Dk) is in memory."""
    size = tl.maximum(strides.plane, 1)
    outer = flat // size
    return outer // channels * strides.batch + outer % channels * strides.channel + flat % size * strides.place
