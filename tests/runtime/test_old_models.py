"""Models of opsets 1 to 9: the other nodes are lifted, ours keep their version, and what cannot be lifted is named."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import unpool
from tests.support import models, models_old

NETWORKS = {"segnet_1": models_old.segnet_1, "segnet_6": models_old.segnet_6, "segnet_9": models_old.segnet_9}
VERSIONS = {
    "segnet_1": {"MaxPool": 1, "ConvTranspose": 1},
    "segnet_6": {"MaxPool": 1, "ConvTranspose": 1},
    "segnet_9": {"MaxPool": 8, "MaxUnpool": 9, "ConvTranspose": 1},
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, exact):
    """The session gives what NumPy and the oracle give for the whole network."""
    network = NETWORKS[name]()
    x = models.random(*network.shape, seed=3)
    (got,) = unpool.InferenceSession(network.model, exact=exact).run(None, {"x": x})
    expected = network.compute(x)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_ours_keep_their_version(name):
    """Lifting the others leaves our nodes in the rows that the model's own opset selects; nothing falls back."""
    plan = unpool.InferenceSession(NETWORKS[name]().model).plan
    found = {record.operator: record.version for record in plan}
    assert {operator: found[operator] for operator in VERSIONS[name]} == VERSIONS[name]
    assert {record.runner for record in plan} <= {"unpool", "onnxruntime"}


def test_lifting_is_said_once(caplog):
    """A log line at level INFO names both opsets, for old models only."""
    with caplog.at_level("INFO", logger="unpool"):
        unpool.InferenceSession(models_old.segnet_9().model)
        assert "lifted" not in caplog.text
        unpool.InferenceSession(models_old.segnet_6().model)
    assert "nodes of opset 6 are lifted to opset 7" in caplog.text


X = models.random(4, 4, 4, 4)
SLOPE = models.random(4, seed=5)
MATRIX = models.random(4, 4, seed=6)


def selu(x):
    """Version 1, with its own rounded defaults."""
    return np.float32(1.0507) * np.where(x > 0, x, np.float32(1.6732) * (np.exp(x) - 1))


LIFTED = {
    "Add along the channels": (1, "Add", [SLOPE], {"broadcast": 1, "axis": 1}, X + SLOPE.reshape(4, 1, 1)),
    "Add along the samples": (6, "Add", [SLOPE], {"broadcast": 1, "axis": 0}, X + SLOPE.reshape(4, 1, 1, 1)),
    "Add along the columns": (6, "Add", [SLOPE], {"broadcast": 1, "axis": 3}, X + SLOPE),
    "Add along the last axis": (6, "Add", [SLOPE], {"broadcast": 1}, X + SLOPE),
    "Mul from the end": (6, "Mul", [SLOPE], {"broadcast": 1, "axis": -2}, X * SLOPE.reshape(4, 1)),
    "Div of two axes": (6, "Div", [MATRIX], {"broadcast": 1, "axis": 1}, X / MATRIX.reshape(4, 4, 1)),
    "Sub of a scalar": (1, "Sub", [np.float32(3)], {"broadcast": 1}, X - 3),
    "Pow": (6, "Pow", [np.float32([2])], {"broadcast": 1}, X**2),
    "PRelu of channels": (6, "PRelu", [SLOPE], {}, models_old.leaky(X, SLOPE.reshape(4, 1, 1))),
    "PRelu of all": (1, "PRelu", [SLOPE[:1]], {}, models_old.leaky(X, SLOPE[0])),
    "Pad": (1, "Pad", [], {"paddings": [0, 0, 1, 0, 0, 0, 0, 2]}, np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)])),
    "Selu": (1, "Selu", [], {}, selu(X)),
    "Clip": (1, "Clip", [], {"max": 0.5}, np.minimum(X, np.float32(0.5))),
    "Concat": (1, "Concat", [X], {}, np.concatenate([X, X], axis=1)),
    "Upsample": (1, "Upsample", [], {"height_scale": 2.0, "width_scale": 1.0}, X.repeat(2, axis=2)),
    "Cast": (1, "Cast", [], {"to": "FLOAT"}, X),
}


def one_node(opset, operator, others, attributes, inner=False):
    """Our node, then the node, whose other operands are initializers; inside the branch of an If if asked for."""
    names = [f"c{k}" for k in range(len(others))]
    pool = helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1])
    node = helper.make_node(operator, ["p", *names], ["made"], "the_node", **attributes)
    nodes = [pool, node, helper.make_node("Identity", ["made"], ["y"])]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in zip(names, others, strict=True)]
    if inner:
        made = helper.make_tensor_value_info("made", TensorProto.FLOAT, None)
        body = helper.make_graph([node], "body", [], [made])
        branch = helper.make_node("If", ["go"], ["picked"], then_branch=body, else_branch=body)
        nodes = [pool, branch, helper.make_node("Identity", ["picked"], ["y"])]
        tensors.append(numpy_helper.from_array(np.array(True), "go"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4, 4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "one", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


NEEDS_SHAPES = ("Upsample",)  # which the converter does not infer in bodies


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "inner"),
    [(name, inner) for name in LIFTED for inner in (False, True) if not inner or name not in NEEDS_SHAPES],
)
def test_lifted_nodes(name, inner):
    """A node means after lifting what its old version says, alone and in the body of an If."""
    opset, operator, others, attributes, expected = LIFTED[name]
    session = unpool.InferenceSession(one_node(opset, operator, others, attributes, inner), exact=True)
    (got,) = session.run(None, {"x": X})
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)


def test_a_model_of_our_nodes_alone_is_not_lifted(caplog):
    """There is nothing to lift, and the opset stays."""
    model = models.model(
        f"p (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y) {{ y = MaxPool <{models.POOL}> (x) }}", opset=1
    )
    with caplog.at_level("INFO", logger="unpool"):
        session = unpool.InferenceSession(model)
    assert [record.operator_version for record in session.plan] == ["MaxPool-1"]
    assert "lifted" not in caplog.text


def test_the_callers_old_model_is_not_changed():
    """Lifting works on a copy."""
    model = models_old.segnet_1().model
    before = model.SerializeToString(deterministic=True)
    unpool.InferenceSession(model)
    assert model.SerializeToString(deterministic=True) == before
