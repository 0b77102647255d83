"""What happens in the process of one engine: it is asked for a result to compare, or for a time."""

import math
import time
import zlib
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import OWN, POOLED, Case
from benchmarks.engines import EVERY, UNPOOL, operator
from benchmarks.mechanisms import MECHANISMS
from unpool.runtime.measure.timing import Effort, Timing, measure, samples_of, summarize, uncollected

WARM = Effort(warmup=5, repetitions=3, seconds=0, limit=0.5)
TURN = Effort(repetitions=1, seconds=0.015, limit=0.015)
"""So short that the machine is as fast for one side as for the other."""
AGAIN = Effort(repetitions=1, seconds=0.01, limit=0.01)
"""Calls that are not counted, at least one: what ran in between took the caches."""

_kept: list[Any] = []


@dataclass(frozen=True)
class Refused:
    """The engine does not do it; `why` in one line."""

    why: str


def start(engine: str, threads: int, without: str | None = None) -> None:
    """Import the engine; called once in its process, which does without a mechanism of unpool if one is named."""
    if without is not None:
        MECHANISMS[without].take_out()
    import_module(EVERY[engine].module).start(threads)


def version(engine: str) -> str:
    """The engine's version."""
    return str(import_module(EVERY[engine].module).version())


def home() -> Path:
    """The folder that this process has unpool from."""
    return Path(str(import_module(UNPOOL).__file__)).resolve().parent


def answer(engine: str, case: Case, threads: int) -> tuple[np.ndarray, ...] | Refused:
    """What the engine makes of inputs that are the same in every process."""
    seed = zlib.crc32(case.path.encode())
    arrays = operator(case).arrays(case, np.random.default_rng(seed))
    try:
        ready = import_module(EVERY[engine].module).prepare(case, arrays, _default(engine), threads)
        return tuple(np.ascontiguousarray(array) for array in ready.read(ready.call()))
    except Exception as error:
        return _refused(engine, error)


def timed(engine: str, case: Case, outputs: str, threads: int, effort: Effort) -> Timing | Refused:
    """The engine's time on inputs of this process's own; its first call includes loading and compiling the model."""
    arrays = operator(case).arrays(case, np.random.default_rng())
    begin = time.perf_counter()
    try:
        ready = import_module(EVERY[engine].module).prepare(case, arrays, outputs, threads)
        prepared = time.perf_counter() - begin
        timing = measure(ready.call, effort)
    except Exception as error:
        return _refused(engine, error)
    return replace(timing, first=timing.first + prepared)


def keep(engine: str, case: Case, threads: int) -> Refused | None:
    """Make one call of the engine ready for `turn` and `several`, on inputs of this process's own, and warm it up."""
    arrays = operator(case).arrays(case, np.random.default_rng())
    try:
        ready = import_module(EVERY[engine].module).prepare(case, arrays, _default(engine), threads)
        _kept[:] = [ready.call, measure(ready.call, WARM)]
    except Exception as error:
        return _refused(engine, error)
    return None


def turn() -> Timing:
    """The time of the call that is kept, in one short turn."""
    call, known = _kept
    call()  # what ran in between took the caches
    return summarize(samples_of(call, known.median, TURN), known.first)


def several(count: int) -> list[float]:
    """Seconds of so many calls, one after the other, of the call that is kept, once its data is in the caches again."""
    call = _kept[0]
    with uncollected():
        samples_of(call, math.inf, AGAIN)
        return samples_of(call, math.inf, Effort(repetitions=count, seconds=0, limit=math.inf))


def _default(engine: str) -> str:
    return POOLED if engine == UNPOOL else OWN


def _refused(engine: str, error: Exception) -> Refused:
    """Peers may refuse; ours may not."""
    if engine == UNPOOL:
        raise error
    words = " ".join(str(error).split())
    return Refused(f"{type(error).__name__}: {words[:160]}")
