"""A GPU as benchmarks see it: its name, its clock, and what it can do at most."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks.measure import EngineError

WARMUP = 10
SAMPLES = 100
SECONDS = 0.5
"""No new sample begins after so many on the device, however few there are."""

MAX_BUSY = 0.01
"""Seconds that a device is kept busy before a sample, at most."""

_COPIED = 2 << 30
_SIDE = 8192
_TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Device:
    """What a GPU does.

    Attributes:
        name: its own.
        copy: bytes per second, read and written, of a copy far larger than its cache.
        flops: operations per second of a large product of matrices, by type.
    """

    name: str
    copy: float
    flops: dict[str, float]


@dataclass(frozen=True)
class Samples:
    """Seconds of a step on the device: the median, and what one step in twenty takes at least."""

    median: float
    p95: float


def summary(seconds: Sequence[float]) -> Samples:
    """What samples say together.

    >>> summary([1.0, 5.0, 3.0, 2.0])
    Samples(median=2.5, p95=5.0)
    """
    ordered = sorted(seconds)
    return Samples(median(ordered), ordered[max(0, math.ceil(len(ordered) * 0.95) - 1)])


def check_device() -> None:
    """There is a GPU to measure on.

    Raises:
        EngineError: there is none.
    """
    if not torch.cuda.is_available():
        raise EngineError(
            "gpu: expected an NVIDIA GPU that torch can use, found none with torch "
            f"{torch.__version__}. Run this on a machine with one, where a CUDA build of torch and "
            "pip install '.[gpu]' are installed."
        )


class Clock:
    """Times steps by the device's own events, each after its cache was written full of something else."""

    def __init__(self) -> None:
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self._other = torch.empty(max(4 * cache, 256 << 20), dtype=torch.uint8, device="cuda")
        found = []
        for _ in range(WARMUP):
            before, after = self.marks()
            before.record()
            self._other.zero_()
            after.record()
            found.append(self.seconds(before, after))
        self._seconds = median(found)

    def flush(self, host: float) -> None:
        """Write over what the cache holds, and keep the device busy while a step is queued in `host` seconds.

        Otherwise the device would wait for the host between two kernels of a step.
        """
        for _ in range(1 + math.ceil(min(host, MAX_BUSY) / self._seconds)):
            self._other.zero_()

    def marks(self) -> tuple[Any, Any]:
        """Events before and after a step."""
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def seconds(self, before: Any, after: Any) -> float:
        """Between two events, once the second one has happened."""
        after.synchronize()
        return float(before.elapsed_time(after)) / 1e3


def timed(step: Callable[[], object], clock: Clock) -> Samples:
    """How long a step takes on the device."""
    host = 0.0
    for _ in range(WARMUP):
        begin = perf_counter()
        step()
        host = perf_counter() - begin
    found: list[float] = []
    while len(found) < SAMPLES and sum(found) < SECONDS:
        clock.flush(2 * host)
        before, after = clock.marks()
        before.record()
        step()
        after.record()
        found.append(clock.seconds(before, after))
    return summary(found)


def measured(clock: Clock) -> Device:
    """What the device at hand can do."""
    x = torch.randn(_COPIED // 4, device="cuda")
    y = torch.empty_like(x)
    copy = 2 * _COPIED / timed(lambda: y.copy_(x), clock).median
    return Device(torch.cuda.get_device_name(0), copy, {kind: _multiplied(kind, clock) for kind in _TYPES})


def _multiplied(kind: str, clock: Clock) -> float:
    a, b = (torch.randn(_SIDE, _SIDE, device="cuda").to(getattr(torch, kind)) for _ in range(2))
    return 2 * _SIDE**3 / timed(lambda: a @ b, clock).median
