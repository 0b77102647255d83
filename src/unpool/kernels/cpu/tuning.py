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


CACHE_LINE = 64
"""Bytes of a cache line, of every processor that kernels are compiled for."""

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


class PoolMemory(NamedTuple):
    """MaxPool: what is prefetched, and which outputs bypass the caches."""

    prefetched: int = 1 << 20  # bytes of x above which it is prefetched
    far: int = 24 << 20  # bytes of x, y and indices above which they come from memory
    prefetch_distance: int = 4096  # bytes from a load to the memory that is prefetched with it
    prefetch_reach: int = 1 << 18  # bytes of rows that are read side by side: of more, lines are evicted before use
    non_temporal: int = 1 << 25  # bytes of x and outputs, from which on outputs bypass the caches


class TilePool(NamedTuple):
    """MaxPool by tiles."""

    offsets: int = 1 << 16  # maximum in all lists of a plane


class RollingPool(NamedTuple):
    """MaxPool by rows that roll through registers."""

    taps: tuple[int, int, int] = (0, 13, 5)  # by stride, width and height up to which it is the fastest kernel
    loaded_taps: int = 7  # width up to which windows are loaded tap by tap; wider ones slide over whole vectors
    band: int = 1 << 14  # bytes of x that are read at a time, to stay in the first cache
    band_rows: int = 8  # minimum rows of a band, for each row before it that is pooled twice
    elements: int = 1 << 16  # of x, from which on a kernel is compiled for one window


class SeparablePool(NamedTuple):
    """MaxPool axis by axis: sizes of what it works on at a time."""

    strip: int = 1 << 18  # bytes of the pooled rows of a strip, which stay in the second cache
    planes: int = 1 << 15  # bytes of the pooled rows of small planes that are put together
    line: int = 1 << 14  # bytes that are laid out at a time, to stay in the first cache
    line_elements: int = 1 << 22  # maximum of elements that are laid out at a time
    rows: int = 4  # combined at once: independent registers hide each other's latency
    taps: int = 5  # maximum of one reduction at stride 1
    stride: int = 64  # up to which a reduction has as many times more taps
    padding: int = 16  # maximum of padded elements, for each element and result of a plane


class SeparableCosts(NamedTuple):
    """When MaxPool axis by axis is cheaper than a walk of whole windows; costs in elements that are moved."""

    taps: int = 1 << 13  # of all windows: for fewer, no kernel is compiled or loaded
    tap: int = 2  # a tap of a window that is walked
    short: int = 2  # factor of such taps if a row fills a single block
    ragged: int = 6  # the same if it does not fill the block
    long_line: int = 2  # factor of moved elements if a line is the whole plane, which leaves the first cache
    far: float = 1.5  # the same in memory, whose latency is hidden less than that of taps


class DoublingPool(NamedTuple):
    """MaxPool of windows that share most of their elements."""

    visits: int = 1 << 10  # of an element, on average, up to which windows are walked one by one
    places: int = 1 << 32  # maximum of a plane, which is not worth more memory
    comparison: int = 4  # its work, in elements visited


class Unpool(NamedTuple):
    """MaxUnpool."""

    lanes: int = 64  # of a job, so that a batch of one still makes several jobs
    cleared: int = 1 << 20  # bytes that a job clears
    checked: int = 1 << 15  # indices that a job checks, in about 20 microseconds
    read: float = 0.5  # nanoseconds, of an index
    write: float = 1.0  # nanoseconds, of an element
    clear: float = 0.2  # nanoseconds, of an element
    prefetch_distance: int = 4096  # bytes from a load to the memory that is prefetched with it
    non_temporal: int = 1 << 25  # bytes of y, from which on it bypasses the caches


THREADS, WAKING, JOBS = ThreadCosts(), WakeCosts(), JobCosts()
BLOCKS, ELEMENT_COSTS, TRIALS = BlockSizes(), ElementCosts(), TrialTiming()
POOL_MEMORY, TILE_POOL, ROLLING_POOL, DOUBLING_POOL = PoolMemory(), TilePool(), RollingPool(), DoublingPool()
SEPARABLE_POOL, SEPARABLE_COSTS, UNPOOL = SeparablePool(), SeparableCosts(), Unpool()

_XEON, _UNKNOWN = "Intel Xeon (Emerald Rapids), 2 and 16 virtual cores", "not recorded"
FITS: Mapping[type[Any], Fit] = {
    ThreadCosts: Fit(_UNKNOWN, "2026-11-20"),
    WakeCosts: Fit(_XEON, "2026-11-27"),
    JobCosts: Fit(_UNKNOWN, "2026-11-24"),
    BlockSizes: Fit(_UNKNOWN, "2026-11-28"),
    ElementCosts: Fit(_UNKNOWN, "2026-11-28"),
    TrialTiming: Fit(_UNKNOWN, "2026-11-22"),
    PoolMemory: Fit(_UNKNOWN, "2026-11-25"),
    TilePool: Fit(_UNKNOWN, "2026-11-25"),
    RollingPool: Fit(_UNKNOWN, "2026-11-28"),
    SeparablePool: Fit(_UNKNOWN, "2026-11-25"),
    SeparableCosts: Fit(_UNKNOWN, "2026-11-24"),
    DoublingPool: Fit(_UNKNOWN, "2026-11-28"),
    Unpool: Fit(_UNKNOWN, "2026-11-28"),
}
