"""The number of jobs that the work of a call is split into: one rule for all kernels.

Jobs are dealt out in order, the same number to each thread: the busiest has ⌈jobs / threads⌉ of them. Small jobs give
equal shares. But some kernels prepare something before the first of several jobs, such as the input of a block, which
then serves fewer of them. Such a kernel lists its splits, and `choose_split` takes one. Results do not depend on the
choice: a job computes each output by the same operations in the same order, whatever else it computes.

Where jobs are always short, nothing is chosen: a thread with 200 microseconds of work in jobs of 30 has seven of them,
and MAX_IMBALANCE holds for any number of threads. This holds for rows of outputs, bands of 16 KiB, and small planes
that are put together up to 32 KiB.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu.vector.registration import compile_as, jit_inline

MAX_IMBALANCE = 1.15  # the busiest thread's share over the mean, up to which shares count as equal
_PERCENT_OF_IMBALANCE = round(100 * MAX_IMBALANCE - 100)
PARTS_PER_THREAD = 4  # unless much is prepared for each: a thread that ends early takes parts of others
_WORTH_ANOTHER_SPLIT = 1.04  # times the shortest time: costs are no more precise
_WORTH_EVEN_SHARES = 1.1  # times the shortest time
_WORTH_A_PART = 0.05  # of a thread's time, which it may spend on what it prepares for its parts


class JobSplit(NamedTuple):
    """Work as jobs. Costs are in any one unit."""

    jobs: int
    each: float  # cost of a full job
    total: float  # cost of all jobs, of which some may be shorter
    along: int = 1  # jobs in a row that share what is prepared before the first of them
    before: float = 0.0  # cost of preparing it


@jit_inline
def even_job_count(threads: int) -> int:
    """The least number of equal jobs from which on any number gives even shares.

    >>> even_job_count(1), even_job_count(2), even_job_count(16)
    (1, 7, 100)
    """
    return max(1, -(-100 * (threads - 1) // _PERCENT_OF_IMBALANCE))


def even_sizes(units: int, most: int) -> list[int]:
    """Sizes of parts that split all units as evenly as possible, `most` units at most; the largest first.

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
    """The split that the threads finish first, or the first one with even shares that takes little longer."""
    splits = list(splits)
    times = np.array([finish_time(split, threads) for split in splits], np.float64)
    are_even = np.array([has_even_shares(split, threads) for split in splits], np.bool_)
    return splits[choose_time(times, are_even)]


@jit_inline
def choose_time(times: Any, are_even: Any) -> int:
    """The number of the split that `choose_split` takes, from their times, and whether shares are even."""
    shortest, shortest_even = 0, -1
    for number in range(times.size):
        if times[number] < times[shortest]:
            shortest = number
        if are_even[number] and (shortest_even < 0 or times[number] < times[shortest_even]):
            shortest_even = number
    if shortest_even < 0 or times[shortest_even] > times[shortest] * _WORTH_EVEN_SHARES:
        return shortest
    chosen = 0
    while not (are_even[chosen] and times[chosen] <= times[shortest_even] * _WORTH_ANOTHER_SPLIT):
        chosen += 1
    return chosen


@jit_inline
def is_even(busiest: float, total: float, threads: int) -> bool:
    """True if the share of the busiest thread counts as equal to the others."""
    return bool(busiest * threads / total <= MAX_IMBALANCE)


@jit_inline
def has_even_shares(split: JobSplit, threads: int) -> bool:
    """True if the shares of the threads count as equal."""
    return is_even(_busiest(split, threads), split.total, threads)


@jit_inline
def finish_time(split: JobSplit, threads: int) -> float:
    """Cost of the busiest thread's jobs, and of what it prepares for them.

    >>> finish_time(JobSplit(jobs=8, each=5, total=40, along=4, before=1), 2), finish_time(JobSplit(8, 5, 40, 4, 1), 3)
    (21, 17)
    """
    most = -(-split.jobs // threads)
    is_whole_rows = most % split.along == 0 or split.along % most == 0
    rows = -(-most // split.along) if is_whole_rows else -(-(most - 1) // split.along) + 1  # the most that it touches
    return _busiest(split, threads) + rows * split.before


@jit_inline
def _busiest(split: JobSplit, threads: int) -> float:
    return min(-(-split.jobs // threads) * split.each, split.total)


@jit_inline
def parts_per_thread(split: JobSplit, threads: int) -> int:
    """The number of parts that each thread's jobs are split into."""
    most = -(-split.jobs // threads)
    fitting = int(_WORTH_A_PART * most * split.each / split.before) if split.before > 0 else PARTS_PER_THREAD
    return max(1, min(PARTS_PER_THREAD, fitting))
