"""Numbers that were fitted by measurement, and facts of processors by level: one frozen record per subject.

Every field has its unit. FITS says on which processor the numbers of a record were measured, and when they were set:
who measures again replaces both. Nothing here depends on the machine that imports it; functions of `machine.host` do,
and a level is a record of what its processors share.

    parts = JOBS.parts_per_thread * threads

Code reads a field where it needs it, compiled code as well: there a record is a constant, and its fields are constants
of the machine code.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Level(NamedTuple):
    """A set of instructions that processors share, as compilers name it."""

    name: str
    vector_bytes: int  # bytes of a register
    vector_registers: int  # number of registers


LEVELS = {
    level.name: level
    for level in (
        Level("x86-64-v2", 16, 16), Level("x86-64-v3", 32, 16), Level("x86-64-v4", 64, 32), Level("aarch64", 16, 32),
        Level("generic", 16, 16),
    )
}  # fmt: skip
"""By name; "generic" stands for any processor that is neither x86 nor AArch64."""


class Fit(NamedTuple):
    """Where the numbers of a record were measured, and when they were set."""

    processor: str
    date: str


class ThreadCosts(NamedTuple):
    """When a call is worth another thread. An element visited takes about a nanosecond if it is in the cache."""

    thread: int = 1 << 15  # elements visited by each thread, at least
    round: int = 1 << 22  # elements visited by a call whose speed is unknown, from which on it runs in rounds
    vector_speedup: int = 4  # elements that a loop over vectors visits in the time of one
    decay: float = 0.7  # factor of the longest time of a call, with every call


class WakeCosts(NamedTuple):
    """What a sleeping thread costs its caller, and how long a thread polls before it sleeps."""

    wake: int = 10_000  # elements visited in the time that waking a thread takes its caller: 3 to 20 microseconds
    spin: float = 200e-6  # seconds: longer than what a caller does alone between two steps


class JobCosts(NamedTuple):
    """How the work of a call is split into jobs."""

    imbalance: float = 1.15  # the busiest thread's share over the mean, up to which shares count as equal
    parts_per_thread: int = 4  # parts; fewer where much is prepared for each. A thread that ends early takes others
    another_split: float = 1.04  # times the shortest time: costs are no more precise
    even_shares: float = 1.1  # times the shortest time, up to which a split with even shares is taken
    preparation: float = 0.05  # of a thread's time, which it may spend on what it prepares for its parts


class BlockSizes(NamedTuple):
    """Jobs of kernels that read each element once: what stays in the first cache."""

    activation: int = 1 << 14  # bytes
    conversion: int = 1 << 13  # elements
    indices: int = 1 << 12  # indices


class ElementCosts(NamedTuple):
    """Work of an element, in elements that are copied."""

    exponential: int = 4  # an activation with an exponential function
    recount: int = 4  # an index along one axis, counted in another shape
    snake: int = 2


class TrialTiming(NamedTuple):
    """How calls are timed in turns."""

    turns: int = 7  # turns of each call
    turn: float = 0.01  # seconds of a turn; a longer call is a turn of its own
    long: float = 0.5  # seconds of a call that is timed at once: what fills caches again is a small part of it
    far: float = 2.0  # times the shortest first turn, from which on a call gets no other turn
    margin: float = 0.08  # share of the default's time that another choice has to gain


THREADS, WAKING, JOBS = ThreadCosts(), WakeCosts(), JobCosts()
BLOCKS, ELEMENT_COSTS, TRIALS = BlockSizes(), ElementCosts(), TrialTiming()

_XEON, _UNKNOWN = "Intel Xeon (Emerald Rapids), 2 and 16 virtual cores", "not recorded"
FITS: Mapping[type[Any], Fit] = {
    ThreadCosts: Fit(_UNKNOWN, "2026-11-20"),
    WakeCosts: Fit(_XEON, "2026-11-27"),
    JobCosts: Fit(_UNKNOWN, "2026-11-24"),
    BlockSizes: Fit(_UNKNOWN, "2026-11-28"),
    ElementCosts: Fit(_UNKNOWN, "2026-11-28"),
    TrialTiming: Fit(_UNKNOWN, "2026-11-22"),
}
