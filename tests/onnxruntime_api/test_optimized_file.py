"""The optimised model: a file that the options name, and that a session loads again."""

import numpy as np
import onnx
import pytest

from tests.support import models


@pytest.fixture
def options(ort, here):
    """Options that have the optimised model written into an empty folder."""
    made = ort.SessionOptions()
    made.optimized_model_filepath = "optimised.onnx"
    return made


def test_the_optimised_model_is_a_file(ort, net, options):
    """The session that writes it runs; ONNX reads it, it has the same ends, and it is loaded without optimizing."""
    net.assert_right(ort.InferenceSession(net.content, options))
    made = onnx.load("optimised.onnx")
    assert [one.name for one in (*made.graph.input, *made.graph.output)] == ["x", "z"]
    again = ort.SessionOptions()
    again.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    net.assert_right(ort.InferenceSession("optimised.onnx", again))


def test_constants_are_folded_in_the_file(ort, options):
    """What depends on constants alone is no node any more."""
    graph = "g (float[2] x) => (float[2] z) { t = Add (w, w) z = Mul (x, t) }"
    ort.InferenceSession(models.model(graph, w=np.float32([1, 2])).SerializeToString(), options)

    assert [node.op_type for node in onnx.load("optimised.onnx").graph.node] == ["Mul"]


def test_a_folder_that_is_missing_is_an_error(ort, net, options):
    """A file that cannot be written is an error of the constructor."""
    options.optimized_model_filepath = "nowhere/optimised.onnx"
    with pytest.raises(Exception, match=r"nowhere|SystemError"):
        ort.InferenceSession(net.content, options)


@pytest.mark.parametrize(("operator", "shape"), [("ConvTranspose", (2, 3, 2, 2)), ("MatMul", (4, 6))])
def test_weights_go_into_a_file_beside_it(ort, options, here, operator, shape):
    """Large initializers are written into a file of their own, which the new model finds."""
    graph = f"g (float[1, 2, 4, 4] x) => (float[A, B, C, D] z) {{ z = {operator} (x, w) }}"
    w = np.arange(24, dtype=np.float32).reshape(shape)
    x = {"x": np.ones((1, 2, 4, 4), np.float32)}
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "50")
    session = ort.InferenceSession(models.model(graph, w=w).SerializeToString(), options)

    assert (here / "weights.bin").stat().st_size >= w.nbytes
    assert np.array_equal(ort.InferenceSession("optimised.onnx").run(None, x)[0], session.run(None, x)[0])


def test_the_format_of_onnxruntime(ort, net, options, here):
    """A file that ends in .ort has onnxruntime's own format, and is loaded again by its name and as bytes."""
    options.optimized_model_filepath = "optimised.ort"
    ort.InferenceSession(net.content, options)
    for source in ("optimised.ort", (here / "optimised.ort").read_bytes()):
        net.assert_right(ort.InferenceSession(source))
