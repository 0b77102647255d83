"""One spatial axis: its size step by step, and a drawing of its windows.

`small` is the size of X of an unpooling and of the result of a pooling, `large` that of the other side. The formulas
are texts; their values come from `operators/` and `geometry`, and a test computes every line as written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unpool.errors import UnpoolError
from unpool.geometry import Axis, Span, Window, span_read, upsampled_size, upsampling_walk
from unpool.operators.contract import Switch
from unpool.operators.conv_transpose import AxisRule, ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec

SAME = ("SAME_UPPER", "SAME_LOWER")
REACH = "({window} - 1) * {dilation} + 1"
MAX_LENGTH = 2**16  # of an axis or the reach of a window that can be drawn, in elements
MAX_ROWS, MAX_COLUMNS = 12, 24
DATA, PADDING, GAP, OUTSIDE = "#", "o", "-", "."


@dataclass(frozen=True)
class SizeStep:
    """A line of arithmetic, such as `room = large + begin + end - reach = 7 + 1 + 0 - 3 = 5`, in names and numbers."""

    name: str
    rule: str
    numbers: str
    value: int

    def __str__(self) -> str:
        return " = ".join(dict.fromkeys((self.name, self.rule, self.numbers, str(self.value))))


class _StepList:
    """A list of steps that is built from rules: texts with the names of values in braces."""

    def __init__(self, window: Window, **values: int) -> None:
        self._known = {"window": window.size, "stride": window.stride, "dilation": window.dilation, **values}
        self.steps: list[SizeStep] = []

    def add(self, name: str, rule: str, value: int) -> int:
        """Append the step `name = rule = value`, and return the value."""
        numbers = {known: f"({number})" if number < 0 else str(number) for known, number in self._known.items()}
        names = {known: known for known in numbers}
        self.steps.append(SizeStep(name, rule.format_map(names), rule.format_map(numbers), value))
        self._known[name] = value
        return value

    def add_pads(self, begin: int, end: int) -> None:
        """Append both pads as they are in the attributes."""
        self.add("begin", str(begin), begin)
        self.add("end", str(end), end)

    def add_begin(self, total: int, begin: int, *, odd_at_end: bool) -> None:
        """Append the part of a total before the first element."""
        half = "floor({total} / 2)" if odd_at_end else "{total} - floor({total} / 2)"
        self.add("begin", "0" if total < 0 else half, begin)


def pool_steps(spec: MaxPoolSpec, number: int, axis: Axis) -> tuple[SizeStep, ...]:
    """The steps from the size of X to the number of windows, along spatial axis `number` of a MaxPool."""
    steps = _StepList(axis.window, large=axis.large)
    steps.add("reach", REACH, axis.window.reach)
    is_ort = spec.compat == "ort"
    if spec.padding in SAME:
        _same_pool_steps(steps, spec, axis)
        return tuple(steps.steps)
    begin, end = (0, 0) if spec.padding == "VALID" else spec.pads[number]
    steps.add_pads(begin, end)
    steps.add("room", "{large} + {begin} + {end} - {reach}", axis.large + begin + end - axis.window.reach)
    if spec.ceil and (spec.padding != "VALID" or is_ort):
        rule = "min(ceil({room} / {stride}), floor(({large} + {begin} - 1) / {stride})) + 1"
    else:
        rule = f"{'trunc' if is_ort else 'floor'}({{room}} / {{stride}}) + 1"
    steps.add("small", rule, axis.small)
    return tuple(steps.steps)


def _same_pool_steps(steps: _StepList, spec: MaxPoolSpec, axis: Axis) -> None:
    steps.add("small", "ceil({large} / {stride})", axis.small)
    covered, is_upper = upsampled_size(axis.small, axis.window), spec.padding == "SAME_UPPER"
    total = steps.add("total", "({small} - 1) * {stride} + {reach} - {large}", covered - axis.large)
    if total < 0 and spec.compat == "ort":
        steps.add("begin", "trunc({total} / 2)" if is_upper else "trunc(({total} + 1) / 2)", axis.begin)
    else:
        steps.add_begin(total, axis.begin, odd_at_end=is_upper)
    steps.add("end", "max({total} - {begin}, 0)", max(total - axis.begin, 0))


def unpool_steps(spec: MaxUnpoolSpec, number: int, axis: Axis, *, is_asked: bool) -> tuple[SizeStep, ...]:
    """The steps from the size of X to the size of the output, along spatial axis `number` of a MaxUnpool."""
    begin, end = spec.pads[number]
    steps = _StepList(axis.window, small=axis.small, begin=begin, end=end, output_shape=axis.large)
    inferred = upsampled_size(axis.small, axis.window, padding=begin + end)
    steps.add("inferred", "({small} - 1) * {stride} + {window} - {begin} - {end}", inferred)
    steps.add("large", "{output_shape}" if is_asked else "{inferred}", axis.large)
    return tuple(steps.steps)


def conv_transpose_steps(spec: ConvTransposeSpec, rule: AxisRule, axis: Axis) -> tuple[SizeStep, ...]:
    """The steps from the size of X to the size of the output, along one axis of a ConvTranspose."""
    steps = _StepList(axis.window, small=axis.small, output_padding=rule.extra, output_shape=rule.asked or 0)
    steps.add("reach", REACH, axis.window.reach)
    full = upsampled_size(axis.small, axis.window, extra=rule.extra)
    steps.add("full", "({small} - 1) * {stride} + {reach} + {output_padding}", full)
    if rule.asked is not None:
        steps.add("large", "{output_shape}", axis.large)
        is_swapped = Switch.ODD_SIDE_SWAPPED in spec.version.switches and spec.compat == "spec"
        _crop_steps(steps, full, axis, odd_at_end=(spec.padding == "SAME_UPPER") != is_swapped)
    elif spec.padding in SAME:
        is_short = spec.compat == "ort" and full < axis.small * axis.window.stride
        steps.add("large", "{full}" if is_short else "{small} * {stride}", axis.large)
        _crop_steps(steps, full, axis, odd_at_end=spec.padding == "SAME_UPPER")
    else:
        steps.add_pads(*rule.pads)
        steps.add("large", "{full} - {begin} - {end}", axis.large)
    return tuple(steps.steps)


def _crop_steps(steps: _StepList, full: int, axis: Axis, *, odd_at_end: bool) -> None:
    total = steps.add("total", "{full} - {large}", full - axis.large)
    steps.add_begin(total, axis.begin, odd_at_end=odd_at_end)
    steps.add("end", "{total} - {begin}", total - axis.begin)


@dataclass(frozen=True)
class TapPositions:
    """The taps of the window at one small position: large positions; those outside the axis are padding or cropped."""

    small: int
    large: tuple[int, ...]


@dataclass(frozen=True)
class AxisDrawing:
    """The first and last windows of an axis, the large positions in no window, and the windows over each of them."""

    windows: tuple[TapPositions, ...]
    uncovered: tuple[Span, ...]
    coverage: tuple[int, ...]


def draw(axis: Axis) -> AxisDrawing:
    """The windows of an axis, which may not be too long."""
    longest = max(axis.large, axis.small, axis.window.reach)
    if longest > MAX_LENGTH:
        raise UnpoolError(f"explain: expected axes and windows of at most {MAX_LENGTH} elements, got {longest}.")
    coverage = upsampling_walk(axis).count
    edges = np.flatnonzero(np.diff(np.concatenate(([False], coverage == 0, [False]))))
    windows = []
    for small in (*range(min(axis.small, MAX_ROWS)), *range(max(MAX_ROWS, axis.small - MAX_ROWS), axis.small)):
        read = span_read(Span(small, small + 1), axis.window, axis.begin)
        windows.append(TapPositions(small, tuple(range(*read, axis.window.dilation))))
    uncovered = tuple(Span(*pair) for pair in edges.reshape(-1, 2).tolist())
    return AxisDrawing(tuple(windows), uncovered, tuple(coverage.tolist()))


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
        windows = [window for window in drawing.windows if not set(window.large).isdisjoint(range(*cells))]
        yield from _rows(axis, drawing, windows, cells)


def _rows(axis: Axis, drawing: AxisDrawing, windows: Sequence[TapPositions], cells: Span) -> Iterator[str]:
    def mark(window: TapPositions, cell: int) -> str:
        if cell in window.large:
            return DATA if 0 <= cell < axis.large else PADDING
        return GAP if window.large[0] < cell < window.large[-1] else ""

    rows = [
        ("large", [str(cell) if 0 <= cell < axis.large else OUTSIDE for cell in range(*cells)]),
        *((f"small {window.small}", [mark(window, cell) for cell in range(*cells)]) for window in windows),
        ("windows", [str(drawing.coverage[cell]) if 0 <= cell < axis.large else "" for cell in range(*cells)]),
    ]
    width, label_width = len(str(axis.large)) + 1, max(len(label) for label, _ in rows)
    for label, marks in rows:
        yield f"{label.ljust(label_width)} {''.join(text.rjust(width) for text in marks)}".rstrip()
