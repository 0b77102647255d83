"""Max pooling: routes a call to one of three kernels, and cuts it into independent jobs.

| windows | kernel | why |
|---|---|---|
| side by side along the lanes, all on data | tiles | each element is loaded once; rows come in memory order |
| other few taps, or windows that do not overlap | direct | each element is read once or twice |
| overlapping, so that doubling takes fewer steps than there are taps | doubling | work grows with log2 of the window |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis, Window, shrinking_walk
from unpool.kernels.cpu import max_pool_direct as direct
from unpool.kernels.cpu import max_pool_doubling as doubling
from unpool.kernels.cpu import max_pool_tiles as tiles
from unpool.kernels.cpu.rows import padded_rows, row_plan
from unpool.kernels.cpu.threads import Launch

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
_LINE_ELEMENTS = 1 << 22  # the longest line that doubling may lay out
_LAYOUT_STEPS = 5  # laying out and delivering an element cost as much as so many combining steps
_RAGGED_STEPS = 6  # a tap of a block that is not whole costs as much as so many whole ones


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


def prepare(x, axes: Sequence[Axis], infinity: int, y, indices, lowest: int, mode: Mode) -> Launch:
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
    if y.size == 0:
        return Launch(None, 0, 0)
    if mode.nan_last and (indices is None or infinity == 0):
        mode = replace(mode, nan_last=False)
    plane = _plane(tuple(axes), x.shape[-1] if mode.channels_last else 0)
    places = 0 if mode.per_plane else x.size // x.shape[0] // plane.unit
    tiling = tiles.tiling(plane.leading, plane.lanes, plane.unit)
    if tiling is not None:
        return _pool_tiles(x, plane, tiling, places, infinity, y, indices, lowest, mode)
    if _is_doubling_cheaper(plane, x.dtype.itemsize):
        return _pool_by_doubling(x, plane, places, infinity, y, indices, lowest, mode)
    return _pool_directly(x, plane, places, infinity, y, indices, lowest, mode)


@lru_cache(maxsize=256)
def _plane(axes: tuple[Axis, ...], channels: int) -> Plane:
    if channels:
        return Plane(axes, Axis(channels, channels, _POINT), channels)
    return Plane(axes[:-1], axes[-1], 1)


@lru_cache(maxsize=256)
def _is_doubling_cheaper(plane: Plane, size: int) -> bool:
    """Compare combining steps per plane; a gather counts as the taps it replaces."""
    line = math.prod(doubling.padded_size(axis) for axis in plane.axes)
    row = doubling.padded_size(plane.lanes) * math.prod(doubling.padded_size(axis) for axis in plane.leading[1:])
    if line == 0 or min(line, row * plane.leading[0].window.reach if plane.leading else line) > _LINE_ELEMENTS:
        return False
    steps = len(doubling.offsets(plane.axes, (1,) * len(plane.axes)))
    taps = math.prod(axis.window.size for axis in plane.axes)
    outputs = math.prod(axis.small for axis in plane.axes)
    is_ragged = plane.lanes.small < direct.lanes_of(size)
    return line * (steps + _LAYOUT_STEPS) < outputs * taps * (_RAGGED_STEPS if is_ragged else 1)


def _pool_directly(x, plane: Plane, places: int, infinity: int, y, indices, lowest: int, mode: Mode) -> Launch:
    lanes, window = plane.lanes, plane.lanes.window
    steps, table, width = _row_plan(plane)
    rows = math.prod(axis.small for axis in plane.leading)
    dtype = _ELEMENTS[x.dtype]
    registers = direct.registers_of(x.itemsize, lanes.small)
    kernel = direct.kernel(dtype, _known_step(window), indices is not None, _is_wide(x), mode.nan_last, registers)
    number = float if dtype.startswith("float") else int
    numbers = (
        x.size, x.size // x.shape[0], rows, places * plane.unit, places if plane.unit > 1 else 1,
        lanes.small, lanes.large, lanes.begin, window.size, window.stride, window.dilation,
        width, direct.AHEAD if x.nbytes > _CACHE_BYTES else 0,
    )  # fmt: skip
    return Launch(
        kernel, y.shape[0] * rows, y.size * width * window.size,
        np.array(numbers), steps, table,
        np.array(lowest, x.dtype).view(dtype).item(), number(infinity if dtype == "int16" else 0),
    )  # fmt: skip


def _pool_tiles(
    x, plane: Plane, tiling: tiles.Tiling, places: int, infinity: int, y, indices, lowest: int, mode: Mode
) -> Launch:
    window, small, dtype = plane.lanes.window, plane.lanes.small, _ELEMENTS[x.dtype]
    sizes = (y.itemsize,) if indices is None else (y.itemsize, indices.itemsize)
    is_past = mode.was_written and x.nbytes + y.size * sum(sizes) >= tiles.PAST_CACHE
    lanes = tiles.lanes_of(x.itemsize, small, is_exact=is_past)
    past = [is_past and tiles.is_line_wise(size, small, lanes) for size in sizes]
    kernel = tiles.kernel(dtype, window.size, indices is not None, _is_wide(x), mode.nan_last, lanes)
    number = float if dtype.startswith("float") else int
    numbers = (
        x.size, x.size // x.shape[0], small, places * plane.unit, places if plane.unit > 1 else 1,
        tiles.ahead(x, tiling.reach), past[0], past[-1],
    )  # fmt: skip
    return Launch(
        kernel, y.shape[0] * len(tiling.corners), x.size + y.size,
        np.array(numbers), tiling.corners, tiling.offsets,
        np.array(lowest, x.dtype).view(dtype).item(), number(infinity if dtype == "int16" else 0),
    )  # fmt: skip


@lru_cache(maxsize=64)
def _row_plan(plane: Plane):
    sizes = [axis.large for axis in plane.axes]
    weights = [math.prod(sizes[number + 1 :]) for number in range(len(plane.leading))]
    walks = [shrinking_walk(axis) for axis in plane.leading]
    places = [weight // plane.unit for weight in weights]
    return row_plan(walks, weights, [(walk.other, walk.other_step) for walk in walks], places)


def _pool_by_doubling(x, plane: Plane, places: int, infinity: int, y, indices, lowest: int, mode: Mode) -> Launch:
    lanes = plane.lanes
    strips, starts, rows, offsets = _line_plan(plane, x.dtype.itemsize)
    kernel = doubling.kernel(
        _ELEMENTS[x.dtype], lanes.window.stride if lanes.window.stride <= 2 else 0, indices is not None,
        _is_wide(x), mode.nan_last,
    )  # fmt: skip
    padded = doubling.padded_size(lanes)
    lane_weight = places if plane.unit > 1 else 0
    return Launch(
        kernel, y.shape[0] * strips[0], y.shape[0] * len(starts) * padded * len(offsets),
        (x.size // x.shape[0], places * plane.unit, lane_weight, plane.unit),
        (lanes.small, lanes.large, lanes.begin, padded, lanes.window.stride),
        strips, starts, rows, offsets, x.dtype.type(lowest), x.dtype.type(infinity),
    )  # fmt: skip


@lru_cache(maxsize=64)
def _line_plan(plane: Plane, size: int):
    """How a plane is cut into strips of its first axis, where rows start, and the offsets to combine."""
    padded = [doubling.padded_size(axis) for axis in plane.axes]
    pitches = [math.prod(padded[number + 1 :]) for number in range(len(padded))]
    sizes = [axis.large for axis in plane.axes]
    weights = [math.prod(sizes[number + 1 :]) for number in range(len(plane.leading))]
    begins, larges = [axis.begin for axis in plane.leading], [axis.large for axis in plane.leading]
    starts = padded_rows(padded[:-1], begins, larges, weights)
    rows = doubling.output_rows(plane.leading)
    offsets = doubling.offsets(plane.axes, pitches)
    if not plane.leading:
        return (1, 1, 1, 1, 1, 1), starts, rows, offsets
    first = plane.leading[0]
    fitting = doubling.STRIP_BYTES // (pitches[0] * (size + 4))
    height = max(first.window.reach, (fitting - first.window.reach) // first.window.stride + 1)
    height = min(first.small, height)
    in_rest, out_rest = pitches[0] // padded[-1], len(rows) // first.small
    line_rows = ((height - 1) * first.window.stride + first.window.reach) * in_rest
    strips = (-(-first.small // height), height, height * first.window.stride, out_rest, in_rest, line_rows)
    return strips, starts, rows, offsets


def _known_step(window: Window) -> int:
    return window.stride if window.stride in (1, 2, 4) else 0


def _is_wide(x) -> bool:
    return bool(x.size // x.shape[0] >= 2**31)
