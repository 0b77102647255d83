"""What happens in the process of one engine: it is asked for a result to compare, or for a time."""

import time
import zlib
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np

from benchmarks.case import OWN, POOLED, Case
from benchmarks.engines import BY_NAME, UNPOOL, operator
from unpool.runtime.timing import Effort, Timing, measure


@dataclass(frozen=True)
class Refused:
    """The engine does not do it; `why` in one line."""

    why: str


def start(engine: str, threads: int) -> None:
    """Import the engine; called once in its process."""
    import_module(BY_NAME[engine].module).start(threads)


def version(engine: str) -> str:
    """The engine's version."""
    return str(import_module(BY_NAME[engine].module).version())


def home() -> Path:
    """The folder that this process has unpool from."""
    return Path(str(import_module(UNPOOL).__file__)).resolve().parent


def answer(engine: str, case: Case, threads: int) -> tuple[np.ndarray, ...] | Refused:
    """What the engine makes of inputs that are the same in every process."""
    seed = zlib.crc32(case.path.encode())
    arrays = operator(case).arrays(case, np.random.default_rng(seed))
    try:
        ready = import_module(BY_NAME[engine].module).prepare(case, arrays, _default(engine), threads)
        return tuple(np.ascontiguousarray(array) for array in ready.read(ready.call()))
    except Exception as error:
        return _refused(engine, error)


def timed(engine: str, case: Case, outputs: str, threads: int, effort: Effort) -> Timing | Refused:
    """The engine's time on inputs of this process's own; its first call includes loading and compiling the model."""
    arrays = operator(case).arrays(case, np.random.default_rng())
    begin = time.perf_counter()
    try:
        ready = import_module(BY_NAME[engine].module).prepare(case, arrays, outputs, threads)
        prepared = time.perf_counter() - begin
        timing = measure(ready.call, effort)
    except Exception as error:
        return _refused(engine, error)
    return replace(timing, first=timing.first + prepared)


def _default(engine: str) -> str:
    return POOLED if engine == UNPOOL else OWN


def _refused(engine: str, error: Exception) -> Refused:
    """Peers may refuse; ours may not."""
    if engine == UNPOOL:
        raise error
    words = " ".join(str(error).split())
    return Refused(f"{type(error).__name__}: {words[:160]}")
