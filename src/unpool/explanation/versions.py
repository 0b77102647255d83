"""Versions of an operator in words, and the changes between two of them, from the versions of the contract.

Source: ONNX's operator schemas. A test compares names, defaults and the list of changed texts with those of onnx.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from unpool.operators.contract import ATTRIBUTES, OperatorVersion, versions_of


@dataclass(frozen=True)
class ContractChange:
    """A difference of version `since` to the version before, in short.

    `subject` is an attribute, "types", "outputs", or "summary" for the operator's text. `results` are "new" if it was
    refused before, "refused" if it may be now, "others" if a call may have other results, "same" if unpool reads both
    texts in the same way.
    """

    since: int
    subject: str
    before: str
    after: str
    results: str = "same"


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

_OPEN = "default not stated"
_ONE = "1 along each axis"
_SAME_BEFORE = "SAME: the output has the size of the input"
TEXT_CHANGES: Mapping[str, tuple[ContractChange, ...]] = {
    "MaxPool": (
        ContractChange(10, "summary", "size from kernel_shape, rounded down", "from the reach, maybe rounded up"),
        ContractChange(11, "dilations", _OPEN, _ONE),
        ContractChange(11, "strides", _OPEN, _ONE),
        ContractChange(12, "auto_pad", _SAME_BEFORE, "SAME: ceil(size / stride), split over both ends"),
        ContractChange(12, "storage_order", "order of the tensor", "order of the numbers in Indices, and no more"),
        ContractChange(12, "summary", "auto_pad has one formula", "it has one for each ceil_mode, of the same size"),
        ContractChange(
            22, "summary", "ceil_mode says nothing of the padding", "no window begins in the padding at the end"
        ),
    ),
    "MaxUnpool": (ContractChange(11, "strides", _OPEN, _ONE),),
    "ConvTranspose": (
        ContractChange(11, "auto_pad", _SAME_BEFORE, "SAME: size * stride, split over both ends"),
        ContractChange(11, "dilations", _OPEN, _ONE),
        ContractChange(
            11, "output_padding",
            "zeros on one side, any number", "cells at the end, fewer than stride or dilation", "refused",
        ),
        ContractChange(11, "output_shape", "it does not say which axes", "the spatial axes, without N and C"),
        ContractChange(11, "strides", _OPEN, _ONE),
        ContractChange(
            11, "summary",
            "output_shape: SAME_UPPER cuts an odd cell at the begin", "at the end; all else at the begin, not the end",
            "others",
        ),
    ),
}  # fmt: skip
"""Changed texts of the standard, by operator: each with the first version that has the new text."""


@dataclass(frozen=True)
class ContractEntry:
    """An attribute, input or output: its type, its default or whether it is required, and a description."""

    name: str
    type: str
    default: str
    description: str


@dataclass(frozen=True)
class Contract:
    """The attributes, inputs and outputs of a version in words, with its opsets and all versions of the operator."""

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
            rows = [(f"  {entry.name}", entry.type, entry.default, entry.description) for entry in values]
            yield from ("", title, *columns(rows))


def contract_of(version: OperatorVersion) -> Contract:
    """A version of the table in words."""
    types, since = ", ".join(version.value_types), _since(version)
    versions = tuple(map(_since, versions_of(version.operator, version.domain)))
    later = next((number for number in versions if number > since), None)
    opsets = f"opset {since}" if later == since + 1 else f"opsets {since} to {(later or 0) - 1}"
    attributes = []
    for name, kind in sorted(version.attributes.items()):
        default, description = ATTRIBUTES[name]
        default = "required" if name in version.required else f"default {default}"
        attributes.append(ContractEntry(name, kind.value, default, description))
    return Contract(
        version.label,
        versions,
        f"opsets from {since} on" if later is None else opsets,
        tuple(attributes),
        tuple(_value(version, name, number >= version.min_inputs, types) for number, name in enumerate(version.inputs)),
        tuple(_value(version, name, number > 0, types) for number, name in enumerate(version.outputs)),
    )


def changes_between(older: OperatorVersion, newer: OperatorVersion) -> tuple[ContractChange, ...]:
    """The changes, version by version."""
    versions = versions_of(older.operator, older.domain)
    versions = versions[versions.index(older) : versions.index(newer) + 1]
    return tuple(change for before, after in pairwise(versions) for change in _changes(before, after))


def _changes(before: OperatorVersion, after: OperatorVersion) -> Iterator[ContractChange]:
    since = _since(after)
    if before.value_types != after.value_types:
        new = [name for name in after.value_types if name not in before.value_types]
        yield ContractChange(since, "types", ", ".join(before.value_types), f"and {', '.join(new)}", "new")
    if before.outputs != after.outputs:
        yield ContractChange(since, "outputs", ", ".join(before.outputs), ", ".join(after.outputs), "new")
    changes = {change.subject: change for change in TEXT_CHANGES[after.operator] if change.since == since}
    for name in after.attributes:
        if name not in before.attributes:
            text = f"{after.attributes[name].value}, default {ATTRIBUTES[name][0]}"
            changes[name] = ContractChange(since, name, "-", text, "new")
    yield from (changes[name] for name in sorted(changes))


def _value(version: OperatorVersion, name: str, is_optional: bool, types: str) -> ContractEntry:
    description = VALUE_TEXTS[name]
    if version.is_channels_last and name in LAYOUT_VALUES:
        for dims in ("D1..Dk", "d1..dk"):
            description = description.replace(f"(N, C, {dims})", f"(N, {dims}, C)")
    kind = "int64" if name in INT64_VALUES else types if name == "X" else "the type of X"
    return ContractEntry(name, kind, "optional" if is_optional else "required", description)


def _since(version: OperatorVersion) -> int:
    assert version.since_version is not None
    return version.since_version


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row; every column but the last is as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
