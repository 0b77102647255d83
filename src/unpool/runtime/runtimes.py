"""The runtimes in which tools run models: unpool, onnxruntime, onnx's ReferenceEvaluator and OpenVINO.

A runtime is one record; another one is another record in `runtimes`, and nothing else.
"""

import ctypes
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from math import prod
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from unpool.errors import UnpoolError
from unpool.onnxruntime.session import InferenceSession
from unpool.openvino.package import is_installed, package
from unpool.runtime.errors import FallbackWarning, loading_error, ort_message, run_session
from unpool.runtime.graph.errors import is_from_signal_handler, source_name
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.weights import initializers_as_inputs, serialize
from unpool.runtime.requirements import onnxruntime

QUIET = 4  # onnxruntime's level for fatal errors only: what fails comes back as an exception
OPENVINO = {"INFERENCE_PRECISION_HINT": "f32"}  # by default it takes bfloat16 on CPUs that have it
NUMPY_LACKS = {
    f"tensor({name.replace('_', '')})": np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
"""Types of elements that sessions of onnxruntime take in OrtValues only, by its names for them."""

Feed: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Callable[[Feed], list[Any]]


@dataclass(frozen=True)
class Runtime:
    """A runtime; `open` gives the function that runs a model, and both raise whatever the runtime raises."""

    word: str  # its name in options
    name: str  # with its version
    open: Callable[[onnx.ModelProto], Run]
    is_reference: bool = False  # it is written to be read, not to be fast
    changes: frozenset[str] = frozenset()  # element types for which it computes in another one


def runtimes() -> Iterator[Runtime]:
    """The installed ones but for unpool, onnxruntime first."""
    yield ort_runtime()
    yield Runtime("reference", f"onnx {onnx.__version__} reference", _in_reference, is_reference=True)
    if is_installed():
        number = str(package().__version__).partition("-")[0]
        yield Runtime("openvino", f"OpenVINO {number}", _in_openvino, changes=frozenset({"bfloat16", "float64"}))


def ort_runtime() -> Runtime:
    """Onnxruntime alone."""
    return Runtime("onnxruntime", f"onnxruntime {onnxruntime.__version__}", _in_onnxruntime)


def unpool_runtime(semantics: Semantics) -> Runtime:
    """A session of unpool."""
    return Runtime("unpool", f"unpool {version('unpool')}", lambda model: session_run(unpool_session(model, semantics)))


def open_session(
    source: ModelSource, options: onnxruntime.SessionOptions | None = None, **arguments: Any
) -> InferenceSession:
    """A session of unpool, without the warning about nodes that onnxruntime refuses: the plan tells them.

    Raises:
        UnpoolError: it cannot be loaded.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            return InferenceSession(source, options, **arguments)
    except UnpoolError:
        raise
    except Exception as error:
        if is_from_signal_handler(error):
            raise
        load(source)  # says more about a file that is no model
        raise loading_error(error, source_name(source), None) from error


def unpool_session(model: onnx.ModelProto, semantics: Semantics, disabled: Collection[str] = ()) -> InferenceSession:
    """A session of unpool without some passes, which logs nothing but what ends it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    compat, index_space, exact = semantics.compat, semantics.index_space, semantics.exact
    return open_session(
        model, options, compat=compat, index_space=index_space, exact=exact, disabled_optimizers=disabled
    )


def ort_session(
    source: str | bytes, options: onnxruntime.SessionOptions | None = None, threads: int = 0
) -> onnxruntime.InferenceSession:
    """A session of onnxruntime on the CPU, which logs nothing but what ends it."""
    options = options or onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def session_run(session: onnxruntime.InferenceSession) -> Run:
    """The function that runs a session on arrays, also on those of types that NumPy lacks; it raises an UnpoolError."""
    needs_ort_values = any(value.type in NUMPY_LACKS for value in (*session.get_inputs(), *session.get_outputs()))

    def run_values(feed: Feed) -> list[Any]:
        values = {name: _to_ort_value(array) for name, array in feed.items()}
        try:
            return [_to_array(value) for value in session.run_with_ort_values(None, values)]
        except Exception as error:
            raise UnpoolError(f"{ort_message(error)}.") from error

    return run_values if needs_ort_values else partial(run_session, session, None)


def _to_ort_value(value: Any) -> onnxruntime.OrtValue:
    array = np.asarray(value, order="C")
    if array.dtype not in NUMPY_LACKS.values():
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    own = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, element)
    ctypes.memmove(own.data_ptr(), array.ctypes.data, array.nbytes)
    return own


def _to_array(value: onnxruntime.OrtValue) -> Any:
    kind = NUMPY_LACKS.get(value.data_type())
    if kind is None:
        return value.numpy()
    content = ctypes.string_at(value.data_ptr(), prod(value.shape()) * kind.itemsize)
    return np.frombuffer(bytearray(content), kind).reshape(value.shape())


def _in_onnxruntime(model: onnx.ModelProto) -> Run:
    bare, weights = initializers_as_inputs(model)
    run = session_run(ort_session(serialize(bare, "the model")))
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
    """Compiled for the shapes of each feed: where they are open, OpenVINO 2026.4.1 may take those of the run before."""
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
