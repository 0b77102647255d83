"""The plan of the separable pool, as tables: strips of planes, padded rows, and reductions.

    x -> padded rows, laid out as lines -> reductions along lines -> pooled rows -> reductions along other axes -> y

A reduction is a maximum over some taps, of `rows` times `groups` runs of neighbouring elements. Sizes are in elements.
A place is a position of x as indices count it.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, Window, reach
from unpool.kernels.cpu.axes import axis_at, large_sizes, prepend, small_sizes
from unpool.kernels.cpu.machine.jit import record_type
from unpool.kernels.cpu.max_pool.elements import compare_lanes, compare_size
from unpool.kernels.cpu.max_pool.pool import PlaneAxes, spatial_axes
from unpool.kernels.cpu.tuning import CACHE_LINE, SEPARABLE_POOL
from unpool.kernels.cpu.vector.registration import jit_inline
from unpool.shape_cache import cached

MAX_PLACES = 2**31 - 1  # elements of planes that are pooled together: places are counted with 32 bits

Table = npt.NDArray[np.signedinteger]


class Repetition(NamedTuple):
    """Parts of a reduction at equal distances."""

    number: int  # of parts
    read: int  # elements from one to the next, where they are read
    written: int  # the same where they are written


class Reduction(NamedTuple):
    """A row of a table of reductions.

    Group g and row r start at element g * groups.read + r * rows.read, and go to g * groups.written + r * rows.written.
    """

    first_tap: int  # row of the table of taps
    stop_tap: int  # end of its taps there
    rows: Repetition  # of every group
    run: int  # windows of a row
    stride: int  # elements from window to window
    lane_places: int  # places from window to window
    groups: Repetition
    total: int  # of the last reduction, the results of a strip
    in_place: int  # 1 where results replace what is read, otherwise 0


ONE_GROUP = Repetition(1, 0, 0)
REDUCTION = record_type(Reduction)
_FIELDS = REDUCTION.itemsize // 8


class PlaneStrips(NamedTuple):
    """Strips of planes. Where small planes are put together, all of them count as one plane."""

    plane: int  # elements of x in a plane
    outputs: int  # elements of y in a plane
    strips: int  # number of strips in a plane
    strip_rows: int  # padded rows from one strip to the next
    strip_elements: int  # elements of x from one strip to the next
    strip_outputs: int  # elements of y from one strip to the next
    used_rows: int  # padded rows of a strip
    last_used_rows: int  # padded rows of the last strip of a plane
    counts_planes: bool  # whether places count in the whole tensor, rather than inside their own plane


class LineLayout(NamedTuple):
    """Rows that are laid out as lines, some at a time."""

    line_pitch: int  # elements from one laid out row to the next
    even: int  # begin of the data in a laid out row; with two phases, of the even elements
    odd: int  # with two phases, begin of the odd elements
    row_elements: int  # elements of x in a laid out row
    row_start: int  # the element of x's row that they begin with
    line_rows: int  # rows that are laid out at a time
    line_size: int  # elements of these rows
    shift: int  # elements before the first row, so that data start with a line of the cache


class StripParams(NamedTuple):
    """What a call works on at a time."""

    planes: PlaneStrips
    lines: LineLayout
    pooled_size: int  # elements of the pooled rows of one strip
    pooled_pitch: int  # elements from one pooled row to the next
    has_channels: bool  # whether there are channels


class SeparablePoolParams(NamedTuple):
    """Arguments of a call."""

    strips: StripParams
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
    line_reductions: Any  # (reductions) along a row
    plane_reductions: Any  # (2, reductions) along the other axes, of a strip and of the last one

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in self)


@jit_inline
def padded_size(axis: Axis) -> int:
    """Elements of an axis with all the padding that a window touches."""
    return (axis.small - 1) * axis.window.stride + reach(axis.window)


def chain(window: Window) -> list[list[int]]:
    """A window of many taps as a list of small windows, each over the results of its predecessor.

    Only the last of them is evaluated at every `stride`-th position, and may have `stride` times more taps.

    >>> chain(Window(3)), chain(Window(6)), chain(Window(13))
    ([[0, 1, 2]], [[0, 1, 2, 3], [0, 2]], [[0, 1, 2, 3], [0, 4, 8, 9]])
    """
    count, covered, taps = chain_form(window)
    steps = [[tap * 4**number for tap in range(4)] for number in range(count)]
    return [*steps, [*(tap * covered for tap in range(taps - 1)), window.size - covered]]


@jit_inline
def chain_form(window: Window) -> tuple[int, int, int]:
    """The number of windows before the last one of a chain, elements that their results cover, and taps of the last.

    Window n has the taps 0, 1, 2 and 3 times 4**n; the last one has neighbouring results, but its last tap ends there.

    >>> chain_form(Window(3)), chain_form(Window(13))
    ((0, 1, 3), (1, 4, 4))
    """
    steps, covered = 0, 1
    while -(-window.size // covered) > SEPARABLE_POOL.taps * min(window.stride, SEPARABLE_POOL.stride):
        steps, covered = steps + 1, 4 * covered
    return steps, covered, -(-window.size // covered)


@jit_inline
def known_stride(axis: Axis, inner: int) -> int:
    """The stride of the last axis for which the kernel is compiled: 1; 2, if one reduction is enough; 0 for any."""
    if inner > 1 or axis.window.stride == 1:
        return 1
    return 2 if axis.window.stride == 2 and chain_form(axis.window)[0] == 0 else 0


class RowLayout(NamedTuple):
    """The layout of laid out rows."""

    pitch: int  # elements from one to the next
    even: int  # where the data of a row begins; with two phases, where its even elements do
    odd: int  # where its odd elements do, with two phases
    apart: int  # from even to odd positions of the padded row, with two phases; 0 if all are neighbours


@jit_inline
def _place_in(line: RowLayout, position: int) -> int:
    """The element of a position of the padded row."""
    return position // 2 + position % 2 * line.apart if line.apart else position


@jit_inline
def _row_layout(padded: int, low: int, count: int, phases: int, whole: int) -> RowLayout:
    """The layout in which even and odd elements begin at the same place of a cache line."""
    if phases == 1:
        return RowLayout(_round_up(padded, whole), low, 0, 0)
    half = _round_up(max(padded, low + 1 + _round_up(count, 2 * whole)) // 2 + 1, whole)
    apart = half + low % 2
    even, odd = low // 2 + low % 2 * apart, (low + 1) // 2 + (low + 1) % 2 * apart
    return RowLayout(2 * half + whole, even, odd, apart)


@cached(256)
def plan_strips(
    plane: PlaneAxes, element: str, has_indices: bool, outer: int, per_plane: bool
) -> tuple[StripParams, SeparablePoolTables]:
    """Planes split into strips, or small planes put together, and the tables of a call."""
    params, tables = make_strips(plane, element, has_indices, outer, per_plane)
    place = np.int64 if compare_size(element) == 8 else np.int32
    return params, SeparablePoolTables(
        tables.starts, tables.row_places.astype(place), tables.lane_places.astype(place),
        tables.tap_bytes, tables.tap_places,
        tables.line_reductions.view(REDUCTION)[:, 0], tables.plane_reductions.view(REDUCTION)[:, :, 0],
    )  # fmt: skip


@jit_inline
def make_strips(plane: PlaneAxes, element: Any, has_indices: bool, outer: int, per_plane: bool) -> Any:
    """As `plan_strips`, with places as int64, and reductions as rows of numbers."""
    spatial, inner, width, lanes = spatial_axes(plane), plane.unit, compare_size(element), compare_lanes(element)
    last, whole, size = axis_at(spatial, len(spatial) - 1), CACHE_LINE // width, large_sizes(spatial, 0)
    pooled = last.small * inner
    if len(spatial) == 2 and axis_at(spatial, 0).window.stride > 1:
        pooled = _round_up(pooled, whole)
    row_bytes = pooled * width * (2 if has_indices else 1)
    planes = 1 if inner > 1 else _planes(outer, row_bytes * _padded_sizes(spatial, 0), size)
    axes = spatial
    if planes > 1 or len(spatial) == 1:
        axes = prepend(Axis(planes, planes, Window(1, 1, 1), 0), spatial)
    first, rest, after = axis_at(axes, 0), _padded_sizes(axes, 1), small_sizes(axes, 1) * inner
    strips, height, heights = -(-outer // planes), planes, outer
    if planes == 1:
        strips, height = _strips(first, rest * row_bytes)
        heights = first.small
    last_height = heights - (strips - 1) * height
    depth = (height - 1) * first.window.stride + reach(first.window)
    last_depth = (last_height - 1) * first.window.stride + reach(first.window)
    most_depth, padded = max(depth, last_depth), padded_size(last)
    low = min(max(last.begin, 0), padded)
    count = (max(low, min(last.begin + last.large, padded)) - low) * inner
    line = _row_layout(padded * inner, low * inner, count, max(1, known_stride(last, inner)), whole)
    line_rows = 1 if inner > 1 else min(most_depth * rest, max(1, SEPARABLE_POOL.line // (line.pitch * width)))
    slack, most_taps, most_reductions = 4 * lanes + 2 * whole, 0, 0
    for number in range(len(axes)):
        steps, _, final = chain_form(axis_at(axes, number).window)
        most_taps, most_reductions = most_taps + 4 * steps + final, most_reductions + steps + 1
    taps = np.zeros((most_taps, 2), np.int64)
    lines = np.zeros((most_reductions, _FIELDS), np.int64)
    others = np.zeros((2, most_reductions, _FIELDS), np.int64)
    sizes = line_rows, pooled, lanes
    line_count, kept = _line_reductions(last, inner, 0 if per_plane else size, sizes, line, taps, lines)
    strip, last_strip = (height, depth, pooled, lanes), (last_height, last_depth, pooled, lanes)
    _plane_reductions(axes, inner, strip, taps, kept, others[0])
    other_count, tap_count = _plane_reductions(axes, inner, last_strip, taps, kept, others[1])
    starts, elements = _padded_starts(axes, inner), large_sizes(axes, 1) * inner
    places = starts % elements if per_plane and planes > 1 else starts
    apart = last.window.stride if line_count == 1 else 1
    strips_of_planes = PlaneStrips(
        outer * elements if planes > 1 else first.large * elements, (outer if planes > 1 else first.small) * after,
        strips, 0 if planes > 1 else height * first.window.stride * rest,
        planes * elements if planes > 1 else 0, height * after, depth * rest, last_depth * rest, not per_plane,
    )  # fmt: skip
    layout = LineLayout(
        line.pitch, line.even, line.odd, count, (low - last.begin) * inner, line_rows, line_rows * line.pitch + slack,
        -line.even % whole,
    )  # fmt: skip
    params = StripParams(strips_of_planes, layout, most_depth * rest * pooled + slack, pooled, inner > 1)
    return params, SeparablePoolTables(
        starts, places // inner - last.begin, np.arange(padded if inner > 1 else 0) * apart,
        taps[:tap_count, 0] * width, taps[:tap_count, 1].copy(),
        lines[:line_count].copy(), others[:, :other_count].copy(),
    )  # fmt: skip


@jit_inline
def _padded_sizes(axes: Any, first: int) -> int:
    """The product of the padded sizes of axes from a number on, without the last one."""
    product = 1
    for number in range(first, len(axes) - 1):
        product *= padded_size(axis_at(axes, number))
    return product


@jit_inline
def _padded_starts(axes: Any, inner: int) -> Any:
    """For every position of padded leading axes the element at which its row starts, -1 in the padding."""
    starts = np.zeros(1, np.int64)
    for number in range(len(axes) - 1):
        axis = axis_at(axes, number)
        position = np.arange(padded_size(axis)) - axis.begin
        is_data = (position >= 0) & (position < axis.large)
        offsets = position * (large_sizes(axes, number + 1) * inner)
        grown = np.empty((starts.size, position.size), np.int64)
        for row in range(starts.size):
            grown[row] = (starts[row] + offsets + 1) * (is_data & (starts[row] >= 0)) - 1
        starts = grown.reshape(-1)
    return starts


@jit_inline
def _planes(outer: int, plane_bytes: int, size: int) -> int:
    """The number of small planes that are pooled together, so that places fit and threads have some parts."""
    return max(1, min(SEPARABLE_POOL.planes // max(1, plane_bytes), outer // 8, MAX_PLACES // size))


@jit_inline
def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@jit_inline
def _strips(first: Axis, row_bytes: int) -> tuple[int, int]:
    """The number of strips, and their output positions; at most half of a strip, about, overlaps the next."""
    window = first.window
    fitting = (SEPARABLE_POOL.strip // max(1, row_bytes) - reach(window)) // window.stride + 1
    height = min(first.small, max((reach(window) - 1) // window.stride + 1, fitting))
    count = -(-first.small // height)
    height = -(-first.small // count)
    return -(-first.small // height), height


@jit_inline
def _put(table: Any, number: int, reduction: Reduction) -> None:
    """Write a row of a table of reductions."""
    rows, groups = reduction.rows, reduction.groups
    fields = (
        reduction.first_tap, reduction.stop_tap, rows.number, rows.read, rows.written, reduction.run, reduction.stride,
        reduction.lane_places, groups.number, groups.read, groups.written, reduction.total, reduction.in_place,
    )  # fmt: skip
    for field in range(_FIELDS):
        table[number, field] = fields[field]


@jit_inline
def _line_reductions(axis: Axis, inner: int, channel_places: int, sizes: Any, line: Any, taps: Any, table: Any) -> Any:
    """From laid out rows to pooled rows; `sizes` are the rows, the pitch of the pooled ones, and lanes of a register.

    With channels a reduction is of one row, and its rows are the positions of that. The results are the numbers of
    reductions and of taps.
    """
    stride, dilation, padded = axis.window.stride, axis.window.dilation, padded_size(axis)
    (rows, pooled, lanes), small, pitch, used = sizes, axis.small, line.pitch, 0
    count, covered, last = chain_form(axis.window)
    for number in range(count):
        distance = (1 << 2 * number) * dilation
        for tap in range(4):
            taps[used + tap, 0] = tap * distance * inner
            taps[used + tap, 1] = tap * distance
        reached = 3 * distance
        end = used + 4
        if number > 0:
            parts = Repetition(-(-(rows * pitch - reached * inner) // lanes), lanes, lanes)
            made = Reduction(used, end, parts, lanes, 1, 0, ONE_GROUP, 0, 1)
        elif inner > 1:
            parts = Repetition(padded - reached, inner, inner)
            made = Reduction(used, end, parts, inner, 1, channel_places, ONE_GROUP, 0, 0)
        else:
            parts = Repetition(rows, pitch, pitch)
            made = Reduction(used, end, parts, padded - reached, 1, 1, ONE_GROUP, 0, 0)
        _put(table, number, made)
        used += 4
    for tap in range(last):
        at = (tap * covered if tap < last - 1 else axis.window.size - covered) * dilation
        taps[used + tap, 0] = _place_in(line, at * inner)
        taps[used + tap, 1] = at
    stop, step = used + last, 1 if line.apart else stride
    if inner > 1:
        made = Reduction(
            used, stop, Repetition(small, stride * inner, inner), inner, 1, channel_places, ONE_GROUP, 0, 0
        )  # fmt: skip
    else:
        made = Reduction(used, stop, Repetition(rows, pitch, pooled), small, step, stride, ONE_GROUP, 0, 0)
    _put(table, count, made)
    return count + 1, stop


@jit_inline
def _plane_reductions(axes: Any, inner: int, strip: Any, taps: Any, used: int, table: Any) -> Any:
    """From pooled rows to outputs; a strip is its pooled and padded positions, a row's pitch, a register's lanes.

    The results are the numbers of reductions, and of taps including the `used` ones.
    """
    (height, depth, pooled, lanes), is_pooled, written = strip, False, 0
    for number in range(len(axes) - 2, -1, -1):
        axis = axis_at(axes, number)
        window, run = axis.window, small_sizes(axes, number + 1) * inner
        pitch = pooled
        for each in range(number + 1, len(axes) - 1):
            pitch *= axis_at(axes, each).small
        if window.size == 1 and window.stride == 1 and (number > 0 or is_pooled):
            continue
        rows, is_pooled = 1, True
        for each in range(number):
            rows *= depth if each == 0 else padded_size(axis_at(axes, each))
        padded, small = (depth, height) if number == 0 else (padded_size(axis), axis.small)
        count, covered, last = chain_form(window)
        for step in range(count):
            for tap in range(4):
                taps[used + tap, 0] = (tap << 2 * step) * window.dilation * pitch
                taps[used + tap, 1] = tap << 2 * step
            there = (rows * padded - (3 << 2 * step) * window.dilation) * pitch
            parts = Repetition(-(-there // lanes), lanes, lanes)
            _put(table, written, Reduction(used, used + 4, parts, lanes, 1, 0, ONE_GROUP, 0, 1))
            used, written = used + 4, written + 1
        for tap in range(last):
            at = tap * covered if tap < last - 1 else window.size - covered
            taps[used + tap, 0] = at * window.dilation * pitch
            taps[used + tap, 1] = at
        stop, group_in, group_out = used + last, padded * pitch, small * run
        total, groups = rows * group_out, Repetition(rows, group_in, group_out)
        if window.stride > 1:
            apart = window.stride * pitch
            made = Reduction(used, stop, Repetition(small, apart, run), run, 1, 0, groups, total, 0)
        elif rows == 1:
            made = Reduction(used, stop, Repetition(-(-total // lanes), lanes, lanes), lanes, 1, 0, ONE_GROUP, total, 0)
        else:
            made = Reduction(used, stop, Repetition(rows, group_in, group_out), group_out, 1, 0, ONE_GROUP, total, 0)
        _put(table, written, made)
        used, written = stop, written + 1
    return written, used
