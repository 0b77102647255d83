"""External data behind links: read where onnxruntime reads them, and nowhere else, however large the tensors are."""

import os
import pickle
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import unpool
from tests.support import models
from unpool.graph.data_file import FOLDERS_ENTRY, DataFile, find_data_file
from unpool.graph.load import load

OUTSIDE = "External data path validation failed"
SIZES = {"small": 3, "large": 40}
"""Rows of a square matrix: a small one is read into the model, a large one stays in its file."""


@pytest.fixture(params=SIZES)
def write(request, tmp_path):
    """Writes a model, whose matrix is called `location`, and the matrix; links lead to them, if that is asked for."""
    size = SIZES[request.param]
    matrix = np.arange(size * size, dtype=np.float32).reshape(size, size)

    def write(model_file, data_file, location="data.bin", **links):
        model = models.model(
            f"""g (float[1, {size}, {size}] x) => (float[1, a, b] z) {{
                y = MatMul (x, w)
                z = MaxPool <kernel_shape = [1], strides = [1]> (y)
            }}""",
            w=matrix,
        )
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location.format(folder=tmp_path))
        for name in (model_file, data_file, *links):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / model_file).write_bytes(model.SerializeToString())
        (tmp_path / data_file).write_bytes(matrix.tobytes())
        for name, target in links.items():
            os.symlink(target, tmp_path / name)
        return matrix

    return write


def product(source, size, options=None):
    """What a session multiplies the identity with; nothing falls back to another runner."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = unpool.InferenceSession(source, options)
    return session.run(None, {"x": np.eye(size, dtype=np.float32)[None]})[0][0]


INSIDE = {
    "the cache of the Hugging Face hub": (
        ("blobs/g1", "blobs/g2"),
        {"s/v/model.onnx": "../../blobs/g1", "s/v/data.bin": "../../blobs/g2"},
    ),
    "a folder below the real model": (
        ("blobs/g1", "blobs/below/g2"),
        {"s/model.onnx": "../blobs/g1", "s/data.bin": "../blobs/below/g2"},
    ),
    "a link in the folder": (("s/model.onnx", "s/below/d"), {"s/data.bin": "below/d"}),
    "data beside a linked model": (("real/m", "s/data.bin"), {"s/model.onnx": "../real/m"}),
    "a linked folder": (("real/model.onnx", "real/data.bin"), {"s": "real"}),
}
LEAVING = {
    "a link": (("s/model.onnx", "out"), {"s/data.bin": "../out"}),
    "a link to beside the real folder": (
        ("blobs/g1", "blobs2/g2"),
        {"s/model.onnx": "../blobs/g1", "s/data.bin": "../blobs2/g2"},
    ),
}


@pytest.mark.parametrize("layout", INSIDE)
def test_links_that_stay_inside_are_followed(layout, write, tmp_path):
    """Data lie in the folder of the model, or of the file that it is a link to: as for onnxruntime."""
    files, links = INSIDE[layout]
    matrix = write(*files, **links)
    path = next(each for each in (tmp_path / "s/v/model.onnx", tmp_path / "s/model.onnx") if each.exists())

    assert np.array_equal(product(path, len(matrix)), matrix)
    assert onnxruntime.InferenceSession(path).get_inputs()
    assert np.array_equal(onnx.numpy_helper.to_array(load(path).graph.initializer[0]), matrix)


@pytest.mark.parametrize("layout", LEAVING)
def test_links_that_lead_out_are_refused(layout, write, tmp_path):
    """In one error with the words of onnxruntime, whose class it has too."""
    files, links = LEAVING[layout]
    write(*files, **links)
    for engine in (onnxruntime, unpool):
        with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match=OUTSIDE):
            engine.InferenceSession(tmp_path / "s/model.onnx")
    with pytest.raises(unpool.FileError, match=f"{OUTSIDE}.*is a link to .*{FOLDERS_ENTRY}"):
        load(tmp_path / "s/model.onnx")


@pytest.mark.parametrize("location", ["../out", "below/../../out", "{folder}/out"])
def test_names_that_lead_out_are_refused(location, write, tmp_path):
    """A name that goes up or begins at the root is no name of a file beside the model, wherever it leads."""
    write("s/model.onnx", "out", location)
    (tmp_path / "s/inner").write_bytes((tmp_path / "out").read_bytes())
    with pytest.raises(unpool.FileError, match=f"{OUTSIDE}: the name leaves the folder"):
        unpool.InferenceSession(tmp_path / "s/model.onnx")


def test_a_caller_may_name_further_folders(write, tmp_path):
    """Links may lead into the folders of the session config entry, in pickled sessions too; names still may not."""
    matrix = write("s/model.onnx", "cache/ab/g2", **{"s/data.bin": "../cache/ab/g2"})
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(FOLDERS_ENTRY, os.pathsep.join([str(tmp_path / "none"), str(tmp_path / "cache")]))
    session = unpool.InferenceSession(tmp_path / "s/model.onnx", options)
    feed = {"x": np.eye(len(matrix), dtype=np.float32)[None]}

    assert np.array_equal(pickle.loads(pickle.dumps(session)).run(None, feed)[0][0], matrix)
    write("s/model.onnx", "cache/ab/g2", "../cache/ab/g2")
    with pytest.raises(unpool.FileError, match=OUTSIDE):
        unpool.InferenceSession(tmp_path / "s/model.onnx", options)


def test_data_of_bytes_follow_the_same_rule(write, tmp_path):
    """Where an entry names the folder of the data of bytes, links may not leave that one."""
    matrix = write("s/model.onnx", "s/below/d", **{"s/data.bin": "below/d"})
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path / "s"))
    content = (tmp_path / "s/model.onnx").read_bytes()

    assert np.array_equal(product(content, len(matrix), options), matrix)
    (tmp_path / "s/below/d").rename(tmp_path / "out")
    (tmp_path / "s/data.bin").unlink()
    (tmp_path / "s/data.bin").symlink_to("../out")
    with pytest.raises(unpool.FileError, match=OUTSIDE):
        unpool.InferenceSession(content, options)


@pytest.mark.parametrize("part", ["data.bin", "below"])
def test_a_link_that_comes_later_is_not_followed(part, tmp_path):
    """A file is opened part by part of its resolved name: what replaced one meanwhile is refused."""
    (tmp_path / "s/below").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for folder in ("s/below", "other"):
        (tmp_path / folder / "data.bin").write_bytes(b"0123")
    file = find_data_file(tmp_path / "s/model.onnx", "below/data.bin")
    with file.open() as stream:
        assert stream.read() == b"0123"
    replaced, target = (tmp_path / "s/below", "other") if part == "below" else (tmp_path / file.path, "other/data.bin")
    replaced.rename(tmp_path / "before")
    replaced.symlink_to(tmp_path / target)

    with pytest.raises(OSError, match=r"symbolic link|Not a directory|link"):
        file.open()


def test_mapped_weights_are_not_read_through_a_later_link(tmp_path):
    """Weights that stay in their file are opened as carefully each time."""
    path = models.save_with_external_data(models.model("g (float[2000] x) => (float[2000] y) { y = Add (x, w) }",
                                                       w=models.random(2000)), tmp_path)  # fmt: skip
    model = load(path, leaves_weights=True)
    (data,) = set(tmp_path.iterdir()) - {path}
    data.rename(tmp_path / "before")
    data.symlink_to("before")

    with pytest.raises(unpool.FileError, match="Leave the file where it was"):
        unpool.graph.weights.array_of(model.graph.initializer[0])


def test_a_pipe_is_no_data_file(tmp_path):
    """It is refused at once, for nobody writes to it."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        DataFile(str(tmp_path), "pipe").open()


@pytest.mark.filterwarnings("ignore:Ignoring unknown external data key")
@pytest.mark.parametrize("source", [bytes, onnx.ModelProto.FromString])
def test_a_model_cannot_say_that_its_data_stay_elsewhere(source, tmp_path):
    """The entry that notes the folder of mapped weights is known to this process alone."""
    model = models.model("g (float[2000] x) => (float[2000] y) { y = Add (x, w) }", w=models.random(2000))
    tensor = model.graph.initializer[0]
    (tmp_path / "data").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "data"), ("unpool.folder", str(tmp_path))):
        tensor.external_data.add(key=key, value=value)

    with pytest.raises(unpool.UnpoolError, match="external data"):
        unpool.InferenceSession(source(model.SerializeToString()), providers=["CPUExecutionProvider"])
