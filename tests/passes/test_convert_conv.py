"""A Conv of stride 1 becomes a ConvTranspose where our kernels are faster, and computes the same."""

import numpy as np
import onnxruntime
import pytest

import unpool
from tests.support import models
from tests.support.passes import steps
from unpool.passes import convert_conv

SMALL = {
    "two axes": ("x, w", "1, 4, 5, 7", (3, 4, 3, 3), "pads = [1, 1, 1, 1]"),
    "a bias": ("x, w, b", "2, 4, 5, 7", (3, 4, 3, 3), "pads = [1, 1, 1, 1]"),
    "no pads": ("x, w", "1, 4, 5, 7", (3, 4, 3, 2), 'kernel_shape = [3, 2], auto_pad = "NOTSET"'),
    "VALID": ("x, w", "1, 4, 5, 7", (3, 4, 3, 2), 'auto_pad = "VALID"'),
    "uneven pads": ("x, w", "1, 4, 5, 7", (3, 4, 3, 3), "pads = [0, 1, 2, 0]"),
    "groups": ("x, w, b", "1, 4, 5, 7", (6, 2, 3, 3), "pads = [1, 1, 1, 1], group = 2"),
    "dilation": ("x, w", "1, 4, 5, 7", (3, 4, 2, 3), "dilations = [3, 2], strides = [1, 1], pads = [2, 1, 0, 4]"),
    "three axes": ("x, w", "1, 2, 3, 4, 5", (3, 2, 2, 3, 1), "pads = [0, 1, 0, 1, 1, 0]"),
}
KEPT = {
    "a stride": "y = Conv <pads = [1, 1, 1, 1], strides = [1, 2]> (x, w)",
    "pads that depend on the size": 'y = Conv <auto_pad = "SAME_UPPER"> (x, w)',
    "pads beyond the window": "y = Conv <pads = [3, 3, 3, 3]> (x, w)",
    "computed weights": "v = Abs (w) y = Conv (x, v)",
}


def convolution(body, shape="1, 64, 40, 40", weights=(64, 64, 3, 3)):
    """A model on `x`, with weights `w` and a bias `b`."""
    w = models.random(*weights) / np.float32(np.sqrt(np.prod(weights[1:])))
    constants = {"w": w, "b": models.random(weights[0], seed=5)}
    return models.model(f"c (float[{shape}] x) => (float[n, m] y) {{ {body} }}".replace("[n, m]", ""), **constants)


def assert_same(model, x):
    """The session gives what onnxruntime gives for the model as it is."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    (got,) = unpool.InferenceSession(model).run(None, {"x": x})
    finite = expected[np.isfinite(expected)]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * np.abs(finite).max())


@pytest.fixture
def cheap_steps(monkeypatch):
    """Every Conv is converted whose form allows it."""
    monkeypatch.setattr(convert_conv, "_pays", lambda *_: True)


@pytest.mark.usefixtures("cheap_steps")
@pytest.mark.parametrize("name", SMALL)
def test_every_form_gives_what_the_convolution_gives(name):
    """Pads, groups, dilations, bias and rank are carried over."""
    inputs, shape, weights, attributes = SMALL[name]
    model = convolution(f"y = Conv <{attributes}> ({inputs})", shape, weights)
    (step,) = steps(unpool.InferenceSession(model))
    assert (step.node, step.operator) == ("Conv->y", "ConvTranspose")
    assert "converted from Conv 'Conv->y'" in step.text
    assert_same(model, models.random(*map(int, shape.split(","))))


@pytest.mark.usefixtures("cheap_steps")
def test_numbers_that_tiles_would_spread_stay_where_they_are():
    """NaN, infinity and what is far larger than its neighbours reach the same outputs as in the convolution."""
    x = models.random(1, 64, 40, 40)
    x[0, 0, 3, 3], x[0, 1, 20, 20], x[0, 2, 30, 9] = np.nan, np.inf, -np.inf
    assert_same(convolution("y = Conv <pads = [1, 1, 1, 1]> (x, w, b)"), x)


@pytest.mark.usefixtures("cheap_steps")
@pytest.mark.parametrize("name", KEPT)
def test_other_convolutions_are_kept(name):
    """Where the form does not fit."""
    plan = steps(unpool.InferenceSession(convolution(KEPT[name])))
    assert {step.operator: step.runner for step in plan}["Conv"] == "onnxruntime"


@pytest.mark.usefixtures("cheap_steps")
def test_a_convolution_before_indices_is_not_converted():
    """Its rounding decides between near-equal elements, so that indices stay those of onnxruntime; one behind is."""
    conv, pool = "Conv <pads = [1, 1, 1, 1]>", "kernel_shape = [2, 2], strides = [2, 2]"
    body = f"a = {conv} (x, w) r = Relu (a) p, i = MaxPool <{pool}> (r) u = MaxUnpool <{pool}> (p, i) y = {conv} (u, w)"
    plan = steps(unpool.InferenceSession(convolution(body)))
    assert [step.operator for step in plan] == ["Conv", "Relu", "MaxPool", "MaxUnpool", "ConvTranspose"]
    assert_same(convolution(body), models.random(1, 64, 40, 40))


def test_a_large_convolution_over_three_axes_is_converted():
    """Onnxruntime copies its input for every tap; few elements are not worth a step."""
    body = "y = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, w, b)"
    model = convolution(body, "1, 16, 20, 21, 22", (16, 16, 3, 3, 3))
    assert [step.operator for step in steps(unpool.InferenceSession(model))] == ["ConvTranspose"]
    assert_same(model, models.random(1, 16, 20, 21, 22))
    small = convolution(body, "1, 16, 6, 5, 6", (16, 16, 3, 3, 3))
    assert [step.operator for step in steps(unpool.InferenceSession(small))] == ["Conv"]


LARGE = {
    "as it is": ("y = Conv <pads = [1, 1, 1, 1]> (x, w, b)", ""),
    "with a Relu": ("c = Conv <pads = [1, 1, 1, 1]> (x, w) y = Relu (c)", "; with Relu->y folded in"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_convolution_is_converted(name):
    """It is one node of unpool's with what follows, and the plan says why."""
    body, folded = LARGE[name]
    model = convolution(body)
    (step,) = steps(unpool.InferenceSession(model))
    assert (step.operator, step.runner) == ("ConvTranspose", "unpool")
    assert step.text.endswith(f"converted from Conv '{step.node}': faster so{folded}")
    assert_same(model, models.random(1, 64, 40, 40))


SMALL_GAINS = {
    "one axis": ("y = Conv <pads = [1, 1]> (x, w)", "1, 64, 9000", (64, 64, 3)),
    "dilated": ("y = Conv <pads = [2, 2, 2, 2], dilations = [2, 2]> (x, w)", "1, 64, 40, 40", (64, 64, 3, 3)),
    "few elements": ("y = Conv <pads = [1, 1, 1, 1]> (x, w)", "1, 16, 7, 7", (16, 16, 3, 3)),
    "one by one": ("y = Conv (x, w)", "1, 64, 40, 40", (64, 64, 1, 1)),
}


@pytest.mark.parametrize("name", SMALL_GAINS)
def test_a_convolution_that_gains_little_stays(name):
    """Where unpool takes as many products, or the node costs more than it saves."""
    assert [step.operator for step in steps(unpool.InferenceSession(convolution(*SMALL_GAINS[name])))] == ["Conv"]


def test_the_last_convolution_of_a_generator_is_converted():
    """Onnxruntime computes three channels as slowly as a whole vector of them."""
    body = "y = Conv <pads = [3, 3, 3, 3]> (x, w)"
    few, many = (convolution(body, "1, 32, 64, 64", (maps, 32, 7, 7)) for maps in (3, 16))
    assert [step.operator for step in steps(unpool.InferenceSession(few))] == ["ConvTranspose"]
    assert [step.operator for step in steps(unpool.InferenceSession(many))] == ["Conv"]
    assert_same(few, models.random(1, 32, 64, 64))


@pytest.mark.parametrize("words", [{"exact": True}, {"disabled_optimizers": ["convert_conv"]}])
def test_exact_sessions_convert_nothing(words):
    """Every product is formed as it is written."""
    model = convolution("y = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, w)", "1, 16, 20, 21, 22", (16, 16, 3, 3, 3))
    assert [step.operator for step in steps(unpool.InferenceSession(model, **words))] == ["Conv"]
