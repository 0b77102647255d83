"""Max pooling: routes a call to one of two kernels, and cuts it into independent jobs.

| windows | kernel | why |
|---|---|---|
| that do not overlap, or have few taps | direct | each element is read from memory once or twice, in registers |
| channels last, fewer channels than a register holds | direct | its registers may end short |
| a plane of 2**31 elements, or a row too long to lay out | direct | its places have 64 bits, and it lays out nothing |
| the rest: overlapping | separable | work grows with the sum of the window's logarithms, not with its product |
| with NaN, or a maximum that padding has too | separable, then direct where it was noticed | separable knows neither |
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis, Window, shrinking_walk
from unpool.kernels.cpu import max_pool_direct as direct
from unpool.kernels.cpu import max_pool_separable as separable
from unpool.kernels.cpu.max_pool_separable_plan import Plan, chain, known_stride, padded_size, plan
from unpool.kernels.cpu.rows import readonly, row_plan
from unpool.kernels.cpu.threads import split

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
_NO_INDICES = np.empty(0, np.int64)
_CACHE_BYTES = 1 << 20  # planes beyond this are worth asking for ahead of time
_LINE_ELEMENTS = 1 << 22  # the most that may be laid out at a time
_TAP = 2  # a tap of the direct kernel, in elements that the separable one moves
_SHORT = 2  # so many times more, if a row fills one block only
_RAGGED = 6  # if it does not fill it
_LONG_LINE = 2  # a line that is the whole plane leaves the first cache


@dataclass(frozen=True, slots=True)
class Mode:
    """What a pool does the same for all its planes.

    Attributes:
        channels_last: whether the lanes of x are channels.
        nan_last: whether the index of the last NaN of a window is found, rather than of the first.
        threads: at most so many; None for all cores.
    """

    channels_last: bool = False
    nan_last: bool = False
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Plane:
    """The axes of one plane as kernels walk them: leading axes as rows, then lanes.

    Attributes:
        leading: the axes before the lanes.
        lanes: the last spatial axis, or the channels.
        unit: elements between neighbours of the last leading axis that are one place of an index: C, or 1.
    """

    leading: tuple[Axis, ...]
    lanes: Axis
    unit: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All of them."""
        return (*self.leading, self.lanes)

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """Those that windows slide along."""
        return self.leading if self.unit > 1 else self.axes


def max_pool(x, axes: Sequence[Axis], infinity: int, y, indices, lowest: int, mode: Mode):
    """Write the largest element of every window to `y` and where it was found to `indices`.

    Args:
        x: C-contiguous integer view of the elements: (outer, D1..Dk) with outer = N * C, or (N, D1..Dk, C).
        axes: one per spatial axis.
        infinity: bits of +infinity; 0 for integer elements.
        y: C-contiguous, same layout and type as x, pooled sizes.
        indices: None, or C-contiguous int64 in the shape of y: places in the whole (N, C, D1..Dk) tensor, row-major,
            -1 where a window holds no data.
        lowest: what such a window gives, as bits.
        mode: layout, NaN and threads.
    """
    if y.size == 0:
        return
    if mode.nan_last and (indices is None or infinity == 0):
        mode = replace(mode, nan_last=False)
    channels = x.shape[-1] if mode.channels_last else 0
    plane, found = _route(tuple(axes), channels, x.dtype, indices is not None, x.shape[0], x.size // x.shape[0])
    if found is None:
        _pool_directly(x, plane, infinity, y, indices, lowest, mode, [(0, y.size // plane.lanes.small)])
        return
    flags = _pool_separably(x, found, infinity, y, indices, lowest, mode)
    if flags.any():
        _pool_directly(x, plane, infinity, y, indices, lowest, mode, _rows(flags, found.plan, plane))


@dataclass(frozen=True, slots=True, eq=False)
class Separable:
    """The separable kernel, and the tables that it takes."""

    kernel: Callable[..., None]
    plan: Plan


@lru_cache(maxsize=256)
def _route(
    axes: tuple[Axis, ...], channels: int, bits, has_indices: bool, outer: int, plane_size: int
) -> tuple[Plane, Separable | None]:
    """The axes of a plane, and None where the direct kernel is to be taken."""
    plane = Plane(axes, Axis(channels, channels, _POINT), channels) if channels else Plane(axes[:-1], axes[-1], 1)
    dtype, spatial = _ELEMENTS[bits], plane.spatial
    if not _is_separable_possible(plane, dtype, plane_size) or not _is_separable_cheaper(plane, dtype):
        return plane, None
    width = np.dtype(separable.COMPARED[dtype]).itemsize
    found = plan(
        spatial, plane.unit, outer, math.prod(axis.large for axis in spatial), width, width if has_indices else 0,
        separable.lanes_of(dtype),
    )  # fmt: skip
    return plane, Separable(separable.kernel(dtype, known_stride(spatial[-1], plane.unit), has_indices), found)


def _is_separable_possible(plane: Plane, dtype: str, plane_size: int) -> bool:
    """Whether places fit their type, channels fill a register, and what is laid out at once is not too long."""
    padded = [padded_size(axis) * plane.unit ** (axis is plane.spatial[-1]) for axis in plane.spatial]
    window = plane.spatial[0].window.reach if len(padded) > 1 else 1
    longest = max(padded[-1], window * math.prod(padded[1:]))
    return plane_size < 2**31 and longest <= _LINE_ELEMENTS and not 1 < plane.unit < separable.lanes_of(dtype)


def _is_separable_cheaper(plane: Plane, dtype: str) -> bool:
    """Compare the taps of all windows of a plane with what the separable kernel reads and writes in its caches."""
    spatial = plane.spatial
    now = math.prod(padded_size(axis) for axis in spatial)
    moved = now
    for axis in reversed(spatial):
        *steps, final = chain(axis.window)
        moved += now * sum(len(step) + 1 for step in steps)
        now = now // max(1, padded_size(axis)) * axis.small
        moved += now * (len(final) + 1)
    if len(spatial) == 1:
        moved = (moved + 2 * now) * _LONG_LINE
    taps = now * math.prod(axis.window.size for axis in spatial) * _TAP
    lanes = separable.lanes_of(dtype)
    if plane.unit == 1 and plane.lanes.small < 2 * lanes:
        taps *= _SHORT if plane.lanes.small >= lanes else _RAGGED
    return moved < taps


def _pool_separably(x, found: Separable, infinity: int, y, indices, lowest: int, mode: Mode):
    """As `max_pool`, but strips of a plane where a NaN was noticed, or padding may be the maximum, are only flagged."""
    tables = found.plan
    jobs = x.size // tables.strips[0] * tables.strips[1]
    flags = np.empty(jobs, np.bool_)
    split(
        found.kernel, jobs, x.size + y.size, mode.threads,
        readonly(x), y.reshape(-1), _flat(indices), flags,
        tables.strips, tables.row, tables.line, tables.used, tables.arrays,
        _fill(_ELEMENTS[x.dtype], indices is not None, lowest), infinity,
        direct.AHEAD if x.nbytes > _CACHE_BYTES else 0,
    )  # fmt: skip
    return flags


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


def _rows(flags, found: Plan, plane: Plane) -> list[tuple[int, int]]:
    """The rows of all flagged strips, as ranges."""
    _, strips, _, _, strip_outputs, outputs = found.strips
    width = plane.lanes.small
    job = np.flatnonzero(flags)
    outer, strip = job // strips, job % strips
    first = outer * (outputs // width) + strip * (strip_outputs // width)
    stop = outer * (outputs // width) + np.minimum((strip + 1) * strip_outputs, outputs) // width
    is_start = np.append(True, first[1:] != stop[:-1])
    return list(zip(first[is_start].tolist(), stop[np.roll(is_start, -1)].tolist(), strict=True))


def _pool_directly(
    x, plane: Plane, infinity: int, y, indices, lowest: int, mode: Mode, ranges: Sequence[tuple[int, int]]
):
    lanes, window = plane.lanes, plane.lanes.window
    steps, table, width = _row_plan(plane)
    rows = math.prod(axis.small for axis in plane.leading)
    dtype, size = _ELEMENTS[x.dtype], x.size // x.shape[0]
    registers = direct.registers_of(x.itemsize, lanes.small)
    kernel = direct.kernel(dtype, _known_step(window), indices is not None, _is_wide(size), mode.nan_last, registers)
    number = np.dtype(dtype).type
    for first, stop in ranges:
        split(
            _behind(kernel, first), stop - first, (stop - first) * lanes.small * width * window.size, mode.threads,
            readonly(x).view(dtype), y.reshape(-1).view(dtype), _flat(indices),
            (size, rows, size, size // plane.unit if plane.unit > 1 else 1),
            (lanes.small, lanes.large, lanes.begin, window.size, window.stride, window.dilation),
            steps, table, width,
            np.array(lowest, x.dtype).view(dtype)[()], number(infinity if dtype == "int16" else 0),
            direct.AHEAD if x.nbytes > _CACHE_BYTES else 0,
        )  # fmt: skip


def _behind(kernel: Callable[..., None], start: int) -> Callable[..., None]:
    """The kernel on jobs that are counted from `start`."""
    if start == 0:
        return kernel
    return lambda *args: kernel(*args[:-2], start + args[-2], start + args[-1])


@lru_cache(maxsize=64)
def _row_plan(plane: Plane):
    sizes = [axis.large for axis in plane.axes]
    weights = [math.prod(sizes[number + 1 :]) for number in range(len(plane.leading))]
    walks = [shrinking_walk(axis) for axis in plane.leading]
    places = [weight // plane.unit for weight in weights]
    return row_plan(walks, weights, [(walk.other, walk.other_step) for walk in walks], places)


def _known_step(window: Window) -> int:
    return window.stride if window.stride in (1, 2, 4) else 0


def _is_wide(size: int) -> bool:
    return size >= 2**31


def _flat(indices):
    return _NO_INDICES if indices is None else indices.reshape(-1)
