"""A plan whose steps are loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from unpool.runtime.graph.shapes import Types
from unpool.runtime.plan.plan import Plan
from unpool.runtime.requirements import onnxruntime


class LoadedStep(Protocol):
    """A step that is ready to run."""

    def run(self, values: Sequence[Any], run_options: onnxruntime.RunOptions | None) -> Sequence[Any]:
        """The step's outputs from its inputs, both in its order."""


@dataclass(frozen=True)
class LoadedPlan:
    """A plan with its steps, ready to run.

    Attributes:
        plan: who runs which node, those of bodies included.
        steps: in the order of the plan.
        refused: by the label of each node that onnxruntime does not run, and unpool neither, the reason.
        types: what is known of the values, now that onnxruntime was asked too.
    """

    plan: Plan
    steps: tuple[LoadedStep, ...]
    refused: Mapping[str, str]
    types: Types
