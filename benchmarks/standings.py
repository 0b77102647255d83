"""Rows of all rounds -> how each case stands: our time, the peers', the machine's limit and the goal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.case import Case, Goal
from benchmarks.engines import ENGINES, UNPOOL
from benchmarks.machine import Machine
from benchmarks.rows import MachineRow, Row, best_machine, read
from benchmarks.shapes import CASES


@dataclass(frozen=True)
class Standing:
    """One case with one kind of outputs.

    Attributes:
        case: what was measured.
        outputs: "pooled" or "fresh".
        ours: our best round.
        peers: by engine, its best round.
        limit: minimum seconds on this machine; 0 where it is not known.
    """

    case: Case
    outputs: str
    ours: Row
    peers: Mapping[str, Row]
    limit: float

    @property
    def goal(self) -> Goal | None:
        """What is to be reached."""
        return self.case.goals.get(self.outputs)

    @property
    def best_peer(self) -> Row | None:
        """The fastest peer."""
        return min(self.peers.values(), key=lambda row: row.median, default=None)

    @property
    def rival(self) -> Row | None:
        """The peer that the goal is about: one that it names, or the fastest."""
        named = self.goal.against if self.goal is not None else ""
        return self.peers.get(named) if named else self.best_peer

    @property
    def ratio(self) -> float | None:
        """Times faster than the best peer, median over median; below 1 is a loss."""
        return self._ratio(self.best_peer)

    @property
    def reached(self) -> float | None:
        """Times faster than the rival."""
        return self._ratio(self.rival)

    def _ratio(self, peer: Row | None) -> float | None:
        return None if peer is None else peer.median / self.ours.median

    @property
    def limit_share(self) -> float | None:
        """The limit over our median; above 1 where caches or saved multiplications help."""
        return self.limit / self.ours.median if self.limit else None

    @property
    def has_missed(self) -> bool:
        """Whether a goal is there and not reached."""
        return self.goal is not None and self.reached is not None and self.reached < self.goal.must

    @property
    def has_stretched(self) -> bool:
        """Whether the further goal is reached."""
        if self.goal is None or self.reached is None or self.has_missed:
            return False
        if self.goal.limit_share is not None:
            return self.limit_share is not None and self.limit_share >= self.goal.limit_share
        return self.goal.stretch is not None and self.reached >= self.goal.stretch


@dataclass(frozen=True)
class Standings:
    """All cases on one machine, in the order of the cases.

    Attributes:
        machine: the best of what was measured.
        every: one entry per case and kind of outputs that was measured.
    """

    machine: Machine
    every: Sequence[Standing]

    def of(self, suite: str) -> list[Standing]:
        """Those of one suite."""
        return [one for one in self.every if one.case.suite == suite]

    @property
    def versions(self) -> dict[str, str]:
        """Version by engine."""
        rows = [row for one in self.every for row in (one.ours, *one.peers.values())]
        newest = {row.engine: row.version for row in sorted(rows, key=lambda row: row.date)}
        return {engine.name: newest[engine.name] for engine in ENGINES if engine.name in newest}

    @property
    def dates(self) -> tuple[str, str]:
        """When the oldest and the newest row was measured."""
        dates = [row.date for one in self.every for row in (one.ours, *one.peers.values())]
        return min(dates), max(dates)


def standings_of(folder: Path, threads: int) -> Standings:
    """How things stand on the machine that was measured last with so many threads.

    Raises:
        ValueError: there are no results.
    """
    machines = [row for row in read(folder / "machine.csv", MachineRow) if row.threads == threads]
    if not machines:
        raise ValueError(f"{folder}: expected results with {threads} threads, got none. Run python -m benchmarks run.")
    machine = best_machine([row for row in machines if row.cpu == machines[-1].cpu])
    rows = {suite: read(folder / f"{suite}.csv", Row) for suite in {case.suite for case in CASES}}
    here = {suite: [row for row in found if _is_of(machine, row)] for suite, found in rows.items()}
    every = [one for case in CASES for one in standing(case, here[case.suite], machine)]
    if not every:
        raise ValueError(f"{folder}: expected results of {machine.cpu}, got none. Run python -m benchmarks run.")
    return Standings(machine, every)


def standing(case: Case, rows: Iterable[Row], machine: Machine) -> list[Standing]:
    """How one case stands; empty where unpool was not measured."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        if (row.case, row.type) == (case.name, case.dtype):
            key = row.engine, row.outputs
            best[key] = min(best.get(key, row), row, key=lambda one: one.median)
    peers = {engine: row for (engine, _), row in best.items() if engine != UNPOOL}
    ours = [row for (engine, _), row in sorted(best.items(), reverse=True) if engine == UNPOOL]
    return [Standing(case, row.outputs, row, peers, machine.limit(case)) for row in ours]


def _is_of(machine: Machine, row: Row) -> bool:
    return (row.cpu, row.threads) == (machine.cpu, machine.threads)
