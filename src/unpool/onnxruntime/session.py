"""InferenceSession: onnxruntime's own session, with unpool's operators inside, for a model that passes have changed."""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from unpool.errors import UnpoolError, UnsupportedError, suggest_name, warn_caller
from unpool.graph.errors import error_class
from unpool.onnxruntime import planner  # noqa: F401  most networks need it, and would wait for it in their first run
from unpool.onnxruntime.errors import FallbackWarning
from unpool.onnxruntime.kernel_table import check_settings
from unpool.onnxruntime.options import (
    CPU,
    OptionsState,
    Tune,
    check_threads,
    from_state,
    has_arena,
    shrinking_options,
    state_of,
    tuning_seconds,
)
from unpool.onnxruntime.ort_values import NUMPY_LACKS, from_ort_value, to_ort_value
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.session_arguments import SessionArguments, is_other_provider
from unpool.onnxruntime.stored_model import open_stored
from unpool.onnxruntime.weight_values import Create
from unpool.operators.semantics import Semantics

if TYPE_CHECKING:
    from unpool.graph.load import ModelSource
    from unpool.graph.shape_inference import PreparedGraph
    from unpool.onnxruntime.placement import SessionPlan
    from unpool.onnxruntime.session_model import SessionModel

_KEYWORDS = frozenset({"enable_fallback", "read_config_from_model"})
"""Further keywords of onnxruntime's constructor."""


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]  # onnxruntime has no types
    """A session of onnxruntime whose MaxPool, MaxUnpool and ConvTranspose unpool computes.

    It is a subclass of `onnxruntime.InferenceSession` with its own constructor, which optimizes the model by passes and
    registers unpool's library. Methods, options, providers, bindings, profiles and errors are onnxruntime's. If no pass
    changes the model, onnxruntime gets the original. If onnxruntime refuses the model after the passes, it also gets
    the original, and the log says so at level WARNING. If it refuses the original, too, onnx's ReferenceEvaluator
    computes the unsupported nodes, slowly, with a FallbackWarning.

    Args:
        path_or_bytes: path of a model, its bytes, or an `onnx.ModelProto`.
        sess_options: `onnxruntime.SessionOptions`, of which the session uses a copy. Options with operator libraries or
            added providers cannot be copied: unpool adds its library and entries whose names begin with "unpool." to
            them, and they can then only be used for sessions with the same arguments.
        providers: as in onnxruntime.
        provider_options: the same.
        exact: True computes ConvTranspose without fast algorithms, and every MaxPool by unpool. Then a node with
            attributes that the standard does not have is an error; otherwise onnxruntime computes it.
        compat: "spec" follows the standard's text, "ort" onnxruntime where the two differ.
        index_space: the tensor that MaxUnpool's indices refer to, as in `unpool.max_unpool`.
        threads: `intra_op_num_threads`; None for the number in the options.
        tune: True, or a time limit in seconds, times the whole model in OpenVINO, if it is installed, and uses it if it
            is faster. Inputs as for `run`, such as `{"x": image}`, are what it is timed with; for inputs of fixed
            sizes, random numbers will do. The choice is stored in the kernel cache for later sessions with `tune`.
            Sessions with other providers or with `exact` are not tuned. OpenVINO rounds differently.
        disabled_optimizers: names of onnxruntime's optimizers, and of passes: see `unpool.onnxruntime.passes`.
        others: further keywords of onnxruntime. Unknown keywords have no effect; a warning names them.

    Raises:
        UnpoolError: an argument is wrong, onnxruntime refuses the model, or this installation has no library. The error
            is also an instance of onnxruntime's class. Methods raise onnxruntime's errors.

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
    node          operator      runs on  why
    ------------  ------------  -------  --------------------------------------------------------
    MaxPool->y    MaxPool-12    unpool   unpool computes every MaxPool with Indices; kernel tiles
    MaxUnpool->z  MaxUnpool-11  unpool   unpool computes every MaxUnpool; kernel windows
    """

    def __init__(  # noqa: PLR0913  onnxruntime's arguments, and unpool's by keyword only
        self,
        path_or_bytes: "ModelSource",
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        exact: bool = False,
        compat: str = "spec",
        index_space: str = "auto",
        threads: int | None = None,
        tune: Tune = False,
        disabled_optimizers: Iterable[str] | None = None,
        **others: Any,
    ) -> None:
        if not isinstance(sess_options, onnxruntime.SessionOptions | None):
            raise error_class(UnpoolError, TypeError)(
                f"InferenceSession: expected sess_options to be onnxruntime.SessionOptions or None, "
                f"got {type(sess_options).__name__}. Other options go by keyword."
            )
        for name in others.keys() - _KEYWORDS:
            known = [*list(inspect.signature(InferenceSession.__init__).parameters)[1:-1], *_KEYWORDS]
            advice = suggest_name(name, known, "Leave it out.")
            warn_caller(f"InferenceSession: the keyword {name!r} is unknown and has no effect. {advice}")
        disabled = frozenset(disabled_optimizers or ())
        self._model_path: str | None
        self._model_bytes: Any
        self._arguments = (sess_options, providers, provider_options)
        self._words = {
            "exact": exact, "compat": compat, "index_space": index_space, "threads": threads, "tune": tune,
            "disabled_optimizers": disabled, **others,
        }  # fmt: skip
        self._shrinks = False  # True where memory is freed after the first run
        self._given, self._semantics = path_or_bytes, Semantics(compat, index_space, exact)
        check_threads(threads)

        def create(source: str | bytes, options: onnxruntime.SessionOptions, when_parsed: Callable[[], object]) -> None:
            def optimizers() -> Iterator[str]:  # onnxruntime iterates over them between parsing and optimizing
                when_parsed()
                yield from _without_passes(disabled)

            words = others | {"disabled_optimizers": optimizers()}
            super(InferenceSession, self).__init__(source, options, providers, provider_options, **words)

        self._open(create, providers, tune)

    def __repr__(self) -> str:
        """The model, its inputs and outputs, and its providers, on one line."""
        given = self._given
        name = os.path.basename(given) if isinstance(given, str | os.PathLike) else self.get_modelmeta().graph_name
        inputs, outputs = (
            ", ".join(f"{value.name} {value.type} {value.shape}" for value in values)
            for values in (self.get_inputs(), self.get_outputs())
        )
        return f"<InferenceSession {name!r}: {inputs} -> {outputs}; {', '.join(self.get_providers())}>"

    def __copy__(self) -> "InferenceSession":
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return SessionState.restore, (self.state(),)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs, as in onnxruntime, which takes no arrays of ml_dtypes, such as bfloat16, and gives none."""
        if run_options is None and self._shrinks:
            run_options, self._shrinks = shrinking_options(), False
        if not self._has_ml_dtypes:
            return super().run(output_names, input_feed, run_options)  # type: ignore[no-any-return]
        names = list(output_names or (value.name for value in self.get_outputs()))
        feed = {
            name: value if isinstance(value, onnxruntime.OrtValue) else to_ort_value(value)
            for name, value in input_feed.items()
        }
        return list(map(from_ort_value, super().run_with_ort_values(names, feed, run_options)))

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[dict[Any, Any]] | None = None
    ) -> None:
        """Load the model again with other providers, as in onnxruntime."""

        def create(source: str | bytes, options: onnxruntime.SessionOptions, _: Callable[[], object]) -> None:
            self._model_path = source if isinstance(source, str) else None
            self._model_bytes = source if isinstance(source, bytes) else None
            self._sess_options_initial = options
            super(InferenceSession, self).set_providers(providers, provider_options)

        self._open(create, providers)

    def _open(self, create: Create, providers: Sequence[Any] | None, tune: Tune = False) -> None:
        """Create the session of what was kept of the file, or of the first candidate that onnxruntime accepts."""
        check_settings()  # passes and placement take an error of a kernel's cost for shapes that do not fit
        seconds, options = tuning_seconds(tune), self._arguments[0]
        self._model_arguments = SessionArguments(
            options, self._semantics, self._words["threads"], self._words["disabled_optimizers"],
            is_other_provider(options, providers),
        )  # fmt: skip
        self.__dict__.pop("_session_model", None)
        try:
            self._stored = open_stored(self._given, self._model_arguments, create)
            if self._stored is None:
                self._session_model.create(create)
            values = (*self.get_inputs(), *self.get_outputs())
            self._has_ml_dtypes = any(value.type in NUMPY_LACKS for value in values)
            feed = tune if isinstance(tune, Mapping) else None
            if seconds and self._session_model.tune(self, create, seconds, feed):
                self._stored = None
            loaded = self._session_model.plan if self._stored is None else self._stored
            self._shrinks = loaded.has_own_nodes and self.get_providers() == [CPU] and has_arena(options)
        finally:
            given = self._given
            self._model_path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
            self._model_bytes = None if isinstance(given, str | os.PathLike) else given
            self._sess_options_initial = options
        if self._stored is None and self._session_model.refused:
            (name, reason), *further = self._session_model.refused.items()
            warn_caller(
                f"onnxruntime refuses node {name!r}{f' and {len(further)} more' if further else ''}: {reason}. "
                "onnx's ReferenceEvaluator runs them, slowly; session.plan lists them.",
                FallbackWarning,
            )

    @cached_property
    def _session_model(self) -> "SessionModel":
        """What reads and changes the model; not made for one that was kept, unless a caller needs more."""
        from unpool.onnxruntime.session_model import SessionModel  # loads onnx and the passes

        return SessionModel(self._given, self._model_arguments)

    @property
    def plan(self) -> "SessionPlan":
        """The nodes of unpool's operators, who computes each, and why: iterating gives records, `print` a table."""
        return self._session_model.plan if self._stored is None else self._stored.read_plan()

    @property
    def source(self) -> "ModelSource":
        """The model that the session was made from: its path, its bytes, or a ModelProto too large for bytes."""
        return self._session_model.source

    @property
    def semantics(self) -> Semantics:
        """How the operators of unpool are read."""
        return self._semantics

    def fingerprint(self) -> str:
        """A digest of the model: for a file, of its content and that of its data files."""
        return self._session_model.fingerprint()

    def prepared_graph(self, *, has_own_nodes: bool = False) -> "PreparedGraph":
        """The graph after all passes, and the types of its values: the model is read again.

        Without `has_own_nodes`, the passes that make nodes of the domain unpool are left out: all nodes are standard.
        """
        return self._session_model.prepared_graph(has_own_nodes=has_own_nodes)

    def state(self) -> "SessionState":
        """The arguments of the session, which can be pickled.

        Raises:
            UnsupportedError: its options or its model cannot; it is a TypeError, too.
        """
        reason = self._session_model.unpicklable()
        if reason:
            raise error_class(UnsupportedError, TypeError)(f"InferenceSession: {reason}")
        options, providers, provider_options = self._arguments
        own = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return SessionState(type(self), self.source, state_of(options), providers, provider_options, self._words, own)

    def with_threads(self, threads: int) -> "InferenceSession":
        """A session of the same model and arguments, with so many threads."""
        return InferenceSession(self.source, *self._arguments, **(self._words | {"threads": threads}))


def _without_passes(disabled: frozenset[str]) -> frozenset[str]:
    """The names of onnxruntime's optimizers among those that are switched off."""
    if not disabled:
        return disabled
    from unpool.onnxruntime.passes import NAMES  # loads onnx

    return disabled - NAMES


class SessionState(NamedTuple):
    """The arguments of a session, as values that can be pickled."""

    kind: type[InferenceSession]
    source: "ModelSource"
    options: OptionsState | None
    providers: Sequence[Any] | None
    provider_options: Sequence[dict[Any, Any]] | None
    words: dict[str, Any]  # arguments by keyword
    attributes: dict[str, Any]  # that the caller has set on the session

    def restore(self) -> InferenceSession:
        """A session with these arguments."""
        options = from_state(self.options)
        session = self.kind(self.source, options, self.providers, self.provider_options, **self.words)
        session.__dict__.update(self.attributes)
        return session


def plan(
    source: "ModelSource",
    *,
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
    providers: Sequence[Any] | None = None,
) -> "SessionPlan":
    """The plan of a model: which runtime computes each node of unpool's operators, and why.

    Iterating over it gives a record per node; `print` shows a table, as `unpool inspect` does.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        compat: "spec" reads the model by the standard's text, "ort" as ONNX Runtime where the two differ.
        index_space: the tensor that MaxUnpool's indices refer to where that is not certain.
        exact: True for the plan of a session with `exact=True`.
        providers: as for `InferenceSession`.

    Raises:
        UnpoolError: as by `InferenceSession`, because the model is loaded to find what onnxruntime refuses.

    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink (float[1, 1, h, w] x) => (float[1, 1, a, b] y) {
    ...         s = Sigmoid (x)
    ...         y, i = MaxPool <kernel_shape = [2, 2]> (s)
    ...     }''')
    >>> print(plan(model))
    node        operator    runs on  why
    ----------  ----------  -------  ------------------------------------------
    MaxPool->y  MaxPool-12  unpool   unpool computes every MaxPool with Indices
    """
    return InferenceSession(source, compat=compat, index_space=index_space, exact=exact, providers=providers).plan
