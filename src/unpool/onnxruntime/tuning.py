"""Tuning of a session: its model as it is, and the whole model in OpenVINO, timed in turns on the same inputs.

OpenVINO's model becomes the engine of one node, the only one of the model that onnxruntime gets then. It replaces the
session's own only if it is faster by a margin, twice where that is small, and if its results are the same but for
rounding. The choice is stored for later sessions of the same model.
"""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from unpool.errors import UnpoolError, warn_caller
from unpool.execute import autotune, available_cores
from unpool.graph.random_inputs import random_feed
from unpool.graph.weights import copy_fields
from unpool.kernels.cpu.machine import measurements
from unpool.memory import trim_heap
from unpool.numerics import TUNING, diff_arrays
from unpool.onnxruntime.engine import Engine, engine_node
from unpool.onnxruntime.errors import run_session
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.placement import NodePlacement, Reason, SessionPlan
from unpool.onnxruntime.silence import quiet_options, quiet_session
from unpool.openvino.package import is_installed, package
from unpool.operators.semantics import Semantics
from unpool.operators.unpool_domain import DOMAIN, VERSION

OWN, OPENVINO = "onnxruntime", "openvino"
OPEN = -1  # for OpenVINO, a size that differs from run to run
MARGIN = 0.03  # share of the time by which OpenVINO must be faster
CERTAIN = 0.15  # share of the time by which it is faster if it is certain at once
SETTLE = 0.02  # seconds until the threads of the other candidate sleep
TURN = 0.05  # seconds of a turn of a candidate

_log = logging.getLogger("unpool")


class TunedModel(NamedTuple):
    """A model of one node, whose engine has to be kept, and its plan."""

    content: bytes
    plan: SessionPlan
    engine: Engine


class TuningTrial(NamedTuple):
    """A session to tune, the model as it came, and what OpenVINO reads of it."""

    session: Any
    model: onnx.ModelProto
    source: str | bytes
    semantics: Semantics
    threads: int | None
    key: str  # of the model and the session's arguments
    feed: Mapping[str, Any] | None  # inputs to time it with; None for random ones


def fastest_model(trial: TuningTrial, seconds: float) -> TunedModel | None:
    """The model in OpenVINO, if that is faster; None if the session's own is, or nothing can be compared."""
    end = time.perf_counter() + seconds
    if not is_installed():
        _log.info("tuning: OpenVINO is not installed, so there is nothing to compare.")
        return None
    feed = _feed(trial)
    if feed is None:
        return None
    fed = {name: np.shape(array) for name, array in feed.items()}
    inputs = trial.session.get_inputs()
    shapes = {info.name: tuple(size if isinstance(size, int) else OPEN for size in info.shape) for info in inputs}
    threads = trial.threads or available_cores()
    versions = onnx.__version__, onnxruntime.__version__, package().__version__
    key = repr((trial.key, sorted(fed.items()), shapes, trial.semantics, threads, *versions))
    stored = measurements.find_result(key)
    if stored == OWN:
        return None
    tuned = _load(trial, shapes, threads)
    if tuned is None or stored == OPENVINO:
        return tuned
    options = quiet_options()
    _register(options)
    candidate = quiet_session(tuned.content, options)
    calls = {OWN: partial(trial.session.run, None, feed), OPENVINO: partial(candidate.run, None, feed)}
    try:
        agrees = _agree(calls)
        if not agrees or end < time.perf_counter():
            _log.info("tuning: OpenVINO %s.", "is not timed, as the time is up" if agrees else "gives other results")
            return None
        best = OPENVINO if _is_faster(calls, end - time.perf_counter()) else OWN
    except Exception as error:
        if not type(error).__module__.startswith(("onnxruntime", "unpool")):
            raise
        _log.info("tuning: a trial fails: %s", error)
        return None
    _log.info("tuning: the model goes by %s.", best)
    measurements.store_result(key, best)
    return tuned if best == OPENVINO else None


def _feed(trial: TuningTrial) -> Mapping[str, Any] | None:
    """The inputs to time the model with; None, and a warning, if they are not given and cannot be made up.

    Raises:
        UnpoolError: the model does not run on the given ones.
    """
    if trial.feed is not None:
        try:
            run_session(trial.session, None, trial.feed)
        except UnpoolError as error:
            fact = str(error).rstrip(".")
            raise UnpoolError(
                f"tune: the model does not run on these inputs: {fact}. Pass inputs as for `run`."
            ) from error
        return trial.feed
    try:
        return random_feed(trial.session.get_inputs(), {})
    except UnpoolError as error:
        fact, name = str(error).partition(". ")[0], trial.session.get_inputs()[0].name
        advice = f"Pass inputs as for `run`: tune={{{name!r}: ...}}."
        warn_caller(f"InferenceSession: tune has no effect, as sizes or values are not known: {fact}. {advice}")
        return None


def _load(trial: TuningTrial, shapes: Mapping[str, tuple[int, ...]], threads: int) -> TunedModel | None:
    from unpool.onnxruntime.openvino_engine import OpenVinoEngine  # loads OpenVINO
    from unpool.openvino.fit import UnfitModelError

    trim_heap()  # what loading has freed, so that the candidate does not add to it
    try:
        engine = OpenVinoEngine(trial.model, trial.source, shapes, trial.semantics, threads)
    except UnfitModelError as error:
        _log.info("tuning: the model does not go by OpenVINO: %s", error)
        return None
    name = "OpenVINO"
    row = NodePlacement(name, "Engine", Reason.TUNED)
    model = onnx.ModelProto()
    copy_fields(trial.model, model, "graph", "functions", "opset_import")
    model.opset_import.extend([*trial.model.opset_import, helper.make_opsetid(DOMAIN, VERSION)])
    copy_fields(trial.model.graph, model.graph, "node", "initializer", "sparse_initializer", "input", "value_info")
    model.graph.input.extend(value for value in trial.model.graph.input if value.name in shapes)
    model.graph.node.append(engine_node(engine, list(shapes), list(engine.output_names), name))
    return TunedModel(model.SerializeToString(), SessionPlan((row,)), engine)


def _register(options: Any) -> None:
    from unpool.onnxruntime.register import register

    register(options, domains=DOMAIN)


def _agree(calls: Mapping[str, Callable[[], list[Any]]]) -> bool:
    """True if both give the same but for rounding."""
    expected, found = (call() for call in calls.values())
    return not any(diff_arrays(mine, other, TUNING).differs for mine, other in zip(expected, found, strict=True))


def _is_faster(calls: Mapping[str, Callable[[], list[Any]]], seconds: float) -> bool:
    """True if the second of two candidates is faster than the first; a small gain has to be found twice."""
    first, second = calls
    for _ in range(2):
        times = autotune.time_calls(calls, seconds, SETTLE, TURN, median)  # a minimum of so few whole runs is noise
        _log.info("tuning: %s.", autotune.format_times(times))
        if autotune.fastest(times, first, MARGIN) == first:
            return False
        if autotune.fastest(times, first, CERTAIN) == second:
            break
    return True
