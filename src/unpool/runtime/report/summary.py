"""A report in a few lines."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unpool.runtime.measure.bench import ModelTimes
from unpool.runtime.report.accuracy import StepAccuracy
from unpool.runtime.report.contents import Contents
from unpool.runtime.report.memory import Memory


class Fact(NamedTuple):
    """A fact at the beginning of a report: its title, a word or two, and what there is to add."""

    title: str
    words: str
    more: str = ""

    def __str__(self) -> str:
        return f"{self.title}: {self.words}" + (f" ({self.more})" if self.more else "")


def summary(report: Contents) -> Iterator[Fact]:
    """The facts that a report begins with: time, check, accuracy, memory and steps."""
    if report.times is not None:
        yield _speed(report.times)
    count = len(report.findings)
    yield Fact("check", f"{count} finding{'s' * (count > 1)}" if count else "nothing found")
    if report.accuracy:
        yield _worst(report.accuracy)
    yield _memory(report.memory)
    yield Fact("steps", str(len(report.plan.steps)), _runners(report))


def opsets(report: Contents) -> str:
    """The versions of the domains that the model imports."""
    return ", ".join(f"{name or 'ai.onnx'} {number}" for name, number in report.opsets.items())


def _speed(times: ModelTimes) -> Fact:
    """How long a run takes, and which of the two runtimes is faster."""
    own = f"{milliseconds(times.unpool.median)} ms"
    if times.onnxruntime is None or times.ratio is None:
        return Fact("time", own, f"onnxruntime cannot run it: {times.refusal}")
    words = f"{times.ratio:.2f} times faster" if times.ratio >= 1 else f"{1 / times.ratio:.2f} times slower"
    return Fact("time", own, f"{words} than onnxruntime, {milliseconds(times.onnxruntime.median)} ms")


def _worst(steps: Sequence[StepAccuracy]) -> Fact:
    """The largest error of a step, against float64 on the values that the step read."""
    known = [one for one in steps if not one.exact.refusal]
    left = f"{len(steps) - len(known)} of {len(steps)} steps not evaluated" if len(known) < len(steps) else ""
    found = max(known, key=lambda one: one.exact.largest, default=None)
    if found is None:
        return Fact("accuracy", "unknown", left)
    if not found.exact.largest:
        return Fact("accuracy", "no element is off", left)
    where = f"of the largest value, the worst of all steps: {found.node}"
    return Fact("accuracy", scientific(found.exact.largest), "; ".join(filter(None, (where, left))))


def milliseconds(seconds: float) -> str:
    """Three decimals at most, and fewer of long times.

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


def size(count: int) -> str:
    """Bytes in the unit that suits.

    >>> size(64), size(3 << 20)
    ('64 bytes', '3.0 MiB')
    """
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} bytes"


def _runners(report: Contents) -> str:
    runners = Counter(step.runner for step in report.plan.steps)
    return ", ".join(f"{count} on {name}" for name, count in runners.most_common())


def _memory(memory: Memory) -> Fact:
    alive = f"{size(max(memory.alive, default=0))} of values between steps"
    if memory.forecast is None:
        return Fact("memory", alive)
    return Fact("memory", f"about {size(memory.forecast)}", f"at the peak of a run; {alive}")
