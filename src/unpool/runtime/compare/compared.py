"""The records of a comparison: value by value, runtime by runtime, and the whole, which prints as the command does."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from unpool.display import display_line
from unpool.runtime.compare.choices import Choices
from unpool.runtime.compare.difference import Difference
from unpool.runtime.table import table

TITLES = ("node", "operator", "value", "what differs", "share", "largest", "relative", "ulp", "at", "values")


@dataclass(frozen=True)
class ComparedValue:
    """One value in two runtimes.

    Attributes:
        node: name of the node that makes it; "" for an output of the model as a whole.
        operator: of the node, with its version.
        value: its name.
        difference: how far both are apart.
        begins: whether it differs while all that its node reads agrees.
        choices: for indices of a MaxPool that differ, what they name.
    """

    node: str
    operator: str
    value: str
    difference: Difference
    begins: bool = False
    choices: Choices | None = None

    @property
    def row(self) -> tuple[str, ...]:
        """What a table says of it, under `TITLES`."""
        one = self.difference
        what = one.kind if self.choices is None else str(self.choices)
        share, largest, relative, ulp, place = [""] * 5
        if one.kind in ("values", "close"):
            share, place = f"{one.share * 100:.3g}%", str(list(one.place))
        if share and self.choices is None:
            largest, relative, ulp = (
                f"{one.largest:.3g}",
                f"{one.relative:.2g}",
                "" if one.ulp is None else str(one.ulp),
            )
        place_in_model = self.node or "whole model", self.operator, self.value
        return (*place_in_model, what, share, largest, relative, ulp, place, _beside(one))


@dataclass(frozen=True)
class Refusal:
    """A node that a runtime does not run, or, with an empty label, a model: what the runtime says."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"refuses {f'{self.node} ({self.operator})' if self.node else 'the model'}: {self.reason}"


@dataclass(frozen=True)
class Peer:
    """What one runtime makes of a model.

    Attributes:
        runtime: its name and version.
        values: in the order of the nodes, as far as both runtimes make them.
        outputs: of the model as it is, without the values in between as outputs; empty where it was refused.
        refusals: what the runtime does not run.
        is_other: whether it ran another model, of which the outputs alone count.
        unmatched: values of the first model that correspond to none of the other one.
    """

    runtime: str
    values: tuple[ComparedValue, ...] = ()
    outputs: tuple[ComparedValue, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    is_other: bool = False
    unmatched: int = 0

    @property
    def departs(self) -> bool:
        """Whether an output, or with the same model any value, differs by more than the tolerance."""
        counted = self.outputs if self.is_other else (*self.values, *self.outputs)
        return any(one.difference.departs for one in counted)

    @property
    def first(self) -> ComparedValue | None:
        """The first value that differs, in the order of the nodes; else the first output."""
        return next((one for one in (*self.values, *self.outputs) if one.difference.departs), None)

    def lines(self, *, is_whole: bool = False) -> Iterator[str]:
        """What `print` shows: outputs, and where values begin to differ; with `is_whole` every value."""
        for refusal in self.refusals:
            yield f"{self.runtime}: {refusal}"
        yield f"{self.runtime}: {self._verdict()}"
        shown = [one for one in self.values if one.begins or is_whole]
        rows = [one.row for one in (*shown, *(one for one in self.outputs if one.difference.departs or is_whole))]
        if rows:
            yield from (f"  {line}" for line in table(TITLES, rows).splitlines())
        following = sum(one.difference.departs and not one.begins for one in self.values)
        if following and not is_whole:
            yield f"  and behind these, {following} more value{'s' * (following > 1)}"

    def _verdict(self) -> str:
        parts = [part for part in (self._of_outputs(), self._of_values()) if part]
        return "; ".join(parts) or "nothing could be compared"

    def _of_outputs(self) -> str:
        count = len(self.outputs)
        differing = sum(one.difference.departs for one in self.outputs)
        if not count:
            return ""
        if differing:
            return "the output differs" if count == 1 else f"{differing} of {count} outputs differ"
        largest = max(one.difference.largest for one in self.outputs)
        is_equal = all(one.difference.kind == "equal" for one in self.outputs)
        how = "bit for bit" if is_equal else f"largest difference {largest:.3g}"
        return f"{'the output agrees' if count == 1 else f'all {count} outputs agree'}, {how}"

    def _of_values(self) -> str:
        found = next((one for one in self.values if one.difference.departs), None)
        equal = sum(one.difference.kind == "equal" for one in self.values)
        rest = "; the others were not compared" if self.refusals else ""
        if found is not None:
            words = f"first difference at {found.node} ({found.operator}){rest}"
        elif self.values:
            agree = "1 value agrees" if len(self.values) == 1 else f"all {len(self.values)} values agree"
            words = f"{agree} ({equal} bit for bit){rest}"
        else:
            words = ""
        if not self.is_other or self.refusals:
            return words
        return f"{words or 'no value in between was compared'}; {self.unmatched} without a counterpart"


@dataclass(frozen=True)
class Comparison:
    """Models or runtimes beside each other; `print` shows all of it.

    Attributes:
        models: the names of the model or of both.
        runtime: the name and version of the first runtime, to which the others are compared.
        inputs: name, shape and type of what was fed, as text.
        peers: one for each runtime.
        notes: what was not looked at.
    """

    models: tuple[str, ...]
    runtime: str
    inputs: tuple[str, ...]
    peers: tuple[Peer, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def departs(self) -> bool:
        """Whether any runtime differs; with two models, in its outputs."""
        return any(peer.departs for peer in self.peers)

    @property
    def refuses(self) -> bool:
        """Whether any runtime refuses something."""
        return any(peer.refusals for peer in self.peers)

    def __str__(self) -> str:
        return "\n".join(map(display_line, self.lines()))

    def lines(self, *, is_whole: bool = False) -> Iterator[str]:
        """What `print` shows; with `is_whole` every value."""
        yield f"{' and '.join(self.models)}: {self.runtime} on {', '.join(self.inputs) or 'no inputs'}, beside"
        yield from self.notes
        for peer in self.peers:
            yield from peer.lines(is_whole=is_whole)


def _beside(one: Difference) -> str:
    return f"{one.expected} | {one.got}" if one.expected or one.got else ""
