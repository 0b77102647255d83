"""The runtimes in which tools run models: unpool, onnxruntime, onnx's ReferenceEvaluator and OpenVINO.

A runtime is one record in `RUNTIMES`, which all tools read.
"""

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, TypeAlias

import onnx
from onnx.reference import ReferenceEvaluator

from unpool.errors import UnpoolError
from unpool.graph.load import ModelSource
from unpool.graph.weights import initializers_as_inputs, serialize
from unpool.onnxruntime.errors import FallbackWarning, ort_message, run_session
from unpool.onnxruntime.ort_values import NUMPY_LACKS, from_ort_value, to_ort_value
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.session import InferenceSession
from unpool.onnxruntime.silence import quiet_options, quiet_session
from unpool.openvino.package import package
from unpool.operators.semantics import Semantics

OPENVINO = {"INFERENCE_PRECISION_HINT": "f32"}  # by default it takes bfloat16 on CPUs that have it

Feed: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Callable[[Feed], list[Any]]


@dataclass(frozen=True)
class Runtime:
    """A runtime; `open` gives the function that runs a model, and both raise whatever the runtime raises."""

    word: str  # its name in options
    package: str  # that it needs
    title: str  # in which "{}" stands for the version
    version: Callable[[], str]
    open: Callable[[onnx.ModelProto], Run]
    is_reference: bool = False  # it is written to be read, not to be fast
    changes: frozenset[str] = frozenset()  # element types for which it computes in another one

    @property
    def is_installed(self) -> bool:
        """True if its package is installed."""
        return find_spec(self.package) is not None

    @property
    def name(self) -> str:
        """Its name with its version."""
        return self.title.format(self.version())


def unpool_runtime(semantics: Semantics) -> Runtime:
    """A session of unpool."""
    return Runtime(
        "unpool", "unpool", "unpool {}", partial(version, "unpool"),
        lambda model: session_run(unpool_session(model, semantics)),
    )  # fmt: skip


def open_session(
    source: ModelSource, options: onnxruntime.SessionOptions | None = None, **arguments: Any
) -> InferenceSession:
    """A session of unpool, without the warning about nodes that onnxruntime refuses: the plan tells them.

    Raises:
        UnpoolError: it cannot be loaded.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        return InferenceSession(source, options, **arguments)


def unpool_session(model: onnx.ModelProto, semantics: Semantics, disabled: Collection[str] = ()) -> InferenceSession:
    """A session of unpool without some passes, which logs nothing but what ends it."""
    compat, index_space, exact = semantics.compat, semantics.index_space, semantics.exact
    return open_session(
        model, quiet_options(), compat=compat, index_space=index_space, exact=exact, disabled_optimizers=disabled
    )


def session_run(session: onnxruntime.InferenceSession) -> Run:
    """The function that runs a session on arrays, also of types that NumPy lacks; it raises an UnpoolError."""
    needs_ort_values = any(value.type in NUMPY_LACKS for value in (*session.get_inputs(), *session.get_outputs()))

    def run_values(feed: Feed) -> list[Any]:
        values = {name: to_ort_value(array) for name, array in feed.items()}
        try:
            return [from_ort_value(value) for value in session.run_with_ort_values(None, values)]
        except Exception as error:
            raise UnpoolError(f"{ort_message(error)}.") from error

    return run_values if needs_ort_values else partial(run_session, session, None)


def _in_onnxruntime(model: onnx.ModelProto) -> Run:
    bare, weights = initializers_as_inputs(model)
    run = session_run(quiet_session(serialize(bare, "the model")))
    return lambda feed: run({**feed, **weights})


def _in_reference(model: onnx.ModelProto) -> Run:
    bare, weights = initializers_as_inputs(model)
    evaluator = ReferenceEvaluator(bare)
    return lambda feed: list(evaluator.run(None, {**feed, **weights}))


@cache
def _core() -> Any:
    """The one Core of this process."""
    return package().Core()


def _in_openvino(model: onnx.ModelProto) -> Run:
    """Compiled for the shapes of each feed: with dynamic shapes, OpenVINO 2026.4.1 may use those of the run before."""
    bare, weights = initializers_as_inputs(model)
    content = serialize(bare, "the model")

    @cache
    def compile_for(sizes: frozenset[tuple[str, tuple[int, ...]]]) -> Any:
        fixed = _core().read_model(content)
        names = {name for value in fixed.inputs for name in value.names}
        fixed.reshape({name: list(shape) for name, shape in sizes if name in names})
        return _core().compile_model(fixed, "CPU", OPENVINO).create_infer_request()

    def run(feed: Feed) -> list[Any]:
        fed = {**feed, **weights}
        request = compile_for(frozenset((name, array.shape) for name, array in fed.items()))
        names = {name for value in request.model_inputs for name in value.names}
        outputs = request.infer({name: array for name, array in fed.items() if name in names})
        return [outputs[position].copy() for position in range(len(request.model_outputs))]

    return run


ONNXRUNTIME = Runtime(
    "onnxruntime", "onnxruntime", "onnxruntime {}", lambda: str(onnxruntime.__version__), _in_onnxruntime
)
RUNTIMES = (
    ONNXRUNTIME,
    Runtime("reference", "onnx", "onnx {} reference", lambda: onnx.__version__, _in_reference, is_reference=True),
    Runtime(
        "openvino", "openvino", "OpenVINO {}", lambda: str(package().__version__).partition("-")[0], _in_openvino,
        changes=frozenset({"bfloat16", "float64"}),
    ),
)  # fmt: skip
"""All but unpool, whether they are installed or not."""


def runtimes() -> list[Runtime]:
    """The installed runtimes of `RUNTIMES`."""
    return [runtime for runtime in RUNTIMES if runtime.is_installed]
