"""Values that are no tensors of numbers: sequences, maps, optionals and strings."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from tests.support import models

POOLED = """g (float[1, 1, 4] x) => (seq(float[1, 1, M]) z) {
    y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
    u = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
    z = SequenceConstruct (y, u)
}"""
STRINGS = {
    "str": np.array([["Olá", "你好"], ["여보세요", "hello"]]),
    "object": np.array([["this", "is"], ["identity", "test"]], object),
    "bytes": np.array([[b"this", b"is"], [b"identity", b"test"]], "S9"),
    "void": np.array([[b"must", b"have"], [b"same", b"size"]], np.void),
    "empty": np.array([], object).reshape(0, 2),
}


def load(ort, graph, opset=18):
    """A session of a graph in ONNX's text form."""
    return ort.InferenceSession(models.model(graph, opset=opset).SerializeToString())


def of_maps(ort, operator, inputs, outputs, **attributes):
    """A session of one node of ai.onnx.ml."""
    node = helper.make_node(operator, ["x"], ["z"], domain="ai.onnx.ml", **attributes)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "g", [inputs], [outputs])
    return ort.InferenceSession(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_list_of_arrays_is_a_sequence(ort, count):
    """A list goes in, of any length; its type has a name and no shape."""
    session = load(ort, "g (seq(float[2]) x) => (int64[] z) { z = SequenceLength (x) }")
    (x,) = session.get_inputs()

    assert (x.type, x.shape) == ("seq(tensor(float))", [])
    assert_array_equal(session.run(None, {"x": [np.ones(2, np.float32)] * count})[0], np.int64(count))


def test_a_sequence_comes_as_a_list_of_arrays(ort):
    """A list comes out, with arrays in order."""
    session = load(ort, "g (int64[N] a, int64[N] b) => (seq(int64[N]) z) { z = SequenceConstruct (a, b) }")
    (made,) = session.run(None, {"a": np.array([1, 2]), "b": np.array([3, 4])})

    assert isinstance(made, list)
    assert [one.tolist() for one in made] == [[1, 2], [3, 4]]
    assert session.get_outputs()[0].type == "seq(tensor(int64))"


def test_an_array_is_added_to_a_list(ort):
    """An empty list goes in, and a list of the added array comes out."""
    session = load(ort, "g (seq(int64[2]) s, int64[2] a) => (seq(int64[2]) z) { z = SequenceInsert (s, a) }")

    assert [one.tolist() for one in session.run(None, {"s": [], "a": np.array([5, 6])})[0]] == [[5, 6]]


def test_results_of_pooling_in_a_sequence(ort):
    """A sequence of what MaxPool and MaxUnpool made."""
    (made,) = load(ort, POOLED).run(None, {"x": np.float32([[[1, 3, 4, 2]]])})

    assert [one.tolist() for one in made] == [[[[3, 4]]], [[[0, 3, 4, 0]]]]


@pytest.mark.parametrize("kind", ["pooled", "plain"])
def test_a_sequence_is_an_ort_value(ort, kind):
    """A sequence comes out of `run_with_ort_values` as a value that is one."""
    graph = (
        POOLED if kind == "pooled" else "g (float[1, 1, 4] x) => (seq(float[A, B, C]) z) { z = SequenceConstruct (x) }"
    )
    x = ort.OrtValue.ortvalue_from_numpy(np.float32([[[1, 3, 4, 2]]]))
    (made,) = load(ort, graph).run_with_ort_values(None, {"x": x})

    assert (made.is_tensor_sequence(), made.is_tensor(), made.data_type()) == (True, False, "seq(tensor(float))")


def test_a_sequence_in_an_ort_value_is_fed(ort):
    """A sequence that one run made goes into the next as it is."""
    made = load(ort, "g (float[2] x) => (seq(float[2]) z) { z = SequenceConstruct (x, x) }")
    read = load(ort, "g (seq(float[2]) x) => (int64[] z) { z = SequenceLength (x) }")
    (sequence,) = made.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))})

    assert int(read.run(None, {"x": sequence})[0]) == 2
    assert int(read.run_with_ort_values(None, {"x": sequence})[0].numpy()) == 2


def test_an_array_is_no_sequence(ort):
    """One array for a sequence is refused, and the input is named."""
    session = load(ort, "g (seq(float[2]) x) => (int64[] z) { z = SequenceLength (x) }")

    with pytest.raises(InvalidArgument, match="'x'"):
        session.run(None, {"x": np.ones((3, 2), np.float32)})


def test_a_sequence_of_another_type_is_refused(ort):
    """Arrays of another type in a list are refused."""
    session = load(ort, "g (seq(float[2]) x) => (int64[] z) { z = SequenceLength (x) }")

    with pytest.raises(RuntimeError):
        session.run(None, {"x": [np.ones(2)]})


def test_maps_come_as_a_list_of_dicts(ort):
    """ZipMap gives one dict per row."""
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    inputs = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])
    session = of_maps(ort, "ZipMap", inputs, helper.make_value_info("z", kind), classlabels_int64s=[10, 20])

    assert session.run(None, {"x": np.float32([[1, 2], [3, 4]])})[0] == [{10: 1, 20: 2}, {10: 3, 20: 4}]
    assert session.get_outputs()[0].type == "seq(map(int64,tensor(float)))"


@pytest.mark.parametrize(
    ("word", "names", "x"),
    [("int64", [1, 2, 3], {1: 5.0, 3: 2.0}), ("string", ["a", "b", "c"], {"a": 5.0, "c": 2.0})],
)
def test_a_dict_is_a_map(ort, word, names, x):
    """A dict goes in, and names that it lacks are 0."""
    key = getattr(TensorProto, word.upper())
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    outputs = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3])
    session = of_maps(
        ort, "DictVectorizer", helper.make_value_info("x", kind), outputs, **{f"{word}_vocabulary": names}
    )

    assert session.get_inputs()[0].type == f"map({word},tensor(float))"
    assert_array_equal(session.run(None, {"x": x})[0], np.float32([[5, 0, 2]]), strict=True)


@pytest.mark.parametrize(("feed", "has"), [({"x": np.ones(2, np.float32)}, True), ({"x": None}, False), ({}, False)])
def test_an_optional_may_be_none_or_left_out(ort, feed, has):
    """An optional input is fed an array, None, or not at all."""
    session = load(ort, "g (optional(float[2]) x) => (bool z) { z = OptionalHasElement (x) }")

    assert session.get_inputs()[0].type == "optional(tensor(float))"
    assert bool(session.run(None, feed)[0]) is has


def test_an_optional_comes_as_none_or_a_value(ort):
    """An optional output is None or what it holds."""
    session = load(ort, "g (optional(seq(float[2])) x) => (optional(seq(float[2])) z) { z = Identity (x) }")

    assert session.run(None, {"x": None}) == [None]
    assert [one.tolist() for one in session.run(None, {"x": [np.float32([1, 2])]})[0]] == [[1, 2]]


def text_of(one):
    """An element of an array of strings as a str."""
    return one if isinstance(one, str) else bytes(one).decode()


@pytest.mark.parametrize("kind", STRINGS)
def test_strings_come_and_go(ort, kind):
    """Strings of any kind go in, and objects of str come out."""
    session = load(ort, "g (string[N, 2] x) => (string[N, 2] z) { z = Identity (x) }")
    x = STRINGS[kind]
    (z,) = session.run(None, {"x": x})

    assert z.dtype == object
    assert z.tolist() == [[text_of(one) for one in row] for row in x]
    assert session.get_inputs()[0].type == "tensor(string)"


def test_lists_of_strings_come_and_go(ort):
    """Nested lists of strings are a tensor too."""
    session = load(ort, "g (string[2, 2] x) => (string[2, 2] z) { z = Identity (x) }")

    assert session.run(None, {"x": [["a", "b"], ["c", "d"]]})[0].tolist() == [["a", "b"], ["c", "d"]]


def test_numbers_are_no_strings(ort):
    """Numbers for strings are refused."""
    session = load(ort, "g (string[2] x) => (string[2] z) { z = Identity (x) }")

    with pytest.raises(InvalidArgument):
        session.run(None, {"x": np.array([1, 2])})


def test_strings_in_ort_values(ort):
    """Strings come out of `run_with_ort_values` and go into the next run."""
    session = load(ort, 'g () => (string[2] z) { z = Constant <value_strings = ["a", "bc"]> () }')
    (words,) = session.run_with_ort_values(None, {})
    copy = load(ort, "g (string[2] x) => (string[2] z) { z = Identity (x) }")

    assert (words.data_type(), words.shape()) == ("tensor(string)", [2])
    assert copy.run(None, {"x": words})[0].tolist() == ["a", "bc"]
    assert copy.run_with_ort_values(None, {"x": words})[0].numpy().tolist() == ["a", "bc"]
