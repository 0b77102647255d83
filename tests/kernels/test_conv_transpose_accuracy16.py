"""Float16 and bfloat16: summed in float32, rounded once; judged by the same sums in float64."""

import ml_dtypes
import numpy as np
import pytest

import unpool

CASES = 500  # of each type
DTYPES = {"float16": (np.float16, 11, -24), "bfloat16": (ml_dtypes.bfloat16, 8, -133)}
"""By name: the type, its significant bits, and the exponent of its least number."""


def draw(seed: int, dtype: type) -> tuple[list[np.ndarray], dict[str, object]]:
    """X, W and attributes of a call of rank 1 or 2; every 20th has 512 channels."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 3))
    channels = 512 if seed % 20 == 0 else int(rng.integers(1, 70))
    sizes, window, stride = ([int(n) for n in rng.integers(1, top, rank)] for top in (9, 5, 4))
    group = 2 if seed % 5 == 1 else 1
    x = rng.standard_normal((1, channels * group, *sizes)).astype(dtype)
    w = (rng.standard_normal((channels * group, int(rng.integers(1, 9)), *window)) / channels**0.5).astype(dtype)
    return [x, w], {"strides": stride, "group": group}


def half_unit(y: np.ndarray, bits: int, least: int) -> np.ndarray:
    """Half the distance of neighbours at y."""
    _, exponent = np.frexp(y)
    return np.ldexp(0.5, np.maximum(exponent - bits, least))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", DTYPES)
def test_errors_are_those_of_float32_sums(name: str) -> None:
    """|y - y64| is at most half a unit of y plus K * 2**-24 * sum |x * w|, and 99 of 100 are the nearest numbers."""
    dtype, bits, least = DTYPES[name]
    nearest = count = 0
    for seed in range(CASES):
        inputs, attributes = draw(seed, dtype)
        y = unpool.conv_transpose(*inputs, **attributes)
        wide = [each.astype(np.float64) for each in inputs]
        exact = unpool.conv_transpose(*wide, **attributes)
        sizes = unpool.conv_transpose(*map(np.abs, wide), **attributes)
        terms = inputs[1][:, 0].size
        error = np.abs(y.astype(np.float64) - exact)
        limit = half_unit(np.maximum(np.abs(y.astype(np.float64)), np.abs(exact)), bits, least)
        assert np.all(error <= limit + terms * 2.0**-24 * sizes), (seed, attributes)
        nearest += int((y == exact.astype(dtype)).sum())
        count += y.size
    assert nearest >= 0.99 * count


@pytest.mark.parametrize("name", DTYPES)
def test_sums_beyond_the_type_are_infinite(name: str) -> None:
    """What float32 holds and the type does not becomes infinity; NaN and infinity pass through."""
    dtype = DTYPES[name][0]
    big = np.array(ml_dtypes.finfo(dtype).max, dtype)
    x = np.array([[[big, 1, np.inf, np.nan, -big]] * 2], dtype)
    y = unpool.conv_transpose(x, np.ones((2, 16, 1), dtype)).astype(np.float64)
    np.testing.assert_array_equal(y, np.broadcast_to([np.inf, 2, np.inf, np.nan, -np.inf], (1, 16, 5)))
