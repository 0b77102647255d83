"""Times two unpools against each other: case by case, in turn, each in a process of its own."""

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import worker
from benchmarks.case import Case
from benchmarks.engines import UNPOOL
from benchmarks.measure import say
from benchmarks.tables import milliseconds
from unpool.display import table
from unpool.runtime.measure.timing import Timing

TURNS = 30
SETTLE = 0.002  # seconds in which the threads of the other side fall asleep
NOISE = 0.03
"""A row is called slower or faster from this share on."""


@dataclass(frozen=True)
class Side:
    """One of two unpools.

    Attributes:
        folder: that its package lies in; None for the one that this process has.
        without: a mechanism that it does without, of `mechanisms.py`.
    """

    folder: Path | None = None
    without: str | None = None


@dataclass(frozen=True)
class Pair:
    """What one case took: the other side's times, then ours, one of each per turn."""

    case: Case
    turns: tuple[tuple[Timing, Timing], ...]

    @property
    def ratio(self) -> float:
        """Our time over the other's, of medians in the same turn; the median over all turns."""
        return median(ours.median / other.median for other, ours in self.turns)

    @property
    def fastest(self) -> float:
        """The same of the fastest turns, of which one in ten is faster: what is left when noise hits neither."""
        theirs, ours = ([timing.median for timing in side] for side in zip(*self.turns, strict=True))
        return float(np.percentile(ours, 10) / np.percentile(theirs, 10))

    @property
    def is_slower(self) -> bool:
        """Whether both ratios say so, by more than the noise."""
        return min(self.ratio, self.fastest) > 1 + NOISE


def pairs(other: Side, cases: Sequence[Case], threads: int, rounds: int) -> list[Pair]:
    """Time the cases on the other side and on ours.

    Args:
        other: another checkout, or this one without something.
        cases: in this order.
        threads: for both.
        rounds: each with new processes, new inputs and TURNS turns of each case; who begins alternates.

    Raises:
        ValueError: there is no package in that folder.
    """
    if other.folder is not None and not (other.folder / "unpool" / "__init__.py").is_file():
        raise ValueError(f"{other.folder}: expected a folder with the package unpool, such as the src of a checkout.")
    turns: dict[str, list[tuple[Timing, Timing]]] = {case.path: [] for case in cases}
    for number in range(rounds):
        with ExitStack() as stack:
            both = [stack.enter_context(process(side, threads)) for side in (other, Side())]
            for case in cases:
                turns[case.path] += _turns(both, case, threads)
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
    heads = ("case", "before, ms", "after, ms", "before, p95", "after, p95", "ratio", "of fast turns", "")
    slower = sum(pair.is_slower for pair in found)
    return f"{table(heads, rows)}\n{len(found)} cases, {slower} slower by more than {NOISE:.0%}"


def _sides(pair: Pair, figure: str) -> tuple[str, ...]:
    sides = zip(*pair.turns, strict=True)
    return tuple(milliseconds(median(getattr(timing, figure) for timing in side)) for side in sides)


def _turns(both: Sequence[ProcessPoolExecutor], case: Case, threads: int) -> list[tuple[Timing, Timing]]:
    for process in both:
        process.submit(worker.keep, UNPOOL, case, threads).result()
    found = []
    for turn in range(TURNS):
        times = {}
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            time.sleep(SETTLE)
            times[side] = both[side].submit(worker.turn).result()
        found.append((times[0], times[1]))
    return found


@contextmanager
def process(side: Side, threads: int, engine: str = UNPOOL) -> Iterator[ProcessPoolExecutor]:
    """A process that has imported one side; or, with another engine, that."""
    context, folder = get_context("spawn"), side.folder
    given = engine, threads, side.without
    with ProcessPoolExecutor(1, context, initializer=worker.start, initargs=given) as pool:
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
