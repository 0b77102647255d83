"""Measures: every engine in a process of its own, one at a time, case by case, over several rounds."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from multiprocessing import get_context

from benchmarks import machine, worker
from benchmarks.case import Case
from benchmarks.compare import differences
from benchmarks.engines import BY_NAME, UNPOOL
from benchmarks.rows import MachineRow, Row
from benchmarks.worker import Refused
from unpool.runtime.measure.timing import Effort

SETTLE = 0.05  # seconds in which the threads of the engine before fall asleep
FAR_SLOWER = 4.0  # times the fastest peer
REFERENCES = ("torch", "onnxruntime", UNPOOL, "openvino")  # the first one that answers is compared with

Pools = Mapping[str, ProcessPoolExecutor]
Measured = tuple[dict[str, list[Row]], list[MachineRow]]


class DisagreementError(RuntimeError):
    """Unpool's result differs from that of a peer: there is nothing to time."""


class EngineError(RuntimeError):
    """The process of an engine does not start."""


@dataclass(frozen=True)
class Request:
    """What to measure, and how.

    Attributes:
        cases: in this order.
        engines: names, in this order.
        threads: for every engine.
        rounds: each with new processes and new inputs.
        effort: of every single measurement.
    """

    cases: Sequence[Case]
    engines: Sequence[str]
    threads: int
    rounds: int
    effort: Effort


def run(request: Request) -> Measured:
    """The rows of each suite, and what the machine did.

    Raises:
        DisagreementError: unpool differs from the reference.
        EngineError: an engine is not installed.
    """
    rows: dict[str, list[Row]] = {case.suite: [] for case in request.cases}
    machines = []
    offered: dict[str, list[str]] = {}
    for number in range(request.rounds):
        machines.append(machine_row(request.threads, number))
        with _pools(request) as pools:
            versions = {name: _version(name, pool) for name, pool in pools.items()}
            for case in request.cases:
                if number == 0:
                    offered[case.path] = _agreeing(request.threads, pools, case)
                chosen = {name: pools[name] for name in offered[case.path]}
                found = list(_rows(request, chosen, versions, case, number))
                rows[case.suite] += found
                offered[case.path] = _contenders(found)
                say(f"round {number + 1}: {case.path} {case.title}: {_summary(found)}")
    return rows, machines


def say(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def _pools(request: Request) -> Iterator[dict[str, ProcessPoolExecutor]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(_process(name, request.threads)) for name in request.engines}


def _process(engine: str, threads: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=worker.start, initargs=(engine, threads))


def _version(engine: str, pool: ProcessPoolExecutor) -> str:
    try:
        return pool.submit(worker.version, engine).result()
    except BrokenProcessPool as error:
        title = BY_NAME[engine].title
        raise EngineError(f"{title}: expected a process that starts, it ended. Install the extra bench.") from error


def _agreeing(threads: int, pools: Pools, case: Case) -> list[str]:
    """The engines that offer the case and give its result."""
    wanted = [name for name in pools if name == UNPOOL or name in case.peers or not case.peers]
    answers = {}
    for name in wanted:
        answer = pools[name].submit(worker.answer, name, case, threads).result()
        if isinstance(answer, Refused):
            say(f"{case.path}: {BY_NAME[name].title} does not offer it: {answer.why}")
        else:
            answers[name] = answer
    reference = next(name for name in REFERENCES if name in answers)
    wrong = differences(case, answers, reference)
    if UNPOOL in wrong:
        raise DisagreementError(f"{case.path}: expected the result of {reference}, got from unpool: {wrong[UNPOOL]}.")
    for name, words in wrong.items():
        say(f"{case.path}: {BY_NAME[name].title} gives another result and is left out: {words}")
    return [name for name in answers if name not in wrong]


def _contenders(rows: Sequence[Row]) -> list[str]:
    """Ours and the peers that may be the fastest; one that is far slower is not timed again."""
    best = min((row.median for row in rows if row.engine != UNPOOL), default=0.0)
    return list(dict.fromkeys(row.engine for row in rows if row.engine == UNPOOL or row.median <= FAR_SLOWER * best))


def _rows(request: Request, pools: Pools, versions: Mapping[str, str], case: Case, number: int) -> Iterator[Row]:
    for name, pool in pools.items():
        for outputs in BY_NAME[name].outputs(case):
            time.sleep(SETTLE)
            timing = pool.submit(worker.timed, name, case, outputs, request.threads, request.effort).result()
            if isinstance(timing, Refused):
                say(f"{case.path}: {BY_NAME[name].title} fails: {timing.why}")
                continue
            yield Row(
                case.operator, case.name, case.dtype, name, versions[name], outputs, machine.cpu_name(),
                request.threads, number, timing.median, timing.p20, timing.p80, timing.first, today(),
            )  # fmt: skip


def machine_row(threads: int, number: int) -> MachineRow:
    """What the machine does with so many threads, measured in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = pool.submit(machine.measured, threads).result()
    say(
        f"round {number + 1}: {found.cpu}, {threads} threads: reads {found.read / 1e9:.1f} GB/s, "
        f"writes {found.written / 1e9:.1f} GB/s, {found.flops / 1e9:.0f} GFLOP/s"
    )
    return MachineRow(found.cpu, threads, number, found.read, found.written, found.flops, today())


def today() -> str:
    """The date of a result, ISO 8601."""
    return date.today().isoformat()


def _summary(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row.engine} {row.outputs} {row.median * 1e3:.3g} ms".replace(" own", "") for row in rows)
