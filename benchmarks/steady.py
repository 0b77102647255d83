"""How steady whole networks run: many runs of each engine, in short turns, on a quiet and on a busy machine."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks import worker
from benchmarks.case import Case
from benchmarks.engines import EVERY, MULTIPLICATIONS, TUNED, UNPOOL
from benchmarks.machine import Machine, cpu_name
from benchmarks.measure import SETTLE, say, today
from benchmarks.pair import Side, process
from benchmarks.rows import SteadyRow, read
from benchmarks.tables import milliseconds

PEERS = ("onnxruntime", "openvino")
ASKED = (UNPOOL, TUNED.name, *PEERS, MULTIPLICATIONS.name)
"""Who runs every network, where it is not refused."""

TURN = 20
"""Runs of an engine, one after the other, at most."""

TURN_SECONDS = 2.0
"""Of the slowest engine, that its turn takes at most, but for two runs: machines are slow for seconds at a time."""

LEAST_TURNS = 10
"""Of each engine, however few runs are asked for: a slow spell is not to meet all runs of one of them."""

LEAST_SECONDS = 2.0
"""Of the slowest engine, in all its turns."""


@dataclass(frozen=True)
class Runs:
    """What one engine did with one network, in seconds.

    Attributes:
        case: the network.
        who: the engine; with what unpool did without, if it did.
        seconds: of every run.
    """

    case: Case
    who: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of all runs."""
        return float(np.median(self.seconds))

    @property
    def p95(self) -> float:
        """One run in twenty takes longer."""
        return float(np.percentile(self.seconds, 95))


def steady(cases: Sequence[Case], without: Sequence[str], threads: int, runs: int, load: int) -> list[Runs]:
    """Run the networks, each engine in a process of its own, some runs at a time, in turn.

    Args:
        cases: networks.
        without: mechanisms of `mechanisms.py`; for each, unpool runs once more, without it.
        threads: for every engine.
        runs: of each engine and network, at least; further ones until all engines have had enough turns.
        load: other processes that keep a core busy meanwhile.
    """
    sides = {UNPOOL: (UNPOOL, Side()), **{f"unpool without {one}": (UNPOOL, Side(without=one)) for one in without}}
    sides |= {EVERY[name].title: (name, Side()) for name in ASKED[1:]}
    found = []
    with ExitStack() as stack:
        pools = {who: stack.enter_context(process(side, threads, name)) for who, (name, side) in sides.items()}
        stack.enter_context(_busy(load))
        for case in cases:
            offered = {}
            for who, pool in pools.items():
                refused = pool.submit(worker.keep, sides[who][0], case, threads).result()
                if refused is None:
                    offered[who] = pool
            some = [Runs(case, who, tuple(seconds)) for who, seconds in _turns(offered, runs).items()]
            for one in some:
                say(f"{case.name}: {one.who} {milliseconds(one.median)} ms, 95th percentile {milliseconds(one.p95)}")
            found += some
    return found


def rows_of(found: Sequence[Runs], threads: int, load: int) -> list[SteadyRow]:
    """What is kept: the engines of ASKED, without those that did without a mechanism."""
    cpu, date = cpu_name(), today()
    names = {engine.title: name for name, engine in EVERY.items()}
    asked = [EVERY[name].title for name in ASKED]
    versions = {who: import_module(EVERY[names[who]].module).version() for who in asked}
    return [
        SteadyRow(
            name_of(one.case), names[one.who], versions[one.who], load, cpu, threads,
            len(one.seconds), min(one.seconds), one.median, one.p95, date,
        )
        for one in found if one.who in versions
    ]  # fmt: skip


def kept_runs(folder: Path, machine: Machine) -> list[SteadyRow]:
    """Those of a machine, from the results in a folder."""
    rows = read(folder / "steady.csv", SteadyRow)
    return [row for row in rows if (row.cpu, row.threads) == (machine.cpu, machine.threads)]


def name_of(case: Case) -> str:
    """As results have it: with its shape."""
    return f"{case.name} {case.title}"


def _turns(pools: dict[str, ProcessPoolExecutor], runs: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {who: [] for who in pools}
    longest = max(min(pool.submit(worker.several, 2).result()) for pool in pools.values())
    turn = max(2, min(TURN, int(TURN_SECONDS / longest)))
    least = max(LEAST_TURNS, ceil(runs / turn))
    number = 0
    while number < least or max(map(sum, seconds.values())) < LEAST_SECONDS:
        names = list(pools) if number % 2 == 0 else list(pools)[::-1]
        for who in names:
            time.sleep(SETTLE)
            seconds[who] += pools[who].submit(worker.several, turn).result()
        number += 1
    return seconds


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Other processes, each of which keeps a core busy."""
    others = [get_context("spawn").Process(target=_spin, daemon=True) for _ in range(count)]
    for one in others:
        one.start()
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.join()


def _spin() -> None:
    while True:
        pass
