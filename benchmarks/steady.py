"""How steady whole networks run: many runs of each engine, in short turns, on a quiet and on a busy machine."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean
from typing import TypeVar

import numpy as np

from benchmarks import worker
from benchmarks.case import Case
from benchmarks.engines import EVERY, TUNED, UNPOOL
from benchmarks.machine import Machine, cpu_name
from benchmarks.measure import SETTLE, say, today
from benchmarks.pair import Side, process
from benchmarks.rows import SteadyRow, read
from benchmarks.shapes import PUBLISHED
from benchmarks.tables import in_markdown, milliseconds, times
from unpool.runtime.table import table

PEERS = ("onnxruntime", "openvino")

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
    sides |= {EVERY[name].title: (name, Side()) for name in (TUNED.name, *PEERS)}
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
    """What is kept: the engines themselves, without those that did without a mechanism."""
    cpu, date = cpu_name(), today()
    names = {engine.title: name for name, engine in EVERY.items()}
    asked = [EVERY[name].title for name in (UNPOOL, TUNED.name, *PEERS)]
    versions = {who: import_module(EVERY[names[who]].module).version() for who in asked}
    return [
        SteadyRow(
            _name(one.case), names[one.who], versions[one.who], load, cpu, threads,
            len(one.seconds), min(one.seconds), one.median, one.p95, date,
        )
        for one in found if one.who in versions
    ]  # fmt: skip


def kept_runs(folder: Path, machine: Machine) -> list[SteadyRow]:
    """Those of a machine, from the results in a folder."""
    rows = read(folder / "steady.csv", SteadyRow)
    return [row for row in rows if (row.cpu, row.threads) == (machine.cpu, machine.threads)]


def markdown(rows: Sequence[SteadyRow]) -> str:
    """A table of what was kept: median and 95th percentile of each engine, and the best peer's median over ours."""
    ours = (UNPOOL, TUNED.name)
    engines = (*ours, *PEERS)
    lines: list[list[str]] = []
    for load in dict.fromkeys(row.load for row in rows):
        cases = dict.fromkeys(row.case for row in rows if row.load == load)
        gains: dict[str, list[float]] = {}
        for case in cases:
            some = {row.engine: row for row in rows if (row.case, row.load) == (case, load)}
            best = min(row.median for name, row in some.items() if name not in ours)
            gains[case] = [best / some[name].median for name in ours]
            cells = [f"{milliseconds(some[name].median)} / {milliseconds(some[name].p95)}" if name in some else "–"
                     for name in engines]  # fmt: skip
            lines.append([f"{'busy: ' * (load > 0)}{case}", *cells, *map(times, gains[case])])
        for title, each in _groups(gains).items():
            means = [times(geometric_mean(some)) for some in zip(*each, strict=True)]
            lines.append([f"{'busy: ' * (load > 0)}geometric mean{title}", *[""] * len(engines), *means])
    titles = ["network", *(EVERY[name].title for name in engines), *(f"{EVERY[name].title}, × best" for name in ours)]
    return in_markdown(titles, 1, lines)


_Gain = TypeVar("_Gain")


def _groups(gains: Mapping[str, _Gain]) -> dict[str, list[_Gain]]:
    """Of all networks, by "", and before that, where there are others too, of those of PUBLISHED."""
    published = [gain for case, gain in gains.items() if case in {_name(each) for each in PUBLISHED}]
    every = list(gains.values())
    return {" at published widths": published, "": every} if 0 < len(published) < len(every) else {"": every}


def _name(case: Case) -> str:
    return f"{case.name} {case.title}"


def report(found: Sequence[Runs]) -> str:
    """A table, network by network, and how much faster unpool is than the fastest peer, untuned and tuned."""
    rows: list[tuple[str, ...]] = []
    gains: dict[str, dict[str, float]] = {}
    for case in {_name(one.case): one.case for one in found}.values():
        some = [one for one in found if one.case is case]
        best = min(one.median for one in some if not one.who.startswith(UNPOOL))
        for one in some:
            if one.who in (UNPOOL, TUNED.title):
                gains.setdefault(one.who, {})[_name(case)] = best / one.median
        rows += [
            (
                _name(case),
                one.who,
                milliseconds(min(one.seconds)),
                milliseconds(one.median),
                milliseconds(one.p95),
                f"{one.p95 / one.median:.2f}",
                f"{best / one.median:.2f}" if one.who.startswith(UNPOOL) else "",
            )
            for one in some
        ]
    heads = ("network", "engine", "fastest, ms", "median, ms", "p95, ms", "p95 / median", "times the best peer")
    means = [
        f"{who} against the best peer, geometric mean{title}: {geometric_mean(each):.2f}"
        for who, some in gains.items()
        for title, each in _groups(some).items()
    ]
    return "\n".join([table(heads, rows), *means])


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
