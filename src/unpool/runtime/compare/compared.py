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
        node: label of the node that makes it; "" for an output of the model as a whole.
        operator: of the node, with its version.
        value: its name.
        difference: how far both are apart.
        begins: whether it departs while all that its node reads agrees.
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
    """

    runtime: str
    values: tuple[ComparedValue, ...] = ()
    outputs: tuple[ComparedValue, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def departs(self) -> bool:
        """Whether any value differs by more than the tolerance."""
        return any(one.difference.departs for one in (*self.values, *self.outputs))

    @property
    def first(self) -> ComparedValue | None:
        """The first value that departs, in the order of the nodes; else the first output."""
        return next((one for one in (*self.values, *self.outputs) if one.difference.departs), None)

    def lines(self, *, is_whole: bool = False) -> Iterator[str]:
        """What `print` shows: where it begins to depart, and the outputs; with `is_whole` every value."""
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
        counted = self.values or self.outputs
        if not counted:
            return "nothing could be compared"
        if self.first is not None:
            place = f"at {self.first.node} ({self.first.operator})" if self.first.node else "only as a whole"
            return f"departs, first {place}"
        equal = sum(one.difference.kind == "equal" for one in counted)
        count = f"{len(counted)} value{'s' * (len(counted) > 1)}"
        rest = "; the others were not compared" if self.refusals else ""
        return f"agrees in {count}, {equal} of them bit for bit{rest}"


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
        """Whether any runtime departs."""
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
