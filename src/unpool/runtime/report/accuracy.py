"""The accuracy of every step: against float64, and against onnxruntime, on the values that the step read in the run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.execute import available_cores
from unpool.numerics import ArrayDiff, diff_rounded, sum_diffs
from unpool.operators.activation import PARAMETERS, Activation
from unpool.runtime.backends.build import FUSED_UNPOOL
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import with_data_inside
from unpool.runtime.measure.bench import ort_session
from unpool.runtime.passes.fuse_conv_transpose import FIRST_CLIP_WITH_INPUTS
from unpool.runtime.plan.partitions import cut
from unpool.runtime.plan.plan import Step
from unpool.runtime.report.float64_reference import evaluate
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.executor import StepTrace
from unpool.runtime.session.inspect import PreparedGraph

_ACTIVATION_INPUT = "/before the activation"
"""Suffix of the name of a value between a node and the activation that the step has fused into it."""


@dataclass(frozen=True)
class StepAccuracy:
    """The accuracy of one step on the values that it read, so errors of earlier steps do not count.

    Attributes:
        node: its name, or the first and the last one of a partition.
        runner: of the step.
        float64: difference from the same step in float64; `count` of the elements other than its results rounded to
            their type. None where the step cannot be evaluated.
        float64_failure: why it cannot be.
        onnxruntime: difference from the same step in onnxruntime; None for a step of onnxruntime, and where
            onnxruntime fails.
        onnxruntime_failure: its message.
    """

    node: str
    runner: str
    float64: ArrayDiff | None
    float64_failure: str = ""
    onnxruntime: ArrayDiff | None = None
    onnxruntime_failure: str = ""


class AccuracyChecker:
    """Compares steps with other evaluations of them."""

    def __init__(self, prepared: PreparedGraph, types: Types, threads: int | None) -> None:
        self._graph, _, self._semantics = prepared
        self._types = types
        self._threads = threads or available_cores()

    def check(self, trace: StepTrace) -> StepAccuracy:
        """The accuracy of a step that has run."""
        step = trace.entry.step
        model = step_model(self._graph, step, self._types)
        is_fused = any(name in self._graph.origins for name in step.outputs)
        semantics = FUSED_UNPOOL if is_fused else self._semantics
        exact = _diff(trace, lambda: evaluate(model, trace.inputs, semantics))
        if step.runner == "onnxruntime":
            return StepAccuracy(trace.entry.name, step.runner, *exact)
        return StepAccuracy(
            trace.entry.name, step.runner, *exact, *_diff(trace, lambda: self._run_onnxruntime(model, trace.inputs))
        )

    def _run_onnxruntime(self, model: onnx.ModelProto, feed: Mapping[str, Any]) -> list[Any]:
        session = ort_session(model.SerializeToString(), onnxruntime.SessionOptions(), self._threads)
        return list(session.run(None, dict(feed)))


def step_model(graph: Graph, step: Step, types: Types) -> onnx.ModelProto:
    """A step as a model of its own, with all its tensors; what was fused into the step is a node again.

    Args:
        graph: of the plan.
        step: of the plan.
        types: known types of the values.
    """
    model = cut(graph, step, types, with_data_inside)
    for node in list(model.graph.node):
        activation = graph.activations.get(node.output[0]) if node.output else None
        if activation is not None:
            _append_activation(model, node, activation, graph.opsets[""])
    return model


def _append_activation(model: onnx.ModelProto, node: onnx.NodeProto, activation: Activation, opset: int) -> None:
    name = node.output[0]
    node.output[0] = name + _ACTIVATION_INPUT
    attributes: dict[str, Any] = dict(zip(PARAMETERS[activation.name], activation.params, strict=True))
    inputs = [node.output[0]]
    if activation.name == "Clip" and opset >= FIRST_CLIP_WITH_INPUTS:
        bounds = {f"{name}/{word}": value for word, value in attributes.items()}
        model.graph.initializer.extend(
            numpy_helper.from_array(np.array(value, np.float32), bound) for bound, value in bounds.items()
        )
        inputs, attributes = [*inputs, *bounds], {}
    model.graph.node.append(helper.make_node(activation.name, inputs, [name], **attributes))


def _diff(trace: StepTrace, evaluation: Callable[[], Sequence[Any]]) -> tuple[ArrayDiff | None, str]:
    """The difference of a step from another evaluation, or None and the reason why there is none."""
    try:
        expected = evaluation()
    except Exception as error:  # a failure of the evaluation is part of the report
        return None, ort_message(error)
    pairs = zip(expected, trace.outputs.values(), strict=True)
    diffs = [
        diff_rounded(first, second)
        for first, second in pairs
        if isinstance(second, np.ndarray) and second.dtype != object
    ]
    return (sum_diffs(diffs), "") if diffs else (None, "it makes no numbers")
