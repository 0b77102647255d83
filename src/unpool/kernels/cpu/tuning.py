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


class Sums(NamedTuple):
    """ConvTranspose: sums of all algorithms."""

    together: int = 1 << 6  # products that are summed at once: of more, inputs leave the first cache, and errors grow
    narrow_store: int = 8  # output channels of a group, channels last, from which on they are stored directly


class Packing(NamedTuple):
    """ConvTranspose: weights that are checked and packed."""

    weights: int = 1 << 15  # from which on compiled code packs them, if every call does
    weights_once: int = 1 << 22  # the same for weights that are packed once
    channels: int = 8  # channels of x in a job
    checked: int = 1 << 12  # weights that one job checks


class PhasesSizes(NamedTuple):
    """ConvTranspose by phases: what is worked on at a time."""

    panel: int = 1 << 20  # bytes of x for a block of positions, which the second cache holds, unless its margin is more
    results: int = 1 << 18  # bytes of results of a block and a chunk of output channels: the second cache, too
    near_results: int = 3 << 13  # the same for few channels, which take so little time: the first cache
    few_channels: int = 8  # with fewer, storing results takes longer than computing them
    job: int = 1 << 18  # minimum products of a job of one chunk of output channels and one tile of positions
    tiles: int = 4  # minimum tiles of channels in a chunk, per class: they share channels of x in the first cache
    taps: int = 1 << 14  # maximum number of phases or taps for tables of them
    workspace: int = 1 << 25  # bytes of a thread; where phases need more, rows run
    prefetch_distance: int = 4096  # bytes between what is written and what is fetched to be written soon


class PhasesCosts(NamedTuple):
    """The same in multiply-adds of a filled tile."""

    laying: int = 3  # an element of the line, laid out by a load and a store
    single_row: float = 2.0  # a multiply-add in a tile of one row, which loads a vector for each by two loads
    single_row_aligned: float = 1.2  # the same where each tap has a line, and all rows begin at a whole vector
    reloading: int = 10  # a packed weight, read for the first tile of a block: as long as from memory
    storing: int = 10  # an output, written from its sum
    filling: int = 100  # a vector of the line, laid out for a job: it may begin and end anywhere
    packing: int = 4  # a weight, packed in every call
    pack_call: int = 1 << 20  # minimum of packing in every call: 20 microseconds


class RowsCosts(NamedTuple):
    """ConvTranspose by rows, in the same unit."""

    product: int = 5  # a multiply-add, each of which loads and stores its sum
    call: int = 600  # each tap of each row, of any length: 10 nanoseconds
    hopeless: int = 3  # times the cost of phases, from which on rows are slower on any machine


class Gemm(NamedTuple):
    """ConvTranspose of one element per channel."""

    tile_of_one: tuple[int, int] = (1, 8)  # images, and vectors of columns, of a tile for one image
    channels: int = 8  # rows of w that are read side by side for one image


class DirectConv(NamedTuple):
    """ConvTranspose directly: what is worked on at a time, and what tables hold."""

    panel: int = 1 << 16  # bytes of rows of x that are laid out at once, and stay in the second cache
    strip: int = 1 << 10  # bytes of rows of y that are written kind by kind, so that short rows seldom reload terms
    steps: int = 2048  # positions along the lanes that are laid out at once
    terms: int = 1 << 14  # maximum of products that all kinds of output rows list together
    rows: int = 1 << 20  # maximum of output rows of a plane, which a table lists
    window_rows: int = 1 << 23  # maximum of bytes between the first and the last row that one output row reads


class DirectCosts(NamedTuple):
    """Products of an output, with those of unused lanes, up to which ConvTranspose directly is the fastest."""

    products: int = 16
    products_of_few: int = (
        10  # for fewer than `few_maps` output channels: a tile with a small number of rows is laid out faster
    )
    products_alone: int = 25  # for one output channel, which fills no tile
    few_maps: int = 4  # output channels of a group


class DirectTiles(NamedTuple):
    """ConvTranspose directly: what registers hold, for each of `strides` along the lanes."""

    strides: tuple[int, int, int, int] = (1, 2, 4, 8)  # for which phases are interleaved in registers
    wide: tuple[int, int, int, int] = (4, 4, 2, 2)  # vectors of positions: more share a weight, but fewer fit
    loaded_terms: tuple[int, int, int, int] = (8, 4, 4, 0)  # terms of each sum; others are loaded each time
    narrow: int = 2  # vectors of positions at the end of a row, at any stride: with their phases they hide latency


class Winograd(NamedTuple):
    """Winograd's algorithm: what is worked on at a time."""

    panel: int = 1 << 22  # bytes of transformed inputs of a block of positions, which the third cache holds
    vectors: int = 16  # maximum of positions of a block: products of more leave the second cache
    large_cache: int = 1 << 21  # bytes of a second cache that holds a panel: there, one in the third cache costs more
    near: int = 3 << 19  # bytes of a panel there
    near_vectors: int = 6  # maximum of positions of a block there
    products: int = 1 << 19  # bytes of products of a block with a chunk of output channels: the second cache
    channels: int = 1 << 13  # maximum: a panel of `tile_vectors` is then 24 MiB
    terms: int = 32  # minimum of elements of x for an output: with fewer, corners are seldom accurate
    packed_channels: int = 8  # transformed together, so that whole lines of memory are written
    tile_vectors: int = 3  # of positions in a tile of the product; two where three do not divide them
    summed_channels: int = 64  # summed before they are added to others: errors grow with the length of a sum


class WinogradCosts(NamedTuple):
    """The same in multiply-adds of a filled tile."""

    input: int = 350  # the transform of one tile of one channel
    output: int = 250  # the transform back, of one tile and phase of one output channel, with its stores
    scatter: int = 50  # an output whose neighbours belong to more than two phases
    panel: float = 0.5  # a transformed input that a chunk of output channels reads again
    weight: int = 10  # a transformed weight that every block reads from memory
    pack: int = 140  # a transformed weight that is not kept
    store: int = 10  # an output of a direct sum
    inaccurate: float = 1 / 32  # share of tiles: with more of them, the next algorithm computes all tiles


class WinogradAccuracy(NamedTuple):
    """Which tiles of Winograd's algorithm are accurate (`winograd_accuracy.py` has the condition)."""

    deviations: int = 3  # standard deviations from an expected sum to its lower end
    tile_error: float = 0.16  # of a tile, relative to its root mean square
    aligned_error: float = 0.06  # the same where all weights have one sign
    mean: float = 0.3  # minimum mean magnitude of weights over their root mean square, which is 0.8 if they are normal
    tap: float = 0.25  # minimum root mean square of the weights of a tap, over that of all taps of its phase
    band: int = 8  # rows of tiles that one job checks
    positions: int = 2048  # whose sums over all channels stay in the first cache


class AmxSizes(NamedTuple):
    """ConvTranspose by AMX: what is worked on at a time."""

    steps: int = 110  # maximum of tiles of a run, and further runs: the error is less than 128 roundings
    run: int = 96  # tiles of a run of longer sums
    together: int = 8  # tiles that are added before the next positions: 16 KiB of weights stay in the first cache
    panel: int = 3 << 18  # bytes of the pairs of a block of positions
    results: int = 1 << 19  # bytes of the results of a block of positions and a chunk of output channels
    jobs_per_thread: int = 3  # minimum, where blocks stay longer than their margin
    jobs: int = 2  # of a thread, which output channels are split into where there are fewer blocks


class AmxCosts(NamedTuple):
    """The same in multiply-adds of float32."""

    pair: int = 1 << 13  # a step of two tiles of rows
    single: int = 3 << 11  # a step of one
    share: float = 0.7  # of the cost in float32, up to which AMX is faster
    setup: int = 2  # zeroing and storing sums, in steps


THREADS, WAKING, JOBS = ThreadCosts(), WakeCosts(), JobCosts()
BLOCKS, ELEMENT_COSTS, TRIALS = BlockSizes(), ElementCosts(), TrialTiming()
POOL_MEMORY, TILE_POOL, ROLLING_POOL, DOUBLING_POOL = PoolMemory(), TilePool(), RollingPool(), DoublingPool()
SEPARABLE_POOL, SEPARABLE_COSTS, UNPOOL = SeparablePool(), SeparableCosts(), Unpool()
SUMS, PACKING, GEMM, ROWS_COSTS = Sums(), Packing(), Gemm(), RowsCosts()
PHASES_SIZES, PHASES_COSTS = PhasesSizes(), PhasesCosts()
DIRECT_CONV, DIRECT_COSTS, DIRECT_TILES = DirectConv(), DirectCosts(), DirectTiles()
WINOGRAD, WINOGRAD_COSTS, WINOGRAD_ACCURACY = Winograd(), WinogradCosts(), WinogradAccuracy()
AMX_SIZES, AMX_COSTS = AmxSizes(), AmxCosts()

GEMM_TILES: Mapping[int, tuple[int, int]] = {16: (4, 3), 32: (8, 3)}
"""By the number of vector registers: images, and vectors of columns, of a tile of the product."""

PHASES_TILES: Mapping[int, tuple[tuple[int, int], ...]] = {
    16: ((4, 3), (6, 2), (2, 5), (1, 8)), 32: ((8, 3), (16, 1), (4, 5), (1, 8)),
}  # fmt: skip
"""By the number of vector registers: rows, and vectors of positions, of the tiles of phases."""

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
    Sums: Fit(_UNKNOWN, "2026-11-28"),
    Packing: Fit(_UNKNOWN, "2026-11-28"),
    PhasesSizes: Fit(_UNKNOWN, "2026-11-28"),
    PhasesCosts: Fit(_UNKNOWN, "2026-11-28"),
    RowsCosts: Fit(_UNKNOWN, "2026-11-28"),
    Gemm: Fit(_UNKNOWN, "2026-11-28"),
    DirectConv: Fit(_UNKNOWN, "2026-11-25"),
    DirectCosts: Fit(_UNKNOWN, "2026-11-25"),
    DirectTiles: Fit(_UNKNOWN, "2026-11-25"),
    Winograd: Fit(_UNKNOWN, "2026-11-25"),
    WinogradCosts: Fit(_UNKNOWN, "2026-11-28"),
    WinogradAccuracy: Fit(_UNKNOWN, "2026-11-25"),
    AmxSizes: Fit(_UNKNOWN, "2026-11-27"),
    AmxCosts: Fit(_UNKNOWN, "2026-11-28"),
}
