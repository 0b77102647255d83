"""The records of a comparison: value by value, runtime by runtime, and the whole, which prints as the command does."""

from collections.abc import Iterator
from dataclasses import dataclass

from unpool.display import display_line, table
from unpool.numerics import ArrayDiff

TITLES = ("node", "operator", "value", "what differs", "share", "largest", "relative", "ulp", "at", "values")


@dataclass(frozen=True)
class IndexTies:
    """Indices of a MaxPool that differ, counted by the two elements of X that they name.

    Those of ties are equal, and neither runtime is wrong about the value. Those of near ties differ within the
    tolerance, so that rounding before the pool decides; other values differ by more: one runtime did not choose the
    largest, or counts in another way. Outside, an index names no element of X.
    """

    ties: int = 0
    near_ties: int = 0
    other_values: int = 0
    outside: int = 0

    def __str__(self) -> str:
        counts = (self.ties, self.near_ties, self.other_values, self.outside)
        parts = zip(counts, ("tie", "almost tie", "of other values", "outside"), strict=True)
        return "indices: " + ", ".join(f"{count} {kind}" for count, kind in parts if count)


@dataclass(frozen=True)
class ValueDiff:
    """One value of a node in two runtimes, or with "" an output of the model as a whole; it is a first difference if
    all inputs of the node agree.
    """

    node: str
    operator: str
    value: str
    diff: ArrayDiff
    is_first_difference: bool = False
    ties: IndexTies | None = None

    @property
    def row(self) -> tuple[str, ...]:
        """The row of a table with the columns `TITLES`."""
        diff = self.diff
        kind = diff.kind if self.ties is None else str(self.ties)
        share, max_abs, max_rel, ulp, index = [""] * 5
        if diff.kind in ("values", "close"):
            share, index = f"{diff.share * 100:.3g}%", str(list(diff.index))
            if self.ties is None:
                max_abs, max_rel = f"{diff.max_abs:.3g}", f"{diff.max_rel:.2g}"
                ulp = "" if diff.ulp is None else str(diff.ulp)
        elements = f"{diff.expected} | {diff.actual}" if diff.expected or diff.actual else ""
        place = (self.node or "whole model", self.operator, self.value)
        return (*place, kind, share, max_abs, max_rel, ulp, index, elements)


@dataclass(frozen=True)
class UnsupportedNode:
    """A node that a runtime does not run, or, with an empty name, a model; the reason is the runtime's message."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"cannot run {f'{self.node} ({self.operator})' if self.node else 'the model'}: {self.reason}"


@dataclass(frozen=True)
class RuntimeReport:
    """The results of one runtime, by its name and version, compared with those of the first.

    Values are in the order of the nodes, as far as both runtimes make them, and outputs are those of the model as it
    is, none where the runtime cannot run it. Of another model, only outputs decide whether it differs, and
    `unmatched_count` values of the first model have no counterpart in it.
    """

    runtime: str
    values: tuple[ValueDiff, ...] = ()
    outputs: tuple[ValueDiff, ...] = ()
    unsupported: tuple[UnsupportedNode, ...] = ()
    is_other_model: bool = False
    unmatched_count: int = 0

    @property
    def differs(self) -> bool:
        """True if an output or, with the same model, any value differs by more than the tolerance."""
        values = self.outputs if self.is_other_model else (*self.values, *self.outputs)
        return any(value.diff.differs for value in values)

    @property
    def first_difference(self) -> ValueDiff | None:
        """The first value that differs, in the order of the nodes; else the first output."""
        return next((value for value in (*self.values, *self.outputs) if value.diff.differs), None)

    def lines(self, *, all_values: bool = False) -> Iterator[str]:
        """The lines that `print` shows: outputs, and values that differ first; or all values."""
        for entry in self.unsupported:
            yield f"{self.runtime}: {entry}"
        parts = [part for part in (self._output_summary(), self._value_summary()) if part]
        yield f"{self.runtime}: {'; '.join(parts) or 'nothing could be compared'}"
        rows = [value.row for value in self.values if value.is_first_difference or all_values]
        rows += [output.row for output in self.outputs if output.diff.differs or all_values]
        if rows:
            yield from (f"  {line}" for line in table(TITLES, rows).splitlines())
        later = sum(value.diff.differs and not value.is_first_difference for value in self.values)
        if later and not all_values:
            yield f"  and {later} more value{'s' * (later > 1)} after these"

    def _output_summary(self) -> str:
        count, differing = len(self.outputs), sum(output.diff.differs for output in self.outputs)
        if not count:
            return ""
        if differing:
            return "the output differs" if count == 1 else f"{differing} of {count} outputs differ"
        is_equal = all(output.diff.kind == "equal" for output in self.outputs)
        largest = max(output.diff.max_abs for output in self.outputs)
        detail = "bit for bit" if is_equal else f"largest difference {largest:.3g}"
        return f"{'the output agrees' if count == 1 else f'all {count} outputs agree'}, {detail}"

    def _value_summary(self) -> str:
        first = next((value for value in self.values if value.diff.differs), None)
        rest = "; the others were not compared" if self.unsupported else ""
        summary = ""
        if first is not None:
            summary = f"first difference at {first.node} ({first.operator}){rest}"
        elif self.values:
            equal = sum(value.diff.kind == "equal" for value in self.values)
            agree = "1 value agrees" if len(self.values) == 1 else f"all {len(self.values)} values agree"
            summary = f"{agree} ({equal} bit for bit){rest}"
        if not self.is_other_model or self.unsupported:
            return summary
        return f"{summary or 'no value in between was compared'}; {self.unmatched_count} without a counterpart"


@dataclass(frozen=True)
class PassChange:
    """A pass of unpool's session that changes outputs of a model, and the output that it changes most."""

    name: str
    output: str
    diff: ArrayDiff

    def __str__(self) -> str:
        is_number = 0 < self.diff.error < float("inf")
        amount = f"by {self.diff.error:.1e} of the largest element" if is_number else f"in its {self.diff.kind}"
        return f"  {self.name} changes {self.output} {amount}"


@dataclass(frozen=True)
class Comparison:
    """One or two models in a first runtime and in others; `notes` name the parts that were not compared.

    `passes` are those of unpool's session that change an output of the first model; None if they were not tried.
    """

    models: tuple[str, ...]
    runtime: str
    inputs: tuple[str, ...]
    reports: tuple[RuntimeReport, ...]
    notes: tuple[str, ...] = ()
    passes: tuple[PassChange, ...] | None = None

    @property
    def differs(self) -> bool:
        """True if any runtime differs; of two models, if an output does."""
        return any(report.differs for report in self.reports)

    @property
    def has_unsupported(self) -> bool:
        """True if any runtime cannot run a node or the model."""
        return any(report.unsupported for report in self.reports)

    def __str__(self) -> str:
        return "\n".join(map(display_line, self.lines()))

    def lines(self, *, all_values: bool = False) -> Iterator[str]:
        """The lines that `print` shows; or those with all values."""
        yield f"{' and '.join(self.models)}: {self.runtime} on {', '.join(self.inputs) or 'no inputs'}, compared with"
        yield from self.notes
        for report in self.reports:
            yield from report.lines(all_values=all_values)
        if self.passes is not None:
            yield "passes that change an output:" if self.passes else "no pass changes an output"
            yield from map(str, self.passes)
