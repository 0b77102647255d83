"""The accuracy of every step: against float64, and against onnxruntime, on the values that the step read in the run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from unpool.dtypes import AnyArray
from unpool.execute import available_cores
from unpool.geometry import Axis, upsampled_size
from unpool.numerics import ROUNDING_LIMITS, ArrayDiff, diff_rounded, sum_diffs
from unpool.operators import max_pool, resolve
from unpool.operators.attributes import ACTIVATION_PARAMS
from unpool.runtime.backends.build import FUSED_UNPOOL
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.narrow_floats import HALVES, narrowest_floats, widen
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import PreparedGraph, infer
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import with_data_inside
from unpool.runtime.measure.bench import ort_session
from unpool.runtime.onnx_reference import new_ops
from unpool.runtime.passes.fuse_conv_transpose import FIRST_CLIP_WITH_INPUTS
from unpool.runtime.plan.plan import Step, cut
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.executor import StepTrace

_ACTIVATION_INPUT = "/before the activation"  # suffix of the value between a node and a fused activation

FLOATS = (TensorProto.FLOAT, *HALVES)
FLOAT_DTYPES = tuple(helper.tensor_dtype_to_np_dtype(kind) for kind in FLOATS)


@dataclass(frozen=True)
class StepAccuracy:
    """The accuracy of one step on the values that it read: its difference from the same step in float64, whose results
    are rounded to the step's type, and in onnxruntime.

    Both are None, with the message, where an evaluation fails, and `onnxruntime` is for a step of onnxruntime itself.
    `node` is the name of the node, or the first and the last one of a partition.
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
        self._types, self._threads = types, threads or available_cores()

    def check(self, trace: StepTrace) -> StepAccuracy:
        """The accuracy of a step that has run."""
        step = trace.entry.step
        model = _step_model(self._graph, step, self._types)
        is_fused = any(name in self._graph.origins for name in step.outputs)
        semantics = FUSED_UNPOOL if is_fused else self._semantics
        graph = Graph.from_model(model)
        narrowest = narrowest_floats(graph, infer(graph, semantics))
        exact = _diff(trace, narrowest, lambda: evaluate(model, trace.inputs, semantics))
        if step.runner == "onnxruntime":
            return StepAccuracy(trace.entry.name, step.runner, *exact)

        def run_onnxruntime() -> list[Any]:
            session = ort_session(model.SerializeToString(), onnxruntime.SessionOptions(), self._threads)
            return list(session.run(None, dict(trace.inputs)))

        return StepAccuracy(trace.entry.name, step.runner, *exact, *_diff(trace, narrowest, run_onnxruntime))


def _step_model(graph: Graph, step: Step, types: Types) -> onnx.ModelProto:
    """A step as a model of its own, with all its tensors; an activation that was fused into it is a node again."""
    model = cut(graph, step, types, with_data_inside)
    for node in list(model.graph.node):
        activation = graph.activations.get(node.output[0]) if node.output else None
        if activation is None:
            continue
        name = node.output[0]
        node.output[0] = name + _ACTIVATION_INPUT
        attributes: dict[str, Any] = dict(zip(ACTIVATION_PARAMS[activation.name], activation.params, strict=True))
        inputs = [node.output[0]]
        if activation.name == "Clip" and graph.opsets[""] >= FIRST_CLIP_WITH_INPUTS:
            for word in list(attributes):
                bound = np.array(attributes.pop(word), np.float32)
                inputs.append(f"{name}/{word}")
                model.graph.initializer.append(numpy_helper.from_array(bound, inputs[-1]))
        model.graph.node.append(helper.make_node(activation.name, inputs, [name], **attributes))
    return model


def _diff(
    trace: StepTrace, narrowest: Mapping[str, str], evaluation: Callable[[], Sequence[Any]]
) -> tuple[ArrayDiff | None, str]:
    """The difference of a step from another evaluation, or None and the reason why there is none.

    Its elements are rounded to the narrowest float type on the way to them.
    """
    try:
        expected = evaluation()
    except Exception as error:  # a failure of the evaluation is part of the report
        return None, ort_message(error)
    diffs = []
    for (name, actual), exact in zip(trace.outputs.items(), expected, strict=True):
        if isinstance(actual, np.ndarray) and actual.dtype != object:
            is_float = actual.dtype.name in ROUNDING_LIMITS
            diffs.append(diff_rounded(exact, actual, np.dtype(narrowest[name]) if is_float else None))
    return (sum_diffs(diffs), "") if diffs else (None, "it makes no numbers")


def evaluate(model: onnx.ModelProto, feed: Mapping[str, Any], semantics: Semantics) -> list[Any]:
    """The outputs of a model with all floats widened to float64; it has no functions and all tensors inside."""
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), 0)
    operators = new_ops(opset, compat=semantics.compat, index_space=semantics.index_space)
    evaluator = ReferenceEvaluator(widen(model, FLOATS, TensorProto.DOUBLE), new_ops=[*operators, Conv])
    inputs = dict(feed)
    for name, value in feed.items():
        if isinstance(value, np.ndarray) and value.dtype in FLOAT_DTYPES:
            inputs[name] = value.astype(np.float64)
    with np.errstate(all="ignore"):
        return list(evaluator.run(None, inputs))


class Conv(OpRun):
    """Conv as one product of matrices per tap, added in the order of the taps; the evaluator's own takes minutes."""

    op_domain = ""

    def _run(self, x: AnyArray, w: AnyArray, b: AnyArray | None = None, **attributes: Any) -> tuple[AnyArray]:
        options = {name: attributes.get(name) for name in ("strides", "dilations", "auto_pad")}
        if options["auto_pad"] in (None, "NOTSET"):
            options["pads"] = attributes.get("pads")
        spec = cast(max_pool.MaxPoolSpec, resolve.spec("MaxPool", {**options, "kernel_shape": w.shape[2:]}))
        axes = max_pool.call(spec, x.shape).axes
        covered = [upsampled_size(axis.small, axis.window, padding=axis.begin) for axis in axes]
        ends = [max(0, size - axis.large) for size, axis in zip(covered, axes, strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *zip((axis.begin for axis in axes), ends, strict=True)])
        count = attributes.get("group") or 1
        groups = zip(np.split(padded, count, axis=1), np.split(w, count), strict=True)
        y = np.concatenate([_convolve(part, weights, axes) for part, weights in groups], axis=1)
        return (y if b is None else y + b.reshape(-1, *[1] * len(axes)),)


def _convolve(x: AnyArray, w: AnyArray, axes: Sequence[Axis]) -> AnyArray:
    """One group: (N, C, padded) and (M, C, taps) to (N, M, small)."""
    y = np.zeros((x.shape[0], w.shape[0], *(axis.small for axis in axes)))
    taps = w.reshape(*w.shape[:2], -1)
    for number, tap in enumerate(product(*(range(axis.window.size) for axis in axes))):
        slices = []
        for place, axis in zip(tap, axes, strict=True):
            start, stride = place * axis.window.dilation, axis.window.stride
            slices.append(slice(start, start + (axis.small - 1) * stride + 1, stride))
        part = x[:, :, *slices]
        y += (taps[:, :, number] @ part.reshape(*part.shape[:2], -1)).reshape(y.shape)
    return y
