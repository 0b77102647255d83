"""The pool of windows that tile the lanes, by force, around its blocks, with and without NaN, past the cache too."""

import itertools
from unittest.mock import patch

import numpy as np
import pytest

import unpool
from tests.cases import kernel_pools as kernel_cases
from tests.cases.kernel_paths import PATHS
from tests.cases.kernel_pools import TYPES, Kernel, PoolCase
from tests.cases.kernel_tiles import KERNELS
from tests.cases.values import pool_values
from unpool.execute import max_pool as executed
from unpool.geometry import Axis, Window
from unpool.kernels.cpu.max_pool import direct, rolling, separable, tiles
from unpool.kernels.cpu.max_pool.elements import compare_lanes
from unpool.kernels.cpu.max_pool.pool import PlaneAxes
from unpool.kernels.cpu.tuning import CACHE_LINE, POOL_MEMORY


def test_cases_are_tiles() -> None:
    """No case falls back to another kernel."""
    with (
        patch.object(direct, "launch", side_effect=AssertionError),
        patch.object(separable, "launch", side_effect=AssertionError),
    ):
        for case in PATHS["tiles"].cases()[::5]:
            kernel_cases.run(case, case.x, 1)


def aligned(like: np.ndarray) -> np.ndarray:
    """Memory of the shape and type of an array, which starts with a line of memory."""
    memory = np.zeros(like.nbytes + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + like.nbytes].view(like.dtype).reshape(like.shape)


def check_past_the_cache(case: PoolCase, threads: int) -> None:
    """The case is right when its outputs begin with a line of memory and are written past the cache."""
    expected = kernel_cases.reference(case)
    out = [aligned(each) for each in expected]
    with (
        patch.object(executed, "is_recycled", lambda _: True),
        patch.object(executed, "MIN_RECYCLED_BYTES", 0),
        patch.object(tiles, "POOL_MEMORY", POOL_MEMORY._replace(non_temporal=0)),
    ):
        kernel_cases.run(case, case.x, threads, out)
    for got, right in zip(out, expected, strict=True):
        assert got.tobytes() == np.ascontiguousarray(right).tobytes()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("lanes", [32, 48, 64, 112, 192, 224, 100])
def test_past_the_cache(kind: type, lanes: int) -> None:
    """Rows of whole lines, and indices beside values that are not, arrive whole, with and without NaN."""
    kernel = next(each for each in KERNELS if each.kind is kind and each.stride != 1)
    step, rng = kernel.stride, np.random.default_rng(lanes)
    window = {"kernel_shape": [2, step], "strides": [2, step], "dilations": [1, 1], "pads": [0] * 4, "ceil_mode": 0}
    for has_nan, threads in itertools.product((False, True), (1, 2)):
        x = pool_values(rng, (2, 2, 6, step * lanes), np.dtype(kind))
        if not has_nan:
            x[x != x] = 1
        chosen = PoolCase(f"{kernel}", kernel, x, window | {"storage_order": 0}, "NCHW", 1, (0, 0, 0))
        check_past_the_cache(chosen, threads)


@pytest.mark.parametrize("channels", [32, 64])
def test_overlapping_windows_past_the_cache(channels: int) -> None:
    """Channels last, windows that overlap and reach into padding: whole lines arrive whole, with and without NaN."""
    kernel = Kernel(np.float32, 1, has_indices=True, is_separable=False, by_tiles=True)
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [1, 1], "pads": [1] * 4, "ceil_mode": 0}
    for has_nan, threads in itertools.product((False, True), (1, 2)):
        x = pool_values(np.random.default_rng(channels), (2, 7, 8, channels), np.dtype(np.float32))
        if not has_nan:
            x[x != x] = 1
        chosen = PoolCase(f"{kernel}", kernel, x, window | {"storage_order": 0}, "NHWC", 1, (0, 0, 0))
        check_past_the_cache(chosen, threads)


@pytest.mark.parametrize("columns", [16, 24, 40, 41])
def test_rolling_past_the_cache(columns: int) -> None:
    """Overlapping windows whose rows of indices are whole lines, in blocks that overlap, and such as are not."""
    kernel = Kernel(np.float32, 1, has_indices=True, is_separable=False, rolled=(3, 3))
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "pads": [1] * 4, "ceil_mode": 0}
    for has_nan, threads in itertools.product((False, True), (1, 2)):
        x = pool_values(np.random.default_rng(columns), (2, 3, 9, columns), np.dtype(np.float32))
        if not has_nan:
            x[x != x] = 1
        chosen = PoolCase(f"{kernel}", kernel, x, window | {"storage_order": 0}, "NCHW", 1, (0, 0, 0))
        check_past_the_cache(chosen, threads)
    assert rolling.indices_fill_lines(columns, "float32") == (
        columns % 8 == 0 and columns >= compare_lanes("float32") >= 8
    )


def test_too_many_lists() -> None:
    """Windows of which most are cut by padding, each in another way, are left to others."""
    axis = Axis(300, 300, Window(201, 1), 100)
    assert tiles.tiling(PlaneAxes((axis, axis), Axis(8, 8, Window(1)), 8)) is None
    assert tiles.tiling(PlaneAxes((axis,), Axis(8, 8, Window(1)), 8)) is not None
    assert tiles.tiling(PlaneAxes((Axis(2, 6, Window(1), 2),), Axis(8, 8, Window(1)), 8)) is None


def test_past_the_cache_is_reached() -> None:
    """Rows of whole lines are written past the cache; cut rows are not."""
    assert tiles.fills_lines(4, 32, 16)
    assert not tiles.fills_lines(4, 31, 16)
    assert not tiles.fills_lines(4, 24, 16)
    assert not tiles.fills_lines(2, 48, 32)
    register = tiles.block_lanes(4, 64, is_exact=False)
    assert tiles.block_lanes(4, 7 * register, is_exact=True) == register
    assert tiles.block_lanes(4, 7 * register // 2, is_exact=True) == register // 2
    assert tiles.block_lanes(4, 7 * register // 2, is_exact=False) == register


@pytest.mark.parametrize("place", [(0, 0), (1, 1), (1, 0)])
def test_one_nan_in_a_block(place: tuple[int, int]) -> None:
    """A single NaN is found wherever it is, and its neighbours in the block keep their own maximum."""
    for lane in (0, 15, 16, 31, 39):
        x = np.arange(2 * 80, dtype=np.float32).reshape(1, 1, 2, 80)
        x[0, 0, place[0], 2 * lane + place[1]] = np.nan
        y, indices = unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], return_indices=True)
        expected = 80 + 2 * np.arange(40) + 1
        expected[lane] = place[0] * 80 + 2 * lane + place[1]
        assert indices.ravel().tolist() == expected.tolist()
        assert np.isnan(y.ravel()[lane])
        assert np.isnan(y).sum() == 1


@pytest.mark.parametrize(
    "axis",
    [
        Axis(7, 3, Window(3, 2)),
        Axis(9, 3, Window(3, 3)),
        Axis(9, 3, Window(2, 2), 1),
        Axis(5, 3, Window(2, 2)),
        Axis(9, 3, Window(2, 2, 2)),
        Axis(9, 3, Window(1, 2)),
    ],
)
def test_leaves_other_windows(axis: Axis) -> None:
    """Windows that overlap, leave gaps, are dilated or padded, or end outside are not tiles."""
    assert tiles.tiling(PlaneAxes((), axis, 1)) is None
    assert tiles.tiling(PlaneAxes((), Axis(7, 3, Window(2, 2)), 1)) is not None
