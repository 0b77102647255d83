"""Plans of pools: every call of the contract computes without Python, bit for bit as the functions."""

import math
from unittest.mock import patch

import numpy as np
import onnx
import pytest

import unpool
import unpool.onnxruntime
from tests.support.library_sessions import node_model, session_of
from tests.support.models import NHWC, random
from tests.support.ort_values import run_values
from unpool.kernels.cpu.max_pool import doubling

pytestmark = pytest.mark.usefixtures("pools_without_python")

ACTIVATIONS = {
    "Relu": [], "LeakyRelu": [0.25], "Tanh": [], "Sigmoid": [], "Clip": [-0.5, 0.75], "HardSigmoid": [0.25, 0.625],
    "HardSwish": [],
}  # fmt: skip


def run(operator, *inputs, layout="NCHW", outputs=("y",), **attributes):
    """The outputs of a session of one node."""
    feed = {f"x{number}": x for number, x in enumerate(inputs)}
    node = onnx.helper.make_node(operator, list(feed), outputs, domain=NHWC if layout == "NHWC" else "", **attributes)
    sizes = None if len({x.ndim for x in inputs}) > 1 else [None] * inputs[0].ndim
    return run_values(session_of(node_model([node], feed, outputs=outputs, sizes=sizes), opset=22), feed)


def assert_same(found, expected):
    """The same bits, of all outputs."""
    for y, right in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert (y.shape, y.dtype) == (right.shape, right.dtype)
        assert y.tobytes() == np.ascontiguousarray(right).tobytes()


def pooled(x, **options):
    return unpool.max_pool(x, return_indices=True, **options)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("move", [0, 1, 50])
def test_activations_of_zeros(name, move):
    """Whichever way an unpooled output is written, all of it is activated."""
    x, params = random(2, 8, 6, 5), ACTIVATIONS[name]
    y, indices = pooled(x, layout="NHWC", kernel_shape=[2, 2], strides=[2, 2])
    indices = (np.ascontiguousarray(indices) + move) % x.size
    options = {"kernel_shape": [2, 2], "strides": [2, 2], "activation": name}
    options |= {"activation_params": params} if params else {}
    expected = unpool.max_unpool(y, indices, layout="NHWC", **options)
    assert_same(run("MaxUnpool", y, indices, layout="NHWC", **options), expected)


def test_no_index_is_right_in_an_empty_output():
    """Elements have no place in an output without elements."""
    x, indices = np.ones((1, 1, 2, 2), np.float32), np.zeros((1, 1, 2, 2), np.int64)
    with pytest.raises(Exception, match=r"indices need values from 0 to -1, got 0 at \[0, 0, 0, 0\]"):
        run("MaxUnpool", x, indices, np.array((1, 1, 0, 4)), kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_windows_that_share_most_elements(layout):
    """Pooling by doubling is compiled."""
    x = random(1, 3, 12, 20) if layout == "NCHW" else random(1, 12, 20, 3)
    x.reshape(-1)[:: math.isqrt(x.size)] = np.nan
    options = {"kernel_shape": [9, 9], "dilations": [1, 2], "pads": [4] * 4, "layout": layout}
    expected = pooled(x, **options)
    unpool.execute.clear_cache()
    del options["layout"]
    with patch.object(doubling, "is_worthwhile", return_value=True):
        found = run("MaxPool", x, layout=layout, outputs=("y", "i"), **options)
    unpool.execute.clear_cache()
    assert_same(found, expected)
