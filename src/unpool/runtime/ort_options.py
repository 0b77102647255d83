"""How onnxruntime's pieces are set up: the user's wishes, one thread budget, no spinning beyond a piece."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnxruntime

from unpool.errors import UnpoolError, UnsupportedError
from unpool.execute import available_cores

OURS = "UnpoolExecutionProvider"
CPU = "CPUExecutionProvider"
QUIET = 4  # fatal only: what fails comes back as an exception
Provider: TypeAlias = str | tuple[str, dict[str, Any]]

_COPIED = (
    "graph_optimization_level",
    "execution_mode",
    "execution_order",
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
    "enable_mem_reuse",
    "use_deterministic_compute",
    "logid",
    "log_verbosity_level",
)
_COPIED_ENTRIES = (
    "session.set_denormal_as_zero",
    "session.disable_prepacking",
    "session.x64quantprecision",
    "optimization.enable_gelu_approximation",
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
)
_SPINNING = {
    "session.intra_op.allow_spinning": "1",
    "session.inter_op.allow_spinning": "0",
    "session.force_spinning_stop": "1",
}
"""Threads of a piece wait for its next node without going to sleep, but not beyond its last: others need the cores."""


@dataclass(frozen=True)
class Providers:
    """Names and options of the providers of the pieces; CPU is always the last one."""

    names: tuple[str, ...]
    options: tuple[dict[str, Any], ...]


def thread_budget(user: onnxruntime.SessionOptions | None, threads: int | None) -> int | None:
    """Threads that kernels and pieces may use: `threads`, else what the options say, else None for all cores.

    Raises:
        UnpoolError: not a positive int.
    """
    if threads is None:
        return user.intra_op_num_threads or None if user is not None else None
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise UnpoolError(f"InferenceSession: threads is None or an int of 1 or more, got {threads!r}. Correct it.")
    return threads


def session_options(user: onnxruntime.SessionOptions | None, threads: int | None) -> onnxruntime.SessionOptions:
    """Options of one piece."""
    options = onnxruntime.SessionOptions()
    if user is not None:
        for name in _COPIED:
            setattr(options, name, getattr(user, name))
        for key in _COPIED_ENTRIES:
            _copy_entry(user, options, key)
    options.log_severity_level = QUIET
    options.intra_op_num_threads = available_cores() if threads is None else threads
    options.inter_op_num_threads = 1
    for key, value in _SPINNING.items():
        _copy_entry(user or options, options, key, value)
    return options


def providers_of(asked: Sequence[Provider] | None, asked_options: Sequence[dict[str, Any]] | None) -> Providers:
    """The providers of the pieces, from what onnxruntime's own constructor takes.

    Raises:
        UnsupportedError: this onnxruntime has no such provider.
        UnpoolError: as many options as providers were expected.
    """
    asked = list(asked or [])
    if asked_options is not None and len(asked_options) != len(asked):
        raise UnpoolError(
            f"InferenceSession: expected one dict in provider_options per provider ({len(asked)}), "
            f"got {len(asked_options)}. Give as many."
        )
    given = asked_options or [{} for _ in asked]
    found: dict[str, dict[str, Any]] = {}
    for one, options in zip(asked, given, strict=True):
        name, own = (one, options) if isinstance(one, str) else one
        _require_available(name)
        found.setdefault(name, dict(own))
    found.pop(OURS, None)
    found.setdefault(CPU, {})
    return Providers(tuple(found), tuple(found.values()))


def _require_available(name: str) -> None:
    available = [OURS, *onnxruntime.get_available_providers()]
    if name not in available:
        raise UnsupportedError(
            f"InferenceSession: expected providers out of {', '.join(available)}; got {name!r}. "
            "Install the onnxruntime package that has it, or drop it."
        )


def _copy_entry(
    source: onnxruntime.SessionOptions, target: onnxruntime.SessionOptions, key: str, default: str | None = None
) -> None:
    try:
        value: str | None = source.get_session_config_entry(key)
    except RuntimeError:  # not set
        value = default
    if value is not None:
        target.add_session_config_entry(key, value)
