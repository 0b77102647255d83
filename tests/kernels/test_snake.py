"""The kernel of the activation Snake against the formula in float64."""

import numpy as np
import pytest

from tests.support import models
from tests.support.guarded import beside_guard
from unpool.execute.snake import write_narrow
from unpool.kernels.cpu.snake import LARGEST, snake

SHAPES = {
    "one element": (1, 1, 1),
    "less than a vector": (2, 3, 5),
    "vectors and a rest": (2, 3, 103),
    "much": (2, 8, 9000),
    "no image": (0, 2, 4),
    "no position": (1, 2, 0),
}


def assert_formula(y, x, factors):
    """The values are those in float64, of angles in float32, to rounding of the terms."""
    frequency, magnitude = factors
    with np.errstate(invalid="ignore"):
        added = magnitude[:, None] * np.sin((x * frequency[:, None]).astype(np.float64)) ** 2
        difference = np.abs(y - (x + added))
        assert not (difference > 4e-7 * (np.abs(x) + np.abs(added))).any()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x + added))


def arguments(shape, scale=3):
    return np.float32(scale) * models.random(*shape), models.random(2, shape[1], seed=1)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_values_are_those_of_the_formula(name, threads):
    """Whatever the shape, in new memory and in place."""
    x, factors = arguments(SHAPES[name])
    y = np.full_like(x, np.nan)
    assert snake(x, y, factors, threads=threads)
    assert_formula(y, x, factors)
    assert snake(x, x, factors, threads=threads)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", [name for name in SHAPES if 0 not in SHAPES[name]])
@pytest.mark.parametrize("at_end", [False, True])
def test_no_stray_access(name, at_end):
    """Inputs and outputs touch protected pages, and nothing beyond them is read or written."""
    shape = SHAPES[name]
    x, factors = (beside_guard(each, at_end=at_end, is_input=True) for each in arguments(shape))
    y = beside_guard(np.full(shape, np.nan, np.float32), at_end=at_end)
    assert snake(x, y, factors, threads=1)
    assert_formula(y, x, factors)


def test_angles_next_to_every_multiple_of_pi():
    """There the sine is what rounding of the multiple would leave."""
    turns = np.concatenate([np.arange(2000), np.linspace(2000, LARGEST / np.pi, 2000).astype(np.int64)])
    near = np.concatenate([turns * np.pi + shift for shift in (0, 1e-3, np.pi / 2)]).astype(np.float32)
    x = np.concatenate([near, -near])[None, None]
    x = np.ascontiguousarray(x[..., np.abs(x[0, 0]) < LARGEST])
    y, factors = np.empty_like(x), np.float32([[1], [1e12]])
    assert snake(x, y, factors, threads=1)
    assert_formula(y, x, factors)


@pytest.mark.parametrize("value", [2e6, -3e38, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 102])
def test_large_angles_are_those_of_numpy(value, place):
    """In a whole vector, and in the rest; the kernel says that it cannot compute them."""
    x, factors = models.random(1, 2, 103), np.float32([[1, 1], [0.5, 0.5]])
    x[0, 1, place] = value
    assert not snake(x, np.empty_like(x), factors, threads=1)
    y = np.empty_like(x)
    write_narrow([x], factors, [y], 1)
    assert_formula(y, x, factors)


def test_nan_stays_nan():
    """Its neighbours are not touched."""
    x, ones = models.random(1, 1, 40), np.ones((2, 1), np.float32)
    x[0, 0, ::3] = np.nan
    y = np.empty_like(x)
    write_narrow([x], ones, [y], 1)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("has_total", [False, True])
def test_a_residual_is_added_before_snake(name, has_total):
    """The sum is rounded to float32, as where it is an output."""
    x, factors = arguments(SHAPES[name])
    residual, y = models.random(*x.shape, seed=7), np.full_like(x, np.nan)
    total = np.full_like(x, np.nan) if has_total else None
    assert snake(x, y, factors, residual=residual, total=total, threads=2)
    assert_formula(y, x + residual, factors)
    if total is not None:
        np.testing.assert_array_equal(total, x + residual)


@pytest.mark.parametrize("at_end", [False, True])
def test_no_stray_access_of_sums(at_end):
    """All four arrays touch protected pages."""
    x, residual = (beside_guard(models.random(2, 3, 53, seed=seed), at_end=at_end, is_input=True) for seed in (1, 2))
    y, total = (beside_guard(np.full(x.shape, np.nan, np.float32), at_end=at_end) for _ in range(2))
    ones = np.ones((2, 3), np.float32)
    assert snake(x, y, ones, residual=residual, total=total, threads=1)
    np.testing.assert_array_equal(total, x + residual)
    assert_formula(y, total, ones)
