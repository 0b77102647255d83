"""OpenVINO computes the three operators by the standard, with unpool's extensions."""

import ml_dtypes
import numpy as np
import openvino
import pytest

import unpool.openvino
from tests.cases.contract import CASES
from tests.cases.record import Case
from tests.support import models
from tests.support.runners import feeds_of, model_of

OLD_CONV_TRANSPOSE = 11  # the opset since which it has its meaning
F32 = {"INFERENCE_PRECISION_HINT": "f32"}


def is_comparable(case: Case) -> bool:
    """True for a case that the contract computes, in a type that the device computes in."""
    is_old = case.operator == "ConvTranspose" and case.opset is not None and case.opset < OLD_CONV_TRANSPOSE
    is_narrowed = case.inputs[0].dtype in (np.float64, ml_dtypes.bfloat16)
    return case.expected is not None and case.layout == "NCHW" and not is_old and not is_narrowed


COMPARED = [case for case in CASES if is_comparable(case)]


def run(model, feed, **options):
    """All outputs of OpenVINO's CPU device with the extensions."""
    core = openvino.Core()
    core.add_extension(unpool.openvino.extensions(**options))
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", F32)
    found = compiled(feed)
    return [found[number] for number in range(len(compiled.outputs))]


def check(case, **options):
    """The outputs are those of the contract."""
    found = run(model_of(case), feeds_of(case), compat=case.compat, index_space=case.index_space, **options)
    for got, expected in zip(found, case.expected, strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=max(case.tolerance, 1e-5), atol=1e-6)


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.name)
def test_every_case_of_the_contract(case):
    """Computed by unpool, with exact=True."""
    check(case, exact=True)


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.name)
def test_every_case_without_infinity_and_nan(case):
    """By OpenVINO, where it computes by the standard but for infinity and NaN."""
    arrays = (array for array in (*case.expected, *case.inputs) if array is not None)
    if all(np.isfinite(array.astype(np.float32)).all() for array in arrays):
        check(case)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("size", ["12, 10", "h, w"])
def test_segnet_is_one_model(size, exact):
    """Also of sizes that are not known when it is compiled."""
    model, x = models.segnet(size=size), models.random(1, 3, 12, 10)
    (found,) = run(model, {"image": x}, exact=exact)
    (expected,) = unpool.onnxruntime.InferenceSession(model).run(None, {"image": x})
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("group", [1, 2])
def test_plain_nodes_stay_openvinos(group):
    """A plain MaxPool, and a ConvTranspose of constant weights, with a bias."""
    model = models.model(
        f"""net (float[1, 4, 9, 8] x) => (float y) {{
            p = MaxPool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]> (x)
            y = ConvTranspose
                <strides = [2, 3], pads = [1, 0, 0, 1], output_padding = [1, 0], group = {group}> (p, w, b)
        }}""",
        w=models.random(4, 3, 3, 3),
        b=models.random(3 * group),
    )
    for exact in (False, True):
        core = openvino.Core()
        core.add_extension(unpool.openvino.extensions(exact=exact))
        operators = [each.get_type_name() for each in core.read_model(model.SerializeToString()).get_ops()]
        assert operators.count("OpenVinoNode") == 2 * exact
    x = models.random(1, 4, 9, 8)
    (found,), (exact,) = run(model, {"x": x}), run(model, {"x": x}, exact=True)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)


def test_indices_out_of_range_are_an_error():
    """The rule and the node's operator are in OpenVINO's error."""
    text = "net (float[1, 1, 2] x, int64[1, 1, 2] i) => (float y) { y = MaxUnpool <kernel_shape = [2]> (x, i) }"
    with pytest.raises(Exception, match="IndicesError: MaxUnpool: indices need values from 0 to 2, got 99"):
        run(models.model(text), {"x": np.ones((1, 1, 2), np.float32), "i": np.int64([[[0, 99]]])})


def test_attributes_are_checked():
    """Those that the standard refuses are refused when the model is read."""
    text = "net (float[1, 1, 5] x) => (float y) { y = MaxPool <kernel_shape = [0]> (x) }"
    model = models.model(text)
    with pytest.raises(Exception, match="kernel_shape"):
        run(model, {"x": np.ones((1, 1, 5), np.float32)})
