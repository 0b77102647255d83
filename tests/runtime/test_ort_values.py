"""OrtValues that a session makes keep their own memory, whatever their type and whoever lets go of what."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import helper

import unpool
from tests.support import models
from unpool.runtime.backends.ort_values import NUMPY_LACKS, from_ort_value, to_ort_value

TYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
    *(kind.name for kind in NUMPY_LACKS.values()),
]
COUNT = 257
LAYOUTS = {
    "read-only": lambda x: (x.setflags(write=False), x)[1],
    "every second": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1],
    "columns first": lambda x: x.T,
    "broadcast": lambda x: np.broadcast_to(x[:1], (4, 6)),
    "empty": lambda x: x[:, :0],
    "a number": lambda x: x[1, 1],
}


def junk(nbytes):
    """Fill memory that was let go of meanwhile."""
    return [np.full(nbytes, 7, np.uint8) for _ in range(50)]


def fresh(dtype):
    """An array that nobody else holds, of values that every type has."""
    return (np.arange(COUNT) % 2).astype(dtype)


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8).tolist()


@pytest.mark.sample(5)
@pytest.mark.parametrize("dtype", TYPES)
def test_an_ort_value_outlives_its_array(dtype):
    """The caller's array may go; the value still says what it held, and its type."""
    value = to_ort_value(fresh(dtype))
    held = junk(COUNT * np.dtype(dtype).itemsize)

    assert bits(from_ort_value(value)) == bits(fresh(dtype))
    assert value.element_type() == helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    assert held


@pytest.mark.sample(5)
@pytest.mark.parametrize("dtype", TYPES[: -len(NUMPY_LACKS)])
def test_an_array_outlives_its_ort_value(dtype):
    """`numpy()` of a value that goes at once is no view of memory that went with it."""
    array = to_ort_value(fresh(dtype)).numpy()
    held = junk(array.nbytes)

    assert bits(array) == bits(fresh(dtype))
    assert held


@pytest.mark.parametrize("dtype", ["float32", "bool", "bfloat16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_becomes_an_ort_value(dtype, layout):
    """Read-only arrays, views in any order, empty ones and numbers keep their values."""
    array = LAYOUTS[layout]((np.arange(24).reshape(4, 6) % 2).astype(dtype))
    made = from_ort_value(to_ort_value(array))

    assert (made.shape, made.dtype) == (np.shape(array), array.dtype)
    assert bits(made) == bits(array)


@pytest.mark.parametrize("size", [4, 1000, 100_000])
def test_the_outputs_of_a_session_outlive_what_made_them(size):
    """No name holds the values of a call but `numpy()` of one: 20 of 20 are what `run` gives."""
    session = unpool.InferenceSession(
        models.model(
            """g (float[1, 1, N] x) => (float[1, 1, M] z) {
                y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
                z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
            }"""
        )
    )
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
    (expected,) = session.run(["z"], {"x": x})
    feed = {"x": onnxruntime.OrtValue.ortvalue_from_numpy(x)}
    for _ in range(20):
        made = session.run_with_ort_values(["z"], feed)[0].numpy()
        held = junk(x.nbytes)
        assert np.array_equal(made, expected)
        assert held


def test_strings_come_and_go_in_ort_values():
    """OrtValues of strings can be fed, and come out."""
    text = models.model("""g (string[N] x) => (string[M] y) { y = Concat <axis = 0> (x, x) }""").SerializeToString()
    session = unpool.InferenceSession(text)
    (value,) = onnxruntime.InferenceSession(text).run_with_ort_values(
        None, {"x": onnxruntime.InferenceSession(words()).run_with_ort_values(None, {})[0]}
    )

    assert session.run(None, {"x": value})[0].tolist() == ["a", "bc"] * 4
    assert session.run_with_ort_values(None, {"x": value})[0].numpy().tolist() == ["a", "bc"] * 4


def words():
    return models.model(
        """g () => (string[K] y) { y = Constant <value_strings = ["a", "bc"]> () }"""
    ).SerializeToString()


def test_an_ort_value_that_is_no_tensor_is_named():
    """A sequence for an input that is a tensor: both are said."""
    made = models.model("g (float[N] x) => (seq(float[N]) y) { y = SequenceConstruct (x) }").SerializeToString()
    feed = {"x": onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))}
    (value,) = onnxruntime.InferenceSession(made).run_with_ort_values(None, feed)

    with pytest.raises(unpool.UnpoolError, match=r"input 'x': expected tensor\(float\), got seq\(tensor\(float\)\)"):
        unpool.InferenceSession(made).run(None, {"x": value})


@pytest.mark.parametrize("dtype", ["complex64", ml_dtypes.int4, "longdouble"])
def test_types_without_ort_values_are_refused(dtype):
    """What no OrtValue can hold is refused in our words."""
    with pytest.raises(unpool.UnsupportedError, match="OrtValue"):
        to_ort_value(np.zeros(2, dtype))


def test_the_number_of_bytes_is_not_asked_of_old_releases(monkeypatch):
    """The oldest release, 1.22, does not tell how many bytes a value has."""
    monkeypatch.delattr(onnxruntime.OrtValue, "tensor_size_in_bytes", raising=False)
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)

    assert from_ort_value(to_ort_value(x)).tolist() == x.tolist()
