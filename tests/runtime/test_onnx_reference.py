"""Our operators inside onnx's ReferenceEvaluator."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import unpool
from tests.runtime.test_session import ODD_FEED, ODD_UNPOOLING, SECOND_ROWS
from tests.support import models
from unpool.onnx_reference import inline_functions, new_ops
from unpool.operators import unpool_domain


def evaluate(model, feed, opset=17, **options):
    """All outputs of the evaluator with our operators."""
    return ReferenceEvaluator(model, new_ops=new_ops(opset, **options)).run(None, feed)


def test_names_and_domains():
    """The evaluator finds a class by its bare name and its domain."""
    found = {(one.op_domain, one.__name__) for one in new_ops(22)}
    names = {"MaxPool", "MaxUnpool", "ConvTranspose"}
    own = {("unpool", name) for name in unpool_domain.OPERATORS}
    assert found == {(domain, name) for domain in ("", models.NHWC) for name in names} | own


def test_a_whole_model():
    """All three operators, two outputs and weights included, give what the session gives."""
    x = models.random(1, 3, 12, 10)
    (got,) = evaluate(models.segnet(), {"image": x})
    (expected,) = unpool.InferenceSession(models.segnet()).run(None, {"image": x})
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_bodies_are_reached():
    """A NaN in a pool inside a Loop and an If survives, which it does not in the evaluator's own pool."""
    x = np.float32([[[1, np.nan, 3, 4, 5, 6, 7]]])
    feed = {"steps": np.array(1), "go": np.array(True), "x": x}
    (got,) = evaluate(models.loop(), feed)
    assert np.isnan(got[0, 0, :3]).all()
    assert got[0, 0, 3:].tolist() == [5, 6, 7, 7]


def test_the_channels_last_domain():
    """Nodes that the evaluator does not know at all run too."""
    x = models.random(1, 2, 6, 6)
    (got,) = evaluate(models.nhwc(), {"x": x})
    (expected,) = evaluate(models.nhwc_in_onnx(), {"x": x})
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("opset", "accepted"), [(9, False), (10, True)])
def test_the_opset_decides(opset, accepted):
    """ceil_mode exists from version 10 on."""
    model = models.model(
        "p (float[1, 1, 5] x) => (float[1, 1, n] y) "
        "{ y = MaxPool <kernel_shape = [2], strides = [2], ceil_mode = 1> (x) }",
        opset=opset,
    )
    x = np.float32([[[1, 5, 2, 4, 3]]])
    if accepted:
        assert evaluate(model, {"x": x}, opset)[0].tolist() == [[[5, 4, 3]]]
        return
    with pytest.raises(unpool.UnpoolError, match=r"MaxPool-8 node 'MaxPool->y': .*ceil_mode"):
        evaluate(model, {"x": x}, opset)


@pytest.mark.parametrize(("options", "row"), SECOND_ROWS)
def test_options_reach_the_nodes(options, row):
    """index_space and compat are the session's words."""
    assert evaluate(ODD_UNPOOLING, ODD_FEED, **options)[0][0, 0, 1].tolist() == row


def nan_pool_in_a_function(inner=""):
    """A model-local function, called from the body of an If or from another function, that pools."""
    call = f"picked = If (yes) < then_branch = a () => (float[1, 1, n] p) {{ p = {inner or 'local.Shrink'} (x) }}, "
    return models.model(
        f"""calls (bool yes, float[1, 1, 7] x) => (float[1, 1, n] y) {{
            {call} else_branch = b () => (float[1, 1, n] q) {{ q = Identity (x) }} >
            y = Neg (picked)
        }}""",
        imports=', "local" : 1',
        functions="""<domain: "local", opset_import: ["" : 17]>
            Shrink (a) => (c) { c = MaxPool <kernel_shape = [3]> (a) }
            <domain: "local", opset_import: ["" : 17, "local" : 1]>
            Twice (a) => (c) { b = local.Shrink (a) c = Relu (b) }""",
    )


@pytest.mark.parametrize("call", ["local.Shrink", "local.Twice"])
def test_functions_are_reached_once_inlined(call, caplog):
    """A NaN survives a pool inside a function that an If calls, directly or nested, and the log names the functions."""
    model = nan_pool_in_a_function(call)
    feed = {"yes": np.array(True), "x": np.float32([[[1, 2, np.nan, 4, 3, 2, 1]]])}
    before = model.SerializeToString(deterministic=True)
    with caplog.at_level("INFO", logger="unpool"):
        flat = inline_functions(model)
    assert "inlined: local.Shrink, local.Twice" in caplog.text
    assert model.SerializeToString(deterministic=True) == before
    assert not flat.functions
    (got,) = evaluate(flat, feed)
    assert np.isnan(got[0, 0, :3]).all()
    assert got[0, 0, 3:].tolist() == [-4, -3]


def test_without_inlining_functions_are_not_reached():
    """What `inlined` is for: the evaluator runs its own pool inside a function, and loses the NaN."""
    feed = {"yes": np.array(True), "x": np.float32([[[1, 2, np.nan, 4, 3, 2, 1]]])}
    (got,) = evaluate(nan_pool_in_a_function(), feed)
    assert not np.isnan(got).all(axis=-1).any()


def test_a_model_without_functions_stays(caplog):
    """There is nothing to inline, and nothing is logged."""
    model = models.segnet()
    with caplog.at_level("INFO", logger="unpool"):
        assert inline_functions(model) is model
    assert "inlined" not in caplog.text


def test_all_outputs_and_the_number_of_threads():
    """Indices come too, as the session gives them, with any number of threads."""
    model = models.model(
        f"""both (float[2, 3, 6, 7] x) => (float[n, c, h, w] y, int64[n, c, h, w] i)
        {{ y, i = MaxPool <{models.POOL}> (x) }}"""
    )
    feed = {"x": models.random(2, 3, 6, 7)}
    expected = unpool.InferenceSession(model).run(None, feed)
    for threads in (None, 1, 2):
        for got, one in zip(evaluate(model, feed, threads=threads), expected, strict=True):
            assert np.array_equal(got, one)
