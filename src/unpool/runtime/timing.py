"""How long a call takes: repeated until it is known, and described by its median and its spread."""

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
    """How often a call is repeated.

    Attributes:
        warmup: calls that do not count, the first one left out; fewer where they take longer than `limit`.
        repetitions: at least so many samples,
        seconds: and samples for at least so long,
        limit: but no new sample after so many seconds, once there is one.
    """

    warmup: int = 3
    repetitions: int = 12
    seconds: float = 0.2
    limit: float = 1.0


@dataclass(frozen=True)
class Timing:
    """What was measured, in seconds per call.

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
    return summarize(_samples(call, max(1, math.ceil(SHORTEST_SAMPLE / warm)), effort), first)


def _samples(call: Callable[[], object], batch: int, effort: Effort) -> list[float]:
    samples: list[float] = []
    with _uncollected():
        begin = time.perf_counter()
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
def _uncollected() -> Iterator[None]:
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
