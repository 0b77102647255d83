"""InferenceSession: onnxruntime's own session, with unpool's operators inside, for a model that passes have changed."""

import inspect
import os
from collections.abc import Iterable, Sequence
from typing import Any

from unpool.errors import UnpoolError, suggest_name, warn_caller
from unpool.onnxruntime.passes import NAMES
from unpool.onnxruntime.placement import SessionPlan
from unpool.onnxruntime.session_model import Create, SessionModel
from unpool.onnxruntime.tuning import tuning_seconds
from unpool.runtime.errors import FallbackWarning, error_class
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import PreparedGraph
from unpool.runtime.requirements import onnxruntime

_KEYWORDS = frozenset({"enable_fallback", "read_config_from_model"})
"""Further keywords of onnxruntime's constructor."""


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]  # onnxruntime has no types
    """A session of onnxruntime whose MaxPool, MaxUnpool and ConvTranspose unpool computes.

    It differs from `onnxruntime.InferenceSession` in what its constructor does: it reads the model, changes it by
    passes, and registers unpool's library for it. Methods, options, providers, bindings, profiles and errors are those
    of onnxruntime. A model in which nothing changes goes to onnxruntime as it came. So does one that onnxruntime
    refuses after the changes; the log says so at level WARNING. Of a model that it refuses as it came, too, onnx's
    ReferenceEvaluator computes the nodes that it refuses, slowly, with a FallbackWarning.

    Args:
        path_or_bytes: path of a model, its bytes, or an `onnx.ModelProto`.
        sess_options: `onnxruntime.SessionOptions`. The session has a copy of them, and they stay as they were. Options
            with operator libraries or added providers cannot be copied: they get unpool's library, and entries whose
            names begin with "unpool.", and serve sessions with the same arguments only.
        providers: as in onnxruntime.
        provider_options: the same.
        exact: True computes ConvTranspose without fast algorithms, and every MaxPool by unpool.
        compat: "spec" follows the standard's text, "ort" onnxruntime where the two differ.
        index_space: the tensor that MaxUnpool's indices count in, as in `unpool.max_unpool`.
        threads: `intra_op_num_threads`; None for the number of the options.
        tune: True, or seconds, times the whole model in OpenVINO, where that is installed, and takes it where it is
            faster. The choice is stored in the kernel cache, for later sessions with `tune`. Inputs need sizes, of the
            model or by `SessionOptions.add_free_dimension_override_by_name`; sessions of other providers, and with
            `exact`, are not tuned. OpenVINO rounds differently.
        disabled_optimizers: names of onnxruntime's optimizers, and of passes: see `unpool.onnxruntime.passes`.
        others: further keywords of onnxruntime. Those that it does not know have no effect; a warning names them.

    Raises:
        UnpoolError: a wrong argument, or an installation without the library.
        Exception: as onnxruntime, with its classes.

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
    ------------  ------------  -------  ------------------------------------------
    MaxPool->y    MaxPool-12    unpool   unpool computes every MaxPool with Indices
    MaxUnpool->z  MaxUnpool-11  unpool   unpool computes every MaxUnpool
    """

    def __init__(  # noqa: PLR0913  onnxruntime's arguments, and unpool's by keyword only
        self,
        path_or_bytes: ModelSource,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        exact: bool = False,
        compat: str = "spec",
        index_space: str = "auto",
        threads: int | None = None,
        tune: bool | float = False,
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
        self._session_model = SessionModel(
            path_or_bytes, sess_options, Semantics(compat, index_space, exact), threads, disabled & NAMES
        )
        if disabled - NAMES:
            others["disabled_optimizers"] = disabled - NAMES

        def create(source: str | bytes, options: onnxruntime.SessionOptions) -> None:
            super(InferenceSession, self).__init__(source, options, providers, provider_options, **others)

        self._open(create, providers, tuning_seconds(tune))

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[dict[Any, Any]] | None = None
    ) -> None:
        """Load the model again with other providers, as in onnxruntime."""

        def create(source: str | bytes, options: onnxruntime.SessionOptions) -> None:
            self._model_path = source if isinstance(source, str) else None
            self._model_bytes = source if isinstance(source, bytes) else None
            self._sess_options_initial = options
            super(InferenceSession, self).set_providers(providers, provider_options)

        self._open(create, providers)

    def _open(self, create: Create, providers: Sequence[Any] | None, seconds: float = 0) -> None:
        """Create the session of the first candidate that onnxruntime accepts, and tune it for so many seconds."""
        self._session_model.use_providers(providers)
        try:
            self._session_model.create(create)
            if seconds:
                self._session_model.tune(self, create, seconds)
        finally:
            given = self._session_model.given
            self._model_path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
            self._model_bytes = None if isinstance(given, str | os.PathLike) else given
            self._sess_options_initial = self._arguments[0]
        if self._session_model.refused:
            (name, reason), *further = self._session_model.refused.items()
            warn_caller(
                f"onnxruntime refuses node {name!r}{f' and {len(further)} more' if further else ''}: {reason}. "
                "onnx's ReferenceEvaluator runs them, slowly; session.plan lists them.",
                FallbackWarning,
            )

    @property
    def plan(self) -> SessionPlan:
        """The nodes of unpool's operators, who computes each, and why: iterating gives records, `print` a table."""
        return self._session_model.plan

    @property
    def source(self) -> ModelSource:
        """The model that the session was made from: its path, its bytes, or a ModelProto too large for bytes."""
        return self._session_model.source

    @property
    def semantics(self) -> Semantics:
        """How the operators of unpool are read."""
        return self._session_model.semantics

    def fingerprint(self) -> str:
        """A digest of the model: for a file, of its content and that of its data files."""
        return self._session_model.fingerprint()

    def prepared_graph(self, *, has_own_nodes: bool = False) -> PreparedGraph:
        """The graph after all passes, and the types of its values: the model is read again.

        Without `has_own_nodes`, the passes that make nodes of the domain unpool are left out: all nodes are standard.
        """
        return self._session_model.prepared_graph(has_own_nodes=has_own_nodes)

    def with_threads(self, threads: int) -> "InferenceSession":
        """A session of the same model and arguments, with so many threads."""
        return InferenceSession(self.source, *self._arguments, **(self._words | {"threads": threads}))
