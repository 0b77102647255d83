"""A record, for people to read, of one change of a graph."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One node that is written differently: its label, and the operator, version and attributes on both sides."""

    node: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.node}: {self.before} -> {self.after}"
