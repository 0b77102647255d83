"""InferenceSession: runs an ONNX model, unpool's three operators by unpool and all others by onnxruntime.

It has the constructor and methods of `onnxruntime.InferenceSession`; `plan` tells the runtime of every node.
"""

import inspect
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unpool.errors import UnpoolError, UnsupportedError, suggest_name, warn_caller
from unpool.execute import available_cores
from unpool.images.source import fingerprint_file
from unpool.memory import trim_heap
from unpool.runtime.backends.ort_options import Provider, thread_budget
from unpool.runtime.backends.step import RunOptions
from unpool.runtime.errors import LOADING, RUNNING, FallbackWarning, as_onnxruntime, error_class
from unpool.runtime.graph.errors import model_errors
from unpool.runtime.graph.load import ModelSource, stable_source
from unpool.runtime.graph.save import external_files
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import PreparedGraph
from unpool.runtime.passes.pipeline import prepare
from unpool.runtime.plan.plan import Plan
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.autotune import build_session
from unpool.runtime.session.executor import Executor
from unpool.runtime.session.io_binding import IOBinding, PlanBinding
from unpool.runtime.session.load import SessionConfig, load_model, require_picklable, tuning_seconds
from unpool.runtime.session.ort_compat.providers import select_providers
from unpool.runtime.session.ort_methods import OrtSessionMethods, session_errors
from unpool.runtime.session.passthrough import OrtModel

MAX_ASYNC_RUNS = 4  # asynchronous runs at the same time: each uses several cores itself


class InferenceSession(OrtSessionMethods, onnxruntime.InferenceSession):  # type: ignore[misc]  # onnxruntime has no types
    """A model, planned and loaded once; `run` may be called from many threads.

    Args:
        path_or_bytes: path of a model, its bytes, or an `onnx.ModelProto`. A ModelProto above 2 GiB is not copied: do
            not change it afterwards.
        sess_options: `onnxruntime.SessionOptions`; every option is honoured, or refused. At the highest level of
            optimisation, the default, unpool also computes a Conv where it is faster.
        providers: names, or (name, options) pairs, for the partitions that onnxruntime runs; CPU by default.
        provider_options: one dict per provider; without `providers` they have no effect, as in onnxruntime.
        compat: "spec" follows the text of the standard, "ort" follows ONNX Runtime where the two differ.
        index_space: in which tensor MaxUnpool's indices count: "auto", "output" or "inferred".
        exact: whether unpool runs every MaxPool, also those without Indices, and every ConvTranspose, and computes
            every product of it as it is written. By default onnxruntime gets a ConvTranspose in float32 where leaving
            onnxruntime would cost more time than unpool saves, and large ones use fewer products, which round
            differently.
        threads: maximum number of threads of unpool and of onnxruntime; None for all cores that this process may use.
        tune: whether to time the algorithms of each ConvTranspose and use the fastest, in place of a cost model.
            Without `sess_options` it also times unpool for a Conv on which Indices depend and, where OpenVINO is
            installed, OpenVINO for the partitions, with and without every ConvTranspose. Tuning takes up to 30
            seconds, or the seconds that `tune` is, plus the rest of what it began. The result is stored in the kernel
            cache, for later sessions with `tune`. Another choice rounds differently, which may change Indices. A model
            with dynamic inputs is timed at the first `run` of each combination of shapes, on the inputs of that run,
            and not for other methods. The algorithms of nodes with dynamic shapes are not timed.
        others: keywords that the constructor does not know have no effect, as in onnxruntime; a warning names them.

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

    def __init__(  # noqa: PLR0913  onnxruntime's arguments, and unpool's by keyword only
        self,
        path_or_bytes: ModelSource,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[str, Any]] | None = None,
        *,
        compat: str = "spec",
        index_space: str = "auto",
        exact: bool = False,
        threads: int | None = None,
        tune: bool | float = False,
        enable_fallback: int = 1,
        read_config_from_model: int | None = None,
        disabled_optimizers: Iterable[str] | None = None,
        **others: Any,
    ) -> None:
        if not isinstance(sess_options, onnxruntime.SessionOptions | None):
            raise error_class(UnpoolError, TypeError)(
                f"InferenceSession: expected sess_options to be onnxruntime.SessionOptions or None, "
                f"got {type(sess_options).__name__}. Other options go by keyword."
            )
        for name in others:
            known = list(inspect.signature(InferenceSession.__init__).parameters)[1:-1]  # neither self nor others
            advice = suggest_name(name, known, "Leave it out.")
            warn_caller(f"InferenceSession: the keyword {name!r} is unknown and has no effect. {advice}")
        self._enable_fallback = int(enable_fallback) == 1
        config = SessionConfig(
            path_or_bytes,
            sess_options,
            select_providers(providers, provider_options, falls_back=self._enable_fallback),
            Semantics(compat, index_space, exact),
            thread_budget(None, threads),
            None if read_config_from_model is None else int(read_config_from_model) == 1,
            frozenset(disabled_optimizers or ()),
            tuning_seconds(tune),
        )
        self._open(config)
        if self._model.refused:
            (name, reason), *further = self._model.refused.items()
            warn_caller(
                f"onnxruntime refuses node {name!r}{f' and {len(further)} more' if further else ''}: {reason}. "
                "onnx's ReferenceEvaluator runs them, slowly; session.plan lists them.",
                FallbackWarning,
            )

    def __repr__(self) -> str:
        """The model, its inputs and outputs, and its providers, on one line."""
        source = self._config.source
        name = Path(source).name if isinstance(source, str | Path) else self._model.metadata.graph_name
        inputs, outputs = (
            ", ".join(f"{value.name} {value.type} {value.shape}" for value in values)
            for values in (self.get_inputs(), self.get_outputs())
        )
        return f"<InferenceSession {name!r}: {inputs} -> {outputs}; {', '.join(self.get_providers())}>"

    def set_providers(
        self, providers: Sequence[Provider] | None = None, provider_options: Sequence[dict[str, Any]] | None = None
    ) -> None:
        """Load the model again with other providers for the partitions; earlier bindings become invalid.

        Raises:
            UnpoolError: as the constructor, or an unknown name; then the session stays as it was.
        """
        self._open(self._config.with_providers(select_providers(providers, provider_options, falls_back=False)))

    @property
    def source(self) -> ModelSource:
        """The model: its absolute path, its bytes, or a ModelProto that is too large for bytes."""
        return self._config.source

    @property
    def semantics(self) -> Semantics:
        """How the operators of unpool are read."""
        return self._config.semantics

    def fingerprint(self) -> str:
        """A digest of the model: for a file, of its name, size and time, and those of its weights."""
        source: Any = self.source
        if isinstance(source, str):
            files = (Path(source), *external_files(Path(source)).paths(Path(source)))
            return " ".join(map(fingerprint_file, files))
        content = source if isinstance(source, bytes) else source.SerializeToString(deterministic=True)
        return blake2b(content, digest_size=16).hexdigest()

    def prepared_graph(self) -> PreparedGraph:
        """The graph that the session runs, which keeps only its steps: the model is read again."""
        with model_errors(self.source):
            model, _, options = load_model(self._config)
            return PreparedGraph(*prepare(model, options.semantics, options.pass_options), options.semantics)

    @property
    def plan(self) -> Plan:
        """The runtime of every node, and the reason; iterating gives records, `print` a table.

        Of a model with dynamic sizes that is tuned it is the plan of the latest `run`.
        """
        return self._model.plan if self._shape_tuner is None else self._shape_tuner.latest.plan

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs, as NumPy arrays of their own, in the order of their names.

        Args:
            output_names: outputs to compute; None or an empty list for all.
            input_feed: NumPy arrays, or any arrays with `__dlpack__` on the CPU, by input name. Never changed.
            run_options: passed on to the partitions of onnxruntime.

        Raises:
            UnpoolError: an input is missing, unknown, or of another type or shape; an output is unknown; or a node
                refuses its values, and the message names it.
        """
        try:
            model = self._model if self._shape_tuner is None else self._shape_tuner.model_for(input_feed)
            return model.run(output_names, input_feed, run_options)
        except UnpoolError as error:
            raise as_onnxruntime(error, RUNNING) from error.__cause__

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], Any],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run on another thread, which calls `callback(results, user_data, error)`; `error` is "" after success.

        Raises:
            UnpoolError: an input is missing, or the session has no thread to run on.
        """

        def run() -> None:
            results, message = [], ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:
                message = str(error) or type(error).__name__
            callback(results, user_data, message)

        with session_errors():
            self._model.signature.require_all(input_feed)
            self._model.signature.require_own(input_feed.values())
            if self._threads < 2:
                raise UnpoolError("run_async: the session has only 1 thread. Set SessionOptions.intra_op_num_threads.")
            future = self._async_pool.submit(run)
            future.add_done_callback(Future.result)  # the thread prints an error of the callback: no code waits for it

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, onnxruntime.OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[onnxruntime.OrtValue]:
        """As `run`, from and to `onnxruntime.OrtValue` on the CPU.

        Raises:
            UnpoolError: as `run`; or an output has a type that no OrtValue holds.
        """
        if isinstance(self._model, OrtModel):
            arguments = output_names, input_dict_ort_values, run_options
            try:
                return list(self._model.session.run_with_ort_values(*arguments))
            except Exception as error:
                own = as_onnxruntime(self._model.to_own_error(error, *arguments), RUNNING)
                raise own from own.__cause__
        with session_errors():
            names = self._model.signature.choose(output_names)
            outputs = self._model.run(names, input_dict_ort_values, run_options)
            return self._model.signature.as_ort_values(names, outputs)

    def run_with_ortvaluevector(
        self,
        run_options: onnxruntime.RunOptions | None,
        feed_names: Sequence[str],
        feeds: Any,
        fetch_names: Sequence[str],
        fetches: Any,
        fetch_devices: Sequence[Any],
    ) -> None:
        """As `run_with_ort_values`, from and to onnxruntime's vectors; it fills `fetches`, or writes to its values.

        Raises:
            UnpoolError: as `run_with_ort_values`.
        """
        with session_errors():
            if isinstance(self._model, OrtModel):
                arguments = run_options, feed_names, feeds, fetch_names, fetches, fetch_devices
                self._model.session.run_with_ortvaluevector(*arguments)
                return
            feed = {name: onnxruntime.OrtValue(value) for name, value in zip(feed_names, feeds, strict=True)}
            names = self._model.signature.choose(fetch_names)
            if not len(fetches):
                outputs = self._model.run(names, feed, run_options)
                for value in self._model.signature.as_ort_values(names, outputs):
                    fetches.push_back(value._get_c_value())
                return
            targets = [self._model.signature.value_of(onnxruntime.OrtValue(value)) for value in fetches]
            self._model.run_into(dict(zip(names, targets, strict=True)), feed, run_options)

    def io_binding(self) -> IOBinding:
        """A binding with nothing bound."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: onnxruntime.IOBinding, run_options: onnxruntime.RunOptions | None = None
    ) -> None:
        """Run on the memory that a binding holds for inputs and outputs.

        Raises:
            UnpoolError: as `run`; or the memory does not fit, then also a RuntimeError; or the binding is that of
                another session.
        """
        with session_errors():
            if getattr(iobinding, "_session", self._sess) is not self._sess:
                raise UnpoolError(
                    "run_with_iobinding: expected a binding of this session, got one of another. "
                    "Call io_binding of this session."
                )
            if isinstance(iobinding, PlanBinding):
                iobinding.run(run_options)
            elif isinstance(self._model, OrtModel):
                self._model.session.run_with_iobinding(iobinding, run_options)

    def _open(self, config: SessionConfig) -> None:
        """Load the model; the session stays as it was if that fails."""
        try:
            config, model, options, shape_tuner = build_session(config)
        except UnpoolError as error:
            raise as_onnxruntime(error, LOADING) from error.__cause__
        trim_heap()  # what loading has freed: two fifths of the resident memory of large models, within 5 ms
        source = stable_source(config.source)
        self._config, self._model, self._options = replace(config, source=source), model, options
        self._shape_tuner = shape_tuner
        self._sess = model.session._sess if isinstance(model, OrtModel) else model
        self._model_path = source if isinstance(source, str) else None
        self._model_bytes = source if isinstance(source, bytes) else None
        self._threads = thread_budget(options, config.threads) or available_cores()
        self._async_pool = ThreadPoolExecutor(min(self._threads, MAX_ASYNC_RUNS), "unpool-async")
        self.__dict__.update(self._private_attributes())
        if model.profile is not None:
            weakref.finalize(self, model.profile.end)

    def __copy__(self) -> "InferenceSession":
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def __getstate__(self) -> dict[str, Any]:
        try:
            require_picklable(self._config)
            config = self._config.to_state(self._options)
        except UnsupportedError as error:
            raise error_class(UnsupportedError, TypeError)(*error.args) from error.__cause__
        own = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {"config": config, "enable_fallback": self._enable_fallback, "own": own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._enable_fallback = state["enable_fallback"]
        self._open(SessionConfig.from_state(state["config"]))
        self.__dict__.update(state["own"])


def plan(
    source: ModelSource,
    *,
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
    providers: Sequence[Provider] | None = None,
) -> Plan:
    """The runtime of every node of a model, and the reason, as `unpool inspect` shows it.

    Iterating gives a record per node, `print` a table of them, and `print(found.summary)` the table with one line for
    all nodes of a step that onnxruntime runs.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        compat: reading of the model where the standard's text and ONNX Runtime differ.
        index_space: the tensor in which MaxUnpool's indices count, where that is not certain.
        exact: whether unpool runs every MaxPool.
        providers: as for `InferenceSession`; with CUDA, the plan tells the GPU.

    Raises:
        UnpoolError: as `InferenceSession`: the model is loaded, to know the nodes that onnxruntime refuses.

    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink (float[1, 1, h, w] x) => (float[1, 1, a, b] y) {
    ...         s = Sigmoid (x)
    ...         t = Neg (s)
    ...         y, i = MaxPool <kernel_shape = [2, 2]> (t)
    ...     }''')
    >>> print(plan(model).summary)
    step  node                           operator          runs on      why
    ----  -----------------------------  ----------------  -----------  --------------------------------------
    0     2 nodes, Sigmoid->s to Neg->t  1 Sigmoid, 1 Neg  onnxruntime  not an operator of unpool
    1     MaxPool->y                     MaxPool-12        unpool       unpool runs every MaxPool with Indices
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # the plan tells it node by node
        return InferenceSession(source, compat=compat, index_space=index_space, exact=exact, providers=providers).plan


def executor_of(session: InferenceSession) -> Executor:
    """The executor of a session; a new one where onnxruntime runs the whole model."""
    if isinstance(session._model, Executor):
        return session._model
    model, _, options = load_model(session._config)
    return Executor(model, options)
