"""A path names the file that the system opens: link/.. is the folder around the link's target, not around the link."""

import pickle

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import unpool
from tests.support import models
from unpool.files.targets import is_same


def net(value, channels=4):
    """A ConvTranspose whose weights all have one value, before a pool with Indices and sizes that are not known."""
    return models.model(
        """net (float[n, c, h, w] x) => (float[a, b, d, e] y, int64[a, b, d, e] i) {
            t = ConvTranspose <strides = [2, 2]> (x, weights)
            y, i = MaxPool <kernel_shape = [2, 2]> (t)
        }""",
        weights=np.full((channels, 3, 5, 5), value, np.float32),
    )


@pytest.fixture
def place(tmp_path):
    """Folders `live` and `old`; old/current is a link to live/sub, so old/current/.. is live."""
    (tmp_path / "live" / "sub").mkdir(parents=True)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "current").symlink_to(tmp_path / "live" / "sub")
    return tmp_path


def save(place, channels=4, **given):
    """Another model in each folder; the path over the link to the one in `live`."""
    for folder, value in (("live", 1), ("old", 5)):
        onnx.save(net(value, channels), str(place / folder / "m.onnx"), **given)
    return str(place / "old" / "current" / ".." / "m.onnx")


def pickled(path):
    return pickle.loads(pickle.dumps(unpool.InferenceSession(path)))


def with_other_providers(path):
    session = unpool.InferenceSession(path)
    session.set_providers(["CPUExecutionProvider"])
    return session


EXTERNAL = {"save_as_external_data": True, "location": "m.bin", "size_threshold": 0}


@pytest.mark.parametrize("make", [unpool.InferenceSession, pickled, with_other_providers])
@pytest.mark.parametrize("given", [{}, {"channels": 512}, EXTERNAL])
def test_a_path_over_a_link_and_back_is_the_file_that_is_opened(place, make, given):
    """Its weights too, small or large in the file, or in another file next to it, as in onnxruntime."""
    path = save(place, **given)
    x = np.ones((1, given.get("channels", 4), 8, 8), np.float32)
    (expected,) = onnxruntime.InferenceSession(path).run(["y"], {"x": x})
    (got,) = make(path).run(["y"], {"x": x})
    assert got.max() == expected.max()


def test_the_name_of_a_data_file_may_go_over_a_link_and_back(place):
    """Inside the folder of the model: sub/link/.. is the folder around the link's target."""
    live = place / "live"
    (live / "sub" / "deep").mkdir()
    (live / "link").symlink_to(live / "sub" / "deep")
    save(place, **EXTERNAL)
    (live / "sub" / "m.bin").write_bytes(np.full((4, 3, 5, 5), 7, np.float32).tobytes())
    model = onnx.load(live / "m.onnx", load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "link/../m.bin"
    (live / "m.onnx").write_bytes(model.SerializeToString())
    x = np.ones((1, 4, 8, 8), np.float32)
    (expected,) = onnxruntime.InferenceSession(str(live / "m.onnx")).run(["y"], {"x": x})
    (got,) = unpool.InferenceSession(live / "m.onnx").run(["y"], {"x": x})
    assert got.max() == expected.max()
    assert numpy_helper.to_array(net(7).graph.initializer[0]).max() == 7


def test_files_to_be_written_are_the_same_where_the_system_says_so(place):
    """Over a link and back, also before the file exists."""
    over_the_link = place / "old" / "current" / ".." / "new.npy"
    assert is_same(over_the_link, place / "live" / "new.npy")
    assert not is_same(over_the_link, place / "old" / "new.npy")
