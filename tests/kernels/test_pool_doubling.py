"""Windows that share most of their elements are pooled by doubling: the same is found, in less time."""

from itertools import product

import ml_dtypes
import numpy as np
import pytest

import unpool
from unpool.geometry import Axis, Window, clipped, pooling_walk
from unpool.kernels.cpu.max_pool import doubling
from unpool.kernels.cpu.max_pool.pool import ElementType, PlaneAxes, PoolMode, PoolProblem
from unpool.kernels.cpu.max_pool.separable_plan import _planes, chain
from unpool.kernels.cpu.max_pool.tiles import tiling

TYPES = {
    "float16": (np.float16, 0x7C00), "bfloat16": (ml_dtypes.bfloat16, 0x7F80), "float32": (np.float32, 0x7F800000),
    "float64": (np.float64, 0x7FF0000000000000), "int8": (np.int8, 0), "uint8": (np.uint8, 0),
}  # fmt: skip


def values(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Few different ones, both zeros and infinities, the least, and NaN."""
    rng, dtype = np.random.default_rng(seed), TYPES[kind][0]
    if "int" in kind:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).min + 4, shape).astype(dtype)
    some = np.array([0.0, -0.0, 1, 2, -3, np.inf, -np.inf, -np.inf, np.nan, -np.nan])
    return some[rng.integers(0, len(some) if seed % 2 else 8, shape)].astype(dtype)


def axis(rng: np.random.Generator) -> Axis:
    """Any window on a few elements, also one that leaves them out."""
    sizes, window = rng.integers((0, 1), (9, 9)).tolist(), Window(*rng.integers(1, (12, 5, 5)).tolist())
    return Axis(*sizes, window, int(rng.integers(-3, 14)))


def bit_view(array: np.ndarray) -> np.ndarray:
    return array.view(f"i{array.itemsize}") if array.dtype.kind not in "iu" else array


def walk(x: np.ndarray, axes: tuple[Axis, ...], nan_last: bool) -> tuple[list[object], list[int]]:
    """Bits of the largest element of every window of a plane, and its place, -1 for none: one after the other."""
    best, places, flat = [], [], x.reshape(-1)
    for position in np.ndindex(*(each.small for each in axes)):
        reach = [
            [at for at in (p * axis.window.stride - axis.begin + np.arange(axis.window.size) * axis.window.dilation)
             if 0 <= at < axis.large]
            for p, axis in zip(position, axes, strict=True)
        ]  # fmt: skip
        met = [int(np.ravel_multi_index(at, x.shape)) for at in product(*reach)]
        numbers = [at for at in met if flat[at] != flat[at]]
        place = numbers[-nan_last] if numbers else max(met, key=lambda at: (flat[at], -at), default=-1)
        best.append(flat[place].tobytes() if met else None)
        places.append(place)
    return best, places


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("channels", [0, 3])
def test_finds_what_a_walk_finds(kind: str, channels: int) -> None:
    """Values, places, the first or the last NaN, windows without data: bit for bit those of a walk."""
    for seed in range(24):
        rng = np.random.default_rng(seed)
        axes = tuple(axis(rng) for _ in range(1 + seed % 2))
        lanes = Axis(channels, channels, Window(1))
        plane = PlaneAxes(axes, lanes, channels) if channels else PlaneAxes(axes[:-1], axes[-1], 1)
        tail, dtype, infinity = (channels,) if channels else (), *TYPES[kind]
        x = values(kind, (2, *(each.large for each in axes), *tail), seed)
        lowest = np.array(-np.inf if infinity else np.iinfo(dtype).min, dtype)
        mode = PoolMode(bool(channels), nan_last=bool(seed & 2), per_plane=bool(seed & 4))
        y = np.zeros((2, *(each.small for each in axes), *tail), dtype)
        places = np.zeros(y.shape, np.int64)
        elements = ElementType(bit_view(x).dtype, infinity, int(bit_view(lowest)))
        pool = doubling.launch(PoolProblem(2, plane, elements, has_indices=True, mode=mode))
        pool(x, y, places, None)
        for number, (outer, channel) in enumerate(product(range(2), range(max(1, channels)))):
            lane = (outer, ..., channel) if channels else outer
            best, expected = walk(x[lane], axes, mode.nan_last)
            base = 0 if mode.per_plane else number * x[lane].size
            assert [each.tobytes() for each in y[lane].ravel()] == [each or lowest.tobytes() for each in best]
            assert places[lane].ravel().tolist() == [at if at < 0 else at + base for at in expected]


def test_clipped_windows_read_the_same() -> None:
    """Taps that fall on data nowhere are no taps; every position keeps the others, and its place."""
    for seed in range(300):
        full = axis(np.random.default_rng(seed))
        short = clipped(full)
        before, after = pooling_walk(full), pooling_walk(short)
        assert short.window.size <= full.window.size
        assert np.array_equal(before.count, after.count)
        is_data = before.count > 0
        assert np.array_equal(before.other[is_data], after.other[is_data])


@pytest.mark.parametrize("size", [2**10, 2**26 - 1, 2**31 - 1])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_window_beyond_the_data_is_one_that_covers_them(size: int, layout: str) -> None:
    """The largest windows that the standard has cost what those of the size of the data cost."""
    x = np.random.default_rng(3).standard_normal((1, 8, 9, 8)).astype(np.float32)
    for given in ({"auto_pad": "SAME_UPPER"}, {"pads": [size // 2, size // 2, size - size // 2, size - size // 2]}):
        y, places = unpool.max_pool(x, kernel_shape=size, return_indices=True, layout=layout, **given)
        assert np.isin(y, x).all()
        assert (places >= 0).all()


def test_many_windows_share_a_long_line() -> None:
    """Half a million windows of a hundred thousand elements, whether a kernel lays out the line or not."""
    x = np.random.default_rng(4).integers(0, 2**20, (1, 1, 1 << 19)).astype(np.float32)
    x[..., :: 1 << 17] = np.nan
    for line in (x, np.stack([x, x], axis=-1)[:, 0]):
        layout = "NCHW" if line is x else "NHWC"
        y, places = unpool.max_pool(line, kernel_shape=100_001, return_indices=True, layout=layout)
        of_nan = places[0, 0, :: 1 << 17] % 2**19
        assert of_nan.tolist() == [number << 17 for number in range(len(of_nan))]
        assert np.isnan(y).sum() < y.size


def test_windows_far_from_the_data_cost_nothing_but_their_outputs() -> None:
    """Padding of any width is not laid out: what is far from data is minus infinity, and at no place."""
    x = np.ones((1, 1, 2, 2), np.float32)
    y, places = unpool.max_pool(x, kernel_shape=3, strides=2**23, pads=2**31 - 3, return_indices=True)
    assert y.shape == (1, 1, 512, 512)
    assert ((y == -np.inf) == (places < 0)).all()
    assert (places >= 0).sum() <= 1


def test_planes_are_put_together_while_places_fit() -> None:
    """Wide planes with few results are not so many that 32 bits no longer count their elements."""
    assert _planes(2**20, 64, 2**10) == 512
    assert _planes(2**20, 64, 2**22) == 511
    assert _planes(2**20, 64, 2**31 - 1) == 1


@pytest.mark.parametrize("window", [Window(2**22, 2**20), Window(2**31 - 1, 2**30), Window(2**31 - 1)])
def test_chains_are_short(window: Window) -> None:
    """A window of any width is a few hundred taps in a chain, whatever the stride, and reaches its last element."""
    taps = chain(window)
    assert sum(map(len, taps)) < 400
    assert sum(each[-1] for each in taps) == window.size - 1


def test_lists_of_taps_are_bounded_before_they_are_made() -> None:
    """Channels last, as many different windows as positions, each as long as the axis: there is no table of them."""
    assert tiling(PlaneAxes((Axis(4096, 4096, Window(4096), 2048),), Axis(16, 16, Window(1)), 16)) is None
