"""OpenVINO on the CPU: low latency, float32 kept as float32, the model with constant weights."""

from typing import Any

import numpy as np
from conformance.runtimes.openvino_cpu import BFLOAT16, CORE, to_array, to_tensor, version

from benchmarks.case import Case
from benchmarks.engines import Ready, operator
from benchmarks.one_node import Arrays

__all__ = ["prepare", "start", "version"]


def start(threads: int) -> None:
    """Nothing to set up: every model is told its number of threads."""


def prepare(case: Case, arrays: Arrays, outputs: str, threads: int) -> Ready:  # noqa: ARG001 - it allocates as it does
    """A call of a compiled model."""
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    content = operator(case).model(case, arrays).SerializeToString()
    compiled = CORE.compile_model(CORE.read_model(content), "CPU", config)
    feed: dict[str, Any] = {one.any_name: arrays[one.any_name] for one in compiled.inputs}
    feed = {name: to_tensor(array) if array.dtype == BFLOAT16 else array for name, array in feed.items()}

    def read(made: Any) -> tuple[np.ndarray, ...]:
        request = compiled.create_infer_request()
        request.infer(feed)
        return tuple(to_array(request.get_output_tensor(number)) for number in range(len(compiled.outputs)))

    return Ready(lambda: compiled(feed), read)
