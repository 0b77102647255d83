"""Which way to a ConvTranspose is the fastest on this machine: the ways are timed in turns, and what came out is kept.

Without it the cheapest way is taken, as `kernels/cpu/conv_transpose/costs.py` counts. All ways add the same products,
but they round differently: that is why nothing is timed unless somebody asks for it, and why what was found is kept
beside the machine code, so that a later process on the same machine computes the same.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.kernels.cpu.weights import own_weights
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import Shape

SECONDS = 30.0
"""For which a session times ways at most, if it is not told otherwise; kernels that are compiled meanwhile count."""

TURNS = 7
"""Of each way."""

TURN = 0.01
"""Seconds of a turn; a longer call is a turn of its own."""

FAR = 2.0
"""Times the fastest way, in its first turn, from which on a way gets no other."""

MARGIN = 0.08
"""A way must be faster than the cheapest one by so much, or that stays: less is lost again between other nodes."""

_log = logging.getLogger("unpool")


@dataclass(frozen=True)
class Trial:
    """The ConvTransposes of one kind.

    Attributes:
        spec: the attributes.
        x_shape: of X.
        w: the weights.
        threads: at most so many; None for all cores.
    """

    spec: ConvTransposeSpec
    x_shape: Shape
    w: AnyArray
    threads: int | None

    def prepared(self, way: str | None = None) -> PreparedConvTranspose:
        """The call, in a way of its own or the cheapest one."""
        w = (self.w.shape, self.w.dtype)
        return PreparedConvTranspose(replace(self.spec, way=way), self.x_shape, self.w.dtype, w, None)

    def call(self, way: str) -> Callable[[], object]:
        """Runs it on random inputs."""
        x = np.random.default_rng(0).standard_normal(self.x_shape, np.float32).astype(self.w.dtype)
        prepared, inputs = self.prepared(way), (x, own_weights(self.w))
        return lambda: prepared.run(inputs, (None,), self.threads)


class Tuner:
    """Times the ConvTransposes of one session, as long as its time lasts."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._left = seconds

    def tuned(self, name: str, trial: Trial) -> ConvTransposeSpec:
        """The spec with the fastest way, or as it was where time is up.

        Args:
            name: of the node, for the log.
            trial: what is to be timed.

        Raises:
            UnpoolError: shapes or types do not fit.
        """
        cheapest = trial.prepared()
        ways = cheapest.ways_in_question
        if len(ways) == 1:
            return trial.spec
        key = repr((trial.spec, trial.x_shape, trial.w.shape, trial.w.dtype.name, trial.threads))
        found = known(key)
        if found is None:
            if self._left <= 0:
                _log.info("tuning: %s goes by %s, untimed: the time is up.", name, cheapest.way)
                return trial.spec
            start = time.perf_counter()
            times = timed({way: trial.call(way) for way in ways})
            self._left -= time.perf_counter() - start
            found = fastest(times, cheapest.way)
            _log.info("tuning: %s goes by %s: %s.", name, found, text(times))
            keep(key, found)
        return replace(trial.spec, way=found)


def known(key: str) -> Any:
    """What was kept under a key on this machine; None where there is nothing."""
    from unpool.kernels.cpu.machine import kept_results

    return kept_results.find(key)


def keep(key: str, found: object) -> None:
    """Keep what was found beside the machine code, if that is possible."""
    from unpool.kernels.cpu.machine import kept_results

    kept_results.keep(key, found)


def timed(
    calls: Mapping[str, Callable[[], object]],
    seconds: float = math.inf,
    settle: float = 0.0,
    typical: Callable[[Sequence[float]], float] = min,
) -> dict[str, float]:
    """Seconds of each call; they take turns, so that a slow moment of the machine hits all.

    Args:
        calls: by name; each is made once before, and has a turn, whatever time that takes.
        seconds: after which no other turn begins.
        settle: seconds before each turn, and a call in it that does not count: so threads of another call fall asleep,
            and memory that it took from the caches comes back.
        typical: what counts of the fastest calls in all turns.
    """
    end = time.perf_counter() + seconds
    for call in calls.values():
        call()  # compiles, packs weights, takes memory
    times = {name: [_seconds(call, settle)] for name, call in calls.items()}
    least = min(times.values())[0]
    near = [name for name, (each,) in times.items() if each <= FAR * least]
    for _ in range(TURNS - 1 if len(near) > 1 else 0):
        if time.perf_counter() > end:
            break
        for name in near:
            times[name].append(_seconds(calls[name], settle))
    return {name: typical(each) for name, each in times.items()}


def fastest(times: Mapping[str, float], usual: str, margin: float = MARGIN) -> str:
    """The name of the least time; the usual one unless that is less by a margin.

    >>> fastest({"phases": 1.0, "winograd": 0.99}, "phases"), fastest({"phases": 1.0, "winograd": 0.9}, "phases")
    ('phases', 'winograd')
    """
    best = min(times, key=lambda name: times[name])
    return best if times[best] < times[usual] * (1 - margin) else usual


def _seconds(call: Callable[[], object], settle: float) -> float:
    """Of the fastest call in a turn."""
    if settle:
        time.sleep(settle)
        call()
    least, begin = math.inf, time.perf_counter()
    end = begin
    while end - begin < TURN:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        least = min(least, end - start)
    return least


def text(times: Mapping[str, float]) -> str:
    """The times for people, the shortest first."""
    return ", ".join(f"{name} {each * 1e3:.3g} ms" for name, each in sorted(times.items(), key=lambda one: one[1]))
