"""A Softmax over an axis far from the last becomes its formula."""

import numpy as np
import pytest

import unpool
from tests.support import models

FORMULA = ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"]
SPLIT = {
    "classes of a picture": ((2, 5, 32, 40), 1, 17),
    "axes as an input": ((1, 5, 32, 40), 1, 18),
    "counted from the end": ((1, 2, 3, 1024), -2, 17),
    "the first axis": ((3, 2, 1024), 0, 13),
}
KEPT = {
    "the last axis": ((1, 2, 1024), -1, 17),
    "few elements after it": ((1, 5, 8, 8), 1, 17),
    "an old version": ((1, 5, 32, 40), 1, 12),
}


def network(shape, axis, opset, dims=None):
    """A model that ends in a Softmax; an unpooling keeps it from being onnxruntime's alone."""
    sizes = ", ".join(map(str, dims or shape))
    return models.model(
        f"""net (float[{sizes}] x, float[1, 1, 2, 2] v, int64[1, 1, 2, 2] i)
                => (float[{sizes}] y, float[1, 1, 4, 4] u) {{
            u = MaxUnpool <{models.POOL}> (v, i)
            s = Neg (x)
            y = Softmax <axis = {axis}> (s)
        }}""",
        opset=opset,
    )


def run(session, x):
    """Y of a session."""
    i = np.array([0, 2, 8, 10]).reshape(1, 1, 2, 2)
    return session.run(["y"], {"x": x, "v": models.random(1, 1, 2, 2), "i": i})[0]


def operators(session):
    """The operators between the Neg and the output."""
    return [row.operator for row in session.plan if row.operator not in ("Neg", "MaxUnpool")]


@pytest.mark.parametrize("name", SPLIT)
def test_the_formula_gives_the_same(name):
    """Also for large numbers, and NaN where the definition has NaN."""
    shape, axis, opset = SPLIT[name]
    session, x = unpool.InferenceSession(network(shape, axis, opset)), 100 * models.random(*shape)
    assert operators(session) == FORMULA
    shifted = np.exp(-x.astype(np.float64) - (-x).max(axis, keepdims=True))
    np.testing.assert_allclose(run(session, x), shifted / shifted.sum(axis, keepdims=True), rtol=1e-5, atol=1e-7)
    x[...] = np.inf
    assert np.isnan(run(session, x)).all()


@pytest.mark.parametrize("name", KEPT)
def test_other_softmax_nodes_stay(name):
    """Those that onnxruntime computes fast, and those of another definition."""
    assert operators(unpool.InferenceSession(network(*KEPT[name]))) == ["Softmax"]


def test_unknown_sizes_stay():
    """The axes after it could be short."""
    model = network((1, 5, 32, 40), 1, 17, dims=("n", 5, "h", "w"))
    assert operators(unpool.InferenceSession(model)) == ["Softmax"]


def test_exact_sessions_keep_the_node():
    """Its last bits may differ."""
    assert operators(unpool.InferenceSession(network((1, 5, 32, 40), 1, 17), exact=True)) == ["Softmax"]
