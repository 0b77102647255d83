"""The number of jobs that the work of a call is split into: one rule for all kernels.

Threads get jobs in order, the same number each: the busiest has ⌈jobs / threads⌉ of them. Small jobs give equal shares.
But some kernels prepare something for several jobs, such as the input of a block, and small jobs share less of it. Such
a kernel lists its possible splits, and `choose_split` takes one of them. Results do not depend on the choice: the same
operations compute an output in the same order in any job.

Where jobs are always short, nothing is chosen: a thread with 200 microseconds of work in jobs of 30 has seven of them,
and `JOBS.imbalance` holds for any number of threads. This holds for rows of outputs, bands of 16 KiB, and small planes
that are put together up to 32 KiB.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu.tuning import JOBS
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline

PARTS_PER_THREAD = JOBS.parts_per_thread
_PERCENT_OF_IMBALANCE = round(100 * JOBS.imbalance - 100)


class JobSplit(NamedTuple):
    """Work that is split into jobs. Its costs share a unit, which may be any."""

    jobs: int
    each: float  # cost of a full job
    total: float  # cost of all jobs, of which some may be shorter
    along: int = 1  # number of consecutive jobs that share one preparation
    before: float = 0.0  # cost of the preparation


@jit_inline
def even_job_count(threads: int) -> int:
    """The smallest number of equal jobs such that this and every larger number give even shares.

    >>> even_job_count(1), even_job_count(2), even_job_count(16)
    (1, 7, 100)
    """
    return max(1, -(-100 * (threads - 1) // _PERCENT_OF_IMBALANCE))


def even_sizes(units: int, most: int) -> list[int]:
    """The sizes up to `most` that split all units as evenly as possible, largest first.

    >>> even_sizes(10, 6)
    [5, 4, 3, 2, 1]
    """
    return sorted({-(-units // -(-units // size)) for size in range(1, min(most, units) + 1)}, reverse=True)


@compile_as(even_sizes)
def _even_sizes(units: Any, most: Any) -> Callable[..., Any]:
    def compiled(units, most):
        sizes, count, last = np.empty(max(0, min(most, units)), np.int64), 0, 0
        for size in range(sizes.size, 0, -1):
            part = -(-units // -(-units // size))
            if part != last:
                sizes[count], count, last = part, count + 1, part
        return sizes[:count]

    return compiled


def choose_split(splits: Iterable[JobSplit], threads: int) -> JobSplit:
    """The split that takes the shortest time, or the first one with even shares that takes little longer."""
    splits = list(splits)
    times = np.array([finish_time(split, threads) for split in splits], np.float64)
    are_even = np.array([has_even_shares(split, threads) for split in splits], np.bool_)
    return splits[choose_time(times, are_even)]


@jit_inline
def choose_time(times: Any, are_even: Any) -> int:
    """The index of the split that `choose_split` takes, from the time of each and whether its shares are even."""
    shortest, shortest_even = 0, -1
    for number in range(times.size):
        if times[number] < times[shortest]:
            shortest = number
        if are_even[number] and (shortest_even < 0 or times[number] < times[shortest_even]):
            shortest_even = number
    if shortest_even < 0 or times[shortest_even] > times[shortest] * JOBS.even_shares:
        return shortest
    chosen = 0
    while not (are_even[chosen] and times[chosen] <= times[shortest_even] * JOBS.another_split):
        chosen += 1
    return chosen


@jit_inline
def is_even(busiest: float, total: float, threads: int) -> bool:
    """True if the share of the busiest thread counts as equal to the others."""
    return bool(busiest * threads / total <= JOBS.imbalance)


@jit_inline
def has_even_shares(split: JobSplit, threads: int) -> bool:
    """True if the shares of the threads count as equal."""
    return is_even(_busiest(split, threads), split.total, threads)


@jit_inline
def finish_time(split: JobSplit, threads: int) -> float:
    """The cost of the busiest thread: its jobs, and what it prepares for them.

    >>> finish_time(JobSplit(jobs=8, each=5, total=40, along=4, before=1), 2), finish_time(JobSplit(8, 5, 40, 4, 1), 3)
    (21, 17)
    """
    most = -(-split.jobs // threads)
    is_whole_rows = most % split.along == 0 or split.along % most == 0
    rows = -(-most // split.along) if is_whole_rows else -(-(most - 1) // split.along) + 1  # at most
    return _busiest(split, threads) + rows * split.before


@jit_inline
def _busiest(split: JobSplit, threads: int) -> float:
    return min(-(-split.jobs // threads) * split.each, split.total)


@jit_inline
def parts_per_thread(split: JobSplit, threads: int) -> int:
    """The number of parts that each thread's jobs are split into."""
    most = -(-split.jobs // threads)
    fitting = int(JOBS.preparation * most * split.each / split.before) if split.before > 0 else PARTS_PER_THREAD
    return max(1, min(PARTS_PER_THREAD, fitting))
