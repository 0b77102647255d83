"""A Conv of stride 1 becomes a ConvTranspose where our kernels are faster, and computes the same."""

from unittest.mock import patch

import numpy as np
import onnxruntime
import pytest

import unpool
from tests.support import models
from unpool.kernels.cpu.conv_transpose import winograd
from unpool.runtime.passes import convert_conv
from unpool.runtime.session.passthrough import OrtModel

SMALL = {
    "two axes": ("x, w", "1, 4, 5, 7", (3, 4, 3, 3), "pads = [1, 1, 1, 1]"),
    "a bias": ("x, w, b", "2, 4, 5, 7", (3, 4, 3, 3), "pads = [1, 1, 1, 1]"),
    "no pads": ("x, w", "1, 4, 5, 7", (3, 4, 3, 2), 'kernel_shape = [3, 2], auto_pad = "NOTSET"'),
    "VALID": ("x, w", "1, 4, 5, 7", (3, 4, 3, 2), 'auto_pad = "VALID"'),
    "uneven pads": ("x, w", "1, 4, 5, 7", (3, 4, 3, 3), "pads = [0, 1, 2, 0]"),
    "groups": ("x, w, b", "1, 4, 5, 7", (6, 2, 3, 3), "pads = [1, 1, 1, 1], group = 2"),
    "dilation": ("x, w", "1, 4, 5, 7", (3, 4, 2, 3), "dilations = [3, 2], strides = [1, 1], pads = [2, 1, 0, 4]"),
    "one axis": ("x, w", "1, 4, 9", (3, 4, 4), "pads = [3, 1]"),
    "three axes": ("x, w", "1, 2, 3, 4, 5", (3, 2, 2, 3, 1), "pads = [0, 1, 0, 1, 1, 0]"),
}
LARGE = {
    "as it is": ("y = Conv <pads = [1, 1, 1, 1]> (x, w, b)", ""),
    "with a Relu": ("c = Conv <pads = [1, 1, 1, 1]> (x, w) y = Relu (c)", "; with Relu->y folded in"),
    "without pads": ("y = Conv (x, w)", ""),
    "with a normalization": (
        "c = Conv <pads = [1, 1, 1, 1]> (x, w) n = BatchNormalization (c, ns, nb, nm, nv) y = Relu (n)",
        "; with BatchNormalization->n, Relu->y folded in",
    ),
}
KEPT = {
    "a stride": "y = Conv <pads = [1, 1, 1, 1], strides = [1, 2]> (x, w)",
    "pads that depend on the size": 'y = Conv <auto_pad = "SAME_UPPER"> (x, w)',
    "pads beyond the window": "y = Conv <pads = [3, 3, 3, 3]> (x, w)",
    "a window of other tiles": "y = Conv <pads = [2, 2, 2, 2], dilations = [2, 2]> (x, w)",
    "computed weights": "v = Abs (w) y = Conv (x, v)",
    "few elements": "s = MaxPool <kernel_shape = [2, 2], strides = [4, 4]> (x) y = Conv (s, w)",
}


def convolution(body, shape="1, 64, 40, 40", weights=(64, 64, 3, 3)):
    """A model on `x`, with weights `w`, a bias `b` and a normalization `n`."""
    w = models.random(*weights) / np.float32(np.sqrt(np.prod(weights[1:])))
    constants = {"w": w, "b": models.random(weights[0], seed=5), **models.batch_norm("n", weights[0])}
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
def cheap_cuts(monkeypatch):
    """Convolutions of the sizes of these tests are converted, as if onnxruntime did nothing together with them."""
    monkeypatch.setattr(convert_conv, "CUT_COST", 0)
    monkeypatch.setattr(convert_conv, "LEAST_GAIN", 0)


@pytest.mark.parametrize("name", SMALL)
def test_every_form_gives_what_the_convolution_gives(name, monkeypatch):
    """Pads, groups, dilations, bias and rank are carried over, whatever the way of computing."""
    monkeypatch.setattr(convert_conv, "_saving", lambda *_, is_between: 1e12)
    inputs, shape, weights, attributes = SMALL[name]
    model = convolution(f"y = Conv <{attributes}> ({inputs})", shape, weights)
    (record,) = unpool.InferenceSession(model).plan
    assert record.node == "Conv->y"
    assert record.operator == "ConvTranspose"
    assert_same(model, models.random(*map(int, shape.split(","))))


@pytest.mark.usefixtures("cheap_cuts")
@pytest.mark.parametrize("name", LARGE)
def test_a_large_convolution_is_turned(name):
    """It is one step of unpool's with what follows, and the plan says why."""
    body, folded = LARGE[name]
    model = convolution(body)
    (record,) = unpool.InferenceSession(model).plan
    assert record.reason == (
        f"unpool runs every ConvTranspose, by winograd; converted from Conv '{record.node}': faster so{folded}"
    )
    assert_same(model, models.random(1, 64, 40, 40))


def test_a_large_convolution_over_three_axes_is_turned():
    """By phases, where onnxruntime copies its input for every tap; few elements are not worth a step."""
    body = "y = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, w, b)"
    model = convolution(body, "1, 16, 20, 21, 22", (16, 16, 3, 3, 3))
    (record,) = unpool.InferenceSession(model).plan
    assert record.reason == "unpool runs every ConvTranspose, by phases; converted from Conv 'Conv->y': faster so"
    assert_same(model, models.random(1, 16, 20, 21, 22))
    (record,) = unpool.InferenceSession(convolution(body, "1, 16, 6, 5, 6", (16, 16, 3, 3, 3))).plan
    assert record.runner == "onnxruntime"


@pytest.mark.usefixtures("cheap_cuts")
def test_the_last_convolution_of_a_generator_is_turned():
    """By phases: onnxruntime computes three channels as slowly as a whole vector of them."""
    body = "y = Conv <pads = [3, 3, 3, 3]> (x, w)"
    few, many = (convolution(body, "1, 32, 64, 64", (maps, 32, 7, 7)) for maps in (3, 16))
    (record,) = unpool.InferenceSession(few).plan
    assert record.reason == "unpool runs every ConvTranspose, by phases; converted from Conv 'Conv->y': faster so"
    assert_same(few, models.random(1, 32, 64, 64))
    (record,) = unpool.InferenceSession(many).plan
    assert record.runner == "onnxruntime"


def test_large_windows_on_small_maps_are_turned():
    """By phases: onnxruntime reads all their weights again for each row; for a single output it reads them once."""
    shape, weights = "1, 256, 8, 8", (512, 256, 7, 7)
    padded, single = "y = Conv <pads = [3, 3, 3, 3]> (x, w)", "y = Conv <pads = [0, 0, 0, 0]> (x, w)"
    model = convolution(padded, shape, weights)
    (record,) = unpool.InferenceSession(model).plan
    assert record.reason == "unpool runs every ConvTranspose, by phases; converted from Conv 'Conv->y': faster so"
    assert_same(model, models.random(1, 256, 8, 8))
    (record,) = unpool.InferenceSession(convolution(single, "1, 256, 7, 7", weights)).plan
    assert record.runner == "onnxruntime"


def test_numbers_that_tiles_would_spread_stay_where_they_are():
    """NaN, infinity and what is far larger than its neighbours reach the same outputs as in the convolution."""
    x = models.random(1, 64, 40, 40)
    x[0, 0, 3, 3], x[0, 1, 20, 20], x[0, 2, 30, 9] = np.nan, np.inf, -np.inf
    assert_same(convolution("y = Conv <pads = [1, 1, 1, 1]> (x, w, b)"), x)


@pytest.mark.usefixtures("cheap_cuts")
@pytest.mark.parametrize("name", KEPT)
def test_other_convolutions_stay_with_onnxruntime(name):
    """Where the form does not fit, or the tiles would save too little."""
    plan = unpool.InferenceSession(convolution(KEPT[name])).plan
    assert {one.operator: one.runner for one in plan}["Conv"] == "onnxruntime"


@pytest.mark.usefixtures("cheap_cuts")
def test_a_convolution_before_indices_is_not_turned():
    """Its rounding decides between near-equal elements, so that indices stay those of onnxruntime; one behind is."""
    conv, pool = "Conv <pads = [1, 1, 1, 1]>", "kernel_shape = [2, 2], strides = [2, 2]"
    body = f"a = {conv} (x, w) r = Relu (a) p, i = MaxPool <{pool}> (r) u = MaxUnpool <{pool}> (p, i) y = {conv} (u, w)"
    plan = unpool.InferenceSession(convolution(body)).plan
    assert {one.node: one.runner for one in plan} == {
        "Conv->a": "onnxruntime", "Relu->r": "onnxruntime", "MaxPool->p": "unpool", "MaxUnpool->u": "unpool",
        "Conv->y": "unpool",
    }  # fmt: skip
    assert_same(convolution(body), models.random(1, 64, 40, 40))


@pytest.mark.parametrize("shape", ["1, 64, h, 40", "1, 60, 40, 40"])
def test_shapes_that_are_unknown_or_do_not_fit(shape):
    """Nothing is turned then; what is wrong with the model is onnxruntime's to say."""
    model = convolution("y = Conv <pads = [1, 1, 1, 1]> (x, w)", shape)
    (record,) = unpool.InferenceSession(model).plan
    assert record.runner == "onnxruntime"


def test_lower_levels_of_optimisation_turn_nothing():
    """Only the highest level, which is the default, may change how a Conv is computed."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    (record,) = unpool.InferenceSession(convolution("y = Conv (x, w)"), options).plan
    assert record.runner == "onnxruntime"


def test_exact_sessions_form_every_product() -> None:
    """exact=True turns no Conv, and gives a ConvTranspose no tiles, in the plan as in the call."""
    conv = convolution("y = Conv <pads = [1, 1, 1, 1]> (x, w)")
    (record,) = unpool.InferenceSession(conv, exact=True).plan
    assert record.runner == "onnxruntime"
    model = convolution("y = ConvTranspose <pads = [1, 1, 1, 1]> (x, w)")
    (record,) = unpool.InferenceSession(model).plan
    assert record.reason.endswith("by winograd")
    session = unpool.InferenceSession(model, exact=True)
    (record,) = session.plan
    assert record.reason.endswith("by phases")
    with patch.object(winograd, "launch", side_effect=AssertionError):
        session.run(None, {"x": models.random(1, 64, 40, 40)})


@pytest.mark.parametrize(
    ("side", "maps", "runner"), [(28, 128, "onnxruntime"), (24, 512, "unpool"), (40, 64, "onnxruntime")]
)
def test_only_large_convolutions_leave_onnxruntime(side, maps, runner):
    """Of a ResNet, whose Adds and activations onnxruntime computes with the Convs, none does; of a VGG, some do."""
    model = convolution("y = Conv <pads = [1, 1, 1, 1]> (x, w)", f"1, {maps}, {side}, {side}", (maps, maps, 3, 3))
    (record,) = unpool.InferenceSession(model).plan
    assert record.runner == runner


def test_a_large_convolution_with_dilations_stays():
    """Its products are not fewer in unpool's kernels."""
    body = "y = Conv <pads = [2, 2, 2, 2], dilations = [2, 2]> (x, w)"
    (record,) = unpool.InferenceSession(convolution(body, "1, 512, 24, 24", (512, 512, 3, 3))).plan
    assert record.runner == "onnxruntime"


def test_a_model_whose_convolutions_all_stay_is_onnxruntimes():
    """One session runs the file as it is: with its speed, and with the weights in memory once."""
    session = unpool.InferenceSession(convolution("y = Conv <pads = [1, 1, 1, 1]> (x, w)").SerializeToString())
    assert isinstance(session._model, OrtModel)
    (record,) = session.plan
    assert (record.operator, record.runner) == ("Conv", "onnxruntime")
    large = convolution("y = Conv <pads = [1, 1, 1, 1]> (x, w)", "1, 512, 24, 24", (512, 512, 3, 3))
    assert not isinstance(unpool.InferenceSession(large.SerializeToString())._model, OrtModel)
