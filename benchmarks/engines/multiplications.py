"""No engine: multiplications alone, for as long as a run of unpool takes, shared like the work of unpool's kernels.

They need registers and nothing else, no memory and no other step. So how far these calls stray is the machine's doing.
"""

from statistics import median

import numpy as np

from benchmarks import network
from benchmarks.case import Case
from benchmarks.engines import Ready
from benchmarks.engines.unpool_functions import start, version
from benchmarks.machine_kernels import CHAINS, spinner_in_jobs
from benchmarks.one_node import Arrays
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.threads import split
from unpool.runtime.measure.timing import Effort, samples_of

__all__ = ["prepare", "start", "version"]

JOBS = 8
"""For each thread: one that is done early takes over what another has not begun."""

STEPS = 200_000
"""Of a job, when it is timed to know how many are wanted."""

SOME = Effort(repetitions=30, seconds=0, limit=2)


def prepare(case: Case, arrays: Arrays, outputs: str, threads: int) -> Ready:  # noqa: ARG001  they have no outputs
    """As many multiplications as the machine does in the time that a run of the network takes."""
    jobs, lanes = JOBS * threads, vector_bytes() // 4
    kernel = spinner_in_jobs(lanes)  # type: ignore[no-untyped-call]
    numbers = np.ones(jobs * CHAINS * lanes, np.float32)

    def spin(steps: int) -> None:
        split(kernel, jobs, jobs * CHAINS * steps, threads, id(numbers), steps)

    spin(1)
    wanted = median(samples_of(network.by_unpool(case, arrays, threads), 1, SOME))
    steps = max(1, int(STEPS * wanted / median(samples_of(lambda: spin(STEPS), 1, SOME))))
    return Ready(lambda: spin(steps), lambda _: ())
