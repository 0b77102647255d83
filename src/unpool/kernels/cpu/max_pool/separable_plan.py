"""The plan of the separable pool, as tables: strips of planes, padded rows, and reductions.

    x -> padded rows, laid out as lines -> reductions along lines -> pooled rows -> reductions along other axes -> y

A reduction is a maximum over a few taps, of `rows` times `groups` runs of neighbouring elements. Sizes are in elements.
A place is a position of x as indices count it.
"""

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, Window
from unpool.kernels.cpu.fold_axes import padded_rows
from unpool.kernels.cpu.max_pool.compare import compare_lanes, compare_size
from unpool.kernels.cpu.max_pool.pool import PlaneAxes
from unpool.shape_cache import cached

STRIP_BYTES = 1 << 18  # pooled rows of one strip of a plane: they stay in the second cache
PLANES_BYTES = 1 << 15  # pooled rows of small planes that are put together
LINE_BYTES = 1 << 14  # bytes that are laid out at a time, to stay in the first cache
MOST_PLACES = 2**31 - 1  # elements of planes that are pooled together: places are counted with 32 bits
ALIGNMENT = 64  # bytes of a cache line; rows start at a multiple of it
_MOST_TAPS = 5  # of one reduction, at stride 1
_MOST_STRIDE = 64  # up to which a reduction has as many times more

Table = npt.NDArray[np.signedinteger]


class Reduction(NamedTuple):
    """A row of a table of reductions.

    Group g and row r start at element g * group_in + r * row_in, and go to g * group_out + r * row_out.
    """

    first_tap: int  # row of the table of taps
    stop_tap: int  # the one after the last
    rows: int  # of every group
    row_in: int  # elements from row to row, where they are read
    row_out: int  # the same where they are written
    run: int  # windows of a row
    stride: int = 1  # elements from window to window
    lane_places: int = 0  # places from window to window
    groups: int = 1  # number of groups
    group_in: int = 0  # elements from group to group, where they are read
    group_out: int = 0  # the same where they are written
    total: int = 0  # of the last reduction, the results of a strip
    in_place: int = 0  # 1 where results replace what is read, otherwise 0


REDUCTION = np.dtype([(name, np.int64) for name in Reduction._fields])


class SeparablePoolParams(NamedTuple):
    """Arguments of a call. Where small planes are put together, all of them count as one plane."""

    plane: int  # elements of x in a plane
    outputs: int  # elements of y in a plane
    strips: int  # of a plane
    strip_rows: int  # padded rows from one strip to the next
    strip_elements: int  # elements of x from one strip to the next
    strip_outputs: int  # elements of y from one strip to the next
    used_rows: int  # padded rows of a strip
    last_used_rows: int  # padded rows of the last strip of a plane
    counts_planes: bool  # whether places count in the whole tensor, rather than inside their own plane
    line_pitch: int  # elements from one laid out row to the next
    even: int  # begin of the data in a laid out row; with two phases, of the even elements
    odd: int  # with two phases, begin of the odd elements
    row_elements: int  # elements of x in a laid out row
    row_start: int  # the element of x's row that they begin with
    line_rows: int  # rows that are laid out at a time
    line_size: int  # elements of them
    shift: int  # elements before the first of them, so that data start with a line of the cache
    pooled_size: int  # elements of the pooled rows of one strip
    pooled_pitch: int  # elements from one of them to the next
    has_channels: bool  # whether there are channels
    prefetch_distance: int = 0  # bytes; 0 for no prefetch
    nan: int = 0  # FIRST or LAST, the NaN whose index is found
    infinity: int = 0  # bits of +infinity, of 16-bit floats
    fill: Any = 0  # value of padding, as elements are compared


class SeparablePoolTables(NamedTuple):
    """Tables of a call."""

    starts: Table  # element at which each padded row starts in the plane, -1 in the padding
    row_places: Table  # place of the first position of each padded row
    lane_places: Table  # with channels, added to it for each position of a row
    tap_bytes: Table  # distance of each tap in bytes
    tap_places: Table  # added to the place by each tap
    line_reductions: npt.NDArray[np.void]  # (reductions) along a row
    plane_reductions: npt.NDArray[np.void]  # (2, reductions) along the other axes, of a strip and of the last one

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in self)


def padded_size(axis: Axis) -> int:
    """Elements of an axis with all the padding that a window touches."""
    return (axis.small - 1) * axis.window.stride + axis.window.reach


def chain(window: Window) -> list[list[int]]:
    """A window of many taps as windows of few, each over the results of the one before.

    Only the last of them is evaluated at every `stride`-th position, and may have `stride` times more taps.

    >>> chain(Window(3)), chain(Window(6)), chain(Window(13))
    ([[0, 1, 2]], [[0, 1, 2, 3], [0, 2]], [[0, 1, 2, 3], [0, 4, 8, 9]])
    """
    steps, covered = [], 1
    while -(-window.size // covered) > _MOST_TAPS * min(window.stride, _MOST_STRIDE):
        steps.append([tap * covered for tap in range(4)])
        covered *= 4
    taps = -(-window.size // covered)
    return [*steps, [*(tap * covered for tap in range(taps - 1)), window.size - covered]]


def known_stride(axis: Axis, inner: int) -> int:
    """The stride of the last axis for which the kernel is compiled: 1; 2, if one reduction is enough; 0 for any."""
    if inner > 1 or axis.window.stride == 1:
        return 1
    return 2 if axis.window.stride == 2 and len(chain(axis.window)) == 1 else 0


class TapTableBuilder:
    """Builds the table of taps."""

    def __init__(self, width: int):
        self.width = width
        self.rows: list[tuple[int, int]] = []

    def add(self, offsets: Iterable[int], places: Iterable[int]) -> tuple[int, int]:
        """Add taps at offsets in elements; the range of their rows."""
        first = len(self.rows)
        self.rows += [(offset * self.width, place) for offset, place in zip(offsets, places, strict=False)]
        return first, len(self.rows)


class RowLayout(NamedTuple):
    """The layout of laid out rows."""

    pitch: int  # elements from one to the next
    even: int  # where the data of a row begins; with two phases, where its even elements do
    odd: int  # where its odd elements do, with two phases
    apart: int  # from even to odd positions of the padded row, with two phases; 0 if all are neighbours

    def place(self, position: int) -> int:
        """The element of a position of the padded row."""
        return position // 2 + position % 2 * self.apart if self.apart else position


def _row_layout(padded: int, low: int, count: int, phases: int, whole: int) -> RowLayout:
    """The layout in which even and odd elements begin at the same place of a cache line."""
    if phases == 1:
        return RowLayout(_round_up(padded, whole), low, 0, 0)
    half = _round_up(max(padded, low + 1 + _round_up(count, 2 * whole)) // 2 + 1, whole)
    line = RowLayout(2 * half + whole, 0, 0, half + low % 2)
    return line._replace(even=line.place(low), odd=line.place(low + 1))


@cached(256)
def plan_strips(plane: PlaneAxes, element: str, has_indices: bool, outer: int, per_plane: bool):
    """Arguments and tables of a call: planes split into strips, or small planes put together, and the reductions."""
    spatial, inner, width, lanes = plane.spatial, plane.unit, compare_size(element), compare_lanes(element)
    channel_places = 0 if per_plane else prod(axis.large for axis in spatial)
    last, whole = spatial[-1], ALIGNMENT // width
    pooled = last.small * inner
    if len(spatial) == 2 and spatial[0].window.stride > 1:
        pooled = _round_up(pooled, whole)
    row_bytes = pooled * width * (1 + has_indices)
    rows, size = prod(padded_size(axis) for axis in spatial[:-1]), prod(axis.large for axis in spatial)
    planes = 1 if inner > 1 else _planes(outer, row_bytes * rows, size)
    axes = spatial if planes == 1 and len(spatial) > 1 else (Axis(planes, planes, Window(1)), *spatial)
    padded, sizes = [padded_size(axis) for axis in axes], [axis.large for axis in axes]
    weights = [prod(sizes[number + 1 :]) * inner for number in range(len(axes) - 1)]
    starts = padded_rows(padded[:-1], [axis.begin for axis in axes[:-1]], sizes[:-1], weights)
    first, rest, after = axes[0], prod(padded[1:-1]), prod(axis.small for axis in axes[1:]) * inner
    strips, height = (-(-outer // planes), planes) if planes > 1 else _strips(first, rest * row_bytes)
    heights = (height, (outer if planes > 1 else first.small) - (strips - 1) * height)
    depths = [padded_size(Axis(0, each, first.window)) for each in heights]
    low = min(max(last.begin, 0), padded[-1])
    count = (max(low, min(last.begin + last.large, padded[-1])) - low) * inner
    line = _row_layout(padded[-1] * inner, low * inner, count, max(1, known_stride(last, inner)), whole)
    line_rows = 1 if inner > 1 else min(max(depths) * rest, max(1, LINE_BYTES // (line.pitch * width)))
    taps, slack = TapTableBuilder(width), 4 * lanes + 2 * whole
    line_reductions = list(_line_reductions(last, inner, channel_places, (line_rows, pooled, lanes), line, taps))
    kept_taps, reductions = len(taps.rows), []
    for each, depth in zip(heights, depths, strict=True):
        del taps.rows[kept_taps:]
        reductions.append(list(_plane_reductions(axes, inner, (each, depth, pooled, lanes), taps)))
    elements, place = prod(sizes[1:]) * inner, np.int64 if width == 8 else np.int32
    places = (starts % elements if per_plane and planes > 1 else starts) // inner
    positions = np.arange(padded[-1] if inner > 1 else 0) * (last.window.stride if len(line_reductions) == 1 else 1)
    params = SeparablePoolParams(
        plane=(outer if planes > 1 else sizes[0]) * elements, outputs=(outer if planes > 1 else first.small) * after,
        strips=strips, strip_rows=0 if planes > 1 else height * first.window.stride * rest,
        strip_elements=planes * elements if planes > 1 else 0, strip_outputs=height * after,
        used_rows=depths[0] * rest, last_used_rows=depths[1] * rest, counts_planes=not per_plane,
        line_pitch=line.pitch, even=line.even, odd=line.odd,
        row_elements=count, row_start=(low - last.begin) * inner,
        line_rows=line_rows, line_size=line_rows * line.pitch + slack, shift=-line.even % whole,
        pooled_size=max(depths) * rest * pooled + slack, pooled_pitch=pooled, has_channels=inner > 1,
    )  # fmt: skip
    tap_bytes, tap_places = np.array(taps.rows, np.int64).T.copy()
    tables = SeparablePoolTables(
        starts, (places - last.begin).astype(place), positions.astype(place), tap_bytes, tap_places,
        np.array(line_reductions, REDUCTION), np.array(reductions, REDUCTION),
    )  # fmt: skip
    return params, tables


def _planes(outer: int, plane_bytes: int, size: int) -> int:
    """The number of small planes that are pooled together, so that places fit and threads have some parts."""
    return max(1, min(PLANES_BYTES // max(1, plane_bytes), outer // 8, MOST_PLACES // size))


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _strips(first: Axis, row_bytes: int) -> tuple[int, int]:
    """The number of strips, and their output positions; at most about half of a strip overlaps the next."""
    window = first.window
    fitting = (STRIP_BYTES // max(1, row_bytes) - window.reach) // window.stride + 1
    height = min(first.small, max((window.reach - 1) // window.stride + 1, fitting))
    count = -(-first.small // height)
    height = -(-first.small // count)
    return -(-first.small // height), height


def _line_reductions(
    axis: Axis, inner: int, channel_places: int, sizes, line, taps: TapTableBuilder
) -> Iterator[Reduction]:
    """From laid out rows to pooled rows; `sizes` are the rows, the pitch of the pooled ones, and lanes of a register.

    With channels a reduction is of one row, and its rows are the positions of that.
    """
    stride, dilation, padded = axis.window.stride, axis.window.dilation, padded_size(axis)
    (rows, pooled, lanes), small, pitch = sizes, axis.small, line.pitch
    *steps, final = chain(axis.window)
    for number, step in enumerate(steps):
        tap_rows = taps.add((tap * dilation * inner for tap in step), (tap * dilation for tap in step))
        reach = step[-1] * dilation
        if number > 0:
            yield _flat(tap_rows, rows * pitch - reach * inner, lanes)._replace(in_place=1)
        elif inner > 1:
            yield Reduction(*tap_rows, padded - reach, inner, inner, inner, 1, channel_places)
        else:
            yield Reduction(*tap_rows, rows, pitch, pitch, padded - reach, 1, 1)
    tap_rows = taps.add((line.place(tap * dilation * inner) for tap in final), (tap * dilation for tap in final))
    if inner > 1:
        yield Reduction(*tap_rows, small, stride * inner, inner, inner, 1, channel_places)
    else:
        yield Reduction(*tap_rows, rows, pitch, pooled, small, 1 if line.apart else stride, stride)


def _flat(tap_rows: tuple[int, int], run: int, lanes: int) -> Reduction:
    """One long run, as rows of one register each."""
    return Reduction(*tap_rows, -(-run // lanes), lanes, lanes, lanes)


def _plane_reductions(
    axes: tuple[Axis, ...], inner: int, strip: tuple[int, ...], taps: TapTableBuilder
) -> Iterator[Reduction]:
    """From pooled rows to outputs; a strip is its pooled and padded positions, a row's pitch, a register's lanes."""
    height, depth, pooled, lanes = strip
    is_pooled = False
    padded = [depth, *(padded_size(axis) for axis in axes[1:])]
    small = [height, *(axis.small for axis in axes[1:])]
    for number in range(len(axes) - 2, -1, -1):
        window, run = axes[number].window, prod(small[number + 1 :]) * inner
        pitch = prod(small[number + 1 : -1]) * pooled
        if window.size == window.stride == 1 and (number > 0 or is_pooled):
            continue
        rows, is_pooled = prod(padded[:number]), True
        *steps, final = chain(window)
        for step in steps:
            tap_rows = taps.add((tap * window.dilation * pitch for tap in step), step)
            run_in_place = (rows * padded[number] - step[-1] * window.dilation) * pitch
            yield _flat(tap_rows, run_in_place, lanes)._replace(in_place=1)
        tap_rows = taps.add((tap * window.dilation * pitch for tap in final), final)
        group_in, group_out = padded[number] * pitch, small[number] * run
        total = rows * group_out
        if window.stride > 1:
            apart = window.stride * pitch
            yield Reduction(*tap_rows, small[number], apart, run, run, 1, 0, rows, group_in, group_out, total)
        elif rows == 1:
            yield _flat(tap_rows, total, lanes)._replace(total=total)
        else:
            yield Reduction(*tap_rows, rows, group_in, group_out, group_out, total=total)
