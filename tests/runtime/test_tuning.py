"""With `tune` a session takes the way to each ConvTranspose that was the fastest when it was timed, and keeps which."""

import logging

import numpy as np
import pytest

import unpool
from tests import oracle
from tests.support import models
from unpool.errors import UnpoolError
from unpool.execute import autotune
from unpool.kernels.cpu.machine import host, measurements
from unpool.kernels.cpu.machine.checked_files import CheckedFiles
from unpool.runtime.session import autotune as session_autotune

SHAPE, WINDOW, STRIDES = (1, 32, 31, 31), (32, 8, 4, 4), (2, 2)
WAYS = ("direct", "winograd", "phases")
X = models.random(*SHAPE)
W = models.random(*WINDOW, seed=3) / 10


def growing(shape: str = "1, 32, 31, 31"):
    """A model of one ConvTranspose that can go each of these ways."""
    body = f"y = ConvTranspose <strides = {list(STRIDES)}> (x, w)"
    return models.model(f"c (float[{shape}] x) => (float y) {{ {body} }}", w=W)


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """Says which way is fast, whatever the machine does, and counts how often it was asked; nothing is kept yet."""
    times = dict.fromkeys(WAYS, 1.0)
    asked: list[tuple[str, ...]] = []

    def timed(calls):
        asked.append(tuple(calls))
        for call in calls.values():
            call()
        return {way: times[way] for way in calls}

    monkeypatch.setattr(autotune, "time_calls", timed)
    monkeypatch.setattr(session_autotune, "is_installed", lambda: False)  # only ways are to be chosen here
    monkeypatch.setattr(measurements, "_files", lambda: CheckedFiles("results", "these sources", folders=[tmp_path]))
    return times, asked


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS)
def test_the_fastest_way_is_taken_and_computes_the_same(clock, way):
    """Whatever way is the fastest, the plan names it and the oracle agrees with its result."""
    times, asked = clock
    times[way] = 0.5

    session = unpool.InferenceSession(growing(), tune=True)

    assert [set(ways) for ways in asked] == [set(WAYS)]
    assert f"by {way}" in str(session.plan)
    expected = oracle.conv_transpose(X, W, strides=STRIDES)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("maps", "ways"), [(64, {"winograd", "phases"}), (512, set())])
def test_a_way_that_is_far_too_slow_is_not_timed(clock, maps, ways):
    """Direct, where an output has hundreds of products; phases too, where tiles save more than a third of all."""
    body = "y = ConvTranspose <pads = [1, 1, 1, 1]> (x, w)"
    w = models.random(maps, maps, 3, 3)
    unpool.InferenceSession(models.model(f"c (float[1, {maps}, 20, 20] x) => (float y) {{ {body} }}", w=w), tune=True)

    assert [set(each) for each in clock[1]] == [ways] * bool(ways)


def test_a_later_session_finds_it(clock):
    """What was found is kept for sessions that are tuned, even without time; others take the cheapest way."""
    times, asked = clock
    usual = unpool.InferenceSession(growing())
    other = next(way for way in WAYS if f"by {way}" not in str(usual.plan))
    times[other] = 0.5
    unpool.InferenceSession(growing(), tune=True)

    assert f"by {other}" in str(unpool.InferenceSession(growing(), tune=1e-9).plan)
    assert len(asked) == 1
    assert str(unpool.InferenceSession(growing()).plan) == str(usual.plan)


def test_nothing_is_timed_where_sizes_are_open(clock):
    """A node whose input may have any size stays with the way that costs least for each size."""
    assert unpool.InferenceSession(growing("1, 32, h, w"), tune=True).run(None, {"x": X})[0].shape == (1, 8, 64, 64)
    assert clock[1] == []


def test_no_trial_begins_when_the_time_is_up(clock, caplog):
    """The first node is timed, and takes all the time; the second one goes the usual way, which the log says."""
    body = "a = ConvTranspose <strides = [2, 2]> (x, w) b = ConvTranspose <strides = [2, 2]> (x, v)"
    v = models.random(32, 5, 4, 4, seed=4)
    model = models.model(f"c (float[1, 32, 31, 31] x) => (float a, float b) {{ {body} }}", w=W, v=v)

    with caplog.at_level(logging.INFO, logger="unpool"):
        unpool.InferenceSession(model, tune=1e-9)

    assert len(clock[1]) == 1
    assert [record.getMessage() for record in caplog.records if "time is up" in record.getMessage()] != []


@pytest.mark.parametrize("tune", [-1, float("nan"), float("inf"), "yes", None])
def test_other_values_are_refused(tune):
    """What is neither a bool nor a time is an error that names it."""
    with pytest.raises(UnpoolError, match="tune: expected True, False or seconds"):
        unpool.InferenceSession(growing(), tune=tune)


def test_slow_ways_get_one_turn(monkeypatch):
    """A way that takes twice as long is not timed again, so that a session is not held up by it."""
    seconds = {"near": iter([1.0, *[0.9] * 9]), "far": iter([2.5]), "best": iter([1.1, *[0.8] * 9])}
    monkeypatch.setattr(autotune, "_seconds", lambda call, *_: next(seconds[call()]))

    found = autotune.time_calls({name: lambda name=name: name for name in seconds})

    assert found == {"near": 0.9, "far": 2.5, "best": 0.8}


def test_turns_end_when_the_time_is_up(monkeypatch):
    """Every call has its first turn, and no other begins after so many seconds."""
    counts = dict.fromkeys("ab", 0)

    def turn(call, settle, _):
        counts[call()] += 1
        return 1.0

    monkeypatch.setattr(autotune, "_seconds", turn)
    autotune.time_calls({name: lambda name=name: name for name in counts}, seconds=0)

    assert counts == {"a": 1, "b": 1}


def test_results_of_another_machine_are_not_found(monkeypatch, tmp_path):
    """What was kept is found by the same processor with as many cores, and by no other one; nor is a damaged file."""
    monkeypatch.setattr(measurements, "_files", lambda: CheckedFiles("results", "these sources", folders=[tmp_path]))
    measurements.store_result("key", "phases")
    assert measurements.find_result("key") == "phases"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(host, "available_cores", lambda: 96)
        assert measurements.find_result("key") is None
    for path in tmp_path.glob("results-*/*"):
        path.write_bytes(path.read_bytes()[:-1])
    assert measurements.find_result("key") is None
