"""Weights that stay in the file of their model: read without a copy of the file, and only those that are as stored."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import unpool
from tests.support import models
from unpool.graph import peek, weights, wire
from unpool.graph.load import load

LARGE = (4, 80, 80)  # 102,400 bytes of float32


@pytest.fixture(autouse=True)
def _small_files_are_large(monkeypatch):
    """A small file would be parsed whole."""
    monkeypatch.setattr("unpool.graph.load.SMALL", peek.LARGE_DATA)


def made(*tensors, inputs=()):
    """A model with these initializers."""
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x, *inputs], [y], list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tensor(name, shape=LARGE, kind=np.float32):
    """Numbers of any kind."""
    return numpy_helper.from_array(np.random.default_rng(len(name)).integers(0, 99, shape).astype(kind), name)


def saved(model, folder):
    """A file of the model, however it is made."""
    path = folder / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def left(path):
    """The model of a file, whose large weights stay there."""
    return load(path, leaves_weights=True, leaves_own_weights=True)


def test_large_weights_stay_in_the_file(tmp_path):
    """Between others, in their order; small ones, and lists of numbers, are part of the model."""
    listed = helper.make_tensor("listed", TensorProto.FLOAT, [200, 200], np.zeros(40000, np.float32))
    original = made(
        tensor("a"), tensor("b", (3,)), tensor("cc", kind=np.int64), listed, tensor("ddd", (99, 999), np.int8)
    )
    model = left(saved(original, tmp_path))

    assert [one.name for one in model.graph.initializer] == ["a", "b", "cc", "listed", "ddd"]
    assert [weights.is_in_model_file(one) for one in model.graph.initializer] == [True, False, True, False, True]
    assert model.ByteSize() < 200_000
    for one, expected in zip(model.graph.initializer, original.graph.initializer, strict=True):
        assert weights.without_folder(one).external_data == expected.external_data
        np.testing.assert_array_equal(weights.array_of(one), numpy_helper.to_array(expected), strict=True)
    assert load(saved(original, tmp_path)) == original


def test_arrays_of_tensors_share_memory_only_where_it_is_read_only(tmp_path):
    """Whether the tensor has its data, or they are in the file of the model or in another one."""
    expected = numpy_helper.to_array(tensor("a"))
    onnx.save(made(tensor("a")), tmp_path / "net.onnx", save_as_external_data=True, location="data")
    inside = load(made(tensor("a")))
    in_model = left(saved(made(tensor("a")), tmp_path))
    elsewhere = left(tmp_path / "net.onnx")
    for model in (inside, in_model, elsewhere):
        (one,) = model.graph.initializer
        assert not weights.array_of(one).flags.writeable
        own = weights.own_array_of(one)
        assert type(own) is np.ndarray
        assert own.flags.owndata
        own += 1
        np.testing.assert_array_equal(own, expected + 1, strict=True)
        np.testing.assert_array_equal(weights.array_of(one), expected, strict=True)


def test_a_file_that_becomes_shorter_while_it_is_read_is_a_value_error(tmp_path):
    """It is read piece by piece, and not mapped: a page beyond its end would end the process."""
    path = saved(made(tensor("a"), tensor("b")), tmp_path)
    with path.open("rb") as file:
        content = peek.FileContent(file)
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(ValueError, match="became shorter"):
            peek.without_weights(content, "model.onnx", ("key", "value"))


def test_a_file_that_ends_within_a_weight_is_refused(tmp_path, monkeypatch):
    """Also where its stamp does not show that it was cut; no array has memory that nothing was read into."""
    path = saved(made(tensor("a")), tmp_path)
    for module in ("load", "data_file"):
        monkeypatch.setattr(f"unpool.graph.{module}.file_stamp", lambda _: "the same")
    (one,) = left(path).graph.initializer
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(unpool.FileError, match=r"tensor 'a' cannot be read: the file is too short\. Leave the file"):
        weights.own_array_of(one)


def test_weights_that_a_caller_may_feed_are_read(tmp_path):
    """Their arrays are defaults, not constants."""
    value = helper.make_tensor_value_info("a", TensorProto.FLOAT, list(LARGE))
    model = left(saved(made(tensor("a"), inputs=[value]), tmp_path))
    (one,) = model.graph.initializer

    assert not one.external_data
    np.testing.assert_array_equal(numpy_helper.to_array(one), numpy_helper.to_array(tensor("a")), strict=True)


@pytest.mark.parametrize("change", ["bytes", "two", "type"])
def test_tensors_that_are_wrong_stay_as_they_are(tmp_path, change):
    """Bytes of another length, two kinds of data, an unknown type: others refuse them, as in a model in memory."""
    wrong = tensor("a")
    if change == "bytes":
        wrong.raw_data = wrong.raw_data[:-4]
    elif change == "two":
        wrong.float_data.append(1)
    else:
        wrong.data_type = 99
    original = made(wrong, tensor("b"))
    model = left(saved(original, tmp_path))

    assert model.graph.initializer[0] == original.graph.initializer[0]
    assert weights.is_in_model_file(model.graph.initializer[1])


def test_long_numbers_and_several_graphs(tmp_path):
    """Lengths may take more bytes than they need; a graph in two parts is parsed as a whole."""
    content = made(tensor("a")).SerializeToString()
    start, begin, end = next(row for number, *row in peek._fields(content, 0, len(content)) if number == 7)
    length = end - begin
    padded = bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14 & 127 | 128, 128, 0])
    longer = content[:start] + b"\x3a" + padded + content[begin:]
    model = left(saved(longer, tmp_path))
    (one,) = model.graph.initializer
    np.testing.assert_array_equal(weights.array_of(one), numpy_helper.to_array(tensor("a")), strict=True)

    part = onnx.GraphProto(initializer=[tensor("b")]).SerializeToString()
    twice = content + wire.as_field(7, part)
    assert len(left(saved(twice, tmp_path)).graph.initializer) == 2
    with pytest.raises(ValueError, match="expected a model of one graph, got 2"):
        peek.without_weights(twice, "model.onnx", ("key", ""))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 1))
def test_changed_bytes_are_a_value_error_or_the_same_model(tmp_path_factory, place, value, end):
    """Whatever a byte is changed to, at the beginning or behind the weights."""
    content = bytearray(made(tensor("a"), tensor("b", (3,))).SerializeToString())
    content[-1 - place % 60 if end else place] = value
    try:
        model = peek.without_weights(bytes(content), "model.onnx", ("key", ""))
    except ValueError:
        return
    expected = onnx.ModelProto.FromString(bytes(content))
    for one, other in zip(model.graph.initializer, expected.graph.initializer, strict=True):
        if one.external_data and one.external_data[-1].key == "key":
            entries = {entry.key: entry.value for entry in one.external_data}
            begin = int(entries["offset"])
            assert other.raw_data == bytes(content[begin : begin + int(entries["length"])])
            assert (one.name, one.dims, one.data_type) == (other.name, other.dims, other.data_type)
        else:
            assert one == other
    del model.graph.initializer[:], expected.graph.initializer[:]
    assert model == expected


def test_sessions_do_not_depend_on_the_file(tmp_path):
    """It can be gone after the session is loaded; results are those of a model in memory."""
    model = models.model(
        """wide (float[1, 40, 8, 8] x) => (float[n, c, h, w] y) {
            r = Relu (x)
            c = ConvTranspose <strides = [2, 2]> (r, w1)
            t = Transpose <perm = [0, 1, 2, 3]> (w2)
            y = Conv (c, t)
        }""",
        w1=models.random(40, 80, 3, 3),
        w2=models.random(40, 80, 3, 3),
    )
    path = saved(model, tmp_path)
    feed = {"x": models.random(1, 40, 8, 8)}
    session = unpool.InferenceSession(path)
    path.unlink()

    for ours, expected in zip(session.run(None, feed), unpool.InferenceSession(model).run(None, feed), strict=True):
        np.testing.assert_array_equal(ours, expected, strict=True)


@pytest.mark.parametrize("change", ["replaced", "shorter", "gone"])
def test_a_file_that_changes_while_it_is_loaded_is_an_error(tmp_path, change):
    """Weights of another model, or of none, are never taken."""
    path = saved(made(tensor("a")), tmp_path)
    (one,) = left(path).graph.initializer
    if change == "replaced":
        other = saved(made(tensor("b")), tmp_path).rename(tmp_path / "other.onnx")
        other.replace(path)
    elif change == "shorter":
        path.write_bytes(path.read_bytes()[:-1000])
    else:
        path.unlink()
    with pytest.raises(unpool.FileError, match=r"model\.onnx: the data of tensor 'a' cannot be read"):
        weights.array_of(one)
