"""Decomposed unpoolings become MaxUnpool again, in a session and by `unpool fix`, and results stay as they are."""

import json
from collections import Counter
from functools import cache

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import unpool
from tests.cases import decomposed
from tests.cases.decomposed import RoundTrip, by_hand
from tests.support import models, networks
from tests.support.command import invoke
from tests.support.library_sessions import plain_session
from tests.support.passes import steps
from unpool.cli.errors import OK, UNFIT, UNSUPPORTED, USAGE
from unpool.errors import UnsupportedError
from unpool.operators.semantics import Semantics
from unpool.passes import fuse_unpool
from unpool.runtime.rewrite.fix import fix
from unpool.runtime.runtimes import unpool_session

STATIC = {
    "1-D": (RoundTrip(1, True, 2), (2, 3, 7)),
    "1-D without a batch": (RoundTrip(1, True, 2), (3, 7)),
    "2-D": (RoundTrip(2, False, 2), (2, 3, 8, 6)),
    "2-D odd, sized": (RoundTrip(2, True, 2), (2, 3, 7, 9)),
    "2-D k3s2p1": (RoundTrip(2, True, 3, 2, 1), (2, 3, 7, 9)),
    "2-D ceil": (RoundTrip(2, True, 2, ceil_mode=True), (1, 3, 5, 7)),
    "2-D one plane": (RoundTrip(2, True, 2), (1, 1, 5, 6)),
    "2-D without a batch": (RoundTrip(2, True, 2), (3, 7, 9)),
    "3-D k3s2p1": (RoundTrip(3, True, 3, 2, 1), (2, 3, 5, 4, 3)),
    "3-D without a batch": (RoundTrip(3, True, 2), (2, 5, 4, 3)),
}
DYNAMIC = {
    "1-D": (RoundTrip(1, True, 2), (2, 3, 8), (0, 2), (3, 3, 9)),
    "2-D": (RoundTrip(2, True, 2), (2, 3, 8, 6), (0, 2, 3), (3, 3, 9, 7)),
    "2-D k3s2p1": (RoundTrip(2, True, 3, 2, 1), (2, 3, 8, 6), (0, 2, 3), (1, 3, 5, 7)),
    "2-D ceil": (RoundTrip(2, True, 2, ceil_mode=True), (2, 3, 8, 6), (0, 2, 3), (1, 3, 3, 3)),
    "2-D batch": (RoundTrip(2, True, 2), (2, 3, 8, 6), (0,), (4, 3, 8, 6)),
    "2-D inferred": (RoundTrip(2, False, 2), (2, 3, 8, 6), (0, 2, 3), (3, 3, 10, 4)),
    "2-D without a batch": (RoundTrip(2, True, 2), (3, 8, 6), (1, 2), (3, 9, 7)),
    "3-D": (RoundTrip(3, True, 2), (2, 3, 4, 6, 8), (0, 2, 3, 4), (1, 3, 5, 7, 3)),
}


@cache
def exported(name, dynamic=False):
    """The network of a case, its input, its model as torch writes it."""
    network, shape, *axes = DYNAMIC[name] if dynamic else STATIC[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    return network, x, decomposed.export(network, x, axes[0] if axes else None)


def written(model, **settings):
    """A session in which decomposed unpoolings run node by node."""
    return unpool_session(model, Semantics(**settings), {"fuse_unpool"})


def operators(session):
    return Counter(one.operator for one in steps(session))


def types_of(model):
    return Counter(node.op_type for node in model.graph.node)


def assert_all_agree(model, network, x, *more):
    """The session, the session of the model as written, onnxruntime and torch give the same bits."""
    expected = network(x).detach().numpy()
    raised, as_written = unpool.InferenceSession(model, exact=True), written(model, exact=True)
    for session in (raised, as_written, plain_session(model), *more):
        (y,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_array_equal(y, expected)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", STATIC)
def test_sessions_raise_what_torch_decomposes(name):
    """One MaxPool, one MaxUnpool and no second pool are left, and the bits are those of torch and onnxruntime."""
    network, x, model = exported(name)
    counts = operators(unpool.InferenceSession(model))
    assert (counts["MaxPool"], counts["MaxUnpool"]) == (1, 1)
    assert not counts.keys() & {"ScatterND", "ConstantOfShape", "Slice", "Sub", "Add", "Mod"}
    assert_all_agree(model, network, x)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", DYNAMIC)
def test_sessions_raise_dynamic_sizes(name):
    """The same with sizes that are known at run time only, for another size too."""
    network, x, model = exported(name, dynamic=True)
    counts = operators(unpool.InferenceSession(model))
    assert (counts["MaxPool"], counts["MaxUnpool"], counts["ScatterND"]) == (1, 1, 0)
    assert_all_agree(model, network, x)
    assert_all_agree(model, network, torch.randn(DYNAMIC[name][3]))


def test_the_plan_says_what_was_raised():
    """The MaxUnpool is unpool's, has the name of the ScatterND, and its reason names it."""
    session = unpool.InferenceSession(exported("2-D")[2])
    (record,) = (one for one in steps(session) if one.operator == "MaxUnpool")
    assert record.runner == "unpool"
    assert record.node.startswith("node_ScatterND")
    assert record.text.endswith(f"; fused from ScatterND {record.node!r}")


@pytest.mark.sample(2)
@pytest.mark.parametrize("dynamic", [None, (0, 2, 3)])
def test_a_segnet_is_raised_at_every_level(dynamic):
    """Three levels with odd sizes between them: an unpooling may be recognised only after the one before it."""
    network, x = networks.build("SegNet")
    model = decomposed.export(network, x, dynamic)
    session = unpool.InferenceSession(model)
    counts = operators(session)
    assert (counts["MaxPool"], counts["MaxUnpool"], counts["ScatterND"]) == (3, 3, 0)
    feed = {"x": x.numpy()}
    np.testing.assert_array_equal(session.run(None, feed)[0], written(model).run(None, feed)[0])


def test_planes_of_another_size_keep_their_offsets():
    """Without output_size an odd plane is read again at a narrower width: Mod and Add stay, the second pool goes."""
    network = RoundTrip(2, False, 2)
    x = torch.zeros(2, 3, 7, 9)
    x[:, :, :3, ::2] = torch.arange(90.0).reshape(2, 3, 3, 5) + 1
    model = decomposed.export(network, x)
    counts = operators(unpool.InferenceSession(model))
    assert [counts[name] for name in ("MaxPool", "MaxUnpool", "Mod", "Add", "Sub")] == [1, 1, 1, 1, 0]
    assert_all_agree(model, network, x)


@pytest.mark.parametrize("options", [{"compat": "ort"}, {"index_space": "inferred"}, {"index_space": "output"}])
def test_how_maxunpool_is_read_does_not_matter_to_what_was_raised(options):
    """A ScatterND counts in its output under every option of the session."""
    network, x, model = exported("2-D k3s2p1", dynamic=True)
    (y,) = unpool.InferenceSession(model, **options).run(None, {"x": x.numpy()})
    np.testing.assert_array_equal(y, network(x).numpy())


def without_zeros(fill):
    """The model by hand whose zeros, or other numbers, a simplifier has folded into a constant."""
    model = by_hand()
    kept = [node for node in model.graph.node if node.output[0] not in ("empty", "data")]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(144, fill, np.float32), "data"))
    return model


def offsets(nodes, size="8", window="kernel_shape = [2], strides = [2]"):
    """Indices of a pool less those of a second pool, in whatever arrangement."""
    return models.model(
        f"""g (float[1, 2, {size}] x) => (float[1, 2, n] y, int64[a, b, c] i) {{
            y, whole = MaxPool <{window}> (x)
            _, ones = MaxPool <kernel_shape = [1]> (x)
            first = Slice (ones, zero, one, two)
            {nodes}
        }}""",
        zero=np.int64([0]), one=np.int64([1]), two=np.int64([2]), cube=np.int64([2, 2, 2]),
    )  # fmt: skip


MAY_BE_PADDING = {"nodes": "i = Sub (whole, first)", "window": "kernel_shape = [2], dilations = [3], pads = [1, 1]"}
EDGES = """g (float[1, 1, h, w] x) => (float[1, 1, h, w] y) {
    m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x) y = Sub (m, x)
}"""
FORMS = {
    "as it is written": (by_hand(), {"MaxPool": 1, "MaxUnpool": 1}),
    "constant zeros": (without_zeros(0), {"MaxPool": 1, "MaxUnpool": 1}),
    "constant ones": (without_zeros(1), {"ScatterND": 1, "MaxUnpool": 0}),
    "a fill of one": (by_hand(fill="<value = float[1] {1}>"), {"ScatterND": 1, "MaxUnpool": 0}),
    "negative zero": (by_hand(fill="<value = float[1] {-0.0}>"), {"ScatterND": 1, "MaxUnpool": 0}),
    "a reduction": (by_hand(scatter='ScatterND <reduction = "add">', opset=18), {"ScatterND": 1, "MaxUnpool": 0}),
    "another reader": (
        by_hand(outputs="float[2, 3, 4, 6] y, float[k] t", end="y = Reshape (s, shape) t = Relu (s)"),
        {"ScatterND": 1, "MaxUnpool": 0},
    ),
    "indices inside planes": (by_hand(offsets=np.int64([0])), {"ScatterND": 1, "MaxUnpool": 0}),
    "another end": (by_hand(end="t = Relu (s) y = Reshape (t, shape)"), {"ScatterND": 1, "MaxUnpool": 0}),
    "another slice": (
        by_hand(begin="two = Add (ones2, ones2) first = Slice (ones, ones2, two, axes)"),
        {"Sub": 1},
    ),
    "a second pool with a window": (by_hand(other="MaxPool <kernel_shape = [2, 2]>"), {"Sub": 1}),
    "a second pool with a stride": (by_hand(other="MaxPool <kernel_shape = [1, 1], strides = [2, 2]>"), {"Sub": 1}),
    "columns": (by_hand(other="MaxPool <kernel_shape = [1, 1], storage_order = 1>"), {"Sub": 1}),
    "offsets of other planes": (
        by_hand(offsets=np.arange(6).reshape(2, 3, 1, 1) * 12), {"MaxPool": 1, "Mod": 1, "Add": 1, "MaxUnpool": 1},
    ),
    "unknown indices with offsets of other planes": (
        by_hand(begin="first = Abs (whole)", offsets=np.arange(6).reshape(2, 3, 1, 1) * 12),
        {"ScatterND": 1, "MaxUnpool": 0},
    ),
    "offsets along an axis that is half a plane": (
        offsets("halves = Reshape (whole, cube) i = Sub (halves, first)"), {"Sub": 1},
    ),
    "windows of padding only": (offsets(**MAY_BE_PADDING, size="2"), {"Sub": 1}),
    "windows that may be so": (offsets(**MAY_BE_PADDING, size="size"), {"Sub": 1}),
    "windows that meet data": (offsets(**MAY_BE_PADDING, size="4"), {"Sub": 0}),
    "planes without elements": (offsets("i = Sub (whole, first)", size="0"), {"Sub": 1}),
    "maxima without indices": (models.model(EDGES), {"Sub": 1}),
}  # fmt: skip
"""Models, and how many of some operators a session has: what is no unpooling, or has other offsets, stays."""

NOT_COMPARED = (
    "another slice", "unknown indices with offsets of other planes", "windows of padding only",
    "planes without elements",
)  # fmt: skip
"""Indices that leave the output, which onnxruntime refuses; equal ones; maxima of padding, its own lowest number; and a
pool of nothing, which it refuses."""


@pytest.mark.parametrize("name", FORMS)
def test_other_forms_stay(name):
    """What is not surely an unpooling, or an offset of planes, is computed as it is written: results are equal."""
    model, expected = FORMS[name]
    session = unpool.InferenceSession(model)
    counts = operators(session)
    assert {operator: counts[operator] for operator in expected} == expected
    if name in NOT_COMPARED:
        return
    feed = {"x": models.random(*(size if isinstance(size, int) else 6 for size in session.get_inputs()[0].shape))}
    for got, other in zip(session.run(None, feed), plain_session(model).run(None, feed), strict=True):
        np.testing.assert_array_equal(got, other)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", STATIC)
def test_fix_writes_models_that_every_runtime_reads_alike(name):
    """The new model is valid, has one pool and one unpooling, and onnx's ReferenceEvaluator agrees too."""
    network, x, model = exported(name)
    before = model.SerializeToString()
    done = fix(model)
    assert model.SerializeToString() == before
    onnx.checker.check_model(done.model, full_check=True)
    counts = types_of(done.model)
    assert (counts["MaxPool"], counts["MaxUnpool"]) == (1, 1)
    assert not counts.keys() & {"ScatterND", "Sub", "Slice", "Add"}
    assert [value.name for value in (*done.model.graph.input, *done.model.graph.output)] == ["x", "y"]
    read = {name for node in done.model.graph.node for name in node.input}
    assert {tensor.name for tensor in done.model.graph.initializer} <= read
    assert done.problems == ()
    more = () if "1-D" in name or "k3" in name or "3-D" in name else (ReferenceEvaluator(done.model),)
    assert_all_agree(done.model, network, x, *more)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", DYNAMIC)
def test_fix_writes_dynamic_models(name):
    """With dynamic sizes the new model runs in onnxruntime for other sizes as well."""
    network, x, model = exported(name, dynamic=True)
    done = fix(model)
    assert types_of(done.model)["MaxUnpool"] == 1
    assert types_of(done.model)["MaxPool"] == 1
    assert_all_agree(done.model, network, x)
    assert_all_agree(done.model, network, torch.randn(DYNAMIC[name][3]))


def test_fix_reports_each_change():
    """What was there, what is there now, and where."""
    done = fix(by_hand(offsets=np.arange(6).reshape(2, 3, 1, 1) * 12))
    assert [(one.node, one.before, one.after) for one in done.changes] == [
        ("ScatterND->s", "ScatterND into zeros", "MaxUnpool-11 (kernel_shape=[2, 2], strides=[2, 2])"),
        ("Sub->plane", "MaxPool of window 1, Slice and Sub", "Mod by the size of a plane, 24"),
    ]


def test_what_fix_does_is_verified(monkeypatch):
    """A pass that gets the size of a plane wrong is caught by the random inputs."""
    monkeypatch.setattr(fuse_unpool, "as_int", lambda size: 7)
    with pytest.raises(UnsupportedError, match="rewritten model"):
        fix(by_hand(offsets=np.arange(6).reshape(2, 3, 1, 1) * 12))


def test_fix_says_that_onnxruntime_could_not_be_compared():
    """Onnxruntime has no MaxUnpool for float64, so the first model does not run there, and the output says so."""
    model = models.model(
        f"""planar (double[1, 2, 4, 4] x) => (double[n, c, h, w] y) {{
            p, i = MaxPool <{models.POOL}> (x)
            q = Mod (i, plane)
            y = MaxUnpool <{models.POOL}> (p, q)
        }}""",
        plane=np.int64([16]),
    )
    done = fix(model)
    (note,) = done.notes
    assert note.startswith("compared in unpool only, because onnxruntime does not run the first model: ")
    assert str(done).splitlines()[-1] == note
    assert fix(planar()).notes == ()


def test_fix_does_not_take_a_model_away_from_onnxruntime():
    """Onnxruntime scatters float64 but has no MaxUnpool for it: the file stays, the session raises."""
    model = decomposed.export(RoundTrip(2, True, 2).double(), torch.randn(1, 2, 5, 4, dtype=torch.float64))
    with pytest.raises(UnsupportedError, match="onnxruntime runs the first one, but not this one"):
        fix(model)
    assert operators(unpool.InferenceSession(model))["MaxUnpool"] == 1


POOL = models.POOL


def planar(
    take="q = Mod (i, plane)", shape="", size="2, 3, 8, 6", pool=POOL, opset=17, plane=48, unpool=POOL, **constants
):
    """A pool whose indices are taken down to planes and given to a MaxUnpool as they are: the pasted workaround."""
    return models.model(
        f"""planar (float[{size}] x) => (float[n, c, h, w] y) {{
            p, i = MaxPool <{pool}> (x)
            {take}
            r = Relu (p)
            y = MaxUnpool <{unpool}> (r, q{shape})
        }}""",
        opset=opset,
        plane=np.int64([plane]),
        **constants,
    )


def meant(x, shape):
    """What a planar model was meant to compute."""
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, whole_indices = unpool.max_pool(x, **window, return_indices=True)
    planes = unpool.to_torch_indices(whole_indices, x.shape[2:])
    indices = unpool.to_onnx_indices(planes, shape[2:])
    return unpool.max_unpool(np.maximum(y, 0), indices, shape, **window, index_space="output")


SHAPE = ", s"
SECOND_POOL = """_, ones = MaxPool <kernel_shape = [1, 1]> (x)
    first = Slice (ones, zeros2, ones2, axes) q = Sub (i, first)"""
SECOND = {"zeros2": np.int64([0, 0]), "ones2": np.int64([1, 1]), "axes": np.int64([2, 3])}
PLANAR = {
    "Mod": (planar(), (2, 3, 8, 6), (2, 3, 8, 6)),
    "second pool": (planar(SECOND_POOL, **SECOND), (2, 3, 8, 6), (2, 3, 8, 6)),
    "output_shape": (planar(shape=SHAPE, size="2, 3, 7, 5", plane=35, s=np.int64([2, 3, 7, 5])),
                     (2, 3, 7, 5), (2, 3, 7, 5)),
    "other planes": (planar(shape=SHAPE, size="2, 3, 7, 7", plane=49, s=np.int64([2, 3, 9, 9])),
                     (2, 3, 7, 7), (2, 3, 9, 9)),
    "dynamic": (planar("t = Shape <start = 2> (x) a = Gather (t, at0) b = Gather (t, at1) z = Mul (a, b) q = Mod (i, z)"
                       " s = Shape (x)", SHAPE, size="n, 3, h, w", at0=np.int64([0]), at1=np.int64([1])),
                (2, 3, 5, 7), (2, 3, 5, 7)),
    "dynamic other planes": (planar("t = Shape <start = 2> (x) a = Gather (t, at0) b = Gather (t, at1) z = Mul (a, b) "
                                    "q = Mod (i, z) v = Shape (x) s = Add (v, two)", SHAPE, size="n, 3, h, w",
                                    at0=np.int64([0]), at1=np.int64([1]), two=np.int64([0, 0, 2, 2])),
                             (2, 3, 5, 7), (2, 3, 7, 9)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANAR)
def test_fix_adds_the_offsets_of_planes(name):
    """Per-plane indices given to MaxUnpool count in the whole tensor afterwards, in onnxruntime too."""
    model, size, shape = PLANAR[name]
    x = models.random(*size)
    expected = meant(x, shape)
    done = fix(model)
    assert done.changes[0].before == "MaxUnpool-11 of indices inside planes"
    assert not np.array_equal(unpool.InferenceSession(model).run(None, {"x": x})[0], expected)
    for session in (unpool.InferenceSession(done.model, index_space="output"), plain_session(done.model)):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize(
    "model",
    [models.segnet(), planar(size="1, 1, 8, 6"), planar(plane=96)],
    ids=["a clean model", "one plane, where both conventions are the same", "a remainder of another size"],
)
def test_fix_leaves_what_needs_no_change(model):
    """The model comes back with its nodes."""
    done = fix(model)
    assert (done.changes, done.problems) == ((), ())
    assert done.model.graph.node == model.graph.node


UNCERTAIN = models.model(
    f"""fed (float[1, 2, 2, 2] x, int64[1, 2, 2, 2] i) => (float[1, 2, 5, 5] y)
    {{ r = Relu (x) y = MaxUnpool <{POOL}> (r, i, s) }}""",
    s=np.int64([1, 2, 5, 5]),
)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (planar(size="2, 3, 7, 9", plane=63), "expected indices inside their planes"),
        (planar(pool=f"{POOL}, storage_order = 1"), "storage_order 1"),
        (UNCERTAIN, "not certain which of the two"),
    ],
    ids=["indices that leave an odd plane", "columns", "indices of unknown origin, and two sizes to count in"],
)
def test_fix_refuses_what_it_cannot_put_right(model, words):
    """Nothing is changed or guessed, and the message has the reason."""
    with pytest.raises(UnsupportedError, match=words):
        fix(model)


def test_fix_fits_the_window_to_output_shape():
    """Indices of the pool, output_shape its input, another inferred size: a window makes all readings the same."""
    model = models.model(
        f"""odd (float[2, 3, 7, 9] x) => (float[2, 3, 7, 9] y)
        {{ p, i = MaxPool <{POOL}> (x) r = Relu (p) y = MaxUnpool <{POOL}> (r, i, s) }}""",
        s=np.int64([2, 3, 7, 9]),
    )
    x = models.random(2, 3, 7, 9)
    done = fix(model)
    assert [one.after for one in done.changes] == ["MaxUnpool-11 (kernel_shape=[3, 3], strides=[2, 2])"]
    expected = unpool.InferenceSession(model, index_space="output").run(None, {"x": x})[0]
    readings = [unpool.InferenceSession(done.model, index_space=one) for one in ("auto", "output", "inferred")]
    for session in (*readings, plain_session(done.model), ReferenceEvaluator(done.model)):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


@pytest.fixture
def here(here):
    onnx.save(by_hand(), "model.onnx")
    return here


def test_cli_fix_can_run_dry(here):
    """A dry run reports the same as JSON, and writes nothing."""
    done = invoke("fix", "model.onnx", "-o", "fixed.onnx", "--dry-run", "--json")
    assert done.exit_code == OK
    told = json.loads(done.stdout)
    assert (told["output"], told["problems"], [one["node"] for one in told["changes"]]) == (None, [], ["ScatterND->s"])
    assert [path.name for path in here.iterdir()] == ["model.onnx"]


def test_cli_fix_writes_nothing_on_refusal(here):
    """No output named, a model that cannot be put right, no such model: exit codes 2, 4, 3, and no file."""
    onnx.save(planar(size="2, 3, 7, 9", plane=63), "wrong.onnx")
    before = sorted(here.iterdir())
    assert invoke("fix", "model.onnx").exit_code == USAGE
    assert invoke("fix", "wrong.onnx", "-o", "fixed.onnx").exit_code == UNSUPPORTED
    assert invoke("fix", "missing.onnx", "-o", "fixed.onnx").exit_code == UNFIT
    assert sorted(here.iterdir()) == before


def test_cli_fix_says_what_it_left(here):
    """A model that is put right in part is written, and the rest is named."""
    onnx.save(PLANAR["other planes"][0], "model.onnx")
    done = invoke("fix", "model.onnx", "-o", "fixed.onnx")
    assert done.exit_code == OK
    lines = done.stdout.splitlines()
    assert lines[0].startswith("MaxUnpool->y: MaxUnpool-11 of indices inside planes -> ")
    assert lines[1].startswith("MaxUnpool->y: not changed: output_shape [9, 9] is not the inferred [6, 6]")


def test_indices_out_of_range_are_refused_where_torch_refuses_them():
    """ScatterND counts negative indices from the end; a raised unpooling refuses them, as torch does."""
    model = models.model(
        """decoder (float[1, 2, 2] x, int64[1, 2, 2] i) => (float[1, 2, 4] y) {
            j = Add (i, offsets)
            k = Reshape (j, minus)
            places = Unsqueeze (k, minus)
            values = Reshape (x, minus)
            empty = ConstantOfShape (shape)
            data = Reshape (empty, minus)
            s = ScatterND (data, places, values)
            y = Reshape (s, shape)
        }""",
        minus=np.int64([-1]),
        shape=np.int64([1, 2, 4]),
        offsets=np.int64([[[0], [4]]]),
    )
    session = unpool.InferenceSession(model)
    assert operators(session) == {"Add": 1, "MaxUnpool": 1}
    feed = {"x": models.random(1, 2, 2), "i": np.int64([[[0, 2], [1, 3]]])}
    np.testing.assert_array_equal(session.run(None, feed)[0], plain_session(model).run(None, feed)[0])
    with pytest.raises(InvalidArgument, match="indices need values from 0 to 7"):
        session.run(None, feed | {"i": np.int64([[[-1, 2], [1, 3]]])})


def test_another_window_than_the_pools_is_explained():
    """Sizes that the pool's window does not lead to give another one, and the change says for which size."""
    _, _, odd = exported("2-D odd, sized")
    _, _, even = exported("2-D")

    assert [one.after for one in fix(odd).changes if "MaxUnpool" in one.after] == [
        "MaxUnpool-11 (kernel_shape=[3, 3], strides=[2, 2]; 3x3 rather than the pool's 2x2, for the odd size 7x9)"
    ]
    assert [one.after for one in fix(even).changes if "MaxUnpool" in one.after] == [
        "MaxUnpool-11 (kernel_shape=[2, 2], strides=[2, 2])"
    ]
    assert "3x3 rather than the pool's 2x2" in "\n".join(map(str, unpool.check(odd)))
