"""If, Loop, Scan and SequenceMap, whose bodies unpool plans and runs as it does a model."""

import gc
import threading
from unittest.mock import patch

import numpy as np
import onnxruntime
import pytest
from numpy.testing import assert_array_equal
from onnx.reference import ReferenceEvaluator

import unpool
from tests.support import models
from unpool.kernels.cpu.conv_transpose import winograd
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.onnx_reference import new_ops
from unpool.runtime.passes import convert_conv
from unpool.runtime.plan import placement
from unpool.runtime.plan.placement import Assignment
from unpool.runtime.plan.subgraphs import has_unpool_subgraphs
from unpool.runtime.session.executor import load_as_session
from unpool.runtime.session.session import FallbackWarning

X = models.random(2, 3)
TIMES = {"n": np.array(3, np.int64), "go": np.array(True), "x": X}
ADD = "body = b (int64 i, bool on, float[2, 3] c) => (bool off, float[2, 3] d, float[2, 3] s)"
STEP = "{ off = Identity (on) d = Add (c, x) s = Mul (c, c) }"
LOOP = f"<{ADD} {STEP}>"
BATCHES = models.random(2, 4, 3)

CASES = {
    "If, true": (
        """g (bool k, float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {
            y, z = If (k) <then_branch = a () => (float[2, 3] p, float[2, 3] q) { p = Neg (x) q = Abs (x) },
                else_branch = b () => (float[2, 3] r, float[2, 3] s) { r = Abs (x) s = Identity (x) }>
        }""",
        {"k": np.array(True), "x": X},
    ),
    "If, false, of one element": (
        """g (bool[1] k, float[2, 3] x) => (float[2, 3] y) {
            y = If (k) <then_branch = a () => (float[2, 3] p) { p = Neg (x) },
                else_branch = b () => (float[2, 3] r) { r = Identity (x) }>
        }""",
        {"k": np.array([False]), "x": X},
    ),
    "If in If": (
        """g (bool k, bool l, float[2, 3] x) => (float[2, 3] y) {
            y = If (k) <then_branch = a () => (float[2, 3] p) {
                n = Neg (x)
                p = If (l) <then_branch = c () => (float[2, 3] q) { q = Add (n, x) },
                    else_branch = d () => (float[2, 3] r) { r = Sub (n, x) }> },
                else_branch = b () => (float[2, 3] t) { t = Identity (x) }>
        }""",
        {"k": np.array(True), "l": np.array(False), "x": X},
    ),
    "If of constants": (
        """g (bool k) => (float[2] y) {
            y = If (k) <then_branch = a () => (float[2] p) { p = Constant <value_floats = [1.0, 2.0]> () },
                else_branch = b () => (float[2] r) { r = Constant <value_floats = [3.0, 4.0]> () }>
        }""",
        {"k": np.array(False)},
    ),
    "Loop, count and condition": (
        f"g (int64 n, bool go, float[2, 3] x) => (float[2, 3] y, float[k, 2, 3] z) {{ y, z = Loop (n, go, x) {LOOP} }}",
        TIMES,
    ),
    "Loop, never": (
        f"g (int64 n, bool go, float[2, 3] x) => (float[2, 3] y, float[k, 2, 3] z) {{ y, z = Loop (n, go, x) {LOOP} }}",
        {**TIMES, "n": np.array(0, np.int64)},
    ),
    "Loop, a condition that is false": (
        f"g (int64 n, bool go, float[2, 3] x) => (float[2, 3] y, float[k, 2, 3] z) {{ y, z = Loop (n, go, x) {LOOP} }}",
        {**TIMES, "go": np.array(False)},
    ),
    "Loop, a negative count": (
        f"g (int64 n, bool go, float[2, 3] x) => (float[2, 3] y, float[k, 2, 3] z) {{ y, z = Loop (n, go, x) {LOOP} }}",
        {**TIMES, "n": np.array(-2, np.int64)},
    ),
    "Loop, a count of one element": (
        "g (int64[1] n, bool[1] go, float[2, 3] x) => (float[2, 3] y, float[k, 2, 3] z) { y, z = Loop (n, go, x) "
        f"{LOOP.replace('int64 i', 'int64[1] i').replace('bool o', 'bool[1] o')} }}",
        {**TIMES, "n": np.array([2], np.int64), "go": np.array([True])},
    ),
    "Loop, only a count": (
        f"g (int64 n, bool go, float[2, 3] x) => (float[2, 3] y, float[k, 2, 3] z) "
        f"{{ y, z = Loop (n, nothing, x) {LOOP} }}",
        TIMES,
    ),
    "Loop, while": (
        """g (float[] x, bool go) => (float[] y, int64[k] z) {
            y, z = Loop (nothing, go, x) <body = b (int64 i, bool on, float[] c) => (bool off, float[] d, int64[] s) {
                d = Add (c, c) s = Identity (i) top = Constant <value_float = 100.0> () off = Less (d, top) }>
        }""",
        {"x": np.array(3, np.float32), "go": np.array(True)},
    ),
    "Loop, sizes that grow": (
        """g (int64 n, bool go, float[k] x) => (float[m] y) {
            y = Loop (n, go, x) <body = b (int64 i, bool on, float[k] c) => (bool off, float[m] d) {
                off = Identity (on) d = Concat <axis = 0> (c, c) }>
        }""",
        {**TIMES, "x": X[0]},
    ),
    "Loop, sizes that the body denies": (
        """g (int64 n, bool go, float[2] x) => (float[m] y) {
            y = Loop (n, go, x) <body = b (int64 i, bool on, float[2] c) => (bool off, float[2] d) {
                off = Identity (on) d = Concat <axis = 0> (c, c) }>
        }""",
        {**TIMES, "x": X[0, :2]},
    ),
    "Loop, two values that change places": (
        """g (int64 n, bool go, float[2, 3] x, float[4] w) => (float[h, l] y, float[p] z) {
            y, z = Loop (n, go, x, w) <
                body = b (int64 i, bool on, float[r, s] c, float[t] d) => (bool off, float[r, s] e, float[t] f) {
                    off = Identity (on) e = Identity (c) f = Neg (d) }>
        }""",
        {**TIMES, "w": X.ravel()[:4]},
    ),
    "Loop of a constant count in Loop": (
        """g (int64 n, bool go, float[2, 3] x) => (float[2, 3] y) {
            two = Constant <value_int = 2> ()
            yes = Constant <value = bool {1}> ()
            y = Loop (n, go, x) <body = b (int64 i, bool on, float[2, 3] c) => (bool off, float[2, 3] d) {
                off = Identity (on)
                d = Loop (two, yes, c) <body = e (int64 j, bool in, float[2, 3] p) => (bool out, float[2, 3] q) {
                    out = Identity (in)
                    k = Cast <to = 1> (i)
                    q = Add (p, k) }> }>
        }""",
        TIMES,
    ),
    "Loop over strings": (
        """g (int64 n, bool go, string[2] x) => (string[2] y) {
            y = Loop (n, go, x) <body = b (int64 i, bool on, string[2] c) => (bool off, string[2] d) {
                off = Identity (on) d = Identity (c) }>
        }""",
        {**TIMES, "x": np.array(["a", "bc"], object)},
    ),
    "Loop that fills a sequence": (
        """g (int64 n, bool go, float[2, 3] x) => (seq(float[2, 3]) y) {
            none = SequenceEmpty <dtype = 1> ()
            y = Loop (n, go, none) <
                body = b (int64 i, bool on, seq(float[2, 3]) c) => (bool off, seq(float[2, 3]) d) {
                    off = Identity (on) d = SequenceInsert (c, x) }>
        }""",
        TIMES,
    ),
    "Scan": (
        """g (float[3] s, float[4, 3] x) => (float[3] t, float[4, 3] y) {
            t, y = Scan <num_scan_inputs = 1, body = b (float[3] c, float[3] e) => (float[3] d, float[3] o) {
                d = Add (c, e) o = Neg (d) }> (s, x)
        }""",
        {"s": X[0], "x": BATCHES[0]},
    ),
    "Scan, axes and directions": (
        """g (float[3] s, float[3, 4] x, float[4, 3] w) => (float[3] t, float[3, 4] y, float[4, 3] z) {
            t, y, z = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
                body = b (float[3] c, float[3] e, float[3] f) => (float[3] d, float[3] o, float[3] p) {
                    d = Add (c, e) o = Sub (d, f) p = Mul (c, f) }> (s, x, w)
        }""",
        {"s": X[0], "x": np.ascontiguousarray(BATCHES[0].T), "w": BATCHES[1]},
    ),
    "Scan, a state that is a slice": (
        """g (float[3] s, float[4, 3] x) => (float[3] t) {
            t = Scan <num_scan_inputs = 1, body = b (float[3] c, float[3] e) => (float[3] d) {
                d = Identity (e) }> (s, x)
        }""",
        {"s": X[0], "x": BATCHES[0]},
    ),
    "Scan over numbers": (
        """g (float s, float[4] x) => (float t, float[4] y) {
            t, y = Scan <num_scan_inputs = 1, body = b (float c, float e) => (float d, float o) {
                d = Add (c, e) o = Identity (d) }> (s, x)
        }""",
        {"s": np.array(1, np.float32), "x": BATCHES[0, :, 0].copy()},
    ),
}
BATCHED = """g (int64[2] l, float[2, 3] s, float[2, 4, 3] x) => (float[2, 3] t, float[2, 4, 3] y) {
    t, y = Scan <num_scan_inputs = 1, directions = [DIRECTION], body = b (float[3] c, float[3] e)
        => (float[3] d, float[3] o) { d = Add (c, e) o = Neg (d) }> (LENGTHS, s, x)
}"""
BATCHED_FEED = {"l": np.array([4, 2]), "s": X, "x": BATCHES}


def without_nothing(model):
    """The model, whose inputs called `nothing` are left out."""
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == "nothing":
                node.input[place] = ""
    return model


@pytest.fixture
def forced(monkeypatch):
    """Lets unpool run every node with bodies, whatever is in there."""

    def choose(node):
        return Assignment("unpool" if has_unpool_subgraphs(node) else "onnxruntime", "forced")

    monkeypatch.setattr(placement, "_assign_other", choose)


def assert_as_onnxruntime(model, feed):
    """The session gives what onnxruntime gives, to the bit, and its plan has nodes in bodies."""
    session = load_as_session(model, Semantics())
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    got = session.run(None, feed)
    assert any(one.subgraph_steps for one in session.plan) or not any(
        one.runner == "onnxruntime" for one in session.plan
    )
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        if isinstance(theirs, list):
            assert len(ours) == len(theirs)
            for one, other in zip(ours, theirs, strict=True):
                assert_array_equal(one, other, strict=True)
        else:
            assert_array_equal(ours, theirs, strict=True)


@pytest.mark.sample(5)
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("opset", [12, 17, 21])
@pytest.mark.parametrize("name", CASES)
def test_bodies_run_as_onnxruntime_runs_them(name, opset):
    """Counts, conditions, carried values, slices, axes and directions mean the same."""
    text, feed = CASES[name]
    if opset == 12 and ("string" in text or "seq(" in text):
        pytest.skip("this version has no such type")
    model = without_nothing(models.model(text, opset=opset))
    assert_as_onnxruntime(model, {one.name: feed[one.name] for one in model.graph.input})


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("lengths", ["l", "nothing"])
@pytest.mark.parametrize("direction", ["0", "1"])
def test_the_first_scan_has_batches(direction, lengths):
    """Scan-8 goes through every element of the batch up to its own length, and fills up with zeros."""
    text = BATCHED.replace("DIRECTION", direction).replace("LENGTHS", lengths)
    assert_as_onnxruntime(without_nothing(models.model(text, opset=8)), BATCHED_FEED)


@pytest.mark.usefixtures("forced")
def test_a_body_may_be_applied_to_sequences():
    """SequenceMap gives a sequence of what its body makes of each element."""
    model = models.model(
        """g (seq(float[k]) x, float[k] w) => (seq(float[k]) y, seq(float[k]) z) {
            y, z = SequenceMap (x, w) <body = b (float[k] e, float[k] f) => (float[k] o, float[k] p) {
                o = Add (e, f) p = Neg (e) }>
        }"""
    )
    feed = {"x": [X[0], X[1], X[0] * 2], "w": X[1]}
    assert_as_onnxruntime(model, feed)
    assert load_as_session(model, Semantics()).run(None, {**feed, "x": []}) == [[], []]


def test_a_condition_that_is_left_out():
    """Without a condition the text lets a Loop run to its count; onnxruntime, and `compat="ort"`, end it before."""
    model = without_nothing(
        models.model(
            """g (int64 n, float[1, 1, 4] x) => (float[1, 1, 4] y) {
                y = Loop (n, nothing, x) <
                    body = b (int64 i, bool on, float[1, 1, 4] c) => (bool off, float[1, 1, 4] d) {
                    off = Constant <value = bool {0}> ()
                    p, j = MaxPool <kernel_shape = [1]> (c)
                    d = Add (p, x) }>
            }"""
        )
    )
    feed = {"n": np.array(3), "x": models.random(1, 1, 4)}
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    assert_array_equal(unpool.InferenceSession(model, compat="ort").run(None, feed)[0], expected)
    x = feed["x"]
    assert_array_equal(unpool.InferenceSession(model).run(None, feed)[0], x + x + x + x)


POOLS = f"""pools (int64 n, bool go, float[1, 2, 8, 8] x) => (float[1, 2, 8, 8] y, float[k, 1, 2, 4, 4] z) {{
    y, z = Loop (n, go, x) <
        body = b (int64 i, bool on, float[1, 2, 8, 8] c) => (bool off, float[1, 2, 8, 8] d, float[1, 2, 4, 4] p) {{
            off = Identity (on)
            a = Relu (c)
            p, j = MaxPool <{models.POOL}> (a)
            u = MaxUnpool <{models.POOL}> (p, j)
            d = Sub (u, w)
        }}>
}}"""


def pools():
    """A Loop that pools and unpools, with weights from around it."""
    return models.model(POOLS, w=models.random(1, 2, 8, 8))


def test_a_loop_around_our_nodes():
    """What the evaluator computes with our nodes, step by step of the body's own plan."""
    model, feed = pools(), {"n": np.array(3), "go": np.array(True), "x": models.random(1, 2, 8, 8, seed=3)}
    session = unpool.InferenceSession(model)
    y, z = session.run(None, feed)
    evaluator = ReferenceEvaluator(model, new_ops=new_ops(17))
    expected = evaluator.run(None, feed)
    assert_array_equal(y, expected[0])
    assert_array_equal(z, expected[1].reshape(z.shape))
    assert [(one.place, one.node, one.runner) for one in session.plan] == [
        ("0", "Loop->y", "unpool"),
        ("0.0", "Identity->off", "onnxruntime"),
        ("0.0", "Relu->a", "onnxruntime"),
        ("0.1", "MaxPool->p", "unpool"),
        ("0.2", "MaxUnpool->u", "unpool"),
        ("0.3", "Sub->d", "onnxruntime"),
    ]
    assert "0.1" in str(session.plan)


def test_passes_change_bodies_too():
    """An activation in a branch becomes part of a ConvTranspose."""
    model = models.model(
        """g (bool k, float[1, 2, 4] x) => (float[1, 3, m] y) {
            y = If (k) <then_branch = a () => (float[1, 3, m] p) { t = ConvTranspose (x, w) p = Relu (t) },
                else_branch = b () => (float[1, 3, m] q) { q = ConvTranspose (x, w) }>
        }""",
        w=models.random(2, 3, 2),
    )
    session = unpool.InferenceSession(model)
    reasons = [one.reason for one in session.plan if one.subgraph_steps]
    assert len(reasons) == 2
    assert reasons[0].endswith("with Relu->p folded in")
    x = models.random(1, 2, 4)
    taken, other = (session.run(None, {"k": np.array(k), "x": x})[0] for k in (True, False))
    assert_array_equal(taken, np.maximum(other, 0))


def test_branches_share_constant_weights():
    """Weights from around several bodies are one array."""
    model = models.model(
        """g (bool k, float[1, 2, 4] x) => (float[1, 3, m] y) {
            y = If (k) <then_branch = a () => (float[1, 3, m] p) { p = ConvTranspose (x, w) },
                else_branch = b () => (float[1, 3, m] q) { n = Neg (x) q = ConvTranspose (n, w) }>
        }""",
        w=models.random(2, 3, 2),
    )
    session = unpool.InferenceSession(model)
    (step,) = session._model._loaded_plan.steps
    found = [
        entry.loaded._sources[1]
        for body in step.subgraphs.values()
        for entry in body._schedule
        if hasattr(entry.loaded, "_spec")
    ]
    assert len(found) == 2
    assert found[0] is found[1]


def test_outputs_of_bodies_are_arrays_of_their_own():
    """A Loop that never runs, and an If that hands on what it captures, give copies of what the caller fed."""
    model, x = pools(), models.random(1, 2, 8, 8)
    y, z = unpool.InferenceSession(model).run(None, {"n": np.array(0), "go": np.array(True), "x": x})
    assert_array_equal(y, x)
    assert not np.shares_memory(y, x)
    assert (z.shape, z.dtype) == ((0, 1, 2, 4, 4), np.float32)
    y[...] = 0
    gc.collect()
    assert np.any(x)


def test_errors_in_bodies_name_the_node():
    """Values that a node in a body refuses are said to be refused by that node."""
    model = models.model(
        f"""g (bool k, float[1, 1, 4, 4] x, int64[1, 1, 2, 2] i) => (float[1, 1, 4, 4] y) {{
            y = If (k) <then_branch = a () => (float[1, 1, 4, 4] p) {{
                q = MaxPool <{models.POOL}> (x) p = MaxUnpool <{models.POOL}> (q, i) }},
                else_branch = b () => (float[1, 1, 4, 4] r) {{ r = Identity (x) }}>
        }}"""
    )
    session = unpool.InferenceSession(model)
    feed = {"k": np.array(True), "x": models.random(1, 1, 4, 4), "i": np.full((1, 1, 2, 2), 99)}
    with pytest.raises(unpool.IndicesError, match="MaxUnpool->p"):
        session.run(None, feed)


def test_conditions_have_one_element():
    """Several are refused, and the node is named."""
    model = models.conditional()
    model.graph.input[0].type.tensor_type.shape.dim.add().dim_param = "n"
    session = unpool.InferenceSession(model)
    with pytest.raises(unpool.ShapeError, match=r"If node 'If->picked': expected a condition of one element"):
        session.run(None, {"keep": np.array([True, False]), "x": models.random(1, 2, 6, 6)})


def test_a_loop_without_end_is_told_to_stop():
    """`RunOptions.terminate` ends a Loop that has neither a count nor a condition."""
    text = POOLS.replace("Loop (n, go, x)", "Loop (nothing, nothing, x)").replace("int64 n, bool go, ", "")
    model = without_nothing(models.model(text, w=models.random(1, 2, 8, 8)))
    session, options = unpool.InferenceSession(model), onnxruntime.RunOptions()
    timer = threading.Timer(0.2, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(unpool.UnpoolError, match=r"RunOptions.terminate|[Tt]erminat"):
        session.run(None, {"x": models.random(1, 2, 8, 8)}, options)
    timer.join()


def test_only_refused_nodes_of_a_body_leave_onnxruntime():
    """A float64 Conv in a body is the evaluator's, the plan says so, and one warning does; the rest stays."""
    model = models.model(
        """g (bool k, double[1, 1, 4] x) => (double[1, 1, 4] y) {
            y = If (k) <then_branch = a () => (double[1, 1, 4] p) {
                    c = Conv (x, w) p, i = MaxPool <kernel_shape = [1]> (c) },
                else_branch = b () => (double[1, 1, 4] q) { q = Neg (x) }>
        }""",
        w=np.full((1, 1, 1), 2.0),
    )
    with pytest.warns(FallbackWarning, match="'Conv->c'") as caught:
        session = unpool.InferenceSession(model)
    assert len(caught) == 1
    assert {one.node: one.runner for one in session.plan} == {
        "If->y": "unpool", "Conv->c": "reference", "MaxPool->p": "unpool", "Neg->q": "onnxruntime",
    }  # fmt: skip
    x = models.random(1, 1, 4, dtype=np.float64)
    assert_array_equal(session.run(None, {"k": np.array(True), "x": x})[0], x * 2)


CONV = "Conv <pads = [1, 1, 1, 1]>"
HEAVY = "float[1, 64, 40, 40]"


def weights():
    """Weights of a convolution that is worth turning."""
    return models.random(64, 64, 3, 3) / np.float32(24)


def turned(body):
    """Which nodes of bodies were converted from a Conv."""
    with patch.multiple(convert_conv, CUT_COST=0, LEAST_GAIN=0):  # as for larger weights
        plan = unpool.InferenceSession(models.model(body, w=weights())).plan
    return [one.node for one in plan if "converted from" in one.reason]


def looped(body, outputs=f"{HEAVY} d"):
    """A Loop that carries `c` to `d`."""
    return f"""g (int64 n, bool go, {HEAVY} x) => ({HEAVY} y) {{
        y = Loop (n, go, x) <body = b (int64 i, bool on, {HEAVY} c) => (bool off, {outputs}) {{
            off = Identity (on) {body} }}>
    }}"""


POOL_AND_BACK = f"p, j = MaxPool <{models.POOL}> (c) u = MaxUnpool <{models.POOL}> (p, j)"


def test_a_convolution_in_a_body_is_turned_behind_all_choices():
    """Not where a pool with Indices reads it, be it in the next iteration or behind the Loop."""
    again = looped(f"{POOL_AND_BACK} d = {CONV} (u, w)")
    assert turned(again) == []
    free = f"""g (bool k, {HEAVY} x) => ({HEAVY} y) {{
        v = If (k) <then_branch = a () => ({HEAVY} p) {{
            q, i = MaxPool <{models.POOL}> (x) u = MaxUnpool <{models.POOL}> (q, i) p = {CONV} (u, w) }},
            else_branch = b () => ({HEAVY} r) {{ r = Identity (x) }}>
        END
    }}"""
    assert turned(free.replace("END", "y = Neg (v)")) == ["Conv->p"]
    behind = f"s, t = MaxPool <{models.POOL}> (v) y = MaxUnpool <{models.POOL}> (s, t)"
    assert turned(free.replace("END", behind)) == []


def test_exact_sessions_form_every_product_in_bodies_too():
    """exact=True turns no Conv in a body, gives a ConvTranspose no tiles, and takes every pool."""
    text = f"""g (bool k, {HEAVY} x) => ({HEAVY} y) {{
        y = If (k) <then_branch = a () => ({HEAVY} p) {{
            c = {CONV} (x, w)
            m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (c)
            p = ConvTranspose <pads = [1, 1, 1, 1]> (m, w) }},
            else_branch = b () => ({HEAVY} r) {{ r = Identity (x) }}>
    }}"""
    model = models.model(text, w=weights())
    quick = {one.node: one for one in unpool.InferenceSession(model).plan}
    assert quick["ConvTranspose->p"].reason.endswith("by winograd")
    with patch.multiple(convert_conv, CUT_COST=0, LEAST_GAIN=0):
        session = unpool.InferenceSession(model, exact=True)
    exact = {one.node: one for one in session.plan}
    assert (exact["Conv->c"].runner, exact["MaxPool->m"].runner) == ("onnxruntime", "unpool")
    assert exact["ConvTranspose->p"].reason.endswith("by phases")
    with patch.object(winograd, "launch", side_effect=AssertionError):
        session.run(None, {"k": np.array(True), "x": models.random(1, 64, 40, 40)})


def test_many_bodies_load_and_free():
    """A chain of Ifs around pools has one step each, and every body is there once."""
    count = 40
    lines = "\n".join(
        f"v{at + 1} = If (k) <then_branch = a{at} () => (float[1, 1, 4] p{at}) "
        f"{{ p{at} = MaxPool <kernel_shape = [1]> (v{at}) }}, "
        f"else_branch = b{at} () => (float[1, 1, 4] q{at}) {{ q{at} = Neg (v{at}) }}>"
        for at in range(count)
    )
    text = f"g (bool k, float[1, 1, 4] v0) => (float[1, 1, 4] v{count}) {{ {lines} }}"
    session = unpool.InferenceSession(models.model(text))
    assert len(session.plan.steps) == count
    assert len(session.plan) == 3 * count
    x = models.random(1, 1, 4)
    assert_array_equal(session.run(None, {"k": np.array(False), "v0": x})[0], x)
