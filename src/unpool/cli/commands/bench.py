"""`unpool bench`: times of a model and of its steps, next to onnxruntime."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpool.cli.errors import guard
from unpool.cli.options import (
    Compat,
    CompatWord,
    Exact,
    IndexSpace,
    IndexWord,
    Json,
    ModelPath,
    RunInputs,
    Size,
    Threads,
    parse_sizes,
)

if TYPE_CHECKING:
    from unpool.runtime.measure.bench import ModelTimes, StepTime
    from unpool.runtime.measure.timing import Timing

TITLES = ("node", "runs on", "ms", "share", "onnxruntime ms", "times faster")
CLOSE = 1e-3
"""Of the largest value: what sums in another order differ by."""


def bench(
    model: ModelPath,
    inputs: RunInputs = None,
    size: Size = None,
    warmup: Annotated[int, typer.Option(min=0, help="Runs that do not count.")] = 3,
    iterations: Annotated[int, typer.Option(min=1, help="Runs that count.")] = 20,
    threads: Threads = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    as_json: Json = False,
) -> None:
    """Time a model and each of its steps, next to onnxruntime; each runs in a process of its own.

    Example: unpool bench segnet.onnx --size height=360 --size width=480
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.feed import one_feed
        from unpool.cli.model import SessionOptions, open_session, slots
        from unpool.runtime.measure.bench import bench as time_model
        from unpool.runtime.measure.timing import Effort
        from unpool.runtime.session.random_inputs import random_feed

        options = SessionOptions(compat, index_space, exact, threads)
        session = open_session(model, options)
        feed = (
            one_feed(inputs, slots(session)) if inputs else random_feed(session.get_inputs(), parse_sizes(size or ()))
        )
        effort = Effort(warmup, iterations, seconds=0, limit=math.inf)
        times = time_model(model, feed, effort, **options.semantics, threads=threads)
        console.say_report(report_lines(times), _document(times, model), as_json)


def report_lines(times: "ModelTimes") -> list[str]:
    """A table of the steps, and lines about the whole model."""
    from unpool.runtime.table import table

    rows = [_row(step) for step in times.steps]
    count = "1 thread" if times.threads == 1 else f"{times.threads} threads"
    lines = [*table(TITLES, rows).splitlines(), "", f"whole model, {count}: unpool {_spread(times.unpool)}"]
    if times.onnxruntime is None or times.ratio is None:
        return [*lines, f"onnxruntime cannot run it: {times.refusal}"]
    lines[-1] += f", onnxruntime {_spread(times.onnxruntime)}: unpool is {_faster(times.ratio)}"
    if times.difference is not None and times.difference > CLOSE:
        lines.append(f"the two differ by up to {times.difference:.1g} of the largest value: they compute other things")
    return lines


def _document(times: "ModelTimes", path: Path) -> dict[str, Any]:
    """The same as JSON types, in seconds; an infinite difference becomes null with `is_equal` false."""
    is_finite = times.difference is not None and math.isfinite(times.difference)
    return {
        "model": str(path),
        **asdict(times),
        "ratio": times.ratio,
        "difference": times.difference if is_finite else None,
        "is_equal": times.difference is None or times.difference <= CLOSE,
    }


def _row(step: "StepTime") -> tuple[str, ...]:
    if step.onnxruntime is None:
        theirs, ratio = "-", "-"
    else:
        theirs = _milliseconds(step.onnxruntime)
        ratio = f"{step.onnxruntime / step.seconds:.2f}" if step.seconds else "-"
    return step.node, step.runner, _milliseconds(step.seconds), f"{step.share:.1%}", theirs, ratio


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _spread(timing: "Timing") -> str:
    return f"{_milliseconds(timing.median)} ms ({_milliseconds(timing.p20)} to {_milliseconds(timing.p80)})"


def _faster(ratio: float) -> str:
    """The ratio of two times in words.

    >>> _faster(1.5), _faster(0.5)
    ('1.50 times faster', '2.00 times slower')
    """
    return f"{ratio:.2f} times faster" if ratio >= 1 else f"{1 / ratio:.2f} times slower"
