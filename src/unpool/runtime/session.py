"""InferenceSession: a whole ONNX model, its three operators by unpool and the rest by onnxruntime.

Constructor and methods are those of `onnxruntime.InferenceSession`; `plan` says which node runs where and why.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime import bound
from unpool.runtime.assemble import Settings, assemble
from unpool.runtime.bound import Meaning
from unpool.runtime.boundary import failed, reading
from unpool.runtime.check import check as check_model
from unpool.runtime.graph import Graph, dense, read
from unpool.runtime.inference import infer, stated_types
from unpool.runtime.load import Source, load
from unpool.runtime.ort_initializers import require_none
from unpool.runtime.ort_options import OURS, Provider, providers_of, session_options, thread_budget
from unpool.runtime.ort_values import to_ort_value
from unpool.runtime.passes.constants import lift, prune
from unpool.runtime.passes.domains import shorten
from unpool.runtime.passes.fold import fold
from unpool.runtime.passes.fuse import fuse
from unpool.runtime.passes.inline import inline
from unpool.runtime.passes.old_opsets import lift_opset
from unpool.runtime.passes.raising import raise_all
from unpool.runtime.passes.turn import turn
from unpool.runtime.plan import Plan
from unpool.runtime.profile import Profile
from unpool.runtime.schedule import Schedules
from unpool.runtime.shapes import Types
from unpool.runtime.signature import Signature, ValueInfo


class FallbackWarning(UserWarning):
    """onnxruntime refuses nodes of a model, so onnx's slow ReferenceEvaluator runs them."""


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class InferenceSession:
    """A model, planned and loaded once; `run` may be called from many threads.

    Args:
        path_or_bytes: path of a model, its bytes, or an `onnx.ModelProto`.
        sess_options: `onnxruntime.SessionOptions`; optimisation, memory, threads and profiling are honoured. At the
            highest level, the default, unpool also computes a Conv where it is faster.
        providers: names, or (name, options) pairs, for the pieces that onnxruntime runs; CPU by default.
        provider_options: one dict per provider.
        compat: "spec" follows the text of the standard, "ort" follows ONNX Runtime where the two differ.
        index_space: in which tensor MaxUnpool's indices count: "auto", "output" or "inferred".
        exact: whether unpool runs every MaxPool, those without Indices too, and every product of a ConvTranspose or
            Conv is formed as it is written: by default larger ones take fewer products, which are rounded differently.
        threads: at most so many for unpool and for onnxruntime; None for all cores that this process may use.

    Raises:
        MissingFileError: no such file.
        FileError: the file cannot be read.
        ModelError: not an ONNX model, or an invalid one.
        UnsupportedError: a node, attribute or type that no version here accepts.
        UnpoolError: an attribute or an argument breaks its contract.

    >>> import numpy as np
    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink_and_grow (float[1, 1, 4] x) => (float[1, 1, 4] z) {
    ...         y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
    ...         z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
    ...     }''')
    >>> session = InferenceSession(model)
    >>> session.run(None, {"x": np.float32([[[1, 3, 4, 2]]])})[0].tolist()
    [[[0.0, 3.0, 4.0, 0.0]]]
    >>> print(session.plan)
    step  node          operator      runs on  why
    ----  ------------  ------------  -------  --------------------------------------
    0     MaxPool->y    MaxPool-12    unpool   unpool runs every MaxPool with Indices
    1     MaxUnpool->z  MaxUnpool-11  unpool   unpool runs every MaxUnpool
    """

    _raises = True

    def __init__(
        self,
        path_or_bytes: Source,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
        *,
        compat: str = "spec",
        index_space: str = "auto",
        exact: bool = False,
        threads: int | None = None,
    ) -> None:
        _require_options(sess_options)
        meaning = Meaning(compat, index_space, exact)
        budget = thread_budget(sess_options, threads)
        self._providers = providers_of(providers, provider_options)
        self._options = sess_options or onnxruntime.SessionOptions()
        options, one_thread = session_options(sess_options, budget), session_options(sess_options, 1)
        settings = Settings(meaning, exact, budget, options, one_thread, self._providers)
        highest = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        turns = self._options.graph_optimization_level == highest and not exact
        with reading(path_or_bytes):
            model = load(path_or_bytes)
            self._metadata = _metadata(model)
            if sess_options is not None and model.graph.initializer:
                require_none(sess_options, [tensor.name for tensor in model.graph.initializer])
            graph, types = _prepare(model, meaning, raises=self._raises, turns=turns)
            self._signature = Signature(graph, types)
            program = assemble(graph, types, settings)
            self._fixed = _constant_outputs(graph)
        self._plan = program.plan
        self._schedules = Schedules(program)
        self._profile = Profile(self._options.profile_file_prefix) if self._options.enable_profiling else None
        if program.refused:
            warnings.warn(_fallback_text(program.refused), FallbackWarning, stacklevel=2)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: onnxruntime.RunOptions | None = None,
    ) -> list[Any]:
        """The outputs, as NumPy arrays of their own, in the order of their names.

        Args:
            output_names: which outputs; None or an empty list for all.
            input_feed: by input name, NumPy arrays or anything with `__dlpack__` on the CPU. Never changed.
            run_options: passed on to the pieces of onnxruntime.

        Raises:
            UnpoolError: an input is missing, unknown, or of another type or shape; an unknown output; or a node
                refuses its values, and the message names it.
        """
        wanted = self._signature.choose(output_names)
        values = self._signature.bind(input_feed)
        given = {*values, *self._fixed}
        values |= self._fixed
        for entry in self._schedules.of(wanted):
            begin = time.perf_counter_ns()
            try:
                made = entry.runner.run([values[name] for name in entry.step.inputs], run_options)
            except UnpoolError:
                raise
            except Exception as error:
                raise failed(entry.name, error) from error
            values.update(zip(entry.step.outputs, made, strict=True))
            for name in entry.last_uses:
                del values[name]
            if self._profile is not None:
                self._profile.add(entry.name, entry.step.runner, begin, time.perf_counter_ns())
        return [_copy(values[name]) if name in given else values[name] for name in wanted]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, onnxruntime.OrtValue],
        run_options: onnxruntime.RunOptions | None = None,
    ) -> list[onnxruntime.OrtValue]:
        """As `run`, from and to `onnxruntime.OrtValue` on the CPU.

        Raises:
            UnpoolError: as `run`; or an output is no tensor of numbers.
        """
        names = self._signature.choose(output_names)
        made = self.run(names, input_dict_ort_values, run_options)
        for name, value in zip(names, made, strict=True):
            if not isinstance(value, np.ndarray) or value.dtype == object:
                found = "tensor of strings" if isinstance(value, np.ndarray) else type(value).__name__
                raise UnsupportedError(
                    f"run_with_ort_values: expected outputs that are tensors of numbers, got {name!r}, a {found}. "
                    "Use run."
                )
        return [to_ort_value(value) for value in made]

    def io_binding(self) -> NoReturn:
        """Not offered: between the steps of a plan there is no one session to bind to.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "io_binding: expected run or run_with_ort_values, got a call of io_binding. "
            "Feed arrays to run; on the CPU they are not copied."
        )

    @property
    def plan(self) -> Plan:
        """Which node runs where and why; iterating gives records, `print` a table."""
        return self._plan

    def get_inputs(self) -> list[ValueInfo]:
        """Name, shape and type of every input that has to be fed."""
        return self._signature.inputs

    def get_outputs(self) -> list[ValueInfo]:
        """Name, shape and type of every output."""
        return self._signature.outputs

    def get_overridable_initializers(self) -> list[ValueInfo]:
        """Name, shape and type of every input that has a value of its own and may be fed."""
        return self._signature.optional_inputs

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return self._metadata

    def get_providers(self) -> list[str]:
        """Ours first, then those of the pieces."""
        return [OURS, *self._providers.names]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """Options by provider."""
        return {OURS: {}, **dict(zip(self._providers.names, self._providers.options, strict=True))}

    def get_session_options(self) -> onnxruntime.SessionOptions:
        """The options that the session was made with."""
        return self._options

    def end_profiling(self) -> str:
        """Name of the Chrome trace of all runs, one event per step; "" unless the options enable profiling."""
        return "" if self._profile is None else self._profile.write()


class AsWritten(InferenceSession):
    """A session that leaves a decomposed unpooling as it is, for comparing."""

    _raises = False


def _prepare(model: onnx.ModelProto, meaning: Meaning, *, raises: bool, turns: bool) -> tuple[Graph, Types]:
    """Check the model and bring it into the form that is planned, with what is known of its values."""
    model = shorten(model)
    imports = {one.domain: one.version for one in model.opset_import}
    bound.check(model.graph.node, imports, meaning)
    check_model(model)
    graph = lift(read(lift_opset(inline(model), meaning)))
    bound.check(graph.nodes, graph.opsets, meaning)
    types = infer(graph, meaning).types
    if raises:
        graph, types, _ = raise_all(graph, types, lambda one: infer(one, meaning).types)
    bound.check_types(graph, types, meaning)
    graph = prune(fuse(fold(turn(graph, types) if turns else graph), types))
    return graph, types | stated_types(graph)


def _require_options(options: object) -> None:
    if not isinstance(options, onnxruntime.SessionOptions | None):
        raise UnpoolError(
            f"InferenceSession: expected sess_options to be onnxruntime.SessionOptions or None, "
            f"got {type(options).__name__}. Other options go by keyword."
        )


def _metadata(model: onnx.ModelProto) -> ModelMetadata:
    return ModelMetadata(
        model.producer_name,
        model.graph.name,
        model.domain,
        model.doc_string,
        model.graph.doc_string,
        model.model_version,
        {entry.key: entry.value for entry in model.metadata_props},
    )


def _constant_outputs(graph: Graph) -> dict[str, Any]:
    """Outputs that no node makes: they are constants."""
    names = graph.output_names
    found = {name: numpy_helper.to_array(graph.constants[name]) for name in names if name in graph.constants}
    return found | {name: dense(graph.sparse_constants[name]) for name in names if name in graph.sparse_constants}


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _fallback_text(refused: Mapping[str, str]) -> str:
    (name, words), *others = refused.items()
    more = f" and {len(others)} more" if others else ""
    return (
        f"onnxruntime refuses node {name!r}{more}: {words}. "
        "onnx's ReferenceEvaluator runs them, slowly; session.plan lists them."
    )
