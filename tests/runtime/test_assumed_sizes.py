"""Plans that assume sizes: MaxPools of dynamic sizes stay with onnxruntime, and sizes are checked before a run."""

import numpy as np
import onnx
import pytest
from onnx import parser

import unpool
from unpool.runtime.backends.ort_options import config_entry
from unpool.runtime.session import autotune
from unpool.runtime.session.executor import Executor

DYNAMIC = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 2, H, W] x) => (float[N, 2, P, Q] y) {
        w = Constant <value = float[2, 2, 1, 1] {1, 2, 3, 4}> ()
        a = Conv (x, w)
        b = Relu (a)
        c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
        d = Relu (c)
        e = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d)
        y = Relu (e)
    }"""


@pytest.fixture
def path(tmp_path):
    """A model with two pools whose windows may not fit."""
    found = tmp_path / "dynamic.onnx"
    onnx.save(parser.parse_model(DYNAMIC), found)
    return found


def counted(monkeypatch):
    """The number of executors that are made from now on."""
    made, init = [], Executor.__init__

    def counting(self, *arguments, **options):
        made.append(self)
        init(self, *arguments, **options)

    monkeypatch.setattr(Executor, "__init__", counting)
    return made


def random(*shape):
    """Numbers of which no two are equal."""
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def test_pools_of_unknown_sizes_stay_with_onnxruntime(path):
    """In one partition; the plan says that sizes are checked, and `exact` assumes none."""
    plan = unpool.InferenceSession(path).plan

    assert len(plan.steps) == 1
    assert [row.runner for row in plan] == ["onnxruntime"] * 6
    assert sum("sizes are checked before each run" in row.reason for row in plan) == 2
    assert {row.runner for row in unpool.InferenceSession(path, exact=True).plan if row.operator == "MaxPool"} == {
        "unpool"
    }


def test_threads_of_a_whole_model_spin_as_in_onnxruntime(path):
    """A single partition is as fast as onnxruntime; threads of others leave their cores to unpool's."""

    def spinning(**words):
        sessions = unpool.InferenceSession(path, **words)._model.ort_sessions
        return [config_entry(session.get_session_options(), "session.force_spinning_stop") for session in sessions]

    assert spinning() == [None]
    assert spinning(exact=True) == ["1", "1", "1"]


def test_the_caller_chooses_how_long_threads_of_a_whole_model_spin(path):
    """The entry of SessionOptions reaches the partition."""
    options = unpool.SessionOptions()
    options.add_session_config_entry("session.intra_op.spin_duration_us", "20")
    (session,) = unpool.InferenceSession(path, options)._model.ort_sessions
    assert config_entry(session.get_session_options(), "session.intra_op.spin_duration_us") == "20"


@pytest.mark.parametrize("shape", [(1, 2, 4, 4), (2, 2, 9, 7)])
def test_windows_that_fit_need_no_other_plan(path, shape, monkeypatch):
    """The result is that of unpool's own pools, in both kinds of runs."""
    made = counted(monkeypatch)
    session, x = unpool.InferenceSession(path), random(*shape)
    (y,) = session.run(None, {"x": x})
    (again,) = session.run(None, {"x": x})
    assert len(made) == 1

    (expected,) = unpool.InferenceSession(path, exact=True).run(None, {"x": x})
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_array_equal(again, y)


@pytest.mark.parametrize("shape", [(1, 2, 3, 8), (1, 2, 1, 1), (1, 2, 2, 5)])
def test_windows_that_do_not_fit_get_another_plan(path, shape, monkeypatch):
    """The output is empty, as the standard has it; onnxruntime alone gives an output of one element."""
    made = counted(monkeypatch)
    session = unpool.InferenceSession(path)
    expected = unpool.InferenceSession(path, exact=True).run(None, {"x": random(*shape)})[0]
    before = len(made)
    for _ in range(2):
        (y,) = session.run(None, {"x": random(*shape)})
        assert y.shape == expected.shape
    assert y.size == 0
    assert len(made) == before + 1
    assert session.run(None, {"x": random(1, 2, 4, 4)})[0].shape == (1, 2, 1, 1)


def test_bound_memory_is_checked_too(path):
    """Runs of an IO binding and of OrtValues."""
    session = unpool.InferenceSession(path)
    binding = session.io_binding()
    binding.bind_cpu_input("x", random(1, 2, 3, 8))
    binding.bind_output("y")
    session.run_with_iobinding(binding)

    assert binding.copy_outputs_to_cpu()[0].shape == (1, 2, 0, 2)


def test_a_proto_of_the_caller_is_not_loaded_again(path):
    """It may change, so nothing is assumed."""
    plan = unpool.InferenceSession(onnx.load(path)).plan

    assert {row.runner for row in plan if row.operator == "MaxPool"} == {"unpool"}


@pytest.mark.parametrize("change", ["replaced", "gone"])
def test_another_file_is_not_loaded_in_its_place(path, tmp_path, monkeypatch, change):
    """A plan for other sizes is loaded from the same path, wherever the process is by then, if the file is the same."""
    monkeypatch.chdir(path.parent)
    session, same = unpool.InferenceSession(path.name), unpool.InferenceSession(path.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert same.run(None, {"x": random(1, 2, 3, 8)})[0].shape == (1, 2, 0, 2)
    content = path.read_bytes()
    path.unlink()
    if change == "replaced":
        path.write_bytes(content)

    with pytest.raises(unpool.FileError, match=r"expected the file from which the session was made.*new session"):
        session.run(None, {"x": random(1, 2, 3, 8)})
    assert session.run(None, {"x": random(1, 2, 8, 8)})[0].shape[0] == 1


def test_a_file_that_is_replaced_while_it_is_loaded_is_not_loaded_again(path, monkeypatch):
    """The stamp is that of the file that was read: a session never runs two models."""
    prepare = autotune.prepare

    def deploy(*arguments):
        new = path.with_suffix(".new")
        new.write_bytes(path.read_bytes() + b"\x12\x01x")  # another producer_name
        new.replace(path)
        return prepare(*arguments)

    monkeypatch.setattr(autotune, "prepare", deploy)
    session = unpool.InferenceSession(path)
    monkeypatch.undo()
    session.run(None, {"x": random(1, 2, 9, 7)})
    with pytest.raises(unpool.FileError, match="expected the file from which the session was made"):
        session.run(None, {"x": random(1, 2, 1, 1)})
