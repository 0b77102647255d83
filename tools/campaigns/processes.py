"""Random models in processes that live long, and a model that ends its process is named.

A process writes a line of JSON when a model begins, `[seed]`, and one when it has ended, `[seed, counts, faults]`. If
it ends in between, another one goes on behind the model.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

EVERY = 100  # models between two lines about the progress


@dataclass
class Tally:
    """How often what happened, and the faults; `say` gets these at once, and the counts after every 100 models."""

    say: Callable[[str], object]
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    models: int = 0
    _start: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __str__(self) -> str:
        rows = [f"{number:8} {words}" for words, number in self.counts.most_common()]
        seconds = f"{time.monotonic() - self._start:.0f} s"
        return "\n".join([*rows, f"{self.models} models, {len(self.faults)} wrong, {seconds}"])

    def add(self, seed: int, counts: dict[str, int], faults: Sequence[str]) -> None:
        """Count a model."""
        with self._lock:
            self.models += 1
            self.counts.update(counts)
            for fault in faults:
                self.faults.append(f"model {seed}: {fault}")
                self.say(self.faults[-1])
            if self.models % EVERY == 0:
                self.say(str(self))


Trial = Callable[[int], tuple[Counter[str], list[str]]]
"""The counts and faults of the model of a seed."""


def work(trial: Trial, first: int, count: int) -> None:
    """Run models in this process, and print a line of JSON when each begins and ends."""
    for seed in range(first, first + count):
        print(json.dumps([seed]), flush=True)
        print(json.dumps([seed, *trial(seed)]), flush=True)


def run_models(
    program: Sequence[str], first: int, count: int, jobs: int = 1, say: Callable[[str], object] = lambda _: None
) -> Tally:
    """Run so many models from a seed on in so many processes of `python program --work --seed N --count M`.

    A process that a signal ends is a fault of its model, unless `python program --alone --seed N`, which runs that
    model in onnxruntime alone, ends so, too.
    """
    tally = Tally(say)
    ends = [first + count * number // jobs for number in range(jobs + 1)]
    threads = [threading.Thread(target=_run, args=(program, *pair, tally)) for pair in pairwise(ends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


def _run(program: Sequence[str], first: int, stop: int, tally: Tally) -> None:
    while first < stop:
        command = [sys.executable, *program, "--work", "--seed", str(first), "--count", str(stop - first)]
        seed, rest = first, [None]
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
                for line in process.stdout or ():
                    seed, *rest = json.loads(line)
                    if rest:
                        tally.add(seed, *rest)
            errors.seek(0)
            words = f"{process.returncode}: {errors.read()[-500:]}"
        if process.returncode > 0:
            raise RuntimeError(f"model {seed}: {words}")
        if process.returncode < 0 and not rest:
            tally.add(seed, *_verdict_of_death(program, seed, words))
        first = seed + 1


def _verdict_of_death(program: Sequence[str], seed: int, how: str) -> tuple[dict[str, int], list[str]]:
    """The counts and the faults of a model that ended its process."""
    command = [sys.executable, *program, "--alone", "--seed", str(seed)]
    alone = subprocess.run(command, capture_output=True, timeout=600)
    if alone.returncode < 0:
        return {"onnxruntime ends the process": 1}, []
    return {}, [f"the process ended with {how}; onnxruntime alone: {alone.returncode}"]
