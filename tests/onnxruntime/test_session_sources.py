"""Models that unpool does not read, or not alone: in onnxruntime's own format, and with data in the options."""

import errno
import os
import pickle
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
from tests.support import models
from unpool.onnxruntime import weight_values
from unpool.onnxruntime.register import is_registered
from unpool.onnxruntime.source import as_values, split

X = models.random(1, 4, 8, 8)
W = models.random(4, 3, 2, 2)


def network():
    """A pool, an unpooling and a ConvTranspose."""
    return models.model(
        f"""g (float[n, 4, 8, 8] x) => (float[n, 3, a, b] z) {{
            y, i = MaxPool <{models.POOL}> (x)
            u = MaxUnpool <{models.POOL}> (y, i)
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


def large(size):
    """Matrices of so many rows behind a pool that unpool computes; float32."""
    return models.model(
        f"""g (float[1, 1, 2, {2 * size}] x) => (float[1, 1, 1, n] z) {{
            y, i = MaxPool <{models.POOL}> (x)
            a = MatMul (y, w0)
            b = MatMul (a, w1)
            z = MatMul (b, w2)
        }}""",
        **{f"w{number}": models.random(size, size, seed=number) / size for number in range(3)},
    )


def test_every_way_of_large_weights_gives_the_same(tmp_path, monkeypatch):
    """As values; in a file in memory, where such a file is refused, or is not known; and inside of a written model."""
    onnx.save(large(600), tmp_path / "model.onnx")
    x = models.random(1, 1, 2, 1200)

    def result(options=None):
        session = unpool.InferenceSession(tmp_path / "model.onnx", options)
        assert [row.runner for row in session.plan] == ["unpool"]
        return session.run(None, {"x": x})[0]

    def refuse(_):
        raise OSError(errno.ENOSYS, "refused")

    expected = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x})[0]
    found = [result()]
    monkeypatch.setattr(weight_values, "SMALLEST", 0)
    found.append(result())
    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    found.append(result())
    monkeypatch.delattr(os, "memfd_create")
    found.append(result())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "written.onnx")
    found.append(result(options))
    for array in found:
        np.testing.assert_array_equal(array, expected)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")
@pytest.mark.parametrize("is_parsed_once", [True, False])
def test_what_is_parsed_again_is_in_no_file(monkeypatch, is_parsed_once):
    """With other providers, onnxruntime loads a model again without them, and would find the file empty."""
    monkeypatch.setattr(weight_values, "SMALLEST", 0)
    rest, values = as_values(split(large(600)))
    sources = []
    weight_values.create_with(
        rest, values, onnxruntime.SessionOptions(), lambda source, *_: sources.append(type(source)),
        is_parsed_once=is_parsed_once,
    )  # fmt: skip
    assert sources == [str if is_parsed_once else bytes]


def test_sizes_stay_in_the_model():
    """Integers, which onnxruntime reads while it infers shapes: it refuses those that are elsewhere."""
    model = models.model(
        """g (int64[n] x) => (float[n] y, int64[n] z) { y = Gather (a, x) z = Gather (b, x) }""",
        a=np.zeros(2000, np.float32), b=np.zeros(2000, np.int64),
    )  # fmt: skip
    rest, values = as_values(split(model))
    assert [value.name for value in values] == ["a"]
    assert [tensor.name for tensor in onnx.ModelProto.FromString(rest).graph.initializer] == ["b"]


def test_a_function_that_no_node_calls_needs_no_library():
    """Its operators do not count: the session has a copy of the options, which stay as they were."""
    model = network()
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[1] x) => (float[1] y) { y = Neg (x) }
        <domain: "own", opset_import: ["" : 17, "missing" : 1]> unused (x) => (y) { y = missing.Missing (x) }"""
    other = onnx.parser.parse_model(text)
    model.functions.extend(other.functions)
    model.opset_import.extend(other.opset_import[1:])
    options = onnxruntime.SessionOptions()
    session = unpool.InferenceSession(model, options)
    assert {row.runner for row in session.plan} == {"unpool"}
    assert not is_registered(options)


PEAK = """
import sys, onnxruntime, unpool
from pathlib import Path
unpool.InferenceSession
Path("/proc/self/clear_refs").write_text("5")
words = Path("/proc/self/status").read_text().split()
before = int(words[words.index("VmRSS:") + 1])
class_ = {"unpool": unpool, "onnxruntime": onnxruntime}[sys.argv[1]].InferenceSession
session = class_(sys.argv[2])
words = Path("/proc/self/status").read_text().split()
print(int(words[words.index("VmHWM:") + 1]) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc, and files in memory are Linux's")
def test_loading_takes_the_memory_of_onnxruntime(tmp_path):
    """75 MB of weights are not in memory once more than onnxruntime has them, which is two times and more."""
    onnx.save(large(2500), tmp_path / "model.onnx")

    def peak(engine):
        command = [sys.executable, "-c", PEAK, engine, str(tmp_path / "model.onnx")]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert peak("unpool") < 1.2 * peak("onnxruntime")
