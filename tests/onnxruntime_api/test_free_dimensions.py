"""Free dimensions: options give a size to an axis that the model leaves open."""

import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from tests.support import models


def by_name(ort, **sizes):
    """Options with sizes by the names of axes."""
    options = ort.SessionOptions()
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    return options


def test_a_named_axis_gets_a_size(ort, free_net):
    """The input has the size, and so has the output; what is fed has to have it."""
    session = ort.InferenceSession(free_net.content, by_name(ort, N=3))
    assert session.get_inputs()[0].shape == [3, 1, 4, 4]
    assert session.get_outputs()[0].shape == [3, *free_net.z_shape[1:]]
    free_net.assert_right(session)
    with pytest.raises(InvalidArgument, match=r"(?s)2.*3|3.*2"):
        session.run(None, {"x": free_net.x[:2]})


def test_names_that_the_model_has_not_are_ignored(ort, free_net):
    """A size for a name that no axis has changes nothing."""
    session = ort.InferenceSession(free_net.content, by_name(ort, batch=3))
    assert session.get_inputs()[0].shape == ["N", 1, 4, 4]
    free_net.assert_right(session)


def test_some_axes_stay_free(ort):
    """Only the named axes get sizes."""
    content = models.model("g (float[A, B, 5] x) => (float[A, B, 5] z) { z = Abs (x) }").SerializeToString()
    session = ort.InferenceSession(content, by_name(ort, B=6))

    assert session.get_inputs()[0].shape == ["A", 6, 5]


@pytest.mark.parametrize("kind", ["pools", "plain"])
def test_an_axis_gets_a_size_by_what_it_denotes(ort, kind):
    """An axis that the model denotes as a batch or channels gets its size by that word."""
    node = {"pools": "z, i = MaxPool <kernel_shape = [1, 1]> (x)", "plain": "z = Abs (x)"}[kind]
    made = models.model(f"g (float[A, B, 4, 4] x) => (float[A, B, 4, 4] z) {{ {node} }}")
    for dim, word in zip(made.graph.input[0].type.tensor_type.shape.dim, ("DATA_BATCH", "DATA_CHANNEL"), strict=False):
        dim.denotation = word
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
    options.add_free_dimension_override_by_denotation("DATA_CHANNEL", 5)

    assert ort.InferenceSession(made.SerializeToString(), options).get_inputs()[0].shape == [3, 5, 4, 4]
