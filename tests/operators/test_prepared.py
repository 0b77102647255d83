"""`prepare_conv_transpose`: the same results, weights of its own, and bounded memory."""

import tracemalloc

import numpy as np
import pytest

import unpool
from unpool.kernels.cpu.weights import MAX_PACKINGS

ATTRIBUTES = {"strides": [2, 2], "pads": [1, 0, 0, 1], "activation": "Relu", "layout": "NHWC"}


def test_gives_what_conv_transpose_gives() -> None:
    """All attributes, the bias and the destination go through."""
    rng = np.random.default_rng(7)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 7, 9), (9, 11, 3, 4), (11,)))
    expected = unpool.conv_transpose(x, w, b, **ATTRIBUTES)
    grow = unpool.prepare_conv_transpose(w, **ATTRIBUTES)
    out = np.zeros_like(expected)
    assert grow(x, b, threads=1, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(grow(x, b), expected)


def test_wrong_attributes_are_refused_at_once() -> None:
    """What does not depend on x does not wait for it."""
    with pytest.raises(unpool.UnpoolError, match="group"):
        unpool.prepare_conv_transpose(np.ones((2, 8, 2), np.float32), group=0)


def test_many_shapes_keep_few_packed_weights() -> None:
    """A caller with ever new sizes does not collect packed weights; the last ones are found again."""
    w = np.ones((16, 16, 3, 3), np.float32)
    grow = unpool.prepare_conv_transpose(w)
    for size in range(8, 20):
        grow(np.ones((1, 16, size, size), np.float32))
    known = grow._w.packings._known
    assert len(known) == MAX_PACKINGS
    kept = list(known.values())
    grow(np.ones((1, 16, 19, 19), np.float32))
    assert all(a is b for a, b in zip(kept, known.values(), strict=True))


def test_repeated_calls_need_no_more_memory() -> None:
    """The workspace of a call is gone with it."""
    x, w = np.ones((1, 64, 32, 32), np.float32), np.ones((64, 32, 4, 4), np.float32)
    grow = unpool.prepare_conv_transpose(w, strides=[2, 2], pads=[1] * 4)
    y = grow(x)
    grow(x, out=y)
    tracemalloc.start()
    for _ in range(20):
        grow(x, out=y)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1 << 16
