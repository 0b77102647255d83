"""The passes before the cut change what a graph looks like, never what it computes."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import unpool
from tests.support import models
from tests.support.passes import steps
from unpool.graph import graph as graphs
from unpool.graph.graph import Graph, lift_constants, prune
from unpool.graph.semantics import Semantics
from unpool.graph.shape_inference import infer
from unpool.passes.inline import inline
from unpool.passes.reduce_strength import reduce_strength

BOUNDS = {"low": np.float32(-0.5), "high": np.float32(0.75)}
FUSED = {
    "Relu": ("y = Relu (t)", {}),
    "LeakyRelu": ("y = LeakyRelu <alpha = 0.3> (t)", {}),
    "LeakyRelu by default": ("y = LeakyRelu (t)", {}),
    "HardSigmoid": ("y = HardSigmoid (t)", {}),
    "HardSwish": ("y = HardSwish (t)", {}),
    "Clip": ("y = Clip (t, low, high)", BOUNDS),
}
NOT_FUSED = {
    "another operator": ("y = Abs (t)", {}),
    "two readers": ("r = Relu (t) y = Add (r, t)", {}),
    "a bound that is computed": ("s = ReduceMax <keepdims = 0> (x) y = Clip (t, low, s)", BOUNDS),
    "one bound": ("y = Clip (t, low)", BOUNDS),
    "a second activation": ("r = Relu (t) y = Tanh (r)", {}),
}


def run_whole(model, feed):
    """Onnxruntime on the whole model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)[0]


def assert_equal_to_onnxruntime(model, tolerance=1e-5):
    """The session computes what onnxruntime computes without any optimisation."""
    feed = {"x": models.random(1, 2, 3, 4, seed=8)}
    expected = run_whole(model, feed)
    (got,) = unpool.InferenceSession(model).run(None, feed)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected[np.isfinite(expected)]).max())


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
    got = numpy_helper.to_array(lift_constants(graphs.Graph.from_model(made)).constants["k"])
    assert got.dtype == expected.dtype
    assert np.array_equal(got, expected)


def test_a_sparse_initializer_feeds_our_node():
    """Weights that are stored sparsely are the weights."""
    weights = np.zeros((2, 3, 2), np.float32)
    weights[0, 1, 0], weights[1, 2, 1] = 2, 3
    model = models.model("s (float[1, 2, 4] x) => (float[1, 3, 5] y) { t = ConvTranspose (x, w1) y = Relu (t) }")
    values = numpy_helper.from_array(np.float32([2, 3]), "w1")
    places = numpy_helper.from_array(np.array([[0, 1, 0], [1, 2, 1]]), "w1_places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 3, 2]))
    x = np.abs(models.random(1, 2, 4))
    (got,) = unpool.InferenceSession(model).run(None, {"x": x})
    assert np.array_equal(got, unpool.conv_transpose(x, weights))


def test_functions_are_inlined_with_their_weights():
    """After inlining no function is left, and large weights of the model are still there and still constant."""
    model = models.with_function()
    model.graph.initializer.append(numpy_helper.from_array(models.random(40, 40), "large"))
    flat = inline(model)
    assert not flat.functions
    assert [node.op_type for node in flat.graph.node] == ["ConvTranspose", "Relu"]
    assert {one.name for one in flat.graph.initializer} == {"w1", "large"}
    assert [value.name for value in flat.graph.input] == ["x"]
    assert model.functions


def test_dead_nodes_and_constants_are_dropped():
    """Only what outputs need is left, captured values included."""
    model = models.conditional()
    model.graph.initializer.append(numpy_helper.from_array(models.random(3), "nobody"))
    model.graph.node.insert(0, helper.make_node("Relu", ["x"], ["unread"]))
    kept = prune(lift_constants(graphs.Graph.from_model(model)))
    assert [node.op_type for node in kept.nodes] == ["Relu", "If", "Neg"]
    assert set(kept.constants) == {"w1"}


def runs(model):
    """Operators of the plan, with who runs them."""
    return [(one.operator, one.runner) for one in steps(unpool.InferenceSession(model))]


@pytest.mark.parametrize("name", FUSED)
def test_an_activation_is_part_of_the_step(name):
    """One step remains, it says what it took in, and computes what onnxruntime computes."""
    after, constants = FUSED[name]
    model = models.folding(after, **constants)
    (record,) = steps(unpool.InferenceSession(model))
    assert (record.operator, record.runner) == ("ConvTranspose", "unpool")
    assert record.text.endswith("folded in")
    assert_equal_to_onnxruntime(model)


@pytest.mark.parametrize("name", NOT_FUSED)
def test_what_is_not_one_constant_activation_is_kept(name):
    """Other nodes, other readers and bounds that are not known stay with onnxruntime."""
    after, constants = NOT_FUSED[name]
    model = models.folding(after, **constants)
    assert ("ConvTranspose", "unpool") in runs(model)
    assert any(runner == "onnxruntime" for _, runner in runs(model))
    assert_equal_to_onnxruntime(model)


def test_clip_with_attributes_is_fused():
    """Before opset 11 the bounds of Clip are attributes."""
    model = models.folding("y = Clip <min = -0.5, max = 0.75> (t)", opset=10)
    assert runs(model) == [("ConvTranspose", "unpool")]
    assert_equal_to_onnxruntime(model)


def test_a_value_that_the_caller_reads_is_kept():
    """What is an output of the graph comes without the activation."""
    model = models.folding("y = Relu (t)")
    model.graph.output.append(helper.make_tensor_value_info("t", 1, [1, 4, "h", "w"]))
    y, t = unpool.InferenceSession(model).run(None, {"x": models.random(1, 2, 3, 4, seed=8)})
    assert t.min() < 0
    np.testing.assert_array_equal(y, np.maximum(t, 0))


def test_short_floats_are_rounded_twice():
    """In float16 the activation stays a node of its own, as the model rounds between the two."""
    model = models.folding("h = Cast <to = 10> (x) u = Cast <to = 10> (w1) c = ConvTranspose (h, u) y = Relu (c)")
    model.graph.output[0].type.tensor_type.elem_type = 10
    assert ("Relu", "onnxruntime") in runs(model)


SLOPES = models.random(4, 1, 1, seed=5)
HOSTILE = np.float32([np.nan, -0.0, 0.0, np.inf, -np.inf, 1e-42, -1e-42])
REDUCED = {
    "one slope": (np.float32([[[0.25]]]), ["Conv", "LeakyRelu"]),
    "a scalar": (np.float32(-0.5), ["Conv", "LeakyRelu"]),
    "a slope per channel": (SLOPES, ["Conv", "Less", "Where", "Mul"]),
    "a slope per channel, none above 1": (np.abs(SLOPES) / 9, ["Conv", "Mul", "Max"]),
}
NOT_REDUCED = {
    "infinite slopes": np.where(SLOPES > 0, np.inf, SLOPES),
    "slopes that are not numbers": np.float32([[[np.nan]]]),
}


def prelu(slope, opset=17):
    """A Conv that changes nothing, and a PRelu after it."""
    weights = np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)
    graph = "prelu (float[1, 4, 3, 7] x) => (float[1, 4, 3, 7] y) { t = Conv (x, w) y = PRelu (t, s) }"
    return models.model(graph, opset=opset, w=weights, s=slope)


@pytest.mark.parametrize("name", REDUCED)
def test_a_prelu_becomes_faster_nodes(name):
    """The results are onnxruntime's bit for bit."""
    slope, expected = REDUCED[name]
    model, x = prelu(slope), models.random(1, 4, 3, 7)
    session = unpool.InferenceSession(model)
    assert [row.operator for row in steps(session)] == expected
    assert any("replaces PRelu" in row.text for row in steps(session))
    (ours,) = session.run(None, {"x": x})
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", REDUCED)
def test_a_prelu_of_hostile_values_is_the_text_s(name):
    """NaN stays NaN, infinities and subnormal numbers are multiplied."""
    slope, _ = REDUCED[name]
    model = models.model("prelu (float[4, 1, 7] x) => (float[4, 1, 7] y) { y = PRelu (x, s) }", s=slope)
    x = np.broadcast_to(HOSTILE, (4, 1, 7)).copy()
    (y,) = unpool.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.where(x < 0, slope * x, x))


@pytest.mark.parametrize("name", NOT_REDUCED)
def test_a_prelu_of_slopes_that_are_not_finite_is_kept(name):
    """Their product with zero is not zero."""
    assert operators_run(prelu(NOT_REDUCED[name])) == ["Conv", "PRelu"]


def test_a_prelu_of_another_type_or_opset_is_kept():
    """LeakyRelu has its slope in float32, and Min broadcasts from opset 8 on."""
    model = models.model("prelu (double[4] x) => (double[4] y) { y = PRelu (x, s) }", s=np.float64([0.3]))
    graph = Graph.from_model(model)
    assert reduce_strength(graph, infer(graph, Semantics()).types)[0].nodes == graph.nodes
    assert operators_run(prelu(SLOPES, opset=7)) == ["Conv", "PRelu"]


def test_a_slope_that_is_fed_is_kept():
    """It is known only when the model runs."""
    graph = "prelu (float[1, 4, 3] x, float[4, 1] s) => (float[1, 4, 3] y) { y = PRelu (x, s) }"
    assert operators_run(models.model(graph)) == ["PRelu"]


def test_below_the_highest_level_a_prelu_is_kept():
    """The caller asked for the model as it is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = unpool.InferenceSession(prelu(SLOPES), options)
    assert [row.operator for row in steps(session)] == ["Conv", "PRelu"]


def test_a_prelu_after_a_conv_transpose_is_part_of_its_step():
    """One slope is a LeakyRelu, which the ConvTranspose applies itself."""
    model = models.folding("y = PRelu (t, s)", s=np.float32([[[[0.3]]]]))
    assert runs(model) == [("ConvTranspose", "unpool")]
    assert_equal_to_onnxruntime(model)


def operators_run(model):
    """Operators of the plan."""
    return [row.operator for row in steps(unpool.InferenceSession(model))]


def test_a_mish_becomes_faster_nodes():
    """The formula, to rounding, also where the exponential overflows or vanishes; NaN stays NaN."""
    graph = "smooth (float[3, 5000] x) => (float[3, 5000] y) { y = Mish (x) }"
    model, x = models.model(graph, opset=20), 30 * models.random(3, 5000)
    x.flat[:10] = [np.nan, np.inf, 3e38, -3e38, 88.8, -88.8, 0.0, -0.0, 1e-40, -1e-40]
    session = unpool.InferenceSession(model)
    assert "Mish" not in [row.operator for row in steps(session)]
    assert any("replaces Mish" in row.text for row in steps(session))
    (y,) = session.run(None, {"x": x})
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
        expected = wide * np.tanh(np.logaddexp(0, wide))
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=2e-7)


def test_a_small_mish_is_kept():
    """One node is faster than several."""
    model = models.model("smooth (float[99] x) => (float[99] y) { y = Mish (x) }", opset=20)
    assert operators_run(model) == ["Mish"]


def test_a_mish_before_indices_is_kept():
    """Rounded otherwise, another element may be the largest."""
    graph = """smooth (float[1, 3, 64, 64] x) => (float[1, 3, 32, 32] y, int64[1, 3, 32, 32] i)
        { t = Mish (x) y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t) }"""
    assert "Mish" in operators_run(models.model(graph, opset=20))


def resized(shape, to, *, scales=None, given="", opset=17):
    """A model of a Conv that changes nothing, so that a plan is made, and a Resize after it."""
    sizes, weights = ", ".join(map(str, shape)), np.eye(shape[1], dtype=np.float32)
    last = ", , scales" if scales is not None else ", , , to"
    constants = {"scales": np.float32(scales)} if scales is not None else {"to": np.array(to)}
    graph = f"""resize (float[{sizes}] x) => (y)
        {{ t = Conv (x, w) y = Resize <mode = "nearest"{given}> (t{last}) }}"""
    weights = weights.reshape(*weights.shape, *(1 for _ in shape[2:]))
    return models.model(graph, opset=opset, w=weights, **constants), models.random(*shape)


FLOOR = ', coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
NEAREST = {
    "twice": ((2, 3, 4, 5, 6), (2, 3, 8, 10, 12), None, FLOOR),
    "other factors": ((1, 2, 3, 4, 5), (1, 2, 9, 4, 20), None, FLOOR),
    "one axis": ((1, 2, 3, 4, 5), (1, 2, 6, 4, 5), None, FLOOR),
    "scales": ((1, 2, 3, 4, 5), None, (1, 1, 2, 3, 1), FLOOR),
    "half pixels": ((1, 2, 3, 4, 5), (1, 2, 9, 8, 20), None, ""),
    "half pixels up": ((1, 2, 3, 4, 5), (1, 2, 6, 20, 15), None, ', nearest_mode = "round_prefer_ceil"'),
}
OTHER_SIZES = {
    "two axes": ((1, 2, 4, 5), (1, 2, 8, 10), None, FLOOR),
    "a broken factor": ((1, 2, 3, 4, 5), (1, 2, 6, 6, 10), None, FLOOR),
    "smaller": ((1, 2, 4, 4, 6), (1, 2, 2, 2, 3), None, FLOOR),
    "a broken scale": ((1, 2, 3, 4, 5), None, (1, 1, 2.2, 2, 2), FLOOR),
    "more channels": ((1, 2, 3, 4, 5), (1, 4, 6, 8, 10), None, FLOOR),
    "the same": ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), None, FLOOR),
    "rounded up": ((1, 2, 3, 4, 5), (1, 2, 6, 8, 10), None, FLOOR.replace("floor", "ceil")),
    "asymmetric and rounded": ((1, 2, 3, 4, 5), (1, 2, 6, 8, 10), None, FLOOR.replace("floor", "round_prefer_floor")),
    "aligned corners": ((1, 2, 3, 4, 5), (1, 2, 6, 8, 10), None, FLOOR.replace("asymmetric", "align_corners")),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [*NEAREST, *OTHER_SIZES])
def test_a_resize_to_nearest_elements_repeats_them(name):
    """Onnxruntime's result bit for bit; other ones are kept."""
    shape, to, scales, given = (NEAREST | OTHER_SIZES)[name]
    model, x = resized(shape, to, scales=scales, given=given)
    assert ("Expand" in operators_run(model)) == (name in NEAREST)
    (ours,) = unpool.InferenceSession(model).run(None, {"x": x})
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(ours, theirs)
