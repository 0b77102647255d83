"""Measures how long a model takes here and in onnxruntime, each in a process of its own, and which steps take it."""

import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.execute import available_cores
from unpool.numerics import ROUNDING_LIMITS, diff_arrays, narrowest_float
from unpool.operators.contract import OPERATORS
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.backends.ort_options import UNPOOL
from unpool.runtime.errors import FallbackWarning
from unpool.runtime.graph.load import load_for_command
from unpool.runtime.graph.narrow_floats import narrowest_floats
from unpool.runtime.graph.nodes import node_name
from unpool.runtime.graph.shape_inference import infer
from unpool.runtime.graph.weights import folder_of, is_too_large
from unpool.runtime.measure.timing import Effort, Timing, measure
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.ort_compat.model_files import ORT_SUFFIX
from unpool.runtime.session.ort_compat.profile import KERNEL_TIME, PARTITION_TIME, REFERENCE
from unpool.runtime.session.session import InferenceSession

QUIET = 4  # fatal only: what fails comes back as an exception
CLOSE = 1e-3  # difference, relative to the largest value, that comes from another order of sums

Feed = Mapping[str, AnyArray]


@dataclass(frozen=True)
class StepTime:
    """The median time of one step of the plan, its share, from 0 to 1, and that in onnxruntime, if it has one."""

    node: str
    runner: str
    seconds: float
    share: float
    onnxruntime: float | None = None


@dataclass(frozen=True)
class ModelTimes:
    """A model's times through a session of unpool and in onnxruntime, or onnxruntime's reason why it cannot run it.

    `difference` is the largest between the outputs of the two, over the largest value: None where there is nothing to
    compare, and infinite where shapes, types or NaNs differ. Up to `tolerance` it comes from another order of sums.
    Steps are in order of execution.
    """

    unpool: Timing
    onnxruntime: Timing | None
    refusal: str
    difference: float | None
    threads: int
    steps: tuple[StepTime, ...]
    tolerance: float = CLOSE
    operator_share: float | None = None  # of the time of onnxruntime's nodes, that of MaxPool, MaxUnpool, ConvTranspose

    @property
    def ceiling(self) -> float | None:
        """Times faster than onnxruntime that the model would be if these operators took no time."""
        share = self.operator_share
        return None if share is None or share >= 1 else 1 / (1 - share)

    @property
    def is_equal(self) -> bool:
        """False if the two compute other things."""
        return self.difference is None or self.difference <= self.tolerance

    @property
    def ratio(self) -> float | None:
        """Times faster than onnxruntime, median over median; below 1 is a loss."""
        return None if self.onnxruntime is None else self.onnxruntime.median / self.unpool.median


def bench(path: str | os.PathLike[str], feed: Feed, effort: Effort, **options: Any) -> ModelTimes:
    """The times of a model in a file, on these inputs; `options` are those of `InferenceSession`."""
    threads = options.get("threads") or available_cores()
    steps, ours, actual, narrowest = _run_in_process(
        _time_unpool, str(path), dict(feed), effort, {**options, "threads": threads}
    )
    theirs, nodes, share, refusal, expected = _run_in_process(_time_onnxruntime, str(path), dict(feed), effort, threads)
    total = sum(seconds for *_, seconds in steps) or 1.0
    return ModelTimes(
        ours, theirs, refusal, None if theirs is None else _max_error(expected, actual), threads,
        tuple(StepTime(name, runner, seconds, seconds / total, nodes.get(name)) for name, runner, seconds in steps),
        max(CLOSE, ROUNDING_LIMITS.get(narrowest, 0.0)), share,
    )  # fmt: skip


def _run_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    context, ending = get_context("spawn"), (signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a message
    with ProcessPoolExecutor(1, context, initializer=signal.signal, initargs=ending) as pool:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # or the process runs the caller's script, maybe unguarded
        try:
            future = pool.submit(function, *arguments)
        finally:
            sys.modules["__main__"] = script
        return future.result()


def _time_unpool(
    path: str, feed: Feed, effort: Effort, options: Mapping[str, Any]
) -> tuple[list[tuple[str, str, float]], Timing, list[Any], str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        session = InferenceSession(path, **options)
        graph, _, semantics = session.prepared_graph()
        narrowest = narrowest_floats(graph, infer(graph, semantics))
        timing, outputs = _time_session(session, feed, effort)
        del session
        events = _profile(lambda profiling: InferenceSession(path, profiling, **options), feed, timing.samples)
        kind = narrowest_float(narrowest.get(name, "") for name in graph.output_names)
        return _step_times(events, timing.samples), timing, outputs, kind


def _step_times(events: Sequence[Mapping[str, Any]], runs: int) -> list[tuple[str, str, float]]:
    """Name, runner and median seconds of every step; only the last `runs` runs count.

    Events of runs, of folded nodes, and of nodes in a partition are none of steps.
    """
    steps = [event for event in events if "op_name" in event["args"]]
    steps = [event for event in steps if "folded_into" not in event["args"] and "node_index" not in event["args"]]
    first = next((number for number in range(1, len(steps)) if steps[number]["name"] == steps[0]["name"]), None)
    per_run = first or len(steps)
    counted, times = steps[-runs * per_run :], []
    for number, event in enumerate(counted[:per_run]):
        name = str(event["name"]).removesuffix(KERNEL_TIME).removesuffix(PARTITION_TIME)
        runner = {UNPOOL: "unpool", REFERENCE: "reference"}.get(event["args"]["provider"], "onnxruntime")
        times.append((name, runner, median(other["dur"] for other in counted[number::per_run]) * 1e-6))
    return times


def _time_onnxruntime(
    path: str, feed: Feed, effort: Effort, threads: int
) -> tuple[Timing | None, dict[str, float], float | None, str, list[Any]]:
    try:
        source = _named(path)
        timing, outputs = _time_session(ort_session(source, onnxruntime.SessionOptions(), threads), feed, effort)
        events = _profile(lambda profiling: ort_session(source, profiling, threads), feed, timing.samples)
    except Exception as error:
        return None, {}, None, ort_message(error), []
    durations: dict[str, list[int]] = {}
    operators: dict[str, str] = {}
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith(KERNEL_TIME):
            name = event["name"].removesuffix(KERNEL_TIME)
            durations.setdefault(name, []).append(event["dur"])
            operators[name] = event["args"]["op_name"]
    nodes = {name: median(times[-timing.samples :]) * 1e-6 for name, times in durations.items()}
    total = sum(nodes.values())
    share = sum(seconds for name, seconds in nodes.items() if operators[name] in OPERATORS) / total if total else None
    return timing, nodes, share, "", outputs


def _time_session(session: Any, feed: Feed, effort: Effort) -> tuple[Timing, list[Any]]:
    """The time of a session that does not profile, and its outputs; then the session and its threads are freed."""
    timing = measure(lambda: session.run(None, feed), effort)
    return timing, list(session.run(None, feed))


def _profile(make_session: Callable[[onnxruntime.SessionOptions], Any], feed: Feed, runs: int) -> list[dict[str, Any]]:
    """The events of a session's profile, of a first run and of `runs` more."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = make_session(options)
        for _ in range(runs + 1):
            session.run(None, feed)
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return events


def _named(path: str) -> str | bytes:
    """The model with our names for nodes that have none; its path where it is too large for bytes, or no ONNX file."""
    if path.endswith(ORT_SUFFIX):
        return path
    model = load_for_command(path)
    if is_too_large(model) or any(folder_of(tensor) is not None for tensor in model.graph.initializer):
        return path
    for node in model.graph.node:
        node.name = node_name(node)
    content: bytes = model.SerializeToString()
    return content


def ort_session(source: str | bytes, options: onnxruntime.SessionOptions, threads: int) -> onnxruntime.InferenceSession:
    """A session of onnxruntime on the CPU, which logs nothing but what ends it."""
    options.log_severity_level = QUIET
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _max_error(expected: Sequence[Any], actual: Sequence[Any]) -> float | None:
    """The largest error of all outputs; None if none is an array of numbers with elements."""
    errors = []
    for first, second in zip(expected, actual, strict=True):
        if isinstance(first, np.ndarray) and first.dtype.kind != "O" and first.size:
            errors.append(diff_arrays(first, second).error)
    return max(errors, default=None)
