"""The accuracy of every node: against float64, and against onnxruntime, on the values that the node read in the run."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
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
from unpool.graph.narrow_floats import HALVES, widen
from unpool.graph.nodes import attributes
from unpool.numerics import ROUNDING_LIMITS, ArrayDiff, diff_rounded, sum_diffs
from unpool.onnx_reference import new_ops
from unpool.onnxruntime.errors import ort_message
from unpool.onnxruntime.silence import quiet_session
from unpool.operators import contract, max_pool, resolve
from unpool.operators.attributes import ACTIVATION_PARAMS
from unpool.operators.semantics import Semantics
from unpool.operators.unpool_domain import DOMAIN
from unpool.passes.rewrite import set_items
from unpool.runtime.runtimes import session_run
from unpool.runtime.trace import NodeTrace

_ACTIVATION_INPUT = "/before the activation"  # suffix of the value between a node and a fused activation

FLOATS = (TensorProto.FLOAT, *HALVES)
FLOAT_DTYPES = tuple(helper.tensor_dtype_to_np_dtype(kind) for kind in FLOATS)


@dataclass(frozen=True)
class NodeAccuracy:
    """The accuracy of one node on the values that it read: its difference from the same node in float64, whose results
    are rounded to the node's type, and in onnxruntime.

    Both are None, with the message, where an evaluation fails, and `onnxruntime` is for a node of onnxruntime itself.
    """

    node: str
    runner: str
    float64: ArrayDiff | None
    float64_failure: str = ""
    onnxruntime: ArrayDiff | None = None
    onnxruntime_failure: str = ""


def check_accuracy(trace: NodeTrace, semantics: Semantics, threads: int | None) -> NodeAccuracy:
    """The accuracy of a node that has run."""
    exact = _diff(trace, lambda: evaluate(trace.model, trace.inputs, semantics))
    if trace.runner == "onnxruntime":
        return NodeAccuracy(trace.name, trace.runner, *exact)

    def run_onnxruntime() -> list[Any]:
        content = _standard_model(trace.model).SerializeToString()
        session = quiet_session(content, threads=threads or available_cores())
        return session_run(session)(trace.inputs)

    return NodeAccuracy(trace.name, trace.runner, *exact, *_diff(trace, run_onnxruntime))


def _standard_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model of one node, as onnxruntime knows it: a fused activation is a node again."""
    own = model.graph.node[0]
    if own.domain != DOMAIN or own.op_type not in contract.OPERATORS:
        return model
    given, name = attributes(own), own.output[0]
    version = contract.version_at(own.op_type, "", given.pop("opset"))
    activation, params = given.pop("activation").decode(), given.pop("activation_params", ())
    standard = {word: value for word, value in given.items() if word in version.attributes}
    words = dict(zip(ACTIVATION_PARAMS[activation], params, strict=True))
    inputs = [name + _ACTIVATION_INPUT]
    copy = deepcopy(model)
    if activation == "Clip":
        bounds = {f"{name}/{word}": np.array(words.pop(word), np.float32) for word in list(words)}
        tensors = [numpy_helper.from_array(bound, word) for word, bound in bounds.items()]
        copy.graph.initializer.extend(tensors)
        inputs += [tensor.name for tensor in tensors]
    nodes = [
        helper.make_node(own.op_type, own.input, inputs[:1], **standard),
        helper.make_node(activation, inputs, [name], **words),
    ]
    set_items(copy.graph.node, nodes)
    return copy


def _diff(trace: NodeTrace, evaluation: Callable[[], Sequence[Any]]) -> tuple[ArrayDiff | None, str]:
    """The difference of a node from another evaluation, or None and the reason why there is none."""
    try:
        expected = evaluation()
    except Exception as error:  # a failure of the evaluation is part of the report
        return None, ort_message(error)
    diffs = []
    for actual, exact in zip(trace.outputs.values(), expected, strict=True):
        if isinstance(actual, np.ndarray) and actual.dtype != object:
            is_float = actual.dtype.name in ROUNDING_LIMITS
            diffs.append(diff_rounded(exact, actual, actual.dtype if is_float else None))
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
