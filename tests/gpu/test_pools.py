"""Max pooling by the kernels in Triton, however they walk the windows: every bit and index is the CPU's."""

import ml_dtypes
import numpy as np
import pytest
import torch

import unpool
import unpool.torch as ours
from tests.support.gpu import array, routed, tensor

pytestmark = pytest.mark.slow

TYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8, np.uint8)

PASSES = {
    "side by side": ([12, 16], {"kernel_shape": [5, 5], "pads": 2}),
    "strides": ([17, 14], {"kernel_shape": [7, 6], "strides": [1, 3], "pads": [3, 2, 1, 0]}),
    "passes over gaps": ([13, 15], {"kernel_shape": [5, 5], "dilations": [2, 3], "pads": [4, 6, 4, 6]}),
    "with ceil": ([10, 11], {"kernel_shape": [6, 4], "strides": [2, 2], "ceil_mode": 1}),
    "column-major passes": ([9, 12], {"kernel_shape": [5, 5], "pads": 2, "storage_order": 1}),
    "without data": ([2, 9], {"kernel_shape": [9, 4], "dilations": [1, 4], "pads": [8, 6, 8, 6]}),
    "three axes": ([6, 5, 8], {"kernel_shape": [3, 4, 3], "pads": 1}),
    "two of three": ([6, 7, 8], {"kernel_shape": [5, 1, 5], "strides": [1, 2, 1], "pads": [2, 0, 2, 2, 0, 2]}),
}
"""Windows that are walked one axis after the other."""

AT_ONCE = {
    "pairs": ([6, 16], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "pairs of short rows": ([7, 12], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "pairs, padded above": ([5, 8], {"kernel_shape": [3, 2], "strides": [1, 2], "pads": [1, 0, 1, 0]}),
    "pairs, planes beside the data": ([3, 4, 8], {"kernel_shape": [2, 2, 2], "strides": 2, "pads": [0, 3, 0, 0, 3, 0]}),
    "fours": ([32], {"kernel_shape": [4], "strides": [4]}),
    "planes of pairs": ([4, 4, 8], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    "padding": ([9, 11], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": 1}),
    "gaps": ([9, 10], {"kernel_shape": [3, 3], "dilations": [2, 4], "pads": [2, 4, 2, 4]}),
    "gaps wider than the data": ([3, 2], {"kernel_shape": [2, 3], "dilations": [5, 3], "pads": [5, 6, 5, 6]}),
    "a long row": ([40], {"kernel_shape": [31], "pads": 15}),
    "column-major": ([6, 8], {"kernel_shape": [2, 2], "strides": 2, "storage_order": 1}),
}
"""Windows of which all taps are walked in one pass."""

WAYS = PASSES | AT_ONCE


def numbers(shape, dtype, seed=5):
    """Few different elements, so that there are ties; with NaN, infinities, both zeros and denormal floats."""
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return random.integers(0, 4, shape).astype(dtype) + np.array(np.iinfo(dtype).min, dtype)
    tiny = np.array(1, f"int{8 * np.dtype(dtype).itemsize}").view(dtype).item()
    pool = np.array([-np.inf, -np.inf, -np.inf, -1, -tiny, -0.0, 0.0, tiny, np.nan, np.inf])
    weights = np.array([40, 40, 40, 40, 10, 10, 10, 5, 2, 1])
    return random.choice(pool, shape, p=weights / weights.sum()).astype(dtype)


def check(x, named):
    """Values and indices are the CPU's, and the values that come without indices."""
    expected = unpool.max_pool(x, return_indices=True, **named)
    with routed():
        got = unpool.max_pool(tensor(x), return_indices=True, **named)
        alone = unpool.max_pool(tensor(x), **named)
    bits = f"int{8 * x.dtype.itemsize}"
    assert np.array_equal(array(got[1]), expected[1])
    assert np.array_equal(array(got[0]).view(bits), expected[0].view(bits))
    assert np.array_equal(array(alone).view(bits), expected[0].view(bits))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", WAYS)
def test_every_way(name, dtype):
    """Ties, NaN, zeros, padding and windows without data, by each way to walk windows, in each type."""
    sizes, named = WAYS[name]
    check(numbers((2, 3, *sizes), dtype), named)


@pytest.mark.parametrize("name", ["passes over gaps", "three axes", "without data"])
def test_channels_last(name):
    """The lanes are channels; no axis is the last one."""
    sizes, named = PASSES[name]
    check(numbers((1, *sizes, 3), np.float32), dict(named, layout="NHWC"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("window", [(5, 1, 2, 1), (4, 2, 1, 3), (2, 2, 0, 1)])
def test_the_last_nan_for_torch(window, dtype):
    """As unpool.torch finds it: the last row's, and of a row the last one, per plane."""
    x = tensor(numbers((1, 2, 12, 12), np.float32)).to(dtype)
    expected = ours.max_pool2d(x.cpu(), *window, return_indices=True)
    with routed():
        got = ours.max_pool2d(x, *window, return_indices=True)
    assert torch.equal(got[1].cpu(), expected[1])
    assert torch.equal(got[0].cpu().nan_to_num(7), expected[0].nan_to_num(7))


def test_an_activation_runs_once():
    """After the last pass, not between passes."""
    x = numbers((1, 2, 9, 9), np.float32) - 2
    named = {"kernel_shape": [5, 5], "activation": "LeakyRelu", "activation_params": [0.5]}
    expected = unpool.max_pool(x, **named)
    with routed():
        assert np.array_equal(array(unpool.max_pool(tensor(x), **named)), expected, equal_nan=True)
