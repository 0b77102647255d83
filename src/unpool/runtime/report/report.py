"""A report about a model, as a few lines and as one HTML page that needs no other file and no network.

One run, node by node, gives accuracy, memory and feature maps.
"""

import base64
import hashlib
import os
import platform
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpool.display import display_line
from unpool.execute import available_cores
from unpool.files import write
from unpool.graph.load import ModelSource, load
from unpool.graph.random_inputs import random_feed
from unpool.graph.weights import serialize
from unpool.onnxruntime.package import onnxruntime
from unpool.runtime.lint.lint import lint
from unpool.runtime.lint.rules import Findings
from unpool.runtime.measure.bench import ModelTimes, bench
from unpool.runtime.measure.timing import Effort
from unpool.runtime.report.accuracy import NodeAccuracy
from unpool.runtime.report.feature_maps import MapPair
from unpool.runtime.report.tracer import MODEL_INPUT, MemoryUse, NodeRow, Tracer, describe, node_title
from unpool.runtime.report.window_drawing import EXAMPLES, WindowSettings, asset, drawing_context, script, templates
from unpool.runtime.runtimes import Feed, open_session

DEFAULT_EFFORT = Effort(warmup=2, repetitions=10, seconds=0.2, limit=10)
MAX_MAPS = 12  # pairs of feature maps on a page


@dataclass(frozen=True)
class Report:
    """A report about a model and one set of inputs; `print` shows its summary, `save` writes its page.

    `inputs` are type and shape by name, `times` None without timing, and `accuracy` empty without the check of every
    node. `maps` are the first of `map_count` pairs, before and after poolings and unpoolings; `windows` have titles.
    """

    model: str
    opsets: Mapping[str, int]
    inputs: Mapping[str, str]
    nodes: tuple[NodeRow, ...]
    times: ModelTimes | None
    accuracy: tuple[NodeAccuracy, ...]
    findings: Findings
    memory: MemoryUse
    maps: tuple[MapPair, ...]
    map_count: int
    windows: Mapping[str, WindowSettings]
    machine: str
    date: datetime
    has_random_inputs: bool

    @property
    def html(self) -> str:
        """The page, which needs no other file and no network."""
        return _page(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file in an existing folder."""
        write(Path(path), self.html.encode())

    @property
    def lines(self) -> list[str]:
        """The lines of the summary."""
        facts = [f"{self.model}: opset {_opsets(self)}", *map(str, _summary(self))]
        return [display_line(fact) for fact in facts]

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class ReportOptions:
    """The parts of a report that take long: timed runs, None for none, and the accuracy of every node."""

    effort: Effort | None = DEFAULT_EFFORT
    accuracy: bool = True


def report(  # noqa: PLR0913  options by keyword only, those of a session among them
    source: ModelSource,
    feed: Mapping[str, Any] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    layout: str = "NCHW",
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
    threads: int | None = None,
    options: ReportOptions | None = None,
) -> Report:
    """A report about a model, which runs for it: times, accuracy of every node, findings, memory and feature maps.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        feed: an array for every input; random numbers by default.
        sizes: for dynamic dimensions by name, used for random numbers.
        layout: "NCHW" where inputs have channels before the spatial axes, or "NHWC", for the forecast of the memory.
        compat: how the model is read where the standard's text and ONNX Runtime differ.
        index_space: in which tensor MaxUnpool's indices count where that is not certain.
        exact: whether unpool runs every MaxPool, and forms every product of a ConvTranspose.
        threads: maximum number of threads of unpool and of onnxruntime; None for all cores.
        options: the parts that take long; by default the model is timed and every node is evaluated once more.

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
    memory: about 16.0 MiB (at the peak of a run; 40 bytes of values alive)
    nodes: 2 (2 on unpool)
    >>> result.html[:15]
    '<!doctype html>'
    """
    options = options or ReportOptions()
    settings = {"compat": compat, "index_space": index_space, "exact": exact, "threads": threads}
    session = open_session(source, **settings)
    if feed is None:
        inputs: Feed = random_feed(session.get_inputs(), sizes or {})
    else:
        inputs = {name: value if isinstance(value, list) else np.asarray(value) for name, value in feed.items()}
    findings = lint(source)
    tracer = Tracer(session, source, inputs)
    tracer.run(threads, checks_accuracy=options.accuracy)
    described, count = ((name, describe(value)) for name, value in inputs.items()), threads or available_cores()
    return Report(
        model=Path(source).name if isinstance(source, str | os.PathLike) else "a model in memory",
        opsets=tracer.opsets,
        inputs={
            name: kind if shape is None else f"{kind} {'×'.join(map(str, shape)) or 'scalar'}"
            for name, (kind, shape, _) in described
        },
        nodes=tuple(tracer.rows),
        times=None if options.effort is None else _times(source, inputs, options.effort, settings),
        accuracy=tuple(tracer.accuracy),
        findings=findings,
        memory=tracer.memory(layout),
        maps=tuple(tracer.maps[:MAX_MAPS]),
        map_count=len(tracer.maps),
        windows=dict(tracer.windows),
        machine=(
            f"{platform.system()} {platform.machine()}, {count} thread{'s' * (count > 1)}, unpool {version('unpool')}, "
            f"onnxruntime {onnxruntime.__version__}, Python {platform.python_version()}"
        ),
        date=datetime.now().astimezone(),
        has_random_inputs=feed is None,
    )


def _times(source: ModelSource, feed: Feed, effort: Effort, settings: Mapping[str, Any]) -> ModelTimes:
    """The times of a model, which the processes that measure them read from a file."""
    if isinstance(source, str | os.PathLike):
        return bench(source, feed, effort, **settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(serialize(load(source), "report"))
        return bench(path, feed, effort, **settings)


class Fact(NamedTuple):
    """A fact at the beginning of a report, with a value of a few words."""

    title: str
    value: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.title}: {self.value}" + (f" ({self.detail})" if self.detail else "")


def _page(report: Report) -> str:
    """The page; its content security policy blocks everything outside the file, and every script but its own."""
    environment, filters = templates().overlay(), (milliseconds, percent, scientific, format_bytes, node_title)
    environment.filters = {**environment.filters, **{function.__name__: function for function in filters}}
    html = environment.get_template("page.html.jinja").render(
        report=report,
        facts=list(_summary(report)),
        opsets=_opsets(report),
        times={} if report.times is None else {time.node: time for time in report.times.nodes},
        other_times=_other_times(report),
        model_input=MODEL_INPUT,
        style=asset("page.css") + asset("drawing.css"),
        script=script(),
        script_digest=base64.b64encode(hashlib.sha256(script().encode()).digest()).decode(),
        **drawing_context(report.windows or EXAMPLES),
    )
    return html.lstrip() + "\n"


def _other_times(report: Report) -> str:
    """The time of the nodes that only a profile knows: those that onnxruntime fuses, and its changes of layout."""
    if report.times is None:
        return ""
    known = {row.node for row in report.nodes}
    others = sum(time.seconds for time in report.times.nodes if time.node not in known)
    return f"Nodes that onnxruntime has made of others take {milliseconds(others)} ms."


def _summary(report: Report) -> Iterator[Fact]:
    """The facts at the beginning of a report: time, ceiling, check, accuracy, memory and nodes."""
    if report.times is not None:
        yield _speed(report.times)
        if report.times.ceiling is not None:
            share = f"MaxPool, MaxUnpool and ConvTranspose take {report.times.operator_share:.0%} of onnxruntime's time"
            yield Fact("most to gain", f"{report.times.ceiling:.2f} times faster than onnxruntime", share)
    count = len(report.findings)
    yield Fact("check", f"{count} finding{'s' * (count > 1)}" if count else "nothing found")
    if report.accuracy:
        yield _worst_accuracy(report.accuracy)
    live = f"{format_bytes(max(report.memory.live_bytes, default=0))} of values alive"
    peak = report.memory.peak_bytes
    parts = (live,) if peak is None else (f"about {format_bytes(peak)}", f"at the peak of a run; {live}")
    yield Fact("memory", *parts)
    runners = Counter(row.runner for row in report.nodes)
    counts = ", ".join(f"{count} on {name}" for name, count in runners.most_common())
    yield Fact("nodes", str(len(report.nodes)), counts)


def _opsets(report: Report) -> str:
    return ", ".join(f"{name or 'ai.onnx'} {number}" for name, number in report.opsets.items())


def _speed(times: ModelTimes) -> Fact:
    own = f"{milliseconds(times.unpool.median)} ms"
    if times.onnxruntime is None or times.ratio is None:
        return Fact("time", own, f"onnxruntime cannot run it: {times.refusal}")
    ratio = f"{times.ratio:.2f} times faster" if times.ratio >= 1 else f"{1 / times.ratio:.2f} times slower"
    return Fact("time", own, f"{ratio} than onnxruntime, {milliseconds(times.onnxruntime.median)} ms")


def _worst_accuracy(nodes: Sequence[NodeAccuracy]) -> Fact:
    """The largest error of a node, against float64 on the values that the node read."""
    errors = [(node.float64.error, node.node) for node in nodes if node.float64 is not None]
    failures = len(nodes) - len(errors)
    note = f"{failures} of {len(nodes)} nodes not evaluated" if failures else ""
    if not errors:
        return Fact("accuracy", "unknown", note)
    error, node = max(errors, key=lambda pair: pair[0])
    if not error:
        return Fact("accuracy", "no element is off", note)
    where = f"of the largest value, the worst of all nodes: {node}"
    return Fact("accuracy", scientific(error), "; ".join(filter(None, (where, note))))


def milliseconds(seconds: float) -> str:
    """Milliseconds with three decimals, or fewer for long times.

    >>> milliseconds(0.0012345), milliseconds(0.5)
    ('1.234', '500')
    """
    value = seconds * 1e3
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def percent(share: float) -> str:
    """A share in percent, without decimals."""
    return "<1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def scientific(value: float) -> str:
    """A small number in two digits."""
    return f"{value:.1e}" if value else "0"


def format_bytes(count: int) -> str:
    """Bytes with their unit.

    >>> format_bytes(64), format_bytes(3 << 20)
    ('64 bytes', '3.0 MiB')
    """
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} bytes"
