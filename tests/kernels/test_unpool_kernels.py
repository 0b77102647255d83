"""Max unpooling as a stream, by force: windows of all kinds, y anywhere in memory, and indices that are not its own."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import Mock, patch

import numpy as np
import pytest

import unpool
from tests.cases import kernel_pools as kernel_cases
from tests.cases.kernel_pools import CANARY, placed
from unpool import execute, memory
from unpool.geometry import Axis, Window
from unpool.kernels.cpu.machine.plan import DONE, NOT_MET, KernelPlan, Kind, Operand
from unpool.kernels.cpu.max_unpool import scatter, windows
from unpool.kernels.cpu.max_unpool.scatter import window_check
from unpool.kernels.cpu.tuning import CACHE_LINE, UNPOOL

Rng = np.random.Generator
BITS = (np.int16, np.int32, np.int64)
CASES = 60


def axes_of(rng: Rng, rank: int) -> tuple[Axis, ...]:
    """Windows of two along the last axis; along the others of any size, with gaps, pads and a y of any size."""
    found = []
    for _ in range(rank - 1):
        size = int(rng.integers(1, 4))
        window = Window(size, size + int(rng.integers(2)))
        begin, small = int(rng.integers(0, 3)), int(rng.integers(1, 6))
        least = (small - 1) * window.stride - begin + 1
        found.append(Axis(max(1, least, small * window.stride + int(rng.integers(-3, 3))), small, window, begin))
    small = max(1, int(rng.choice((1, 3, 8, 16, 32, 48, 64))) + int(rng.integers(-1, 2)))
    return (*found, Axis(2 * small + int(rng.integers(0, 40) if rng.random() < 0.5 else 0), small, Window(2, 2)))


def own_places(rng: Rng, axes: tuple[Axis, ...], planes: int) -> np.ndarray:
    """For every element an index into its own window, inside y."""
    place = np.arange(planes).reshape(planes, *(1 for _ in axes))
    for number, axis in enumerate(axes):
        shape = [axis.small if other == number else 1 for other in range(len(axes))]
        start = (np.arange(axis.small) * axis.window.stride - axis.begin).reshape(shape)
        low, high = np.maximum(start, 0), np.minimum(start + axis.window.size, axis.large)
        size = (planes, *(each.small for each in axes))
        place = place * axis.large + rng.integers(np.broadcast_to(low, size), np.maximum(high, low + 1))
    return place


def scattered(x: np.ndarray, indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros with x at the indices."""
    flat = np.zeros(math.prod(shape), x.dtype)
    flat[indices.reshape(-1)] = x.reshape(-1)
    return flat.reshape(shape)


def case(number: int) -> tuple[np.ndarray, np.ndarray, tuple[Axis, ...], tuple[int, ...]]:
    """x, indices, axes and the shape of y, whose every window has a cell in y."""
    rng = np.random.default_rng(number)
    kind = BITS[number % len(BITS)]
    axes = axes_of(rng, int(rng.integers(1, 5)))
    while any(each.window.size <= each.begin for each in axes):
        axes = axes_of(rng, int(rng.integers(1, 5)))
    planes = int(rng.integers(1, 5))
    indices = own_places(rng, axes, planes)
    info = np.iinfo(kind)
    x = rng.integers(info.min, info.max, indices.shape, kind, endpoint=True)
    return x, indices, axes, (planes, *(each.large for each in axes))


@contextmanager
def past_cache(*, always: bool) -> Iterator[None]:
    """Write y past the cache wherever that is possible, or nowhere; and split the smallest work over threads."""
    with (
        patch.object(windows, "UNPOOL", UNPOOL._replace(non_temporal=0 if always else 1 << 62)),
        kernel_cases.eager_threads(),
    ):
        yield


def stream(x: np.ndarray, indices: np.ndarray, y: np.ndarray, axes: tuple[Axis, ...], threads: int) -> bool:
    """The kernel, told that the memory of y has been in use."""
    launch = windows.route(axes, x.shape[0], x.itemsize, channels_last=False, counts_in_y=True, is_recycled=True)
    return launch is not None and all(launch(x, indices, y, threads))


@pytest.mark.sample(9)
@pytest.mark.parametrize("number", range(CASES))
def test_streams_own_windows(number: int) -> None:
    """Every cell is x or zero, bit for bit, with any threads, and nothing beside y is written."""
    x, indices, axes, shape = case(number)
    expected = scattered(x, indices, shape)
    gap = number * 7 % 64
    x, _ = placed(x, gap)
    for threads in (1, 2, 3):
        y, memory = placed(np.full(shape, -1, x.dtype), gap)
        with past_cache(always=False):
            assert stream(x, indices, y, axes, threads)
        assert y.tobytes() == expected.tobytes(), threads
        start = gap * y.itemsize
        assert np.all(memory[:start] == CANARY)
        assert np.all(memory[start + y.nbytes :] == CANARY)


@pytest.mark.parametrize("places", [(0,), (1,), (0, 2), (1, 2)])
def test_streams_with_axes_of_one(places: tuple[int, ...]) -> None:
    """Axes of one element change nothing, wherever they are: the exporter of torch writes one last."""
    rng = np.random.default_rng(8)
    axes: list[Axis] = [Axis(50, 25, Window(2, 2))]
    for place in places:
        axes.insert(place, Axis(1, 1, Window(1, 1)))
    indices = own_places(rng, tuple(axes), 3)
    check_stream(rng, indices, tuple(axes), 9, indices.reshape(-1)[9] + 4)


def check_stream(rng: Rng, indices: np.ndarray, axes: tuple[Axis, ...], place: int, wrong: int) -> np.ndarray:
    """Three planes are streamed, but not with another index at a place; the elements, with that index."""
    x, shape = rng.integers(1, 1000, indices.shape, np.int32), (3, *(axis.large for axis in axes))
    y = np.full(shape, -1, np.int32)
    assert stream(x, indices, y, axes, 2)
    assert y.tobytes() == scattered(x, indices, shape).tobytes()
    indices.reshape(-1)[place] = wrong
    assert not stream(x, indices, y, axes, 2)
    return x


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_streams_windows_that_overlap(rank: int) -> None:
    """As windows of their stride, if they hold all indices: the exporter of torch writes these for odd sizes."""
    rng = np.random.default_rng(rank)
    wide, narrow = (
        tuple(Axis(2 * size + 1, size, Window(window, 2)) for size in (4, 5, 22)[-rank:]) for window in (3, 2)
    )
    indices, shape = own_places(rng, narrow, 3), (3, *(axis.large for axis in wide))
    last = np.ravel_multi_index((2, *(2 * axis.small for axis in wide)), shape)
    x = check_stream(rng, indices, wide, -1, last)
    window = {"kernel_shape": [3] * rank, "strides": [2] * rank}
    y = unpool.max_unpool(x[None].view(np.float32), indices[None], **window)
    assert y.tobytes() == scattered(x, indices, shape).tobytes()


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("lines", [1, 2, 3, 7])
def test_streams_past_the_cache(kind: type, lines: int) -> None:
    """Rows that are whole lines of memory, an odd number of them too, arrive whole."""
    rng = np.random.default_rng(lines)
    small = lines * CACHE_LINE // np.dtype(kind).itemsize // 2
    axes = (Axis(9, 4, Window(2, 2)), Axis(2 * small, small, Window(2, 2)))
    indices = own_places(rng, axes, 3)
    x = rng.integers(1, 1000, indices.shape, kind)
    block = np.full(3 * 9 * 2 * small * x.itemsize + CACHE_LINE, CANARY, np.uint8)
    block = block[-block.ctypes.data % CACHE_LINE :]
    y = block[: 3 * 9 * 2 * small * x.itemsize].view(kind).reshape(3, 9, 2 * small)
    for threads in (1, 2):
        y[...] = -1
        with past_cache(always=True):
            assert windows.is_worth_non_temporal(y.nbytes, y.shape[-1] * y.itemsize)
            assert stream(x, indices, y, axes, threads)
        assert y.tobytes() == scattered(x, indices, y.shape).tobytes()
        assert np.all(block[y.nbytes :] == CANARY)


def is_consistent(indices: np.ndarray, axes: tuple[Axis, ...], planes: int) -> bool:
    """True if every index is in its own plane and window."""
    given = Operand(Kind.INPUT, 0, indices.shape, indices.dtype)
    step = window_check(given, axes, planes, (DONE, NOT_MET))
    return KernelPlan((step,), (given,)).run((indices,), 1) is None


@pytest.mark.parametrize("number", range(0, CASES, 7))
def test_refuses_indices_elsewhere(number: int) -> None:
    """A single index outside its own window, wherever it is, and however far away, is noticed."""
    x, indices, axes, shape = case(number)
    y = np.empty(shape, x.dtype)
    refused = 0
    for position in {0, x.size // 2, x.size - 1}:
        for away in (-2, 2, shape[-1], -shape[-1], 4 * shape[-1], 1 << 16, 1 << 32, -(1 << 32), 1 << 62, -(1 << 62)):
            moved = indices.copy()
            moved.reshape(-1)[position] += away
            is_own = is_consistent(moved, axes, x.shape[0])
            refused += not is_own
            with past_cache(always=False):
                assert stream(x, moved, y, axes, 1 + position % 2) == is_own, (position, away)
    assert refused >= 6


def test_refuses_equal_indices() -> None:
    """Two elements at one place: one of them is not in its own window."""
    x, indices, axes, shape = case(3)
    indices.reshape(-1)[-1] = indices.reshape(-1)[-2]
    with past_cache(always=False):
        assert not stream(x, indices, np.empty(shape, x.dtype), axes, 2)


@pytest.mark.parametrize(
    "axis", [Axis(9, 3, Window(3, 3)), Axis(9, 3, Window(2, 3)), Axis(6, 3, Window(2, 2), 1), Axis(5, 3, Window(2, 2))]
)
def test_leaves_other_windows(axis: Axis) -> None:
    """Windows that are not two wide, have gaps or pads, or are cut along the last axis are not streamed."""
    x, indices = np.ones((1, 3), np.int32), np.array([[0, 2, 4]])
    assert not stream(x, indices, np.empty((1, axis.large), np.int32), (axis,), 1)


WINDOW = {"kernel_shape": [2, 2], "strides": [2, 2]}


def large_case(rng: Rng, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Values with NaN and negative zeros, and own indices into a y of twice the size."""
    axes = tuple(Axis(2 * size, size, Window(2, 2)) for size in shape[2:])
    planes = shape[0] * shape[1]
    x = rng.choice(np.array([np.nan, -0.0, 1, -np.inf], np.float32), shape)
    return x, own_places(rng, axes, planes).reshape(shape)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("away", [2, -(1 << 40), 1 << 40])
@pytest.mark.parametrize("position", [0, -1])
def test_call_with_one_index_elsewhere(threads: int, away: int, position: int) -> None:
    """In range it is scattered and the last of equals wins; out of range it is named, and out keeps what it had."""
    x, moved = large_case(np.random.default_rng(1), (2, 3, 20, 33))
    moved.reshape(-1)[position] += away if position == 0 or abs(away) > 2 else -away
    out = np.full((2, 3, 40, 66), 7, np.float32)
    with kernel_cases.eager_threads():
        for target in (None, out):
            if abs(away) > 2:
                with pytest.raises(unpool.IndicesError):
                    unpool.max_unpool(x, moved, **WINDOW, threads=threads, out=target)
                assert np.all(out == 7)
            else:
                y = unpool.max_unpool(x, moved, **WINDOW, threads=threads, out=target)
                assert y.tobytes() == scattered(x, moved, out.shape).tobytes()


@pytest.mark.parametrize("extra", [0, 1, 5])
def test_auto_streams_what_fits_the_output(extra: int) -> None:
    """Under "auto" indices that fit the output are streamed; those that fit the inferred shape only are not."""
    rng = np.random.default_rng(5)
    shape, small = (1, 2, 8 + extra, 66 + extra), (1, 2, 4, 33)
    axes = tuple(Axis(large, size, Window(2, 2)) for large, size in zip(shape[2:], small[2:], strict=True))
    x = rng.normal(size=small).astype(np.float32)
    own = own_places(rng, axes, 2).reshape(small)
    y = unpool.max_unpool(x, own, np.array(shape), **WINDOW)
    assert y.tobytes() == scattered(x, own, shape).tobytes()
    inferred = large_case(rng, small)[1]
    y = unpool.max_unpool(x, inferred, np.array(shape), **WINDOW)
    assert np.array_equal(y[..., :8, :66], scattered(x, inferred, (1, 2, 8, 66)))


def test_memory_that_was_written() -> None:
    """Only a large output in the block of an earlier one is known to be written; views of it too."""
    memory.set_pool_limit(0)
    memory.set_pool_limit(memory.DEFAULT_LIMIT)
    size = (memory.MIN_RECYCLED_BYTES,)
    first = memory.allocate(size, np.dtype(np.uint8), "test")
    assert first.ctypes.data % CACHE_LINE == 0
    assert not memory.is_recycled(first)
    del first
    again = memory.allocate(size, np.dtype(np.uint8), "test")
    assert memory.is_recycled(again.view(np.int32)[3:])
    assert not memory.is_recycled(np.empty(size))


def test_large_outputs_are_streamed() -> None:
    """A genuine pool's indices never reach the check or the scatter when the memory is ours."""
    x, indices = large_case(np.random.default_rng(2), (1, 2, 8, 16))
    with patch.object(scatter, "_range_check", return_value=Mock(run=Mock(side_effect=AssertionError))):
        execute.clear_cache()
        y = unpool.max_unpool(x, indices, **WINDOW)
    assert y.tobytes() == scattered(x, indices, y.shape).tobytes()
