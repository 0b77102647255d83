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
    """Number of repetitions of a call.

    Attributes:
        warmup: calls between the first and the first sample, that do not count; fewer if they exceed `limit`.
        repetitions: minimum number of samples.
        seconds: minimum time of all samples together.
        limit: seconds after which no new sample begins, however few there are.
    """

    warmup: int = 3
    repetitions: int = 12
    seconds: float = 0.2
    limit: float = 1.0


@dataclass(frozen=True)
class Timing:
    """Measured times, in seconds per call: median and percentiles of a number of samples.

    `first` is the first call, with all that it compiles and allocates.
    """

    median: float
    p20: float
    p80: float
    p95: float
    first: float
    samples: int


def summarize(samples: Sequence[float], first: float) -> Timing:
    """Median, spread and number of the samples, in seconds per call; percentiles between two are interpolated.

    >>> summarize([3.0, 1.0, 2.0, 6.0, 4.0, 5.0], first=9.0)
    Timing(median=3.5, p20=2.0, p80=5.0, p95=5.75, first=9.0, samples=6)
    """
    p20, median, p80, p95 = (float(value) for value in np.percentile(samples, [20, 50, 80, 95]))
    return Timing(median, p20, p80, p95, first, len(samples))


def measure(call: Callable[[], object], effort: Effort) -> Timing:
    """Time a call that may be repeated; garbage is collected before, not meanwhile."""
    first = _seconds(call)
    warm = first
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
        is_known = len(samples) >= effort.repetitions and elapsed >= effort.seconds
        if is_known or elapsed >= effort.limit:
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
