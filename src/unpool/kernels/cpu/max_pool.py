"""Max pooling: routes a call to one of five ways, and cuts it into independent jobs.

| windows | kernel | why |
|---|---|---|
| side by side on data alone, 1, 2 or 4 wide | tiles | each vector is read once, and parted into taps |
| short, overlapping, of floats in planes | rolling | a row is read once, and its maxima stay in registers |
| channels last, few taps | tiles | channels are side by side, whatever the windows are |
| that do not overlap otherwise, or have few taps | direct | each element is read once or twice, in registers |
| channels last, fewer channels than a register holds | direct | its registers may end short |
| a plane of 2**31 elements, or a row too long to lay out | direct | its places have 64 bits, and it lays out nothing |
| the rest: overlapping | separable | work grows with the sum of the window's logarithms, not with its product |
| that share so much that walking them takes forever | doubling | as separable, for planes of any size and layout |
| with NaN | the same, in full where it was noticed | without regard to NaN a comparison is cheaper |
| with a maximum that padding has too | separable, then direct where it was noticed | it cannot tell them apart |
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from unpool.geometry import Axis, Window, clipped, shrinking_walk
from unpool.kept import kept
from unpool.kernels.cpu import max_pool_direct as direct
from unpool.kernels.cpu import max_pool_doubling as doubling
from unpool.kernels.cpu import max_pool_rolling as rolling
from unpool.kernels.cpu import max_pool_separable as separable
from unpool.kernels.cpu import max_pool_tiles as tiles
from unpool.kernels.cpu.max_pool_choice import Plane, is_separable_cheaper, is_separable_possible
from unpool.kernels.cpu.max_pool_separable_plan import Plan, known_stride, plan
from unpool.kernels.cpu.rows import row_plan
from unpool.kernels.cpu.threads import VECTORISED, Launch
from unpool.kernels.cpu.vector import FIRST, LAST

Run: TypeAlias = Callable[[Any, Any, Any, int | None], object]
"""Writes y and indices from x, with at most so many threads."""

_POINT = Window(1)
_ELEMENTS = {
    np.dtype(bits): element
    for bits, element in {
        np.int32: "float32",
        np.int64: "float64",
        np.int16: "int16",
        np.int8: "int8",
        np.uint8: "uint8",
    }.items()
}
_CACHE_BYTES = 1 << 20  # planes beyond this are worth asking for ahead of time
_WORTH_A_KERNEL = 1 << 16  # elements of x below which no kernel is compiled for one window
_FAR_BYTES = 24 << 20  # of x, y and indices, beyond which they come from memory


@dataclass(frozen=True, slots=True)
class Mode:
    """What a pool does the same for all its planes.

    Attributes:
        channels_last: whether the lanes of x are channels.
        nan_last: whether the index of the last NaN of a window is found, rather than of the first.
        per_plane: whether indices count inside their own plane, rather than in the whole tensor.
        was_written: whether the memory of the outputs has been in use before.
    """

    channels_last: bool = False
    nan_last: bool = False
    per_plane: bool = False
    was_written: bool = False


def prepare(x, axes: Sequence[Axis], infinity: int, y, indices, lowest: int, mode: Mode) -> Run:
    """The call that writes the largest element of every window to `y` and where it was found to `indices`.

    Only shapes and types of arrays are looked at here; the call takes (x, y, indices), all C-contiguous.

    Args:
        x: integer view of the elements: (outer, D1..Dk) with outer = N * C, or (N, D1..Dk, C).
        axes: one per spatial axis.
        infinity: bits of +infinity; 0 for integer elements.
        y: same layout and type as x, pooled sizes.
        indices: None where they are not wanted, otherwise int64 in the shape of y: places in the whole (N, C, D1..Dk)
            tensor, or in one plane of it, row-major, -1 where a window holds no data.
        lowest: what such a window gives, as bits.
        mode: layout, NaN, and what indices count in.
    """
    axes = tuple(map(clipped, axes))
    if y.size == 0:
        return Launch(None, 0, 0)
    channels = x.shape[-1] if mode.channels_last else 0
    plane = Plane(axes, Axis(channels, channels, _POINT), channels) if channels else Plane(axes[:-1], axes[-1], 1)
    tiling = tiles.tiling(plane.leading, plane.lanes, plane.unit)
    if tiling is not None and tiling.is_disjoint:
        return _pool_tiles(x, plane, tiling, infinity, y, indices, lowest, mode)
    is_shared = doubling.is_worthwhile(plane, x.size // x.shape[0], y.size // y.shape[0])
    one_by_one = doubling.prepare if is_shared else _pool_directly
    directly = partial(one_by_one, x, plane, infinity, y, indices, lowest, mode)
    if not channels and _is_rolling(axes, _ELEMENTS[x.dtype], x.size):
        return _pool_rolling(x, plane, infinity, y, indices, mode)
    found = _route(plane, x.dtype, indices is not None, x.shape[0], x.size // x.shape[0], mode.per_plane)
    if found is None and tiling is not None and not is_shared:
        return _pool_tiles(x, plane, tiling, infinity, y, indices, lowest, mode)
    if found is None:
        return directly(0, y.size // plane.lanes.small)
    launch = Launch(
        found.kernel, found.jobs, (x.size + y.size) // VECTORISED,
        *found.plan.numbers, *found.plan.arrays, _fill(_ELEMENTS[x.dtype], indices is not None, lowest), infinity,
        direct.AHEAD if x.nbytes > _CACHE_BYTES else 0, LAST if mode.nan_last else FIRST,
    )  # fmt: skip
    _, count, _, _, strip_outputs, outputs, _ = found.plan.strips
    width = plane.lanes.small
    return _Watched(launch, found.jobs, (count, strip_outputs // width, outputs // width), directly)


class _Watched:
    """Pools bands of planes, and directly again those that have padding as a maximum."""

    def __init__(
        self, launch: Launch, jobs: int, bands: tuple[int, int, int], directly: Callable[[int, int], Run]
    ) -> None:
        """A plane has so many bands, of so many rows of outputs, and so many rows of outputs altogether."""
        self._launch = launch
        self._jobs = jobs
        self._bands = bands
        self.nbytes = launch.nbytes
        self._directly = directly

    def __call__(self, x, y, indices, threads: int | None) -> None:
        """As `Launch`."""
        flags = np.empty(self._jobs, np.bool_)
        if any(self._launch(x, y, indices, threads, flags)):
            for first, stop in _rows(flags, *self._bands):
                self._directly(first, stop)(x, y, indices, threads)


@dataclass(frozen=True, slots=True, eq=False)
class Separable:
    """The separable kernel, the tables that it takes, and how many jobs there are."""

    kernel: Callable[..., None]
    plan: Plan
    jobs: int


@kept(256)
def _route(plane: Plane, bits, has_indices: bool, outer: int, plane_size: int, per_plane: bool) -> Separable | None:
    """None where the direct kernel is to be taken."""
    dtype, spatial = _ELEMENTS[bits], plane.spatial
    outputs = outer * math.prod(axis.small for axis in plane.axes)
    is_far = has_indices and outer * plane_size * bits.itemsize + outputs * (bits.itemsize + 8) > _FAR_BYTES
    if not is_separable_possible(plane, dtype, plane_size) or not is_separable_cheaper(plane, dtype, outer, is_far):
        return None
    width = np.dtype(separable.COMPARED[dtype]).itemsize
    found = plan(
        spatial, plane.unit, outer, 0 if per_plane else math.prod(axis.large for axis in spatial), width,
        width if has_indices else 0, separable.lanes_of(dtype), per_plane=per_plane,
    )  # fmt: skip
    jobs = outer * plane_size // found.strips[0] * found.strips[1]
    return Separable(separable.kernel(dtype, known_stride(spatial[-1], plane.unit), has_indices), found, jobs)


@lru_cache(maxsize=64)
def _fill(dtype: str, has_indices: bool, lowest: int):
    """What padding holds, in the type of comparison: less than every element, or `lowest` if indices are not wanted.

    Of the bits of 16-bit floats, minus infinity is `lowest` as the kernel sees it.
    """
    kind = np.dtype(separable.COMPARED[dtype]).type
    if kind == np.int32:
        return kind(lowest - has_indices)
    if dtype == "int16" and not has_indices:
        return np.int32(lowest << 16).view(np.float32)
    return kind(-np.inf)


def _rows(flags, count: int, height: int, rows: int) -> list[tuple[int, int]]:
    """The rows of all flagged bands, as ranges; see `_Watched`."""
    job = np.flatnonzero(flags)
    outer, band = job // count, job % count
    first, stop = outer * rows + band * height, outer * rows + np.minimum((band + 1) * height, rows)
    is_start = np.append(True, first[1:] != stop[:-1])
    return list(zip(first[is_start].tolist(), stop[np.roll(is_start, -1)].tolist(), strict=True))


def _is_rolling(axes: tuple[Axis, ...], dtype: str, elements: int) -> bool:
    return _WORTH_A_KERNEL <= elements < 2**31 and rolling.is_possible(axes, dtype)


def _pool_rolling(x, plane: Plane, infinity: int, y, indices, mode: Mode) -> Launch:
    rows, columns = plane.axes
    cut, has_indices = rolling.bands(plane.axes, x.itemsize), indices is not None
    is_far = x.nbytes + y.nbytes + 8 * y.size * has_indices > _FAR_BYTES
    kernel = rolling.kernel(
        _ELEMENTS[x.dtype], rows.window.size, columns.window.size, rows.window.stride, has_indices, mode.nan_last
    )
    numbers = rolling.numbers(
        plane.axes, cut, x.size, x.itemsize, infinity, is_far=is_far, was_written=mode.was_written,
        per_plane=mode.per_plane,
    )  # fmt: skip
    return Launch(kernel, x.shape[0] * cut.count, (x.size + y.size) // VECTORISED, numbers)


def _pool_tiles(x, plane: Plane, tiling: tiles.Tiling, infinity: int, y, indices, lowest: int, mode: Mode) -> Launch:
    window, small, dtype = plane.lanes.window, plane.lanes.small, _ELEMENTS[x.dtype]
    sizes = (y.itemsize,) if indices is None else (y.itemsize, indices.itemsize)
    is_past = mode.was_written and x.nbytes + y.size * sum(sizes) >= tiles.PAST_CACHE
    lanes = tiles.lanes_of(x.itemsize, small, is_exact=is_past)
    past = [is_past and tiles.is_line_wise(size, small, lanes) for size in sizes]
    is_wide = _is_wide(int(tiling.offsets[..., 1].max()) + window.size, x.itemsize)
    kernel = tiles.kernel(dtype, window.size, indices is not None, is_wide, lanes)
    places = 0 if mode.per_plane else x.size // x.shape[0] // plane.unit
    number = float if dtype.startswith("float") else int
    numbers = (
        x.size, x.size // x.shape[0], small, places * plane.unit, places if plane.unit > 1 else 1,
        tiles.ahead(x, tiling.reach), past[0], past[-1], mode.nan_last,
    )  # fmt: skip
    return Launch(
        kernel, y.shape[0] * len(tiling.corners), (x.size + y.size) // VECTORISED,
        np.array(numbers), tiling.corners, tiling.offsets,
        np.array(lowest, x.dtype).view(dtype).item(), number(infinity if dtype == "int16" else 0),
    )  # fmt: skip


def _pool_directly(
    x, plane: Plane, infinity: int, y, indices, lowest: int, mode: Mode, first: int, stop: int
) -> Launch:
    """The rows of outputs from `first` up to `stop`."""
    lanes, window = plane.lanes, plane.lanes.window
    steps, table, width = _row_plan(plane)
    rows = math.prod(axis.small for axis in plane.leading)
    dtype, size = _ELEMENTS[x.dtype], x.size // x.shape[0]
    registers = direct.registers_of(x.itemsize, lanes.small)
    reach = lanes.large + lanes.begin + direct.lanes_of(x.itemsize) * window.stride + window.reach
    is_wide = _is_wide(reach + _window_places(plane), x.itemsize)
    kernel = direct.kernel(dtype, _known_step(window), indices is not None, is_wide, registers)
    places = 0 if mode.per_plane else size // plane.unit
    number = float if dtype.startswith("float") else int
    numbers = (
        x.size, size, rows, places * plane.unit, places if plane.unit > 1 else 1,
        lanes.small, lanes.large, lanes.begin, window.size, window.stride, window.dilation,
        width, direct.AHEAD if x.nbytes > _CACHE_BYTES else 0, first, mode.nan_last,
    )  # fmt: skip
    return Launch(
        kernel, stop - first, (stop - first) * lanes.small * width * window.size,
        np.array(numbers), steps, table,
        np.array(lowest, x.dtype).view(dtype).item(), number(infinity if dtype == "int16" else 0),
    )  # fmt: skip


@kept(64)
def _row_plan(plane: Plane):
    sizes = [axis.large for axis in plane.axes]
    weights = [math.prod(sizes[number + 1 :]) for number in range(len(plane.leading))]
    walks = [shrinking_walk(axis) for axis in plane.leading]
    places = [weight // plane.unit for weight in weights]
    return row_plan(walks, weights, [(walk.other, walk.other_step) for walk in walks], places)


def _known_step(window: Window) -> int:
    return window.stride if window.stride in (1, 2) else 0


def _window_places(plane: Plane) -> int:
    """Places between the first and the last tap of a window."""
    sizes = [axis.large for axis in plane.spatial]
    return sum((axis.window.reach - 1) * math.prod(sizes[number + 1 :]) for number, axis in enumerate(plane.spatial))


def _is_wide(count: int, size: int) -> bool:
    """Whether so many places need more bits than those of elements of so many bytes have."""
    return count >= 1 << (direct.place_bits(size) - 1)
