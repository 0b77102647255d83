"""Runs a model, watches every step, and collects what one page says about it."""

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

from unpool.display import display_line
from unpool.execute import available_cores
from unpool.files import write
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.serialized import serialize
from unpool.runtime.lint.lint import lint
from unpool.runtime.measure.bench import ModelTimes, bench
from unpool.runtime.measure.timing import Effort
from unpool.runtime.report.contents import Contents
from unpool.runtime.report.page import page
from unpool.runtime.report.summary import opsets, summary
from unpool.runtime.report.watching import Feed, Seen
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.random_inputs import random_feed
from unpool.runtime.session.session import FallbackWarning, InferenceSession

USUAL_EFFORT = Effort(warmup=2, repetitions=10, seconds=0.2, limit=10)
MOST_MAPS = 12
"""Pairs of feature maps on a page."""


@dataclass(frozen=True)
class Wanted:
    """How much work a report is.

    Attributes:
        effort: how often the model runs to be timed; None for no times.
        accuracy: whether every step is evaluated once more in float64.
    """

    effort: Effort | None = USUAL_EFFORT
    accuracy: bool = True


class Report(Contents):
    """A report as a page; `print` shows it in short."""

    @property
    def html(self) -> str:
        """The page: it needs no other file and no network."""
        return page(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page.

        Raises:
            MissingFileError: its folder does not exist.
            FileError: it cannot be written.
        """
        write(Path(path), self.html.encode())

    @property
    def lines(self) -> list[str]:
        """What `print` shows, line by line."""
        facts = [f"{self.model}: opset {opsets(self)}", *map(str, summary(self))]
        return [display_line(one) for one in facts]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def report(
    source: ModelSource,
    feed: Mapping[str, Any] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
    threads: int | None = None,
    wanted: Wanted | None = None,
) -> Report:
    """What one page says about a model: it runs, it is timed, and every step is held against other evaluations.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        feed: an array for every input; random numbers by default.
        sizes: for names of sizes that the model leaves open, used for random numbers.
        compat: how the model is read where the standard's text and ONNX Runtime differ.
        index_space: in which tensor MaxUnpool's indices count where that is not certain.
        exact: whether unpool runs every MaxPool, and forms every product of a ConvTranspose.
        threads: at most so many, for unpool and for onnxruntime; None for all cores.
        wanted: how much work it is; by default the model is timed and every step is evaluated.

    Raises:
        UnpoolError: the model cannot be read or run, or an input is missing or does not fit.

    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink_and_grow (float[1, 1, 4] x) => (float[1, 1, 4] z) {
    ...         y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
    ...         z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
    ...     }''')
    >>> done = report(model, wanted=Wanted(effort=None, accuracy=False))
    >>> print(done)
    a model in memory: opset ai.onnx 17
    check: nothing found
    memory: about 16.0 MiB (at the peak of a run; 40 bytes of values between steps)
    steps: 2 (2 on unpool)
    >>> done.html[:15]
    '<!doctype html>'
    """
    wanted = wanted or Wanted()
    options = {"compat": compat, "index_space": index_space, "exact": exact, "threads": threads}
    session = _session(source, options)
    given = random_feed(session.get_inputs(), sizes or {}) if feed is None else _arrays(feed)
    findings = lint(source)
    seen = Seen(session, source, given)
    if wanted.accuracy:
        seen.judge(threads)
    seen.run()
    drawn = _drawn(seen, source, given, options)
    times = None if wanted.effort is None else _times(source, given, wanted.effort, options)
    return Report(
        model=Path(source).name if isinstance(source, str | os.PathLike) else "a model in memory",
        opsets=seen.opsets,
        inputs={name: _kind(value) for name, value in given.items()},
        plan=seen.plan,
        times=times,
        accuracy=tuple(seen.accuracy),
        findings=findings,
        memory=seen.memory(),
        maps=tuple(drawn.maps[:MOST_MAPS]),
        left_out=max(0, len(drawn.maps) - MOST_MAPS),
        windows=dict(drawn.windows),
        machine=_machine(threads),
        made=datetime.now().astimezone(),
        is_random=feed is None,
    )


def _drawn(seen: Seen, source: ModelSource, feed: Feed, options: Mapping[str, Any]) -> Seen:
    """A run in which unpool has every MaxPool, so that what each of them reads can be drawn."""
    if all(record.runner == "unpool" for record in seen.plan if record.operator == "MaxPool"):
        return seen
    other = Seen(_session(source, {**options, "exact": True}), source, feed)
    other.run()
    return other


def _arrays(feed: Mapping[str, Any]) -> Feed:
    return {name: value if isinstance(value, list) else np.asarray(value) for name, value in feed.items()}


def _session(source: ModelSource, options: Mapping[str, Any]) -> InferenceSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # the plan on the page says it
        return InferenceSession(source, **options)


def _times(source: ModelSource, feed: Feed, effort: Effort, options: Mapping[str, Any]) -> ModelTimes:
    """The times of a model, which other processes read from a file."""
    if isinstance(source, str | os.PathLike):
        return bench(source, feed, effort, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(serialize(load(source), "report"))
        return bench(path, feed, effort, **options)


def _kind(value: Any) -> str:
    return f"{value.dtype} {'×'.join(map(str, value.shape)) or 'scalar'}"


def _machine(threads: int | None) -> str:
    count = threads or available_cores()
    return (
        f"{platform.system()} {platform.machine()}, {count} thread{'s' * (count > 1)}, unpool {version('unpool')}, "
        f"onnxruntime {onnxruntime.__version__}, Python {platform.python_version()}"
    )
