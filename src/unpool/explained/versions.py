"""A version of an operator, and what changed between two of them, from the rows of the contract."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from unpool.explained.layout import columns
from unpool.explained.words import ABOUT, ABOUT_VALUES, DEFAULTS, IN_LAYOUT, INT64, OUTPUTS, WORDINGS
from unpool.operators.contract import INPUT_NAMES, Row, rows_of

NONE = "-"


@dataclass(frozen=True)
class About:
    """An attribute, input or output: its type, whether it may be left out and what is taken then, and what it is."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Contract:
    """What a version accepts.

    Attributes:
        label: the operator with its version.
        versions: all versions of the operator in this domain.
        opsets: those that select this version, in words.
        attributes: by name.
        inputs: in their order.
        outputs: in their order.
    """

    label: str
    versions: tuple[int, ...]
    opsets: str
    attributes: tuple[About, ...]
    inputs: tuple[About, ...]
    outputs: tuple[About, ...]

    def lines(self) -> Iterator[str]:
        """What `print` shows."""
        yield f"{self.label}, for {self.opsets}; there are versions {', '.join(map(str, self.versions))}"
        for title, values in (("attributes", self.attributes), ("inputs", self.inputs), ("outputs", self.outputs)):
            rows = [(f"  {one.name}", one.type, one.default, one.meaning) for one in values]
            yield from ("", title, *columns(rows))


@dataclass(frozen=True)
class Change:
    """What is different from a version on.

    Attributes:
        since: the version.
        what: an attribute, "types", "outputs", or "summary" for the text about the operator itself.
        before: in the version before, in short.
        after: in this version.
        results: "new" for what was refused before, "refused" for what was accepted before and may be refused now,
            "others" where a call may have other results, "same" where only the standard's text changed and unpool reads
            both in the same way.
    """

    since: int
    what: str
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


def changes_between(older: Row, newer: Row) -> tuple[Change, ...]:
    """What changed, version by version.

    >>> from unpool.operators.contract import row
    >>> [(one.since, one.what, one.results) for one in changes_between(row("MaxPool", "", 1), row("MaxPool", "", 10))]
    [(8, 'outputs', 'new'), (8, 'storage_order', 'new'), (10, 'ceil_mode', 'new'), (10, 'dilations', 'new'), \
(10, 'summary', 'same')]
    """
    rows = [one for one in rows_of(older.operator, older.domain) if _version(older) <= _version(one) <= _version(newer)]
    return tuple(change for before, after in pairwise(rows) for change in _changes(before, after))


def _changes(before: Row, after: Row) -> Iterator[Change]:
    since = _version(after)
    if before.value_types != after.value_types:
        new = [name for name in after.value_types if name not in before.value_types]
        yield Change(since, "types", ", ".join(before.value_types), f"and {', '.join(new)}", "new")
    if before.max_outputs != after.max_outputs:
        names = OUTPUTS[after.operator]
        first, second = (", ".join(names[: one.max_outputs]) for one in (before, after))
        yield Change(since, "outputs", first, second, "new")
    texts = {one.subject: one for one in WORDINGS if (one.operator, one.version) == (after.operator, since)}
    added = {name for name in after.attributes if name not in before.attributes}
    for name in sorted({*texts, *added}):
        if name in added:
            yield Change(since, name, NONE, f"{after.attributes[name].value}, default {DEFAULTS[name]}", "new")
        else:
            one = texts[name]
            yield Change(since, name, one.before, one.after, one.results)


def _attribute(row: Row, name: str) -> About:
    default = "required" if name in row.required else f"default {DEFAULTS[name]}"
    return About(name, row.attributes[name].value, default, ABOUT[name])


def _value(row: Row, name: str, is_optional: bool, types: str) -> About:
    meaning = ABOUT_VALUES[name]
    if row.is_channels_last and name in IN_LAYOUT:
        meaning = meaning.replace("(N, C, D1..Dk)", "(N, D1..Dk, C)").replace("(N, C, d1..dk)", "(N, d1..dk, C)")
    kind = "int64" if name in INT64 else types if name == "X" else "that of X"
    return About(name, kind, "optional" if is_optional else "required", meaning)


def _opsets(row: Row) -> str:
    later = [_version(one) for one in rows_of(row.operator, row.domain) if _version(one) > _version(row)]
    first = _version(row)
    if not later:
        return f"opsets from {first} on"
    return f"opset {first}" if later[0] == first + 1 else f"opsets {first} to {later[0] - 1}"


def _version(row: Row) -> int:
    assert row.since_version is not None
    return row.since_version
