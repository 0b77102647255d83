"""Timing of calls in turns, and the choice of the fastest.

The candidates round differently. So nothing is timed unless the caller asks for it.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence

from unpool.kernels.cpu.tuning import TRIALS


def time_calls(
    calls: Mapping[str, Callable[[], object]],
    seconds: float = math.inf,
    settle: float = 0.0,
    turn: float = TRIALS.turn,
    typical: Callable[[Sequence[float]], float] = min,
) -> dict[str, float]:
    """Seconds of each call; they take turns, so that a slow moment of the machine affects all.

    Each call is warmed up once and gets a turn, however long that takes; after `seconds` no further turn begins. In a
    turn, a call is repeated for `turn` seconds. With `settle`, each turn begins with that many seconds of sleep, while
    threads of the previous call park. Unless calls are long, a call that is not timed follows: it fills the caches.
    `typical` is the statistic of the shortest times of all turns.
    """
    end = time.perf_counter() + seconds
    for call in calls.values():
        call()  # compiles, packs weights, takes memory
    times = {name: [_seconds(call, settle, turn)] for name, call in calls.items()}
    least = min(times.values())[0]
    near = [name for name, (first,) in times.items() if first <= TRIALS.far * least]
    for _ in range(TRIALS.turns - 1 if len(near) > 1 else 0):
        if time.perf_counter() > end:
            break
        for name in near:
            times[name].append(_seconds(calls[name], settle, turn))
    return {name: typical(turns) for name, turns in times.items()}


def fastest(times: Mapping[str, float], default: str, margin: float = TRIALS.margin) -> str:
    """The name of the shortest time; the default, unless the gain exceeds a margin.

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
        if seconds > TRIALS.long:
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
