"""Errors of a session are unpool's and onnxruntime's at once, and a run that is told to stop stops."""

import pickle

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as theirs

import unpool
from tests.support import models
from unpool.kernels.cpu.machine import threads
from unpool.runtime.errors import LOADING, RUNNING, as_onnxruntime, error_class

TYPES = [unpool.UnpoolError, unpool.ShapeError, unpool.UnsupportedError, unpool.IndicesError, unpool.FileError]
TYPES += [unpool.MissingFileError, unpool.ModelError]
POOL = "g (float[1, 4, A, B] x) => (float[1, 4, C, D] y) { y = MaxPool <kernel_shape = [3, 3]> (x) }"


class Turning(onnxruntime.RunOptions):
    """Tells a run to stop when it is asked the second time."""

    asked = 0

    @property
    def terminate(self):
        """Whether to stop."""
        self.asked += 1
        return self.asked > 1


@pytest.mark.parametrize("ours", TYPES)
@pytest.mark.parametrize("name", ["Fail", "InvalidArgument", "NoSuchFile", "NotImplemented", "InvalidGraph"])
def test_an_error_is_both(ours, name):
    """Either class catches it; its name and its message are ours."""
    error = error_class(ours, name)("MaxPool: wrong")

    assert isinstance(error, ours)
    assert isinstance(error, getattr(theirs, name))
    assert (type(error).__name__, type(error).__module__, str(error)) == (
        ours.__name__,
        ours.__module__,
        "MaxPool: wrong",
    )


@pytest.mark.parametrize("ours", TYPES)
def test_errors_travel(ours):
    """An error comes through a pickle as what it was."""
    again = pickle.loads(pickle.dumps(error_class(ours, "Fail")("words")))

    assert type(again) is error_class(ours, "Fail")
    assert again.args == ("words",)


def test_a_class_that_onnxruntime_lacks_is_left_out():
    """An older onnxruntime without the class gets ours alone."""
    assert error_class(unpool.ModelError, "Nonesuch") is unpool.ModelError


@pytest.mark.parametrize(
    ("ours", "classes", "name"),
    [
        (unpool.MissingFileError, LOADING, "NoSuchFile"),
        (unpool.FileError, LOADING, "Fail"),
        (unpool.UnsupportedError, LOADING, "NotImplemented"),
        (unpool.ModelError, LOADING, "InvalidGraph"),
        (unpool.ShapeError, LOADING, "Fail"),
        (unpool.ShapeError, RUNNING, "InvalidArgument"),
        (unpool.IndicesError, RUNNING, "InvalidArgument"),
        (unpool.UnsupportedError, RUNNING, "NotImplemented"),
    ],
)
def test_the_place_decides_the_class(ours, classes, name):
    """Each of our errors becomes the one that onnxruntime raises in that place."""
    assert isinstance(as_onnxruntime(ours("words"), classes), getattr(theirs, name))


def test_the_cause_decides_before():
    """What an error of onnxruntime caused is of its class; what is one already stays as it is."""
    error = unpool.UnpoolError("words")
    error.__cause__ = theirs.RuntimeException("theirs")
    changed = as_onnxruntime(error, RUNNING)

    assert isinstance(changed, theirs.RuntimeException)
    assert as_onnxruntime(changed, LOADING) is changed


def test_indices_that_lead_outside():
    """An index outside of the output of a MaxUnpool is both an IndicesError and an InvalidArgument."""
    graph = "g (float[1, 1, 2] x, int64[1, 1, 2] i) => (float[1, 1, 4] y) {"
    graph += " y = MaxUnpool <kernel_shape = [2], strides = [2]> (x, i) }"
    session = unpool.InferenceSession(models.model(graph))
    feed = {"x": np.ones((1, 1, 2), np.float32), "i": np.array([[[0, 9]]])}

    for caught in (unpool.IndicesError, theirs.InvalidArgument, IndexError):
        with pytest.raises(caught):
            session.run(None, feed)


def test_a_long_step_is_left_in_the_middle(monkeypatch):
    """A step of ours asks between its rounds; the next run is right."""
    for name, value in (("LONG_SECONDS", 0), ("ROUND_SECONDS", 1e-5), ("_WORTH_A_ROUND", 1024)):
        monkeypatch.setattr(threads, name, value)
    session = unpool.InferenceSession(models.model(POOL), threads=1)
    x = np.random.default_rng(5).normal(size=(1, 4, 601, 801)).astype(np.float32)
    (expected,) = session.run(None, {"x": x})

    options = Turning()
    with pytest.raises(theirs.Fail, match=r"MaxPool.*terminate"):
        session.run(None, {"x": x}, options)
    assert options.asked == 2
    assert np.array_equal(session.run(None, {"x": x}, onnxruntime.RunOptions())[0], expected)


def test_a_run_stops_between_steps():
    """What is told to stop while one step runs does not begin with the next one of ours."""
    graph = "g (float[1, 1, 8] x) => (float[1, 1, 2] z) {"
    graph += " y = MaxPool <kernel_shape = [2], strides = [2]> (x)"
    graph += " z = MaxPool <kernel_shape = [2], strides = [2]> (y) }"
    session = unpool.InferenceSession(models.model(graph), exact=True)

    with pytest.raises(unpool.UnpoolError, match="terminate"):
        session.run(None, {"x": np.ones((1, 1, 8), np.float32)}, Turning())


def test_a_run_that_was_to_stop_does_not_blame_the_inputs():
    """`terminate` ends a partition of onnxruntime with the word of the caller, and not of its inputs."""
    session = unpool.InferenceSession(models.model("g (float[1, 2] x) => (float[1, 2] y) { y = Relu (x) }"))
    options = onnxruntime.RunOptions()
    options.terminate = True

    with pytest.raises(theirs.Fail, match=r"stopped, because RunOptions\.terminate is True") as caught:
        session.run(None, {"x": np.ones((1, 2), np.float32)}, options)
    assert "inputs" not in str(caught.value)
