"""onnxruntime on the CPU, one thread, nothing logged."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

FATAL = 4
NOISE = (
    r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ",
    r"Exception during initialization: ",
    r"Non-zero status code returned while running \w+ node\. Name:'' Status Message: ",
    r"\S+\.(?:cc|h):\d+ (?:onnxruntime::.*?\) |\w+ )?(?:\[with .*?\] )?",
)


def version() -> str:
    """Of the installed package."""
    onnxruntime.set_default_logger_severity(FATAL)
    return str(onnxruntime.__version__)


def answer(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))
