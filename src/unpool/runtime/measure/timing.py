"""Measures how long a call takes: repeats it often enough, and gives the median and the spread."""

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

SHORTEST_SAMPLE = 20e-6  # seconds; shorter calls are timed several at once, so that the clock does not count


@dataclass(frozen=True)
class Effort:
    """The minimum number of samples of a call, and of seconds for all of them, after some calls that do not count.

    No new sample begins after `limit` seconds, however few there are.
    """

    warmup: int = 3
    repetitions: int = 12
    seconds: float = 0.2
    limit: float = 1.0


@dataclass(frozen=True)
class Timing:
    """Seconds per call, and their number; `first` is the first call, with all that it compiles and allocates."""

    median: float
    p20: float
    p80: float
    p95: float
    first: float
    samples: int


def summarize(samples: Sequence[float], first: float) -> Timing:
    """Median, spread and number of samples in seconds per call; percentiles between two are interpolated."""
    p20, median, p80, p95 = np.percentile(samples, [20, 50, 80, 95]).tolist()
    return Timing(median, p20, p80, p95, first, len(samples))


def measure(call: Callable[[], object], effort: Effort) -> Timing:
    """Time a call that may be repeated; garbage is collected before, not meanwhile."""
    first = warm = _seconds(call)
    end = time.perf_counter() + effort.limit
    for _ in range(effort.warmup):
        if time.perf_counter() + warm > end:
            break
        warm = _seconds(call)
    with uncollected():
        return summarize(samples_of(call, warm, effort), first)


def samples_of(call: Callable[[], object], about: float, effort: Effort) -> list[float]:
    """Seconds per call, where one call takes `about` that many; short calls are timed several at once."""
    samples: list[float] = []
    batch, begin = max(1, math.ceil(SHORTEST_SAMPLE / about)), time.perf_counter()
    while True:
        samples.append(_seconds(call, batch))
        elapsed = time.perf_counter() - begin
        if elapsed >= effort.limit or (elapsed >= effort.seconds and len(samples) >= effort.repetitions):
            return samples


def _seconds(call: Callable[[], object], batch: int = 1) -> float:
    begin = time.perf_counter()
    for _ in range(batch):
        call()
    return max((time.perf_counter() - begin) / batch, 1e-9)


@contextmanager
def uncollected() -> Iterator[None]:
    """A block before which garbage is collected, and in which it is not."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
