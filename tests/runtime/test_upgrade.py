"""Models rewritten to another opset or to explicit pads: the same results, here and in onnxruntime, or a refusal."""

from dataclasses import replace
from functools import partial

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import unpool
from tests.operators.test_shapes import open_sizes, valid, with_constants
from tests.support import models
from tests.support.command import invoke
from tests.support.runners import assert_outputs, is_model
from unpool.cli.errors import USAGE
from unpool.graph.nodes import attributes, is_unpool_op, with_subgraph_nodes
from unpool.runtime.rewrite import canonicalise as canonicalising
from unpool.runtime.rewrite.canonicalise import canonicalise
from unpool.runtime.rewrite.upgrade import upgrade
from unpool.runtime.rewrite.window_forms import Form

SEEDS = range(900)
FALLBACK = pytest.mark.filterwarnings("ignore::unpool.onnxruntime.errors.FallbackWarning")
MODES = ("", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def in_onnxruntime(model, feed):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)


def in_session(model, feed, **options):
    return unpool.InferenceSession(model, exact=True, **options).run(None, feed)


def everywhere(model, feed):
    """The outputs in unpool, read in both ways, and in onnxruntime."""
    return in_session(model, feed), in_session(model, feed, compat="ort"), in_onnxruntime(model, feed)


def assert_close(got, expected):
    """Two lists of outputs are the same but for rounding."""
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def grow(attributes, *, opset=22, size="3", kernel=3, kind=np.float32, bias=True, weights=None):
    """A Relu, then a ConvTranspose of one axis, with a bias so that extension cells can be told."""
    names = {np.float32: "float", np.float16: "float16", np.float64: "double"}
    w = models.random(2, 3, kernel, dtype=kind, seed=3) if weights is None else weights
    return models.model(
        f"grow ({names[kind]}[1, 2, {size}] x) => ({names[kind]}[1, 3, l] y) "
        f"{{ r = Relu (x) y = ConvTranspose <{attributes}> (r, w{', b' if bias else ''}) }}",
        opset=opset,
        ir=10,
        w=w,
        **({"b": models.random(3, dtype=kind, seed=4)} if bias else {}),
    )


def pool(attributes, *, opset=22, size="7"):
    return models.model(
        f"pool (float[1, 2, {size}] x) => (float[1, 2, l] y, int64[1, 2, l] i) "
        f"{{ r = Abs (x) y, i = MaxPool <{attributes}> (r) }}",
        opset=opset,
        ir=10,
    )


def upgrade_to_22(model, **options):
    return upgrade(model, 22, **options)


def ours_in(model):
    """Attributes of the nodes of ours."""
    return [attributes(node) for node in with_subgraph_nodes(model.graph.node) if is_unpool_op(node)]


@pytest.mark.parametrize("opset", [10, 12, 17, 22])
def test_segnet_of_opset_9_becomes_any_newer_one(opset):
    """MaxPool-8, MaxUnpool-9 and the nodes between them become newer ones that onnxruntime runs with equal results."""
    model = models.segnet(opset=9)
    original = model.SerializeToString()
    done = upgrade(model, opset)
    x = models.random(1, 3, 12, 10)
    (expected,) = in_session(model, {"image": x})
    (got,) = in_onnxruntime(done.model, {"image": x})
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert model.SerializeToString() == original
    versions = {one.node: (one.before, one.after) for one in done.changes}
    if opset == 22:
        assert versions["MaxPool->p1"] == ("MaxPool-8", "MaxPool-22")
        assert versions["MaxUnpool->u2"] == ("MaxUnpool-9", "MaxUnpool-22")
        assert versions["BatchNormalization->n1"] == ("BatchNormalization-9", "BatchNormalization-15")


def ancient(opset):
    """A network of opset 1 or 6: axes by attribute, initializers that are inputs too, a ConvTranspose-1 on the side."""
    consumed = ", consumed_inputs = [0, 0, 0, 1, 1]" if opset < 6 else ""
    weights = {
        "w1": models.random(4, 3, 3, 3),
        "w2": models.random(4, 2, 3, 3),
        "shift": models.random(4),
        **models.batch_norm("n", 4),
    }
    model = models.model(
        f"""ancient (float[1, 3, 12, 10] x) => (float[1, 2, h, w] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            n = BatchNormalization <is_test = 1{consumed}> (c, ns, nb, nm, nv)
            a = Add <broadcast = 1, axis = 1> (n, shift)
            r = Relu (a)
            p = MaxPool <{models.POOL}, auto_pad = "SAME_LOWER"> (r)
            t = ConvTranspose <output_shape = [12, 11], strides = [2, 2]> (p, w2)
            y = Dropout <is_test = 1> (t)
        }}""",
        opset=opset,
        ir=3,
        **weights,
    )
    model.graph.input.extend(helper.make_tensor_value_info(name, 1, one.shape) for name, one in weights.items())
    return model


@pytest.mark.parametrize("opset", [1, 6])
def test_networks_of_the_oldest_opsets_become_22(opset):
    """Models that onnxruntime does not run at all become models that it runs, with the results of the session."""
    model = ancient(opset)
    done = upgrade(model, 22)
    assert "ConvTranspose-22 (pads=[0, 0, 1, 0])" in [one.after for one in done.changes]
    assert [value.name for value in done.model.graph.input] == ["x"]
    feed = {"x": models.random(1, 3, 12, 10)}
    np.testing.assert_allclose(in_onnxruntime(done.model, feed)[0], in_session(model, feed)[0], rtol=1e-4, atol=1e-4)
    (*_, explicit) = ours_in(canonicalise(model).model)
    assert explicit == {"pads": [0, 0, 1, 0], "strides": [2, 2]}


@pytest.mark.sample(11)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("asked", [3, 5, 6, 7, 8, 9, 14])
def test_conv_transpose_1_with_output_shape_becomes_22(mode, asked):
    """Even, odd and negative totals of version 1, whose larger half is on the other side, stay where they are."""
    model = grow(f'auto_pad = "{mode}", output_shape = [{asked}], strides = [2]', opset=9)
    done, feed = upgrade(model, 22), {"x": models.random(1, 2, 3)}
    for run in (in_session, partial(in_session, compat="ort"), *([in_onnxruntime] if asked < 9 else [])):
        assert_close(run(done.model, feed), in_session(model, feed))


def test_the_flipped_side_without_known_sizes():
    """Where pads would depend on an unknown size, the other auto_pad puts the larger half where version 1 had it."""
    model = grow("output_shape = [6], strides = [2]", opset=1, size="n")
    done = upgrade(model, 22, sizes={"n": 3})
    assert done.changes[0].after == "ConvTranspose-22 (auto_pad=SAME_UPPER)"
    for size in (2, 3, 4, 5):
        feed = {"x": models.random(1, 2, size)}
        assert_close(in_session(done.model, feed), in_session(model, feed))
    upper = grow('auto_pad = "SAME_UPPER", output_shape = [6], strides = [2]', opset=1, size="n")
    assert "auto_pad=SAME_LOWER" in upgrade(upper, 22, sizes={"n": 3}).changes[0].after


@pytest.mark.parametrize("given", ["pads = [0, 2], output_padding = [3]", "output_padding = [5]"])
def test_output_padding_beyond_the_bound_of_11(given):
    """Version 1 has no bound for output_padding; what 11 refuses becomes smaller pads, or zeros after X."""
    model, feed = grow(f"{given}, strides = [2]", opset=7), {"x": models.random(1, 2, 3)}
    done = upgrade(model, 22)
    for run in (in_session, in_onnxruntime):
        assert_close(run(done.model, feed), in_session(model, feed))


def test_forms_that_only_old_readers_take_are_tidied():
    """Pads beside what overrides them, N and M in output_shape and an empty auto_pad are not in the new version."""
    model = grow('auto_pad = "", pads = [1, 1], output_shape = [1, 3, 7], strides = [2]', opset=11)
    (after,) = ours_in(upgrade(model, 22).model)
    assert after == {"output_shape": [7], "strides": [2]}
    model = pool('auto_pad = "SAME_UPPER", pads = [0, 0], kernel_shape = [3], strides = [2]', opset=8)
    (after,) = ours_in(upgrade(model, 22).model)
    assert after == {"auto_pad": b"SAME_UPPER", "kernel_shape": [3], "strides": [2]}


EXPLICIT = [
    ('auto_pad = "SAME_UPPER", strides = [2]', 3, {"pads": [0, 1]}),
    ('auto_pad = "SAME_LOWER", strides = [2]', 3, {"pads": [1, 0]}),
    ('auto_pad = "SAME_LOWER", strides = [2], output_padding = [1]', 3, {"pads": [1, 0]}),
    ('auto_pad = "SAME_UPPER", strides = [4]', 1, {"output_padding": [3]}),
    ('auto_pad = "VALID", strides = [2], output_padding = [1]', 3, {"output_padding": [1]}),
    ('auto_pad = "VALID", strides = [2]', 3, {}),
    ("output_shape = [6], strides = [2]", 3, {"pads": [1, 0]}),
    ('auto_pad = "SAME_UPPER", output_shape = [6], strides = [2]', 3, {"pads": [0, 1]}),
    ("output_shape = [5], strides = [2]", 3, {"pads": [1, 1]}),
    ("output_shape = [8], strides = [2]", 3, {"output_padding": [1]}),
    ("output_shape = [9], strides = [2]", 3, {}),
    ("output_shape = [12], strides = [2]", 3, {"pads": [0, 1]}),
    ("output_shape = [8], dilations = [3], strides = [1]", 2, {"pads": [0, 0]}),
]


@pytest.mark.sample(7)
@pytest.mark.parametrize(("given", "kernel", "expected"), EXPLICIT)
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_conv_transpose_with_explicit_pads(given, kernel, expected, kind):
    """auto_pad and output_shape become pads and output_padding; a longer output comes from zeros after X."""
    model = grow(given, kernel=kernel, kind=kind)
    done = canonicalise(model)
    (after,) = ours_in(done.model)
    assert not {"auto_pad", "output_shape"} & after.keys()
    assert {name: after[name] for name in ("pads", "output_padding") if any(after.get(name, ()))} == {
        name: values for name, values in expected.items() if any(values)
    }
    feed = {"x": models.random(1, 2, 3, dtype=kind)}
    (wanted,) = in_session(model, feed)
    close = {"rtol": 1e-5, "atol": 1e-5} if kind == np.float32 else {"rtol": 2e-3, "atol": 2e-3}
    for got in everywhere(done.model, feed):
        assert got[0].shape == wanted.shape
        np.testing.assert_allclose(got[0].astype(float), wanted.astype(float), **close)


@pytest.mark.parametrize("opset", [7, 9, 12, 22])
def test_zeros_behind_x_in_every_form_of_pad(opset):
    """A longer output than output_padding allows is made by Pad as the model's opset writes it, and keeps the bias."""
    model = grow("output_shape = [15], strides = [2]", opset=opset)
    done = canonicalise(model)
    assert "after Pad by 4" in done.changes[0].after
    feed = {"x": models.random(1, 2, 3)}
    (expected,) = in_session(model, feed)
    assert np.array_equal(expected[0, :, -1], models.random(3, seed=4))
    for run in (in_session, in_onnxruntime):
        assert_close(run(done.model, feed), [expected])


def test_zeros_behind_x_channels_last():
    """In the channels-last domain the zeros go behind the spatial axes too, and the activation still comes last."""
    nhwc = models.NHWC
    model = models.model(
        f"""last (float[1, 3, 2] x) => (float[1, l, 3] y) {{
            r = Abs (x)
            y = {nhwc}.ConvTranspose <output_shape = [15], strides = [2], activation = "Relu"> (r, w, b)
        }}""",
        imports=f', "{nhwc}" : 11',
        w=models.random(2, 3, 3, seed=3),
        b=models.random(3, seed=4),
    )
    done = canonicalise(model)
    assert done.changes[0].after == f"ConvTranspose-11 ({nhwc}) after Pad by 4"
    feed = {"x": models.random(1, 3, 2)}
    assert_close(in_session(done.model, feed), in_session(model, feed))


def test_what_is_explicit_stays_as_it_is():
    """Nodes with pads of their own are not touched, whatever is unknown about them."""
    model = pool("kernel_shape = [2], strides = [2], ceil_mode = 1", size="n")
    done = canonicalise(model)
    assert done.changes == ()
    assert ours_in(done.model) == ours_in(model)
    assert canonicalise(grow("pads = [1, 0], output_padding = [1], strides = [2]", size="n")).changes == ()


@pytest.mark.parametrize(
    ("given", "size", "opset", "pads"),
    [
        ('auto_pad = "SAME_UPPER", kernel_shape = [3], strides = [2]', 7, 22, [1, 1]),
        ('auto_pad = "SAME_UPPER", kernel_shape = [2], strides = [2]', 7, 12, [0, 1]),
        ('auto_pad = "SAME_LOWER", kernel_shape = [2], strides = [2]', 7, 8, [1, 0]),
        ('auto_pad = "SAME_LOWER", kernel_shape = [4]', "n", 11, [2, 1]),
        ('auto_pad = "SAME_UPPER", kernel_shape = [2], strides = [4]', 8, 10, None),
        ('auto_pad = "SAME_LOWER", kernel_shape = [1], strides = [4], ceil_mode = 1', 7, 22, None),
        ('auto_pad = "VALID", kernel_shape = [2], strides = [2], ceil_mode = 1', 7, 22, None),
        ('auto_pad = "VALID", kernel_shape = [3], strides = [2]', "n", 22, None),
    ],
)
def test_max_pool_with_explicit_pads(given, size, opset, pads):
    """SAME and VALID become pads, with the same values and indices in unpool and in onnxruntime."""
    model = pool(given, opset=opset, size=str(size))
    done = canonicalise(model)
    (after,) = ours_in(done.model)
    assert after.get("pads") == pads
    assert not {"auto_pad", "ceil_mode"} & after.keys()
    feed = {"x": models.random(1, 2, 7 if size == "n" else size)}
    for got in everywhere(done.model, feed):
        for one, expected in zip(got, in_session(model, feed), strict=True):
            assert np.array_equal(one, expected)


def fed_weights():
    """W as an input that may be fed could hold infinities, so X is not made longer."""
    model = grow("output_shape = [15], strides = [2]")
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3, 3]))
    return model


INFINITE = np.full((2, 3, 3), np.inf, np.float32)
LONG_WINDOW = pool('auto_pad = "SAME_UPPER", kernel_shape = [2], dilations = [4]')


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (grow("output_shape = [6], strides = [2]", size="n"), "depends on the size of spatial axis 0 .* unknown .'n'"),
        (pool('auto_pad = "SAME_UPPER", kernel_shape = [3], strides = [2]', size="n"), "spatial axis 0 .* unknown"),
        (grow("output_shape = [15], strides = [2]", weights=INFINITE), "without infinities"),
        (fed_weights(), "Make W an initializer"),
        (LONG_WINDOW, "as ONNX Runtime reads them: .* pads below kernel_shape"),
        (pool('auto_pad = "VALID", kernel_shape = [9], strides = [4]'), "as ONNX Runtime reads them: spatial axis 0"),
    ],
)
def test_what_cannot_be_written_out_is_refused(model, words):
    """A size that is unknown, weights that zeros would spoil, a form that ONNX Runtime refuses: the node and why."""
    with pytest.raises(unpool.UnsupportedError, match=f"node '.*->y'.*{words}"):
        canonicalise(model)


@pytest.mark.parametrize(
    "given",
    [
        'auto_pad = "SAME_UPPER", strides = [4]',
        'auto_pad = "SAME_UPPER", strides = [4], output_padding = [1]',
        "output_shape = [6], strides = [2]",
        'auto_pad = "SAME_LOWER", output_shape = [6], strides = [2]',
    ],
)
@pytest.mark.parametrize("rewrite", [canonicalise, upgrade_to_22])
def test_a_conv_transpose_read_as_onnxruntime_does(given, rewrite):
    """Under compat="ort" the new form, read by the standard, is what ONNX Runtime made of the old one."""
    model = grow(given, opset=10, kernel=1 if "4" in given else 3)
    feed = {"x": models.random(1, 2, 3)}
    assert_close(in_session(rewrite(model, compat="ort").model, feed), in_onnxruntime(model, feed))


@pytest.mark.parametrize("opset", [10, 12])
def test_a_max_pool_read_as_onnxruntime_does(opset):
    """VALID with ceil_mode, and pads beside auto_pad, as ONNX Runtime reads them."""
    valid_ceil = pool('auto_pad = "VALID", kernel_shape = [2], strides = [2], ceil_mode = 1', opset=opset)
    ignored = pool('auto_pad = "SAME_UPPER", pads = [1, 1], kernel_shape = [3], strides = [2]', opset=opset)
    feed = {"x": models.random(1, 2, 7)}
    for model in (valid_ceil, ignored):
        expected = in_onnxruntime(model, feed)
        for done in (canonicalise(model, compat="ort"), upgrade(model, 22, compat="ort")):
            for one, other in zip(in_session(done.model, feed), expected, strict=True):
                assert np.array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(3))
@FALLBACK
def test_random_models_become_explicit(chunk):
    """Every random model either keeps what the oracle says, read in both ways, or is refused; most are not."""
    done = refused = 0
    for seed, case, _ in valid(SEEDS[300 * chunk : 300 * (chunk + 1)]):
        mode = case.attributes.get("auto_pad", "")
        is_implicit = mode not in ("", "NOTSET") or "output_shape" in case.attributes
        if case.operator == "MaxUnpool" or not is_implicit or not is_model(case):
            continue
        model, feed = with_constants(case)
        expected = tuple(in_session(model, feed, compat=case.compat))
        try:
            new = canonicalise(model, compat=case.compat).model
        except unpool.UnsupportedError:
            refused += 1
            continue
        for compat in ("spec", "ort"):
            assert_outputs(with_name(case, seed), tuple(in_session(new, feed, compat=compat)), expected)
        done += 1
    assert done > 6 * refused > 0


@pytest.mark.slow
@FALLBACK
def test_random_models_with_unknown_sizes():
    """With sizes left open, a rewritten model still gives the same for the sizes it is run on."""
    done = refused = 0
    for seed, case, _ in valid(SEEDS):
        if case.operator == "MaxUnpool" or not is_model(case) or (case.opset or 22) > 22:
            continue
        model, feed = with_constants(case)
        expected = tuple(in_session(model, feed, compat=case.compat))
        names = open_sizes(model, np.random.default_rng(seed))
        for rewrite in (canonicalise, upgrade_to_22):
            try:
                new = rewrite(model, compat=case.compat, sizes=names).model
            except unpool.UnsupportedError:
                refused += 1
                continue
            assert_outputs(with_name(case, seed), tuple(in_session(new, feed)), expected)
            done += 1
    assert done > 5 * refused > 0


def with_name(case, seed):
    """The case with a tolerance for sums in another order."""
    least = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}.get(case.inputs[0].dtype.name, 1e-10)
    return replace(case, name=f"seed {seed}: {case.name}", tolerance=max(case.tolerance, least))


def test_nodes_inside_bodies():
    """A ConvTranspose-1 in a branch, whose X is a value around it, is rewritten there."""
    model = models.model(
        """conditional (bool keep, float[1, 2, n] x) => (float[1, 2, l] y) {
            r = Relu (x)
            y = If (keep) <
                then_branch = grow () => (float[1, 2, a] t)
                    { t = ConvTranspose <output_shape = [6], strides = [2]> (r, w1) },
                else_branch = shrink () => (float[1, 2, b] p) { p = MaxPool <kernel_shape = [2]> (r) }
            >
        }""",
        opset=9,
        w1=models.random(2, 2, 3),
    )
    done = upgrade(model, 22)
    assert [one.after for one in done.changes if "Conv" in one.node] == ["ConvTranspose-22 (auto_pad=SAME_UPPER)"]
    for keep in (True, False):
        feed = {"keep": np.array(keep), "x": models.random(1, 2, 3)}
        assert_close(in_onnxruntime(done.model, feed), in_session(model, feed))


def test_bodies_claim_no_sizes_that_the_converter_guessed():
    """The converter infers shapes without our nodes: what it writes down for an If in a body would be wrong."""
    model = models.model(
        """nested (bool c, float[1, 2, 6] x) => (float[a, b, l] y) {
            y = If (c) <
                then_branch = outer () => (float[a, b, l] z) {
                    z = If (c) <
                        then_branch = p () => (float[a, b, l] m) { m = MaxPool <kernel_shape = [2]> (x) },
                        else_branch = q () => (float[a, b, l] d) { d = Dropout (x) }
                    >
                },
                else_branch = other () => (float[a, b, l] e) { e = Identity (x) }
            >
        }""",
        opset=11,
    )
    new = upgrade(model, 22).model
    assert unpool.InferenceSession(new).get_outputs()[0].shape == [1, 2, "l"]
    (node,) = new.graph.node
    (inner,) = node.attribute[0].g.output
    assert not any(dim.dim_value for dim in inner.type.tensor_type.shape.dim)
    for keep, size in ((True, 5), (False, 6)):
        (got,) = in_onnxruntime(new, {"c": np.array(keep), "x": models.random(1, 2, 6)})
        assert got.shape == (1, 2, size)


@FALLBACK
@pytest.mark.parametrize(
    "name", ["conditional", "with_function", "nhwc", "optional_input", "old_ir", "foreign_types", "bfloat16"]
)
def test_models_of_every_kind_are_upgraded(name):
    """Bodies, functions, the channels-last domain, fed weights, old IR versions and foreign nodes survive."""
    model = getattr(models, name)()
    done = upgrade(model, 22)
    assert next(one.version for one in done.model.opset_import if not one.domain) == 22
    onnx.checker.check_model(done.model)
    before, after = unpool.InferenceSession(model), unpool.InferenceSession(done.model)
    assert [one.name for one in after.get_inputs()] == [one.name for one in before.get_inputs()]
    assert [one.shape for one in after.get_outputs()] == [one.shape for one in before.get_outputs()]


def test_weights_and_words_survive(tmp_path):
    """Large weights, external data and what the model says of itself are in the new model."""
    model = models.segnet(opset=9)
    model.producer_name, model.doc_string = "tests", "words"
    model.metadata_props.add(key="classes", value="a,b")
    model.graph.initializer.append(numpy_helper.from_array(models.random(64, 64), "unused"))
    new = upgrade(models.save_with_external_data(model, tmp_path), 22).model
    assert (new.producer_name, new.doc_string, new.metadata_props[0].value) == ("tests", "words", "a,b")
    assert {one.name for one in model.graph.initializer} <= {one.name for one in new.graph.initializer}
    assert not any(one.external_data for one in new.graph.initializer)


def test_a_node_that_the_converter_refuses_is_named():
    """Where an adapter lacks a shape, the error names the node."""
    model = models.model(
        """foreign (float[2, 3] x) => (float[n, m] y) {
            g = com.microsoft.QuickGelu (x)
            y = Gemm <broadcast = 1> (x, w, g)
        }""",
        opset=6,
        ir=8,
        imports=', "com.microsoft" : 1',
        w=models.random(3, 3),
    )
    with pytest.raises(unpool.UnsupportedError, match=r"Gemm->y.*Gemm.*opset"):
        upgrade(model, 22)


@pytest.mark.parametrize("opset", [8, 99])
def test_opsets_that_cannot_be_reached(opset):
    """An opset below the model's, or above what onnx knows, is refused with the range."""
    with pytest.raises(unpool.UnsupportedError, match=r"expected an opset from 9, for this model, to .*, got"):
        upgrade(models.segnet(opset=9), opset)


def test_a_wrong_form_is_caught_by_running_it(monkeypatch):
    """Both models run on random inputs; a difference in values or shapes is an error and not a model."""
    for pads, words in (([1, 0], "others on 18 of 18 elements"), ([0, 0], r"got float32\[1, 3, 7\]")):
        form = Form({"strides": [2], "pads": pads})
        monkeypatch.setattr(canonicalising, "explicit_pads_form", lambda *_, form=form: form)
        with pytest.raises(unpool.UnsupportedError, match=words):
            canonicalise(grow('auto_pad = "SAME_UPPER", strides = [2]'))


def test_a_converter_that_changes_the_meaning_is_caught():
    """The converter makes a Resize with other coordinates from a linear Upsample: refused after running both."""
    model = models.model(
        f"""upsampled (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y)
            {{ p = MaxPool <{models.POOL}> (x) y = Upsample <mode = "linear"> (p, scales) }}""",
        opset=9,
        scales=np.float32([1, 1, 2, 2]),
    )
    with pytest.raises(unpool.UnsupportedError, match="output 'y' of the rewritten model: expected the values"):
        upgrade(model, 22)


def test_models_that_cannot_be_verified():
    """No random input suits the model, or none can be made: refused, with what to give."""
    sizes = models.model(
        f"""given (float[1, 5, 2, 2] x, int64[1, 5, 2, 2] i, int64[4] s) => (float[a, b, c, d] y)
            {{ y = MaxUnpool <{models.POOL}> (x, i, s) }}""",
        opset=9,
    )
    with pytest.raises(unpool.UnsupportedError, match=r"no random inputs to compare it.*output_shape needs"):
        upgrade(sizes, 22)
    words = models.model("words (string[1] x) => (string[1] y) { y = Identity (x) }")
    with pytest.raises(unpool.UnsupportedError, match="random values need a tensor of numbers"):
        upgrade(words, 22)


@pytest.mark.parametrize("options", [("--size", "n"), ("--size", "n=x"), ("-o", "."), ("-o", "model.json")])
def test_wrong_options(here, options):
    """A size without a number, a folder and a text format are usage errors."""
    onnx.save(grow("strides = [2]"), here / "model.onnx")
    assert invoke("canonicalise", "model.onnx", "-o", "out.onnx", *options).exit_code == USAGE


def test_changes_name_what_changes():
    """Attributes that are the same in both versions are not repeated."""
    same = 'auto_pad = "NOTSET", ceil_mode = 0, kernel_shape = [2], pads = [0, 0], strides = [2]'
    model = models.model(f"g (float[1, 1, 8] x) => (float[1, 1, 4] y) {{ y = MaxPool <{same}> (x) }}", opset=11)

    assert [str(one) for one in upgrade(model, 22).changes] == ["MaxPool->y: MaxPool-11 -> MaxPool-22"]
