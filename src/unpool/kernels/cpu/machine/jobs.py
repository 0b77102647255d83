"""Into how many jobs the work of a call is cut: one rule for all kernels.

Jobs are dealt out in order, to each thread the same number: the busiest has ⌈jobs / threads⌉ of them. Small jobs give
equal shares. But some kernels prepare something before the first of several jobs, such as the input of a block, which
then serves fewer of them. Such a kernel lists its cuts, and `choose` takes one. Which it is shows in no result: a job
computes each output by the same operations in the same order, whatever else it computes.

Where jobs are short whatever the call is, nothing is chosen: a thread with 200 microseconds of work that comes in jobs
of 30 has seven of them, and EVEN holds for any number of threads. So are rows of outputs, bands of 16 KiB, and small
planes that are put together up to 32 KiB.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

EVEN = 1.15
"""Of the busiest thread and the mean: up to here shares count as equal."""

PIECES = 4
"""Parts of each thread, unless much is prepared for each: a thread that is done early takes over what others have not
begun."""

_WORTH_ANOTHER_CUT = 1.04  # times as long as with the cut that is over first: costs are no more precise
_WORTH_EVEN_SHARES = 1.1  # times as long as with the cut that is over first
_WORTH_A_PIECE = 0.05  # of a thread's time, which it may spend on what it prepares for its parts


class Cut(NamedTuple):
    """Work in jobs. Costs are in any one unit.

    Attributes:
        jobs: how many.
        each: cost of a whole job.
        total: cost of all jobs, of which some may be shorter.
        along: jobs in a row that share what is prepared before the first of them.
        before: cost of that.
    """

    jobs: int
    each: float
    total: float
    along: int = 1
    before: float = 0.0


def busiest(jobs: int, threads: int) -> float:
    """Jobs of the busiest thread over the mean, for jobs that are alike.

    >>> busiest(8, 4), busiest(9, 4)
    (1.0, 1.3333333333333333)
    """
    return -(-jobs // threads) * threads / jobs


def enough(threads: int) -> int:
    """So many jobs that are alike, or any larger number, give even shares.

    >>> enough(1), enough(2), enough(16)
    (1, 7, 100)
    """
    return max(1, -(-100 * (threads - 1) // round(100 * EVEN - 100)))


def even_parts(units: int, most: int) -> list[int]:
    """Sizes of parts, at most so many units each, that cut all units as evenly as can be; the largest first.

    >>> even_parts(10, 6)
    [5, 4, 3, 2, 1]
    """
    return sorted({-(-units // -(-units // part)) for part in range(1, min(most, units) + 1)}, reverse=True)


def choose(cuts: Iterable[Cut], threads: int) -> Cut:
    """The cut that so many threads finish first, of those with even shares if that takes little longer.

    Of cuts with even shares that take nearly as long it is the first.
    """
    found = list(cuts)
    soonest = min(finish(cut, threads) for cut in found)
    even = [cut for cut in found if _share(cut, threads) <= EVEN]
    soon = min((finish(cut, threads) for cut in even), default=math.inf)
    if soon > soonest * _WORTH_EVEN_SHARES:
        return min(found, key=lambda cut: finish(cut, threads))
    return next(cut for cut in even if finish(cut, threads) <= soon * _WORTH_ANOTHER_CUT)


def finish(cut: Cut, threads: int) -> float:
    """When the busiest thread is done: the cost of its jobs, and of what it prepares for them.

    >>> finish(Cut(jobs=8, each=5, total=40, along=4, before=1), 2), finish(Cut(8, 5, 40, 4, 1), 3)
    (21, 17)
    """
    most = -(-cut.jobs // threads)
    return min(most * cut.each, cut.total) + _rows_met(most, cut.along) * cut.before


def _share(cut: Cut, threads: int) -> float:
    """What the busiest thread has to compute, over the mean."""
    return min(-(-cut.jobs // threads) * cut.each, cut.total) * threads / cut.total


def pieces(cut: Cut, threads: int) -> int:
    """Into how many parts each thread's jobs are cut."""
    most = -(-cut.jobs // threads)
    fitting = int(_WORTH_A_PIECE * most * cut.each / cut.before) if cut.before else PIECES
    return max(1, min(PIECES, fitting))


def _rows_met(jobs: int, along: int) -> int:
    """Rows of jobs that a thread with so many neighbours among them meets at the most."""
    if jobs % along == 0 or along % jobs == 0:
        return -(-jobs // along)
    return -(-(jobs - 1) // along) + 1
