"""Measures how long a model takes here and in onnxruntime, each in a process of its own, and which steps take it."""

import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.execute import available_cores
from unpool.numerics import diff_arrays
from unpool.runtime.backends.ort_backend import ort_message
from unpool.runtime.backends.ort_options import UNPOOL
from unpool.runtime.graph.load import load_for_command
from unpool.runtime.graph.nodes import node_name
from unpool.runtime.graph.weights import folder_of, is_too_large
from unpool.runtime.measure.timing import Effort, Timing, measure
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.ort_compat.profile import KERNEL_TIME, PARTITION_TIME, REFERENCE
from unpool.runtime.session.session import FallbackWarning, InferenceSession

QUIET = 4  # fatal only: what fails comes back as an exception

Feed = Mapping[str, AnyArray]


@dataclass(frozen=True)
class StepTime:
    """One step of the plan.

    Attributes:
        node: its name, or the first and the last one of a partition.
        runner: who runs it here.
        seconds: median over the runs.
        share: its part of the time of all steps, from 0 to 1.
        onnxruntime: seconds that onnxruntime takes for the same node; None for a partition, and for a node that
            onnxruntime's profile does not name.
    """

    node: str
    runner: str
    seconds: float
    share: float
    onnxruntime: float | None = None


@dataclass(frozen=True)
class ModelTimes:
    """A model's times, in seconds.

    Attributes:
        unpool: the whole model through our session.
        onnxruntime: the whole model in onnxruntime; None if onnxruntime cannot run it.
        refusal: the reason that onnxruntime gives then.
        difference: largest difference between the outputs of the two, over the largest value; None where they
            have nothing to compare, and infinite where shapes, types or NaNs differ.
        threads: that both may use.
        steps: in order of execution.
    """

    unpool: Timing
    onnxruntime: Timing | None
    refusal: str
    difference: float | None
    threads: int
    steps: tuple[StepTime, ...]

    @property
    def ratio(self) -> float | None:
        """Times faster than onnxruntime, median over median; below 1 is a loss."""
        return None if self.onnxruntime is None else self.onnxruntime.median / self.unpool.median


def bench(path: str | os.PathLike[str], feed: Feed, effort: Effort, **options: Any) -> ModelTimes:
    """Time a model.

    Args:
        path: ONNX file.
        feed: an array for every input; both run on it.
        effort: how often it runs.
        options: of `InferenceSession`: compat, index_space, exact, threads.

    Raises:
        UnpoolError: as `InferenceSession` and its `run`.
    """
    threads = options.get("threads") or available_cores()
    steps, ours, made = _elsewhere(_time_ours, str(path), dict(feed), effort, {**options, "threads": threads})
    theirs, nodes, refusal, expected = _elsewhere(_time_theirs, str(path), dict(feed), effort, threads)
    total = sum(seconds for *_, seconds in steps) or 1.0
    return ModelTimes(
        ours, theirs, refusal, None if theirs is None else _max_error(expected, made), threads,
        tuple(StepTime(name, runner, seconds, seconds / total, nodes.get(name)) for name, runner, seconds in steps),
    )  # fmt: skip


def _elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """Result of a function that is called in a process of its own."""
    context, ending = get_context("spawn"), (signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a word
    with ProcessPoolExecutor(1, context, initializer=signal.signal, initargs=ending) as pool:
        with _without_main():
            done = pool.submit(function, *arguments)
        return done.result()


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes that start meanwhile do not run the caller's script once more, which may lack a guard against that."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _time_ours(
    path: str, feed: Feed, effort: Effort, options: Mapping[str, Any]
) -> tuple[list[tuple[str, str, float]], Timing, list[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        timing, made = _whole_time(InferenceSession(path, **options), feed, effort)
        return _step_times(path, feed, timing.samples, options), timing, made


def _step_times(path: str, feed: Feed, runs: int, options: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Name, runner and median seconds of every step."""
    with tempfile.TemporaryDirectory() as folder:
        session = InferenceSession(path, _profiled(folder), **options)
        for _ in range(runs + 1):
            session.run(None, feed)
        return _steps(json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")), runs)


def _steps(events: Sequence[Mapping[str, Any]], runs: int) -> list[tuple[str, str, float]]:
    """Name, runner and median seconds of every step; only the last `runs` runs count."""
    events = [event for event in events if _is_step(event)]
    first = next((number for number in range(1, len(events)) if events[number]["name"] == events[0]["name"]), None)
    per_run = first or len(events)
    counted = events[-runs * per_run :]
    return [
        (_name(event), _runner(event), median(one["dur"] for one in counted[number::per_run]) * 1e-6)
        for number, event in enumerate(counted[:per_run])
    ]


def _is_step(event: Mapping[str, Any]) -> bool:
    """True if an event is that of a step: not of a run, of a folded node, or of a node in a partition."""
    words = event["args"]
    return "op_name" in words and "folded_into" not in words and "node_index" not in words


def _name(event: Mapping[str, Any]) -> str:
    """The step of an event."""
    return str(event["name"]).removesuffix(KERNEL_TIME).removesuffix(PARTITION_TIME)


def _runner(event: Mapping[str, Any]) -> str:
    """Who runs the step of an event."""
    return {UNPOOL: "unpool", REFERENCE: "reference"}.get(event["args"]["provider"], "onnxruntime")


def _time_theirs(
    path: str, feed: Feed, effort: Effort, threads: int
) -> tuple[Timing | None, dict[str, float], str, list[Any]]:
    try:
        source = _named(path)
        timing, made = _whole_time(ort_session(source, onnxruntime.SessionOptions(), threads), feed, effort)
        return timing, _node_times(source, feed, timing.samples, threads), "", made
    except Exception as error:
        return None, {}, ort_message(error), []


def _whole_time(session: onnxruntime.InferenceSession, feed: Feed, effort: Effort) -> tuple[Timing, list[Any]]:
    """The time of a session that profiles nothing, and what it makes; the session is gone then, with its threads."""
    timing = measure(lambda: session.run(None, feed), effort)
    return timing, list(session.run(None, feed))


def _node_times(source: str | bytes, feed: Feed, runs: int, threads: int) -> dict[str, float]:
    """Seconds per run of every node, as onnxruntime measures them itself."""
    with tempfile.TemporaryDirectory() as folder:
        session = ort_session(source, _profiled(folder), threads)
        session.run(None, feed)
        for _ in range(runs):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    durations: dict[str, list[int]] = {}
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith(KERNEL_TIME):
            durations.setdefault(event["name"].removesuffix(KERNEL_TIME), []).append(event["dur"])
    return {name: median(found[-runs:]) * 1e-6 for name, found in durations.items()}


def _named(path: str) -> str | bytes:
    """The model with our names for nodes that have none; its path where it is too large for bytes."""
    model = load_for_command(path)
    if is_too_large(model) or any(folder_of(tensor) is not None for tensor in model.graph.initializer):
        return path
    for node in model.graph.node:
        node.name = node_name(node)
    content: bytes = model.SerializeToString()
    return content


def _profiled(folder: str) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(folder) / "profile")
    return options


def ort_session(source: str | bytes, options: onnxruntime.SessionOptions, threads: int) -> onnxruntime.InferenceSession:
    """A session of onnxruntime on the CPU, which logs nothing but what ends it."""
    options.log_severity_level = QUIET
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _max_error(expected: Sequence[Any], actual: Sequence[Any]) -> float | None:
    """The largest error of all outputs; None if none is an array of numbers with elements."""
    pairs = zip(expected, actual, strict=True)
    errors = [
        diff_arrays(first, second).error
        for first, second in pairs
        if isinstance(first, np.ndarray) and first.dtype.kind != "O" and first.size
    ]
    return max(errors, default=None)
