"""The contents of a report, in a few lines and as one HTML page that needs no other file and no network."""

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from unpool.display import display_line
from unpool.files import write
from unpool.runtime.lint.rules import Findings
from unpool.runtime.measure.bench import ModelTimes, StepTime
from unpool.runtime.plan.plan import Plan, PlanRow
from unpool.runtime.report.accuracy import StepAccuracy
from unpool.runtime.report.feature_maps import MapPair
from unpool.runtime.report.tracer import MODEL_INPUT, MemoryUse, node_title
from unpool.runtime.report.window_drawing import EXAMPLES, WindowSettings, asset, drawing_context, script, templates


@dataclass(frozen=True)
class Report:
    """A report about a model and one set of inputs; `print` shows its summary, `save` writes its page.

    `inputs` are type and shape by name, `times` None without timing, and `accuracy` empty without the check of every
    step. `maps` are the first of `map_count` pairs, before and after poolings and unpoolings; `windows` have titles.
    """

    model: str
    opsets: Mapping[str, int]
    inputs: Mapping[str, str]
    plan: Plan
    times: ModelTimes | None
    accuracy: tuple[StepAccuracy, ...]
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
        return page(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file in an existing folder."""
        write(Path(path), self.html.encode())

    @property
    def lines(self) -> list[str]:
        """The lines of the summary."""
        facts = [f"{self.model}: opset {format_opsets(self)}", *map(str, summary(self))]
        return [display_line(fact) for fact in facts]

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Fact(NamedTuple):
    """A fact at the beginning of a report, with a value of a few words."""

    title: str
    value: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.title}: {self.value}" + (f" ({self.detail})" if self.detail else "")


class _StepRow(NamedTuple):
    number: int
    rows: list[PlanRow]
    reasons: str
    time: StepTime | None


def page(report: Report) -> str:
    """The page; its content security policy blocks everything outside the file, and every script but its own."""
    environment, filters = templates().overlay(), (milliseconds, percent, scientific, format_bytes, node_title)
    environment.filters = {**environment.filters, **{function.__name__: function for function in filters}}
    html = environment.get_template("page.html.jinja").render(
        report=report,
        facts=list(summary(report)),
        opsets=format_opsets(report),
        steps=_step_rows(report),
        has_times=report.times is not None and bool(report.times.steps),
        other_times=_other_times(report.times),
        model_input=MODEL_INPUT,
        style=asset("page.css") + asset("drawing.css"),
        script=script(),
        script_digest=base64.b64encode(hashlib.sha256(script().encode()).digest()).decode(),
        **drawing_context(report.windows or EXAMPLES),
    )
    return html.lstrip() + "\n"


def _step_rows(report: Report) -> list[_StepRow]:
    by_step: dict[int, list[PlanRow]] = {}
    for row in report.plan:
        by_step.setdefault(row.step, []).append(row)
    steps = () if report.times is None else report.times.steps
    times = steps if len(steps) == len(by_step) else (None,) * len(by_step)
    return [
        _StepRow(number, rows, "; ".join(dict.fromkeys(row.reason for row in rows if row.reason)), time)
        for (number, rows), time in zip(by_step.items(), times, strict=True)
    ]


def _other_times(times: ModelTimes | None) -> str:
    """The time of the steps that onnxruntime's profile does not name, in both runtimes."""
    if times is None or times.onnxruntime is None:
        return ""
    profile = [step.onnxruntime for step in times.steps if step.onnxruntime is not None]
    own = sum(step.seconds for step in times.steps if step.onnxruntime is None)
    theirs = max(0.0, times.onnxruntime.median - sum(profile))
    return f"All other steps together: unpool {milliseconds(own)} ms, onnxruntime about {milliseconds(theirs)} ms."


def summary(report: Report) -> Iterator[Fact]:
    """The facts at the beginning of a report: time, check, accuracy, memory and steps."""
    if report.times is not None:
        yield _speed(report.times)
    count = len(report.findings)
    yield Fact("check", f"{count} finding{'s' * (count > 1)}" if count else "nothing found")
    if report.accuracy:
        yield _worst_accuracy(report.accuracy)
    live = f"{format_bytes(max(report.memory.live_bytes, default=0))} of values between steps"
    peak = report.memory.peak_bytes
    parts = (live,) if peak is None else (f"about {format_bytes(peak)}", f"at the peak of a run; {live}")
    yield Fact("memory", *parts)
    runners = Counter(step.runner for step in report.plan.steps)
    counts = ", ".join(f"{count} on {name}" for name, count in runners.most_common())
    yield Fact("steps", str(len(report.plan.steps)), counts)


def format_opsets(report: Report) -> str:
    """The versions of the domains that the model imports."""
    return ", ".join(f"{name or 'ai.onnx'} {number}" for name, number in report.opsets.items())


def _speed(times: ModelTimes) -> Fact:
    own = f"{milliseconds(times.unpool.median)} ms"
    if times.onnxruntime is None or times.ratio is None:
        return Fact("time", own, f"onnxruntime cannot run it: {times.refusal}")
    ratio = f"{times.ratio:.2f} times faster" if times.ratio >= 1 else f"{1 / times.ratio:.2f} times slower"
    return Fact("time", own, f"{ratio} than onnxruntime, {milliseconds(times.onnxruntime.median)} ms")


def _worst_accuracy(steps: Sequence[StepAccuracy]) -> Fact:
    """The largest error of a step, against float64 on the values that the step read."""
    errors = [(step.float64.error, step.node) for step in steps if step.float64 is not None]
    failures = len(steps) - len(errors)
    note = f"{failures} of {len(steps)} steps not evaluated" if failures else ""
    if not errors:
        return Fact("accuracy", "unknown", note)
    error, node = max(errors, key=lambda pair: pair[0])
    if not error:
        return Fact("accuracy", "no element is off", note)
    where = f"of the largest value, the worst of all steps: {node}"
    return Fact("accuracy", scientific(error), "; ".join(filter(None, (where, note))))


def milliseconds(seconds: float) -> str:
    """Milliseconds with three decimals, or fewer for long times.

    >>> milliseconds(0.0012345), milliseconds(0.5)
    ('1.234', '500')
    """
    value = seconds * 1e3
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def percent(share: float) -> str:
    """A share in percent, without decimals.

    >>> percent(0.004), percent(0.0), percent(0.25)
    ('<1 %', '0 %', '25 %')
    """
    return "<1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def scientific(value: float) -> str:
    """A small number in two digits.

    >>> scientific(0), scientific(1.234e-7)
    ('0', '1.2e-07')
    """
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
