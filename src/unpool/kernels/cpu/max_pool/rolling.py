"""Max pooling of overlapping windows of two axes, up to 13 wide: the maxima of rows roll through registers.

    pooled[r, i] = max over taps t of x[r, i * step + t]              the leftmost of equals
    y[j, i]      = max over rows q of pooled[j * step + q, i]         the topmost of equals

A block of neighbouring columns goes down a band of rows. Queues hold the maxima of the last rows and their places, so
that every row is read once. A maximum of many is one of two that overlap, each of two of half the size, and so on: both
among the vectors of a row and down the rows. The bits of 16-bit floats are compared as the upper half of a
float32, which orders them alike; what is beyond their infinity is NaN.

Columns beside the plane are -inf, with the places of the first element on data; a row beside it stands for the nearest
one, which the same window holds too. Blocks are compared without regard to NaN, which is noticed by the way; such a
block is pooled again, with one comparison more, which knows NaN. What goes down a band is in `rolling_parts.py`.
"""

from functools import cache
from typing import NamedTuple

from numba import types

from unpool.geometry import Axis
from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest, vector_registers
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool.elements import compared_lanes
from unpool.kernels.cpu.max_pool.pool import Pool
from unpool.kernels.cpu.max_pool.rolling_parts import LINE, LOADED_TAPS, Band, Columns, bounds, roll, roll_again
from unpool.kernels.cpu.vector import IGNORED, address_of, any_of, fence, first_lanes, lasting
from unpool.kernels.cpu.vector.named import Fixed, record

MOST_TAPS = {1: 13, 2: 5}
"""By stride: windows so wide and high are pooled faster than in another way."""

BAND_BYTES = 1 << 14
"""So much of x is read at a time, to stay in the first cache."""

LEAST_ROWS = 8
"""Of a band, for each row before it that is pooled twice."""

WORTH_A_KERNEL = 1 << 16
"""Elements of x below which no kernel is compiled for one window."""


class About(NamedTuple):
    """What the kernel reads of a call.

    Attributes:
        elements: of x.
        height: rows of a plane of x.
        width: its columns.
        small_height: rows of a plane of y.
        small_width: its columns.
        top: padding before the first row.
        left: padding before the first column.
        bands: of a plane.
        band_height: rows of y in a band.
        outer_places: from one plane to the next, as indices count; 0 where they count inside their own plane.
        asked_bytes: of x that one row of results of a block asks for ahead of time.
        is_asked_for: whether that is done at all.
        indices_past_cache: whether indices are written past the cache if they begin a line of memory.
        infinity: its bits.
        nan: FIRST or LAST, which NaN of a window is found.
    """

    elements: int
    height: int
    width: int
    small_height: int
    small_width: int
    top: int
    left: int
    bands: int
    band_height: int
    outer_places: int
    asked_bytes: int
    is_asked_for: bool
    indices_past_cache: bool
    infinity: int
    nan: int


def is_possible(pool: Pool) -> bool:
    """Whether windows are small, overlap, step alike along both axes, and hold an element of the plane each.

    The maxima of the rows above, and their places, are to fit into registers: where they do not, each row loads and
    stores them, and pooling axis by axis is faster. Small calls do not get a kernel for their window.
    """
    axes = pool.plane.axes
    if pool.mode.channels_last or len(axes) != 2 or pool.elements.name not in ("float32", "float64", "int16"):
        return False
    windows = [axis.window for axis in axes]
    stride = windows[0].stride
    most = MOST_TAPS.get(stride, 0)
    queued = (windows[0].size - 1) * (2 if pool.has_indices else 1)
    return (
        WORTH_A_KERNEL <= pool.size < 2**31
        and queued <= vector_registers()
        and stride == windows[1].stride
        and all(stride <= window.size <= most and window.dilation == 1 for window in windows)
        and windows[0].size * windows[1].size > stride**2
        and all(0 <= axis.begin < axis.window.size for axis in axes)
        and all((axis.small - 1) * stride - axis.begin < axis.large for axis in axes)
    )


def launch(pool: Pool) -> Launch:
    """The call that pools all planes."""
    (rows, columns), element = pool.plane.axes, pool.elements
    count, height = _bands(rows, columns, element.size)
    blocks = -(-columns.small // compared_lanes(element.name))
    is_past = pool.is_far and pool.mode.was_written and indices_fill_lines(columns.small, element.name)
    about = About(
        elements=pool.size, height=rows.large, width=columns.large,
        small_height=rows.small, small_width=columns.small, top=rows.begin, left=columns.begin,
        bands=count, band_height=height, outer_places=pool.outer_places,
        asked_bytes=rows.window.stride * columns.large * element.size // blocks, is_asked_for=_is_asked_for(pool),
        indices_past_cache=is_past, infinity=element.infinity, nan=pool.mode.nan,
    )  # fmt: skip
    kernel = _kernel(element.name, rows.window.size, columns.window.size, rows.window.stride, pool.has_indices)
    return Launch(kernel, pool.outer * count, pool.work, record(about))


def _is_asked_for(pool: Pool) -> bool:
    """Whether x is asked for ahead of time: with indices, of which many bytes are written, a near x comes in time."""
    return pool.is_far or (pool.is_asked_for and not pool.has_indices)


def _bands(rows: Axis, columns: Axis, size: int) -> tuple[int, int]:
    """Into how many bands a plane is cut, and their rows of outputs, for elements of so many bytes."""
    fitting = BAND_BYTES // max(1, columns.large * size * rows.window.stride)
    count = -(-rows.small // max(1, LEAST_ROWS * (rows.window.size - rows.window.stride), fitting))
    height = -(-rows.small // count)
    return -(-rows.small // height), height


def indices_fill_lines(small: int, element: str) -> bool:
    """Whether blocks of indices are whole lines of memory, in rows of `small` outputs."""
    in_line, lanes = LINE // 8, compared_lanes(element)
    return small % in_line == 0 and lanes % in_line == 0 and small >= lanes


@cache
def _kernel(element: str, depth: int, taps: int, step: int, has_indices: bool):
    """The compiled kernel for one element type and window.

    Args:
        element: float32 or float64; int16 means the bits of a 16-bit float.
        depth: rows of a window.
        taps: columns of a window.
        step: rows, and columns, between windows: 1 or 2.
        has_indices: whether indices are stored.
    """
    fixed = Fixed(
        element=getattr(types, element), lanes=compared_lanes(element), depth=depth, taps=taps, step=step,
        has_indices=int(has_indices),
    )  # fmt: skip
    return _make(fixed.but(is_inside=1), fixed.but(is_inside=0), source_digest())


def _make(inside, beside, digest):
    element, lanes, depth, step, taps = inside.element, inside.lanes, inside.depth, inside.step, inside.taps
    size, span = element.bitwidth // 8, (lanes - 1) * step + taps
    read = span if step == 1 and taps <= LOADED_TAPS else -(-span // lanes) * lanes

    @compiled()
    def roll_planes(x, y, indices, given, first, stop):
        """Write some bands, in the order of memory.

            for every plane, for every band of its rows
                for every block of columns, for every row of the band

        A last block moves back over its neighbour. A block in which NaN is noticed is pooled again in full; where NaN
        was, the next block begins in full.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        about = given[0]
        height, width, small_height, small = about.height, about.width, about.small_height, about.small_width
        top, left, bands, band_height = about.top, about.left, about.bands, about.band_height
        elements, outer_places, nan = about.elements, about.outer_places, about.nan
        asked_bytes, is_asked_for = about.asked_bytes, about.is_asked_for
        indices_past_cache = about.indices_past_cache and address_of(indices) % LINE == 0
        ends, has_nan = bounds(about.infinity, inside), False
        is_output, none = first_lanes(small, ends[0]), lasting(first_lanes(0, ends[0]), ends[0])
        end = (stop // bands * small_height + min(stop % bands * band_height, small_height)) * small
        outer, low = first // bands, first % bands * band_height
        for _job in range(first, stop):
            high = min(low + band_height, small_height)
            plane, last_row = outer * height * width, min((high - 1) * step - top + depth, height) - 1
            ask = address_of(x) + (plane + (last_row + 1) * width) * size
            for start in range(0, small, lanes):
                column = max(0, min(start, small - lanes))
                first_column = column * step - left
                block = Columns(
                    plane=address_of(x) + plane * size, last_row=(height - 1) * width, width=width,
                    first=first_column, place=outer * outer_places,
                )  # fmt: skip
                band = Band(
                    y=address_of(y), indices=address_of(indices), first_row=(low * step - top) * width,
                    target=(outer * small_height + low) * small + column, small=small, rows=high - low, end=end,
                    ask=ask, asked_bytes=asked_bytes, is_asked_for=is_asked_for,
                    indices_past_cache=indices_past_cache,
                )  # fmt: skip
                is_inside = first_column >= 0 and first_column + span <= width
                is_inside = is_inside and plane + last_row * width + first_column + read <= elements
                if not has_nan and is_inside:
                    has_nan = any_of(roll(block, band, ends, none, is_output, IGNORED, inside))
                elif not has_nan:
                    has_nan = any_of(roll(block, band, ends, none, is_output, IGNORED, beside))
                if has_nan and is_inside:
                    has_nan = roll_again(block, band, ends, none, is_output, nan, inside)
                elif has_nan:
                    has_nan = roll_again(block, band, ends, none, is_output, nan, beside)
                ask += asked_bytes * (high - low)
            low += band_height
            if low >= small_height:
                outer, low = outer + 1, 0
        if indices_past_cache:
            fence()

    return roll_planes
