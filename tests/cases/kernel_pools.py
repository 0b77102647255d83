"""Pools that are larger than a block of lanes, each for one chosen kernel, and a fast reference for them.

`pool_case(number)` makes a case; `run` forces its kernel on arrays that start anywhere, `expected` says what is right.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import ml_dtypes
import numpy as np

from tests.cases.values import pool_values
from tests.oracle.max_pool import linear, pool_axes
from tests.oracle.rows import from_channels_first, to_channels_first
from tests.oracle.window import Pooled
from tests.support.kernel_choice import is_chosen
from unpool import execute
from unpool.kernels.cpu import max_pool as kernels
from unpool.kernels.cpu.machine import threads as splitter
from unpool.kernels.cpu.max_pool import direct, rolling, running_max, separable_plan, tiles
from unpool.kernels.cpu.max_pool import pool as pools
from unpool.kernels.cpu.tuning import POOL_MEMORY, ROLLING_POOL, SEPARABLE_POOL, ThreadCosts
from unpool.operators import resolve

Rng = np.random.Generator
Outputs = tuple[np.ndarray, ...]

TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8)
ANY_STRIDE = 0
STRIDES = (1, 2, ANY_STRIDE)
BLOCKS = (8, 16, 32, 64, 128)
WIDEST_LANES = 200
CANARY = 0xA5


class Kernel(NamedTuple):
    """One compiled kernel, and the element type that it is called with; `rolled` is the window of the rolling one."""

    kind: type
    stride: int
    has_indices: bool
    is_separable: bool
    is_wide: bool = False
    by_tiles: bool = False
    rolled: tuple[int, int] | None = None


ALL_KERNELS = tuple(
    Kernel(kind, stride, has_indices, is_separable)
    for kind, stride, has_indices, is_separable in itertools.product(TYPES, STRIDES, (True, False), (False, True))
)
KERNELS = tuple(each for each in ALL_KERNELS if is_chosen(each.kind, each.stride, each.has_indices))
WIDE_KERNELS = tuple(
    Kernel(kind, 1, has_indices=True, is_separable=False, is_wide=True) for kind in (np.float32, np.float16)
)
ROLLING_KERNELS = tuple(
    Kernel(kind, stride, has_indices, is_separable=False, rolled=window)
    for kind, stride, has_indices, window in (
        (np.float32, 1, True, (3, 3)),
        (np.float32, 2, True, (3, 3)),
        (np.float32, 2, False, (2, 5)),
        (np.float64, 1, True, (5, 11)),
        (np.float16, 2, True, (3, 3)),
        (ml_dtypes.bfloat16, 2, True, (3, 3)),
        (ml_dtypes.bfloat16, 1, False, (2, 13)),
    )
)
SAMPLE_KERNELS = ROLLING_KERNELS[:2] + tuple(
    kernel
    for kernel in ALL_KERNELS
    if (TYPES.index(kernel.kind) + STRIDES.index(kernel.stride)) % 4 == kernel.has_indices + 2 * kernel.is_separable
)
"""A quarter of the kernels, in which every two of type, stride, indices and way of working meet."""


@dataclass(frozen=True, eq=False)
class PoolCase:
    """One call."""

    name: str  # the whole call in one line
    kernel: Kernel  # that computes it
    x: np.ndarray  # (N, C, D1..Dk), or (N, D1..Dk, C)
    attributes: dict[str, Any]  # of MaxPool
    layout: str  # NCHW or NHWC
    strip_bytes: int  # how much of a plane the separable kernel keeps at once
    gaps: tuple[int, int, int]  # elements in front of x, y and the indices in their memory
    nan_last: bool = False  # whether the last NaN of a window is found


def pool_case(number: int, kernels: Sequence[Kernel] = KERNELS, widest: int = WIDEST_LANES) -> PoolCase:
    """A case for one kernel after the other, then for all of them again with the last NaN of a window; seeded."""
    rng = np.random.default_rng(number)
    place = number % len(kernels)
    kernel = kernels[place]
    nan_last = number // len(kernels) % 2 == 1
    layout = "NHWC" if kernel.stride == 1 and not kernel.rolled and rng.random() < 0.5 else "NCHW"
    rank = 2 if kernel.rolled else int(rng.choice((1, 2, 3, 4), p=(0.25, 0.45, 0.2, 0.1)))
    lanes = None if layout == "NHWC" else rank - 1
    axes = (
        axis(rng, rank, axis_stride(rng, kernel, n == lanes), widest, is_lanes=n == lanes, rolled=rolled)
        for n, rolled in enumerate(kernel.rolled or (None,) * rank)
    )
    sizes, windows = zip(*axes, strict=True)
    batch, channels = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    if layout == "NHWC":
        channels = int(rng.integers(1, widest + 1)) if rng.random() < 0.4 else near_block(rng, widest)
    shape = (batch, *sizes, channels) if layout == "NHWC" else (batch, channels, *sizes)
    window, stride, dilation, begin, end = zip(*windows, strict=True)
    attributes = {
        "kernel_shape": list(window),
        "strides": list(stride),
        "dilations": list(dilation),
        "pads": [*begin, *end],
        "ceil_mode": int(rng.integers(2)),
        "storage_order": int(rng.random() < 0.2),
    }
    kind = np.dtype(kernel.kind)
    name = f"{number}: {kernel} {nan_last=} {layout} {list(shape)} {attributes}"
    x = pool_values(rng, shape, kind)
    gaps = tuple(int(gap) for gap in rng.integers(0, 64, 3))
    strip_bytes = int(rng.choice((1, 1 << 10, 1 << 12, SEPARABLE_POOL.strip)))
    return PoolCase(name, kernel, x, attributes, layout, strip_bytes, gaps, nan_last)


def plain_case(
    name: str, kernel: Kernel, x: np.ndarray, layout: str = "NCHW", strip_bytes: int = 1 << 12, **attributes: Any
) -> PoolCase:
    """A case at the beginning of its memory, without padding, dilation and ceil_mode but for given attributes."""
    rank = x.ndim - 2
    plain = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank, "ceil_mode": 0, "storage_order": 0}
    return PoolCase(name, kernel, x, plain | attributes, layout, strip_bytes, (0, 0, 0))


def axis_stride(rng: Rng, kernel: Kernel, is_lanes: bool) -> int:
    """The kernel's own stride along the lanes, any along the other axes unless it rolls."""
    if kernel.rolled or (is_lanes and kernel.stride != ANY_STRIDE):
        return kernel.stride
    return int(rng.choice((3, 4, 5))) if is_lanes else int(rng.integers(1, 6))


def axis(
    rng: Rng, rank: int, stride: int, widest: int, *, is_lanes: bool, rolled: int | None = None
) -> tuple[int, tuple[int, ...]]:
    """The size of an axis that holds at least one window, and its window, stride, dilation and pads.

    A window that is rolled along has its size, no dilation, and no padding of its size.
    """
    window = int(rng.integers(1, 14 if rng.random() < 0.2 else 5)) if is_lanes or rank < 3 else int(rng.integers(1, 4))
    dilation = int(rng.integers(1, 4))
    if rolled:
        window, dilation = rolled, 1
    reach = (window - 1) * dilation + 1
    wide = rng.random() < 0.2 and not rolled
    begin, end = (int(pad) for pad in rng.integers(0, reach + 4 if wide else min(reach, 4), 2))
    if is_lanes and rng.random() < 0.6:
        size = (near_block(rng, widest) - 1) * stride + reach - begin - end
    else:
        size = int(rng.integers(1, widest if is_lanes else 10 if rank < 3 else 5))
    least = reach - begin - end
    return max(1, least, min(size, 2 * widest)), (window, stride, dilation, begin, end)


def near_block(rng: Rng, widest: int) -> int:
    """A whole number of blocks of lanes, or one more or less."""
    block = int(rng.choice([block for block in BLOCKS if block <= widest] or [widest]))
    return max(1, block * int(rng.integers(1, widest // block + 1)) + int(rng.integers(-1, 2)))


def reference(case: PoolCase) -> Outputs:
    """As the oracle, a tap of all windows at a time; `nan_last` finds the last NaN of a window."""
    x = np.ascontiguousarray(to_channels_first(case.x, case.layout))
    given = {name: value for name, value in case.attributes.items() if name != "storage_order"}
    axes = pool_axes(x.shape, **given, auto_pad="NOTSET", compat="spec")
    source = sources(x, axes, nan_last=case.nan_last)
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    y = np.where(source >= 0, bits_of(x).reshape(-1)[source], bits_of(np.array(lowest, x.dtype))).view(x.dtype)
    if not case.kernel.has_indices:
        return (from_channels_first(y, case.layout),)
    indices = source
    if case.attributes["storage_order"]:
        inside = np.arange(x.size).reshape(x.shape)
        column_major = linear(np.unravel_index(inside, x.shape), x.shape, 1)
        indices = np.where(source >= 0, column_major.reshape(-1)[source], -1)
    return from_channels_first(y, case.layout), indices


def sources(x: np.ndarray, axes: Sequence[Pooled], *, nan_last: bool) -> np.ndarray:
    """Where the maximum of every window is in a channels-first x, as a flat row-major index; -1 for empty windows."""
    with np.errstate(all="ignore"):
        values = x.astype(np.float64)
    flat = np.arange(x.size).reshape(x.shape)
    shape = (*x.shape[:2], *(axis.size for axis in axes))
    best, found = np.zeros(shape), np.full(shape, -1, np.int64)
    for tap in np.ndindex(*(axis.window for axis in axes)):
        places = [np.arange(a.size) * a.stride + t * a.dilation - a.begin for t, a in zip(tap, axes, strict=True)]
        inside = np.array(True)
        for place, axis in zip(places, axes, strict=True):
            inside = inside[..., np.newaxis] & (place >= 0) & (place < axis.large)
        grid = np.ix_(*(np.arange(size) for size in x.shape[:2]), *(
            np.clip(place, 0, axis.large - 1) for place, axis in zip(places, axes, strict=True)
        ))  # fmt: skip
        value = values[grid]
        is_nan, was_nan = value != value, best != best
        wins = inside & ((found < 0) | (value > best) | is_nan & (nan_last | ~was_nan))
        best, found = np.where(wins, value, best), np.where(wins, flat[grid], found)
    return found


def bits_of(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


@contextmanager
def forced(kernel: Kernel, strip_bytes: int = SEPARABLE_POOL.strip) -> Iterator[None]:
    """Pool with this kernel, and split the work over threads, whatever the sizes."""
    caches, is_wide = (separable_plan.plan_strips, direct._rows), running_max.is_wide
    least = 0 if kernel.rolled else math.inf
    with (
        patch.object(tiles, "tiling", tiles.tiling if kernel.by_tiles else lambda *_: None),
        patch.object(rolling, "ROLLING_POOL", ROLLING_POOL._replace(elements=least, band=strip_bytes, band_rows=1)),
        patch.object(pools, "POOL_MEMORY", POOL_MEMORY._replace(far=strip_bytes, prefetched=strip_bytes)),
        patch.object(kernels.separable, "is_cheaper", lambda *_: kernel.is_separable),
        patch.object(running_max, "is_wide", lambda *sizes: kernel.is_wide or is_wide(*sizes)),
        patch.object(separable_plan, "SEPARABLE_POOL", SEPARABLE_POOL._replace(strip=strip_bytes)),
        eager_threads(),
    ):
        execute.clear_cache()
        for cached in caches:
            cached.cache_clear()
        try:
            yield
        finally:
            execute.clear_cache()
            for cached in caches:
                cached.cache_clear()


def eager_threads() -> Any:
    """Split even the smallest work over the threads that a call may use."""
    return patch.object(splitter, "THREADS", ThreadCosts(thread=1))


def placed(x: np.ndarray, gap: int) -> tuple[np.ndarray, np.ndarray]:
    """A copy of x that starts `gap` elements into its memory, and that memory as bytes."""
    start = gap * x.itemsize
    memory = np.full(start + x.nbytes + 64 * x.itemsize, CANARY, np.uint8)
    copy = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy, memory


def given(x: np.ndarray, gap: int) -> np.ndarray:
    """A copy of an input that starts `gap` elements into its memory."""
    return placed(x, gap)[0]


def run(case: PoolCase, x: np.ndarray, threads: int, out: Sequence[np.ndarray] = ()) -> Outputs:
    """The outputs of the case for its x, or a copy of it."""
    spec = resolve.spec("MaxPool", case.attributes, domain="com.ms.internal.nhwc" if case.layout == "NHWC" else "")
    outputs = 2 if case.kernel.has_indices else 1
    with forced(case.kernel, case.strip_bytes):
        return execute.run(spec, [x], outputs=outputs, threads=threads, out=out, nan_last=case.nan_last)


def difference(case: PoolCase, *threads: int) -> str | None:
    """What is wrong with the case, run on misplaced arrays by each number of threads; None if nothing is."""
    expected = reference(case)
    found = (difference_from(expected, case, count) for count in threads)
    return next((each for each in found if each), None)


def difference_from(expected: Outputs, case: PoolCase, threads: int) -> str | None:
    """What is wrong with the case, by a number of threads; None if nothing is."""
    x = given(case.x, case.gaps[0])
    targets = [placed(np.zeros_like(each), gap) for each, gap in zip(expected, case.gaps[1:], strict=False)]
    run(case, x, threads, [target for target, _ in targets])
    for number, (right, (got, memory)) in enumerate(zip(expected, targets, strict=True)):
        right = np.ascontiguousarray(right)
        if got.tobytes() != right.tobytes():
            wrong = np.argwhere(bits_of(got) != bits_of(right))
            first = tuple(wrong[0])
            return (
                f"{case.name}, {threads=}\noutput {number}: {len(wrong)} differ, first at {first}: {got[first]}, not "
                f"{right[first]}"
            )
        start = case.gaps[1 + number] * got.itemsize
        if np.any(memory[:start] != CANARY) or np.any(memory[start + got.nbytes :] != CANARY):
            return f"{case.name}, {threads=}\noutput {number}: wrote outside its memory"
    return None
