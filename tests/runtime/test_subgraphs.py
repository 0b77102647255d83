"""If, Loop, Scan and SequenceMap, whose bodies unpool plans and runs as it does a model."""

import gc

import numpy as np
from numpy.testing import assert_array_equal

import unpool
from tests.support import models

POOLS = f"""pools (int64 n, bool go, float[1, 2, 8, 8] x) => (float[1, 2, 8, 8] y, float[k, 1, 2, 4, 4] z) {{
    y, z = Loop (n, go, x) <
        body = b (int64 i, bool on, float[1, 2, 8, 8] c) => (bool off, float[1, 2, 8, 8] d, float[1, 2, 4, 4] p) {{
            off = Identity (on)
            a = Relu (c)
            p, j = MaxPool <{models.POOL}> (a)
            u = MaxUnpool <{models.POOL}> (p, j)
            d = Sub (u, w)
        }}>
}}"""


def pools():
    """A Loop that pools and unpools, with weights from around it."""
    return models.model(POOLS, w=models.random(1, 2, 8, 8))


def test_outputs_of_bodies_are_arrays_of_their_own():
    """A Loop that never runs, and an If that hands on what it captures, give copies of what the caller fed."""
    model, x = pools(), models.random(1, 2, 8, 8)
    y, z = unpool.InferenceSession(model).run(None, {"n": np.array(0), "go": np.array(True), "x": x})
    assert_array_equal(y, x)
    assert not np.shares_memory(y, x)
    assert (z.shape, z.dtype) == ((0, 1, 2, 4, 4), np.float32)
    y[...] = 0
    gc.collect()
    assert np.any(x)


def weights():
    """Weights of a convolution that is worth turning."""
    return models.random(64, 64, 3, 3) / np.float32(24)
