"""Times the networks of the zoo: each engine in a process of its own, in turn, over several rounds."""

import mmap
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks import worker
from benchmarks.engines import EVERY, TUNED, UNPOOL
from benchmarks.machine import cpu_name
from benchmarks.measure import SETTLE, say, today
from benchmarks.rows import ZooRow
from benchmarks.tables import milliseconds
from benchmarks.worker import Refused
from benchmarks.zoo import engine_process
from benchmarks.zoo.engine_process import Loaded
from benchmarks.zoo.model_file import ModelFile

OURS = (UNPOOL, TUNED.name)
ENGINES = (*OURS, "onnxruntime", "openvino")
EXPORT = "export"
"""The engine of the row of a network that was not exported."""

TURNS = 3
"""Of each engine in a round."""

TURN_RUNS = 5
"""In each turn, at least."""

TURN_SECONDS = 0.1
"""Of each turn, at least; short runs are repeated."""

TURN_LIMIT = 1.0
"""Seconds of a turn after which no further run begins."""

CHUNK = 2**24
"""Bytes of a file that are read at a time."""

TOUCHED, LOADED, MOST_TOUCHED = 2**28, 6, 2**32
"""Bytes that are touched before an engine loads a model, how many more for each byte of its file, and the maximum."""


@dataclass
class Results:
    """What one engine did with one network in all rounds so far.

    Attributes:
        version: of the engine.
        loaded: of each round.
        seconds: of all runs.
        memory: peak bytes of each round.
        reason: why the engine cannot run the network; "" if it can.
        steps: of a run of unpool, see `engine_process.steps`; "" for other engines.
    """

    version: str = ""
    loaded: list[Loaded] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    reason: str = ""
    steps: str = ""


class Summary(NamedTuple):
    """The input shapes, operators and group of a network, in words."""

    input: str
    operators: str
    group: str


def measure(
    files: Sequence[ModelFile], threads: int, rounds: int, save: Callable[[list[ZooRow]], None], turns: int = TURNS
) -> list[ZooRow]:
    """Run the networks.

    Args:
        files: one per network; a row says why a network that was not exported is missing.
        threads: for every engine.
        rounds: each with new processes; who begins alternates.
        save: is given the rows of a network after each of its rounds.
        turns: of each engine in a round.
    """
    exported = {file.name: file for file in files if file.is_complete}
    results = {name: {engine: Results() for engine in ENGINES} for name in exported}
    known = {name: Summary(file.shapes(), *file.summary()) for name, file in exported.items()}
    rows = {file.name: [_missing_row(file, threads)] for file in files if not file.is_complete}
    for missing in rows.values():
        save(missing)
    for number in range(rounds):
        engines = ENGINES if number % 2 == 0 else ENGINES[::-1]
        for name, file in exported.items():
            able = [engine for engine in engines if not results[name][engine].reason]
            _round(file, {engine: results[name][engine] for engine in able}, threads, turns)
            say(f"round {number + 1}: {name}: {_states(results[name])}")
            rows[name] = list(_rows(name, known[name], results[name], threads))
            save(rows[name])
    return [row for each in rows.values() for row in each]


def _round(file: ModelFile, results: dict[str, Results], threads: int, turns: int) -> None:
    """Load, run once, and take turns; an engine that fails, or whose process ends, takes no further part."""
    read_once(file.model)
    with ExitStack() as stack:
        pools = {engine: stack.enter_context(_process(engine, threads)) for engine in results}

        def ask(engine: str, function: Callable[..., Any], *arguments: object) -> Any:
            time.sleep(SETTLE)
            try:
                answer = pools[engine].submit(function, *arguments).result()
            except BrokenProcessPool:
                answer = Refused("the process ended")
            if isinstance(answer, Refused):
                results[engine].reason = answer.why
                del pools[engine]
                return None
            return answer

        for engine in tuple(pools):
            results[engine].version = ask(engine, worker.version, engine) or ""
        for engine in tuple(pools):
            touch_memory(min(MOST_TOUCHED, TOUCHED + LOADED * file.model.stat().st_size))
            loaded = ask(engine, engine_process.load, engine, file, threads)
            results[engine].loaded += [loaded] if loaded else []
        for number in range(turns):
            for engine in tuple(pools) if number % 2 == 0 else tuple(pools)[::-1]:
                results[engine].seconds += ask(engine, engine_process.turn, TURN_RUNS, TURN_SECONDS, TURN_LIMIT) or []
        for engine in tuple(pools):
            results[engine].memory.append(ask(engine, engine_process.peak) or 0)
        for engine in [each for each in OURS if each in pools]:
            results[engine].steps = ask(engine, engine_process.steps) or ""


def read_once(path: Path) -> None:
    """Read a file, so that the engine that begins does not wait for the disk, and the others find it in memory."""
    with path.open("rb") as file:
        while file.read(CHUNK):
            pass


def touch_memory(size: int) -> None:
    """Write to so many bytes and free them: the memory that a virtual machine gets from its host comes 20 times slower.

    Else that time would count for the engine that is first to need it.
    """
    np.empty(size, np.uint8)[:: mmap.PAGESIZE] = 1


def _process(engine: str, threads: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=engine_process.start, initargs=(engine, threads))


def _rows(name: str, known: Summary, results: dict[str, Results], threads: int) -> Iterator[ZooRow]:
    for engine, each in results.items():
        is_able = not each.reason and bool(each.seconds)
        p50, p95 = np.percentile(each.seconds, [50, 95]).tolist() if is_able else (0.0, 0.0)
        yield ZooRow(
            name, known.group, known.input, known.operators, engine, each.version, cpu_name(), threads,
            len(each.seconds) if is_able else 0,
            each.loaded[0].load if is_able else 0.0,
            median(one.load for one in each.loaded[1:]) if is_able and len(each.loaded) > 1 else 0.0,
            median(one.first for one in each.loaded) if is_able else 0.0,
            p50, p95,
            max(each.memory) if is_able else 0,
            max(one.error for one in each.loaded) if is_able else 0.0,
            each.reason, each.steps, today(),
        )  # fmt: skip


def _missing_row(file: ModelFile, threads: int) -> ZooRow:
    reason = file.reason or "not exported"
    say(f"{file.name}: {reason}")
    numbers: dict[str, Any] = dict.fromkeys(("runs", "memory"), 0) | dict.fromkeys(
        ("load", "reload", "first", "median", "p95", "error"), 0.0
    )
    return ZooRow(
        network=file.name, group="", input="", operators="", engine=EXPORT, version="", cpu=cpu_name(),
        threads=threads, reason=reason, steps="", date=today(), **numbers,
    )  # fmt: skip


def _states(results: dict[str, Results]) -> str:
    states = {engine: each.reason or f"{milliseconds(median(each.seconds))} ms" for engine, each in results.items()}
    return ", ".join(f"{EVERY[engine].title}: {state}" for engine, state in states.items())
