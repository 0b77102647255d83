"""Weights that nodes make of constants are constants, whatever the tensors of these constants are called."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import unpool
from tests.support import models


def tensor_nodes(names, **arrays):
    """A Constant node for each array; its tensor has the name that `names` gives, or none."""
    return [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, names.get(name)))
        for name, array in arrays.items()
    ]


def run_in_both(model, x):
    """What onnxruntime and unpool compute, and the operators of the plan."""
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    session = unpool.InferenceSession(model, exact=True)
    return theirs, session.run(None, {"x": x})[0], [row.operator for row in session.plan]


NAMES = {
    "none": {},
    "each other's": {"a": "b", "b": "a"},
    "the same": {"a": "t", "b": "t"},
    "that of the input": {"a": "x", "b": "y"},
    "that of the result": {"a": "w", "b": "w"},
}


@pytest.mark.parametrize("case", NAMES)
def test_the_name_of_a_tensor_in_a_constant_node_means_nothing(case):
    """The value has the name of the node's output: weights are made of the right tensors, and once."""
    model = models.model("net (float[1, 3, 7, 7] x) => (y) { w = Sub (a, b) y = ConvTranspose (x, w) }")
    a, b = models.random(3, 4, 3, 3), models.random(3, 4, 3, 3, seed=1)
    nodes = [*tensor_nodes(NAMES[case], a=a, b=b), *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    theirs, ours, operators = run_in_both(model, models.random(1, 3, 7, 7, seed=2))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
    assert operators == ["ConvTranspose"]


def test_a_weight_normalization_as_torch_exports_it_is_folded():
    """Its axes are a Constant node without a tensor name, and its shape may be one, too."""
    model = models.model(
        """net (float[1, 64, 5] x) => (y) {
            unit_v = Reshape (v, shape)
            n = ReduceL2 <keepdims = 1> (unit_v, axes)
            d = Div (v, n)
            w = Mul (d, g)
            y = ConvTranspose <strides = [8]> (x, w)
        }""",
        opset=18, v=models.random(64, 32, 16), g=models.random(64, 1, 1),
    )  # fmt: skip
    nodes = [*tensor_nodes({}, axes=np.array([1, 2]), shape=np.array([64, 32, 16])), *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    theirs, ours, operators = run_in_both(model, models.random(1, 64, 5))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
    assert operators == ["ConvTranspose"]
