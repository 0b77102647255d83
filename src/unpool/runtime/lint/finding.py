"""The findings of `unpool check`, node by node."""

from dataclasses import dataclass

from unpool.display import display_line


@dataclass(frozen=True)
class Finding:
    """A node that runtimes interpret differently, or that is probably a mistake; `print` shows one line.

    Attributes:
        node: its name, or `Operator->output` without one.
        operator: its type.
        rule: of docs/semantics.md.
        problem: the finding.
        affected: which runtimes read it differently, and how.
        repair: the command that repairs it, or what to change.
    """

    node: str
    operator: str
    rule: str
    problem: str
    affected: str
    repair: str

    def __str__(self) -> str:
        return f"{self.node}: {self.problem}. Effect: {self.affected}. Repair: {self.repair} (rule {self.rule})"


class Findings(tuple[Finding, ...]):
    """All findings of a model; `print` shows a line for each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(display_line(str(one)) for one in self) or "nothing found"
