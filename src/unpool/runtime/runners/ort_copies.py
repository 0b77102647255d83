"""Copies onnxruntime's SessionOptions, which have no copy of their own: a session that is not loaded gives one.

A copy has all attributes and entries, sizes of axes and initializers. It lacks what is bound to the caller's object
alone: libraries of operators, and providers that were added to it.
"""

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from onnxruntime.capi import _pybind_state

from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners import ort_config
from unpool.runtime.runners.ort_config import is_asked_for, tiny

LOAD_FORMAT = "session.load_model_format"
"""The entry that says in which format a model is: ONNX or ORT."""

ATTRIBUTES = (
    *("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling", "execution_mode"),
    *("execution_order", "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads"),
    *("log_severity_level", "log_verbosity_level", "logid", "optimized_model_filepath", "profile_file_prefix"),
    "use_deterministic_compute",
)
"""The attributes of SessionOptions."""

_QUIET = {
    "enable_profiling": False,
    "optimized_model_filepath": "",
    "intra_op_num_threads": 1,
    "inter_op_num_threads": 1,
    "execution_mode": onnxruntime.ExecutionMode.ORT_SEQUENTIAL,
    "log_severity_level": 4,
}
"""With these a session writes no files and no lines, and starts no threads."""

_lock = threading.Lock()


def copied(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """A copy that nobody else has; no file is written.

    Where options are read from models, no session takes anything else from a caller's, and the copy is of those alone.
    """
    if is_asked_for():
        copy = onnxruntime.SessionOptions()
        for name in (*_QUIET, *ort_config.ATTRIBUTES):
            setattr(copy, name, getattr(options, name))
        return copy
    if not options.enable_profiling:
        return _taken(options)
    with lent(options, {"enable_profiling": False}):
        copy = _taken(options)
    copy.enable_profiling = True
    return copy


def copied_again(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """A copy of options that nobody else has: they are changed meanwhile, so that no threads are started for it."""
    before = {name: getattr(options, name) for name in _QUIET}
    with lent(options, _QUIET):
        copy = copied(options)
    for name, value in before.items():
        setattr(copy, name, value)
    return copy


def _taken(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    model = _tiny_ort() if entry(options, LOAD_FORMAT) == "ORT" else TINY
    copy: onnxruntime.SessionOptions = _pybind_state.InferenceSession(options, model, False, False).session_options
    return copy


def quiet(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """A copy, of options that nobody else has, for a session that nobody is to notice."""
    return quietened(copied_again(options))


def quietened(options: onnxruntime.SessionOptions, format_: str = "ONNX") -> onnxruntime.SessionOptions:
    """The options, changed, so that a session with them goes unnoticed and takes models of this format."""
    for name, value in _QUIET.items():
        setattr(options, name, value)
    put_entry(options, LOAD_FORMAT, format_)
    return options


def left_over(session: onnxruntime.InferenceSession, options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """The options of a session that was made with `quiet(options)`, without what it used up: external initializers."""
    left = session.get_session_options()
    for name in _QUIET:
        setattr(left, name, getattr(options, name))
    return left


@contextmanager
def lent(options: onnxruntime.SessionOptions, attributes: Mapping[str, Any]) -> Iterator[onnxruntime.SessionOptions]:
    """The options of a caller with other attributes for a while; nobody else here uses them at that time.

    What another thread of the caller sets meanwhile stays.
    """
    with _lock:
        before = {name: getattr(options, name) for name in attributes}
        try:
            for name, value in attributes.items():
                setattr(options, name, value)
            yield options
        finally:
            for name, value in before.items():
                if getattr(options, name) == attributes[name]:
                    setattr(options, name, value)


def entry(options: onnxruntime.SessionOptions, key: str) -> str | None:
    """The value of a config entry; None if nobody set it."""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return None


def put_entry(options: onnxruntime.SessionOptions, key: str, value: str) -> None:
    """Set a config entry, which onnxruntime warns of if it is there already."""
    if entry(options, key) != value:
        options.add_session_config_entry(key, value)


TINY = bytes(tiny().SerializeToString())


@cache
def _tiny_ort() -> bytes:
    """The same model in onnxruntime's own format."""
    options = onnxruntime.SessionOptions()
    quietened(options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tiny.ort")
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(TINY, options, providers=["CPUExecutionProvider"])
        return path.read_bytes()
