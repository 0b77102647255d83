"""Weights in a file beside the model stay there: onnxruntime, passes and our nodes read them."""

import os

import numpy as np
import pytest
from onnx import numpy_helper

import unpool
from tests.support import models
from tests.support.command import invoke
from unpool.cli.errors import OK
from unpool.graph import load as graph_load
from unpool.graph import save, weights
from unpool.graph.data_file import DataReader
from unpool.graph.load import load

SHAPE = (40, 40, 3, 3)


def net():
    """A Conv, a pool and a ConvTranspose with a normalization, whose weights are large."""
    return models.model(
        f"""net (float[1, 40, 8, 8] x) => (float[1, 40, 8, 8] y, float[40, 40, 3, 3] w, float[n] z) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            p, i = MaxPool <{models.POOL}> (c)
            u = MaxUnpool <{models.POOL}> (p, i)
            t = ConvTranspose <pads = [1, 1, 1, 1]> (u, w2)
            n = BatchNormalization (t, ns, nb, nm, nv)
            y = Add (n, c)
            w = Identity (w1)
            z = Concat <axis = 0> (h, h)
        }}""",
        w1=models.random(*SHAPE),
        w2=models.random(*SHAPE, seed=1),
        h=models.random(2000),
        **models.batch_norm("n", 40),
    )


@pytest.fixture
def path(tmp_path):
    """The net in a file, with its weights in another one."""
    return models.save_with_external_data(net(), tmp_path)


def test_results_are_those_of_a_model_with_its_weights_inside(path):
    """Every reader of weights, onnxruntime, passes, our nodes and the caller, gets the same."""
    feed = {"x": models.random(1, 40, 8, 8)}
    got, expected = (unpool.InferenceSession(one).run(None, feed) for one in (path, net()))
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_a_tensor_in_a_file_is_read_when_somebody_asks(path):
    """It is left out of the model, and its elements stay what they were if the file is cut off afterwards."""
    model = load(path, leaves_weights=True)
    by_name = {one.name: one for one in model.graph.initializer}
    expected = {one.name: numpy_helper.to_array(one) for one in net().graph.initializer}
    assert {name for name, one in by_name.items() if weights.folder_of(one)} == {"w1", "w2", "h"}
    for name, tensor in by_name.items():
        np.testing.assert_array_equal(weights.array_of(tensor), expected[name], strict=True)
        inside = weights.with_data_inside(tensor)
        assert not inside.external_data
        np.testing.assert_array_equal(numpy_helper.to_array(inside), expected[name], strict=True)
    assert [one.key for one in weights.without_folder(by_name["w1"]).external_data] == ["location", "offset", "length"]
    array = weights.array_of(by_name["w1"])
    os.truncate(os.path.join(path.parent, weights.external_data_of(by_name["w1"]).location), 0)
    np.testing.assert_array_equal(array, expected["w1"])  # a mapped file would end the process here


def test_others_get_all_tensors(path):
    """Whoever does not ask for weights in files gets a model that has them."""
    assert not any(one.external_data for one in load(path).graph.initializer)


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int8, np.bool_])
def test_every_type_is_read_as_it_is_stored(kind, tmp_path):
    """Elements of any size, and booleans."""
    table = models.random(3, 500).astype(kind)
    word = {"float64": "double", "float32": "float"}.get(np.dtype(kind).name, np.dtype(kind).name)
    model = models.model(f"g (int64[k] i) => ({word}[k, 500] y) {{ y = Gather (t, i) }}", t=table)
    session = unpool.InferenceSession(models.save_with_external_data(model, tmp_path))
    np.testing.assert_array_equal(session.run(None, {"i": np.array([2, 0])})[0], table[[2, 0]], strict=True)


def test_a_file_that_is_gone_is_named(path):
    """Weights that are read after their file went."""
    model = load(path, leaves_weights=True)
    (tensor,) = [one for one in model.graph.initializer if one.name == "w1"]
    (path.parent / "weights.bin").unlink()
    with pytest.raises(unpool.FileError, match=r"weights.bin: the data of tensor 'w1' cannot be read"):
        weights.array_of(tensor)


def test_weights_of_refused_nodes_come_from_the_file(tmp_path):
    """The evaluator gets what it cannot map itself."""
    model, stored = (
        models.model(
            "d (double[1, 40, 8, 8] x) => (double[1, 40, 8, 8] y) { y = Conv <pads = [1, 1, 1, 1]> (x, w) }",
            w=models.random(*SHAPE, dtype=np.float64),
        )
        for _ in range(2)
    )
    feed = {"x": models.random(1, 40, 8, 8, dtype=np.float64)}
    path = models.save_with_external_data(stored, tmp_path)
    with pytest.warns(UserWarning, match="Conv"):
        got, expected = (unpool.InferenceSession(one).run(None, feed)[0] for one in (path, model))
    np.testing.assert_array_equal(got, expected)


COMMANDS = (("upgrade", "--opset", "22"), ("canonicalise",), ("fix",), ("lower", "--for", "any"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_leave_weights_too_large_for_a_message_in_files(path, tmp_path, monkeypatch, command):
    """They are copied from file to file, fed to the runtimes that check the new model, and never part of a model."""

    def refused(tensor):
        raise AssertionError(tensor.name)

    monkeypatch.setattr(graph_load, "MOST_STORED", 1000)
    monkeypatch.setattr(weights, "with_data_inside", refused)
    output, feed = tmp_path / "new.onnx", {"x": models.random(1, 40, 8, 8)}
    done = invoke(command[0], path, *command[1:], "-o", output)
    assert done.exit_code == OK, done.output
    assert output.stat().st_size < 20_000
    assert weights.FOLDER_KEY.encode() not in output.read_bytes()
    before, after = (unpool.InferenceSession(one).run(None, feed) for one in (path, output))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-4 * np.abs(one).max())


def test_compare_feeds_weights_too_large_for_a_message(path, monkeypatch):
    """Runtimes that take models as bytes get them as inputs, and agree."""
    monkeypatch.setattr(graph_load, "MOST_STORED", 1000)
    done = unpool.compare(path, against=["onnxruntime", "reference"])
    assert not done.differs
    assert not any(report.unsupported for report in done.reports)


def test_a_file_that_became_shorter_is_noticed(path, tmp_path):
    """Its bytes are counted while they are copied."""
    tensor = next(one for one in load(path, leaves_weights=True).graph.initializer if weights.folder_of(one))
    data = tmp_path / weights.ExternalDataInfo(weights.without_folder(tensor)).location
    data.write_bytes(data.read_bytes()[:100])
    with DataReader() as reader, pytest.raises(unpool.errors.FileError, match="Leave the file where it was"):
        list(reader.chunks(weights.data_range(tensor)))


REWRITES = {
    "fix": lambda source: unpool.fix(source).model,
    "lower": lambda source: unpool.lower(source, "openvino").model,
}


def planar():
    """A net with large weights, and indices that count inside planes, which `fix` repairs."""
    return models.model(
        f"""net (float[1, 40, 8, 8] x) => (float[1, 40, 8, 8] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            p, whole = MaxPool <{models.POOL}> (c)
            i = Mod (whole, plane)
            u = MaxUnpool <{models.POOL}> (p, i)
            y = ConvTranspose <pads = [1, 1, 1, 1]> (u, w2)
        }}""",
        plane=np.int64([64]),
        w1=models.random(*SHAPE),
        w2=models.random(*SHAPE, seed=1),
    )


def contents(model):
    """The nodes of a model, and the bytes of its initializers by name."""
    arrays = {one.name: numpy_helper.to_array(one).tobytes() for one in model.graph.initializer}
    return [str(node) for node in model.graph.node], arrays


@pytest.mark.parametrize("rewrite", REWRITES)
@pytest.mark.parametrize("kind", ["proto", "bytes", "path"])
def test_rewrites_copy_no_large_weights(rewrite, kind, tmp_path, monkeypatch):
    """While a model is rewritten and verified, its large weights are in a file: no message that is made has them.

    The new model has them inside, as without a file; the first one is as it was, and the temporary file is gone.
    """
    made = planar() if rewrite == "fix" else net()
    before = made.SerializeToString(deterministic=True)
    expected = contents(REWRITES[rewrite](made))
    source = {
        "proto": made,
        "bytes": before,
        "path": models.save_with_external_data(made, tmp_path) if kind == "path" else None,
    }[kind]
    monkeypatch.setattr(save, "MIN_SPILLED_BYTES", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    lengths, content_of = [], weights.try_serialize

    def noted(model):
        content = content_of(model)
        lengths.append(len(content))
        return content

    monkeypatch.setattr(weights, "try_serialize", noted)
    assert contents(REWRITES[rewrite](source)) == expected
    assert lengths
    assert max(lengths) < 4 * np.prod(SHAPE)
    assert made.SerializeToString(deterministic=True) == before or kind == "path"
    assert list((tmp_path / "temporary").iterdir()) == []


def test_weights_that_a_caller_keeps_in_files_stay_there(path, monkeypatch):
    """The command hands over a model whose weights are in files, and writes them into files again."""
    monkeypatch.setattr(save, "MIN_SPILLED_BYTES", 1)
    model = graph_load.load_for_command(path, 1)
    made = unpool.lower(model, "openvino").model
    assert {one.name for one in made.graph.initializer if weights.folder_of(one) is not None} >= {"w1", "w2"}
