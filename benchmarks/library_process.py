"""The process of one engine of `benchmarks.library`: it loads a model, writes its first outputs, and is timed.

    python -m benchmarks.library_process ENGINE MODEL INPUTS OUTPUTS THREADS

It imports nothing of unpool but what the engine needs, for that is timed too, and answers each line of its standard
input with a line of JSON: first what loading took, then, for a number of runs, the seconds of each, and for `end` the
peak memory and what the same session takes to load again. An error is a line with a text, and the end.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

ALONE, LIBRARY, BARE, COMPILED, SESSION = "onnxruntime", "library", "library without Python", "compiled", "session"
"""Engines: onnxruntime alone; with the library; with the library as programs in C register it, planned without Python;
with the library and a compiled model; and unpool's session."""

_FATAL = 4  # what onnxruntime logs: errors come as exceptions


def main(engine: str, model: str, inputs: str, outputs: str, threads: int) -> None:
    """Load, run once, and answer."""
    with np.load(inputs) as arrays:
        feeds = dict(arrays)
    begin = time.perf_counter()
    load = _loader(engine)
    times = {"imports": time.perf_counter() - begin}
    begin = time.perf_counter()
    run = load(model, threads)
    times["created"] = time.perf_counter() - begin
    results = run(None, feeds)
    times["load"] = time.perf_counter() - begin
    np.savez(outputs, *results)
    _answer(times)
    for line in sys.stdin:
        if line.strip() == "end":
            peak = _peak()
            begin = time.perf_counter()
            load(model, threads)(None, feeds)
            _answer({"peak": peak, "reload": time.perf_counter() - begin})
        else:
            _answer(_samples(lambda: run(None, feeds), int(line)))


def _loader(engine: str) -> Callable[[str, int], Callable[..., Any]]:
    """A function of a file and a number of threads that gives the method that runs the model; imports what it needs."""
    if engine == SESSION:
        import unpool

        session: Any = unpool.InferenceSession
        return lambda model, threads: session(model, threads=threads).run
    if engine != ALONE:
        import unpool.onnxruntime

    def load(model: str, threads: int) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = _FATAL
        if engine == BARE:
            options.register_custom_ops_library(unpool.onnxruntime.get_library_path())
        elif engine != ALONE:
            unpool.onnxruntime.register(options, trust_plans=engine == COMPILED)
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run

    return load


def _samples(call: Callable[[], object], count: int) -> list[float]:
    """Seconds of so many calls, after one that is not counted: what ran in between took the caches."""
    call()
    gc.disable()
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    gc.enable()
    return times


def _peak() -> int:
    """The largest number of resident bytes so far; 0 where the system does not say it as Linux does."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def _answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:5], int(sys.argv[5]))
    except Exception as failure:  # a row says why
        _answer(f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}")
