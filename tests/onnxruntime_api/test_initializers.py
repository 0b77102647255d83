"""Initializers that options bring: in place of the model's, and of those in files that are not there."""

import numpy as np
import onnx
import pytest

from tests.onnxruntime_api.nets import WEIGHTS, grows, images, plain, pools
from tests.support import models


def with_initializer(ort, name, value):
    """Options that bring an initializer, an OrtValue that the caller keeps."""
    options = ort.SessionOptions()
    options.add_initializer(name, value)
    return options


def value_of(ort, array):
    """An OrtValue of an array of float32."""
    return ort.OrtValue.ortvalue_from_numpy(np.float32(array))


@pytest.mark.parametrize(
    ("make", "name", "array", "factor"),
    [
        *((make, "w", [6], 3) for make in (pools, grows, plain)),
        (grows, "k", WEIGHTS[None, None] * 5, 5),
        (plain, "nowhere", [1], 1),
        (grows, "nowhere", [1], 1),
    ],
)
def test_options_replace_an_initializer(ort, make, name, array, factor):
    """A factor, or the weights of an operator, are those of the options; a name that the model has not is ignored."""
    net, value = make(), value_of(ort, array)
    session = ort.InferenceSession(net.content, with_initializer(ort, name, value))
    assert np.array_equal(session.run(None, net.feed)[0], net.z * factor)


def test_one_value_serves_several_sessions(ort):
    """Two sessions share the memory of one initializer."""
    net, factor = plain(), value_of(ort, [4])
    for session in [ort.InferenceSession(net.content, with_initializer(ort, "w", factor)) for _ in range(2)]:
        assert np.array_equal(session.run(None, net.feed)[0], net.z * 2)


def test_an_initializer_is_added_once(ort):
    """The second value for a name is refused."""
    value = value_of(ort, [1])
    with pytest.raises(RuntimeError):
        with_initializer(ort, "w", value).add_initializer("w", value)


def external(array):
    """A ConvTranspose whose kernel is in a file that nobody wrote."""
    graph = "g (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] z) { z = ConvTranspose <strides = [2, 2]> (x, k) }"
    made = models.model(graph, k=array)
    tensor = made.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "not_written.bin", 0, array.nbytes)
    tensor.ClearField("raw_data")
    return made.SerializeToString()


def test_options_bring_external_initializers(ort):
    """A kernel that the model keeps in a missing file comes from the options."""
    kernel = value_of(ort, WEIGHTS[None, None])
    options = ort.SessionOptions()
    options.add_external_initializers(["k"], [kernel])
    session = ort.InferenceSession(external(WEIGHTS[None, None]), options)

    assert np.array_equal(session.run(None, {"x": images(1)})[0], np.kron(images(1), WEIGHTS))


@pytest.mark.needs("SessionOptions.add_external_initializers_from_files_in_memory")
def test_options_bring_external_files(ort):
    """A file that the model names comes from the memory of the options."""
    content = WEIGHTS.tobytes()
    options = ort.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["not_written.bin"], [content], [len(content)])
    session = ort.InferenceSession(external(WEIGHTS[None, None]), options)

    assert np.array_equal(session.run(None, {"x": images(1)})[0], np.kron(images(1), WEIGHTS))
