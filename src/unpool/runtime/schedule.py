"""Which steps a run needs, and when a value may go."""

from collections.abc import Sequence
from dataclasses import dataclass

from unpool.runtime.assemble import Program, Runner
from unpool.runtime.plan import Plan, Step


@dataclass(frozen=True)
class Entry:
    """One step of a run.

    Attributes:
        step: what it reads and makes.
        runner: the loaded step.
        name: for profiles.
        last_uses: values that nothing reads after it.
    """

    step: Step
    runner: Runner
    name: str
    last_uses: tuple[str, ...]


class Schedules:
    """The steps for each choice of outputs, made once per choice."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[tuple[str, ...], tuple[Entry, ...]] = {}

    def of(self, wanted: tuple[str, ...]) -> tuple[Entry, ...]:
        """The steps that these outputs need, in order."""
        if wanted not in self._known:
            self._known[wanted] = tuple(self._entries(wanted))
        return self._known[wanted]

    def _entries(self, wanted: Sequence[str]) -> list[Entry]:
        alive = set(wanted)
        needed = set(wanted)
        entries = []
        plan, names = self._program.plan, _names(self._program.plan)
        for number in reversed(range(len(plan.steps))):
            step = plan.steps[number]
            if needed.isdisjoint(step.outputs):
                continue
            needed.update(step.inputs)
            last = tuple(name for name in (*step.inputs, *step.outputs) if name not in alive)
            alive.update(step.inputs, step.outputs)
            entries.append(Entry(step, self._program.runners[number], names[number], last))
        return entries[::-1]


def _names(plan: Plan) -> list[str]:
    """How profiles call each step."""
    nodes: list[list[str]] = [[] for _ in plan.steps]
    for record in plan.records:
        nodes[record.step].append(record.node)
    return [names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}" for names in nodes]
