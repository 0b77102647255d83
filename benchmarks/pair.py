"""Times unpool against another checkout of itself: case by case, in turn, each in a process of its own."""

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from benchmarks import worker
from benchmarks.case import POOLED, Case
from benchmarks.engines import UNPOOL
from benchmarks.measure import SETTLE, say
from benchmarks.tables import milliseconds
from unpool.runtime.table import table
from unpool.runtime.timing import Effort, Timing

TURNS = 4
NOISE = 0.03
"""A row is called slower or faster from this share on."""


@dataclass(frozen=True)
class Pair:
    """What one case took: the other checkout's times, then ours, one of each per turn."""

    case: Case
    turns: tuple[tuple[Timing, Timing], ...]

    @property
    def ratio(self) -> float:
        """Our time over the other's, of medians in the same turn; the median over all turns."""
        return median(ours.median / other.median for other, ours in self.turns)

    @property
    def fastest(self) -> float:
        """Our smallest median over the other's: what is left when noise hits neither."""
        return min(ours.median for _, ours in self.turns) / min(other.median for other, _ in self.turns)

    @property
    def is_slower(self) -> bool:
        """Whether both ratios say so, by more than the noise."""
        return min(self.ratio, self.fastest) > 1 + NOISE


def pairs(other: Path, cases: Sequence[Case], threads: int, rounds: int, effort: Effort) -> list[Pair]:
    """Time the cases in both checkouts.

    Args:
        other: the folder that the other checkout's package `unpool` lies in.
        cases: in this order.
        threads: for both.
        rounds: each with new processes, new inputs and TURNS turns of each case; who begins alternates.
        effort: of every single measurement.

    Raises:
        ValueError: there is no package in that folder.
    """
    if not (other / "unpool" / "__init__.py").is_file():
        raise ValueError(f"{other}: expected a folder with the package unpool, such as the src of a checkout.")
    turns: dict[str, list[tuple[Timing, Timing]]] = {case.path: [] for case in cases}
    for number in range(rounds):
        with ExitStack() as stack:
            both = [stack.enter_context(_process(folder, threads)) for folder in (other, None)]
            for case in cases:
                turns[case.path] += _turns(both, case, threads, effort)
                found = Pair(case, tuple(turns[case.path]))
                say(f"round {number + 1}: {case.path} {case.title}: {found.ratio:.3f}")
    return [Pair(case, tuple(turns[case.path])) for case in cases]


def report(found: Sequence[Pair]) -> str:
    """A table, the slowest first, and how many rows are slower."""
    rows = [
        (
            f"{pair.case.path} {pair.case.title}",
            *_sides(pair, "median"),
            *_sides(pair, "p95"),
            f"{pair.ratio:.3f}",
            f"{pair.fastest:.3f}",
            "slower" if pair.is_slower else "",
        )
        for pair in sorted(found, key=lambda pair: -pair.ratio)
    ]
    heads = ("case", "before, ms", "after, ms", "before, p95", "after, p95", "ratio", "ratio of minima", "")
    slower = sum(pair.is_slower for pair in found)
    return f"{table(heads, rows)}\n{len(found)} cases, {slower} slower by more than {NOISE:.0%}"


def _sides(pair: Pair, figure: str) -> tuple[str, ...]:
    sides = zip(*pair.turns, strict=True)
    return tuple(milliseconds(median(getattr(timing, figure) for timing in side)) for side in sides)


def _turns(
    both: Sequence[ProcessPoolExecutor], case: Case, threads: int, effort: Effort
) -> list[tuple[Timing, Timing]]:
    found = []
    for turn in range(TURNS):
        times = {}
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            time.sleep(SETTLE)
            times[side] = both[side].submit(worker.timed, UNPOOL, case, POOLED, threads, effort).result()
        found.append((times[0], times[1]))
    return found


@contextmanager
def _process(folder: Path | None, threads: int) -> Iterator[ProcessPoolExecutor]:
    """A process that imports unpool from a folder; None for where this process has it from."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=worker.start, initargs=(UNPOOL, threads)) as pool:
        with _first_on_path(folder):  # a new process is given this one's path
            home = pool.submit(worker.home).result()
        if folder is not None and not home.is_relative_to(folder.resolve()):
            raise ValueError(f"{folder}: expected its own unpool, got that in {home}. Remove what is installed.")
        yield pool


@contextmanager
def _first_on_path(folder: Path | None) -> Iterator[None]:
    if folder is None:
        yield
        return
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path.pop(0)
