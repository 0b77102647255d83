"""OrtModel: a model without any of unpool's operators, which one session of onnxruntime runs unchanged."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from unpool.errors import UnpoolError
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.backends.ort_values import KINDS, NUMPY_LACKS
from unpool.runtime.backends.step import RunOptions, require_run_options
from unpool.runtime.errors import error_class
from unpool.runtime.graph import peek
from unpool.runtime.graph.errors import model_errors
from unpool.runtime.graph.graph import Graph, lift_constants, prune
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.nodes import sort_nodes
from unpool.runtime.passes.profitability import leave_conv_transpose
from unpool.runtime.passes.reduce_strength import REPLACED, may_be_replaced
from unpool.runtime.plan.plan import Plan, make_plan
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.load import SessionConfig
from unpool.runtime.session.signature import ModelMetadata, Signature

MAX_UNPOOL, CONV_TRANSPOSE = b"MaxUnpool", b"ConvTranspose"
PLANNED = (b"MaxPool", b"ScatterND", CONV_TRANSPOSE)
"""The operators that unpool runs in some models: torch's exporter writes a ScatterND for an unpooling."""

CONV = b"Conv"
SLOW = tuple(name.encode() for name in REPLACED)
"""The operators that a pass may replace by faster ones."""

OLDEST_OPSET = 7  # the first opset that onnxruntime guarantees


class OrtModel:
    """A model that a session of onnxruntime runs on a device, named as in the plan."""

    refused: Mapping[str, str] = MappingProxyType({})
    profile = None  # onnxruntime writes its own

    def __init__(self, session: onnxruntime.InferenceSession, source: ModelSource, device: str) -> None:
        self.session, self.ort_sessions = session, [session]
        self._source, self._device = source, device
        self._call = session.run
        inputs = (*session.get_inputs(), *session.get_overridable_initializers())
        self._kinds = {info.name: KINDS.get(info.type) for info in inputs}

    @cached_property
    def signature(self) -> Signature:
        """The inputs and outputs."""
        signature = Signature.of_session(self.session)
        signature.owner = self.session._sess
        return signature

    @cached_property
    def metadata(self) -> ModelMetadata:
        """The metadata of the model."""
        return ModelMetadata.of_session(self.session)

    @cached_property
    def plan(self) -> Plan:
        """The plan of a single step; the model is read once more for it, without its weights."""
        with model_errors(self._source):
            source = self._source
            if isinstance(source, (str, os.PathLike)):
                model = onnx.load(source, load_external_data=False)
            else:
                model = onnx.load_from_string(bytes(source))
            graph = leave_conv_transpose(prune(lift_constants(Graph.from_model(sort_nodes(model)))))
            return make_plan(graph, {}, {}, exact=False, refused={}, device=self._device)

    def run(
        self, output_names: Sequence[str] | None, feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs; only inputs that are no arrays of the right type are checked before the run."""
        try:
            kinds = self._kinds
            for name, value in feed.items():
                if value.__class__ is not np.ndarray or value.dtype is not kinds[name]:
                    inputs = self.signature.bind(feed)
                    feed = {name: inputs[name] for name in feed}
                    break
            return self._call(output_names, feed, run_options)  # type: ignore[no-any-return]
        except UnpoolError:
            raise
        except Exception as error:
            own = self.to_own_error(error, output_names, feed, run_options)
            raise own from own.__cause__

    def to_own_error(self, error: Exception, output_names: Any, feed: Any, run_options: Any) -> UnpoolError:
        """An UnpoolError for an error of onnxruntime, which is its cause; it names a wrong argument if there is one."""
        try:
            require_run_options(run_options)
            self.signature.choose(output_names)
            self.signature.bind(feed)
        except UnpoolError as ours:
            return ours
        own = error_class(UnpoolError, type(error))(
            f"onnxruntime cannot run the model on these inputs: {ort_message(error)}. Change the inputs or the model."
        )
        own.__cause__ = error
        return own


class Passthrough(Enum):
    """The decision to give onnxruntime the whole model."""

    YES = "unpool has no operator in it"
    IF_PLANNED = "if the plan gives unpool no node, and no pass replaces one"
    NO = "unpool may have an operator in it"


def passthrough_of(config: SessionConfig) -> Passthrough:
    """The decision for a model, from its bytes alone.

    A model with functions may have operators of unpool: onnxruntime inlines functions without a limit, however often
    they double.
    """
    if (config.threads is not None and config.options is not None) or config.all_providers.openvino is not None:
        return Passthrough.NO
    try:
        with _content(config.source) as content:
            opset, has_functions = peek.read_header(content)
            if opset < OLDEST_OPSET or has_functions:
                return Passthrough.NO
            always = {MAX_UNPOOL} if config.converts_conv else {MAX_UNPOOL, CONV_TRANSPOSE}
            planned = {*PLANNED, CONV} if config.converts_conv else {*PLANNED}
            slow = SLOW if config.converts_conv else ()
            mentioned = peek.mentioned_ops(content, {*always, *planned, *slow})
            if mentioned & always:
                return Passthrough.NO
            is_planned = bool(mentioned & planned)
            if not is_planned and not mentioned.isdisjoint(slow):
                is_planned = any(map(may_be_replaced, peek.nodes_with(content, SLOW)))
            return Passthrough.IF_PLANNED if is_planned else Passthrough.YES
    except (OSError, ValueError, TypeError):
        return Passthrough.NO


def whole_key(config: SessionConfig) -> str | None:
    """The key of a stored result, that the plan of a model gives onnxruntime all of it.

    A plan does not depend on the floats of large weights. None for a source that is no file, and a model with data in
    other files.
    """
    if not isinstance(config.source, (str, os.PathLike)):
        return None
    try:
        with _content(config.source) as content:
            digest = peek.digest_without_weights(content)
    except (OSError, ValueError):
        return None
    arguments = replace(config, source=b"", tuning=0.0)
    return repr(("whole", digest, arguments, onnx.__version__, onnxruntime.__version__)) if digest else None


def open_whole(config: SessionConfig) -> OrtModel | None:
    """The model as one session of onnxruntime; None where that refuses it, or unpool has to take its inputs."""
    source, providers = config.source, config.all_providers
    if isinstance(source, (bytearray, memoryview)):
        source = bytes(source)
    keywords: dict[str, Any] = {} if config.reads_config is None else {"read_config_from_model": config.reads_config}
    if config.disabled_optimizers:
        keywords["disabled_optimizers"] = set(config.disabled_optimizers)
    names, options = (None, None) if config.providers is None else map(list, (providers.names, providers.options))
    session_options = config.options
    if session_options is None and config.threads is not None:
        session_options = onnxruntime.SessionOptions()
        session_options.intra_op_num_threads = config.threads
    try:
        session = onnxruntime.InferenceSession(source, session_options, names, options, enable_fallback=0, **keywords)
    except Exception:
        return None
    inputs, outputs = (*session.get_inputs(), *session.get_overridable_initializers()), session.get_outputs()
    if not {info.name for info in inputs}.isdisjoint(info.name for info in outputs):
        return None  # older releases use the memory of such an input again
    if not all(_is_in_numpy(info.type) for info in (*inputs, *outputs)):
        return None
    return OrtModel(session, source, providers.device)


@contextmanager
def _content(source: ModelSource) -> Iterator[peek.Content]:
    if not isinstance(source, (str, os.PathLike)):
        yield source if isinstance(source, bytes) else bytes(source)
        return
    suffix = os.path.splitext(source)[1]
    if (onnx.serialization.registry.get_format_from_file_extension(suffix) or "protobuf") != "protobuf":
        raise ValueError(f"no bytes of a model: {suffix}")
    with open(source, "rb") as file:
        if os.fstat(file.fileno()).st_size <= peek.SMALL:
            yield file.read()
            return
        yield peek.FileContent(file)


@cache
def _is_in_numpy(type_name: str) -> bool:
    """True if NumPy has the type of a tensor, or of the tensors in a sequence, a map or an optional."""
    element = f"tensor({type_name.rpartition('(')[2].rstrip(')')})"
    has_elements = element == "tensor(string)" or (element in KINDS and element not in NUMPY_LACKS)
    return has_elements and not type_name.startswith("sparse_tensor")
