"""A max unpooling as its kernels take it, and the check of its indices: the first faults.

    result[RANGE + 2 * space]      flat position of the first index that is outside the tensor that it counts in
    result[RANGE + 2 * space + 1]  flat position of the first index that is outside the window of its element

Space 0 is the tensor that is written, space 1 the inferred one. NO_POSITION stands for no such index.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from unpool.geometry import Axis
from unpool.kernels.gpu.launch import LIMIT32, Launcher
from unpool.kernels.gpu.tiles import TileGrid, TileShape, elements_of, grid_of, place_of, programs, tile_for

NO_POSITION = 2**63 - 1


class IndexDim(NamedTuple):
    """One spatial axis; `large` and `inferred` are its sizes in the two spaces."""

    small: int
    window: int
    stride: int
    begin: int
    large: int
    inferred: int


class IndexCounts(NamedTuple):
    """Elements of indices, and of a plane of them; planes, and the elements of one in the two spaces."""

    positions: int
    small: int
    planes: int
    large: int
    inferred: int


class IndexArgs(NamedTuple):
    """The two spaces that indices may count in."""

    dims: tuple[IndexDim, ...]
    counts: IndexCounts


@dataclass(frozen=True)
class IndexSpaces:
    """Constants of the compiled kernels about the spaces of indices."""

    per_plane: bool
    has_inferred: bool
    prefers_inferred: bool


@dataclass(frozen=True, slots=True)
class GpuUnpoolProblem:
    """One call: zeros, with every element of x at its index."""

    axes: tuple[Axis, ...]  # whose large size is that of y
    inferred: tuple[int, ...]  # the other spatial sizes that indices may count in
    batch: int
    channels: int
    kind: str  # of the elements, by its name in `unpool.dtypes`
    index_space: str = "output"  # or "inferred" or "auto"
    is_channels_last: bool = False  # x and y are (N, D1..Dk, C) in memory
    per_plane: bool = False  # indices count inside their own plane, instead of the whole tensor
    activation: str = ""
    params: tuple[float, ...] = ()

    @property
    def planes(self) -> int:
        """N * C."""
        return self.batch * self.channels

    @property
    def small(self) -> int:
        """Elements of a plane of x."""
        return math.prod(axis.small for axis in self.axes)

    @property
    def large(self) -> int:
        """Elements of a plane of y."""
        return math.prod(axis.large for axis in self.axes)

    @property
    def is_wide(self) -> bool:
        """True if places have 64 bits."""
        reaches = [max(x.large, x.small * x.window.stride) + x.window.reach + x.begin for x in self.axes]
        return max(self.planes * max(self.large, self.small), *reaches) >= LIMIT32

    @property
    def spaces(self) -> IndexSpaces:
        """Constants of kernels that read indices."""
        return IndexSpaces(self.per_plane, self.index_space != "output", self.index_space == "inferred")

    @property
    def indexing(self) -> IndexArgs:
        """Arguments of kernels that read indices: spaces 0 and 1 are equal unless the inferred one may apply."""
        inferred = tuple(axis.large for axis in self.axes) if self.index_space == "output" else self.inferred
        dims = tuple(
            IndexDim(axis.small, axis.window.size, axis.window.stride, axis.begin, axis.large, size)
            for axis, size in zip(self.axes, inferred, strict=True)
        )
        planes, small = self.planes, self.small
        return IndexArgs(dims, IndexCounts(planes * small, small, planes, self.large, math.prod(inferred)))


class CheckArgs(NamedTuple):
    """Arguments of the kernel in addition to its tensors; the grid is that of the indices."""

    grid: TileGrid
    indexing: IndexArgs


@dataclass(frozen=True)
class CheckMeta:
    """Constants of the compiled kernel; has_wide_planes means that indices inside a plane have 64 bits."""

    tile: TileShape
    spaces: IndexSpaces
    has_wide_planes: bool


def new_result(device: torch.device, size: int = 4) -> torch.Tensor:
    """A new result without faults."""
    return torch.full((size,), NO_POSITION, dtype=torch.int64, device=device)


def launch(problem: GpuUnpoolProblem) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A function that checks (indices, result)."""
    grid = grid_of(problem.batch, problem.channels, tuple(axis.small for axis in problem.axes), False)
    tile = tile_for(grid, False, LIMIT32 if problem.is_wide else 0)
    args = CheckArgs(grid, problem.indexing)
    planes = args.indexing.counts.large, args.indexing.counts.inferred
    meta = CheckMeta(tile, problem.spaces, max(planes) >= LIMIT32)
    return Launcher(check_indices, programs(grid, tile), args, meta)


@triton.jit
def check_indices(indices, result, args, meta: tl.constexpr):
    """Check one tile of indices, int64 (N, C, d1..dk); a tile without faults writes nothing."""
    tile: tl.constexpr = meta.tile
    spaces: tl.constexpr = meta.spaces
    coords, batch, channel, mask = elements_of(args.grid, tile)
    plane = batch * args.grid.extent.channels + channel
    position = plane * args.indexing.counts.small + place_of(coords, args.grid.sizes)
    index = tl.load(indices + position, mask=mask, other=0)
    read = (index, plane, mask)
    _check_space(position, read, coords, result, args.indexing, meta, 0)
    if spaces.has_inferred:
        _check_space(position, read, coords, result + 2, args.indexing, meta, 1)


@triton.jit
def _check_space(position, read, coords, result, args, meta: tl.constexpr, space: tl.constexpr):
    """Record the faults in one space; `read` are indices, their planes, and their mask."""
    spaces: tl.constexpr = meta.spaces
    index, plane, mask = read
    large = (args.counts.inferred if space else args.counts.large).to(tl.int64)
    if spaces.per_plane:
        inside = index
        is_inside = (index >= 0) & (index < large)
        is_own = is_inside
    else:
        inside = index - plane * large
        is_inside = (index >= 0) & (index < args.counts.planes * large)
        is_own = (inside >= 0) & (inside < large)
    inside = tl.where(is_own, inside, 0)
    if not meta.has_wide_planes:
        inside = inside.to(tl.int32)
    outside = mask & ((is_own & _is_in_window(coords, inside, args, space)) == 0)
    if tl.max(outside.to(tl.int32)) > 0:  # an index out of range is outside its window, too
        record_first(result, position.to(tl.int64), mask & (is_inside == 0))
        record_first(result + 1, position.to(tl.int64), outside)


@triton.jit
def _is_in_window(coords, inside, args, space: tl.constexpr):
    """True if places of a plane lie in the windows of the elements at `coords`."""
    is_in = inside >= 0
    for number in tl.static_range(len(args.dims) - 1, -1, -1):
        dim = args.dims[number]
        first = coords[number] * dim.stride - dim.begin
        if number:
            size = tl.maximum(dim.inferred if space else dim.large, 1)
            place = inside % size
            inside = inside // size
        else:
            place = inside
        is_in = is_in & (place >= first) & (place < first + dim.window)
    return is_in


@triton.jit
def record_first(place, position, is_fault):
    """Keep the first position of a fault, int64; without faults no memory is touched."""
    first = tl.min(tl.where(is_fault, position, 9223372036854775807))
    tl.atomic_min(place, first, mask=first < 9223372036854775807)


@triton.jit
def read_result(result, meta: tl.constexpr):
    """True if indices count in space 1, if all are in range, and if all are in their windows."""
    spaces: tl.constexpr = meta.spaces
    no_fault: tl.constexpr = 9223372036854775807
    uses_inferred = False
    all_in_range = tl.load(result) == no_fault
    all_in_window = tl.load(result + 1) == no_fault
    if spaces.has_inferred:
        fits_inferred = tl.load(result + 3) == no_fault
        uses_inferred = (fits_inferred & (all_in_window == 0)) | spaces.prefers_inferred
        all_in_range = tl.where(uses_inferred, tl.load(result + 2) == no_fault, all_in_range)
        all_in_window = tl.where(uses_inferred, fits_inferred, all_in_window)
    return uses_inferred, all_in_range, all_in_window
