"""Models that unpool does not read, or not alone: in onnxruntime's own format, and with data in the options."""

import pickle

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
from tests.support import models

POOL = "kernel_shape = [2, 2], strides = [2, 2]"
X = models.random(1, 4, 8, 8)
W = models.random(4, 3, 2, 2)


def network():
    """A pool, an unpooling and a ConvTranspose."""
    return models.model(
        f"""g (float[n, 4, 8, 8] x) => (float[n, 3, a, b] z) {{
            y, i = MaxPool <{POOL}> (x)
            u = MaxUnpool <{POOL}> (y, i)
            z = ConvTranspose (u, w)
        }}""",
        w=W,
    )


def assert_same(source, options):
    """Both sessions of a source, each with options of its own, give the same but for rounding."""
    results = [
        class_(source, options()).run(None, {"x": X})[0]
        for class_ in (unpool.InferenceSession, onnxruntime.InferenceSession)
    ]
    np.testing.assert_allclose(*results, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["path", "bytes", "bytes that stay"])
def test_the_format_of_onnxruntime_with_options(tmp_path, kind):
    """A model in onnxruntime's format goes to it without unpool's library, which its kernels are not those of."""
    path, writer = tmp_path / "model.ort", onnxruntime.SessionOptions()
    writer.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(network().SerializeToString(), writer)

    def options():
        made = onnxruntime.SessionOptions()
        if kind == "bytes that stay":
            made.add_session_config_entry("session.use_ort_model_bytes_directly", "1")
        return made

    assert_same(str(path) if kind == "path" else path.read_bytes(), options)


@pytest.fixture
def path(tmp_path):
    """The path of the network, whose weights are in another file."""
    onnx.save(network(), tmp_path / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=0)
    return str(tmp_path / "model.onnx")


CONTENT = [(2 * W).tobytes()]  # onnxruntime does not copy it


def with_file():
    """Options with another content of the data file."""
    options = onnxruntime.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["model.data"], CONTENT, [len(CONTENT[0])])
    return options


def test_a_data_file_in_memory_replaces_that_on_the_disk(path):
    """The weights are those of the options, also the small ones that unpool reads from data files."""
    assert_same(path, with_file)


def test_a_data_file_in_memory_is_not_pickled(path):
    """A session with such options says that it cannot be pickled, as another process has not got the file."""
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(unpool.InferenceSession(path, with_file()))
