"""One spatial axis: its size step by step, and a drawing of its windows.

`small` is the size of X of an unpooling and of the result of a pooling, `large` that of the other side. The formulas
are texts; their values come from `operators/` and `geometry`, and a test computes every line as written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unpool.errors import UnpoolError
from unpool.geometry import Axis, Span, span_read, upsampled_size, upsampling_walk
from unpool.operators.contract import Switch
from unpool.operators.conv_transpose import AxisRule, ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec

SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class SizeStep:
    """One line of arithmetic, such as `room = large + begin + end - reach = 7 + 1 + 0 - 3 = 5`.

    Attributes:
        name: of the result.
        rule: the formula, with the names of earlier results.
        numbers: the formula with their values.
        value: of the result, in elements.
    """

    name: str
    rule: str
    numbers: str
    value: int

    def __str__(self) -> str:
        return " = ".join(dict.fromkeys((self.name, self.rule, self.numbers, str(self.value))))


class _StepList:
    """A list of steps that is built from rules: texts with the names of values in braces."""

    def __init__(self, axis: Axis, **values: int) -> None:
        window = axis.window
        self._known = {"window": window.size, "stride": window.stride, "dilation": window.dilation, **values}
        self.steps: list[SizeStep] = []

    def add(self, name: str, rule: str, value: int) -> int:
        """Append the step `name = rule = value`, and return the value."""
        numbers = {values: f"({number})" if number < 0 else str(number) for values, number in self._known.items()}
        words = {values: values for values in numbers}
        self.steps.append(SizeStep(name, rule.format_map(words), rule.format_map(numbers), value))
        self._known[name] = value
        return value

    def reach(self, axis: Axis) -> None:
        """Append the reach of a window."""
        self.add("reach", "({window} - 1) * {dilation} + 1", axis.window.reach)

    def begin(self, total: int, axis: Axis, *, odd_at_end: bool) -> None:
        """Append the part of a total before the first element."""
        if total < 0:
            self.add("begin", "0", axis.begin)
        else:
            self.add("begin", "floor({total} / 2)" if odd_at_end else "{total} - floor({total} / 2)", axis.begin)


def pool_steps(spec: MaxPoolSpec, number: int, axis: Axis) -> tuple[SizeStep, ...]:
    """The steps from the size of X to the number of windows, along spatial axis `number` of a MaxPool."""
    steps = _StepList(axis, large=axis.large)
    steps.reach(axis)
    is_ort = spec.compat == "ort"
    if spec.padding in SAME:
        _same_pool_steps(steps, spec, axis)
        return tuple(steps.steps)
    begin, end = (0, 0) if spec.padding == "VALID" else spec.pads[number]
    steps.add("begin", str(begin), begin)
    steps.add("end", str(end), end)
    steps.add("room", "{large} + {begin} + {end} - {reach}", axis.large + begin + end - axis.window.reach)
    if spec.ceil and (spec.padding != "VALID" or is_ort):
        rule = "min(ceil({room} / {stride}), floor(({large} + {begin} - 1) / {stride})) + 1"
    else:
        rule = f"{'trunc' if is_ort else 'floor'}({{room}} / {{stride}}) + 1"
    steps.add("small", rule, axis.small)
    return tuple(steps.steps)


def _same_pool_steps(steps: _StepList, spec: MaxPoolSpec, axis: Axis) -> None:
    steps.add("small", "ceil({large} / {stride})", axis.small)
    covered = upsampled_size(axis.small, axis.window)
    total = steps.add("total", "({small} - 1) * {stride} + {reach} - {large}", covered - axis.large)
    if total < 0 and spec.compat == "ort":
        part = "{total}" if spec.padding == "SAME_UPPER" else "({total} + 1)"
        steps.add("begin", f"trunc({part} / 2)", axis.begin)
    else:
        steps.begin(total, axis, odd_at_end=spec.padding == "SAME_UPPER")
    steps.add("end", "max({total} - {begin}, 0)", max(total - axis.begin, 0))


def unpool_steps(spec: MaxUnpoolSpec, number: int, axis: Axis, *, is_asked: bool) -> tuple[SizeStep, ...]:
    """The steps from the size of X to that of the output, along spatial axis `number` of a MaxUnpool."""
    begin, end = spec.pads[number]
    steps = _StepList(axis, small=axis.small, begin=begin, end=end, output_shape=axis.large)
    inferred = upsampled_size(axis.small, axis.window, padding=begin + end)
    steps.add("inferred", "({small} - 1) * {stride} + {window} - {begin} - {end}", inferred)
    steps.add("large", "{output_shape}" if is_asked else "{inferred}", axis.large)
    return tuple(steps.steps)


def conv_transpose_steps(spec: ConvTransposeSpec, rule: AxisRule, axis: Axis) -> tuple[SizeStep, ...]:
    """The steps from the size of X to that of the output, along one axis of a ConvTranspose."""
    steps = _StepList(axis, small=axis.small, output_padding=rule.extra, output_shape=rule.asked or 0)
    steps.reach(axis)
    full = steps.add(
        "full",
        "({small} - 1) * {stride} + {reach} + {output_padding}",
        upsampled_size(axis.small, axis.window, extra=rule.extra),
    )
    if rule.asked is not None:
        steps.add("large", "{output_shape}", axis.large)
        is_swapped = Switch.ODD_SIDE_SWAPPED in spec.row.switches and spec.compat == "spec"
        _crop_steps(steps, full, axis, odd_at_end=(spec.padding == "SAME_UPPER") != is_swapped)
    elif spec.padding in SAME:
        is_short = spec.compat == "ort" and full < axis.small * axis.window.stride
        steps.add("large", "{full}" if is_short else "{small} * {stride}", axis.large)
        _crop_steps(steps, full, axis, odd_at_end=spec.padding == "SAME_UPPER")
    else:
        begin, end = rule.pads
        steps.add("begin", str(begin), begin)
        steps.add("end", str(end), end)
        steps.add("large", "{full} - {begin} - {end}", axis.large)
    return tuple(steps.steps)


def _crop_steps(steps: _StepList, full: int, axis: Axis, *, odd_at_end: bool) -> None:
    total = steps.add("total", "{full} - {large}", full - axis.large)
    steps.begin(total, axis, odd_at_end=odd_at_end)
    steps.add("end", "{total} - {begin}", total - axis.begin)


MAX_LENGTH = 2**16
"""Largest axis or reach of a window that can be drawn, in elements."""

MAX_ROWS = 12
MAX_COLUMNS = 24
DATA, PADDING, GAP, OUTSIDE = "#", "o", "-", "."


@dataclass(frozen=True)
class TapPositions:
    """The taps of the window at one small position.

    Attributes:
        small: the position.
        large: positions on the large axis; those outside it are padding, or are cropped.
    """

    small: int
    large: tuple[int, ...]


@dataclass(frozen=True)
class AxisDrawing:
    """The windows of an axis.

    Attributes:
        windows: the first and the last windows, or all if they are few.
        uncovered: large positions in no window, as spans (first, stop) without stop.
        coverage: number of windows over each large position.
    """

    windows: tuple[TapPositions, ...]
    uncovered: tuple[Span, ...]
    coverage: tuple[int, ...]


def draw(axis: Axis) -> AxisDrawing:
    """The windows of an axis.

    Raises:
        UnpoolError: it is too long.

    >>> from unpool.geometry import Window
    >>> drawing = draw(Axis(5, 2, Window(2, 2)))
    >>> [window.large for window in drawing.windows], drawing.uncovered, drawing.coverage
    ([(0, 1), (2, 3)], (Span(first=4, stop=5),), (1, 1, 1, 1, 0))
    """
    longest = max(axis.large, axis.small, axis.window.reach)
    if longest > MAX_LENGTH:
        raise UnpoolError(
            f"explain: expected axes and windows of at most {MAX_LENGTH} elements, got {longest}. Reduce it."
        )
    coverage = upsampling_walk(axis).count
    shown = [*range(min(axis.small, MAX_ROWS)), *range(max(MAX_ROWS, axis.small - MAX_ROWS), axis.small)]
    return AxisDrawing(
        tuple(_window_taps(axis, one) for one in shown), tuple(_spans(coverage == 0)), tuple(coverage.tolist())
    )


def render(axis: Axis, drawing: AxisDrawing) -> Iterator[str]:
    """Lines: a row of large positions, a row per window, a row of counts; for a long axis its begin and its end."""
    low = min([0, *(cover.large[0] for cover in drawing.windows)])
    stop = max([axis.large, *(cover.large[-1] + 1 for cover in drawing.windows)])
    if stop - low <= MAX_COLUMNS and len(drawing.windows) == axis.small <= MAX_ROWS:
        yield from _rows(axis, drawing, drawing.windows, Span(low, stop))
        return
    half = MAX_COLUMNS // 2
    begin, end = Span(low, min(low + half, stop)), Span(max(low + half, stop - half), stop)
    for title, cells in (("the beginning:", begin), ("the end:", end)):
        yield title
        yield from _rows(axis, drawing, [one for one in drawing.windows if _overlaps(one, cells)], cells)


def _rows(axis: Axis, drawing: AxisDrawing, windows: Sequence[TapPositions], cells: Span) -> Iterator[str]:
    inside = [0 <= cell < axis.large for cell in range(*cells)]
    width = max(len(str(axis.large)), 1) + 1
    labels = ["large", *(f"small {one.small}" for one in windows), "windows"]
    rows = [
        [str(cell) if values else OUTSIDE for cell, values in zip(range(*cells), inside, strict=True)],
        *([_mark(one, cell, values) for cell, values in zip(range(*cells), inside, strict=True)] for one in windows),
        [str(drawing.coverage[cell]) if values else "" for cell, values in zip(range(*cells), inside, strict=True)],
    ]
    left = max(map(len, labels))
    for label, row in zip(labels, rows, strict=True):
        yield f"{label.ljust(left)} {''.join(mark.rjust(width) for mark in row)}".rstrip()


def _mark(cover: TapPositions, cell: int, is_data: bool) -> str:
    if cell in cover.large:
        return DATA if is_data else PADDING
    return GAP if cover.large[0] < cell < cover.large[-1] else ""


def _overlaps(cover: TapPositions, cells: Span) -> bool:
    return any(cells.first <= cell < cells.stop for cell in cover.large)


def _window_taps(axis: Axis, small: int) -> TapPositions:
    read = span_read(Span(small, small + 1), axis.window, axis.begin)
    return TapPositions(small, tuple(range(read.first, read.stop, axis.window.dilation)))


def _spans(mask: NDArray[np.bool_]) -> Iterator[Span]:
    """The true parts of a mask, as spans."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    for first, stop in edges.reshape(-1, 2).tolist():
        yield Span(first, stop)
