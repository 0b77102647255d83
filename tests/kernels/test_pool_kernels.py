"""Every pooling kernel, chosen by force, on sizes around its blocks of lanes, its strips and its threads."""

import itertools
from dataclasses import replace
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest
from numba import njit, types

from tests import oracle
from tests.cases import kernel_pools as kernel_cases
from tests.cases.kernel_paths import PATHS
from tests.cases.kernel_pools import KERNELS, ROLLING_KERNELS, Kernel, plain_case, pool_case
from tests.support.guarded import survives
from tests.support.kernel_choice import is_chosen
from unpool.execute.arrays import CallOptions
from unpool.execute.max_pool import PreparedMaxPool
from unpool.geometry import Axis, Window
from unpool.kernels.cpu.max_pool import direct, kernels
from unpool.kernels.cpu.max_pool.elements import keys_of_bits
from unpool.kernels.cpu.max_pool.pool import ElementType, PlaneAxes, PoolMode, PoolProblem, is_far
from unpool.kernels.cpu.max_pool.separable import is_cheaper
from unpool.kernels.cpu.vector import load, splat, store
from unpool.operators import resolve


def test_reference_is_the_oracle() -> None:
    """On small sizes the fast reference of these tests gives what the oracle gives."""
    for number in range(120):
        case = pool_case(number, widest=7)
        expected = oracle.max_pool(case.x, **case.attributes, return_indices=True, layout=case.layout)
        got = kernel_cases.reference(replace(case, kernel=case.kernel._replace(has_indices=True), nan_last=False))
        assert [each.tobytes() for each in got] == [each.tobytes() for each in expected], case.name


def test_cases_are_hard() -> None:
    """The random cases reach more than one block of lanes, cut strips, and meet empty windows and NaN."""
    cases = PATHS["pools"].cases()
    outputs = [kernel_cases.reference(case) for case in cases]
    lanes = [y[0].shape[-1] for y in outputs]
    empty = [np.any(y[1] < 0) for y in outputs if len(y) == 2]
    nan = [np.any(y[0] != y[0]) for y in outputs]
    assert sum(count > 64 for count in lanes) > 100
    assert sum(count < 8 for count in lanes) > 15
    assert sum(empty) > 20
    assert sum(nan) > 50
    assert sum(case.strip_bytes < 1 << 12 and case.kernel.is_separable for case in cases) > 100
    assert {case.layout for case in cases} == {"NHWC", "NCHW"}
    assert {case.x.ndim for case in cases} == {3, 4, 5, 6}
    assert {(case.kernel, case.nan_last) for case in cases} == set(itertools.product(KERNELS, (False, True)))


@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8])
@pytest.mark.parametrize("is_separable", [False, True])
def test_windows_of_the_lowest(kind: type, is_separable: bool) -> None:
    """A window of only -inf, or of only the smallest integer, has its first element's index, beside padding too."""
    lowest = np.iinfo(kind).min if np.dtype(kind).kind in "iu" else -np.inf
    x = np.full((1, 2, 5, 70), lowest, kind)
    stride = 1 if is_chosen(kind, 1, has_indices=True) else 2
    kernel = Kernel(kind, stride, has_indices=True, is_separable=is_separable)
    window = {"kernel_shape": [3, 3], "pads": [2, 2, 2, 2], "strides": [1, stride]}
    case = plain_case("lowest", kernel, x, strip_bytes=1 << 10, **window)
    assert kernel_cases.difference(case, 1) is None


@pytest.mark.sample(4)
@pytest.mark.parametrize("kernel", ROLLING_KERNELS, ids=str)
def test_rolling_takes_the_lowest_for_data(kernel: Kernel) -> None:
    """Windows of only -inf have the index of their first element on data, and are not pooled again."""
    size = kernel.rolled or (0, 0)
    window = {"kernel_shape": list(size), "pads": [each - 1 for each in size * 2], "strides": [kernel.stride] * 2}
    x = np.full((1, 2, 16, 39), -np.inf, kernel.kind)
    x[:, :, 9:, 20:] = np.random.default_rng(2).choice([-np.inf, 1], (1, 2, 7, 19))
    with patch.object(direct, "launch", side_effect=AssertionError("pooled again")):
        case = plain_case("lowest", kernel, x, strip_bytes=1 << 10, **window)
        assert kernel_cases.difference(replace(case, gaps=(1, 2, 3)), 2) is None


@pytest.mark.parametrize(
    "shape", [(3, 5, 7, 9), (1, 2, 40, 70), (4, 8, 14, 14), (1, 3, 9, 10, 33), (2, 3, 300)], ids=str
)
@pytest.mark.parametrize("window", [(2, 1, 1), (3, 2, 1), (3, 1, 2), (5, 3, 1), (7, 1, 1), (12, 2, 1)], ids=str)
def test_clean_planes_are_not_pooled_again(shape: tuple[int, ...], window: tuple[int, int, int]) -> None:
    """Without NaN, and with data in every window, the separable kernel is right by itself, for every type."""
    size, stride, dilation = (min(window[0], *shape[2:]), *window[1:])
    rank, pad = len(shape) - 2, size // 2
    attributes = {
        "kernel_shape": [size] * rank, "strides": [stride] * rank, "pads": [pad] * rank * 2,
        "dilations": [min(dilation, shape[2] // size)] * rank,
    }  # fmt: skip
    x = np.random.default_rng(8).integers(1, 90, shape)
    for kind in kernel_cases.TYPES:
        for layout in ("NCHW", "NHWC"):
            given = x.astype(kind) if layout == "NCHW" else np.repeat(x.astype(kind), 7, axis=-1)
            has_indices = is_chosen(kind, stride if layout == "NCHW" else 1, has_indices=True)
            kernel = Kernel(kind, stride, has_indices, is_separable=True)
            case = plain_case(f"{kind} {layout}", kernel, given, layout, **attributes)
            with patch.object(direct, "launch", side_effect=AssertionError("pooled again")):
                assert kernel_cases.difference(case, 1) is None


@pytest.mark.parametrize("stride", [1_000_000, 4, 2])
def test_blocks_may_be_wider_than_the_line(stride: int) -> None:
    """Two windows at the end of a line: a block of lanes, each a stride apart, must not be read in full."""
    window = 2 * stride
    x = np.random.default_rng(3).integers(0, 2000, (1, 1, window + stride)).astype(np.float16)
    kernel = Kernel(np.float16, stride if stride in (2, 4) else 0, has_indices=True, is_separable=True)
    case = plain_case(f"{stride=}", kernel, x, strip_bytes=1 << 18, kernel_shape=[window], strides=[stride])
    assert survives(lambda: kernel_cases.run(case, x, 1))
    y, indices = kernel_cases.run(case, x, 1)
    assert indices.ravel().tolist() == [int(np.argmax(x[0, 0, :window])), stride + int(np.argmax(x[0, 0, stride:]))]
    assert y.ravel().tolist() == x[0, 0, indices.ravel()].tolist()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_keys_of_all_16_bit_floats(kind: type) -> None:
    """Among all 65,536 bit patterns integer keys order numbers as numbers; zeros are equal, and NaN is the largest."""
    lanes = 32

    @njit
    def keys_of(x, out, count, infinity):
        for at in range(0, 2 * count, 2 * lanes):
            store(out + at, keys_of_bits(load(x + at, types.int16, lanes), splat(infinity, lanes)))

    values = np.arange(1 << 16, dtype=np.uint16).view(kind)
    keys = np.empty(values.size, np.int16)
    keys_of(values.ctypes.data, keys.ctypes.data, values.size, np.array(np.inf, kind).view(np.int16)[()])
    wide = values.astype(np.float32)
    is_nan = np.isnan(wide)
    assert np.all(keys[is_nan] == np.iinfo(np.int16).max)
    assert keys[~is_nan].max() < np.iinfo(np.int16).max
    assert keys.min() > np.iinfo(np.int16).min
    order = np.argsort(wide[~is_nan], kind="stable")
    steps = np.diff(wide[~is_nan][order])
    assert np.array_equal(steps > 0, np.diff(keys[~is_nan][order].astype(int)) > 0)
    assert keys[0] == keys[1 << 15] == 0


def pool(outer: int, window: int, stride: int, size: int = 224, *, has_indices: bool = False) -> PoolProblem:
    axis, float32 = Axis(size, (size - window) // stride + 1, Window(window, stride)), np.dtype(np.int32)
    return PoolProblem(outer, PlaneAxes((axis,), axis, 1), ElementType(float32, 0, 0), has_indices, PoolMode())


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (pool(8, 2, 2), "tiles direct separable"),
        (pool(8, 3, 1), "rolling separable direct"),
        (pool(8, 29, 1), "separable direct"),
        (pool(1, 2, 1, 5), "direct separable"),
        (pool(1, 30_000, 1, 60_000), "doubling direct"),
    ],
)
def test_kernels_are_in_the_order_of_their_speed(problem: PoolProblem, names: str) -> None:
    """The first of them runs the call."""
    assert [each.name for each in kernels(problem)] == names.split()


@pytest.mark.parametrize(
    ("problem", "is_separated"),
    [(pool(64, 13, 1, has_indices=True), True), (pool(1024, 2, 2), False), (pool(2, 13, 1, 16), False)],
)
def test_routing_knows_both_kernels(problem: PoolProblem, is_separated: bool) -> None:
    """Overlapping windows are separated, windows that tile the plane are not, nor those of a small call."""
    assert is_cheaper(problem) == is_separated
    assert is_far(problem) or not is_separated


def test_prepared_call_says_which_kernel_it_runs() -> None:
    """By name; a call without results runs none."""
    attributes = {"kernel_shape": (2, 2), "strides": (2, 2)}
    for batch, name in ((1, "tiles"), (0, "")):
        prepared = PreparedMaxPool(
            resolve.spec("MaxPool", attributes), (((batch, 1, 64, 64), np.dtype(np.float32)),), CallOptions()
        )
        assert prepared.kernel == name
