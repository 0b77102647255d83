"""The runtimes in which a lowered model is checked, as far as they are installed: whole models in, arrays out.

OpenVINO is told to compute in float32: left alone, it takes bfloat16 on CPUs that have it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeAlias

import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from unpool.dtypes import AnyArray
from unpool.runtime.graph.serialized import serialize

QUIET = 4  # onnxruntime's level for fatal errors only
OPENVINO = {"INFERENCE_PRECISION_HINT": "f32"}
TELEMETRY = "openvino_telemetry"

Feed: TypeAlias = Mapping[str, AnyArray]
Call: TypeAlias = Callable[[], list[Any]]


@dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        name: and its version.
        prepare: takes a model and a feed, and gives the call that runs it; both raise whatever the runtime raises.
        is_reference: whether it is written to be read, not to be fast.
        changes: element types for which it computes in another one.
    """

    name: str
    prepare: Callable[[onnx.ModelProto, Feed], Call]
    is_reference: bool = False
    changes: frozenset[str] = frozenset()


def runtimes() -> Iterator[Runtime]:
    """Those that are installed, onnxruntime first."""
    yield Runtime(f"onnxruntime {onnxruntime.__version__}", _in_onnxruntime)
    yield Runtime(f"onnx {onnx.__version__} reference", _in_reference, is_reference=True)
    if find_spec("openvino") is not None:
        version = str(_openvino().__version__).partition("-")[0]
        yield Runtime(f"OpenVINO {version}", _in_openvino, changes=frozenset({"bfloat16", "float64"}))


def _in_onnxruntime(model: onnx.ModelProto, feed: Feed) -> Call:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    content = serialize(model, "the lowered model")
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, dict(feed)))


def _in_reference(model: onnx.ModelProto, feed: Feed) -> Call:
    evaluator = ReferenceEvaluator(model)
    return lambda: list(evaluator.run(None, dict(feed)))


def _in_openvino(model: onnx.ModelProto, feed: Feed) -> Call:
    """Compiled for the shapes of the feed: where they are open, OpenVINO 2026.4.1 may take those of the run before."""
    core = _core()
    fixed = core.read_model(serialize(model, "the lowered model"))
    fixed.reshape({name: list(array.shape) for name, array in feed.items()})
    compiled = core.compile_model(fixed, "CPU", OPENVINO)
    request = compiled.create_infer_request()

    def run() -> list[Any]:
        made = request.infer(dict(feed))
        return [made[place].copy() for place in range(len(compiled.outputs))]

    return run


@cache
def _core() -> Any:
    return _openvino().Core()


@cache
def _openvino() -> Any:
    """OpenVINO; it sends an event over the network when it is imported, unless the package that sends is missing."""
    is_first = "openvino" not in sys.modules and TELEMETRY not in sys.modules
    if is_first:
        sys.modules[TELEMETRY] = None  # type: ignore[assignment]
    try:
        import openvino
    finally:
        if is_first:
            del sys.modules[TELEMETRY]
    return openvino
