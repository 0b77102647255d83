"""Versions of an operator in words, and the changes between two of them, from the rows of the contract.

Source: ONNX's operator schemas. A test compares names, defaults and the list of changed texts with those of onnx.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from unpool.operators.contract import INPUT_NAMES, Row, rows_of


@dataclass(frozen=True)
class TextChange:
    """A changed text of the standard.

    Attributes:
        operator: of the text.
        version: the first with the new text.
        subject: the attribute, or "summary" for the text about the operator itself.
        before: the older text, in short.
        after: the newer text.
        results: as in `ContractChange`.
    """

    operator: str
    version: int
    subject: str
    before: str
    after: str
    results: str = "same"


OUTPUTS = {"MaxPool": ("Y", "Indices"), "MaxUnpool": ("output",), "ConvTranspose": ("Y",)}
INT64_VALUES = frozenset({"I", "Indices", "output_shape"})
LAYOUT_VALUES = frozenset({"X", "Y", "output"})
"""Values that are channels-last in the channels-last domain."""

VALUE_TEXTS = {
    "X": "(N, C, D1..Dk)",
    "Y": "(N, C, d1..dk)",
    "Indices": "where each element of Y is in X, padding not counted",
    "I": "(N, C, D1..Dk), where its elements go",
    "output_shape": "(N, C, D1..Dk) of the output; settles a size that the window leaves open",
    "output": "(N, C, D1..Dk); zeros between",
    "W": "(C, M / group, k1..kk)",
    "B": "(M), added to every cell",
}
DEFAULTS = {
    "auto_pad": "NOTSET",
    "ceil_mode": "0",
    "dilations": "1 per axis",
    "group": "1",
    "kernel_shape": "the window of W",
    "output_padding": "0 per axis",
    "output_shape": "computed",
    "pads": "0 at each end",
    "storage_order": "0",
    "strides": "1 per axis",
    "activation": "none",
    "activation_params": "none",
}
ATTRIBUTE_TEXTS = {
    "auto_pad": "NOTSET takes pads, VALID none; SAME_* compute them, UPPER with an odd cell at the end",
    "ceil_mode": "1 rounds the number of windows up; none of them begins in the padding at the end",
    "dilations": "elements from one tap of the window to the next",
    "group": "number of groups of the channels of X",
    "kernel_shape": "taps of the window",
    "output_padding": "elements added at the end of the output",
    "output_shape": "size of the output; the pads follow from it",
    "pads": "elements of padding: all begins, then all ends",
    "storage_order": "order of Indices: 0 with the last axis fastest, 1 with the first",
    "strides": "elements from one window to the next",
    "activation": "Relu, LeakyRelu, Tanh, Sigmoid, Clip, HardSigmoid or HardSwish, applied to the output",
    "activation_params": "parameters of the activation",
}

_OPEN = "default not stated"
_ONE = "1 along each axis"
_SAME_BEFORE = "SAME: the output has the size of the input"
TEXT_CHANGES = (
    TextChange("MaxPool", 10, "summary", "size from kernel_shape, rounded down", "from the reach, maybe rounded up"),
    TextChange("MaxPool", 11, "dilations", _OPEN, _ONE),
    TextChange("MaxPool", 11, "strides", _OPEN, _ONE),
    TextChange("MaxPool", 12, "auto_pad", _SAME_BEFORE, "SAME: ceil(size / stride), split over both ends"),
    TextChange("MaxPool", 12, "storage_order", "order of the tensor", "order of the numbers in Indices, and no more"),
    TextChange("MaxPool", 12, "summary", "auto_pad has one formula", "it has one for each ceil_mode, of the same size"),
    TextChange(
        "MaxPool", 22, "summary", "ceil_mode says nothing of the padding", "no window begins in the padding at the end"
    ),
    TextChange("MaxUnpool", 11, "strides", _OPEN, _ONE),
    TextChange("ConvTranspose", 11, "auto_pad", _SAME_BEFORE, "SAME: size * stride, split over both ends"),
    TextChange("ConvTranspose", 11, "dilations", _OPEN, _ONE),
    TextChange(
        "ConvTranspose",
        11,
        "output_padding",
        "zeros on one side, any number",
        "cells at the end, fewer than stride or dilation",
        "refused",
    ),
    TextChange("ConvTranspose", 11, "output_shape", "it does not say which axes", "the spatial axes, without N and C"),
    TextChange("ConvTranspose", 11, "strides", _OPEN, _ONE),
    TextChange(
        "ConvTranspose",
        11,
        "summary",
        "output_shape: SAME_UPPER cuts an odd cell at the begin",
        "at the end; all else at the begin, not the end",
        "others",
    ),
)


NONE = "-"


@dataclass(frozen=True)
class ContractEntry:
    """An attribute, input or output: its type, its default or whether it is required, and a description."""

    name: str
    type: str
    default: str
    description: str


@dataclass(frozen=True)
class Contract:
    """The attributes, inputs and outputs of a version.

    Attributes:
        label: the operator with its version.
        versions: all versions of the operator in this domain.
        opsets: that select this version, in words.
        attributes: by name.
        inputs: in their order.
        outputs: in their order.
    """

    label: str
    versions: tuple[int, ...]
    opsets: str
    attributes: tuple[ContractEntry, ...]
    inputs: tuple[ContractEntry, ...]
    outputs: tuple[ContractEntry, ...]

    def lines(self) -> Iterator[str]:
        """The lines that `print` shows."""
        yield f"{self.label}, for {self.opsets}; there are versions {', '.join(map(str, self.versions))}"
        for title, values in (("attributes", self.attributes), ("inputs", self.inputs), ("outputs", self.outputs)):
            rows = [(f"  {one.name}", one.type, one.default, one.description) for one in values]
            yield from ("", title, *columns(rows))


@dataclass(frozen=True)
class ContractChange:
    """A difference to the version before.

    Attributes:
        since: the version.
        subject: an attribute, "types", "outputs", or "summary" for the text about the operator itself.
        before: in the version before, in short.
        after: in this version.
        results: "new" if it was refused before, "refused" if it may be refused now, "others" if a call may have other
            results, "same" if only the standard's text changed, and unpool reads both texts in the same way.
    """

    since: int
    subject: str
    before: str
    after: str
    results: str


def contract_of(row: Row) -> Contract:
    """A row of the table in words."""
    types = ", ".join(row.value_types)
    return Contract(
        row.label,
        tuple(_version(one) for one in rows_of(row.operator, row.domain)),
        _opsets(row),
        tuple(_attribute(row, name) for name in sorted(row.attributes)),
        tuple(
            _value(row, name, number >= row.min_inputs, types) for number, name in enumerate(INPUT_NAMES[row.operator])
        ),
        tuple(
            _value(row, name, number > 0, types) for number, name in enumerate(OUTPUTS[row.operator][: row.max_outputs])
        ),
    )


def changes_between(older: Row, newer: Row) -> tuple[ContractChange, ...]:
    """The changes, version by version.

    >>> from unpool.operators.contract import row
    >>> changes = changes_between(row("MaxPool", "", 1), row("MaxPool", "", 10))
    >>> [(change.since, change.subject, change.results) for change in changes]
    [(8, 'outputs', 'new'), (8, 'storage_order', 'new'), (10, 'ceil_mode', 'new'), (10, 'dilations', 'new'), \
(10, 'summary', 'same')]
    """
    rows = [one for one in rows_of(older.operator, older.domain) if _version(older) <= _version(one) <= _version(newer)]
    return tuple(change for before, after in pairwise(rows) for change in _changes(before, after))


def _changes(before: Row, after: Row) -> Iterator[ContractChange]:
    since = _version(after)
    if before.value_types != after.value_types:
        new = [name for name in after.value_types if name not in before.value_types]
        yield ContractChange(since, "types", ", ".join(before.value_types), f"and {', '.join(new)}", "new")
    if before.max_outputs != after.max_outputs:
        names = OUTPUTS[after.operator]
        first, second = (", ".join(names[: one.max_outputs]) for one in (before, after))
        yield ContractChange(since, "outputs", first, second, "new")
    texts = {one.subject: one for one in TEXT_CHANGES if (one.operator, one.version) == (after.operator, since)}
    added = {name for name in after.attributes if name not in before.attributes}
    for name in sorted({*texts, *added}):
        if name in added:
            yield ContractChange(since, name, NONE, f"{after.attributes[name].value}, default {DEFAULTS[name]}", "new")
        else:
            one = texts[name]
            yield ContractChange(since, name, one.before, one.after, one.results)


def _attribute(row: Row, name: str) -> ContractEntry:
    default = "required" if name in row.required else f"default {DEFAULTS[name]}"
    return ContractEntry(name, row.attributes[name].value, default, ATTRIBUTE_TEXTS[name])


def _value(row: Row, name: str, is_optional: bool, types: str) -> ContractEntry:
    description = VALUE_TEXTS[name]
    if row.is_channels_last and name in LAYOUT_VALUES:
        description = description.replace("(N, C, D1..Dk)", "(N, D1..Dk, C)").replace(
            "(N, C, d1..dk)", "(N, d1..dk, C)"
        )
    kind = "int64" if name in INT64_VALUES else types if name == "X" else "that of X"
    return ContractEntry(name, kind, "optional" if is_optional else "required", description)


def _opsets(row: Row) -> str:
    later = [_version(one) for one in rows_of(row.operator, row.domain) if _version(one) > _version(row)]
    first = _version(row)
    if not later:
        return f"opsets from {first} on"
    return f"opset {first}" if later[0] == first + 1 else f"opsets {first} to {later[0] - 1}"


def _version(row: Row) -> int:
    assert row.since_version is not None
    return row.since_version


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row; every column but the last as wide as its widest cell.

    >>> columns([("a", "b"), ("aaa", "b")])
    ['a    b', 'aaa  b']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
