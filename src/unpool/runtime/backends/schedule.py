"""Schedules: the steps that a choice of outputs needs, and when their values can be freed."""

from collections.abc import Sequence
from dataclasses import dataclass

from unpool.runtime.backends.step import LoadedPlan, LoadedStep
from unpool.runtime.plan.plan import Plan, Step


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
    """The schedules of a plan, computed once per choice of outputs."""

    def __init__(self, loaded: LoadedPlan) -> None:
        self._loaded = loaded
        self._schedules: dict[tuple[str, ...], tuple[ScheduledStep, ...]] = {}

    def for_outputs(self, names: tuple[str, ...]) -> tuple[ScheduledStep, ...]:
        """The steps that these outputs need, in order."""
        if names not in self._schedules:
            self._schedules[names] = tuple(self._schedule(names))
        return self._schedules[names]

    def _schedule(self, names: Sequence[str]) -> list[ScheduledStep]:
        alive = set(names)
        needed = set(names)
        entries = []
        plan, step_names = self._loaded.plan, _step_names(self._loaded.plan)
        for number in reversed(range(len(plan.steps))):
            step = plan.steps[number]
            if needed.isdisjoint(step.outputs):
                continue
            needed.update(step.inputs)
            last = tuple(name for name in (*step.inputs, *step.outputs) if name not in alive)
            alive.update(step.inputs, step.outputs)
            entries.append(ScheduledStep(step, self._loaded.steps[number], step_names[number], last))
        return entries[::-1]


def _step_names(plan: Plan) -> list[str]:
    """The name of each step in profiles."""
    nodes: list[list[str]] = [[] for _ in plan.steps]
    for record in plan.records:
        if not record.subgraph_steps:
            nodes[record.step].append(record.node)
    return [names[0] if len(names) == 1 else f"{names[0]} .. {names[-1]}" for names in nodes]
