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
        warmup: calls between the first and the first sample, which do not count; fewer if they would take longer than
            `limit`.
        repetitions: samples at least.
        seconds: that all samples take together at least.
        limit: seconds after which no new sample begins, however few there are.
    """

    warmup: int = 3
    repetitions: int = 12
    seconds: float = 0.2
    limit: float = 1.0


@dataclass(frozen=True)
class Timing:
    """Measured times, in seconds per call.

    Attributes:
        median: of the samples.
        p20: one call in five is faster.
        p80: one call in five is slower.
        p95: one call in twenty is slower.
        first: the first call, with what it compiles and allocates.
        samples: how many there were.
    """

    median: float
    p20: float
    p80: float
    p95: float
    first: float
    samples: int


def summarize(samples: Sequence[float], first: float) -> Timing:
    """Median, spread and number of the samples; between two samples, percentiles are interpolated.

    Args:
        samples: seconds per call, at least one.
        first: seconds of the first call.

    >>> summarize([3.0, 1.0, 2.0, 6.0, 4.0, 5.0], first=9.0)
    Timing(median=3.5, p20=2.0, p80=5.0, p95=5.75, first=9.0, samples=6)
    """
    p20, median, p80, p95 = (float(value) for value in np.percentile(samples, [20, 50, 80, 95]))
    return Timing(median, p20, p80, p95, first, len(samples))


def measure(call: Callable[[], object], effort: Effort) -> Timing:
    """Time a call that may be repeated; garbage is collected before, not meanwhile.

    >>> measure(lambda: None, Effort(repetitions=3, seconds=0)).samples >= 3
    True
    """
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
    """Seconds per call, where one call takes about so many; short calls are timed several at once."""
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
    """Garbage is collected before what is done here, not meanwhile."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
