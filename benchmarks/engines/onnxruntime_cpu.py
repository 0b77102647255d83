"""onnxruntime on the CPU: its defaults and the number of threads, the model with constant weights."""

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
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    content = operator(case).model(case, arrays).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feed: dict[str, Any] = {one.name: arrays[one.name] for one in session.get_inputs()}
    return Ready(lambda: session.run(None, feed), tuple)
