"""Partitions on OpenVINO: which ones it gets, that results are onnxruntime's, and that nothing is copied."""

import gc
import json
import logging
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

import unpool
from tests.support import models
from unpool.cli.app import app
from unpool.cli.errors import OK, UNSUPPORTED
from unpool.runtime.backends import openvino_backend
from unpool.runtime.backends.openvino_backend import OpenVinoPartition, package
from unpool.runtime.passes import convert_conv
from unpool.runtime.session.ort_compat import providers

OPENVINO, CPU = "OpenVINO", "CPUExecutionProvider"
ASKED = [OPENVINO, CPU]
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def by_openvino(made, **words):
    """A session that asks OpenVINO first."""
    return unpool.InferenceSession(made, providers=ASKED, threads=1, **words)


def runners(session):
    """Who runs each node, by the operator."""
    return {record.operator: record.runner for record in session.plan}


def conv(kind="float", size="6, 6", opset=17, ir=8):
    """A Conv and a Relu, between which values go in OpenVINO's own layout."""
    return models.model(
        f"""net ({kind}[1, 3, {size}] x) => ({kind}[1, 8, {size}] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w) y = Relu (c) }}""",
        opset=opset,
        ir=ir,
        w=models.random(8, 3, 3, 3, dtype={"float": np.float32, "double": np.float64, "float16": np.float16}[kind]),
    )


@pytest.mark.parametrize(("axis", "indices"), [(0, 1), (1, [-1, 0, -5]), (-1, [[0, 2], [3, -4]]), (2, [3])], ids=str)
def test_gather_with_constant_indices_runs_on_openvino(axis, indices):
    """Where all of them are inside the axis, negative ones too; results are onnxruntime's."""
    made = models.model(
        f"net (float[2, 5, 4] x) => (float y) {{ r = Exp (x) y = Gather <axis = {axis}> (r, i) }}", i=np.int64(indices)
    )
    feed = {"x": models.random(2, 5, 4)}
    session = by_openvino(made)
    assert runners(session)["Gather"] == "openvino"
    np.testing.assert_allclose(session.run(None, feed)[0], unpool.InferenceSession(made).run(None, feed)[0], **CLOSE)


def test_gather_from_an_axis_of_any_size():
    """OpenVINO runs the sizes that all constant indices are inside of; others are the error of onnxruntime."""
    made = models.model("net (float[n] x) => (float[2] y) { r = Exp (x) y = Gather (r, i) }", i=np.int64([2, -3]))
    session = by_openvino(made)
    assert runners(session)["Gather"] == "openvino"
    np.testing.assert_allclose(session.run(None, {"x": np.float32([0, 1, 2])})[0], np.exp(np.float32([2, 0])), **CLOSE)
    with pytest.raises(unpool.UnpoolError, match="indices element out of data bounds"):
        session.run(None, {"x": np.float32([0, 1])})


@pytest.mark.parametrize("size", ["12, 10", "height, width"])
def test_a_segnet_runs_on_openvino_and_unpool(size):
    """OpenVINO has no MaxUnpool; around those of unpool it runs every partition, and results are onnxruntime's."""
    made = models.segnet(size=size)
    feed = {"image": models.random(1, 3, 12, 10)}
    session = by_openvino(made)
    assert {record.runner for record in session.plan} == {"unpool", "openvino"}
    assert runners(session)["MaxUnpool"] == "unpool"
    got, expected = session.run(None, feed), unpool.InferenceSession(made, threads=1).run(None, feed)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)
    for ours, again in zip(got, session.run(None, feed), strict=True):
        np.testing.assert_array_equal(ours, again)


def test_float32_is_computed_as_float32():
    """OpenVINO takes bfloat16 on processors that have it, unless it is told not to; a caller may ask for it."""
    made = models.model(
        "net (float[1, 64, 8, 8] x) => (float[1, 64, 8, 8] y) { y = Conv <pads = [1, 1, 1, 1]> (x, w) }",
        w=models.random(64, 64, 3, 3),
    )
    feed = {"x": models.random(1, 64, 8, 8, seed=3)}
    (exact,) = onnxruntime.InferenceSession(made.SerializeToString(), providers=[CPU]).run(None, feed)
    (got,) = by_openvino(made).run(None, feed)
    assert np.abs(got - exact).max() < 1e-5 * np.abs(exact).max()


UNFIT = {
    "float64": (
        models.model("net (double[3] x) => (double[3] y) { y = Relu (x) }"),
        "'x' is float64, which it would compute in float32",
    ),
    "float16": (conv("float16"), "'x' is float16, which it would compute in float32"),
    "int64 that is fed": (
        models.model(
            "net (int64[3] i, float[3] x) => (float[3] y) { j = Add (i, i) c = Cast <to = 1> (j) y = Add (x, c) }"
        ),
        "'j' is int64, which it would compute in int32",
    ),
    "a shape that is fed": (
        models.model("net (int64[1] i, float[3] x) => (float[n] y) { r = Relu (x) y = Reshape (r, i) }"),
        "sizes depend on values",
    ),
    "a large constant": (
        models.model(
            "net (float[3] x) => (int64[1] y) { r = Relu (x) s = Shape (r) y = Add (s, c) }", c=np.int64([2**40])
        ),
        "'c' is int64, which it would compute in int32",
    ),
    "arithmetic of bytes": (models.model("net (uint8[3] x) => (uint8[3] y) { y = Add (x, x) }"), "'x' is uint8"),
    "strings": (models.model("net (string[3] x) => (string[3] y) { y = Identity (x) }"), "no tensor of numbers"),
    "another operator": (models.model("net (float[3, 3] x) => (float y) { y = Det (x) }"), "'Det->y' is Det, "),
    "another domain": (
        models.model(
            "net (float[3] x) => (float[3] y) { y = com.microsoft.Gelu (x) }", imports=', "com.microsoft" : 1'
        ),
        "is com.microsoft.Gelu",
    ),
    "indices that are computed": (
        models.model("net (float[3] x) => (float[1] y) { s = ArgMax (x) y = Gather (x, s) }"),
        "indices are not checked",
    ),
    "indices in an axis of any size": (
        models.model("net (float[n] x, int64[1] i) => (float[1] y) { r = Relu (x) y = Gather (r, i) }"),
        "indices are not checked",
    ),
    "constant indices outside the axis": (
        models.model("net (float[3] x) => (float[1] y) { r = Relu (x) y = Gather (r, i) }", i=np.int64([3])),
        "are outside its axis of 3",
    ),
    "Softmax over several axes": (
        models.model("net (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax <axis = 1> (x) }", opset=11),
        "version 11 normalizes several axes",
    ),
    "Resize that keeps the ratio": (
        models.model(
            """net (float[1, 1, 4, 6] x) => (float[1, 1, a, b] y) {
                y = Resize <keep_aspect_ratio_policy = "not_larger"> (x, , , s) }""",
            opset=18,
            s=np.int64([1, 1, 6, 6]),
        ),
        "keep_aspect_ratio_policy is ignored",
    ),
    "Pad with a value that is fed": (
        models.model(
            "net (float[3] x, float v) => (float[5] y) { y = Pad (x, p, v) }",
            p=np.int64([1, 1]),
        ),
        "its value is ignored",
    ),
    "Pad by as much as the input says": (
        models.model("net (int64[2] p, float[3] x) => (float[m] y) { r = Relu (x) y = Pad (r, p) }"),
        "its pads are not the same in every run",
    ),
    "an output that is an input": (
        models.model("net (float[3] x, float[3] u) => (float[3] y, float[3] z) { y = Sum (x) z = Relu (u) }"),
        "an output is an input as it is",
    ),
    "windows at the border": (
        models.model(
            """net (float[1, 1, 5] x) => (float[1, 1, 3] y) {
                y = AveragePool <kernel_shape = [2], ceil_mode = 1, strides = [2]> (x) }"""
        ),
        "with ceil_mode",
    ),
    "control flow": (
        models.model(
            """net (bool k, float[3] x) => (float[3] y) { y = If (k) <then_branch = a () => (float[3] p) { p = Neg (x) }
                , else_branch = b () => (float[3] q) { q = Abs (x) }> }"""
        ),
        "is If, ",
    ),
    "sizes": (models.model("net (float[a, b] x) => (int64[2] y) { y = Shape (x) }"), "it computes sizes only"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", UNFIT)
def test_other_partitions_stay_with_onnxruntime(name, caplog):
    """Where OpenVINO would answer otherwise, the partition stays where it was; the plan and the log say why."""
    made, reason = UNFIT[name]
    with caplog.at_level(logging.INFO, "unpool"):
        session = by_openvino(made)
    assert {record.runner for record in session.plan} == {"onnxruntime"}
    assert all("not on OpenVINO: " in record.reason for record in session.plan)
    assert reason in str(session.plan)
    assert reason in caplog.text


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_integers_of_a_caller_are_checked_in_each_run(kind, caplog):
    """Those that OpenVINO would wrap, or would not check, are onnxruntime's; with others the results are the same."""
    made = models.model(
        f"""net ({kind}[2, 2] ids, {kind}[1] step, float[3] x) => (float[2, 3] y, float[3] z) {{
            a = Slice (ids, one, two, one) b = Squeeze (a, one) e = Gather (table, b) y = Exp (e)
            t = Cast <to = 1> (step) s = Sin (t) z = Add (x, s) }}""",
        table=models.random(5, 3),
        one=np.int64([1]),
        two=np.int64([2]),
    )
    session, reference = by_openvino(made), unpool.InferenceSession(made)
    assert set(runners(session).values()) == {"openvino"}
    x = models.random(3)
    largest = np.iinfo(kind).max

    def feed(first, second, step):
        return {"ids": np.array([[3, first], [3, second]], kind), "step": np.array([step], kind), "x": x}

    for values in ((4, -5, 3), (0, 1, 2**31 - 1)):
        for one, other in zip(session.run(None, feed(*values)), reference.run(None, feed(*values)), strict=True):
            np.testing.assert_allclose(one, other, **CLOSE)
    with caplog.at_level(logging.INFO, "unpool"):
        np.testing.assert_allclose(
            session.run(["z"], feed(0, 0, largest))[0], reference.run(["z"], feed(0, 0, largest))[0], **CLOSE
        )
    assert ("step is not in" in caplog.text) == (kind == "int64")
    for wrong in (5, -6, largest):
        with pytest.raises(unpool.UnpoolError, match="indices element out of data bounds"):
            session.run(None, feed(0, wrong, 0))


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_pads_that_repeat_elements_run_on_openvino(mode):
    """Their value means nothing, fed or not, and pads behind a Cast of constants are constants: results are equal."""
    made = models.model(
        f"""net (float[1, 2, 5] x, float v) => (float[1, 2, 8] y) {{
            p = Cast <to = 7> (pads) a = Pad <mode = "{mode}"> (x, p, v) y = Relu (a) }}""",
        pads=np.int32([0, 0, 1, 0, 0, 2]),
    )
    session = by_openvino(made)
    assert {record.runner for record in session.plan} == {"openvino"}
    feed = {"x": models.random(1, 2, 5), "v": np.array(7, np.float32)}
    (expected,) = onnxruntime.InferenceSession(made.SerializeToString(), providers=[CPU]).run(None, feed)
    np.testing.assert_array_equal(session.run(None, feed)[0], expected)


def test_a_partition_that_openvino_refuses(monkeypatch):
    """What OpenVINO itself says is the reason."""
    monkeypatch.setattr(openvino_backend, "core", refusing)
    assert "not on OpenVINO: no such layer" in str(by_openvino(conv()).plan)


def refusing(*_):
    raise RuntimeError("Exception from src/core.cpp:7:\nCheck 'false' failed at src/a.cpp:9:\nno such layer.\n")


def test_options_that_openvino_cannot_honour():
    """Without any optimisation of onnxruntime, OpenVINO, which always optimises, runs nothing."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert "graph_optimization_level says not to" in str(by_openvino(conv(), sess_options=options).plan)


def growing():
    """Doubles height and width, which are open, by sizes that it computes."""
    return models.model(
        """net (float[n, 3, h, w] x) => (float[n, 3, a, b] y, int64[4] s) {
            r = Relu (x) s = Shape (r) e = Slice (s, two, far) d = Mul (e, twos) c = Slice (s, zero, two)
            all = Concat <axis = 0> (c, d) y = Resize <mode = "nearest"> (r, , , all) }""",
        zero=np.int64([0]), two=np.int64([2]), twos=np.int64([2, 2]), far=np.int64([2**63 - 1]),
    )  # fmt: skip


def test_sizes_that_change_between_runs(monkeypatch, caplog):
    """Sizes that a model leaves open may differ in every run; onnxruntime has those that come late."""
    monkeypatch.setattr(openvino_backend, "MAX_SHAPES", 3)
    session = by_openvino(growing())
    expected = onnxruntime.InferenceSession(growing().SerializeToString(), providers=[CPU])
    assert set(runners(session).values()) == {"openvino"}
    feeds = [{"x": models.random(1, 3, 4 + n % 5, 7, seed=n)} for n in range(20)]
    with ThreadPoolExecutor(4) as pool:
        for feed, got in zip(feeds, pool.map(lambda feed: session.run(None, feed), feeds), strict=True):
            for ours, theirs in zip(got, expected.run(None, feed), strict=True):
                np.testing.assert_array_equal(ours, theirs, strict=True)
    (partition,) = session._model._loaded_plan.steps
    assert len(partition._compiled) == 3
    assert partition._ort_partition is not None


@pytest.mark.parametrize(
    ("nodes", "shapes"),
    [("r = Relu (x) z = Add (r, y)", [(2, 3), (5, 3)]), ("z = Concat <axis = 1> (x, y)", [(2, 3), (5, 3)])],
)
def test_sizes_that_do_not_fit_together(nodes, shapes):
    """OpenVINO would read beyond the arrays; the session says what is wrong, and runs on."""
    session = by_openvino(models.model(f"net (float[a, 3] x, float[b, 3] y) => (float[c, d] z) {{ {nodes} }}"))
    wrong, right = ({"x": models.random(*x), "y": models.random(*y)} for x, y in (shapes, shapes[:1] * 2))
    assert "openvino" in runners(session).values()
    with pytest.raises(unpool.UnpoolError, match="cannot run it on these inputs"):
        session.run(None, wrong)
    assert session.run(None, right)[0].shape[0] == 2


def test_nothing_goes_in_and_comes_out():
    """An empty batch runs on onnxruntime."""
    assert by_openvino(growing()).run(None, {"x": models.random(0, 3, 4, 5)})[0].shape == (0, 3, 8, 10)


def test_runs_at_the_same_time_do_not_meet():
    """Every run has a request of OpenVINO for itself, which later runs take up again."""
    made, barrier = conv(size="40, 40"), threading.Barrier(3)
    session, plain = by_openvino(made), onnxruntime.InferenceSession(made.SerializeToString(), providers=[CPU])
    feeds = [{"x": models.random(1, 3, 40, 40, seed=n)} for n in range(3)]

    def runs(feed):
        barrier.wait(60)
        return [session.run(None, feed)[0] for _ in range(20)]

    with ThreadPoolExecutor(3) as pool:
        for feed, found in zip(feeds, pool.map(runs, feeds), strict=True):
            for got in found:
                np.testing.assert_allclose(got, plain.run(None, feed)[0], **CLOSE)
    (partition,) = session._model._loaded_plan.steps
    (compiled,) = partition._compiled.values()
    assert 1 <= len(compiled._idle) <= 3


@pytest.mark.parametrize("size", ["6, 6", "h, w"])
def test_nothing_is_copied(size, monkeypatch):
    """OpenVINO reads the caller's array, also one that may not be written, and what it wrote is what comes back."""
    seen, tensor = [], package().Tensor

    def noted(*arguments, **words):
        made = tensor(*arguments, **words)
        seen.append(made)
        return made

    session, x = by_openvino(conv(size=size)), models.random(1, 3, 6, 6)
    x.flags.writeable = False
    monkeypatch.setattr(package(), "Tensor", noted)
    (y,) = session.run(None, {"x": x})
    assert [one.data.ctypes.data for one in seen] == [x.ctypes.data, y.ctypes.data]
    kept = y.copy()
    seen.clear()
    session.run(None, {"x": x + 1})
    del session
    gc.collect()
    np.testing.assert_array_equal(y, kept)
    assert y.flags.writeable


def test_inputs_of_any_layout_are_read():
    """Arrays with gaps, backward ones and single numbers are read as they are meant, and none is changed."""
    made = models.model("net (float[2, 3] x, float s) => (float[2, 3] y) { r = Relu (x) y = Mul (r, s) }")
    x = models.random(6, 4)[::-3, 1:]
    before = x.copy()
    (y,) = by_openvino(made).run(None, {"x": x, "s": np.array(2, np.float32)})
    np.testing.assert_array_equal(y, 2 * np.maximum(before, 0))
    np.testing.assert_array_equal(x, before)


def test_bound_memory_is_written():
    """An output that is bound to an array is written there; so is one whose size nobody knew before."""
    for size in ("6, 6", "h, w"):
        session, x, y = by_openvino(conv(size=size)), models.random(1, 3, 6, 6), np.zeros((1, 8, 6, 6), np.float32)
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, session.run(None, {"x": x})[0])


def test_bodies_have_partitions_on_openvino():
    """What is beside our operators in the body of a Loop runs on OpenVINO too."""
    session = by_openvino(models.loop())
    inner = [record for record in session.plan if record.subgraph_steps and record.runner != "unpool"]
    assert inner
    assert all(record.runner == "openvino" or "not on OpenVINO" in record.reason for record in inner)


def test_a_conv_stays_with_openvino(monkeypatch):
    """Unpool computes a Conv where that saves time beside onnxruntime; OpenVINO is as fast."""
    monkeypatch.setattr(convert_conv, "STEP_COST", -(10**9))
    made = models.model(
        """net (float[1, 2, 4, 4] x, float[1, 2, 3, 4, 4] v) => (float[1, 2, 2, 2] y, float[1, 2, 1, 2, 2] z) {
            y = Conv (x, w) z = Conv (v, k) }""",
        w=models.random(2, 2, 3, 3),
        k=models.random(2, 2, 3, 3, 3),
    )
    assert runners(by_openvino(made)) == {"Conv": "openvino"}
    assert runners(unpool.InferenceSession(made)) == {"ConvTranspose": "unpool"}


def test_weights_in_files(tmp_path):
    """Weights beside the model are found."""
    made = models.model(
        "net (float[1, 40, 8, 8] x) => (float[1, 40, 8, 8] y) { y = Conv <pads = [1, 1, 1, 1]> (x, w) }",
        w=models.random(40, 40, 3, 3),
    )
    feed = {"x": models.random(1, 40, 8, 8)}
    path = models.save_with_external_data(made, tmp_path)
    session = by_openvino(path)
    assert runners(session) == {"Conv": "openvino"}
    (expected,) = unpool.InferenceSession(path, threads=1).run(None, feed)
    np.testing.assert_allclose(session.run(None, feed)[0], expected, **CLOSE)


@pytest.mark.parametrize("is_in_file", [False, True])
def test_large_weights_are_in_memory_once(is_in_file, tmp_path, monkeypatch):
    """OpenVINO reads them where they are; sizes that it does not get run on onnxruntime with the same weights."""
    monkeypatch.setattr(openvino_backend, "MAX_SHAPES", 1)
    made = models.model(
        """net (float[1, 40, h, 8] x) => (float[1, 40, k, 8] y, float[40, 40, 3, 3] z) {
            y = Conv <pads = [1, 1, 1, 1]> (x, w) z = Relu (w) }""",
        w=models.random(40, 40, 3, 3),
    )
    onnx.save(made, tmp_path / "model.onnx")
    source = tmp_path / "model.onnx" if is_in_file else made
    session = by_openvino(source)
    partition = next(step for step in session._model._loaded_plan.steps if isinstance(step, OpenVinoPartition))
    constants = [node for node in partition._model.get_ops() if node.get_type_name() == "Constant"]
    _, arrays = partition._content
    assert [array.shape for array in arrays.values()] == [(40, 40, 3, 3)]
    assert arrays["w"].ctypes.data in [constant.data.ctypes.data for constant in constants]
    for size in (8, 5):
        feed = {"x": models.random(1, 40, size, 8)}
        outputs = session.run(None, feed)
        for ours, theirs in zip(outputs, unpool.InferenceSession(made, threads=1).run(None, feed), strict=True):
            np.testing.assert_allclose(ours, theirs, **CLOSE)
    assert partition._content is None


def test_an_operator_newer_than_openvino_knows():
    """An opset that only renumbers operators is no reason to refuse."""
    newest = onnx.defs.onnx_opset_version()
    assert runners(by_openvino(conv(opset=newest, ir=10)))["Conv"] == "openvino"


def test_an_error_of_openvino_while_it_runs(monkeypatch):
    """It is an error of ours that names the partition."""
    session = by_openvino(conv())
    monkeypatch.setattr(openvino_backend, "package", refusing)
    with pytest.raises(unpool.UnpoolError, match=r"'Conv->c' to 'Relu->y': OpenVINO cannot run .*: no such layer\."):
        session.run(None, {"x": models.random(1, 3, 6, 6)})


def test_a_run_that_is_told_to_stop():
    """RunOptions.terminate ends a run before a partition begins."""
    told = onnxruntime.RunOptions()
    told.terminate = True
    with pytest.raises(unpool.UnpoolError, match="terminate"):
        by_openvino(conv()).run(None, {"x": models.random(1, 3, 6, 6)}, told)


def test_a_session_says_who_ran(tmp_path, monkeypatch):
    """Providers, their options, the nodes of each and the profile name OpenVINO, and so does a pickled session."""
    monkeypatch.chdir(tmp_path)
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = unpool.InferenceSession(
        conv(), options, ASKED, [{"NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False}, {}], threads=1
    )
    assert session.get_providers() == ["UnpoolExecutionProvider", *ASKED]
    assert session.get_provider_options()[OPENVINO] == {"NUM_STREAMS": "1", "ENABLE_CPU_PINNING": "False"}
    assert [part.ep_name for part in session.get_provider_graph_assignment_info()] == [OPENVINO]
    session.run(None, {"x": models.random(1, 3, 6, 6)})
    events = json.loads(Path(session.end_profiling()).read_bytes())
    assert OPENVINO in {event["args"].get("provider") for event in events}
    again = pickle.loads(pickle.dumps(by_openvino(conv())))
    assert runners(again) == {"Conv": "openvino", "Relu": "openvino"}
    again.set_providers([CPU])
    assert runners(again) == {"Conv": "onnxruntime", "Relu": "onnxruntime"}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"num_of_threads": 2}, "got num_of_threads. Choose from CACHE_DIR, "),
        ({"INFERENCE_PRECISION_HINT": "f7"}, "INFERENCE_PRECISION_HINT that its CPU device takes, got 'f7'"),
    ],
)
def test_wrong_properties(told, said):
    """A property that the device has not, or a value that it does not take, is an error that says so."""
    with pytest.raises(unpool.UnpoolError, match=said):
        unpool.InferenceSession(conv(), providers=[(OPENVINO, told), CPU])


def test_openvino_gets_partitions_where_it_stands_first():
    """Behind another provider it gets none, as in the list of all that are available."""
    for asked in (unpool.get_available_providers(), [CPU, OPENVINO]):
        session = unpool.InferenceSession(conv(), providers=asked)
        assert OPENVINO in asked
        assert OPENVINO not in session.get_providers()
        assert "openvino" not in runners(session).values()


def test_openvino_that_is_not_installed(monkeypatch, tmp_path):
    """A warning says how to install it; the command ends with 4."""
    for module in (providers, openvino_backend):
        monkeypatch.setattr(module, "is_installed", lambda: False)
    with pytest.warns(UserWarning, match=r"'OpenVINO' is not available.*pip install '\.\[openvino\]'"):
        session = unpool.InferenceSession(conv(), providers=ASKED)
    assert session.get_providers()[1:] == [CPU]
    path = tmp_path / "net.onnx"
    onnx.save(conv(), path)
    done = CliRunner().invoke(app, ["inspect", str(path), "--provider", "openvino"])
    assert (done.exit_code, ".[openvino]" in done.output) == (UNSUPPORTED, True)


def test_the_provider_of_onnxruntime_for_openvino_is_another():
    """Its name is left to builds of onnxruntime that have it; others warn, and name ours."""
    with pytest.warns(UserWarning, match="'OpenVINOExecutionProvider' is not available.*ask for 'OpenVINO'"):
        session = unpool.InferenceSession(conv(), providers=["OpenVINOExecutionProvider", CPU])
    assert session.get_providers()[1:] == [CPU]


def test_the_command_runs_partitions_on_openvino(tmp_path):
    """`run` and `inspect` take the provider."""
    path, fed, made = tmp_path / "net.onnx", tmp_path / "x.npy", tmp_path / "y.npy"
    onnx.save(conv(), path)
    np.save(fed, models.random(1, 3, 6, 6))
    shown = CliRunner().invoke(app, ["inspect", str(path), "--provider", "openvino", "--json"])
    assert {row["runner"] for row in json.loads(shown.output)["plan"]} == {"openvino"}
    ran = CliRunner().invoke(app, ["run", str(path), "-i", str(fed), "-o", str(made), "--provider", "openvino"])
    assert ran.exit_code == OK, ran.output
    (expected,) = by_openvino(conv()).run(None, {"x": np.load(fed)})
    np.testing.assert_allclose(np.load(made), expected, **CLOSE)


def test_nobody_is_told_of_the_import():
    """OpenVINO's report of its import to its makers is not loaded, and can be imported by others afterwards."""
    code = """if True:
        import sys, unpool
        from unpool.runtime.backends.openvino_backend import OpenVinoPartition, package
        package()
        assert "openvino_telemetry" not in sys.modules
        import openvino_telemetry"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


KEPT_INDICES = {
    "twice": ("ScatterElements <axis = 1> (r, i, u)", [[0, 0], [1, 2]]),
    "negative": ("ScatterElements <axis = 1> (r, i, u)", [[0, -1], [1, 2]]),
    "outside": ("GatherElements <axis = 1> (r, i)", [[0, 3], [1, 2]]),
    "added": ('ScatterElements <axis = 1, reduction = "add"> (r, i, u)', [[0, 1], [1, 2]]),
    "rows twice": ("ScatterND (r, i, v)", [[1], [1]]),
    "places outside": ("GatherND (r, i)", [[0, 3], [1, 2]]),
    "places negative": ("GatherND (r, i)", [[0, -1], [1, 2]]),
    "outside of a batch": ("GatherND <batch_dims = 1> (r, i)", [[3], [2]]),
}


@pytest.mark.peers
@pytest.mark.parametrize("name", KEPT_INDICES)
def test_indices_that_openvino_may_read_otherwise_stay(name):
    """It does not check them, and has an order of its own where an element is written twice."""
    node, indices = KEPT_INDICES[name]
    graph = f"net (float[2, 3] x) => (float[n, m] y) {{ r = Exp (x) y = {node} }}"
    updates = {"u": models.random(2, 2), "v": models.random(2, 3)}
    session = unpool.InferenceSession(models.model(graph, i=np.int64(indices), **updates), providers=ASKED)
    assert "openvino" not in runners(session).values()


@pytest.mark.peers
def test_large_and_computed_constant_indices_go_to_openvino():
    """It computes them once and then they are checked, however large they are."""
    indices = np.arange(40 * 40).reshape(40, 40) % 5
    graph = "net (float[2, 5] x) => (float[n, m, k] y) { r = Exp (x) j = Add (i, one) y = Gather <axis = 1> (r, j) }"
    x = models.random(2, 5)
    for one in (0, -5):
        session = unpool.InferenceSession(models.model(graph, i=indices, one=np.int64(one)), providers=ASKED)
        assert set(runners(session).values()) == {"openvino"}
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x)[:, indices + one], rtol=1e-6)
    kept = "net (float[2, 5] x) => (float[n, m, k] y) { j = Add (i, one) t = Gather (c, j) y = Exp (t) z = Add (x, x) }"
    for one, places in ((0, indices), (-5, indices - 5), (1, None)):
        constants = {"i": indices, "one": np.int64(one), "c": models.random(5)}
        session = unpool.InferenceSession(models.model(kept, **constants), providers=ASKED)
        if places is None:
            with pytest.raises(unpool.UnpoolError, match="Gather"):
                session.run(None, {"x": x})
        else:
            np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(constants["c"][places]), rtol=1e-6)
    outside = unpool.InferenceSession(models.model(graph, i=indices, one=np.int64(1)), providers=ASKED)
    with pytest.raises(unpool.UnpoolError, match="Gather"):
        outside.run(None, {"x": x})


@pytest.mark.peers
@pytest.mark.parametrize(
    ("number", "runner"), [(2**30, "openvino"), (2**31 - 5, "onnxruntime"), (2**40, "onnxruntime")]
)
def test_integers_that_are_constant_are_computed_before(number, runner):
    """With operators that OpenVINO does not compute beforehand, too; those of 2**31 or more stay with onnxruntime."""
    made = models.model(
        """net (float[5] x) => (float[2] y, float[2] z) {
            t = ReduceSum <keepdims = 0> (c) f = Cast <to = 1> (t) r = Mul (x, f)
            p = GatherElements (i, j) y = Gather (r, p) k = Gather (r, q) z = Exp (k) }""",
        c=np.int64([number, 10]),
        i=np.int64([3, -4, 2]),
        j=np.int64([1, 2]),
        q=np.int64([0, 1]),
    )
    session = unpool.InferenceSession(made, providers=ASKED)
    assert set(runners(session).values()) == {"openvino" if number + 10 < 2**31 else "onnxruntime"}
    x = np.float32([1, 2, 3, 4, 5]) / np.float32(number)
    y, z = session.run(None, {"x": x})
    np.testing.assert_allclose(y, x[[-4, 2]] * np.float32(number + 10), rtol=1e-5)
    np.testing.assert_allclose(z, np.exp(x[:2] * np.float32(number + 10)), rtol=1e-5)


CEILED = {
    "a part of a window": (9, "MaxPool", "kernel_shape = [3], strides = [2]"),
    "padding": (8, "MaxPool", "kernel_shape = [4], strides = [2], pads = [1, 1]"),
    "smaller windows": (10, "MaxPool", "kernel_shape = [2], strides = [2]"),
    "whole windows": (9, "MaxPool", "kernel_shape = [1], strides = [4]"),
    "averages": (9, "AveragePool", "kernel_shape = [3], strides = [2]"),
    "averages of padding": (8, "AveragePool", "kernel_shape = [4], strides = [2], pads = [1, 1]"),
    "with padding": (6, "AveragePool", "kernel_shape = [3], pads = [1, 1], strides = [5], count_include_pad = 1"),
}


@pytest.mark.peers
@pytest.mark.parametrize("name", CEILED)
def test_pools_with_ceil_mode_where_it_adds_no_other_window(name):
    """Results are onnxruntime's, in every size that OpenVINO gets."""
    size, operator, given = CEILED[name]
    made = models.model(
        f"net (float[1, 2, {size}] x) => (float y) {{ r = Exp (x) y = {operator} <ceil_mode = 1, {given}> (r) }}"
    )
    session = by_openvino(made)
    assert set(runners(session).values()) == {"openvino"}
    feed = {"x": models.random(1, 2, size)}
    np.testing.assert_allclose(session.run(None, feed)[0], unpool.InferenceSession(made).run(None, feed)[0], **CLOSE)


@pytest.mark.peers
def test_averages_of_any_size_run_where_ceil_mode_adds_no_window(caplog):
    """Other sizes are onnxruntime's."""
    made = models.model(
        """net (float[1, 1, n] x) => (float[1, 1, m] y) {
            r = Exp (x) y = AveragePool <kernel_shape = [2], ceil_mode = 1, strides = [2]> (r) }"""
    )
    session, reference = by_openvino(made), unpool.InferenceSession(made)
    assert set(runners(session).values()) == {"openvino"}
    for length in (6, 7):
        feed = {"x": models.random(1, 1, length)}
        with caplog.at_level(logging.INFO, "unpool"):
            np.testing.assert_allclose(session.run(None, feed)[0], reference.run(None, feed)[0], **CLOSE)
        assert ("counted otherwise with ceil_mode" in caplog.text) == (length == 7)


@pytest.mark.peers
@pytest.mark.parametrize("size", ["7", "n"])
def test_pads_that_are_computed_from_sizes(size):
    """As those of convolutions over sound that are causal; another size pads by another number."""
    made = models.model(
        f"""net (float[1, 1, {size}] x) => (float[1, 1, m] y) {{
            s = Shape <start = 2> (x) d = Div (s, two) e = Mul (d, two) f = Sub (s, e) z = Mul (f, zero)
            p = Concat <axis = 0> (z, z, f, z, z, d) t = Exp (x) y = Pad <mode = "reflect"> (t, p) }}""",
        two=np.int64([2]),
        zero=np.int64([0]),
        opset=18,
    )
    session = by_openvino(made)
    assert set(runners(session).values()) == {"openvino"}
    for length in (7, 8, 10) if size == "n" else (7,):
        feed = {"x": models.random(1, 1, length)}
        expected = np.pad(np.exp(feed["x"]), ((0, 0), (0, 0), (length % 2, length // 2)), mode="reflect")
        np.testing.assert_allclose(session.run(None, feed)[0], expected, **CLOSE)


@pytest.mark.peers
def test_a_time_step_that_is_repeated_goes_to_openvino():
    """It is multiplied by ones; another factor may leave the range."""
    for factor in (1, 2):
        made = models.model(
            "net (int64[1] s, float[3] x) => (float[3] y) { m = Mul (s, c) t = Cast <to = 1> (m) y = Add (x, t) }",
            c=np.int64([factor] * 3),
        )
        session = by_openvino(made)
        assert set(runners(session).values()) == {"openvino" if factor == 1 else "onnxruntime"}
        x = models.random(3)
        np.testing.assert_allclose(session.run(None, {"s": np.int64([7]), "x": x})[0], x + 7 * factor, **CLOSE)
