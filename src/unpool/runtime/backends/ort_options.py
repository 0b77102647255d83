"""SessionOptions and providers of the partitions that onnxruntime runs.

Partitions get the caller's options, one budget of threads, and hardly any spinning, unless one is the whole model.
onnxruntime has no copy of SessionOptions, so a session that is not loaded gives one: with all attributes, entries, axis
sizes and initializers, and without what is bound to the caller's own object, which are operator libraries and added
providers.

With ORT_LOAD_CONFIG_FROM_MODEL=1 in the environment, options in a model's metadata replace all that a caller sets.
onnxruntime reads that variable for every session, so each partition states its options in its own metadata.
"""

import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from onnx import parser
from onnxruntime.capi import _pybind_state

from unpool.errors import UnpoolError
from unpool.execute import available_cores
from unpool.runtime.plan.plan import HOST
from unpool.runtime.requirements import onnxruntime

UNPOOL = "UnpoolExecutionProvider"
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
OPENVINO = "OpenVINO"  # the package; "OpenVINOExecutionProvider" is onnxruntime's own, in a build of its own
Provider: TypeAlias = str | tuple[str, dict[str, Any]]

ATTRIBUTES = (
    *("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling", "execution_mode"),
    *("execution_order", "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads"),
    *("log_severity_level", "log_verbosity_level", "logid", "optimized_model_filepath", "profile_file_prefix"),
    "use_deterministic_compute",
)
"""The attributes of SessionOptions."""

LOAD_FORMAT = "session.load_model_format"  # the config entry with the format of a model: ONNX or ORT
DATA_FOLDER = "session.model_external_initializers_file_folder_path"  # that with the folder of its data files

FATAL, UNSET = 4, -1  # levels of a log: only fatal errors, because errors come back as exceptions; and none chosen
_SILENT = {
    "enable_profiling": False,
    "optimized_model_filepath": "",
    "intra_op_num_threads": 1,
    "inter_op_num_threads": 1,
    "execution_mode": onnxruntime.ExecutionMode.ORT_SEQUENTIAL,
    "log_severity_level": FATAL,
}
"""A session with these writes no files and no log lines, and starts no threads."""

_DEFAULTS = {"session.inter_op.allow_spinning": "0", "session.force_spinning_stop": "1"}
_SPINNING, _SPIN_DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"
_SPIN = "20"
"""Microseconds for which a thread keeps its core while it waits for the next node. Then it sleeps: next to another busy
process, longer waits make runs slower (docs/decisions/0007)."""
_FIRST_WITH_DURATION = (1, 26)  # the first onnxruntime that has a duration; with an older one threads sleep at once
CONFIG_VARIABLE = "ORT_LOAD_CONFIG_FROM_MODEL"
CONFIG_KEY = "ort_config"  # the metadata entry of a model: JSON with an object `session_options`
_CONFIG_ATTRIBUTES = ("intra_op_num_threads", "inter_op_num_threads", "execution_mode", "graph_optimization_level")
"""The attributes that the metadata may set."""

_attributes_lock = threading.Lock()
_default_severity: list[int] = []  # that a caller chose; empty until then


@dataclass(frozen=True)
class Providers:
    """Names and options of providers, in their order; CPU is always the last one, and OpenVINO at most the first."""

    names: tuple[str, ...]
    options: tuple[dict[str, Any], ...]

    @property
    def openvino(self) -> dict[str, Any] | None:
        """The options of OpenVINO; None if it gets no partitions."""
        return self.options[0] if self.names[0] == OPENVINO else None

    @property
    def cuda(self) -> dict[str, Any] | None:
        """The options of CUDA, where onnxruntime asks it before the CPU; None where no partition is on a GPU."""
        before_cpu = self.names[: self.names.index(CPU)]
        if self.openvino is not None or CUDA not in before_cpu:
            return None
        return self.options[self.names.index(CUDA)]

    @property
    def device(self) -> str:
        """The device of onnxruntime's partitions: "cpu" or such as "cuda:0"."""
        return HOST if self.cuda is None else f"cuda:{self.cuda.get('device_id', 0)}"

    @property
    def of_onnxruntime(self) -> "Providers":
        """The providers that onnxruntime knows."""
        first = int(self.names[0] == OPENVINO)
        return Providers(self.names[first:], self.options[first:])


CPU_ONLY = Providers((CPU,), ({},))


class TraceFolder:
    """A temporary folder for the profiles of partitions, by `prefixes`; it is deleted with this object."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="unpool-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.prefixes = (str(Path(folder, str(number))) for number in count())


@dataclass(frozen=True)
class PartitionOptions:
    """Options with which onnxruntime loads partitions."""

    copy: onnxruntime.SessionOptions  # all options but those that only the caller's object has
    caller_options: onnxruntime.SessionOptions | None = None  # where partitions need its libraries or added providers
    has_caller_providers: bool = False  # whether partitions run with the providers that were added to it
    traces: TraceFolder | None = None  # where partitions write profiles; None where they write none

    def with_weights(self, weights: Mapping[str, onnxruntime.OrtValue]) -> "PartitionOptions":
        """Options for one partition whose model lacks the data of these tensors."""
        if not weights:
            return self
        copy = clone_private(self.copy)
        copy.add_external_initializers(list(weights), list(weights.values()))
        return replace(self, copy=copy)

    def session_options(self) -> AbstractContextManager[onnxruntime.SessionOptions]:
        """The object to make the session of a partition with, valid inside the block."""
        attributes: dict[str, Any] = {}
        if self.caller_options is not None:
            attributes = {name: getattr(self.copy, name) for name in ATTRIBUTES}
        if self.traces is not None:
            attributes |= {"enable_profiling": True, "profile_file_prefix": next(self.traces.prefixes)}
        return (
            temporary_attributes(self.caller_options or self.copy, attributes) if attributes else nullcontext(self.copy)
        )


def partition_options(
    user: onnxruntime.SessionOptions | None, threads: int | None, *, is_whole: bool = False
) -> PartitionOptions:
    """Options of partitions, from a copy of the caller's; `threads` of None means all available cores.

    The threads of a partition that `is_whole`, all of a model, spin as onnxruntime's do: no kernel of unpool needs
    their cores.
    """
    options = onnxruntime.SessionOptions() if user is None else clone_private(user)
    if options.log_severity_level == UNSET and not _default_severity:
        options.log_severity_level = FATAL
    options.enable_profiling = False
    options.optimized_model_filepath = ""
    options.intra_op_num_threads = available_cores() if threads is None else threads
    entries = {} if is_whole else _DEFAULTS | spin_entries(options)
    for key, value in entries.items():
        if config_entry(options, key) is None:
            options.add_session_config_entry(key, value)
    set_config_entry(options, LOAD_FORMAT, "ONNX")  # whatever format the caller's model has
    return PartitionOptions(options)


def spin_entries(options: onnxruntime.SessionOptions) -> dict[str, str]:
    """The config entries that let waiting threads sleep soon; none where the caller has set how they spin."""
    if config_entry(options, _SPINNING) is not None or config_entry(options, _SPIN_DURATION) is not None:
        return {}
    release = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    return {_SPINNING: "1", _SPIN_DURATION: _SPIN} if release >= _FIRST_WITH_DURATION else {_SPINNING: "0"}


def thread_budget(user: onnxruntime.SessionOptions | None, threads: int | None) -> int | None:
    """Maximum number of threads of kernels and partitions: `threads`, else the options', else None for all cores."""
    if threads is None:
        return None if user is None else user.intra_op_num_threads or None
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise UnpoolError(
            f"InferenceSession: threads is None or an int of 1 or more, got {threads!r}. Pass None for all cores."
        )
    return threads


def set_default_logger_severity(severity: int) -> None:
    """Set the log level of sessions that are made from now on and whose options name none.

    Until this is called, partitions log fatal errors only: onnxruntime does not tell its default level, at which it
    would write a line about every partition that it refuses.

    Args:
        severity: 0 for all lines, 1 information, 2 warnings, 3 errors, 4 only fatal ones.

    Raises:
        RuntimeError: another number.
    """
    onnxruntime.set_default_logger_severity(severity)
    _default_severity[:] = [severity]


def config_entry(options: onnxruntime.SessionOptions, key: str) -> str | None:
    """The value of a config entry; None if it is not set."""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return None


def run_config_entry(options: onnxruntime.RunOptions | None, key: str) -> str | None:
    """The same of RunOptions; None also in older releases of onnxruntime, which do not tell it."""
    try:
        return None if options is None else str(options.get_run_config_entry(key))
    except (AttributeError, RuntimeError):
        return None


def set_config_entry(options: onnxruntime.SessionOptions, key: str, value: str) -> None:
    """Set a config entry; onnxruntime warns where the same value is set twice."""
    if config_entry(options, key) != value:
        options.add_session_config_entry(key, value)


def has_providers(options: onnxruntime.SessionOptions) -> bool:
    """True if providers were added to the options; older releases of onnxruntime cannot add any."""
    return bool(getattr(options, "has_providers", bool)())


def clone(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """A copy of a caller's options, with only what metadata may set where options are read from models."""
    if reads_model_config():
        return with_attributes_of(options, onnxruntime.SessionOptions(), (*_SILENT, *_CONFIG_ATTRIBUTES))
    model = _tiny_ort_model() if config_entry(options, LOAD_FORMAT) == "ORT" else TINY_MODEL
    profiles = bool(options.enable_profiling)
    with temporary_attributes(options, {"enable_profiling": False}) if profiles else nullcontext():
        copy: onnxruntime.SessionOptions = _pybind_state.InferenceSession(options, model, False, False).session_options
    copy.enable_profiling = profiles
    return copy


def with_attributes_of(
    source: onnxruntime.SessionOptions, options: onnxruntime.SessionOptions, names: Iterable[str] = _SILENT
) -> onnxruntime.SessionOptions:
    """The same `options`, with attributes of `source`, by default those that `silence` changes."""
    for name in names:
        setattr(options, name, getattr(source, name))
    return options


def clone_private(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """A copy of options that no other code holds: they change while they are copied, so that no threads start."""
    with temporary_attributes(options, _SILENT):
        copy = clone(options)
    return with_attributes_of(options, copy)


def silence(options: onnxruntime.SessionOptions, model_format: str = "ONNX") -> onnxruntime.SessionOptions:
    """The same options, changed to write no files and no log lines, to start no threads and to take this format."""
    for name, value in _SILENT.items():
        setattr(options, name, value)
    set_config_entry(options, LOAD_FORMAT, model_format)
    return options


@contextmanager
def temporary_attributes(
    options: onnxruntime.SessionOptions, attributes: Mapping[str, Any]
) -> Iterator[onnxruntime.SessionOptions]:
    """The options with other attributes inside the block; an attribute that another thread sets meanwhile stays."""
    with _attributes_lock:
        before = {name: getattr(options, name) for name in attributes}
        try:
            for name, value in attributes.items():
                setattr(options, name, value)
            yield options
        finally:
            for name, value in before.items():
                if getattr(options, name) == attributes[name]:
                    setattr(options, name, value)


def reads_model_config() -> bool:
    """True if options are read from models."""
    return os.environ.get(CONFIG_VARIABLE) == "1"


def with_model_config(model: bytes, options: onnxruntime.SessionOptions) -> bytes:
    """The model of a partition with the options in its metadata, where they are read from there."""
    attributes = {name: int(getattr(options, name)) for name in _CONFIG_ATTRIBUTES}
    return model + config_metadata({"session_options": attributes}) if reads_model_config() else model


def config_metadata(config: object) -> bytes:
    """Bytes that add a metadata entry at the end of a serialized model: protobuf merges repeated fields."""
    model = onnx.ModelProto()
    model.metadata_props.add(key=CONFIG_KEY, value=json.dumps(config))
    return bytes(model.SerializeToString())


TINY_MODEL = bytes(
    parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 14]> tiny (float[1] x) => (float[1] y) { y = Identity (x) }"""
    ).SerializeToString()
)
"""A model of one Identity."""


@cache
def _tiny_ort_model() -> bytes:
    """The same model in onnxruntime's own format."""
    options = silence(onnxruntime.SessionOptions())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tiny.ort")
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(TINY_MODEL, options, providers=[CPU])
        return path.read_bytes()
