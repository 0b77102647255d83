"""Finds out which steps a run needs, and after which step a value is no longer needed."""

from collections.abc import Sequence
from dataclasses import dataclass

from unpool.runtime.plan.plan import Plan, Step
from unpool.runtime.runners.loaded_plan import LoadedPlan, LoadedStep


@dataclass(frozen=True)
class ScheduledStep:
    """One step of a run.

    Attributes:
        step: its inputs and outputs.
        loaded: the same step, ready to run.
        name: its name in profiles.
        last_uses: values that no later step reads.
    """

    step: Step
    loaded: LoadedStep
    name: str
    last_uses: tuple[str, ...]


class Schedules:
    """Gives the steps that a choice of outputs needs, and works them out once per choice."""

    def __init__(self, loaded: LoadedPlan) -> None:
        self._loaded = loaded
        self._known: dict[tuple[str, ...], tuple[ScheduledStep, ...]] = {}

    def of(self, wanted: tuple[str, ...]) -> tuple[ScheduledStep, ...]:
        """The steps that these outputs need, in order."""
        if wanted not in self._known:
            self._known[wanted] = tuple(self._entries(wanted))
        return self._known[wanted]

    def _entries(self, wanted: Sequence[str]) -> list[ScheduledStep]:
        alive = set(wanted)
        needed = set(wanted)
        entries = []
        plan, names = self._loaded.plan, _names(self._loaded.plan)
        for number in reversed(range(len(plan.steps))):
            step = plan.steps[number]
            if needed.isdisjoint(step.outputs):
                continue
            needed.update(step.inputs)
            last = tuple(name for name in (*step.inputs, *step.outputs) if name not in alive)
            alive.update(step.inputs, step.outputs)
            entries.append(ScheduledStep(step, self._loaded.steps[number], names[number], last))
        return entries[::-1]


def _names(plan: Plan) -> list[str]:
    """The name of each step in profiles."""
    nodes: list[list[str]] = [[] for _ in plan.steps]
    for record in plan.records:
        if not record.inner_steps:
            nodes[record.step].append(record.node)
    return [names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}" for names in nodes]
