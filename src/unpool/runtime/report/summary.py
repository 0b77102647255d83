"""A report in a few lines."""

from collections import Counter
from collections.abc import Iterable, Iterator

from unpool.runtime.report.accuracy import StepAccuracy
from unpool.runtime.report.contents import Contents


def summary(report: Contents) -> Iterator[tuple[str, str]]:
    """What is told first, as titles and texts."""
    opsets = ", ".join(f"{name} {number}".strip() for name, number in report.opsets.items())
    yield "model", f"{report.model}, opset {opsets}"
    yield "steps", _steps(report)
    if report.times is not None:
        yield "time", speed(report)
    if report.accuracy:
        yield "accuracy", worst(report.accuracy)
    count = len(report.findings)
    yield "check", f"{count} finding{'s' * (count > 1)}" if count else "nothing found"
    yield "memory", _memory(report)


def speed(report: Contents) -> str:
    """How long a run takes, and which of the two runtimes is faster."""
    times = report.times
    if times is None:
        return "not measured"
    own = f"{milliseconds(times.unpool.median)} ms"
    if times.onnxruntime is None or times.ratio is None:
        return f"{own}; onnxruntime cannot run it: {times.refusal}"
    words = f"{times.ratio:.2f} times faster" if times.ratio >= 1 else f"{1 / times.ratio:.2f} times slower"
    return f"{own}, onnxruntime {milliseconds(times.onnxruntime.median)} ms: unpool is {words}"


def worst(steps: Iterable[StepAccuracy]) -> str:
    """The largest error of a step, against float64 on the values that the step read."""
    steps = list(steps)
    known = [one for one in steps if not one.exact.refusal]
    left = len(steps) - len(known)
    more = f"; {left} of {len(steps)} steps not evaluated" if left else ""
    found = max(known, key=lambda one: one.exact.largest, default=None)
    if found is None:
        return f"unknown{more}"
    if not found.exact.largest:
        return f"no element is off{more}"
    return f"{scientific(found.exact.largest)} of the largest value at most, in {found.node}{more}"


def milliseconds(seconds: float) -> str:
    """Three decimals at most, and fewer of long times.

    >>> milliseconds(0.0012345), milliseconds(0.5)
    ('1.234', '500')
    """
    value = seconds * 1e3
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


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


def _steps(report: Contents) -> str:
    runners = Counter(step.runner for step in report.plan.steps)
    if len(runners) == 1:
        return f"{len(report.plan.steps)}, all on {next(iter(runners))}"
    return f"{len(report.plan.steps)}: " + ", ".join(f"{count} on {name}" for name, count in runners.most_common())


def _memory(report: Contents) -> str:
    memory = report.memory
    alive = f"values take {size(max(memory.alive, default=0))} at once"
    return alive if memory.forecast is None else f"{alive}, a run about {size(memory.forecast)} at its peak"
