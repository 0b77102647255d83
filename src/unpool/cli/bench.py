"""The work of `unpool bench`: a feed for the model, its times, and what is printed about them."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unpool.cli.feeds import one_feed
from unpool.cli.model import SessionOptions, open_session, slots
from unpool.cli.upgrade import sizes_of
from unpool.runtime.measure.bench import ModelTimes, StepTime, bench
from unpool.runtime.measure.timing import Effort, Timing
from unpool.runtime.session.random_inputs import random_feed
from unpool.runtime.table import table

TITLES = ("node", "runs on", "ms", "share", "onnxruntime ms", "times faster")
CLOSE = 1e-3  # of the largest value; what sums in another order differ by


def bench_file(
    path: Path, inputs: Sequence[str], sizes: Sequence[str], options: SessionOptions, effort: Effort
) -> ModelTimes:
    """Time a model on files, or without any on random numbers.

    Args:
        path: ONNX file.
        inputs: `-i` arguments for one run.
        sizes: `--size` arguments, for inputs made of random numbers.
        options: of our session.
        effort: how often it runs.
    """
    session = open_session(path, options)
    feed = one_feed(inputs, slots(session)) if inputs else random_feed(session.get_inputs(), sizes_of(sizes))
    words = {"compat": str(options.compat), "index_space": str(options.index_space)}
    return bench(path, feed, effort, **words, exact=options.exact, threads=options.threads)


def effort_of(warmup: int, iterations: int) -> Effort:
    """Runs that do not count and runs that do, whatever time they take."""
    return Effort(warmup, iterations, seconds=0, limit=math.inf)


def report(times: ModelTimes) -> list[str]:
    """A table of the steps, and lines about the whole model."""
    rows = [_row(step) for step in times.steps]
    count = "1 thread" if times.threads == 1 else f"{times.threads} threads"
    lines = [*table(TITLES, rows).splitlines(), "", f"whole model, {count}: unpool {_spread(times.unpool)}"]
    if times.onnxruntime is None or times.ratio is None:
        return [*lines, f"onnxruntime cannot run it: {times.refusal}"]
    lines[-1] += f", onnxruntime {_spread(times.onnxruntime)}: unpool is {_faster(times.ratio)}"
    if times.difference is not None and times.difference > CLOSE:
        lines.append(f"the two differ by up to {times.difference:.1g} of the largest value: they compute other things")
    return lines


def to_json(times: ModelTimes, path: Path) -> dict[str, Any]:
    """The same as JSON types, in seconds; an infinite difference becomes null with `is_equal` false."""
    known = times.difference is not None and math.isfinite(times.difference)
    return {
        "model": str(path),
        **asdict(times),
        "ratio": times.ratio,
        "difference": times.difference if known else None,
        "is_equal": times.difference is None or times.difference <= CLOSE,
    }


def _row(step: StepTime) -> tuple[str, ...]:
    if step.onnxruntime is None:
        theirs, ratio = "-", "-"
    else:
        theirs = _milliseconds(step.onnxruntime)
        ratio = f"{step.onnxruntime / step.seconds:.2f}" if step.seconds else "-"
    return step.node, step.runner, _milliseconds(step.seconds), f"{step.share:.1%}", theirs, ratio


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _spread(timing: Timing) -> str:
    return f"{_milliseconds(timing.median)} ms ({_milliseconds(timing.p20)} to {_milliseconds(timing.p80)})"


def _faster(ratio: float) -> str:
    """Who wins.

    >>> _faster(1.5), _faster(0.5)
    ('1.50 times faster', '2.00 times slower')
    """
    return f"{ratio:.2f} times faster" if ratio >= 1 else f"{1 / ratio:.2f} times slower"
