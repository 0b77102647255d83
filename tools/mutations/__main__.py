"""Applies every fault to a copy of the checkout: `python -m tools.mutations [--only 3.2] [--jobs 2]`."""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tools.mutations import MUTATIONS
from tools.mutations.record import Mutation
from tools.mutations.workplace import UntriedError, Verdict, Workplace


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one row per fault; 1 if one survives or cannot be tried."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutations", description=__doc__)
    parser.add_argument("--only", metavar="RULE", help="try only the faults against this rule, such as 3.2")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many to try at a time")
    given = parser.parse_args(arguments)
    chosen = [mutation for mutation in MUTATIONS if given.only in (None, mutation.rule)]
    if not chosen:
        parser.error(f"no fault against rule {given.only}")
    started = time.perf_counter()
    try:
        survivors = try_all(chosen, max(1, min(given.jobs, len(chosen))))
    except UntriedError as problem:
        write(f"not tried: {problem}")
        return 1
    seconds = time.perf_counter() - started
    write(f"\n{len(chosen)} faults, {len(chosen) - survivors} killed, {survivors} survived, {seconds:.0f} s")
    return 1 if survivors else 0


def try_all(mutations: Sequence[Mutation], jobs: int) -> int:
    """How many survive.

    Raises:
        UntriedError: a fault, or the unpatched copy, cannot be tried.
    """
    with tempfile.TemporaryDirectory(prefix="unpool-mutations-") as folder, ThreadPoolExecutor(jobs) as pool:
        places = [Workplace(Path(folder) / str(number)) for number in range(jobs)]
        list(pool.map(Workplace.prepare, places))
        free: SimpleQueue[Workplace] = SimpleQueue()
        for place in places:
            free.put(place)
        survivors = 0
        for verdict in pool.map(lambda mutation: judge_somewhere(mutation, free), mutations):
            write(row(verdict))
            survivors += verdict.killer is None
        return survivors


def judge_somewhere(mutation: Mutation, free: "SimpleQueue[Workplace]") -> Verdict:
    """Try a fault in the next free place."""
    place = free.get()
    try:
        return place.judge(mutation)
    finally:
        free.put(place)


def row(verdict: Verdict) -> str:
    """Rule, place, what breaks, and the test that noticed."""
    mutation = verdict.mutation
    place = f"{mutation.file}:{verdict.line}"
    killer = "SURVIVED" if verdict.killer is None else verdict.killer.removeprefix("tests/")
    return f"{mutation.rule:5} {place:36} {mutation.breaks:76} {killer}"


def write(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
