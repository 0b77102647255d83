"""Loaded steps of a plan: the interface of all backends, the schedule of a run, and its cancellation."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.operators.max_pool import MaxPoolSpec
from unpool.runtime.errors import error_class
from unpool.runtime.graph.shapes import Types
from unpool.runtime.plan.plan import Plan, PlanRow, Step
from unpool.runtime.requirements import onnxruntime

Constants: TypeAlias = Mapping[str, AnyArray]  # constant inputs of nodes, by name
Values: TypeAlias = Sequence[Any]  # inputs of a step, in its order
Targets: TypeAlias = Sequence[AnyArray | None]  # for every output of a step, memory to write it to, or None
RunOptions: TypeAlias = onnxruntime.RunOptions  # the caller's options of a run
STOPPED = "the run was stopped, because RunOptions.terminate is True. Set it to False to run again."


class LoadedStep(Protocol):
    """A step that is ready to run."""

    def run(self, values: Values, run_options: RunOptions | None, targets: Targets | None = None) -> Sequence[Any]:
        """The outputs of the step, in its order; a step may ignore `targets`."""


@dataclass(frozen=True)
class ScheduledStep:
    """One step of a run; name and operators of its nodes are for profiles."""

    step: Step
    loaded: LoadedStep
    name: str
    operators: str
    last_uses: tuple[str, ...]  # values that no later step reads


@dataclass(frozen=True)
class LoadedPlan:
    """A plan with its steps, ready to run."""

    plan: Plan
    steps: tuple[LoadedStep, ...]
    refused: Mapping[str, str]  # the reason by the name of each node that neither onnxruntime nor unpool runs
    types: Types  # completed by what onnxruntime inferred
    assumed: tuple[tuple[str, MaxPoolSpec], ...] = ()  # pools of onnxruntime with inputs whose sizes the plan assumes
    _schedules: dict[tuple[str, ...], tuple[ScheduledStep, ...]] = field(default_factory=dict)

    def schedule(self, names: tuple[str, ...]) -> tuple[ScheduledStep, ...]:
        """The steps that these outputs need, in order; computed once."""
        if names in self._schedules:
            return self._schedules[names]
        alive, needed = set(names), set(names)
        rows_by_step: list[list[PlanRow]] = [[] for _ in self.steps]
        for row in self.plan.records:
            if not row.subgraph_steps:
                rows_by_step[row.step].append(row)
        entries = []
        for step, loaded, rows in reversed(list(zip(self.plan.steps, self.steps, rows_by_step, strict=True))):
            if needed.isdisjoint(step.outputs):
                continue
            needed.update(step.inputs)
            last_uses = tuple(name for name in (*step.inputs, *step.outputs) if name not in alive)
            alive.update(step.inputs, step.outputs)
            name = rows[0].node if len(rows) == 1 else f"{rows[0].node} .. {rows[-1].node}"
            operators = ", ".join(dict.fromkeys(row.operator for row in rows))
            entries.append(ScheduledStep(step, loaded, name, operators, last_uses))
        self._schedules[names] = tuple(entries[::-1])
        return self._schedules[names]


class Partition(ABC):
    """A part of the graph that one runtime runs; `where` is its name in errors."""

    stops_itself: ClassVar[bool] = False
    """True if the runtime itself obeys `RunOptions.terminate`."""

    def __init__(self, where: str) -> None:
        self._where = where

    def run(self, values: Values, run_options: RunOptions | None, targets: Targets | None = None) -> list[Any]:
        """The outputs of the partition, in its order; a failure of the runtime is raised as an UnpoolError."""
        if run_options is not None and not self.stops_itself:
            check_cancelled(run_options)
        try:
            return self._run(values, run_options, targets)
        except UnpoolError:
            raise
        except Exception as error:
            if self.stops_itself and run_options is not None and run_options.terminate:
                raise UnpoolError(f"{self._where}: {STOPPED}") from error
            raise self._run_error(error) from error

    @abstractmethod
    def _run(self, values: Values, run_options: RunOptions | None, targets: Targets | None) -> list[Any]:
        """As `run`, with the errors of the runtime."""

    @abstractmethod
    def _run_error(self, error: Exception) -> UnpoolError: ...


def check_cancelled(run_options: RunOptions) -> None:
    """Raise if the caller set `RunOptions.terminate`, which any thread can do; also onnxruntime's Fail."""
    if run_options.terminate:
        raise error_class(UnpoolError, "Fail")(f"run: {STOPPED}")


def require_run_options(run_options: Any) -> None:
    """Refuse options that are neither None nor RunOptions; also a TypeError."""
    if not isinstance(run_options, onnxruntime.RunOptions | None):
        raise error_class(UnpoolError, TypeError)(
            f"run: expected run_options to be onnxruntime.RunOptions or None, got {type(run_options).__name__}. "
            "Make RunOptions and set its attributes."
        )
