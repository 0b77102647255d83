"""The size of one axis step by step: each step as a rule, as numbers, and as what they come to, in elements.

`small` is the size of X of an unpooling and of the result of a pooling, `large` that of the other side. The rules are
those of `operators/`, and what they come to is from there and from `geometry`; a test computes every line as written.
"""

from dataclasses import dataclass

from unpool.geometry import Axis, grown_size
from unpool.operators.contract import Switch
from unpool.operators.conv_transpose import AxisRule, ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec

SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Step:
    """One line of arithmetic, such as `room = large + begin + end - reach = 7 + 1 + 0 - 3 = 5`.

    Attributes:
        name: what is computed.
        rule: from the names of what was computed or given before.
        numbers: the same with their values.
        value: what it comes to.
    """

    name: str
    rule: str
    numbers: str
    value: int

    def __str__(self) -> str:
        return " = ".join(dict.fromkeys((self.name, self.rule, self.numbers, str(self.value))))


class _Steps:
    """Collects steps; a rule is a text with the names of known values in braces."""

    def __init__(self, axis: Axis, **known: int) -> None:
        window = axis.window
        self._known = {"window": window.size, "stride": window.stride, "dilation": window.dilation, **known}
        self.made: list[Step] = []

    def add(self, name: str, rule: str, value: int) -> int:
        """Note that `name` is computed by `rule` and comes to `value`, which is returned."""
        numbers = {known: f"({number})" if number < 0 else str(number) for known, number in self._known.items()}
        words = {known: known for known in numbers}
        self.made.append(Step(name, rule.format_map(words), rule.format_map(numbers), value))
        self._known[name] = value
        return value

    def reach(self, axis: Axis) -> None:
        """How far one window reaches."""
        self.add("reach", "({window} - 1) * {dilation} + 1", axis.window.reach)

    def begin(self, total: int, axis: Axis, *, odd_at_end: bool) -> None:
        """Which part of a total is before the first element."""
        if total < 0:
            self.add("begin", "0", axis.begin)
        else:
            self.add("begin", "floor({total} / 2)" if odd_at_end else "{total} - floor({total} / 2)", axis.begin)


def pooled(spec: MaxPoolSpec, number: int, axis: Axis) -> tuple[Step, ...]:
    """From the size of X to the number of windows, along spatial axis `number` of a MaxPool."""
    steps = _Steps(axis, large=axis.large)
    steps.reach(axis)
    is_ort = spec.compat == "ort"
    if spec.padding in SAME:
        _pooled_same(steps, spec, axis)
        return tuple(steps.made)
    begin, end = (0, 0) if spec.padding == "VALID" else spec.pads[number]
    steps.add("begin", str(begin), begin)
    steps.add("end", str(end), end)
    steps.add("room", "{large} + {begin} + {end} - {reach}", axis.large + begin + end - axis.window.reach)
    if spec.ceil and (spec.padding != "VALID" or is_ort):
        rule = "min(ceil({room} / {stride}), floor(({large} + {begin} - 1) / {stride})) + 1"
    else:
        rule = f"{'trunc' if is_ort else 'floor'}({{room}} / {{stride}}) + 1"
    steps.add("small", rule, axis.small)
    return tuple(steps.made)


def _pooled_same(steps: _Steps, spec: MaxPoolSpec, axis: Axis) -> None:
    steps.add("small", "ceil({large} / {stride})", axis.small)
    covered = grown_size(axis.small, axis.window)
    total = steps.add("total", "({small} - 1) * {stride} + {reach} - {large}", covered - axis.large)
    if total < 0 and spec.compat == "ort":
        part = "{total}" if spec.padding == "SAME_UPPER" else "({total} + 1)"
        steps.add("begin", f"trunc({part} / 2)", axis.begin)
    else:
        steps.begin(total, axis, odd_at_end=spec.padding == "SAME_UPPER")
    steps.add("end", "max({total} - {begin}, 0)", max(total - axis.begin, 0))


def unpooled(spec: MaxUnpoolSpec, number: int, axis: Axis, *, is_asked: bool) -> tuple[Step, ...]:
    """From the size of X to that of the output, along spatial axis `number` of a MaxUnpool."""
    begin, end = spec.pads[number]
    steps = _Steps(axis, small=axis.small, begin=begin, end=end, output_shape=axis.large)
    inferred = grown_size(axis.small, axis.window, padding=begin + end)
    steps.add("inferred", "({small} - 1) * {stride} + {window} - {begin} - {end}", inferred)
    steps.add("large", "{output_shape}" if is_asked else "{inferred}", axis.large)
    return tuple(steps.made)


def grown(spec: ConvTransposeSpec, rule: AxisRule, axis: Axis) -> tuple[Step, ...]:
    """From the size of X to that of the output, along one axis of a ConvTranspose."""
    steps = _Steps(axis, small=axis.small, output_padding=rule.extra, output_shape=rule.asked or 0)
    steps.reach(axis)
    full = steps.add(
        "full",
        "({small} - 1) * {stride} + {reach} + {output_padding}",
        grown_size(axis.small, axis.window, extra=rule.extra),
    )
    if rule.asked is not None:
        steps.add("large", "{output_shape}", axis.large)
        is_swapped = Switch.ODD_SIDE_SWAPPED in spec.row.switches and spec.compat == "spec"
        _cut(steps, full, axis, odd_at_end=(spec.padding == "SAME_UPPER") != is_swapped)
    elif spec.padding in SAME:
        is_short = spec.compat == "ort" and full < axis.small * axis.window.stride
        steps.add("large", "{full}" if is_short else "{small} * {stride}", axis.large)
        _cut(steps, full, axis, odd_at_end=spec.padding == "SAME_UPPER")
    else:
        begin, end = rule.pads
        steps.add("begin", str(begin), begin)
        steps.add("end", str(end), end)
        steps.add("large", "{full} - {begin} - {end}", axis.large)
    return tuple(steps.made)


def _cut(steps: _Steps, full: int, axis: Axis, *, odd_at_end: bool) -> None:
    total = steps.add("total", "{full} - {large}", full - axis.large)
    steps.begin(total, axis, odd_at_end=odd_at_end)
    steps.add("end", "{total} - {begin}", total - axis.begin)
