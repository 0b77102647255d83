"""With `tune` a session is the whole model in OpenVINO where that is faster, and remembers it."""

import logging
import pickle
import sys
from functools import partial

import numpy as np
import onnxruntime
import pytest

import unpool
from tests.support import models
from unpool.execute import autotune
from unpool.kernels.cpu.machine import host, measurements
from unpool.kernels.cpu.machine.checked_files import CheckedFiles
from unpool.onnxruntime import InferenceSession

pytest.importorskip("openvino", reason="the candidate beside onnxruntime, an extra")

X = models.random(1, 3, 12, 10)


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """The seconds of each candidate, whatever the machine does; the number of trials; nothing is stored yet."""
    times, trials = {"onnxruntime": 1.0, "openvino": 0.5}, []

    def time_calls(calls, *_):
        trials.append(tuple(calls))
        for call in calls.values():
            call()
        return times

    monkeypatch.setattr(autotune, "time_calls", time_calls)
    monkeypatch.setattr(measurements, "_files", lambda: CheckedFiles("results", "these sources", folders=[tmp_path]))
    return times, trials


def runners(session):
    """Who computes the nodes of the plan."""
    return {row.runner for row in session.plan}


def test_the_faster_one_is_taken_and_computes_the_same(clock):
    """SegNet is one node, and its inputs and outputs stay."""
    tuned, plain = InferenceSession(models.segnet(), tune=True), InferenceSession(models.segnet())
    assert (runners(tuned), runners(plain)) == ({"openvino"}, {"unpool"})
    assert [str(value) for value in tuned.get_inputs()] == [str(value) for value in plain.get_inputs()]
    assert [value.name for value in tuned.get_outputs()] == [value.name for value in plain.get_outputs()]
    (found,), (expected,) = (session.run(None, {"image": X}) for session in (tuned, plain))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_the_slower_one_is_not_taken(clock):
    """Nor one that is faster by less than the noise."""
    clock[0]["openvino"] = 0.98
    assert runners(InferenceSession(models.segnet(), tune=True)) == {"unpool"}


@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_a_later_session_finds_the_choice(clock, seconds):
    """Without a trial, even without time; a session without tune stays as it is."""
    times, trials = clock
    times["openvino"] = seconds
    first = InferenceSession(models.segnet(), tune=True)
    assert runners(InferenceSession(models.segnet(), tune=1e-9)) == runners(first)
    assert len(trials) == 1
    assert runners(InferenceSession(models.segnet())) == {"unpool"}


def test_sizes_may_come_from_the_options(clock, recwarn):
    """Without sizes there is a warning, and no trial."""
    model = models.segnet(size="h, w")
    with pytest.warns(UserWarning, match="tune has no effect.* Pass inputs as for `run`: tune={'image': ...}"):
        assert runners(InferenceSession(model, tune=True)) == {"unpool"}
    options = onnxruntime.SessionOptions()
    options.add_free_dimension_override_by_name("h", 12)
    options.add_free_dimension_override_by_name("w", 10)
    session = InferenceSession(model, options, tune=True)
    assert runners(session) == {"openvino"}
    assert session.get_inputs()[0].shape == [1, 3, 12, 10]


def test_inputs_to_tune_on_may_have_sizes_that_the_model_leaves_open(clock):
    """Later runs may have other sizes, which need no memory of the caller."""
    model = models.model(
        """g (float[n, 3, h, w] x) => (float[n, 2, p, q] y, float[3] z) {
            c = Conv <pads = [1, 1, 1, 1]> (x, k)
            y = Relu (c)
            z = ReduceMean <axes = [0, 2, 3], keepdims = 0> (x) }""",
        k=models.random(2, 3, 3, 3),
    )
    tuned, plain = InferenceSession(model, tune={"x": X}), InferenceSession(model)
    assert runners(tuned) == {"openvino"}
    assert [value.shape for value in tuned.get_inputs()] == [value.shape for value in plain.get_inputs()]
    assert runners(InferenceSession(model, tune={"x": X[:, :, 1:]})) == {"openvino"}
    assert len(clock[1]) == 2  # other sizes, another trial
    for x in (X, models.random(2, 3, 7, 30), X[:, :, :1], X):
        for found, expected in zip(tuned.run(None, {"x": x}), plain.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    (same, _), (expected, _) = pickle.loads(pickle.dumps(tuned)).run(None, {"x": X}), tuned.run(None, {"x": X})
    np.testing.assert_array_equal(same, expected)


@pytest.mark.parametrize("feed", [{"x": X}, {"image": X[0]}, {"image": X.astype(np.float64)}], ids=str)
def test_inputs_that_do_not_fit_are_an_error(clock, feed):
    """Whatever onnxruntime says of them."""
    with pytest.raises(unpool.UnpoolError, match="tune: the model does not run on these inputs"):
        InferenceSession(models.segnet(), tune=feed)


@pytest.mark.parametrize("other", [{"exact": True}, {"tune": False}, "without openvino"], ids=str)
def test_sessions_that_are_not_tuned(clock, monkeypatch, other):
    """Those with exact=True, as OpenVINO rounds otherwise; and where there is nothing to compare."""
    if other == "without openvino":
        monkeypatch.setitem(sys.modules, "openvino", None)
        monkeypatch.setattr("unpool.onnxruntime.tuning.is_installed", lambda: False)
        other = {}
    assert runners(InferenceSession(models.segnet(), **{"tune": True, **other})) == {"unpool"}
    assert clock[1] == []


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        ("g (double[3] x) => (double[3] y) { y = Exp (x) }", "float64"),
        ("g (float[3] x, int64[2] i) => (float[2] y) { y = Gather (x, i) }", "indices"),
        ("g (int64[3] x) => (int64[3] y) { y = Add (x, x) }", "int64"),
        ("g (float[3] x) => (float[3] y, float[3] z) { y = Exp (x) z = Dropout (x) }", ""),
        ("g (float[3] x) => (int64[1, n] y) { y = NonZero (x) }", "NonZero"),
    ],
)
def test_models_that_openvino_may_compute_otherwise(clock, caplog, graph, why):
    """They are not timed, and the log says why."""
    with caplog.at_level(logging.INFO, "unpool"):
        InferenceSession(models.model(graph), tune=True)
    assert clock[1] == []
    (text,) = (text for text in caplog.messages if "does not go by OpenVINO" in text)
    assert why in text


def test_other_results_are_not_taken(clock, caplog):
    """OpenVINO ignores antialias."""
    model = models.model(
        """g (float[1, 1, 9, 9] x) => (float[1, 1, 5, 5] y) {
            y = Resize <mode = "linear", antialias = 1> (x, , , s) }""",
        opset=18,
        s=np.int64([1, 1, 5, 5]),
    )
    with caplog.at_level(logging.INFO, "unpool"):
        session = InferenceSession(model, tune=True)
    assert runners(session) == set()
    assert clock[1] == []
    assert "gives other results" in caplog.text or "does not go by OpenVINO" in caplog.text


def recurrent(operator, gates, attributes="", **constants):
    """A recurrent node in both directions: 5 steps of 2 series, 3 features, 4 units."""
    return models.model(
        f"""g (float[5, 2, 3] x) => (float[5, 2, 2, 4] y) {{
            y = {operator} <hidden_size = 4, direction = "bidirectional"{attributes}> (x, w, r, {", ".join(constants)})
        }}""",
        w=models.random(2, gates * 4, 3),
        r=models.random(2, gates * 4, 4),
        **constants,
    )


@pytest.mark.parametrize(
    ("operator", "gates", "attributes"),
    [("RNN", 1, ""), ("GRU", 3, ""), ("GRU", 3, ", linear_before_reset = 1"), ("LSTM", 4, "")],
)
def test_recurrent_networks_go_by_openvino(clock, operator, gates, attributes):
    """Which onnxruntime computes slowly: an LSTM over sound took six times as long."""
    model = recurrent(operator, gates, attributes, b=models.random(2, gates * 8))
    assert runners(InferenceSession(model, tune=True)) == {"openvino"}


def test_peepholes_are_not_taken(clock, caplog):
    """OpenVINO ignores those of an LSTM, which the comparison of results finds."""
    b, n, zero, p = models.random(2, 32), np.int32([5, 3]), np.zeros((2, 2, 4), np.float32), models.random(2, 12)
    model = recurrent("LSTM", 4, b=b, n=n, h=zero, c=zero, p=p)
    with caplog.at_level(logging.INFO, "unpool"):
        assert runners(InferenceSession(model, tune=True)) == set()
    assert "gives other results" in caplog.text


def test_bindings_write_into_the_callers_memory(clock):
    """The engine writes to what onnxruntime allocates or gets."""
    session = InferenceSession(models.segnet(), tune=True)
    (expected,) = session.run(None, {"image": X})
    binding, y = session.io_binding(), np.zeros_like(expected)
    binding.bind_cpu_input("image", X)
    binding.bind_output(session.get_outputs()[0].name, "cpu", 0, np.float32, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("tune", [-1, float("nan"), float("inf"), "yes", None])
def test_other_values_are_refused(tune):
    """What is neither a bool nor a time is an error that names it."""
    with pytest.raises(unpool.UnpoolError, match="tune: expected True, False, seconds"):
        InferenceSession(models.segnet(), tune=tune)


def test_turns_end_when_the_time_is_up():
    """Every call has its first turn, and no other begins after so many seconds."""
    counts = dict.fromkeys("ab", 0)

    def call(name):
        counts[name] += 1

    autotune.time_calls({name: partial(call, name) for name in counts}, seconds=0, turn=1e-9)
    assert counts == {"a": 2, "b": 2}


def test_results_of_another_machine_are_not_found(clock, monkeypatch, tmp_path):
    """They are found by the same processor with as many cores; nor is a damaged file."""
    measurements.store_result("key", "openvino")
    assert measurements.find_result("key") == "openvino"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(host, "available_cores", lambda: 96)
        assert measurements.find_result("key") is None
    for path in tmp_path.glob("results-*/*"):
        path.write_bytes(path.read_bytes()[:-1])
    assert measurements.find_result("key") is None
