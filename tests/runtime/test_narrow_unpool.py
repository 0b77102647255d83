"""A MaxUnpool over an axis that torch only adds has that axis no longer, and Convs after it are steps of unpool."""

import numpy as np
import pytest

import unpool
from tests.support import models

UNPOOLED = np.array([[[0, 5, 0, 0, 2, 0]]], np.float32)
X, I = np.float32([[[5, 2]]]), np.array([[[1, 4]]])  # noqa: E741  the names of the standard
ADD = "a = Unsqueeze (x, last) b = Unsqueeze (i, last)"
WINDOW = "kernel_shape = [3, 1], strides = [3, 1]"
NARROW = {
    "as exported": f"{ADD} c = MaxUnpool <{WINDOW}> (a, b) y = Squeeze (c, last)",
    "before the other axis": """a = Unsqueeze (x, two) b = Unsqueeze (i, two)
        c = MaxUnpool <kernel_shape = [1, 3], strides = [1, 3]> (a, b) y = Squeeze (c, two)""",
    "counted from both ends": f"{ADD} c = MaxUnpool <{WINDOW}> (a, b) y = Squeeze (c, three)",
    "a shape": f"{ADD} c = MaxUnpool <kernel_shape = [2, 1], strides = [3, 1]> (a, b, sizes) y = Squeeze (c, last)",
    "reshaped indices": f"""a = Unsqueeze (x, last) b = Reshape (i, wide) c = MaxUnpool <{WINDOW}> (a, b)
        y = Squeeze (c, last)""",
    "pads": """a = Unsqueeze (x, last) b = Unsqueeze (i, last)
        c = MaxUnpool <kernel_shape = [4, 1], strides = [4, 1], pads = [1, 0, 1, 0]> (a, b) y = Squeeze (c, last)""",
}
WIDE = {
    "a shape that is computed": f"""{ADD} s = Mul (sizes, factor) c = MaxUnpool <{WINDOW}> (a, b, s)
        y = Squeeze (c, last)""",
    "a shape with a longer axis": f"""{ADD} c = MaxUnpool <{WINDOW}> (a, b, longer)
        y = ReduceSum <keepdims = 0> (c, last)""",
    "an axis that others read": f"""{ADD} c = MaxUnpool <{WINDOW}> (a, b) d = Squeeze (c, last)
        e = ReduceMax (c) y = Mul (d, e)""",
    "no Squeeze": f"{ADD} c = MaxUnpool <{WINDOW}> (a, b) y = ReduceSum <keepdims = 0> (c, last)",
}


def network(body, *, opset=13):
    """A model on x and i."""
    return models.model(
        f"net (float[1, 1, 2] x, int64[1, 1, 2] i) => (float[1, 1, n] y) {{ {body} }}",
        opset=opset, last=np.array([-1]), two=np.array([2]), three=np.array([3]), wide=np.array([0, 0, 0, 1]),
        sizes=np.array([1, 1, 6, 1]), longer=np.array([1, 1, 6, 2]), factor=np.array([1]),
    )  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_the_axis_is_dropped(name):
    """Only the MaxUnpool is left, over one axis, with the same result."""
    session = unpool.InferenceSession(network(NARROW[name]))
    assert [(row.operator, row.runner) for row in session.plan] == [("MaxUnpool", "unpool")]
    np.testing.assert_array_equal(session.run(None, {"x": X, "i": I})[0], UNPOOLED)


def test_the_axes_may_be_attributes():
    """As before opset 13."""
    body = f"""a = Unsqueeze <axes = [3]> (x) b = Unsqueeze <axes = [3]> (i) c = MaxUnpool <{WINDOW}> (a, b)
        y = Squeeze <axes = [3]> (c)"""
    session = unpool.InferenceSession(network(body, opset=11))
    assert [row.operator for row in session.plan] == ["MaxUnpool"]
    np.testing.assert_array_equal(session.run(None, {"x": X, "i": I})[0], UNPOOLED)


@pytest.mark.parametrize("name", WIDE)
def test_an_axis_that_may_matter_stays(name):
    """The MaxUnpool is computed as it is written."""
    session = unpool.InferenceSession(network(WIDE[name]))
    assert "Unsqueeze" in [row.operator for row in session.plan]
    y = session.run(None, {"x": X, "i": I})[0]
    assert y.shape[:2] == (1, 1)


def test_an_index_out_of_range_is_refused():
    """As with the axis."""
    session = unpool.InferenceSession(network(NARROW["as exported"]))
    with pytest.raises(unpool.UnpoolError, match="MaxUnpool"):
        session.run(None, {"x": X, "i": I + 2})


DECODER = """u = MaxUnpool <kernel_shape = [2], strides = [2]> (x, i)
    c = Conv <pads = [1, 1]> (u, v) n = BatchNormalization (c, ns, nb, nm, nv) r = Relu (n)
    y = Conv <pads = [2, 2]> (r, k) """


def decoder(body):
    """A MaxUnpool and two Convs after it."""
    return models.model(
        f"net (float[2, 3, 50] x, int64[2, 3, 50] i) => (y) {{ {body} }}",
        v=models.random(4, 3, 3), k=models.random(5, 4, 5), **models.batch_norm("n", 4),
    )  # fmt: skip


def feed():
    """Every value in the first place of its window."""
    return {"x": models.random(2, 3, 50), "i": np.arange(0, 600, 2).reshape(2, 3, 50)}


def test_convs_over_one_axis_after_a_max_unpool_are_steps():
    """With the normalization and the activation in between; nothing is left for onnxruntime."""
    session = unpool.InferenceSession(decoder(DECODER))
    assert [(row.operator, row.runner) for row in session.plan] == [
        ("MaxUnpool", "unpool"), ("ConvTranspose", "unpool"), ("ConvTranspose", "unpool"),
    ]  # fmt: skip
    exact = unpool.InferenceSession(decoder(DECODER), exact=True)
    assert [row.operator for row in exact.plan].count("Conv") == 2
    expected = exact.run(None, feed())[0]
    np.testing.assert_allclose(session.run(None, feed())[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("end", ["y = Sin (e)", "s = Sin (c) y = Concat <axis = 1> (e, s)"])
def test_a_chain_that_ends_elsewhere_stays(end):
    """Onnxruntime runs the node after it anyway."""
    body = DECODER.replace("y = Conv", "e = Conv") + end
    session = unpool.InferenceSession(decoder(body))
    assert [row.operator for row in session.plan].count("Conv") == 2
