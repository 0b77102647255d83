"""`out` is any array with a place of its own for every element; one whose elements share memory is refused."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import unpool

X = np.random.default_rng(0).standard_normal((1, 2, 4, 6)).astype(np.float32)
UNIT = {"kernel_shape": [1, 1]}
EVERY_PLACE = np.arange(X.size).reshape(X.shape)
POINT = np.ones((2, 1, 1, 1), np.float32)

CALLS = {
    "pool": lambda out: unpool.max_pool(X, **UNIT, out=out),
    "unpool": lambda out: unpool.max_unpool(X, EVERY_PLACE, **UNIT, out=out),
    "conv": lambda out: unpool.conv_transpose(X, POINT, group=2, out=out),
}


def laid(*strides: int) -> np.ndarray:
    """Floats of the shape of X, so many elements apart along every axis."""
    memory = np.zeros(1000, np.float32)
    return as_strided(memory[500:], X.shape, [4 * stride for stride in strides])


SHARED = [
    (0, 0, 0, 0),
    (48, 24, 0, 1),
    (48, 24, 6, 0),
    (48, 0, 6, 1),
    (48, 24, 5, 1),
    (0, 23, 6, 1),
    (0, 24, -5, 1),
    (0, 1, 2, 3),
]
APART = [(48, 24, 6, 1), (0, 24, 6, 1), (0, -24, 6, -1), (0, 1, 12, 2), (0, 100, 9, 1), (0, 24, 1, 4), (7, 3, 6, 30)]


@pytest.mark.parametrize("strides", SHARED)
@pytest.mark.parametrize("call", CALLS)
def test_elements_that_share_memory_are_refused(call, strides):
    """Rows on top of each other, steps of 0, and other ways to name one place twice."""
    with pytest.raises(unpool.UnpoolError, match="needs a place of its own for every element, got strides"):
        CALLS[call](laid(*strides))


@pytest.mark.parametrize("strides", APART)
@pytest.mark.parametrize("call", CALLS)
def test_any_other_strides_are_written(call, strides):
    """Turned, spread and interleaved arrays get what a new one gets."""
    out = laid(*strides)
    CALLS[call](out)
    assert np.array_equal(out, X)


def test_half_of_an_element_is_shared_too():
    """Steps are compared in bytes."""
    out = as_strided(np.zeros(1000, np.float32), X.shape, (0, 24 * 2, 6 * 2, 2))
    with pytest.raises(unpool.UnpoolError, match="needs a place of its own"):
        CALLS["pool"](out)


def test_indices_are_looked_at_too():
    """The second of a pair of outputs is refused as the first is."""
    wrong = as_strided(np.zeros(1, np.int64), X.shape, (0, 0, 0, 0))
    with pytest.raises(unpool.UnpoolError, match="out for Indices needs a place of its own"):
        unpool.max_pool(X, **UNIT, return_indices=True, out=(np.empty_like(X), wrong))
