"""Compares where a node puts its windows when it is written in two ways, for every size that an axis can have."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from unpool.errors import UnpoolError, UnsupportedError
from unpool.geometry import Axis
from unpool.operators import conv_transpose, max_pool
from unpool.operators.conv_transpose import AxisRule, ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.tensors import Shape
from unpool.runtime.graph.dims import Dim

WindowedSpec: TypeAlias = MaxPoolSpec | ConvTransposeSpec
AxisOf: TypeAlias = Callable[[int], Axis]

MOST_SIZES = 100_000


def axes_of(spec: WindowedSpec, window_sizes: Shape) -> list[AxisOf]:
    """For each spatial axis of X, from its size to the axis of a call; `window_sizes` is the window of W.

    Raises:
        UnpoolError: the attributes do not fit the window.
    """
    if isinstance(spec, MaxPoolSpec):
        return [partial(max_pool.axis, spec, number) for number in range(len(spec.windows))]
    rules = conv_transpose.axis_rules(spec, window_sizes)
    return [partial(conv_transpose.axis, spec, number, rule) for number, rule in enumerate(rules)]


def sizes_of(spec: WindowedSpec, window_sizes: Shape, number: int, size: Dim) -> Sequence[int]:
    """The known size of an axis of X; for an unknown one, all sizes up to where placement repeats with the stride.

    Raises:
        UnsupportedError: these are too many.
    """
    if isinstance(size, int):
        return (size,)
    if isinstance(spec, MaxPoolSpec):
        rule = AxisRule(spec.windows[number], spec.pads[number], 0, None)
    else:
        rule = conv_transpose.axis_rules(spec, window_sizes)[number]
    window = rule.window
    last = window.reach + 2 * window.stride + sum(rule.pads) + rule.extra + (rule.asked or 0)
    if last > MOST_SIZES:
        raise UnsupportedError(
            f"{spec.row.label}: spatial axis {number} needs a known size where the window, the pads or output_shape "
            f"are as large as here ({last} elements). Fix the size."
        )
    return range(1, last + 2)


def axis_or_none(axis_of: AxisOf, size: int) -> Axis | None:
    """The axis of a call; None where the call is refused."""
    try:
        return axis_of(size)
    except UnpoolError:
        return None


def difference(
    before: WindowedSpec, after: WindowedSpec, window_sizes: Shape, sizes: Sequence[Dim], behind: Shape
) -> str | None:
    """Where the second way of writing a node first puts other windows than the first way; None if nowhere.

    Args:
        before: the node in the first way.
        after: the node in the second way.
        window_sizes: the window of W; not used by MaxPool.
        sizes: spatial sizes of X.
        behind: how many elements are put behind X along each axis before `after` sees it; empty for none.
    """
    old, new = axes_of(before, window_sizes), axes_of(after, window_sizes)
    for number, size in enumerate(sizes):
        extra = behind[number] if behind else 0
        for one in sizes_of(before, window_sizes, number, size):
            expected, got = axis_or_none(old[number], one), axis_or_none(new[number], one + extra)
            if expected is None or _is_stray(before, after, expected, size):
                continue
            if got is None or _settled(expected, extra) != _settled(got, 0):
                return f"spatial axis {number} where X has {one} elements"
    return None


def _is_stray(before: WindowedSpec, after: WindowedSpec, axis: Axis, size: Dim) -> bool:
    """Whether a window does not fit an X of unknown size. ONNX Runtime pools it once, in any form."""
    is_floor = isinstance(before, MaxPoolSpec) and before.compat == "spec" and after.compat == "ort"
    return is_floor and not isinstance(size, int) and axis.small == 0


def _settled(axis: Axis, extra: int) -> tuple[int, ...]:
    """The numbers that settle where the windows of an axis are, as if X had `extra` elements more at its end."""
    return axis.large, axis.small + extra, axis.begin
