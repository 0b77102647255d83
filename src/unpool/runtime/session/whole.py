"""A model without any operator of ours: one session of onnxruntime runs it as it is."""

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from unpool.errors import UnpoolError
from unpool.operators.contract import OPERATORS
from unpool.runtime.errors import also
from unpool.runtime.graph import skim
from unpool.runtime.graph.boundary import reading
from unpool.runtime.graph.constants import lift_constants, prune
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.node_order import in_order
from unpool.runtime.graph.record import graph_of
from unpool.runtime.plan.plan import Plan, make_plan
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_piece import short
from unpool.runtime.runners.ort_values import KINDS, NUMPY_LACKS
from unpool.runtime.runners.stopping import require_run_options
from unpool.runtime.session.metadata import ModelMetadata
from unpool.runtime.session.signature import Signature
from unpool.runtime.session.told import Told

NAMES = (*(name.encode() for name in OPERATORS), b"ScatterND")
"""Operators of ours, and the one that torch's exporter writes for an unpooling."""

TURNED = b"Conv"
"""The operator that is turned into one of ours where that is faster."""

OLDEST_OPSET = 7
"""Onnxruntime promises nothing of models before it."""

NOBODY: Mapping[str, str] = MappingProxyType({})


class WholeModel:
    """A model that a session of onnxruntime runs on a device; `source` is where it came from."""

    refused = NOBODY

    def __init__(self, session: onnxruntime.InferenceSession, source: ModelSource, device: str) -> None:
        self.session = session
        self.pieces = [session]
        self._source, self._device = source, device
        self._call = session.run
        ends = (*session.get_inputs(), *session.get_overridable_initializers())
        self._kinds = {one.name: KINDS.get(one.type) for one in ends}

    @cached_property
    def signature(self) -> Signature:
        """Its inputs and outputs."""
        made = Signature.of_session(self.session)
        made.owner = self.session._sess
        return made

    @cached_property
    def metadata(self) -> ModelMetadata:
        """What it says of itself."""
        meta = self.session.get_modelmeta()
        return ModelMetadata(
            meta.producer_name,
            meta.graph_name,
            meta.domain,
            meta.description,
            meta.graph_description,
            meta.version,
            dict(meta.custom_metadata_map),
        )

    @cached_property
    def plan(self) -> Plan:
        """The plan of a single step; the model is read once more for it, without its weights."""
        with reading(self._source):
            graph = prune(lift_constants(graph_of(in_order(_parsed(self._source)))))
            return make_plan(graph, {}, {}, exact=False, refused={}, device=self._device)

    def run(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        run_options: onnxruntime.RunOptions | None = None,
        profile: object = None,  # noqa: ARG002  onnxruntime writes its own
    ) -> list[Any]:
        """The outputs; arrays of the right type go to onnxruntime at once, others are looked at first."""
        try:
            kinds = self._kinds
            for name, value in feed.items():
                if value.__class__ is not np.ndarray or value.dtype is not kinds[name]:
                    feed = self._accepted(feed)
                    break
            return self._call(output_names, feed, run_options)  # type: ignore[no-any-return]
        except UnpoolError:
            raise
        except Exception as error:
            found = self.explained(error, output_names, feed, run_options)
            raise found from found.__cause__

    def explained(
        self,
        error: Exception,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        run_options: onnxruntime.RunOptions | None,
    ) -> UnpoolError:
        """What is to blame for an error of onnxruntime, in our words; it has that error as its cause."""
        try:
            require_run_options(run_options)
            self.signature.choose(output_names)
            self.signature.bind(feed)
        except UnpoolError as ours:
            return ours
        words = f"onnxruntime cannot run the model on these inputs: {short(error)}. Change the inputs or the model."
        found = also(UnpoolError, type(error))(words)
        found.__cause__ = error
        return found

    def _accepted(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """What onnxruntime is fed in place of other arrays, and of values that are none."""
        bound = self.signature.bind(feed)
        return {name: bound[name] for name in feed}


def whole_model(told: Told) -> WholeModel | None:
    """The model as one session of onnxruntime; None where unpool may have a part in it, or onnxruntime refuses it.

    What is told to the session goes to onnxruntime as it is.
    """
    source = told.source
    providers = told.all_providers
    if told.threads is not None or providers.openvino is not None:
        return None
    if not _is_plain(source, TURNED if told.turns else None):
        return None
    words: dict[str, Any] = {} if told.reads_config is None else {"read_config_from_model": told.reads_config}
    if told.disabled_optimizers:
        words["disabled_optimizers"] = set(told.disabled_optimizers)
    names, options = (None, None) if told.providers is None else map(list, (providers.names, providers.options))
    try:
        session = onnxruntime.InferenceSession(source, told.options, names, options, enable_fallback=0, **words)
    except Exception:
        return None
    fed, made = (*session.get_inputs(), *session.get_overridable_initializers()), session.get_outputs()
    if not {one.name for one in fed}.isdisjoint(one.name for one in made):
        return None  # older releases hand the memory of such an input out again
    if not all(_is_known(one.type) for one in (*fed, *made)):
        return None
    return WholeModel(session, source, providers.device)


def _is_plain(source: ModelSource, turned: bytes | None) -> bool:
    """Whether the model surely has no part for unpool; reading errors are left to whoever loads it.

    A model with functions is none: onnxruntime writes them out without a limit, however often they double.
    """
    names = NAMES if turned is None else (*NAMES, turned)
    try:
        with _content(source) as content:
            opset, has_functions = skim.head(content)
            return opset >= OLDEST_OPSET and not has_functions and not skim.mentions(content, names)
    except (OSError, ValueError, TypeError):
        return False


@contextmanager
def _content(source: ModelSource) -> Iterator[skim.Content]:
    if not isinstance(source, (str, os.PathLike)):
        yield source if isinstance(source, bytes) else bytes(source)
        return
    suffix = os.path.splitext(source)[1]
    if (onnx.serialization.registry.get_format_from_file_extension(suffix) or "protobuf") != "protobuf":
        raise ValueError(f"no bytes of a model: {suffix}")
    with open(source, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size <= skim.SMALL:
            yield file.readall()
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content


@cache
def _is_known(type_name: str) -> bool:
    """Whether NumPy has the elements: of a tensor, or of the tensors in a sequence, a map or an optional."""
    element = f"tensor({type_name.rpartition('(')[2].rstrip(')')})"
    has_elements = element == "tensor(string)" or (element in KINDS and element not in NUMPY_LACKS)
    return has_elements and not type_name.startswith("sparse_tensor")


def _parsed(source: ModelSource) -> onnx.ModelProto:
    if isinstance(source, (str, os.PathLike)):
        return onnx.load(source, load_external_data=False)
    return onnx.load_from_string(bytes(source))
