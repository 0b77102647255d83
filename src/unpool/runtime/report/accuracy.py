"""How exact every step is: held against float64, and against onnxruntime, on the values that the step really read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from unpool.execute import available_cores
from unpool.runtime.backends.build import FUSED_UNPOOL
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.graph.shapes import Types
from unpool.runtime.measure.bench import distance, ort_session
from unpool.runtime.report.alone import alone
from unpool.runtime.report.double import evaluate
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.executor import StepTrace
from unpool.runtime.session.inspect import PreparedGraph


@dataclass(frozen=True)
class Distance:
    """How far a step is from another evaluation of it.

    Attributes:
        largest: difference, over the largest value of the other evaluation; infinite where NaNs or shapes differ.
        differing: elements that are not what the other evaluation gives, rounded to the type of the step.
        elements: of all outputs.
        refusal: why there is no such evaluation; everything else is 0 then.
    """

    largest: float = 0.0
    differing: int = 0
    elements: int = 0
    refusal: str = ""


@dataclass(frozen=True)
class StepAccuracy:
    """How exact one step is, on the values that it read: errors of the steps before it do not count.

    Attributes:
        node: its name, or the first and the last one of a partition.
        runner: who runs it.
        exact: against the same step in float64.
        onnxruntime: against the same step in onnxruntime; None for a step that onnxruntime itself runs.
    """

    node: str
    runner: str
    exact: Distance
    onnxruntime: Distance | None


class Judge:
    """Holds steps against other evaluations."""

    def __init__(self, prepared: PreparedGraph, types: Types, threads: int | None) -> None:
        self._graph, _, self._semantics = prepared
        self._types = types
        self._threads = threads or available_cores()

    def accuracy(self, ran: StepTrace) -> StepAccuracy:
        """The accuracy of a step that has run."""
        step = ran.entry.step
        partition = alone(self._graph, step, self._types)
        is_raised = any(name in self._graph.raised for name in step.outputs)
        semantics = FUSED_UNPOOL if is_raised else self._semantics
        exact = _held(ran, lambda: evaluate(partition, ran.inputs, semantics))
        theirs = (
            None if step.runner == "onnxruntime" else _held(ran, lambda: self._in_onnxruntime(partition, ran.inputs))
        )
        return StepAccuracy(ran.entry.name, step.runner, exact, theirs)

    def _in_onnxruntime(self, partition: onnx.ModelProto, feed: Mapping[str, Any]) -> list[Any]:
        session = ort_session(partition.SerializeToString(), onnxruntime.SessionOptions(), self._threads)
        return list(session.run(None, dict(feed)))


def _held(ran: StepTrace, other: Callable[[], Sequence[Any]]) -> Distance:
    """The distance of a step from another evaluation, or the reason why there is none."""
    try:
        expected = other()
    except Exception as error:  # an evaluation that is impossible ends no report
        return Distance(refusal=ort_message(error))
    pairs = [(one, got) for one, got in zip(expected, ran.outputs.values(), strict=True) if _is_numbers(got)]
    if not pairs:
        return Distance(refusal="it makes no numbers")
    return Distance(
        max(distance(one.astype(np.float64), got.astype(np.float64)) for one, got in pairs),
        sum(_differing(one, got) for one, got in pairs),
        sum(got.size for _, got in pairs),
    )


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype != object


def _differing(expected: Any, got: Any) -> int:
    if expected.shape != got.shape:
        return int(got.size)
    with np.errstate(all="ignore"):
        rounded = expected.astype(got.dtype)
    both_nan = (rounded != rounded) & (got != got)
    return int(np.count_nonzero((rounded != got) & ~both_nan))
