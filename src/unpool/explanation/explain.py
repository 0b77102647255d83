"""`unpool.explain`: an operator in one version or two, and a call with concrete sizes, as text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from unpool.display import format_shape
from unpool.errors import UnpoolError, UnsupportedError, suggest_name
from unpool.execute import kernel_of
from unpool.explanation.axis import AxisDrawing, SizeStep, conv_transpose_steps, draw, pool_steps, render, unpool_steps
from unpool.explanation.versions import Contract, ContractChange, changes_between, columns, contract_of
from unpool.geometry import Axis
from unpool.operators import attributes as read
from unpool.operators import contract, conv_transpose, max_pool, max_unpool, resolve
from unpool.operators.contract import NEWEST_OPSET, OPERATORS, OUTPUT_SHAPE, OperatorVersion
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.tensors import FeatureShape, Shape

RESULT_TEXTS = {
    "new": "refused before",
    "refused": "may be refused now",
    "others": "other results",
    "same": "same results",
}


@dataclass(frozen=True)
class AxisExplanation:
    """One spatial axis of a call: the steps from one size to the other, and a drawing of its windows.

    `axis.large` is the size in X for MaxPool, else in the output; `axis.begin` counts elements padded or cropped there.
    """

    number: int
    axis: Axis
    steps: tuple[SizeStep, ...]
    drawing: AxisDrawing

    def lines(self) -> Iterator[str]:
        """The lines that `print` shows."""
        window = self.axis.window
        yield f"axis {self.number}: large = small * {window.stride} + tap * {window.dilation} - {self.axis.begin}"
        yield from (*(f"  {step}" for step in self.steps), "")
        yield from (f"  {line}" for line in render(self.axis, self.drawing))


@dataclass(frozen=True)
class CallExplanation:
    """A call with concrete sizes, in one version: the spatial sizes of X and of the result, and every spatial axis."""

    label: str
    size: tuple[int, ...]
    output: tuple[int, ...]
    axes: tuple[AxisExplanation, ...]
    channels: tuple[int, int]  # of X, and of the output
    kernel: str
    """The kernel that computes one float32 image on this machine; empty where the output is."""

    def lines(self) -> Iterator[str]:
        """The lines that `print` shows."""
        yield f"{self.label}: {format_shape(self.size)} -> {format_shape(self.output)}"
        if self.kernel:
            yield f"kernel for a float32 image, {self.channels[0]} -> {self.channels[1]} channels: {self.kernel}"
        for axis in self.axes:
            yield ""
            yield from axis.lines()
            if axis.drawing.uncovered:
                ends = ((span.first, span.stop - 1) for span in axis.drawing.uncovered)
                spans = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ends)
                yield f"  left over: {EXPLAINED[self.label.partition('-')[0]].uncovered} {spans}"


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`, `other` for a second version; `print` shows the changes and calls, else the contract."""

    contract: Contract
    other: Contract | None
    changes: tuple[ContractChange, ...]
    calls: tuple[CallExplanation, ...]

    def __str__(self) -> str:
        parts = [list(call.lines()) for call in self.calls]
        if self.other is not None:
            parts.insert(0, list(self._changes()))
        return "\n\n".join("\n".join(lines) for lines in parts or [list(self.contract.lines())])

    def _changes(self) -> Iterator[str]:
        other = "" if self.other is None else self.other.label
        if not self.changes:
            yield f"{self.contract.label} and {other}: nothing changed"
            return
        yield f"{self.contract.label} -> {other}"
        yield ""
        titles = ("since", "what", "before", "after", "")
        rows = [(str(row.since), row.subject, row.before, row.after, RESULT_TEXTS[row.results]) for row in self.changes]
        yield from columns([titles, *rows])


def explain(
    operator: str,
    *,
    opset: int | None = None,
    to: int | None = None,
    layout: str = "NCHW",
    compat: str = "spec",
    size: Sequence[int] | int | None = None,
    channels: Sequence[int] | int | None = None,
    **attributes: Any,
) -> Explanation:
    """The contract of a version of an operator, its changes to another version, and the sizes and kernel of a call.

    Args:
        operator: MaxPool, MaxUnpool or ConvTranspose; case and underscores do not matter.
        opset: selects the version; None for the newest.
        to: selects a second version, not older than the first.
        layout: "NCHW" for ONNX's versions, "NHWC" for those of ONNX Runtime's channels-last domain.
        compat: "spec" for the text of the standard, "ort" for ONNX Runtime if the two differ.
        size: spatial sizes of X, in elements; with it the arithmetic is explained, and the kernel named.
        channels: of X and of the output, on which the kernel depends; one integer stands for both, None for one in
            each group.
        attributes: of the operator, such as `kernel_shape`; one integer stands for all axes. For MaxUnpool also
            `output_shape`, the spatial sizes of the output.

    Returns:
        a record with a text form for `print`.

    Raises:
        UnsupportedError: no such operator, version or attribute.
        UnpoolError: an attribute is wrong, or is given without a size.
        ShapeError: the sizes do not fit.

    >>> print(explain("MaxPool", size=5, kernel_shape=2, strides=2, ceil_mode=1))
    MaxPool-22: 5 -> 3
    kernel for a float32 image, 1 -> 1 channels: direct
    <BLANKLINE>
    axis 0: large = small * 2 + tap * 1 - 0
      reach = (window - 1) * dilation + 1 = (2 - 1) * 1 + 1 = 2
      begin = 0
      end = 0
      room = large + begin + end - reach = 5 + 0 + 0 - 2 = 3
      small = min(ceil(room / stride), floor((large + begin - 1) / stride)) + 1 = \
min(ceil(3 / 2), floor((5 + 0 - 1) / 2)) + 1 = 3
    <BLANKLINE>
      large    0 1 2 3 4 .
      small 0  # #
      small 1      # #
      small 2          # o
      windows  1 1 1 1 1
    """
    name = next((name for name in OPERATORS if name.lower() == operator.replace("_", "").lower()), None)
    if name is None:
        raise UnsupportedError(
            f"explain: operator is one of {', '.join(OPERATORS)}; got {operator!r}. {suggest_name(operator, OPERATORS)}"
        )
    domains = {"NCHW": "", "NHWC": contract.NHWC}
    if layout not in domains:
        raise UnpoolError(
            f"explain: layout is one of {', '.join(domains)}; got {layout!r}. {suggest_name(layout, domains)}"
        )
    domain = domains[layout]
    for option, number in (("opset", opset), ("to", to)):
        if isinstance(number, int) and number > NEWEST_OPSET:
            expected = f"an opset up to {NEWEST_OPSET}, the newest whose operators were read"
            raise UnsupportedError(f"explain: {option}: expected {expected}, got {number}. Pass an older one.")
    version = contract.versions_of(name, domain)[-1] if opset is None else contract.version_at(name, domain, opset)
    versions = [version] if to is None else [version, contract.version_at(name, domain, to)]
    if size is None and channels is not None:
        raise UnpoolError("explain: channels needs size, the spatial sizes of X. Pass size as well.")
    if size is None and attributes:
        read.check_names(version, attributes.keys() - set(version.inputs))
        raise UnpoolError(f"explain: {', '.join(attributes)} needs size, the spatial sizes of X. Pass size as well.")
    if (versions[-1].since_version or 0) < (version.since_version or 0):
        least = version.since_version if opset is None else opset
        raise UnpoolError(f"explain: to needs an opset from {least} on, got {to}. Pass an older opset with it.")
    calls = () if size is None else tuple(_call(version, size, channels, attributes, compat) for version in versions)
    contracts = list(map(contract_of, versions))
    changes = changes_between(versions[0], versions[-1])
    return Explanation(contracts[0], None if to is None else contracts[-1], changes, calls)


def _call(
    version: OperatorVersion, size: Sequence[int] | int, channels: Sequence[int] | int | None, values: dict[str, Any],
    compat: str,
) -> CallExplanation:  # fmt: skip
    rank = 1 if isinstance(size, int) else len(size)
    sizes = read.sizes("explain: size", size, rank)
    attributes = {name: read.for_all_axes(name, read.plain(value), rank) for name, value in values.items()}
    asked = attributes.pop(OUTPUT_SHAPE, None) if OUTPUT_SHAPE in version.inputs else None
    output_shape = None if asked is None else read.sizes(f"{version.label}: {OUTPUT_SHAPE}", asked, rank)
    spec = resolve.from_version(version, attributes, read.Settings(compat=compat))
    operator = EXPLAINED[version.operator]
    given = getattr(spec, "group", 1) if channels is None else channels
    pair = (given, given) if isinstance(given, int) else tuple(given)
    if len(pair) != 2 or not all(type(count) is int and count > 0 for count in pair):
        raise UnpoolError(f"explain: channels: expected one or two integers of 1 or more, got {channels!r}.")
    first, last = pair
    axes, steps = operator.explain(spec, sizes, output_shape)
    kernel = operator.kernel(spec, FeatureShape(1, first, sizes), last, output_shape)
    output = tuple(axis.small if operator.is_pool else axis.large for axis in axes)
    pairs = enumerate(zip(axes, steps, strict=True))
    explained = tuple(AxisExplanation(number, axis, steps, draw(axis)) for number, (axis, steps) in pairs)
    return CallExplanation(version.label, sizes, output, explained, (first, last), kernel)


Explained: TypeAlias = tuple[tuple[Axis, ...], list[tuple[SizeStep, ...]]]


_FLOAT, _INDEX = np.dtype(np.float32), np.dtype(np.int64)


def _kernel_of_pool(spec: MaxPoolSpec, x: FeatureShape, _: int, __: Shape | None) -> str:
    return kernel_of(spec, ((x.in_layout(spec.version), _FLOAT),))


def _kernel_of_unpool(spec: MaxUnpoolSpec, x: FeatureShape, _: int, output_shape: Shape | None) -> str:
    wanted = None if output_shape is None else (x.batch, x.channels, *output_shape)
    inputs = (x.in_layout(spec.version), _FLOAT), (x.in_onnx_order(), _INDEX)
    return kernel_of(spec, inputs, output_shape=wanted)


def _kernel_of_conv_transpose(spec: ConvTransposeSpec, x: FeatureShape, channels: int, _: Shape | None) -> str:
    assert spec.kernel_shape is not None, "it was explained"
    for name, count in (("X", x.channels), ("the output", channels)):
        if count % spec.group:
            raise UnpoolError(
                f"explain: channels: {count} of {name} do not split into {spec.group} groups. Pass a multiple of it."
            )
    w = (x.channels, channels // spec.group, *spec.kernel_shape)
    return kernel_of(spec, ((x.in_layout(spec.version), _FLOAT), (w, _FLOAT)))


def _explain_pool(spec: MaxPoolSpec, sizes: Shape, _: Shape | None) -> Explained:
    axes = max_pool.call(spec, FeatureShape(1, 1, sizes).in_layout(spec.version)).axes
    return axes, [pool_steps(spec, number, axis) for number, axis in enumerate(axes)]


def _explain_unpool(spec: MaxUnpoolSpec, sizes: Shape, output_shape: Shape | None) -> Explained:
    is_asked = output_shape is not None
    wanted = None if output_shape is None else (1, 1, *output_shape)
    axes = max_unpool.call(spec, FeatureShape(1, 1, sizes).in_layout(spec.version), (1, 1, *sizes), wanted).axes
    return axes, [unpool_steps(spec, number, axis, is_asked=is_asked) for number, axis in enumerate(axes)]


def _explain_conv_transpose(spec: ConvTransposeSpec, sizes: Shape, _: Shape | None) -> Explained:
    if spec.kernel_shape is None:
        raise UnpoolError(f"explain: {spec.version.label} needs kernel_shape, the window of W. Pass it as well.")
    shape = FeatureShape(1, spec.group, sizes).in_layout(spec.version)
    axes = conv_transpose.call(spec, shape, (spec.group, 1, *spec.kernel_shape), None).axes
    rules = conv_transpose.axis_rules(spec, spec.kernel_shape)
    return axes, [conv_transpose_steps(spec, rule, axis) for rule, axis in zip(rules, axes, strict=True)]


class ExplainedOperator(NamedTuple):
    """How a call of an operator is explained."""

    explain: Callable[[Any, Shape, Shape | None], Explained]
    """From a spec, the sizes of X and those of `output_shape`, to the axes and the steps of each."""
    kernel: Callable[[Any, FeatureShape, int, Shape | None], str]
    """From a spec, the shape of X, the channels of the output and the sizes of `output_shape`, to the kernel."""
    uncovered: str
    """What holds for the elements of the large side that no window covers."""
    is_pool: bool = False


EXPLAINED: Mapping[str, ExplainedOperator] = {
    "MaxPool": ExplainedOperator(_explain_pool, _kernel_of_pool, "no window reads", is_pool=True),
    "MaxUnpool": ExplainedOperator(_explain_unpool, _kernel_of_unpool, "in no window, though an index may name it:"),
    "ConvTranspose": ExplainedOperator(
        _explain_conv_transpose, _kernel_of_conv_transpose, "only the bias, no product, at"
    ),
}
