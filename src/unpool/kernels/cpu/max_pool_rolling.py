"""Max pooling of overlapping windows of two axes, up to 13 wide: the maxima of rows roll through registers.

    pooled[r, i] = max over taps t of x[r, i * step + t]              the leftmost of equals
    y[j, i]      = max over rows q of pooled[j * step + q, i]         the topmost of equals

A block of neighbouring columns goes down a band of rows. Queues hold the maxima of the last rows and their places, so
that every row is read once. A maximum of many is one of two that overlap, each of two of half the size, and so on: both
among the vectors of a row and down the rows. The bits of 16-bit floats are compared as the upper half of a
float32, which orders them alike; what is beyond their infinity is NaN.

Columns beside the plane are -inf, with the places of the first element on data; a row beside it stands for the nearest
one, which the same window holds too. Blocks are compared without regard to NaN, which is noticed by the way; such a
block is pooled again, with one comparison more, which knows NaN.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from numba import types

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.max_pool_rolling_parts import LINE, LOADED_TAPS, bounds, roll
from unpool.kernels.cpu.vector import FIRST, IGNORED, LAST, address_of, any_of, fence, first_lanes

_MOST_TAPS = {1: 13, 2: 5}
"""By stride: windows so wide and high are pooled faster than in another way."""

BAND_BYTES = 1 << 14
"""So much of x is read at a time, to stay in the first cache."""

_LEAST_ROWS = 8  # of a band, for each row before it that is pooled twice


@dataclass(frozen=True, slots=True)
class Bands:
    """How planes are cut into jobs: every plane into `count` bands of `height` rows of outputs."""

    count: int
    height: int


def is_possible(axes: tuple[Axis, ...], dtype: str) -> bool:
    """Whether windows are small, overlap, step alike along both axes, and hold an element of the plane each."""
    if len(axes) != 2 or dtype not in ("float32", "float64", "int16"):
        return False
    windows = [axis.window for axis in axes]
    stride = windows[0].stride
    most = _MOST_TAPS.get(stride, 0)
    return (
        stride == windows[1].stride
        and all(stride <= window.size <= most and window.dilation == 1 for window in windows)
        and windows[0].size * windows[1].size > stride**2
        and all(0 <= axis.begin < axis.window.size for axis in axes)
        and all((axis.small - 1) * stride - axis.begin < axis.large for axis in axes)
    )


def bands(axes: tuple[Axis, ...], size: int) -> Bands:
    """The bands of a plane, for elements of so many bytes."""
    rows, columns = axes
    fitting = BAND_BYTES // max(1, columns.large * size * rows.window.stride)
    count = -(-rows.small // max(1, _LEAST_ROWS * (rows.window.size - rows.window.stride), fitting))
    height = -(-rows.small // count)
    return Bands(-(-rows.small // height), height)


def numbers(
    axes: tuple[Axis, ...],
    cut: Bands,
    elements: int,
    size: int,
    infinity: int,
    *,
    is_far: bool,
    was_written: bool,
    per_plane: bool,
) -> npt.NDArray[np.int64]:
    """What the kernel takes as `numbers`.

    Args:
        axes: rows and columns.
        cut: the jobs.
        elements: of x.
        size: bytes of each.
        infinity: its bits.
        is_far: whether x comes from memory, and is asked for ahead of time.
        was_written: whether the memory of outputs has been in use: then far indices are written past the cache.
        per_plane: whether places count inside their own plane.
    """
    rows, columns = axes
    blocks = -(-columns.small // lanes_of(size))
    asked = rows.window.stride * columns.large * size // blocks
    return np.array([
        rows.large, columns.large, rows.small, columns.small, rows.begin, columns.begin,
        elements, cut.count, cut.height, int(not per_plane), asked, int(is_far),
        infinity, int(is_far and was_written and is_line_wise(columns.small, size)),
    ])  # fmt: skip


def is_line_wise(small: int, size: int) -> bool:
    """Whether blocks of indices are whole lines of memory, in rows of `small` outputs of `size` bytes."""
    line = LINE // 8
    return small % line == 0 and lanes_of(size) % line == 0 and small >= lanes_of(size)


def lanes_of(size: int) -> int:
    """Outputs in one register, for elements of so many bytes, which are compared in 4 or more."""
    return vector_bytes() // max(4, size)


@cache
def kernel(dtype: str, depth: int, taps: int, step: int, has_indices: bool, nan_last: bool = False):
    """The compiled kernel for one element type and window.

    Args:
        dtype: float32 or float64; int16 means the bits of a 16-bit float.
        depth: rows of a window.
        taps: columns of a window.
        step: rows, and columns, between windows: 1 or 2.
        has_indices: whether indices are stored.
        nan_last: whether the last NaN of a window is found, rather than the first.
    """
    nan = LAST if nan_last else FIRST
    size = np.dtype(dtype).itemsize
    return _make(
        getattr(types, dtype), size, lanes_of(size), depth, taps, step, int(has_indices), nan,
        source_digest(),
    )  # fmt: skip


def _make(element, size, lanes, depth, taps, step, has_indices, nan, digest):
    span = (lanes - 1) * step + taps
    read = span if step == 1 and taps <= LOADED_TAPS else -(-span // lanes) * lanes

    @compiled()
    def roll_planes(x, y, indices, numbers, first, stop):
        """Memory order: outer, band, block of columns, row. A last block moves back over its neighbour.

        A block in which NaN is noticed is pooled again in full; where NaN was, the next block begins in full.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        height, width, small_height, small = numbers[0], numbers[1], numbers[2], numbers[3]
        top, begin, elements, count, band_height = numbers[4], numbers[5], numbers[6], numbers[7], numbers[8]
        counted, asked, is_far = numbers[9], numbers[10], numbers[11] != 0
        ends, is_past = bounds(numbers[12], element, lanes), numbers[13] != 0 and address_of(indices) % LINE == 0
        nothing, has_nan = ends[0], False
        is_output, none = first_lanes(small, nothing), first_lanes(0, nothing)
        end = (stop // count * small_height + min(stop % count * band_height, small_height)) * small
        outer, low = first // count, first % count * band_height
        for _job in range(first, stop):
            high = min(low + band_height, small_height)
            plane, last_row = outer * height * width, min((high - 1) * step - top + depth, height) - 1
            ask = address_of(x) + (plane + (last_row + 1) * width) * size
            for block in range(0, small, lanes):
                column = max(0, min(block, small - lanes))
                start = column * step - begin
                target = (outer * small_height + low) * small + column
                is_whole = start >= 0 and start + span <= width and plane + last_row * width + start + read <= elements
                at = address_of(x) + plane * size, address_of(y), address_of(indices)
                walk = ((low * step - top) * width, high - low, (height - 1) * width, width, start, plane * counted,
                        target, small, end)  # fmt: skip
                asking = ask, asked, is_far, is_past
                if not has_nan and is_whole:
                    has_nan = any_of(roll(at, walk, asking, ends, none, is_output, element, lanes, depth, taps, step,
                                          has_indices, 1, IGNORED))  # fmt: skip
                elif not has_nan:
                    has_nan = any_of(roll(at, walk, asking, ends, none, is_output, element, lanes, depth, taps, step,
                                          has_indices, 0, IGNORED))  # fmt: skip
                if has_nan and is_whole:
                    has_nan = any_of(roll(at, walk, asking, ends, none, is_output, element, lanes, depth, taps, step,
                                          has_indices, 1, nan))  # fmt: skip
                elif has_nan:
                    has_nan = any_of(roll(at, walk, asking, ends, none, is_output, element, lanes, depth, taps, step,
                                          has_indices, 0, nan))  # fmt: skip
                ask += asked * (high - low)
            low += band_height
            if low >= small_height:
                outer, low = outer + 1, 0
        if is_past:
            fence()

    return roll_planes
