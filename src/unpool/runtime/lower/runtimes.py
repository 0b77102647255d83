"""The runtimes in which models are checked and compared, as far as they are installed: whole models in, arrays out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx
from onnx.reference import ReferenceEvaluator

from unpool.dtypes import AnyArray
from unpool.runtime.backends import openvino_backend
from unpool.runtime.backends.ort_values import NUMPY_LACKS, from_ort_value, to_ort_value
from unpool.runtime.graph.weights import initializers_as_inputs, serialize
from unpool.runtime.requirements import onnxruntime

QUIET = 4  # onnxruntime's level for fatal errors only
OPENVINO = {"INFERENCE_PRECISION_HINT": "f32"}  # by default it takes bfloat16 on CPUs that have it
Feed: TypeAlias = Mapping[str, AnyArray]
Call: TypeAlias = Callable[[], list[Any]]


@dataclass(frozen=True)
class Runtime:
    """A runtime; `prepare` gives the call that runs a model, and both raise whatever the runtime raises."""

    word: str  # its name in options
    name: str  # with its version
    prepare: Callable[[onnx.ModelProto, Feed], Call]
    is_reference: bool = False  # it is written to be read, not to be fast
    changes: frozenset[str] = frozenset()  # element types for which it computes in another one


def runtimes() -> Iterator[Runtime]:
    """The installed ones, onnxruntime first."""
    yield Runtime("onnxruntime", f"onnxruntime {onnxruntime.__version__}", _in_onnxruntime)
    yield Runtime("reference", f"onnx {onnx.__version__} reference", _in_reference, is_reference=True)
    if openvino_backend.is_installed():
        version = str(openvino_backend.package().__version__).partition("-")[0]
        yield Runtime("openvino", f"OpenVINO {version}", _in_openvino, changes=frozenset({"bfloat16", "float64"}))


def _in_onnxruntime(model: onnx.ModelProto, feed: Feed) -> Call:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    bare, weights = initializers_as_inputs(model)
    content, feed = serialize(bare, "the model"), {**feed, **weights}
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    if not any(value.type in NUMPY_LACKS for value in (*session.get_inputs(), *session.get_outputs())):
        return lambda: list(session.run(None, dict(feed)))
    values = {name: to_ort_value(array) for name, array in feed.items()}
    return lambda: [from_ort_value(value) for value in session.run_with_ort_values(None, values)]


def _in_reference(model: onnx.ModelProto, feed: Feed) -> Call:
    bare, weights = initializers_as_inputs(model)
    evaluator = ReferenceEvaluator(bare)
    return lambda: list(evaluator.run(None, {**feed, **weights}))


def _in_openvino(model: onnx.ModelProto, feed: Feed) -> Call:
    """Compiled for the shapes of the feed: where they are open, OpenVINO 2026.4.1 may take those of the run before."""
    bare, weights = initializers_as_inputs(model)
    feed = {**feed, **weights}
    fixed = openvino_backend.core().read_model(serialize(bare, "the model"))
    names = {name for value in fixed.inputs for name in value.names}
    fed = {name: array for name, array in feed.items() if name in names}
    fixed.reshape({name: list(array.shape) for name, array in fed.items()})
    compiled = openvino_backend.core().compile_model(fixed, openvino_backend.DEVICE, OPENVINO)
    request = compiled.create_infer_request()

    def run() -> list[Any]:
        outputs = request.infer(fed)
        return [outputs[position].copy() for position in range(len(compiled.outputs))]

    return run
