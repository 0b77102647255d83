"""InferenceSession: whole models give what onnxruntime gives, and what is wrong is said in one sentence."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

import unpool
from tests.support import models
from tests.support.library_sessions import plain_session
from unpool.onnxruntime.errors import FallbackWarning


def assert_close(got, expected, tolerance=1e-5):
    """Same shape and type, and differences below the tolerance times the largest element."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max(initial=1e-30))


@pytest.mark.parametrize("exact", [False, True])
def test_float16_model(exact):
    """float16 stays float16 in our nodes and agrees with onnxruntime, which casts."""
    model = models.segnet(np.float16)
    feed = {"image": models.random(1, 3, 12, 10, dtype=np.float16)}
    (got,) = unpool.InferenceSession(model, exact=exact).run(None, feed)
    (expected,) = plain_session(model).run(None, feed)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-2 * np.abs(expected.astype(np.float32)).max())


def test_bfloat16_model():
    """bfloat16 goes through a model as it is; what onnxruntime cannot do with it, the ReferenceEvaluator does."""
    model = models.bfloat16()
    with pytest.warns(FallbackWarning, match="Relu"):
        session = unpool.InferenceSession(model)
    x = models.random(1, 2, 6, 6)
    pooled = unpool.max_pool(x.astype(ml_dtypes.bfloat16), kernel_shape=[2, 2], strides=[2, 2])
    weights = onnx.numpy_helper.to_array(model.graph.initializer[0]).astype(ml_dtypes.bfloat16)
    expected = unpool.conv_transpose(np.maximum(pooled, ml_dtypes.bfloat16(0)), weights, strides=[2, 2])
    assert np.array_equal(session.run(None, {"x": x})[0], expected.astype(np.float32))


def test_channels_last_model_is_the_model_in_onnx():
    """com.ms.internal.nhwc, which onnxruntime's CPU refuses, gives the bits of ONNX's operators on the transpose."""
    feed = {"x": models.random(1, 2, 6, 6)}
    (got,) = unpool.InferenceSession(models.nhwc()).run(None, feed)
    (expected,) = unpool.InferenceSession(models.nhwc_in_onnx()).run(None, feed)
    assert_close(got, expected, 1e-6)


def test_external_data_beside_the_file(tmp_path):
    """Weights in a file of their own are read, and a missing one is named."""
    model = models.segnet()
    path = models.save_with_external_data(model, tmp_path)
    x = models.random(1, 3, 12, 10)
    (expected,) = unpool.InferenceSession(models.segnet()).run(None, {"image": x})
    assert np.array_equal(unpool.InferenceSession(path).run(None, {"image": x})[0], expected)
    content = path.read_bytes()
    with pytest.raises(unpool.ModelError, match=r"external data.*Pass the path"):
        unpool.InferenceSession(content)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(unpool.MissingFileError, match=r"tensor 'w1' expects its data in 'weights.bin'"):
        unpool.InferenceSession(path)


def test_optional_input_may_be_fed_or_not():
    """An initializer that is also an input has its own value until another is fed."""
    session = unpool.InferenceSession(models.optional_input())
    assert [one.name for one in session.get_inputs()] == ["x"]
    assert [one.name for one in session.get_overridable_initializers()] == ["w1", "scale"]
    x, other = models.random(1, 2, 4), models.random(2, 3, 2, seed=7)
    assert np.allclose(
        session.run(None, {"x": x, "scale": np.ones((), np.float32)})[0] * 2, session.run(None, {"x": x})[0]
    )
    (got,) = session.run(None, {"x": x, "w1": other})
    assert np.allclose(got, 2 * unpool.conv_transpose(x, other, strides=[2]))


def test_a_window_larger_than_the_input_gives_nothing():
    """A size that inference gets wrong does not stop the nodes behind it: no window fits, so nothing comes out."""
    session = unpool.InferenceSession(models.plain_pools(size="1, 4"))
    (got,) = session.run(None, {"x": models.random(1, 2, 1, 4)})
    assert got.shape == (1, 2, 0, 2)


ELEMENTS = {"float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20}


@pytest.mark.parametrize("kind", ELEMENTS)
def test_float8_crosses_onnxruntime(kind):
    """Values of 8-bit floats keep their type, and onnxruntime runs them, without falling back."""
    name = kind.replace("_", "")
    model = models.model(f"c (float[2, 3] x) => ({name}[2, 3] y) {{ y = Cast <to = {ELEMENTS[kind]}> (x) }}", opset=19)
    session = unpool.InferenceSession(model)
    x = models.random(2, 3)
    (got,) = session.run(None, {"x": x})
    assert got.dtype.name == kind
    assert np.array_equal(got, x.astype(kind))
    assert not session.plan


def test_thread_counts_agree():
    """One thread and two give the same bits."""
    feed = {"image": models.random(1, 3, 12, 10)}
    one, two = (unpool.InferenceSession(models.segnet(), threads=n).run(None, feed)[0] for n in (1, 2))
    assert one.tobytes() == two.tobytes()


def test_exact_takes_nan_from_onnxruntime():
    """With exact=True a plain pool obeys the standard's numpy-like NaN rule inside a larger graph."""
    x = np.full((1, 2, 8, 8), -np.inf, np.float32)
    x[0, 0, 0, 1] = np.nan
    model = models.plain_pools()
    (exact,) = unpool.InferenceSession(model, exact=True).run(None, {"x": x})
    assert np.isnan(exact[0, 0, 0, 0])
    assert np.isneginf(exact[0, 1]).all()


ODD_UNPOOLING = models.model(
    f"""u (float[1, 1, 2, 2] x, int64[1, 1, 2, 2] i, int64[4] s) => (float[1, 1, 5, 5] y)
    {{ y = MaxUnpool <{models.POOL}> (x, i, s) }}"""
)
ODD_FEED = {"x": np.float32([[[[5, 6], [7, 8]]]]), "i": np.int64([[[[5, 7], [13, 15]]]]), "s": np.int64([1, 1, 5, 5])}
SECOND_ROWS = [
    ({}, [0, 5, 0, 6, 0]),
    ({"index_space": "output"}, [5, 0, 6, 0, 0]),
    ({"compat": "ort", "threads": 1}, [5, 0, 6, 0, 0]),
]
"""Options, and the second row of what the model gives."""


@pytest.mark.parametrize(("options", "row"), SECOND_ROWS)
def test_compat_and_index_space_reach_the_nodes(options, row):
    """The session's options are those of its nodes."""
    assert unpool.InferenceSession(ODD_UNPOOLING, **options).run(None, ODD_FEED)[0][0, 0, 1].tolist() == row


BAD_SOURCES = {
    "bytes": (b"\xffo model", unpool.ModelError, "the 8 bytes: expected an ONNX model, got something else"),
    "text": (b"not a model at all", unpool.ModelError, "got text that begins with 'not a model at all'"),
    "kind": (7, unpool.UnpoolError, "expected a path, bytes or an onnx.ModelProto, got int"),
    "missing": ("nowhere.onnx", unpool.MissingFileError, "nowhere.onnx: expected an ONNX model, got no such file"),
    "folder": (".", unpool.FileError, "got a folder"),
}


@pytest.mark.parametrize("name", BAD_SOURCES)
def test_bad_sources_are_named(name):
    """By the error that fits the place it came from; tests/cli/test_wrong_files.py has every kind of file."""
    source, kind, message = BAD_SOURCES[name]
    with pytest.raises(kind, match=message):
        unpool.InferenceSession(source)


INVALID = {
    "an attribute": ("y = MaxPool <kernel_shape = [2, 2], size = 3> (x)", "Unrecognized attribute: size"),
    "a length": ("y = MaxPool <kernel_shape = [2, 2], pads = [1, 1, 1]> (x)", "pads has incorrect size"),
    "inputs": ("[grow] y = ConvTranspose (x)", "grow.* input size 1"),
    "a value": ("y = Relu (q)", "Node input 'q'"),
    "an operator": ("y = Odd (x)", "Odd"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_models_name_what_is_wrong(name):
    """The words are those of onnxruntime, and the error is unpool's, too."""
    body, message = INVALID[name]
    with pytest.raises(unpool.UnpoolError, match=message):
        unpool.InferenceSession(models.model(f"g (float[1, 2, 6, 6] x) => (float[a, b, c, d] y) {{ {body} }}"))


def test_large_sizes_are_refused_before_allocation():
    """A model that asks for 10^15 elements gets an error, not memory."""
    model = models.model(
        """g (float[1, 1, 2, 2] x, float[1, 1, 2, 2] w) => (float[1, 1, a, b] y) {
            y = ConvTranspose <output_shape = [1000000000, 1000000]> (x, w)
        }"""
    )
    feed = {"x": models.random(1, 1, 2, 2), "w": models.random(1, 1, 2, 2)}
    with pytest.raises(Fail, match=r"ConvTranspose-11: an array of .* needs"):
        unpool.InferenceSession(model).run(None, feed)


def test_damaged_weights_are_no_model():
    """A large initializer with too few bytes is found before anything is loaded."""
    model = models.model("w (float[1, 40] x) => (float[1, 40] y) { y = MatMul (x, w1) }", w1=models.random(40, 40))
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    with pytest.raises(unpool.ModelError, match=r"w1.*does not match expected size"):
        unpool.InferenceSession(model)


BAD_OPTIONS = {
    "compat": ({"compat": "onnx"}, "compat: expected one of spec, ort; got 'onnx'"),
    "index_space": ({"index_space": "input"}, "index_space: expected one of auto, output, inferred"),
    "threads": ({"threads": 0}, "threads is None or an int of 1 or more, got 0"),
    "sess_options": ({"sess_options": {"threads": 1}}, "sess_options to be onnxruntime.SessionOptions"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options_are_named(name):
    """A wrong option of the constructor is an error of ours, also for a model without our nodes."""
    options, message = BAD_OPTIONS[name]
    with pytest.raises(unpool.UnpoolError, match=message):
        unpool.InferenceSession(models.none_of_ours(), **options)


class Derived(unpool.InferenceSession):
    """A session with a constructor of its own."""

    def __init__(self, *args, **words):
        super().__init__(*args, **words)


@pytest.mark.parametrize("kind", [unpool.InferenceSession, Derived])
def test_warnings_point_to_the_line_of_the_caller(kind):
    """A missing provider, and a node that onnxruntime refuses, are warned of in the caller's file."""
    with pytest.warns(UserWarning, match="is not in available provider names") as providers:
        session = kind(models.none_of_ours(), providers=["QNNExecutionProvider", "CPUExecutionProvider"])
    with pytest.warns(UserWarning, match="is not in available provider names") as later:
        session.set_providers(["QNNExecutionProvider", "CPUExecutionProvider"])
    with pytest.warns(FallbackWarning) as fallback:
        kind(models.segnet(np.float64))

    assert {one.filename for one in fallback} == {__file__}
    assert providers
    assert later
