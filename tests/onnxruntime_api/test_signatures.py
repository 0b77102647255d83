"""What a session says of its inputs, its outputs and its model."""

import numpy as np
import onnx
from numpy.testing import assert_array_equal
from onnx import helper

from tests.onnxruntime_api.nets import ends, plain, pools, with_words
from tests.support import models


def test_inputs_and_outputs_of_fixed_size(session, net):
    """Names, shapes and types are those of the model."""
    assert ends(session.get_inputs()) == [("x", list(net.x.shape), "tensor(float)")]
    assert ends(session.get_outputs()) == [("z", net.z_shape, "tensor(float)")]


def test_inputs_and_outputs_of_free_size(ort, free_net):
    """A free axis has its name."""
    session = ort.InferenceSession(free_net.content)

    assert session.get_inputs()[0].shape == ["N", 1, 4, 4]
    assert session.get_outputs()[0].shape == free_net.z_shape


def test_the_order_is_that_of_the_model(ort):
    """Inputs and outputs come in the order of the graph."""
    graph = "g (bool[2] second, bool[2] first) => (bool[2] b, bool[2] a) { a = And (first, second) b = Not (first) }"
    session = ort.InferenceSession(models.model(graph).SerializeToString())

    assert [one.name for one in session.get_inputs()] == ["second", "first"]
    assert [one.name for one in session.get_outputs()] == ["b", "a"]


def test_initializers_that_may_be_fed(ort):
    """An initializer that is an input too is no input to feed, but may be fed."""
    graph = "g (float[2] x, float[2] w) => (float[2] z) { z = Mul (x, w) }"
    session = ort.InferenceSession(models.model(graph, w=np.float32([2, 3])).SerializeToString())
    x = np.float32([1, 1])

    assert [one.name for one in session.get_inputs()] == ["x"]
    assert ends(session.get_overridable_initializers()) == [("w", [2], "tensor(float)")]
    assert session.run(None, {"x": x})[0].tolist() == [2, 3]
    assert session.run(None, {"x": x, "w": np.float32([5, 7])})[0].tolist() == [5, 7]
    assert session.run(None, {"x": x})[0].tolist() == [2, 3]


def test_initializers_of_new_models_may_not_be_fed(session):
    """An initializer that is no input is not listed."""
    assert list(session.get_overridable_initializers()) == []


def test_a_model_says_who_made_it(ort):
    """All words of a model about itself are in its metadata."""
    content = with_words(
        plain().content,
        producer_name="nobody",
        domain="org.example",
        doc_string="a model",
        graph_doc="a graph",
        model_version=7,
        metadata={"author": "me", "classes": "cat,dog"},
    )
    meta = ort.InferenceSession(content).get_modelmeta()

    assert (meta.producer_name, meta.domain, meta.version) == ("nobody", "org.example", 7)
    assert (meta.graph_name, meta.description, meta.graph_description) == ("plain", "a model", "a graph")
    assert meta.custom_metadata_map == {"author": "me", "classes": "cat,dog"}


def test_a_size_that_is_unknown(ort):
    """An axis with neither size nor name is None, and other names stay."""
    made = models.model("g (float[N, 2] x) => (float[N, 2] z) { z = Neg (x) }")
    made.graph.input[0].type.tensor_type.shape.dim[0].Clear()

    assert ort.InferenceSession(made.SerializeToString()).get_inputs()[0].shape == [None, 2]


def test_outputs_without_a_type(ort, net):
    """Values in between become outputs by their names alone: types, shapes and values are inferred."""
    model = onnx.load_from_string(net.content)
    names = [name for node in model.graph.node for name in node.output if name != "z"]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = ort.InferenceSession(model.SerializeToString())
    values = dict(zip(["z", *names], session.run(None, net.feed), strict=True))

    assert {one.name: tuple(one.shape) for one in session.get_outputs()} == {
        name: value.shape for name, value in values.items()
    }
    assert {one.type for one in session.get_outputs()} <= {"tensor(float)", "tensor(int64)"}
    assert_array_equal(values["z"], net.z)
    assert_array_equal(values["r"], net.x)


def test_an_output_whose_type_is_stated_elsewhere(ort):
    """Of an output without a type, the type that the model states of that value counts."""
    model = onnx.load_from_string(pools().content)
    model.graph.value_info.append(helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, [1, 1, "a", "b"]))
    model.graph.output.append(onnx.ValueInfoProto(name="u"))

    outputs = ends(ort.InferenceSession(model.SerializeToString()).get_outputs())
    assert outputs[1] == ("u", [1, 1, 4, 4], "tensor(float)")
