"""Measures how long a model takes here and in onnxruntime, each in a process of its own, and which nodes take it."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from unpool.execute import available_cores
from unpool.graph.load import load_for_command
from unpool.graph.narrow_floats import narrowest_floats
from unpool.graph.nodes import node_name
from unpool.graph.shape_inference import infer
from unpool.graph.weights import folder_of, is_too_large
from unpool.numerics import ROUNDING_LIMITS, diff_arrays, narrowest_float
from unpool.onnxruntime.errors import ort_message
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.silence import quiet_options, quiet_session
from unpool.operators.contract import OPERATORS
from unpool.runtime.measure.timing import Effort, Timing, measure
from unpool.runtime.runtimes import Feed, open_session, session_run

ORT_SUFFIX = ".ort"
KERNEL_TIME = "_kernel_time"  # end of the name of a node's event in a profile of onnxruntime
CLOSE = 1e-3  # difference, relative to the largest value, that comes from another order of sums


class _Sample(NamedTuple):
    """A node in a profile, with the median of its times."""

    name: str
    operator: str
    seconds: float
    runner: str = "onnxruntime"


@dataclass(frozen=True)
class NodeTime:
    """The median time of one node, its share, from 0 to 1, and its time in onnxruntime alone, if it has one.

    Nodes are those that onnxruntime's profile of the session names: it fuses some of them, and adds changes of layout.
    """

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
    Nodes are in order of execution.
    """

    unpool: Timing
    onnxruntime: Timing | None
    refusal: str
    difference: float | None
    threads: int
    nodes: tuple[NodeTime, ...]
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
    nodes, ours, actual, narrowest = _run_in_process(
        _time_unpool, str(path), dict(feed), effort, {**options, "threads": threads}
    )
    peers, theirs, expected, refusal = _run_in_process(_time_onnxruntime, str(path), dict(feed), effort, threads)
    total, seconds = sum(node.seconds for node in nodes) or 1.0, {node.name: node.seconds for node in peers}
    share = sum(node.seconds for node in peers if node.operator in OPERATORS) / (sum(seconds.values()) or 1.0)
    return ModelTimes(
        ours, theirs, refusal, None if theirs is None else _max_error(expected, actual), threads,
        tuple(
            NodeTime(node.name, node.runner, node.seconds, node.seconds / total, seconds.get(node.name))
            for node in nodes
        ),
        max(CLOSE, ROUNDING_LIMITS.get(narrowest, 0.0)), share if peers else None,
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
) -> tuple[list[_Sample], Timing, list[Any], str]:
    source = _named(path)
    given = {**options, "tune": bool(options.get("tune")) and feed}

    def open_here(settings: onnxruntime.SessionOptions) -> Any:
        return open_session(source, settings, **given)

    session = open_here(quiet_options())
    kind = "" if path.endswith(ORT_SUFFIX) else _narrowest_float(session)
    timing, outputs = _time_session(session, feed, effort)
    runners = {row.node: row.runner for row in session.plan}
    del session
    nodes = _profile(open_here, feed, timing.samples)
    return [node._replace(runner=runners.get(node.name, node.runner)) for node in nodes], timing, outputs, kind


def _narrowest_float(session: Any) -> str:
    """The narrowest type of floats that outputs depend on."""
    graph, _, semantics = session.prepared_graph()
    narrowest = narrowest_floats(graph, infer(graph, semantics))
    return narrowest_float(narrowest.get(name, "") for name in graph.output_names)


def _time_onnxruntime(
    path: str, feed: Feed, effort: Effort, threads: int
) -> tuple[list[_Sample], Timing | None, list[Any], str]:
    def open_here(settings: onnxruntime.SessionOptions) -> Any:
        settings.intra_op_num_threads = threads
        return quiet_session(source, settings)

    try:
        source = _named(path)
        timing, outputs = _time_session(open_here(quiet_options()), feed, effort)
        nodes = _profile(open_here, feed, timing.samples)
    except Exception as error:
        return [], None, [], ort_message(error)
    return nodes, timing, outputs, ""


def _time_session(session: Any, feed: Feed, effort: Effort) -> tuple[Timing, list[Any]]:
    """The time of a session that does not profile, and its outputs; then the session and its threads are freed."""
    run = session_run(session)
    return measure(lambda: run(feed), effort), run(feed)


def _profile(make_session: Callable[[onnxruntime.SessionOptions], Any], feed: Feed, runs: int) -> list[_Sample]:
    """The nodes that a session runs, in its order, with the median of the last `runs` runs, of one more."""
    with tempfile.TemporaryDirectory() as folder:
        options = quiet_options()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = make_session(options)
        run = session_run(session)
        for _ in range(runs + 1):
            run(feed)
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    durations: dict[tuple[str, str], list[int]] = {}
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith(KERNEL_TIME):
            node = event["name"].removesuffix(KERNEL_TIME), event["args"]["op_name"]
            durations.setdefault(node, []).append(event["dur"])
    return [_Sample(*node, median(times[-runs:]) * 1e-6) for node, times in durations.items()]


def _named(path: str) -> str | bytes:
    """The model with our names for nodes that have none; its path where it is too large for bytes, or no ONNX file."""
    if path.endswith(ORT_SUFFIX):
        return path
    model = load_for_command(path)
    if is_too_large(model) or any(folder_of(tensor) is not None for tensor in model.graph.initializer):
        return path
    for node in model.graph.node:
        node.name = node_name(node)
    return bytes(model.SerializeToString())


def _max_error(expected: Sequence[Any], actual: Sequence[Any]) -> float | None:
    """The largest error of all outputs; None if none is an array of numbers with elements."""
    errors = []
    for first, second in zip(expected, actual, strict=True):
        if isinstance(first, np.ndarray) and first.dtype.kind != "O" and first.size:
            errors.append(diff_arrays(first, second).error)
    return max(errors, default=None)
