"""Loaded steps of a plan: the interface of all backends, and how a run is cancelled."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.runtime.errors import error_class
from unpool.runtime.graph.shapes import Types
from unpool.runtime.plan.plan import Plan
from unpool.runtime.requirements import onnxruntime

Values: TypeAlias = Sequence[Any]
"""Inputs of a step, in its order."""

Targets: TypeAlias = Sequence[AnyArray | None]
"""For every output of a step, memory to write it to, or None."""

RunOptions: TypeAlias = onnxruntime.RunOptions
"""The caller's options of a run."""


class LoadedStep(Protocol):
    """A step that is ready to run."""

    def run(self, values: Values, run_options: RunOptions | None, targets: Targets | None = None) -> Sequence[Any]:
        """The outputs of the step, in its order; a step may ignore `targets`."""


STOPPED = "the run was stopped, because RunOptions.terminate is True. Set it to False to run again."


@dataclass(frozen=True)
class LoadedPlan:
    """A plan with its steps, ready to run.

    Attributes:
        plan: which backend runs which node, those of bodies included.
        steps: in the order of the plan.
        refused: by name of each node that neither onnxruntime nor unpool runs, the reason.
        types: the types of values, completed by what onnxruntime inferred.
    """

    plan: Plan
    steps: tuple[LoadedStep, ...]
    refused: Mapping[str, str]
    types: Types


class Partition(ABC):
    """A part of the graph that one runtime runs.

    Args:
        where: the name of the partition in errors.
    """

    stops_itself: ClassVar[bool] = False
    """True if the runtime itself obeys `RunOptions.terminate`."""

    def __init__(self, where: str) -> None:
        self._where = where

    def run(self, values: Values, run_options: RunOptions | None, targets: Targets | None = None) -> list[Any]:
        """The outputs of the partition, in its order.

        Raises:
            UnpoolError: the runtime cannot run the partition on these values, or the run was cancelled before.
        """
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
    def _run_error(self, error: Exception) -> UnpoolError:
        """The error of a run, from that of the runtime."""


def check_cancelled(run_options: RunOptions) -> None:
    """Raise if the caller cancelled the run, which any thread can do.

    Raises:
        UnpoolError: `RunOptions.terminate` is set; also onnxruntime's Fail.
    """
    if run_options.terminate:
        raise error_class(UnpoolError, "Fail")(f"run: {STOPPED}")


def require_run_options(run_options: Any) -> None:
    """Refuse options of another type.

    Raises:
        UnpoolError: neither None nor RunOptions; also a TypeError.
    """
    if not isinstance(run_options, onnxruntime.RunOptions | None):
        raise error_class(UnpoolError, TypeError)(
            f"run: expected run_options to be onnxruntime.RunOptions or None, got {type(run_options).__name__}. "
            "Make RunOptions and set its attributes."
        )
