"""onnxruntime on the CPU: its defaults and the number of threads, the model with constant weights."""

from collections.abc import Callable
from typing import Any

import onnxruntime

from benchmarks.case import Case
from benchmarks.engines import Ready, operator
from benchmarks.one_node import Arrays

FATAL = 4


def version() -> str:
    """Of the installed package."""
    return str(onnxruntime.__version__)


def start(threads: int) -> None:  # noqa: ARG001 - sessions are told
    """Log nothing: refusals come back as exceptions."""
    onnxruntime.set_default_logger_severity(FATAL)


def prepare(case: Case, arrays: Arrays, outputs: str, threads: int) -> Ready:  # noqa: ARG001 - it allocates as it does
    """A run of a session."""
    session = load(operator(case).model(case, arrays).SerializeToString(), threads)
    feed: dict[str, Any] = {one.name: arrays[one.name] for one in session.get_inputs()}
    return Ready(lambda: session.run(None, feed), tuple)


def runner(path: str, threads: int) -> Callable[[Any], Any]:
    """A function of the inputs by name that runs the model of a file."""
    session = load(path, threads)
    return lambda feeds: session.run(None, feeds)


def load(model: str | bytes, threads: int) -> onnxruntime.InferenceSession:
    """A session of a file, or of its content."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
