"""Sets up the pieces of onnxruntime: with the user's options, one budget of threads, and hardly any spinning."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from unpool.errors import UnpoolError
from unpool.execute import available_cores
from unpool.runtime.plan.lines import HOST
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_copies import ATTRIBUTES, LOAD_FORMAT, copied_again, entry, lent, put_entry
from unpool.runtime.runners.ort_log import is_chosen
from unpool.runtime.runners.ort_traces import PieceTraces

OURS = "UnpoolExecutionProvider"
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
OPENVINO = "OpenVINO"  # the package; "OpenVINOExecutionProvider" is onnxruntime's own, in a build of its own
QUIET = 4  # fatal only: what fails comes back as an exception
UNSET = -1  # the level of a log that nobody chose
Provider: TypeAlias = str | tuple[str, dict[str, Any]]

_DEFAULTS = {
    "session.inter_op.allow_spinning": "0",
    "session.force_spinning_stop": "1",
}
_SPINNING, _SPIN_DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"
_SPIN = "20"
"""Microseconds for which a thread of a piece keeps its core while it waits for the next node; then it sleeps, for
others need the cores: beside another busy process, longer waits make runs slower (docs/decisions/0007)."""
_KNOWS_DURATION = (1, 26)
"""The first onnxruntime that can be told how long; with an older one threads sleep at once."""


@dataclass(frozen=True)
class Providers:
    """Names and options of the providers of the pieces; CPU is always the last one, and OpenVINO at most the first."""

    names: tuple[str, ...]
    options: tuple[dict[str, Any], ...]

    @property
    def openvino(self) -> dict[str, Any] | None:
        """The options of OpenVINO; None if it gets no pieces."""
        return self.options[0] if self.names[0] == OPENVINO else None

    @property
    def cuda(self) -> dict[str, Any] | None:
        """The options of CUDA, where onnxruntime asks it before the CPU; None where pieces are not on a GPU."""
        before_cpu = self.names[: self.names.index(CPU)]
        if self.openvino is not None or CUDA not in before_cpu:
            return None
        return self.options[self.names.index(CUDA)]

    @property
    def device(self) -> str:
        """Where onnxruntime runs pieces: "cpu" or such as "cuda:0"."""
        return HOST if self.cuda is None else f"cuda:{self.cuda.get('device_id', 0)}"

    @property
    def of_onnxruntime(self) -> "Providers":
        """Those that onnxruntime knows."""
        first = int(self.names[0] == OPENVINO)
        return Providers(self.names[first:], self.options[first:])


@dataclass(frozen=True)
class PieceOptions:
    """What pieces are made with.

    Attributes:
        graph_optimization_level: of the pieces.
        lends: the caller's own object: it alone has libraries of operators and added providers.
        copy: has everything else; what a piece is made with where the caller's object is not needed.
        brings_providers: whether the providers of the pieces are those that were added to the caller's object.
        traces: where pieces write profiles of their own; None where they write none.
    """

    copy: onnxruntime.SessionOptions
    lends: onnxruntime.SessionOptions | None = None
    brings_providers: bool = False
    traces: PieceTraces | None = None

    @property
    def graph_optimization_level(self) -> onnxruntime.GraphOptimizationLevel:
        """How far onnxruntime changes a piece."""
        return self.copy.graph_optimization_level

    def with_weights(self, weights: Mapping[str, onnxruntime.OrtValue]) -> "PieceOptions":
        """Options for one piece whose model lacks the data of these tensors."""
        if not weights:
            return self
        copy = copied_again(self.copy)
        copy.add_external_initializers(list(weights), list(weights.values()))
        return replace(self, copy=copy)

    @contextmanager
    def lent(self) -> Iterator[onnxruntime.SessionOptions]:
        """The object to make a piece with."""
        if self.lends is None and self.traces is None:
            yield self.copy
            return
        profile = {} if self.traces is None else self.traces.attributes()
        own = {} if self.lends is None else {name: getattr(self.copy, name) for name in ATTRIBUTES}
        with lent(self.copy if self.lends is None else self.lends, own | profile) as options:
            yield options


def thread_budget(user: onnxruntime.SessionOptions | None, threads: int | None) -> int | None:
    """Threads that kernels and pieces may use: `threads`, else what the options say, else None for all cores.

    Raises:
        UnpoolError: not a positive int.
    """
    if threads is None:
        return user.intra_op_num_threads or None if user is not None else None
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise UnpoolError(
            f"InferenceSession: threads is None or an int of 1 or more, got {threads!r}. Pass None for all cores."
        )
    return threads


def piece_options(
    user: onnxruntime.SessionOptions | None,
    threads: int | None,
    *,
    lends: onnxruntime.SessionOptions | None = None,
    brings_providers: bool = False,
    traces: PieceTraces | None = None,
) -> PieceOptions:
    """Options of one piece.

    Args:
        user: what the user asks for, in a copy.
        threads: at most so many; None for all cores that are available.
        lends: the user's own object, where pieces need what a copy has not.
        brings_providers: whether the pieces run with the providers that were added to it.
        traces: where the pieces write profiles; None if they write none.
    """
    options = onnxruntime.SessionOptions() if user is None else copied_again(user)
    if options.log_severity_level == UNSET and not is_chosen():
        options.log_severity_level = QUIET
    options.enable_profiling = False
    options.optimized_model_filepath = ""
    options.intra_op_num_threads = available_cores() if threads is None else threads
    for key, value in (_DEFAULTS | _waiting(options)).items():
        if entry(options, key) is None:
            options.add_session_config_entry(key, value)
    put_entry(options, LOAD_FORMAT, "ONNX")  # of pieces, whatever the model has
    return PieceOptions(options, lends, brings_providers, traces)


def _waiting(options: onnxruntime.SessionOptions) -> dict[str, str]:
    """How threads of a piece wait for its next node, where the caller does not say whether they spin."""
    if entry(options, _SPINNING) is not None:
        return {}
    major, minor = map(int, onnxruntime.__version__.split(".")[:2])
    if (major, minor) < _KNOWS_DURATION:
        return {_SPINNING: "0"}
    return {_SPINNING: "1", _SPIN_DURATION: _SPIN}
