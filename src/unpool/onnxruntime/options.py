"""Options of a session: copies of the caller's, with threads, how these wait, and config entries.

onnxruntime has no copy of SessionOptions, so a session that is not loaded gives one: with all attributes, entries, axis
sizes and initializers, and without what is bound to the caller's own object, which are operator libraries and added
providers.
"""

import math
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from onnxruntime.capi import _pybind_state

from unpool.errors import UnpoolError
from unpool.graph.data_file import FOLDERS_ENTRY
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.silence import FATAL, quiet_options, quiet_session

ATTRIBUTES = (
    *("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling", "execution_mode"),
    *("execution_order", "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads"),
    *("log_severity_level", "log_verbosity_level", "logid", "optimized_model_filepath", "profile_file_prefix"),
    "use_deterministic_compute",
)
"""The attributes of SessionOptions."""

CPU = "CPUExecutionProvider"
DISABLED_OPTIMIZERS = "optimization.disable_specified_optimizers"  # that with names, separated by ";"
_SHARED_ARENA = "session.use_env_allocators"
LOAD_FORMAT = "session.load_model_format"  # the config entry with the format of a model: ONNX or ORT
DATA_FOLDER = "session.model_external_initializers_file_folder_path"  # that with the folder of its data files

_ENTRIES = (
    *("session.disable_prepacking", "session.disable_quant_qdq", "session.dynamic_block_base"),
    *("session.force_spinning_stop", "session.inter_op.allow_spinning", "session.intra_op.allow_spinning"),
    *("session.intra_op.spin_duration_us", "session.intra_op.spin_backoff_max"),
    *("session.inter_op.spin_duration_us", "session.inter_op.spin_backoff_max"),
    *("session.set_denormal_as_zero", "session.strict_shape_type_inference", _SHARED_ARENA),
    *("session.use_device_allocator_for_initializers", "session.use_ort_model_bytes_directly"),
    *("session.x64quantprecision", LOAD_FORMAT, "session.save_model_format", DATA_FOLDER, FOLDERS_ENTRY),
    *("session.disable_cpu_ep_fallback", "session.allow_released_opsets_only"),
    *("session.record_ep_graph_assignment_info", "ep.context_enable", "ep.context_file_path"),
    "session.optimized_model_external_initializers_file_name",
    "session.optimized_model_external_initializers_min_size_in_bytes",
    *("mlas.enable_gemm_fastmath_arm64_bfloat16", DISABLED_OPTIMIZERS),
    *("optimization.enable_gelu_approximation", "optimization.minimal_build_optimizations"),
)
"""The config entries that are pickled; onnxruntime cannot list those that are set."""

_SILENT = {
    "enable_profiling": False,
    "optimized_model_filepath": "",
    "intra_op_num_threads": 1,
    "inter_op_num_threads": 1,
    "execution_mode": onnxruntime.ExecutionMode.ORT_SEQUENTIAL,
    "log_severity_level": FATAL,
}
"""A session with these writes no files and no log lines, and starts no threads."""

Tune: TypeAlias = bool | float | Mapping[str, Any]
"""Whether to tune a session, for how many seconds, or on which inputs."""

TUNING_SECONDS = 30.0  # of a trial, by default
_SPINNING, _SPIN_DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"
_SPIN = "50"
"""Microseconds for which a thread keeps its core while it waits for the next node. Then it sleeps: next to another busy
process, longer waits make runs slower (docs/decisions/0015)."""
_FIRST_WITH_DURATION = (1, 26)  # the first onnxruntime that has a duration; with an older one threads sleep at once

_TINY_MODEL = (
    b'\x08\x08:<\n\x12\n\x01x\x12\x01y"\x08Identity:\x00\x12\x04tinyZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08'
    b"\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x0e"
)
"""A model of one Identity, as bytes, because onnx takes longer to import than many a model to load."""

_attributes_lock = threading.Lock()


class OptionsState(NamedTuple):
    """Attributes and config entries of SessionOptions, which can be pickled."""

    attributes: dict[str, Any]
    entries: dict[str, str]


def state_of(options: onnxruntime.SessionOptions | None) -> OptionsState | None:
    """The state of options, with the config entries that are known; None for none."""
    if options is None:
        return None
    entries = {key: value for key in _ENTRIES if (value := config_entry(options, key)) is not None}
    return OptionsState({name: getattr(options, name) for name in ATTRIBUTES}, entries)


def from_state(state: OptionsState | None) -> onnxruntime.SessionOptions | None:
    """The options that `state_of` was called on."""
    if state is None:
        return None
    options = onnxruntime.SessionOptions()
    for name, value in state.attributes.items():
        setattr(options, name, value)
    for key, text in state.entries.items():
        options.add_session_config_entry(key, text)
    return options


def spin_entries(options: onnxruntime.SessionOptions) -> dict[str, str]:
    """The config entries that let waiting threads sleep soon; none where the caller has set how they spin."""
    if config_entry(options, _SPINNING) is not None or config_entry(options, _SPIN_DURATION) is not None:
        return {}
    release = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    return {_SPINNING: "1", _SPIN_DURATION: _SPIN} if release >= _FIRST_WITH_DURATION else {_SPINNING: "0"}


def tuning_seconds(tune: Tune) -> float:
    """The maximum seconds of tuning, from the argument `tune`; 0 for no tuning."""
    if isinstance(tune, bool | Mapping):
        return TUNING_SECONDS if tune else 0.0
    if not isinstance(tune, (int, float)) or not 0 <= tune < math.inf:
        raise UnpoolError(
            "tune: expected True, False, seconds (0 or more), or inputs as for `run`; "
            f"got {tune!r}. Pass True for the usual time."
        )
    return float(tune)


def check_threads(threads: int | None) -> int | None:
    """The same number; an UnpoolError unless it is None or 1 or more."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise UnpoolError(
            f"InferenceSession: threads is None or an int of 1 or more, got {threads!r}. Pass None for all cores."
        )
    return threads


def config_entry(options: onnxruntime.SessionOptions, key: str) -> str | None:
    """The value of a config entry; None if it is not set."""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return None


def set_config_entry(options: onnxruntime.SessionOptions, key: str, value: str) -> None:
    """Set a config entry; onnxruntime warns where the same value is set twice."""
    if config_entry(options, key) != value:
        options.add_session_config_entry(key, value)


def has_providers(options: onnxruntime.SessionOptions) -> bool:
    """True if providers were added to the options; older releases of onnxruntime cannot add any."""
    return bool(getattr(options, "has_providers", bool)())


def has_arena(options: onnxruntime.SessionOptions | None) -> bool:
    """True if a session takes memory from an arena of its own."""
    return options is None or (options.enable_cpu_mem_arena and config_entry(options, _SHARED_ARENA) in (None, "0"))


def shrinking_options() -> onnxruntime.RunOptions:
    """Options of a first run, after which its memory is freed.

    From the second run on, onnxruntime allocates one block for all values. Without these options, it also keeps what
    the first run allocated.
    """
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def clone(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """A copy of options, whose attributes change while they are copied, so that no threads start."""
    model = _tiny_ort_model() if config_entry(options, LOAD_FORMAT) == "ORT" else _TINY_MODEL
    with _temporary_attributes(options, _SILENT):
        copy: onnxruntime.SessionOptions = _pybind_state.InferenceSession(options, model, False, False).session_options
    for name in _SILENT:
        setattr(copy, name, getattr(options, name))
    return copy


def replaced(options: onnxruntime.SessionOptions, names: Iterable[str]) -> set[str]:
    """The initializers, of these names, for which options have other values.

    onnxruntime does not tell what options have, but refuses a second value for a name.
    """
    found, other = set(), clone(options)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32))
    for name in names:
        try:
            other.add_initializer(name, value)
        except RuntimeError:
            found.add(name)
    return found


@contextmanager
def _temporary_attributes(options: onnxruntime.SessionOptions, attributes: Mapping[str, Any]) -> Iterator[None]:
    """The options with other attributes inside the block; an attribute that another thread sets meanwhile stays."""
    with _attributes_lock:
        before = {name: getattr(options, name) for name in attributes}
        try:
            for name, value in attributes.items():
                setattr(options, name, value)
            yield
        finally:
            for name, value in before.items():
                if getattr(options, name) == attributes[name]:
                    setattr(options, name, value)


@cache
def _tiny_ort_model() -> bytes:
    """The same model in onnxruntime's own format."""
    options = quiet_options(threads=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tiny.ort")
        options.optimized_model_filepath = str(path)
        quiet_session(_TINY_MODEL, options)
        return path.read_bytes()
