"""Who computes what when in a run of a network: each step's time, and what the threads of each house did meanwhile."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import unpool
from benchmarks.case import Case
from benchmarks.network import arrays, model
from unpool.display import table
from unpool.runtime.backends.step import ScheduledStep
from unpool.runtime.session.passthrough import OrtModel

TASKS = Path("/proc/self/task")

WARMUP = 3
"""Runs that do not count."""


@dataclass(frozen=True)
class Span:
    """One step of one run, in milliseconds.

    Attributes:
        name: of its nodes.
        runner: who runs it.
        wall: from its begin to its end.
        caller: what the calling thread computed meanwhile.
        ours: what the other threads of unpool computed.
        theirs: what the threads of its partitions computed.
    """

    name: str
    runner: str
    wall: float
    caller: float
    ours: float
    theirs: float


class Tracer:
    """Takes the place of a session's profile: it is told of every step of a run when that is over."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._begin()

    def add_step(self, entry: ScheduledStep, _: Any, start: int) -> None:
        """A step is over that began at this time of `time.perf_counter_ns`."""
        wall, caller = (time.perf_counter_ns() - start) / 1e6, (time.thread_time_ns() - self._caller) / 1e6
        used = {name: done - self._seen.get(name, 0) for name, done in computed().items()}
        del used[threading.get_native_id()]  # which Linux counts in steps of some milliseconds while it runs
        known = {thread.native_id for thread in threading.enumerate()}
        ours = sum(each for name, each in used.items() if name in known)
        self.spans.append(Span(entry.name, entry.step.runner, wall, caller, ours, sum(used.values()) - ours))
        self._begin()

    def add(self, *_: Any) -> None:
        """A run is over; nothing is noted."""

    def _begin(self) -> None:
        self._seen = computed()
        self._caller = time.thread_time_ns()


def computed() -> dict[int, float]:
    """Milliseconds that each thread of this process has computed, by the number that Linux gives it."""
    found = {}
    for task in TASKS.iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e6
    return found


def timeline(case: Case, threads: int, runs: int) -> list[Span]:
    """The steps of one run of a network; each time is the median over so many.

    Raises:
        ValueError: this is not Linux, which alone says what each thread computes.
    """
    if not TASKS.is_dir():
        raise ValueError("timeline: expected Linux, which counts what each thread computes. Run it there.")
    given = arrays(case, np.random.default_rng())
    return trace(unpool.InferenceSession(model(case, given).SerializeToString(), threads=threads), given, runs)


def trace(session: unpool.InferenceSession, given: Mapping[str, np.ndarray], runs: int) -> list[Span]:
    """The steps of a session; none where onnxruntime runs its whole model. Each time is the median of so many runs."""
    tuner = session._shape_tuner
    executor: Any = session._model if tuner is None else tuner.latest
    if isinstance(executor, OrtModel):
        return []
    names = [output.name for output in session.get_outputs()]
    before, all_runs = executor.profile, []
    try:
        for _ in range(runs + WARMUP):
            executor.profile = tracer = Tracer()
            executor.run(names, dict(given))
            all_runs.append(tracer.spans)
    finally:
        executor.profile = before
    return [_median(spans) for spans in zip(*all_runs[WARMUP:], strict=True)]


def _median(spans: Sequence[Span]) -> Span:
    wall, caller, ours, theirs = (
        float(np.median([getattr(span, name) for span in spans])) for name in ("wall", "caller", "ours", "theirs")
    )
    return Span(spans[0].name, spans[0].runner, wall, caller, ours, theirs)


def report(case: Case, spans: Sequence[Span], threads: int) -> str:
    """A table of the steps in order, and how much of the cores' time was used."""
    rows, begin = [], 0.0
    for span in spans:
        busy = (span.caller + span.ours + span.theirs) / (threads * span.wall)
        numbers = (begin, span.wall, span.caller, span.ours, span.theirs)
        rows.append((span.name, span.runner, *(f"{number:.2f}" for number in numbers), f"{busy:.0%}"))
        begin += span.wall
    used = sum(span.caller + span.ours + span.theirs for span in spans)
    heads = (
        "step",
        "runner",
        "begins, ms",
        "takes, ms",
        "caller",
        "unpool's threads",
        "partition's threads",
        "cores busy",
    )
    return f"{case.name} {case.title}\n{table(heads, rows)}\n{begin:.1f} ms, cores busy {used / (threads * begin):.0%}"
