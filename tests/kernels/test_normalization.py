"""The kernel of instance normalization against the formula in float64."""

import numpy as np
import pytest

from tests.support import models
from tests.support.guarded import beside_guard
from unpool.kernels.cpu import normalization
from unpool.kernels.cpu.normalization import normalize

SHAPES = {
    "one element": (1, 1, 1),
    "less than a vector": (2, 3, 5),
    "pairs of vectors and a rest": (1, 2, 103),
    "several blocks": (1, 2, 3 * normalization.BLOCK + 77),
    "no image": (0, 2, 4),
}


def formula(x, scale, shift, epsilon=1e-5):
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(-1, keepdims=True) + epsilon)
    normal = (wide - wide.mean(-1, keepdims=True)) / deviation
    return normal * scale[:, None] + shift[:, None]


def arguments(shape, mean=0):
    x = models.random(*shape) + np.float32(mean)
    return x, models.random(shape[1], seed=1), models.random(shape[1], seed=2)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_values_are_those_of_the_formula(name, threads):
    """Whatever the shape, in new memory and in place."""
    shape = SHAPES[name]
    x, scale, shift = arguments(shape)
    y = np.full_like(x, np.nan)
    normalize(x, y, scale, shift, 1e-5, threads=threads)
    np.testing.assert_allclose(y, formula(x, scale, shift), rtol=0, atol=3e-6)
    normalize(x, x, scale, shift, 1e-5, threads=threads)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "no image"])
@pytest.mark.parametrize("at_end", [False, True])
def test_no_stray_access(name, at_end):
    """Inputs and outputs touch protected pages, and nothing beyond them is read or written."""
    shape = SHAPES[name]
    x, scale, shift = (beside_guard(each, at_end=at_end, is_input=True) for each in arguments(shape))
    y = beside_guard(np.full(shape, np.nan, np.float32), at_end=at_end)
    normalize(x, y, scale, shift, 1e-5, threads=1)
    np.testing.assert_allclose(y, formula(x, scale, shift), rtol=0, atol=3e-6)


def test_a_large_mean_costs_no_digits():
    """Squares of values near 10000 are rounded to steps of 8; their differences from the mean are not."""
    x, scale, shift = arguments((1, 4, 20_000), mean=10_000)
    y = np.empty_like(x)
    normalize(x, y, scale, shift, 1e-5, threads=1)
    np.testing.assert_allclose(y, formula(x, scale, shift), rtol=0, atol=3e-6)


def test_results_do_not_depend_on_threads():
    """A channel is computed by one thread, in the same order of blocks."""
    x, scale, shift = arguments((2, 8, 40_000))
    results = [np.empty_like(x) for _ in range(3)]
    for threads, y in enumerate(results, 1):
        normalize(x, y, scale, shift, 1e-5, threads=threads)
    assert len({y.tobytes() for y in results}) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_channel_with_nan_or_infinity_is_nan(value):
    """As the formula gives it; other channels are not touched."""
    x, scale, shift = arguments((1, 3, 70))
    x[0, 1, 69] = value
    y = np.empty_like(x)
    normalize(x, y, scale, shift, 1e-5, threads=1)
    assert np.isnan(y[0, 1]).all()
    assert np.isfinite(y[0, ::2]).all()


def test_equal_values_give_the_shift():
    """Their variance is 0 exactly."""
    x = np.full((1, 1, 9000), np.float32(0.1))
    y = np.empty_like(x)
    normalize(x, y, np.float32([5]), np.float32([2]), 1e-5, threads=1)
    np.testing.assert_array_equal(y, np.full_like(x, 2))
