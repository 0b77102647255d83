"""OpenVINO on the CPU: low latency, float32 kept as float32, the model with constant weights."""

from collections.abc import Callable
from typing import Any

from benchmarks.case import Case
from benchmarks.engines import Ready, operator
from benchmarks.one_node import Arrays
from benchmarks.refusal import NotOffered
from conformance.runtimes.openvino_cpu import CORE, version

__all__ = ["prepare", "start", "version"]


def start(threads: int) -> None:
    """Nothing to set up: every model is told its number of threads."""


def prepare(case: Case, arrays: Arrays, outputs: str, threads: int) -> Ready:  # noqa: ARG001 - it allocates as it does
    """A call of a compiled model."""
    if case.dtype == "bfloat16":
        raise NotOffered("it has no NumPy arrays of bfloat16")
    compiled = load(operator(case).model(case, arrays).SerializeToString(), threads)
    feed: dict[str, Any] = {one.any_name: arrays[one.any_name] for one in compiled.inputs}
    return Ready(lambda: compiled(feed), lambda made: tuple(made[number] for number in range(len(compiled.outputs))))


def runner(path: str, threads: int) -> Callable[[Any], list[Any]]:
    """A function of the inputs by name that runs the model of a file."""
    compiled = load(path, threads)
    numbers = range(len(compiled.outputs))

    def run(feeds: Any) -> list[Any]:
        results = compiled(feeds)
        return [results[number] for number in numbers]

    return run


def load(model: str | bytes, threads: int) -> Any:
    """A model of a file, or of its content, compiled."""
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    return CORE.compile_model(CORE.read_model(model), "CPU", config)
