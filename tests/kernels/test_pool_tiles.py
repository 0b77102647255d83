"""The pool of windows that tile the lanes, by force, around its blocks, with and without NaN, past the cache too."""

import itertools
from unittest.mock import patch

import numpy as np
import pytest

import unpool
from tests.cases import kernel_pools as kernel_cases
from tests.cases.kernel_paths import PATHS
from tests.cases.kernel_pools import TYPES, Kernel, plain_case
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


def check_past_the_cache(kernel: Kernel, window: dict[str, list[int]], layout: str, shape: tuple[int, ...]) -> None:
    """Right with and without NaN, where outputs begin with a line of memory and are written past the cache."""
    rng = np.random.default_rng(shape)
    for has_nan, threads in itertools.product((False, True), (1, 2)):
        x = pool_values(rng, shape, np.dtype(kernel.kind))
        if not has_nan:
            x[x != x] = 1
        case = plain_case(f"{kernel}", kernel, x, layout, strip_bytes=1, **window)
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
    """Rows of whole lines, and indices beside values that are not, arrive whole."""
    kernel = next(each for each in KERNELS if each.kind is kind and each.stride != 1)
    step = [2, kernel.stride]
    check_past_the_cache(kernel, {"kernel_shape": step, "strides": step}, "NCHW", (2, 2, 6, kernel.stride * lanes))


@pytest.mark.parametrize("channels", [32, 64])
def test_overlapping_windows_past_the_cache(channels: int) -> None:
    """Channels last, windows that overlap and reach into padding: whole lines arrive whole."""
    kernel = Kernel(np.float32, 1, has_indices=True, is_separable=False, by_tiles=True)
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    check_past_the_cache(kernel, window, "NHWC", (2, 7, 8, channels))


@pytest.mark.parametrize("columns", [16, 24, 40, 41])
def test_rolling_past_the_cache(columns: int) -> None:
    """Overlapping windows whose rows of indices are whole lines, in blocks that overlap, and such as are not."""
    kernel = Kernel(np.float32, 1, has_indices=True, is_separable=False, rolled=(3, 3))
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4}
    check_past_the_cache(kernel, window, "NCHW", (2, 3, 9, columns))
    is_whole = columns % 8 == 0 and columns >= compare_lanes("float32") >= 8
    assert rolling.indices_fill_lines(columns, "float32") == is_whole


CHANNELS = Axis(8, 8, Window(1))


@pytest.mark.parametrize(
    ("leading", "lanes", "is_taken"),
    [
        ((), Axis(7, 3, Window(2, 2)), True),
        ((), Axis(7, 3, Window(3, 2)), False),  # overlap
        ((), Axis(9, 3, Window(3, 3)), False),
        ((), Axis(9, 3, Window(2, 2), 1), False),  # padding
        ((), Axis(5, 3, Window(2, 2)), False),  # end outside
        ((), Axis(9, 3, Window(2, 2, 2)), False),
        ((), Axis(9, 3, Window(1, 2)), False),  # gaps
        ((Axis(300, 300, Window(201, 1), 100),), CHANNELS, True),
        ((Axis(300, 300, Window(201, 1), 100),) * 2, CHANNELS, False),  # most are cut by padding, each in its way
        ((Axis(2, 6, Window(1), 2),), CHANNELS, False),
    ],
)
def test_leaves_other_windows(leading: tuple[Axis, ...], lanes: Axis, is_taken: bool) -> None:
    """Windows that are no tiles of the lanes, or of which too many are cut by padding, are left to others."""
    plane = PlaneAxes(leading, lanes, lanes.large if leading else 1)
    assert (tiles.tiling(plane) is not None) == is_taken


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
@pytest.mark.parametrize(("lanes", "lane"), [*((40, lane) for lane in (0, 15, 16, 31, 39)), (37, 36)])
def test_one_nan_in_a_block(place: tuple[int, int], lanes: int, lane: int) -> None:
    """A NaN is found wherever it is, at the end of a row that fills no block too; its neighbours keep their maximum."""
    x = np.arange(4 * lanes, dtype=np.float32).reshape(1, 1, 2, 2 * lanes)
    x[0, 0, place[0], 2 * lane + place[1]] = np.nan
    y, indices = unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], return_indices=True)
    expected = 2 * lanes + 2 * np.arange(lanes) + 1
    expected[lane] = place[0] * 2 * lanes + 2 * lane + place[1]
    assert indices.ravel().tolist() == expected.tolist()
    assert np.flatnonzero(np.isnan(y)).tolist() == [lane]
