"""A session that is tuned takes the runners that were the fastest in a trial: onnxruntime's, OpenVINO's, or ours."""

import logging
import pickle
import weakref
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

import unpool
from tests import oracle
from tests.support import models
from unpool.execute import autotune
from unpool.kernels.cpu.machine import measurements
from unpool.kernels.cpu.machine.checked_files import CheckedFiles
from unpool.runtime.backends import openvino_backend
from unpool.runtime.backends.openvino_backend import OpenVinoPartition
from unpool.runtime.passes import convert_conv
from unpool.runtime.session import autotune as session_autotune
from unpool.runtime.session import passthrough
from unpool.runtime.session.autotune import BEFORE_INDICES, OPENVINO_ALL, OPENVINO_PARTITIONS, UNPOOL, USUAL

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINO"
X = models.random(1, 3, 8, 8)
W, V = models.random(3, 4, 3, 3, seed=1), models.random(4, 5, 4, 4, seed=2)
EXPECTED = {
    USUAL: {"Conv": "onnxruntime", "Relu": "onnxruntime", "ConvTranspose": "unpool", "Abs": "onnxruntime"},
    OPENVINO_PARTITIONS: {"Conv": "openvino", "Relu": "openvino", "ConvTranspose": "unpool", "Abs": "openvino"},
    OPENVINO_ALL: dict.fromkeys(("Conv", "Relu", "ConvTranspose", "Abs"), "openvino"),
}


def network(size="1, 3, 8, 8", grow="strides = [2, 2], pads = [1, 1, 1, 1]", w="w"):
    """A Conv, and a ConvTranspose between activations."""
    return models.model(
        f"""net (float[{size}] x{", float[4, 5, 4, 4] fed" if w == "fed" else ""}) => (float y) {{
            a = Conv (x, k) b = Relu (a) c = ConvTranspose <{grow}> (b, {w}) y = Abs (c) }}""",
        k=W.transpose(1, 0, 2, 3).copy(),
        w=V,
    )


def runners(session):
    """Who runs each node, by the operator; what has no other place than between others is left out."""
    return {record.operator: record.runner for record in session.plan if record.operator in EXPECTED[OPENVINO_ALL]}


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """Says which runners are fast, whatever the machine does, and counts trials; nothing is kept yet."""
    times = dict.fromkeys((USUAL, BEFORE_INDICES, OPENVINO_PARTITIONS, OPENVINO_ALL), 1.0)
    asked: list[tuple[str, ...]] = []

    def timed(calls, *_):
        if times.keys() & calls:
            asked.append(tuple(calls))
        return {name: times.get(name, 1.0) for name in calls}

    monkeypatch.setattr(autotune, "time_calls", timed)
    monkeypatch.setattr(measurements, "_files", lambda: CheckedFiles("results", "these sources", folders=[tmp_path]))
    return times, asked


@pytest.mark.parametrize("name", [USUAL, OPENVINO_PARTITIONS, OPENVINO_ALL])
def test_the_fastest_runners_are_taken(clock, name):
    """The plan and the providers say which ones, and results are those of the usual ones but for rounding."""
    times, asked = clock
    times[name] = 0.8

    session = unpool.InferenceSession(network(), tune=True)

    best = OPENVINO_ALL if name == OPENVINO_ALL else USUAL
    assert asked == [(USUAL, OPENVINO_ALL), (best, OPENVINO_PARTITIONS)]
    assert runners(session) == EXPECTED[name]
    assert (OPENVINO in session.get_providers()) == (name != USUAL)
    usual = unpool.InferenceSession(network()).run(None, {"x": X})[0]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], usual, rtol=0, atol=2e-5)


def test_little_is_not_worth_a_change(clock):
    """Runners that are faster by 2 % are not taken."""
    clock[0][OPENVINO_ALL] = 0.98

    assert runners(unpool.InferenceSession(network(), tune=True)) == EXPECTED[USUAL]


@pytest.mark.parametrize("again", [0.9, 1.1])
def test_a_small_gain_is_found_twice(monkeypatch, again):
    """Or it is no gain; both candidates are timed a second time."""
    found = iter([0.9, again])
    monkeypatch.setattr(autotune, "time_calls", lambda calls, *_: dict(zip(calls, (1.0, next(found)), strict=True)))

    assert session_autotune._is_faster({USUAL: list, OPENVINO_ALL: list}, 1.0) == (again < 1)
    assert next(found, None) is None


def test_later_sessions_find_what_was_found(clock, tmp_path):
    """It is kept for the same file, for other threads it is found out anew, and untuned sessions have no part in it."""
    clock[0][OPENVINO_ALL] = 0.5
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    unpool.InferenceSession(path, tune=True)

    assert runners(unpool.InferenceSession(path, tune=1e-9)) == EXPECTED[OPENVINO_ALL]
    assert runners(unpool.InferenceSession(path)) == EXPECTED[USUAL]
    assert len(clock[1]) == 2
    unpool.InferenceSession(path, tune=True, threads=1)
    assert len(clock[1]) == 4


def test_what_another_release_found_is_found_out_anew(clock):
    """Runners that this one does not have are no result."""
    clock[0][OPENVINO_ALL] = 0.5
    unpool.InferenceSession(network(), tune=True)
    with pytest.MonkeyPatch.context() as another:
        another.setattr(autotune, "find_result", lambda key: "on the moon")
        assert runners(unpool.InferenceSession(network(), tune=True)) == EXPECTED[OPENVINO_ALL]

    assert len(clock[1]) == 4


def test_a_tuned_session_can_be_pickled(clock):
    """In another process it has the same runners, without a trial."""
    clock[0][OPENVINO_ALL] = 0.5
    session = pickle.loads(pickle.dumps(unpool.InferenceSession(network(), tune=True)))

    assert runners(session) == EXPECTED[OPENVINO_ALL]
    assert len(clock[1]) == 2


def test_providers_that_are_set_later_count(clock):
    """`set_providers` ends what a trial chose."""
    clock[0][OPENVINO_ALL] = 0.5
    session = unpool.InferenceSession(network(), tune=True)
    session.set_providers([CPU])

    assert runners(session) == EXPECTED[USUAL]


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"tune": 0},
        {"tune": True, "exact": True},
        {"tune": True, "providers": [CPU]},
        {"tune": True, "sess_options": onnxruntime.SessionOptions()},
    ],
    ids=["untuned", "no time", "exact", "other providers", "options"],
)
def test_nothing_is_timed_that_is_not_asked_for(clock, words):
    """Untuned, exact, for other providers or with options, the usual runners stay."""
    session = unpool.InferenceSession(network(), **words)

    assert "openvino" not in {record.runner for record in session.plan}
    assert clock[1] == []


def test_partitions_that_a_caller_gave_to_openvino_stay_there(clock):
    """Then the trial is only about ConvTranspose."""
    clock[0][OPENVINO_ALL] = 0.5
    session = unpool.InferenceSession(network(), tune=True, providers=[OPENVINO, CPU])

    assert clock[1] == [(USUAL, OPENVINO_ALL)]
    assert runners(session) == EXPECTED[OPENVINO_ALL]


def test_without_openvino_nothing_is_timed(clock, monkeypatch):
    """The package may be missing."""
    monkeypatch.setattr(session_autotune, "is_installed", lambda: False)

    assert runners(unpool.InferenceSession(network(), tune=True)) == EXPECTED[USUAL]
    assert clock[1] == []


@pytest.mark.parametrize("size", ["1, 3, h, w", "n, 3, 8, 8"])
def test_a_model_with_dynamic_sizes_is_timed_when_it_runs(clock, monkeypatch, caplog, size):
    """There are no inputs to time it on yet, so nothing else is loaded, and the log says so."""
    monkeypatch.setattr(openvino_backend, "OpenVinoPartition", None)
    with caplog.at_level(logging.INFO, logger="unpool"):
        session = unpool.InferenceSession(network(size), tune=True)

    assert runners(session) == EXPECTED[USUAL]
    assert clock[1] == []
    assert "timed at the first run of each shape" in caplog.text


def test_other_results_are_left_out(clock, monkeypatch, caplog):
    """Runners that compute something else are not taken, however fast they are."""
    clock[0].update({OPENVINO_PARTITIONS: 0.5, OPENVINO_ALL: 0.5})
    run = OpenVinoPartition.run
    monkeypatch.setattr(OpenVinoPartition, "run", lambda *given: [made + 1 for made in run(*given)])

    with caplog.at_level(logging.INFO, logger="unpool"):
        session = unpool.InferenceSession(network(), tune=True)

    assert runners(session) == EXPECTED[USUAL]
    assert "gives other results" in caplog.text


def test_runners_that_fail_are_left_out(clock, monkeypatch, caplog):
    """An error while another one loads or runs is no error of the session."""
    clock[0].update({OPENVINO_PARTITIONS: 0.5, OPENVINO_ALL: 0.5})

    def fail(*_):
        raise unpool.UnpoolError("no")

    monkeypatch.setattr(OpenVinoPartition, "run", fail)
    with caplog.at_level(logging.INFO, logger="unpool"):
        session = unpool.InferenceSession(network(), tune=True)

    assert runners(session) == EXPECTED[USUAL]
    assert "fails: no" in caplog.text


def test_a_run_that_takes_too_long_is_not_repeated(clock, monkeypatch, caplog):
    """Where a trial does not fit into the time that is left, the usual runners stay after one run."""
    monkeypatch.setattr(session_autotune, "MIN_RUNS", 10**9)
    with caplog.at_level(logging.INFO, logger="unpool"):
        session = unpool.InferenceSession(network(), tune=True)

    assert runners(session) == EXPECTED[USUAL]
    assert clock[1] == []
    assert "a run takes too long" in caplog.text


ATTRIBUTES = [
    {"strides": [2, 2]},
    {"strides": [2, 3], "pads": [1, 0, 2, 1]},
    {"strides": [3, 3], "output_padding": [2, 1]},
    {"strides": [2, 2], "pads": [3, 3, 3, 3]},
    {"kernel_shape": [4, 4]},
    {"strides": [2, 2], "group": 2},
]


@pytest.mark.parametrize("given", ATTRIBUTES, ids=str)
def test_openvino_grows_as_the_standard_says(clock, given):
    """Strides, pads, output_padding and groups: the result is the oracle's."""
    clock[0][OPENVINO_ALL] = 0.5
    w, b = models.random(4, 6 // given.get("group", 1), 4, 4, seed=3), models.random(6, seed=4)
    text = ", ".join(f"{name} = {value}" for name, value in given.items())
    body = f"r = Relu (x) y = ConvTranspose <{text}> (r, w, b)"
    x = models.random(2, 4, 5, 6, seed=5)

    session = unpool.InferenceSession(
        models.model(f"net (float[2, 4, 5, 6] x) => (float y) {{ {body} }}", w=w, b=b), tune=True
    )

    assert {record.runner for record in session.plan} == {"openvino"}
    expected = oracle.conv_transpose(np.maximum(x, 0), w, b, **given)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("size", [(9,), (4, 5, 3)], ids=["one axis", "three axes"])
def test_openvino_grows_over_any_axes(clock, size):
    """Over one axis and over three, too."""
    clock[0][OPENVINO_ALL] = 0.5
    x, w = models.random(1, 4, *size), models.random(4, 3, *[3] * len(size), seed=3)
    body = f"r = Relu (x) y = ConvTranspose <strides = {[2] * len(size)}> (r, w)"
    shape = ", ".join(map(str, x.shape))

    session = unpool.InferenceSession(models.model(f"net (float[{shape}] x) => (float y) {{ {body} }}", w=w), tune=True)

    assert {record.runner for record in session.plan} == {"openvino"}
    expected = oracle.conv_transpose(np.maximum(x, 0), w, strides=[2] * len(size))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=2e-5)


def test_weights_that_constants_make_go_to_openvino(clock):
    """As those of a layer with weight normalization, which is a Mul of constants."""
    clock[0][OPENVINO_ALL] = 0.5
    made = models.model(
        """net (float[1, 4, 5, 5] x) => (float y) {
            r = Relu (x) w = Mul (v, g) y = ConvTranspose <strides = [2, 2]> (r, w) }""",
        v=V,
        g=models.random(4, 1, 1, 1, seed=3),
    )
    x = models.random(1, 4, 5, 5)

    session = unpool.InferenceSession(made, tune=True)

    assert {record.runner for record in session.plan} == {"openvino"}
    expected = oracle.conv_transpose(np.maximum(x, 0), V * models.random(4, 1, 1, 1, seed=3), strides=[2, 2])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "words",
    [
        {"grow": 'strides = [2, 2], auto_pad = "SAME_UPPER"'},
        {"grow": "strides = [2, 2], output_shape = [18, 18]"},
        {"grow": "strides = [2, 2], dilations = [2, 2]"},
        {"w": "fed"},
    ],
    ids=str,
)
def test_what_openvino_may_read_otherwise_stays(clock, words):
    """A ConvTranspose with computed pads, gaps in its windows or weights that are fed is unpool's, beside OpenVINO."""
    clock[0][OPENVINO_ALL] = 0.5
    fed = {"fed": V} if "w" in words else {}

    session = unpool.InferenceSession(network(**words), tune=True)

    assert runners(session) == EXPECTED[OPENVINO_PARTITIONS]
    usual = unpool.InferenceSession(network(**words)).run(None, {"x": X, **fed})[0]
    np.testing.assert_allclose(session.run(None, {"x": X, **fed})[0], usual, rtol=0, atol=2e-5)


def test_what_openvino_refuses_with_its_neighbours_comes_back(clock):
    """A ConvTranspose in a partition that OpenVINO does not take is unpool's again, and never onnxruntime's."""
    clock[0][OPENVINO_ALL] = 0.5
    made = models.model(
        """net (float[1, 3, 8, 8] x) => (float y) {
            a = Conv (x, k) b = Relu (a) c = ConvTranspose (b, w) d = Trilu (c) y = Abs (d) }""",
        k=W.transpose(1, 0, 2, 3).copy(),
        w=V,
    )

    session = unpool.InferenceSession(made, tune=True)

    assert runners(session) == {**EXPECTED[USUAL], "Conv": "openvino", "Relu": "openvino"}
    usual = unpool.InferenceSession(made).run(None, {"x": X})[0]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], usual, rtol=0, atol=2e-5)


@pytest.fixture
def cheap_cuts(monkeypatch):
    """Convolutions of the size of these tests are worth a step, as larger ones are."""
    monkeypatch.setattr(convert_conv, "CUT_COST", 0)
    monkeypatch.setattr(convert_conv, "LEAST_GAIN", 0)


def segnet():
    """A Conv that is worth turning before a MaxPool with Indices, and one behind its MaxUnpool; the input is fed."""
    conv, pool = "Conv <pads = [1, 1, 1, 1]>", "kernel_shape = [2, 2], strides = [2, 2]"
    return models.model(
        f"""net (float[1, 64, 40, 40] x) => (float y) {{
            a = {conv} (x, k) p, i = MaxPool <{pool}> (a) u = MaxUnpool <{pool}> (p, i) y = {conv} (u, k) }}""",
        k=models.random(64, 64, 3, 3, seed=7) / np.float32(24),
    )


def convolutions(session):
    """Who runs the two."""
    return {record.node: record.runner for record in session.plan if record.node in ("Conv->a", "Conv->y")}


@pytest.mark.slow
@pytest.mark.usefixtures("cheap_cuts")
def test_a_conv_before_indices_is_ours_where_that_is_faster(clock):
    """Only then; with the oracle's pool and unpool behind it, it gives what the kernels give."""
    usual = {"Conv->a": "onnxruntime", "Conv->y": "unpool"}
    assert convolutions(unpool.InferenceSession(segnet())) == usual
    assert convolutions(unpool.InferenceSession(segnet(), tune=True)) == usual
    clock[0][BEFORE_INDICES] = 0.5

    session = unpool.InferenceSession(segnet(), tune=True, threads=1)

    others = (OPENVINO_ALL, OPENVINO_PARTITIONS)
    assert clock[1][:3] == [(USUAL, each) for each in (BEFORE_INDICES, *others)]
    assert clock[1][3:] == [(USUAL, BEFORE_INDICES), *((BEFORE_INDICES, each) for each in others)]
    assert convolutions(session) == {"Conv->a": "unpool", "Conv->y": "unpool"}
    assert OPENVINO not in session.get_providers()
    x = models.random(1, 64, 40, 40)
    k = np.flip(models.random(64, 64, 3, 3, seed=7) / np.float32(24), (2, 3)).swapaxes(0, 1)
    a = oracle.conv_transpose(x, k, pads=[1] * 4)
    p, i = oracle.max_pool(a, kernel_shape=[2, 2], strides=[2, 2], return_indices=True)
    u = oracle.max_unpool(p, i, kernel_shape=[2, 2], strides=[2, 2])
    expected = oracle.conv_transpose(u, k, pads=[1] * 4)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("cheap_cuts")
def test_a_conv_before_indices_goes_back(clock):
    """To where it was, with providers that are set later; a pickled session keeps it."""
    clock[0][BEFORE_INDICES] = 0.5
    session = unpool.InferenceSession(segnet(), tune=True)
    assert convolutions(pickle.loads(pickle.dumps(session))) == {"Conv->a": "unpool", "Conv->y": "unpool"}
    assert len(clock[1]) == 3

    session.set_providers([CPU])

    assert convolutions(session) == {"Conv->a": "onnxruntime", "Conv->y": "unpool"}


@pytest.mark.usefixtures("cheap_cuts")
def test_without_openvino_there_is_still_a_choice(clock, monkeypatch):
    """Where a model has Indices."""
    monkeypatch.setattr(session_autotune, "is_installed", lambda: False)
    clock[0][BEFORE_INDICES] = 0.5

    assert set(convolutions(unpool.InferenceSession(segnet(), tune=True)).values()) == {"unpool"}
    assert clock[1] == [(USUAL, BEFORE_INDICES)]


def test_a_model_without_operators_of_ours_is_not_planned_for_a_trial(clock, monkeypatch):
    """Onnxruntime runs it whole, and a plan is made only for those who ask for it."""
    monkeypatch.setattr(session_autotune, "is_installed", lambda: False)
    monkeypatch.setattr(passthrough, "make_plan", None)
    model = models.model("net (float[1, 3] x) => (float[1, 3] y) { y = Abs (x) }")
    session = unpool.InferenceSession(model.SerializeToString(), tune=True)

    assert session.run(None, {"x": np.float32([[-1, 2, -3]])})[0].tolist() == [[1, 2, 3]]
    assert clock[1] == []


def test_what_there_is_no_time_for_is_left_out(monkeypatch, caplog):
    """Each candidate has its share of the time that is left, and one that does not load leaves it to the others."""
    now, asked, loaded = [0.0], [], []

    def load(name, seconds):
        loaded.append((name, seconds))
        now[0] += 2
        if name == OPENVINO_ALL:
            raise unpool.UnpoolError("no")

        def run():
            now[0] += 1
            return [np.zeros(1)]

        return run

    def timed(calls, seconds, *_):
        asked.append((*calls, seconds))
        now[0] += 14
        return dict.fromkeys(calls, 1.0)

    monkeypatch.setattr(session_autotune, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(session_autotune.autotune, "time_calls", timed)
    names = [USUAL, BEFORE_INDICES, OPENVINO_ALL, OPENVINO_PARTITIONS, UNPOOL]
    with caplog.at_level(logging.INFO, logger="unpool"):
        assert session_autotune._fastest(None, names, load, list, 44.0) == USUAL

    # a trial takes 8 runs of 1 s at least, and the first is timed twice: 40 s are left for four candidates, 24 for
    # three, 22 for two, 5 for the last
    assert loaded == [(USUAL, 44.0), (BEFORE_INDICES, 10.0), (OPENVINO_ALL, 8.0), (OPENVINO_PARTITIONS, 11.0)]
    assert [each[:2] for each in asked] == [(USUAL, BEFORE_INDICES), (USUAL, OPENVINO_PARTITIONS)]
    assert "openvino with ConvTranspose does not load: no" in caplog.text
    assert "not timed, because a run takes too long: unpool." in caplog.text


@pytest.mark.parametrize(("fast", "last"), [(OPENVINO_PARTITIONS, OPENVINO_PARTITIONS), (BEFORE_INDICES, UNPOOL)])
def test_unpool_alone_is_not_tried_where_openvino_is_faster(monkeypatch, fast, last):
    """It saves nothing by its own operators there, and would be loaded for nothing."""
    loaded = []

    def load(name, _):
        loaded.append(name)
        return lambda: [np.zeros(1)]

    def timed(calls, *_):
        return {name: 0.5 if name == fast else 1.0 for name in calls}

    monkeypatch.setattr(session_autotune.autotune, "time_calls", timed)
    names = [USUAL, BEFORE_INDICES, OPENVINO_PARTITIONS, UNPOOL]
    assert session_autotune._fastest(None, names, load, list, 10.0) == fast
    assert loaded[-1] == last


@pytest.mark.parametrize("name", [USUAL, OPENVINO_ALL, OPENVINO_PARTITIONS])
def test_no_more_than_two_candidates_are_in_memory(clock, monkeypatch, name):
    """The slower one of two is dropped before the next one is loaded."""
    clock[0][name] = 0.5
    executors, most = weakref.WeakSet(), [0]
    init = session_autotune.Executor.__init__

    def count(self, *given, **words):
        executors.add(self)
        most[0] = max(most[0], len(executors))
        init(self, *given, **words)

    monkeypatch.setattr(session_autotune.Executor, "__init__", count)
    session = unpool.InferenceSession(network(), tune=True)

    assert runners(session) == EXPECTED[name]
    assert (most[0], len(executors)) == (2, 1)


def test_a_trial_in_fact():
    """With the real clock some runners are taken, and the second session has the same ones."""
    first, second = (unpool.InferenceSession(network(), tune=5) for _ in range(2))

    assert runners(first) in EXPECTED.values()
    np.testing.assert_allclose(first.run(None, {"x": X})[0], second.run(None, {"x": X})[0], rtol=0, atol=2e-5)


def test_a_first_run_that_compiles_is_timed_again(monkeypatch):
    """Otherwise nothing would be compared where a run takes a hundredth of the time of compiling its kernels."""
    now, runs = [0.0], iter([30.0, 0.01])

    def run():
        now[0] += next(runs, 0.01)
        return [np.zeros(1)]

    def timed(calls, *_):
        return dict(zip(calls, (1.0, 0.5), strict=True))

    monkeypatch.setattr(session_autotune, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(session_autotune.autotune, "time_calls", timed)
    names = [USUAL, BEFORE_INDICES]
    assert session_autotune._fastest(None, names, lambda *_: run, list, 40.0) == BEFORE_INDICES
