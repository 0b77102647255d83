"""A report about a model: one run, step by step, with times, accuracy, findings, memory and feature maps."""

import os
import platform
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from unpool.execute import available_cores
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.weights import serialize
from unpool.runtime.lint.lint import lint
from unpool.runtime.measure.bench import ModelTimes, bench
from unpool.runtime.measure.timing import Effort
from unpool.runtime.report.page import Report
from unpool.runtime.report.tracer import Feed, StepTracer, describe
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.random_inputs import random_feed
from unpool.runtime.session.session import FallbackWarning, InferenceSession

DEFAULT_EFFORT = Effort(warmup=2, repetitions=10, seconds=0.2, limit=10)
MAX_MAPS = 12
"""Pairs of feature maps on a page."""


@dataclass(frozen=True)
class ReportOptions:
    """The parts of a report that take long: timed runs, None for none, and the accuracy of every step."""

    effort: Effort | None = DEFAULT_EFFORT
    accuracy: bool = True


def report(
    source: ModelSource,
    feed: Mapping[str, Any] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
    threads: int | None = None,
    options: ReportOptions | None = None,
) -> Report:
    """A report about a model, which runs for it: times, accuracy of every step, findings, memory and feature maps.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        feed: an array for every input; random numbers by default.
        sizes: for dynamic dimensions by name, used for random numbers.
        compat: how the model is read where the standard's text and ONNX Runtime differ.
        index_space: in which tensor MaxUnpool's indices count where that is not certain.
        exact: whether unpool runs every MaxPool, and forms every product of a ConvTranspose.
        threads: maximum number of threads of unpool and of onnxruntime; None for all cores.
        options: the parts that take long; by default the model is timed and every step is evaluated once more.

    Raises:
        UnpoolError: the model cannot be read or run, or an input is missing or does not fit.

    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink_and_grow (float[1, 1, 4] x) => (float[1, 1, 4] z) {
    ...         y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
    ...         z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
    ...     }''')
    >>> result = report(model, options=ReportOptions(effort=None, accuracy=False))
    >>> print(result)
    a model in memory: opset ai.onnx 17
    check: nothing found
    memory: about 16.0 MiB (at the peak of a run; 40 bytes of values between steps)
    steps: 2 (2 on unpool)
    >>> result.html[:15]
    '<!doctype html>'
    """
    options = options or ReportOptions()
    settings = {"compat": compat, "index_space": index_space, "exact": exact, "threads": threads}
    session = _session(source, settings)
    if feed is None:
        inputs: Feed = random_feed(session.get_inputs(), sizes or {})
    else:
        inputs = {name: value if isinstance(value, list) else np.asarray(value) for name, value in feed.items()}
    findings = lint(source)
    tracer = pools = StepTracer(session, source, inputs)
    tracer.run(tracer.checker(threads) if options.accuracy else None)
    if any(record.runner != "unpool" for record in tracer.plan if record.operator == "MaxPool"):
        # a second run, in which unpool has every MaxPool, so that the input of each can be drawn
        pools = StepTracer(_session(source, {**settings, "exact": True}), source, inputs)
        pools.run()
    count = threads or available_cores()
    return Report(
        model=Path(source).name if isinstance(source, str | os.PathLike) else "a model in memory",
        opsets=tracer.opsets,
        inputs={name: _type_and_shape(value) for name, value in inputs.items()},
        plan=tracer.plan,
        times=None if options.effort is None else _times(source, inputs, options.effort, settings),
        accuracy=tuple(tracer.accuracy),
        findings=findings,
        memory=tracer.memory(),
        maps=tuple(pools.maps[:MAX_MAPS]),
        map_count=len(pools.maps),
        windows=dict(pools.windows),
        machine=(
            f"{platform.system()} {platform.machine()}, {count} thread{'s' * (count > 1)}, unpool {version('unpool')}, "
            f"onnxruntime {onnxruntime.__version__}, Python {platform.python_version()}"
        ),
        date=datetime.now().astimezone(),
        has_random_inputs=feed is None,
    )


def _session(source: ModelSource, settings: Mapping[str, Any]) -> InferenceSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # it is in the plan on the page
        return InferenceSession(source, **settings)


def _type_and_shape(value: Any) -> str:
    kind, shape, _ = describe(value)
    return kind if shape is None else f"{kind} {'×'.join(map(str, shape)) or 'scalar'}"


def _times(source: ModelSource, feed: Feed, effort: Effort, settings: Mapping[str, Any]) -> ModelTimes:
    """The times of a model; the processes that measure them read it from a file."""
    if isinstance(source, str | os.PathLike):
        return bench(source, feed, effort, **settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(serialize(load(source), "report"))
        return bench(path, feed, effort, **settings)
