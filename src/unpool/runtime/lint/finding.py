"""What is wrong with a model, thing by thing."""

from dataclasses import dataclass

from unpool.runtime.table import table

TITLES = ("node", "rule", "what is wrong", "who is affected", "repair")


@dataclass(frozen=True)
class Finding:
    """What is wrong with one node.

    Attributes:
        node: its name, or `Operator->output` without one.
        operator: its type.
        rule: of docs/semantics.md.
        problem: what is wrong.
        affected: which runtimes read it differently, and how.
        repair: the command that repairs it, or what to change.
    """

    node: str
    operator: str
    rule: str
    problem: str
    affected: str
    repair: str

    @property
    def row(self) -> tuple[str, ...]:
        """What a table says of it, under `TITLES`."""
        return (self.node, self.rule, self.problem, self.affected, self.repair)


class Findings(tuple[Finding, ...]):
    """All that is wrong with a model; `print` shows a table."""

    __slots__ = ()

    def __str__(self) -> str:
        return table(TITLES, [one.row for one in self]) if self else "nothing found"
