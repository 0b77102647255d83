"""Constants of a graph: every form in which a model has them, and what is left of them."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import unpool
from tests.support import models
from unpool.graph.graph import Graph, lift_constants, prune


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("value_float = 1.5", np.float32(1.5)),
        ("value_floats = [1.5, 2.5]", np.float32([1.5, 2.5])),
        ("value_int = 3", np.int64(3)),
        ("value_ints = [3, 4]", np.int64([3, 4])),
        ("value = float[2] {1, 2}", np.float32([1, 2])),
    ],
)
def test_every_constant_node_is_a_constant(attribute, expected):
    """Each form of Constant gives its tensor, in type and value."""
    made = models.model(f"c (float[1] x) => (float[1] y) {{ k = Constant <{attribute}> () y = Relu (x) }}")
    got = numpy_helper.to_array(lift_constants(Graph.from_model(made)).constants["k"])
    assert got.dtype == expected.dtype
    assert np.array_equal(got, expected)


def test_a_sparse_initializer_feeds_our_node():
    """Weights that are stored sparsely are the weights."""
    weights = np.zeros((2, 3, 2), np.float32)
    weights[0, 1, 0], weights[1, 2, 1] = 2, 3
    model = models.model("s (float[1, 2, 4] x) => (float[1, 3, 5] y) { y = ConvTranspose (x, w1) }")
    values = numpy_helper.from_array(np.float32([2, 3]), "w1")
    places = numpy_helper.from_array(np.array([[0, 1, 0], [1, 2, 1]]), "w1_places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 3, 2]))
    x = models.random(1, 2, 4)
    (got,) = unpool.InferenceSession(model).run(None, {"x": x})
    assert np.array_equal(got, unpool.conv_transpose(x, weights))


def test_dead_nodes_and_constants_are_dropped():
    """Only what outputs need is left, captured values included."""
    model = models.conditional()
    model.graph.initializer.append(numpy_helper.from_array(models.random(3), "nobody"))
    model.graph.node.insert(0, helper.make_node("Relu", ["x"], ["unread"]))
    kept = prune(lift_constants(Graph.from_model(model)))
    assert [node.op_type for node in kept.nodes] == ["Relu", "If", "Neg"]
    assert set(kept.constants) == {"w1"}
