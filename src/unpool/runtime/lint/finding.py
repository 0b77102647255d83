"""One thing that is wrong with a model."""

from dataclasses import dataclass


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
