"""onnxruntime gets a whole model where unpool would save less time than the cuts cost."""

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
from tests.support import models
from unpool.execute import autotune
from unpool.kernels.cpu.machine import measurements
from unpool.kernels.cpu.machine.checked_files import CheckedFiles
from unpool.runtime.backends import build
from unpool.runtime.backends.ort_backend import RefusedError
from unpool.runtime.graph import peek
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.plan import plan as planning
from unpool.runtime.session import autotune as session_autotune
from unpool.runtime.session.autotune import UNPOOL, USUAL
from unpool.runtime.session.executor import load_as_session
from unpool.runtime.session.passthrough import OrtModel
from unpool.runtime.session.session import FallbackWarning

CONV = "c = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu (c)"
UP = "kernel_shape = [2, 2], strides = [2, 2]"


def encoder_decoder(channels=64, size="64, 64", up=UP, kind="float", batch="1", middle="", window=2, opset=17):
    """A Conv and a ConvTranspose with as many channels; the Conv takes most of the time where the window is small."""
    dtype = {"float": np.float32, "double": np.float64}[kind]
    graph = f"""net ({kind}[{batch}, {channels}, {size}] x) => ({kind}[n, m, h, v] y) {{
        {CONV if kind == "float" else "r = Relu (x)"} {middle or "t = Identity (r)"} y = ConvTranspose <{up}> (t, u)
    }}"""
    weights = models.random(channels, channels, 3, 3, dtype=dtype) / channels
    return models.model(graph, opset=opset, w=weights, u=models.random(channels, 4, window, window, dtype=dtype))


def runners(session):
    """Who runs each ConvTranspose."""
    return [row.runner for row in session.plan if row.operator == "ConvTranspose"]


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_a_small_conv_transpose_leaves_the_model_whole(threads):
    """One session of onnxruntime runs it with its own results, and as many threads as the caller allows."""
    model, x = encoder_decoder(), models.random(1, 64, 64, 64)
    session = unpool.InferenceSession(model.SerializeToString(), threads=threads)
    assert isinstance(session._model, OrtModel)
    assert session.get_session_options().intra_op_num_threads == (threads or 0)
    (row,) = [row for row in session.plan if row.operator == "ConvTranspose"]
    assert (row.runner, row.reason) == ("onnxruntime", "unpool would save less time than it costs to leave onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    np.testing.assert_array_equal(session.run(None, {"x": x}), expected)


def test_a_large_conv_transpose_is_worth_the_cut():
    """Windows of 8 in strides of 2 take most of the time, and Winograd's algorithm saves more than half of it."""
    model = encoder_decoder(up="kernel_shape = [8, 8], strides = [2, 2]", window=8)
    session = unpool.InferenceSession(model)
    assert runners(session) == ["unpool"]


def test_the_activation_is_a_node_again_where_onnxruntime_runs_the_conv_transpose():
    """The passes that fuse it are not needed then."""
    model = encoder_decoder()
    model.graph.node[-1].output[0] = "before"
    model.graph.node.extend(models.model("g (float[1] before) => (float[1] y) { y = Relu (before) }").graph.node)
    session = unpool.InferenceSession(model)
    assert [row.operator for row in session.plan] == ["Conv", "Relu", "Identity", "ConvTranspose", "Relu"]
    assert {row.runner for row in session.plan} == {"onnxruntime"}


OTHERWISE = {
    "float64, which onnxruntime lacks": {"kind": "double"},
    "SAME": {"up": 'auto_pad = "SAME_UPPER", strides = [2, 2]'},
    "an output shape": {"up": "output_shape = [128, 128], strides = [2, 2]"},
    "an output padding of the stride": {"up": f"{UP}, dilations = [3, 3], output_padding = [2, 2]"},
    "indices": {"middle": f"p, i = MaxPool <{models.POOL}> (r) t = MaxUnpool <{models.POOL}> (p, i)"},
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_onnxruntime_may_compute_otherwise_is_unpool_s(name):
    """Time does not count there."""
    assert runners(unpool.InferenceSession(encoder_decoder(**OTHERWISE[name]))) == ["unpool"]


def test_a_small_model_is_unpool_s():
    """In a fraction of a millisecond products are not what takes the time."""
    assert runners(unpool.InferenceSession(encoder_decoder(channels=4, size="8, 8"))) == ["unpool"]


@pytest.mark.parametrize("size", ["height, width", "64, width"])
def test_sizes_that_are_not_known_are_assumed(size):
    """A picture of the usual size decides; a model of any size runs whole, too."""
    session = unpool.InferenceSession(encoder_decoder(size=size, batch="n"))
    assert runners(session) == ["onnxruntime"]
    assert session.run(None, {"x": models.random(2, 64, 64, 10)})[0].shape == (2, 4, 128, 20)
    large = encoder_decoder(size=size, up="kernel_shape = [8, 8], strides = [2, 2]", window=8)
    assert runners(unpool.InferenceSession(large)) == ["unpool"]


def test_exact_and_unoptimized_sessions_do_not_estimate():
    """They compute as written, or leave the model as it is."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for session in (
        unpool.InferenceSession(encoder_decoder(), exact=True),
        unpool.InferenceSession(encoder_decoder(), options),
    ):
        assert runners(session) == ["unpool"]


def test_a_trial_times_unpool_where_the_estimate_leaves_the_model_to_onnxruntime(monkeypatch):
    """The faster one stays; the usual one has not to be timed against itself."""
    timed = []

    def time_calls(calls, *_):
        timed.extend([tuple(calls)] if USUAL in calls else [])
        return {name: float(name != UNPOOL) for name in calls}

    monkeypatch.setattr(autotune, "time_calls", time_calls)
    monkeypatch.setattr(autotune, "find_result", lambda key: None)
    monkeypatch.setattr(autotune, "store_result", lambda *_: None)
    monkeypatch.setattr(session_autotune, "is_installed", lambda: False)
    session = unpool.InferenceSession(encoder_decoder().SerializeToString(), tune=True)
    assert runners(session) == ["unpool"]
    unpool.InferenceSession(encoder_decoder(up="kernel_shape = [8, 8], strides = [2, 2]", window=8), tune=True)
    assert timed == [(USUAL, UNPOOL)]


def test_a_tuned_session_of_dynamic_sizes_is_the_usual_one(monkeypatch):
    """Nothing can be timed before sizes are known."""
    monkeypatch.setattr(autotune, "find_result", lambda key: None)
    session = unpool.InferenceSession(encoder_decoder(size="height, width").SerializeToString(), tune=True)
    assert runners(session) == ["onnxruntime"]


def test_a_comparison_of_runtimes_runs_unpool_s_own():
    """Its results would else be onnxruntime's on both sides."""
    executor = load_as_session(encoder_decoder(), Semantics())
    assert [row.runner for row in executor.plan if row.operator == "ConvTranspose"] == ["unpool"]


def test_a_call_that_is_wrong_is_refused_by_unpool():
    """Its error names the node and what to change; so is a model that has no other node."""
    wrong = encoder_decoder()
    wrong.graph.node[-1].attribute[0].ints[:] = [3, 3]
    with pytest.raises(unpool.UnpoolError, match=r"ConvTranspose.*kernel_shape"):
        unpool.InferenceSession(wrong).run(None, {"x": models.random(1, 64, 64, 64)})
    text = "net (float[n, 64, 64, 64] t) => (float[n, m, h, v] y) { y = ConvTranspose <strides = [2, 2]> (t, u) }"
    only = models.model(text, u=models.random(64, 4, 2, 2))
    assert runners(unpool.InferenceSession(only)) == ["unpool"]


SLOW_MISH = "t = Mish (r)"  # which a pass replaces, so that the model is planned


def test_a_conv_transpose_that_is_left_is_planned_once(monkeypatch):
    """No copy of its weights is made, and no second plan."""
    planned, original = [], planning.make_plan
    monkeypatch.setattr(planning, "make_plan", lambda *given, **words: planned.append(1) or original(*given, **words))
    monkeypatch.setattr(build, "as_own_weights", lambda _: pytest.fail("unpool computes no ConvTranspose"))
    session = unpool.InferenceSession(encoder_decoder(middle=SLOW_MISH, opset=18))
    assert (runners(session), len(planned)) == (["onnxruntime"], 1)


def test_a_conv_transpose_that_onnxruntime_refuses_is_unpools(monkeypatch):
    """Also one that was left to onnxruntime at first."""

    def refuse(*_):
        raise RefusedError("it refuses everything", may_be_invalid=False)

    model, x = encoder_decoder(middle=SLOW_MISH, opset=18), models.random(1, 64, 64, 64)
    (expected,) = unpool.InferenceSession(model).run(None, {"x": x})
    monkeypatch.setattr(build, "OrtPartition", refuse)
    with pytest.warns(FallbackWarning, match="Conv"):
        session = unpool.InferenceSession(model)
    assert runners(session) == ["unpool"]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def plans(monkeypatch, tmp_path):
    """The number of models that are planned; nothing is stored yet."""
    counted, original = [], session_autotune.prepare

    def prepare(*arguments):
        counted.append(1)
        return original(*arguments)

    monkeypatch.setattr(session_autotune, "prepare", prepare)
    monkeypatch.setattr(measurements, "_files", lambda: CheckedFiles("results", "these sources", folders=[tmp_path]))
    return counted


def test_a_whole_model_is_planned_once(plans, tmp_path):
    """Another session of the same file needs no plan, unless its arguments or the file are others."""
    path = tmp_path / "net.onnx"
    model = encoder_decoder()
    path.write_bytes(model.SerializeToString())
    x, results = models.random(1, 64, 64, 64), []
    for words in ({}, {}, {"threads": 1}, {"exact": True}, {"exact": True}):
        session = unpool.InferenceSession(path, **words)
        assert runners(session) == (["unpool"] if "exact" in words else ["onnxruntime"])
        results.append((len(plans), session.run(None, {"x": x})[0]))
    assert [count for count, _ in results] == [1, 1, 2, 3, 4]
    np.testing.assert_array_equal(results[0][1], results[1][1])

    model.graph.node[0].name = "another"
    path.write_bytes(model.SerializeToString())
    unpool.InferenceSession(path)
    assert len(plans) == 5
    unpool.InferenceSession(model)  # no file
    unpool.InferenceSession(model)
    assert len(plans) == 7


def test_a_plan_does_not_depend_on_large_weights(tmp_path):
    """They are not read for the digest of a model; anything else is."""
    model = encoder_decoder()
    large = model.graph.initializer[0]
    small = onnx.numpy_helper.from_array(np.int64([1, 2, 3]), "sizes")
    table = onnx.numpy_helper.from_array(np.arange(peek.LARGE_DATA), "table")
    model.graph.initializer.extend([small, table])
    assert len(large.raw_data) >= peek.LARGE_DATA
    content = model.SerializeToString()
    digest = peek.digest_without_weights(content)
    assert digest is not None

    def changed(tensor):
        place = content.index(tensor.raw_data) + len(tensor.raw_data) - 1
        return peek.digest_without_weights(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])

    assert changed(large) == digest
    assert changed(small) not in (None, digest)
    assert changed(table) not in (None, digest)
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="data", size_threshold=0)
    assert peek.digest_without_weights((tmp_path / "net.onnx").read_bytes()) is None
    with pytest.raises(ValueError, match="protobuf"):
        peek.digest_without_weights(b"no model")
