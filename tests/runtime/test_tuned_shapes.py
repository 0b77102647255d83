"""A model with dynamic sizes is tuned while it runs: every combination of shapes once, at its first run."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import unpool
from tests.support import models
from unpool.execute import autotune
from unpool.runtime.session import autotune as session_autotune
from unpool.runtime.session.autotune import BEFORE_INDICES, USUAL

SMALL, LARGE = (1, 3, 8, 8), (1, 3, 24, 8)


def network():
    """A Conv of any size before a pool with Indices."""
    text = """net (float[1, 3, height, width] x) => (float[1, 4, height, width] y) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
        y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (p, i)
    }"""
    return models.model(text, w=models.random(4, 3, 3, 3)).SerializeToString()


class Clock:
    """Times by its own rule: the candidate for large inputs is not that for small ones."""

    def __init__(self):
        self.timed, self.stored = [], {}

    def time_calls(self, calls, *_):
        feed = next(iter(calls.values())).args[1]
        is_large = feed["x"].shape == LARGE
        self.timed.append(feed["x"].shape)
        return {name: float((name == USUAL) != is_large) for name in calls}


@pytest.fixture
def clock(monkeypatch):
    """The clock in place of real times, and results that are stored in memory."""
    clock = Clock()
    monkeypatch.setattr(autotune, "time_calls", clock.time_calls)
    monkeypatch.setattr(autotune, "find_result", clock.stored.get)
    monkeypatch.setattr(autotune, "store_result", clock.stored.__setitem__)
    monkeypatch.setattr(session_autotune, "is_installed", lambda: False)
    return clock


def choice(session, shape):
    """The candidate for inputs of a shape, after a run with the right result."""
    x = models.random(*shape)
    (expected,) = unpool.InferenceSession(network()).run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
    tuner = session._shape_tuner
    return next(name for name, model in tuner._models.items() if model is tuner.latest)


def test_every_shape_is_timed_once_and_has_its_own_choice(clock):
    """Later runs of the same shape go by the choice of the first."""
    session = unpool.InferenceSession(network(), tune=True)
    assert not clock.timed
    assert [choice(session, shape) for shape in (SMALL, LARGE, SMALL, LARGE)] == [BEFORE_INDICES, USUAL] * 2
    assert clock.timed == [SMALL, LARGE]


def test_choices_are_stored_for_later_sessions(clock):
    """A second session of the same file times nothing."""
    choice(unpool.InferenceSession(network(), tune=True), SMALL)
    assert choice(unpool.InferenceSession(network(), tune=True), SMALL) == BEFORE_INDICES
    assert clock.timed == [SMALL]


def test_shapes_after_the_time_is_up_are_usual(clock):
    """The seconds of the argument are for all shapes together; unused candidates leave the memory."""
    session = unpool.InferenceSession(network(), tune=True)
    assert choice(session, LARGE) == USUAL
    assert set(session._shape_tuner._models) == {USUAL, BEFORE_INDICES}
    session._shape_tuner._seconds = 0
    assert choice(session, SMALL) == USUAL
    assert clock.timed == [LARGE]
    assert set(session._shape_tuner._models) == {USUAL}


def test_wrong_inputs_are_an_error_and_no_choice(clock):
    """The trial does not hide what the caller did wrong."""
    session = unpool.InferenceSession(network(), tune=True)
    for feed in ({"x": models.random(3, 8, 8)}, {"z": models.random(*SMALL)}, {}):
        with pytest.raises(unpool.UnpoolError):
            session.run(None, feed)
    assert not session._shape_tuner._choices


def test_two_threads_that_meet_a_shape_time_it_once(clock):
    """The second one waits."""
    session, x = unpool.InferenceSession(network(), tune=True), models.random(*SMALL)
    with ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(lambda _: session.run(None, {"x": x})[0], range(8)))
    assert clock.timed == [SMALL]
    assert all(np.array_equal(output, outputs[0]) for output in outputs)


def test_the_number_of_kept_shapes_is_bounded(clock, monkeypatch):
    """The oldest is forgotten first."""
    monkeypatch.setattr(session_autotune, "MAX_SHAPES", 2)
    session = unpool.InferenceSession(network(), tune=True)
    for height in (2, 4, 6, 8):
        session.run(None, {"x": models.random(1, 3, height, 8)})
    assert [shapes[0][1][2] for shapes in session._shape_tuner._choices] == [6, 8]


def test_the_plan_is_that_of_the_latest_run(clock):
    """It shows what a shape goes by."""
    session = unpool.InferenceSession(network(), tune=True)
    assert session.plan is session._model.plan
    choice(session, SMALL)
    assert session.plan is session._shape_tuner.latest.plan
