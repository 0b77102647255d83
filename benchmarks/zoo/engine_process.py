"""The process of one engine: it loads a model of the zoo, compares a first run with torch's result, and is timed."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.engines import EVERY, TUNED, UNPOOL
from benchmarks.worker import AGAIN, Refused
from benchmarks.zoo.model_file import ModelFile
from unpool.memory import peak_rss, rss
from unpool.runtime.measure.timing import Effort, samples_of, uncollected

STEP_RUNS = 5
"""Whose median is the time of a step."""

TOLERANCE = 1e-3
"""The error of floats over the largest value."""

Feeds: TypeAlias = dict[str, np.ndarray]
Run: TypeAlias = Callable[[Feeds], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Loaded:
    """A model that an engine has loaded and run once.

    Attributes:
        load: seconds, from the file to a session.
        first: seconds of the first run.
        error: largest difference from torch's result over the largest value, but for a share of the numbers.
    """

    load: float
    first: float
    error: float


class Current:
    """The run that this process is asked for, its inputs, unpool's session, and the resident bytes before that."""

    run: Callable[[], object]
    inputs: Feeds
    session: Any = None
    resident: int = 0


def start(engine: str, threads: int) -> None:
    """Import the engine with its session, whose time and memory are not those of a model; once in its process."""
    import_module(EVERY[engine].module).start(threads)
    if engine in (UNPOOL, TUNED.name):
        import_module("unpool.onnxruntime.session_model")  # which a first load imports


def load(engine: str, file: ModelFile, threads: int) -> Loaded | Refused:
    """Load a model and run it once; the result must be torch's, but for the share of the file."""
    inputs, expected = file.load_arrays()
    Current.resident = rss()
    _reset_peak()
    begin = time.perf_counter()
    try:
        run = open_model(engine, file.model, threads, inputs)
        end = time.perf_counter()
        outputs = run(inputs)
        first = time.perf_counter() - end
        error = difference(expected, outputs, file.share)
    except Exception as failure:
        words = " ".join(str(failure).split())
        return Refused(f"{type(failure).__name__}: {words[:200]}")
    if error > TOLERANCE:
        return Refused(f"another result than torch: error {error:.1e} of the largest value")
    Current.run, Current.inputs = lambda: run(inputs), inputs
    return Loaded(end - begin, first, error)


def open_model(engine: str, path: Path, threads: int, inputs: Feeds) -> Run:
    """A function that runs the model on inputs by name, such as these, on which a session is tuned."""
    if engine in (UNPOOL, TUNED.name):
        import unpool

        Current.session = session = unpool.InferenceSession(path, threads=threads, tune=engine == TUNED.name and inputs)
        return lambda feeds: session.run(None, feeds)
    module: Any = import_module(EVERY[engine].module)
    return module.runner(str(path), threads)  # type: ignore[no-any-return]


def turn(runs: int, seconds: float, limit: float) -> list[float]:
    """Seconds of at least so many runs in a row, or more until the time is over; the first ones are not counted.

    No run begins after `limit` seconds.
    """
    with uncollected():
        samples_of(Current.run, math.inf, AGAIN)
        return samples_of(Current.run, math.inf, Effort(repetitions=runs, seconds=seconds, limit=limit))


def steps() -> str:
    """The nodes that unpool computes in its session, in order; "onnxruntime" where it computes none."""
    return ", ".join(row.node for row in Current.session.plan if row.runner == UNPOOL) or "onnxruntime"


def peak() -> int:
    """Largest number of resident bytes so far, above those before the model was loaded."""
    return max(0, peak_rss() - Current.resident)


def difference(expected: Sequence[np.ndarray], outputs: Sequence[np.ndarray], share: float = 0.0) -> float:
    """The largest error of all outputs, but for a share of the numbers of each; infinity for another shape.

    >>> difference([np.float32([1, 4])], [np.float32([1, 3])])
    0.25
    >>> difference([np.float32([1, 1, 1, 1, 4])], [np.float32([1, 1, 1, 1, 3])], share=0.25)
    0.0
    """
    if len(expected) != len(outputs) or any(a.shape != b.shape for a, b in zip(expected, outputs, strict=True)):
        return math.inf
    return max((_error(a, b, share) for a, b in zip(expected, outputs, strict=True) if a.size), default=0.0)


def _error(expected: np.ndarray, output: np.ndarray, share: float) -> float:
    if expected.dtype.kind != "f":
        return float(np.quantile(np.where(expected == output, 0.0, 1.0), 1 - share, method="lower"))
    largest = max(float(np.abs(expected).max()), float(np.finfo(np.float32).tiny))
    errors = np.abs(expected.astype(np.float64) - output) / largest
    errors[~np.isfinite(errors)] = math.inf
    return float(np.quantile(errors, 1 - share, method="lower"))


def _reset_peak() -> None:
    """Forget the peak so far, which imports may have reached; only Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
