"""A later session of the same file reads no model: what is kept, for which arguments, and when it is not used."""

import os
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.support import models
from unpool.onnxruntime import InferenceSession, model_cache, session_model, stored_model

X = models.random(1, 8, 12, 12)
CONV, GROWN = (3, 3), (2, 2)


def network(channels=16, seed=0):
    """A Conv that is converted, with a large weight, and a ConvTranspose; above 4 MiB, weights stay in the file."""
    return models.model(
        """g (float[1, 8, 12, 12] x) => (float[1, 4, 24, 24] z) {
            a = Conv <pads = [1, 1, 1, 1]> (x, v)
            z = ConvTranspose <strides = [2, 2]> (a, w)
        }""",
        v=models.random(channels, 8, *CONV, seed=seed),
        w=models.random(channels, 4, *GROWN, seed=seed),
    )


LARGE = 16_000  # channels


def save(model, path):
    """Write a model to a file, and its path."""
    onnx.save(model, path)
    return path


def expected(model):
    """What onnxruntime computes."""
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})[0]


def assert_right(session, model):
    """The result is that of onnxruntime."""
    right = expected(model)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], right, atol=1e-5 * np.abs(right).max())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache that is on, and empty, and takes files that were just written; Convs are converted, however small."""
    monkeypatch.delenv(model_cache.VARIABLE, raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(model_cache, "_memory", {})
    monkeypatch.setattr(stored_model, "SETTLED", 0)
    monkeypatch.setattr("unpool.passes.convert_conv._pays", lambda *_: True)


@pytest.fixture
def reads(cache, monkeypatch):
    """The sources that are read, one for each session that reads its model."""
    found, read = [], session_model.read
    monkeypatch.setattr(session_model, "read", lambda source, *rest: found.append(source) or read(source, *rest))
    return found


@pytest.mark.parametrize("channels", [16, LARGE], ids=["small", "weights in the file"])
@pytest.mark.parametrize("in_memory", [True, False], ids=["process", "another"])
def test_a_later_session_reads_no_model(reads, tmp_path, monkeypatch, channels, in_memory):
    """In the same process, and in another one; plan and results stay the same."""
    model = network(channels)
    path = save(model, tmp_path / "model.onnx")
    first = InferenceSession(path)
    if not in_memory:
        monkeypatch.setattr(model_cache, "_memory", {})
    second = InferenceSession(path)
    assert len(reads) == 1
    assert list(first.plan) == list(second.plan)
    assert [row.operator for row in second.plan] == ["ConvTranspose", "ConvTranspose"]
    np.testing.assert_array_equal(first.run(None, {"x": X})[0], second.run(None, {"x": X})[0])
    assert_right(second, model)


def test_a_later_process_imports_neither_onnx_nor_the_passes(cache, tmp_path):
    """A model that passes have changed, and one that onnxruntime gets as it is; with SessionOptions, too."""
    plain = models.model("g (float[1, 8, 12, 12] x) => (float[1, 8, 12, 12] z) { z = Neg (x) }")
    for number, model in enumerate((network(), network(LARGE), plain)):
        path = save(model, tmp_path / f"{number}.onnx")
        code = f"""
import sys
from onnxruntime import SessionOptions
from unpool import InferenceSession
from unpool.onnxruntime import stored_model
stored_model.SETTLED = 0
session = InferenceSession({str(path)!r}, SessionOptions() if sys.argv[1:] else None)
print("onnx" in sys.modules, len(session.get_inputs()))
"""
        command = [sys.executable, "-c", code]
        runs = command, command, [*command, "with options"]
        shown = [subprocess.run(each, check=True, capture_output=True, text=True).stdout for each in runs]
        assert shown == ["True 1\n", "False 1\n", "False 1\n"]


OTHER_ARGUMENTS = {
    "exact": {"exact": True},
    "compat": {"compat": "ort"},
    "index_space": {"index_space": "output"},
    "disabled": {"disabled_optimizers": {"convert_conv"}},
}


@pytest.mark.parametrize("words", OTHER_ARGUMENTS.values(), ids=OTHER_ARGUMENTS)
def test_other_arguments_have_an_entry_of_their_own(reads, tmp_path, words):
    """Those on which the passes depend."""
    path = save(network(), tmp_path / "model.onnx")
    for _ in range(2):
        InferenceSession(path)
        InferenceSession(path, **words)
    assert len(reads) == 2


def test_options_are_those_of_the_later_session(reads, tmp_path):
    """Threads and entries; an optimization level that passes depend on has an entry of its own."""
    path = save(network(), tmp_path / "model.onnx")
    InferenceSession(path)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    session = InferenceSession(path, options, threads=3)
    made = session.get_session_options()
    assert made.intra_op_num_threads == 3
    assert made.get_session_config_entry("session.set_denormal_as_zero") == "1"
    assert len(reads) == 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    InferenceSession(path, options)
    assert len(reads) == 2


def test_weights_of_options_count(reads, tmp_path):
    """A session whose options replace a weight reads the model."""
    path = save(network(), tmp_path / "model.onnx")
    InferenceSession(path)
    options = onnxruntime.SessionOptions()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((16, 4, *GROWN), np.float32))
    options.add_initializer("w", value)
    assert not InferenceSession(path, options).run(None, {"x": X})[0].any()
    assert len(reads) == 2


@pytest.mark.parametrize("channels", [16, LARGE], ids=["small", "weights in the file"])
@pytest.mark.parametrize("in_place", [True, False], ids=["written", "replaced"])
def test_a_file_with_other_content_is_read(reads, tmp_path, channels, in_place):
    """Of the same size: its time or its inode tells."""
    path = save(network(channels), tmp_path / "model.onnx")
    InferenceSession(path)
    model = network(channels, seed=1)
    if in_place:
        save(model, path)
    else:
        os.replace(save(model, tmp_path / "other.onnx"), path)
    assert_right(InferenceSession(path), model)
    assert len(reads) == 2


def test_a_file_that_is_moved_is_read(reads, tmp_path):
    """Large weights are no longer where they were."""
    model = network(LARGE)
    path = save(model, tmp_path / "model.onnx")
    InferenceSession(path)
    path = path.rename(tmp_path / "moved.onnx")
    for _ in range(2):
        assert_right(InferenceSession(path), model)
    assert len(reads) == 2


def test_a_file_that_changes_while_its_weights_are_copied_is_read(reads, tmp_path, monkeypatch):
    """What was kept is of another content: the session has all of the new one."""
    path, model = save(network(LARGE), tmp_path / "model.onnx"), network(LARGE, seed=1)
    InferenceSession(path)
    create_with = stored_model.create_with
    monkeypatch.setattr(stored_model, "create_with", lambda *args: save(model, path) and create_with(*args))
    assert_right(InferenceSession(path), model)
    assert len(reads) == 2


def test_a_file_that_was_just_written_is_not_kept(reads, tmp_path, monkeypatch):
    """It could change again without another time."""
    monkeypatch.setattr(stored_model, "SETTLED", 2 * 10**9)
    path = save(network(), tmp_path / "model.onnx")
    for _ in range(2):
        InferenceSession(path)
    assert len(reads) == 2


def test_a_model_with_data_files_is_not_kept(reads, tmp_path):
    """They may change alone."""
    path = models.save_with_external_data(network(), tmp_path)
    for seed in range(2):
        models.save_with_external_data(network(seed=seed), tmp_path)
        assert_right(InferenceSession(path), network(seed=seed))
    assert len(reads) == 2


def test_a_model_that_onnxruntime_refuses_is_not_kept(reads, tmp_path):
    """Errors are the same every time."""
    broken = network()
    broken.graph.node[0].op_type = "Missing"
    path = save(broken, tmp_path / "model.onnx")
    texts = set()
    for _ in range(2):
        with pytest.raises(Exception, match="Missing") as error:
            InferenceSession(path)
        texts.add(str(error.value))
    assert len(texts) == 1


def test_other_providers_are_set(reads, tmp_path):
    """A session that read no model sets its providers again, and is pickled and opened with other threads."""
    model = network()
    path = save(model, tmp_path / "model.onnx")
    InferenceSession(path)
    session = InferenceSession(path)
    session.set_providers(["CPUExecutionProvider"])
    assert len(reads) == 1
    assert_right(session, model)
    assert_right(session.with_threads(1), model)
    assert session.source == str(path)
    assert len(session.prepared_graph().graph.nodes) == 2


def test_memory_is_shared_as_in_the_first_session(reads, tmp_path):
    """Before opset 11, onnxruntime gives an If sizes that one of its branches has: values share no memory."""
    model = models.model(
        """g (float[1, 8, 12, 12] x, bool c) => (float[1, 4, 24, 24] z) {
            a = If (c) <
                then_branch = t () => (float[1, 8, 12, 12] b) { b = Neg (x) },
                else_branch = e () => (float[1, 8, 12, 12] b) { b = Abs (x) }
            >
            z = ConvTranspose <strides = [2, 2]> (a, w)
        }""",
        opset=10,
        w=models.random(8, 4, *GROWN),
    )
    path = save(model, tmp_path / "model.onnx")
    sessions = [InferenceSession(path) for _ in range(2)]
    assert len(reads) == 1
    assert [session.get_session_options().enable_mem_reuse for session in sessions] == [False, False]
