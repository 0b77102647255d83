"""Autotuning of ConvTranspose: times the algorithms on this machine, and stores the fastest.

Without it the algorithm of least cost is used (`kernels/cpu/conv_transpose`). All algorithms add the same
products but round differently. So nothing is timed unless the caller asks for it, and the result is stored next to the
machine code, so that later processes on the same machine compute the same.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.kernels.cpu.weights import own_weights
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import Shape

SECONDS = 30.0  # default time limit of a session's autotuning; compiling kernels counts
TURNS = 7  # of each algorithm
TURN = 0.01  # seconds of a turn, by default; a longer call is a turn of its own
LONG = 0.5  # seconds of a call that is timed at once: what fills caches again is a small part of it
FAR = 2.0  # an algorithm whose first turn takes this many times the shortest gets no other
MARGIN = 0.08  # least gain over the default, as a share of its time: less is lost again between other nodes

_log = logging.getLogger("unpool")


@dataclass(frozen=True)
class Trial:
    """A ConvTranspose to time."""

    spec: ConvTransposeSpec
    x_shape: Shape
    w: AnyArray
    threads: int | None  # maximum number; None for all cores

    def prepare(self, algorithm: str | None = None) -> PreparedConvTranspose:
        """The call by an algorithm, or by the one of least cost."""
        w = (self.w.shape, self.w.dtype)
        return PreparedConvTranspose(self.spec._replace(algorithm=algorithm), self.x_shape, self.w.dtype, w, None)

    def call(self, algorithm: str) -> Callable[[], object]:
        """A function that runs an algorithm on one random input."""
        x = np.random.default_rng(0).standard_normal(self.x_shape, np.float32).astype(self.w.dtype)
        prepared, inputs = self.prepare(algorithm), (x, own_weights(self.w))
        return lambda: prepared.run(inputs, (None,), self.threads)


class Tuner:
    """Tunes the ConvTransposes of one session, within a time limit."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds_left = seconds

    def tune(self, name: str, trial: Trial) -> ConvTransposeSpec:
        """The spec with the fastest algorithm, or unchanged once time is up; the name of the node is for the log."""
        default = trial.prepare()
        if len(default.algorithms) == 1:
            return trial.spec
        key = repr((trial.spec, trial.x_shape, trial.w.shape, trial.w.dtype.name, trial.threads))
        best = find_result(key)
        if best is None:
            if self._seconds_left <= 0:
                _log.info("tuning: %s goes by %s, untimed: the time is up.", name, default.algorithm)
                return trial.spec
            start = time.perf_counter()
            times = time_calls({algorithm: trial.call(algorithm) for algorithm in default.algorithms})
            self._seconds_left -= time.perf_counter() - start
            best = fastest(times, default.algorithm)
            _log.info("tuning: %s goes by %s: %s.", name, best, format_times(times))
            store_result(key, best)
        return trial.spec._replace(algorithm=best)


def find_result(key: str) -> Any:
    """The result that was stored under a key on this machine; None where there is none."""
    from unpool.kernels.cpu.machine import measurements

    return measurements.find_result(key)


def store_result(key: str, result: object) -> None:
    """Store a result for later processes on this machine, if that is possible."""
    from unpool.kernels.cpu.machine import measurements

    measurements.store_result(key, result)


def time_calls(
    calls: Mapping[str, Callable[[], object]],
    seconds: float = math.inf,
    settle: float = 0.0,
    turn: float = TURN,
    typical: Callable[[Sequence[float]], float] = min,
) -> dict[str, float]:
    """Seconds of each call; they take turns, so that a slow moment of the machine affects all.

    Each call is warmed up once and gets a turn, however long that takes; after `seconds` no other turn begins. With
    `settle`, each turn begins with so many seconds of sleep and, unless calls are long, with one that is not timed:
    threads of the call before park, and the caches fill again. A call is repeated for `turn` seconds. `typical` is the
    statistic of the shortest times of all turns.
    """
    end = time.perf_counter() + seconds
    for call in calls.values():
        call()  # compiles, packs weights, takes memory
    times = {name: [_seconds(call, settle, turn)] for name, call in calls.items()}
    least = min(times.values())[0]
    near = [name for name, (first,) in times.items() if first <= FAR * least]
    for _ in range(TURNS - 1 if len(near) > 1 else 0):
        if time.perf_counter() > end:
            break
        for name in near:
            times[name].append(_seconds(calls[name], settle, turn))
    return {name: typical(turns) for name, turns in times.items()}


def fastest(times: Mapping[str, float], default: str, margin: float = MARGIN) -> str:
    """The name of the least time; the default unless that is less by a margin.

    >>> fastest({"phases": 1.0, "winograd": 0.99}, "phases"), fastest({"phases": 1.0, "winograd": 0.9}, "phases")
    ('phases', 'winograd')
    """
    best = min(times, key=lambda name: times[name])
    return best if times[best] < times[default] * (1 - margin) else default


def _seconds(call: Callable[[], object], settle: float, turn: float) -> float:
    """The shortest time of a call in a turn."""
    if settle:
        time.sleep(settle)
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
        if seconds > LONG:
            return seconds
    least, begin = math.inf, time.perf_counter()
    end = begin
    while end - begin < turn:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        least = min(least, end - start)
    return least


def format_times(times: Mapping[str, float]) -> str:
    """The times in milliseconds, the shortest first."""
    return ", ".join(f"{name} {time * 1e3:.3g} ms" for name, time in sorted(times.items(), key=lambda pair: pair[1]))
