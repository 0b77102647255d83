"""Max unpooling of any indices: the last element whose index is a place owns the place.

A tensor as large as y holds the flat position of the owner of each place, the largest of all with this index. Atomic
maxima find it, in any order, so that the result is the same every time. If an index is out of range, y becomes NaN in
memory of our own, and keeps its content in memory of the caller.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from unpool.kernels.gpu.elements import activated, narrow
from unpool.kernels.gpu.launch import LIMIT32, Launcher, blocks
from unpool.kernels.gpu.max_unpool.check_indices import GpuUnpoolProblem, IndexArgs, IndexSpaces, read_result
from unpool.kernels.gpu.tiles import TensorStrides, strides_of

_BLOCK = 1024
_MAX_PROGRAMS = 2048  # each takes several blocks, so that programs without work end quickly


class OutputSize(NamedTuple):
    """Number of elements of y, and of its channels."""

    places: int
    channels: int


class ScatterArgs(NamedTuple):
    """Arguments of the kernels in addition to their tensors."""

    indexing: IndexArgs
    size: OutputSize
    x: TensorStrides
    y: TensorStrides


@dataclass(frozen=True)
class ScatterMeta:
    """Constants of the compiled kernels."""

    spaces: IndexSpaces
    kind: str
    activation: str
    params: tuple[float, ...]
    block: int = _BLOCK


def launch(problem: GpuUnpoolProblem) -> Callable[..., None]:
    """A function that writes y of (x, indices, y, result, whether y is the caller's), if the result requires it."""
    strides = (strides_of(problem.channels, size, problem.is_channels_last) for size in (problem.small, problem.large))
    args = ScatterArgs(problem.indexing, OutputSize(problem.planes * problem.large, problem.channels), *strides)
    meta = ScatterMeta(problem.spaces, problem.kind, problem.activation, problem.params)
    kind = torch.int64 if args.indexing.counts.positions >= LIMIT32 else torch.int32
    over_y, over_x = (
        min(_MAX_PROGRAMS, blocks(count, _BLOCK)) for count in (args.size.places, args.indexing.counts.positions)
    )
    clear, find, copy = (
        Launcher(kernel, programs, args, meta)
        for kernel, programs in ((clear_owners, over_y), (find_owners, over_x), (copy_owned, over_y))
    )

    def run(x, indices, y, result, is_callers):
        owners = torch.empty(args.size.places, dtype=kind, device=y.device)
        clear(owners, result)
        find(indices, owners, result)
        copy(x, owners, y, result, is_callers)

    return run


@triton.jit
def clear_owners(owners, result, args, meta: tl.constexpr):
    """Set every owner to -1, no owner."""
    BLOCK: tl.constexpr = meta.block
    _, all_in_range, all_in_window = read_result(result, meta)
    if all_in_range & (all_in_window == 0):
        for block in range(tl.program_id(0), tl.cdiv(args.size.places, BLOCK), tl.num_programs(0)):
            place = (tl.zeros([BLOCK], tl.int64) + block) * BLOCK + tl.arange(0, BLOCK)
            tl.store(owners + place, tl.full([BLOCK], -1, owners.dtype.element_ty), mask=place < args.size.places)


@triton.jit
def find_owners(indices, owners, result, args, meta: tl.constexpr):
    """Make the last element of each index the owner of its place."""
    BLOCK: tl.constexpr = meta.block
    spaces: tl.constexpr = meta.spaces
    uses_inferred, all_in_range, all_in_window = read_result(result, meta)
    if all_in_range & (all_in_window == 0):
        for block in range(tl.program_id(0), tl.cdiv(args.indexing.counts.positions, BLOCK), tl.num_programs(0)):
            position = (tl.zeros([BLOCK], tl.int64) + block) * BLOCK + tl.arange(0, BLOCK)
            mask = position < args.indexing.counts.positions
            place = tl.load(indices + position, mask=mask, other=0)
            if spaces.per_plane:
                place += position // args.indexing.counts.small * args.indexing.counts.large
            if spaces.has_inferred:
                place = tl.where(uses_inferred, _rebase(place, args.indexing), place)
            tl.atomic_max(owners + place, position.to(owners.dtype.element_ty), mask=mask)


@triton.jit
def _rebase(index, indexing):
    """The index in y of the coordinates that an index of the inferred tensor has."""
    place = index * 0
    step = 1
    for number in tl.static_range(len(indexing.dims) - 1, -1, -1):
        dim = indexing.dims[number]
        size = tl.maximum(dim.inferred, 1)
        place += index % size * step
        index = index // size
        step *= dim.large
    return place + index * indexing.counts.large


@triton.jit
def copy_owned(x, owners, y, result, is_callers, args, meta: tl.constexpr):
    """Write to every element of y its owner, or zero; or NaN if an index is out of range."""
    BLOCK: tl.constexpr = meta.block
    kind: tl.constexpr = meta.kind
    _, all_in_range, all_in_window = read_result(result, meta)
    if (all_in_range & (all_in_window == 0)) | ((all_in_range == 0) & (is_callers == 0)):
        n_owned = tl.where(all_in_range, args.size.places, 0)
        for block in range(tl.program_id(0), tl.cdiv(args.size.places, BLOCK), tl.num_programs(0)):
            place = (tl.zeros([BLOCK], tl.int64) + block) * BLOCK + tl.arange(0, BLOCK)
            mask = place < args.size.places
            owner = tl.load(owners + place, mask=place < n_owned, other=-1).to(tl.int64)
            source = _offset(tl.maximum(owner, 0), args.x, args.size.channels)
            bits = tl.load(x + source, mask=owner >= 0, other=0)
            bits = activated(bits, meta)
            wide: tl.constexpr = tl.float64 if kind == "float64" else tl.float32
            nan = narrow(tl.full([BLOCK], float("nan"), wide), kind)
            target = _offset(place, args.y, args.size.channels)
            tl.store(y + target, tl.where(all_in_range, bits, nan), mask=mask)


@triton.jit
def _offset(flat, strides, channels):
    """Offset in memory of element `flat` of (N, C, D1..Dk)."""
    size = tl.maximum(strides.plane, 1)
    outer = flat // size
    return outer // channels * strides.batch + outer % channels * strides.channel + flat % size * strides.place
