"""Models in forms that onnxruntime runs and a pass, or the library, might misread; random ones found each of them."""

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
from tests.support import models

POOL = "kernel_shape = [2, 2], strides = [2, 2]"
THREE = "kernel_shape = [3, 3], strides = [3, 3]"


def both(model, **feed):
    """The outputs of unpool's session and of onnxruntime's."""
    sessions = unpool.InferenceSession(model), onnxruntime.InferenceSession(model.SerializeToString())
    return [session.run(None, feed) for session in sessions]


def assert_same(model, **feed):
    """Both sessions give the same, but for rounding."""
    for got, expected in zip(*both(model, **feed), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def without_sizes(model, *axes):
    """The model with -1 as sizes of its input."""
    for axis in axes:
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = -1
    return model


def empty_bias(end):
    """A ConvTranspose may name its bias "": with an activation or alone it becomes a node of unpool's domain."""
    text = f'g (float[1, 3, 5, 5] x) => (float[1, 2, h, w] z) {{ y = ConvTranspose (x, w, "") {end} }}'
    return models.model(text, w=models.random(3, 2, 2, 2))


def unread_weight():
    """A large weight without a reader does not stop a session that hands large weights over as values."""
    body = f"y, i = MaxPool <{POOL}> (x) z = MaxUnpool <{POOL}> (y, i)"
    text = f"g (float[1, 2, 8, 8] x) => (float[a, b, c, d] z) {{ {body} }}"
    return models.model(text, unread=models.random(40, 40))


def resize(opset):
    """Before opset 13 a Resize has to name its region, so it is replaced from opset 13 on only."""
    return models.model(
        """g (float[1, 1, 4, 4, 4] x) => (float[a, b, c, d, e] z) {
            z = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">
                (x, region, scales)
        }""",
        opset=opset,
        region=np.zeros(0, np.float32),
        scales=np.float32([1, 1, 2, 2, 2]),
    )


def doubled_pools():
    """A padded Conv of an input of -1 x -1 has any size, too: the pass that finds doubled pools takes no number."""
    return models.model(
        f"""g (float[n, 1, h, w] x) => (int64[a, b, c, d] z) {{
            c = Conv <pads = [1, 1, 2, 2]> (x, k)
            y, i = MaxPool <{POOL}> (c)
            p, j = MaxPool <kernel_shape = [1, 1]> (c)
            first = Slice (j, zeros, ones, axes)
            z = Sub (i, first)
        }}""",
        k=models.random(4, 1, 2, 2), zeros=np.int64([0, 0]), ones=np.int64([1, 1]), axes=np.int64([2, 3]),
    )  # fmt: skip


def slice_of_open_size():
    """The inference of onnx ends the process at a Slice of -1 elements, so it does not see that size."""
    return models.model(
        f"""g (float[1, 2, h, 6] x) => (float[a, b, c, d] z) {{
            s = Slice (x, zero, two, axis)
            y, i = MaxPool <{POOL}> (s)
            z = MaxUnpool <{POOL}> (y, i)
        }}""",
        zero=np.int64([0]), two=np.int64([2]), axis=np.int64([2]),
    )  # fmt: skip


FORMS = {
    "a bias that is named empty": (empty_bias("z = Identity (y)"), (1, 3, 5, 5)),
    "a bias that is named empty, an activation": (empty_bias("z = Relu (y)"), (1, 3, 5, 5)),
    "an unused weight": (unread_weight(), (1, 2, 8, 8)),
    "a resize of volumes in opset 11": (resize(11), (1, 1, 4, 4, 4)),
    "a resize of volumes in opset 13": (resize(13), (1, 1, 4, 4, 4)),
    "doubled pools of open sizes": (doubled_pools(), (2, 1, 5, 7)),
    "doubled pools of sizes below zero": (without_sizes(doubled_pools(), 0, 2, 3), (2, 1, 5, 7)),
    "a slice of a size below zero": (without_sizes(slice_of_open_size(), 2), (1, 2, 4, 6)),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_might_be_misread(name, caplog):
    """Both sessions give the same, and onnxruntime refuses nothing that a pass made."""
    model, shape = FORMS[name]
    assert_same(model, x=models.random(*shape))
    assert not any("refuses" in message for message in caplog.messages)


def test_a_normalization_behind_a_pool_of_a_branch():
    """The InstanceNormalization of onnxruntime ends the process at an empty input, as a pool in an If may leave it."""
    model = models.model(
        f"""g (bool keep, float[2] g, float[n, 2, h, w] x) => (float[n, 2, p, q] z) {{
            y = If (keep) <
                then_branch = same () => (float[n, 2, a, b] s) {{ s = Identity (x) }},
                else_branch = shrink () => (float[n, 2, c, d] p) {{ p, i = MaxPool <{THREE}> (x) }}
            >
            z = InstanceNormalization (y, g, b)
        }}""",
        b=models.random(2),
    )
    g = models.random(2, seed=1)
    assert_same(model, keep=np.array(True), g=g, x=models.random(1, 2, 6, 6))
    small = {"keep": np.array(False), "g": g, "x": models.random(1, 2, 2, 2)}
    session = unpool.InferenceSession(model)
    assert session.run(None, small)[0].shape == (1, 2, 0, 0)
    assert {row.runner for row in session.plan if row.operator == "InstanceNormalization"} == {"unpool"}


def test_a_normalization_behind_a_window_that_does_not_fit():
    """Where onnx infers a size of 1, unpool gives no element, at which onnxruntime's node would end the process."""
    model = models.model(
        """g (float[1, 2, 4, 1] x) => (float[1, 2, p, q] z) {
            y, i = MaxPool <kernel_shape = [1, 2], strides = [2, 2]> (x)
            r = Relu (y)
            z = InstanceNormalization (r, g, b)
        }""",
        g=models.random(2),
        b=models.random(2, seed=1),
    )
    session = unpool.InferenceSession(model)
    assert session.run(None, {"x": models.random(1, 2, 4, 1)})[0].shape == (1, 2, 2, 0)


WRONG_SIZES = {
    "main graph": f"""g (float[1, 2, 9, 9] x) => (float[1, 2, h, w] z) {{
        y, i = MaxPool <{POOL}, ceil_mode = 1> (x)
        r = PRelu (y, slope)
        z = MaxUnpool <{POOL}> (r, i) }}""",
    "branch": f"""g (float[1, 2, 9, 9] x, bool b) => (float[1, 2, h, w] z) {{
        p = Relu (x)
        q = If (b) <
            then_branch = t () => (float[1, 2, h, w] m) {{ y = MaxPool <{POOL}, ceil_mode = 1> (p) m = Relu (y) }},
            else_branch = e () => (float[1, 2, h, w] n) {{ n = Identity (p) }}>
        z = PRelu (q, slope) }}""",
    "casts of onnxruntime": f"""g (float[1, 2, 9, 9] x) => (float[1, 2, h, w] z) {{
        c = Cast <to = 10> (x)
        y = MaxPool <{POOL}, ceil_mode = 1> (c)
        s = Cast <to = 10> (slope)
        m = Mul (y, s)
        r = Relu (m)
        q = Mul (r, s)
        z = Cast <to = 1> (q) }}""",
}


def test_a_scan_keeps_the_rank_of_its_results():
    """Without a rank of each result, onnxruntime refuses to run it, and it infers none where axes are an input."""
    model = models.model(
        """g (float[2, 3, 4, 4] x, int64[1] axes) => (float[2, a, b, c] z) {
            z = Scan <num_scan_inputs = 1, body = s (float[3, 4, 4] each) => (float[a, b, c] r) {
                u = Unsqueeze (each, zero)
                t = ConvTranspose <strides = [2, 2]> (u, w)
                r = Squeeze (t, axes) }> (x) }""",
        zero=np.array([0]),
        w=models.random(3, 2, 2, 2),
    )
    feed = {"x": models.random(2, 3, 4, 4), "axes": np.array([0])}
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    session = unpool.InferenceSession(model)
    assert [row.operator for row in session.plan] == ["ConvTranspose"]
    np.testing.assert_allclose(session.run(None, feed)[0], expected, atol=1e-4)


@pytest.mark.parametrize("place", WRONG_SIZES)
def test_sizes_in_a_file_are_no_facts(place, caplog):
    """onnx.shape_inference writes wrong ones behind some pools; in a branch memory would be taken for them."""
    original = models.model(WRONG_SIZES[place], slope=models.random(2, 1, 1))
    model = onnx.shape_inference.infer_shapes(original)
    graphs = [model.graph, *(entry.g for node in model.graph.node for entry in node.attribute if entry.HasField("g"))]
    for value in (value for graph in graphs for value in (*graph.value_info, *graph.output)):
        for axis in value.type.tensor_type.shape.dim[2:]:
            axis.dim_value += 3
    feed = {"x": models.random(1, 2, 9, 9)} | ({"b": np.array(True)} if place == "branch" else {})
    (found,), (expected,) = (unpool.InferenceSession(each).run(None, feed) for each in (model, original))
    np.testing.assert_array_equal(found, expected)
    assert caplog.messages == []


@pytest.mark.parametrize("is_larger", [True, False])
def test_branches_of_unlike_sizes_in_an_old_if(is_larger):
    """Before opset 11, onnxruntime gives the If the sizes of one branch, if the other has none."""
    model = models.model(
        f"""g (float[n, 2, h, w] x, bool b) => (float[n, 2, p, q] z) {{
            y, i = MaxPool <{POOL}> (x)
            u = MaxUnpool <{POOL}> (y, i)
            r = Neg (u)
            t = Sum (u, r)
            v = If (b) <
                then_branch = t () => (float[n, 2, p, q] m) {{ m = Upsample <mode = "nearest"> (t, scales) }},
                else_branch = e () => (float[n, 2, p, q] k) {{ k = Relu (t) }}>
            z = Dropout (v) }}""",
        opset=9,
        scales=np.float32([1, 1, 1, 2]),
    )
    session = unpool.InferenceSession(model)
    (found,) = session.run(None, {"x": models.random(1, 2, 6, 6), "b": np.array(is_larger)})
    assert found.shape == (1, 2, 6, 12 if is_larger else 6)


def test_normalizations_are_computed_by_unpool():
    """In any place, of float32 only; within rounding of onnxruntime's."""
    model = models.model(
        """g (float[2, 3, 5, 4] x, float16[1, 3, 8] h) => (float[2, 3, 5, 4] y, float16[1, 3, 8] k) {
            y = InstanceNormalization <epsilon = 0.001> (x, s, b)
            k = InstanceNormalization (h, s16, b16) }""",
        s=models.random(3),
        b=models.random(3, seed=1),
        s16=models.random(3, dtype=np.float16),
        b16=models.random(3, dtype=np.float16, seed=1),
    )
    feed = {"x": models.random(2, 3, 5, 4), "h": models.random(1, 3, 8, dtype=np.float16)}
    session = unpool.InferenceSession(model)
    assert [(row.node, row.runner) for row in session.plan] == [("InstanceNormalization->y", "unpool")]
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    for found, other, atol in zip(session.run(None, feed), expected, (1e-5, 1e-2), strict=True):
        np.testing.assert_allclose(found, other, atol=atol)


def test_a_normalization_in_a_function_may_be_of_nothing():
    """It is inlined, as onnxruntime's ends the process."""
    model = models.model(
        """g (float[1, 2, h, w] x) => (float[1, 2, p, q] z) {
            y = MaxPool <kernel_shape = [3, 3]> (x)
            z = local.Norm (y) }""",
        imports=', "local" : 1',
        functions="""<domain: "local", opset_import: ["" : 17]> Norm (y) => (z) {
            s = Constant <value_floats = [1.0, 2.0]> ()
            z = InstanceNormalization (y, s, s) }""",
    )
    session = unpool.InferenceSession(model)
    assert session.run(None, {"x": models.random(1, 2, 2, 3)})[0].shape == (1, 2, 0, 1)
