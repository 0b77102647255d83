"""A small axis and a large axis, tied by one line of arithmetic.

    large position = small position * stride + tap * dilation - begin

Pooling walks it from large to small; unpooling and transposed convolution walk it back.
All sizes are Python ints in elements, so nothing here can overflow.
"""

import math
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.display import format_shape
from unpool.errors import ShapeError

INT64_MAX = 2**63 - 1
LARGEST = 2**31 - 1
"""The largest value of an attribute."""


class Window(NamedTuple):
    """The window along one axis, in elements."""

    size: int
    stride: int = 1
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Elements between the first and the last tap, both counted."""
        return reach(self)


class Axis(NamedTuple):
    """One spatial axis of a resolved call: both sizes, the window, and the padding before the first element."""

    large: int
    small: int
    window: Window
    begin: int = 0


class Span(NamedTuple):
    """Positions of one axis, from `first` up to `stop`, which is not one of them; it may begin before the axis."""

    first: int
    stop: int


class Walk(NamedTuple):
    """The (tap, other position) pairs of each position of one axis.

    Position p has `count[p]` taps; pair t is tap `tap[p] + t * tap_step` at `other[p] + t * other_step`.
    """

    tap: npt.NDArray[np.int64]
    other: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]  # type: ignore[assignment]  # a tuple has a method of this name
    tap_step: int
    other_step: int


def reach(window: Window) -> int:
    """As `Window.reach`, also in compiled code, which knows no properties."""
    return (window.size - 1) * window.dilation + 1


def pooled_size(large: int, window: Window, begin: int, end: int, *, ceil: bool) -> int:
    """Number of windows over a padded axis; with `ceil`, none of them starts in the padding at the end.

    Source: ONNX MaxPool 1-22; the ceil rule of 22 is applied to 10-12, which leave it open.

    >>> pooled_size(5, Window(2, 2), 1, 1, ceil=False), pooled_size(6, Window(3, 3), 1, 1, ceil=True)
    (3, 3)
    """
    plus, by = pooled_quotient(window, begin, end, ceil=ceil)
    return (large + plus) // by


def pooled_quotient(window: Window, begin: int, end: int, *, ceil: bool) -> tuple[int, int]:
    """(plus, by) such that `pooled_size` is (large + plus) // by for every size."""
    end = ceil_end(window, end) if ceil else end
    return begin + end - window.reach + window.stride, window.stride


def ceil_end(window: Window, end: int) -> int:
    """The padding at the end under which `pooled_size` gives without ceil what it gives with ceil, for every size."""
    return min(end + window.stride - 1, reach(window) - 1)


def truncated_pooled_size(large: int, window: Window, begin: int, end: int) -> int:
    """As `pooled_size` without ceil, but dividing toward zero: one window that does not fit may count."""
    room = large + begin + end - reach(window)
    return (room // window.stride if room >= 0 else -(-room // window.stride)) + 1


def same_pooled_size(large: int, stride: int) -> int:
    """Number of windows under SAME padding: one per started stride."""
    return -(-large // stride)


def split_pool_padding(total: int, is_upper: bool, keeps_negative: bool) -> int:
    """Part of the padding of a SAME pool that goes to the beginning; a negative total is 0, or halved."""
    if total < 0 and not keeps_negative:
        return 0
    extra = total if is_upper else total + 1
    return extra // 2 if extra >= 0 else -(-extra // 2)


class Padding(IntEnum):
    """The source of the padding of a window."""

    EXPLICIT = 0
    SAME_UPPER = 1
    SAME_LOWER = 2
    VALID = 3


class PoolRule(NamedTuple):
    """The rule for the padding and the size of a pool."""

    padding: int  # a Padding
    ceil: bool
    is_ort: bool  # as onnxruntime has it, where that differs from the standard


def place_pool(large: int, window: Window, pads: tuple[int, int], rule: PoolRule) -> tuple[int, int]:
    """Padding before the first element of an axis, and the number of windows, negative where none fits.

    >>> place_pool(5, Window(2, 2), (0, 0), PoolRule(Padding.SAME_LOWER, False, False))
    (1, 3)
    """
    if rule.padding == Padding.SAME_UPPER or rule.padding == Padding.SAME_LOWER:
        small = same_pooled_size(large, window.stride)
        total = (small - 1) * window.stride + reach(window) - large
        return split_pool_padding(total, rule.padding == Padding.SAME_UPPER, rule.is_ort), small
    begin, end, ceil = pads[0], pads[1], rule.ceil
    if rule.padding == Padding.VALID:
        begin, end, ceil = 0, 0, rule.ceil and rule.is_ort
    if rule.is_ort and not ceil:
        return begin, truncated_pooled_size(large, window, begin, end)
    return begin, (large + begin + (ceil_end(window, end) if ceil else end) - reach(window)) // window.stride + 1


def upsampled_size(small: int, window: Window, extra: int = 0, padding: int = 0) -> int:
    """Size of the axis that `small` windows cover: the inverse of `pooled_size`.

    >>> upsampled_size(3, Window(3, 2)), upsampled_size(3, Window(3, 2), extra=1, padding=2)
    (7, 6)
    """
    return (small - 1) * window.stride + extra + reach(window) - padding


class UpsamplingRule(NamedTuple):
    """The rule for the padding and the size of a transposed convolution."""

    padding: int  # a Padding
    is_ort: bool  # as onnxruntime has it, where that differs from the standard
    is_odd_swapped: bool  # whether the extra cell of an odd total is at the other side, with an output size


def place_upsampling(
    small: int, window: Window, pads: tuple[int, int], extra: int, asked: int, rule: UpsamplingRule
) -> tuple[int, int]:
    """Cells that are cut at the beginning of the full scatter, and the output size: `asked`, unless that is negative.

    >>> place_upsampling(3, Window(3, 2), (1, 1), 1, -1, UpsamplingRule(Padding.EXPLICIT, False, False))
    (1, 6)
    """
    full, is_upper = upsampled_size(small, window, extra=extra), rule.padding == Padding.SAME_UPPER
    if asked >= 0:
        return split_begin(full - asked, is_upper == rule.is_odd_swapped), asked
    if is_upper or rule.padding == Padding.SAME_LOWER:
        same = small * window.stride
        if rule.is_ort and full < same:
            return 0, full
        return split_begin(full - same, not is_upper), same
    return pads[0], full - pads[0] - pads[1]


def split_begin(total: int, is_odd_first: bool) -> int:
    """Part of a total padding that goes to the beginning; a negative total extends the end instead.

    >>> split_begin(3, False), split_begin(3, True), split_begin(-3, True)
    (1, 2, 0)
    """
    if total < 0:
        return 0
    return total - total // 2 if is_odd_first else total // 2


class UnpoolWindow(NamedTuple):
    """The window of a MaxUnpool without an output size along one axis, in elements; the default keeps the size."""

    size: int = 1
    stride: int = 1
    padding: int = 0

    def output_size(self, small: int) -> int:
        """The elements of the axis after unpooling, (small - 1) * stride + size - 2 * padding."""
        return upsampled_size(small, Window(self.size, self.stride), padding=2 * self.padding)


def window_undoing(pool: Window, padding: int, *, ceil: bool) -> UnpoolWindow:
    """The window of an unpooling that undoes a pool, for sizes that are not known yet.

    MaxUnpool has no dilation, so its window is as wide as the reach of the pool's. With `ceil` the last window of a
    pool may end after the data, by an amount that depends on the sizes. The window then ends after its first element of
    data: it gives a size that is never larger than that of the pool's input. The padding is the same at both ends.

    >>> window_undoing(Window(3, 2), 1, ceil=False), window_undoing(Window(3, 2), 1, ceil=True)
    (UnpoolWindow(size=3, stride=2, padding=1), UnpoolWindow(size=2, stride=2, padding=1))
    """
    return UnpoolWindow(padding + 1 if ceil else pool.reach, pool.stride, padding)


def window_between(small: int | None, large: int | None, undoing: UnpoolWindow | None) -> UnpoolWindow:
    """The window from which MaxUnpool infers `large` from `small` elements: its `output_size(small)` is `large`.

    `undoing` is the window that undoes the pool, see `window_undoing`; None without such a pool. It is returned
    unchanged if a size is unknown, None; otherwise its stride is used if it can lead to `large`.

    >>> window_between(3, 7, None), window_between(5, 4, None)
    (UnpoolWindow(size=3, stride=2, padding=0), UnpoolWindow(size=2, stride=1, padding=1))
    >>> window_between(4, 7, UnpoolWindow(3, 2, 1))
    UnpoolWindow(size=1, stride=2, padding=0)
    """
    if small is None or large is None:
        return undoing or UnpoolWindow()
    if small < 1 or large < 0:
        return UnpoolWindow()
    if large < small:
        return UnpoolWindow(small - large + 1, 1, small - large)
    stride = large // small
    if undoing is not None and (small - 1) * undoing.stride < large:
        stride = undoing.stride
    return UnpoolWindow(large - (small - 1) * stride, stride)


def element_count(sizes: Iterable[int], where: str) -> int:
    """Product of the sizes; without sizes of 0 it has to fit a signed 64-bit integer, as in every array."""
    sizes = tuple(sizes)
    count = math.prod(sizes)
    if count > INT64_MAX or (count == 0 and math.prod(size for size in sizes if size) > INT64_MAX):
        fact = f"a tensor has at most 2**63 - 1 elements, this call asks for {format_shape(sizes)}"
        raise ShapeError(f"{where}: {fact}. Reduce sizes or strides.")
    return count


def span_read(small: Span, window: Window, begin: int) -> Span:
    """The span of large positions that windows at a span of small positions cover, including padding.

    >>> span_read(Span(2, 4), Window(3, 2), 1)
    Span(first=3, stop=8)
    """
    low = small.first * window.stride - begin
    return Span(low, low + (small.stop - small.first - 1) * window.stride + window.reach)


def span_reaching(large: Span, window: Window, begin: int) -> Span:
    """The span of small positions whose windows reach into a span of large positions; it may be empty.

    Gaps in windows are ignored: the span is never too short.

    >>> span_reaching(Span(3, 8), Window(3, 2), 1), span_reaching(Span(2, 3), Window(1, 4), 0)
    (Span(first=1, stop=5), Span(first=1, stop=1))
    """
    first = -((window.reach - 1 - large.first - begin) // window.stride)
    return Span(first, (large.stop - 1 + begin) // window.stride + 1)


def corners(small: Span, window: Window, begin: int) -> npt.NDArray[np.int64]:
    """The large positions of the first taps of the windows at a span of small positions."""
    return np.arange(small.first, small.stop, dtype=np.int64) * window.stride - begin


def pooling_walk(axis: Axis) -> Walk:
    """For every small position, the taps inside the data and the large positions that they read."""
    window = axis.window
    corner = corners(Span(0, axis.small), window, axis.begin)
    first = np.maximum(0, -(corner // window.dilation))
    last = np.minimum(window.size, -((corner - axis.large) // window.dilation))
    other = corner + first * window.dilation
    return Walk(first, other, np.maximum(0, last - first), 1, window.dilation)


def upsampling_walk(axis: Axis) -> Walk:
    """For every large position, the taps that reach it and their small positions.

    Taps repeat with period stride / gcd(stride, dilation); small positions then step back by dilation / gcd.
    """
    window = axis.window
    common = math.gcd(window.stride, window.dilation)
    tap_step, back = window.stride // common, window.dilation // common
    position = np.arange(axis.large, dtype=np.int64) + axis.begin
    remainder = position % window.stride
    tap = remainder // common * modular_inverse(back, tap_step) % tap_step
    other = (position - tap * window.dilation) // window.stride
    skipped = np.maximum(0, -((axis.small - 1 - other) // back))
    tap, other = tap + skipped * tap_step, other - skipped * back
    count = np.minimum(-((tap - window.size) // tap_step), other // back + 1)
    return Walk(tap, other, np.maximum(0, count) * (remainder % common == 0), tap_step, -back)


def modular_inverse(number: int, modulus: int) -> int:
    """The factor that makes the number 1 more than a multiple of the modulus; the two have no common divisor.

    >>> modular_inverse(3, 7), modular_inverse(1, 1)
    (5, 0)
    """
    rest, last, factor, earlier = number % modulus, modulus, 1, 0
    while rest > 1:
        quotient = last // rest
        rest, last = last - quotient * rest, rest
        factor, earlier = earlier - quotient * factor, factor
    return factor % modulus


def taps_by_shift(window: Window) -> npt.NDArray[np.int64]:
    """The taps of windows that cover the cells of a large axis, in blocks of one stride.

    Cell `block * stride + phase`, counted from the first tap of the first window, is covered by tap `[shift, phase]` of
    small position `block - shift`, for

        phase + shift * stride = tap * dilation

    The result is int64 (shifts, stride), one shift per block that a window reaches; -1 if no tap covers the cell.

    >>> taps_by_shift(Window(3, 2)).tolist(), taps_by_shift(Window(2, 2, 2)).tolist()
    ([[0, 1], [2, -1]], [[0, -1], [1, -1]])
    """
    shifts = -(-window.reach // window.stride)
    cell = np.arange(shifts * window.stride, dtype=np.int64).reshape(shifts, window.stride)
    tap = cell // window.dilation
    return np.where((cell % window.dilation == 0) & (tap < window.size), tap, -1)


def met_taps(axis: Axis) -> tuple[int, int]:
    """The first tap that falls on data at any position, and the one after the last; (0, 0) if none does."""
    window = axis.window
    first = max(0, -(((axis.small - 1) * window.stride - axis.begin) // window.dilation))
    stop = min(window.size, -(-(axis.large + axis.begin) // window.dilation))
    return (first, stop) if first < stop else (0, 0)


def clipped(axis: Axis) -> Axis:
    """The same windows without the taps at their ends that never fall on data.

    >>> clipped(Axis(8, 8, Window(101), 50))
    Axis(large=8, small=8, window=Window(size=15, stride=1, dilation=1), begin=7)
    """
    (first, stop), window = met_taps(axis), axis.window
    if stop - first == window.size:
        return axis
    part = Window(max(1, stop - first), window.stride, window.dilation)
    return Axis(axis.large, axis.small, part, axis.begin - first * window.dilation)


def tap_spans(axis: Axis) -> npt.NDArray[np.int64]:
    """For every tap that can fall on data a row (tap, low, high, offset) of int64.

    Small positions p in [low, high) read large position p * stride + offset.
    """
    (first, stop), window = met_taps(axis), axis.window
    tap = np.arange(first, stop, dtype=np.int64)
    offset = tap * window.dilation - axis.begin
    low = np.maximum(0, -(offset // window.stride))
    high = np.minimum(axis.small, -((offset - axis.large) // window.stride))
    spans = np.empty((tap.size, 4), np.int64)
    spans[:, 0], spans[:, 1], spans[:, 2], spans[:, 3] = tap, low, np.maximum(low, high), offset
    return spans
