"""Normalizations next to unpool's operators run in unpool, with the activation after them."""

import numpy as np
import onnxruntime
import pytest

import unpool
from tests.support import models
from tests.support.passes import steps
from unpool.passes import fuse_normalization

SHAPE = (2, 4, 6, 7)
UP = "c = ConvTranspose (x, w)"
GROUPS = """q = Reshape (c, to_groups) g = InstanceNormalization <epsilon = 0.01> (q, ones, zeros) t = Reshape (g, back)
            u = Mul (t, scale4) n = Add (u, shift4)"""
FUSED = {
    "instances": ("n = InstanceNormalization (c, scale, shift) y = Identity (n)", ()),
    "a Relu": ("n = InstanceNormalization <epsilon = 0.1> (c, scale, shift) y = Relu (n)", ("Relu->y",)),
    "a LeakyRelu": ("n = InstanceNormalization (c, scale, shift) y = LeakyRelu <alpha = 0.2> (n)", ("LeakyRelu->y",)),
    "a PRelu": ("n = InstanceNormalization (c, scale, shift) y = PRelu (n, slope)", ()),
    "a Clip": ("n = InstanceNormalization (c, scale, shift) y = Clip (n, low, high)", ("Clip->y",)),
    "a sum": ("r = Sin (c) n = InstanceNormalization (c, scale, shift) y = Add (n, r)", ("Add->y",)),
    "a sum and a Relu": (
        "r = Sin (c) n = InstanceNormalization (c, scale, shift) a = Add (r, n) y = Relu (a)", ("Add->a", "Relu->y"),
    ),
    "a sum of two": (
        """m = InstanceNormalization <epsilon = 0.1> (c, scale, shift) n = InstanceNormalization (c, scale, shift)
           a = Add (m, n) y = Relu (a)""", ("Add->a", "Relu->y"),
    ),
    "a sum with its input": (
        "n = InstanceNormalization (c, scale, shift) a = Add (n, c) y = Relu (a)", ("Add->a", "Relu->y"),
    ),
    "a sum of another shape": ("n = InstanceNormalization (c, scale, shift) y = Add (n, high)", ()),
    "groups as exported": (
        f"{GROUPS} y = Relu (n)", ("Reshape->q", "Reshape->t", "Mul->u", "Add->n", "Relu->y"),
    ),
    "groups back to a computed shape": (
        f"s = Shape (c) {GROUPS.replace('back', 's')} y = Relu (n)",
        ("Reshape->q", "Reshape->t", "Mul->u", "Add->n", "Relu->y"),
    ),
    "groups with a scale of positions": (
        f"{GROUPS.replace('scale4', 'scale1')} y = Relu (n)", ("Reshape->q", "Reshape->t"),
    ),
    "groups without a scale": (
        "q = Reshape (c, to_groups) g = InstanceNormalization (q, ones, zeros) t = Reshape (g, back) y = Relu (t)",
        ("Reshape->q", "Reshape->t", "Relu->y"),
    ),
}  # fmt: skip
KEPT = {
    "a scale that is not constant": "k = Abs (scale) n = InstanceNormalization (c, k, shift) y = Relu (n)",
    "groups over all images": "q = Reshape (c, flat) g = InstanceNormalization (q, ones, zeros) y = Reshape (g, back)",
}


def network(body, *, dims="2, 4, 6, 7", opset=17, **constants):
    """A model that ends in `body` on `c`, the output of a ConvTranspose."""
    return models.model(
        f"net (float[{dims}] x) => (float[a, b, c, d] y) {{ {UP} {body} }}".replace("[a, b, c, d]", ""),
        opset=opset,
        w=models.random(4, 6, 2, 2),
        scale=models.random(6, seed=1),
        shift=models.random(6, seed=2),
        scale4=models.random(6, 1, 1, seed=1),
        scale1=models.random(1, 8, seed=1),
        shift4=models.random(6, 1, 1, seed=2),
        slope=np.float32([[[0.3]]]),
        low=np.float32(-0.25),
        high=np.float32(0.5),
        to_groups=np.array([0, 3, -1]),
        flat=np.array([1, 3, -1]),
        back=np.array([2, 6, 7, 8]),
        ones=np.ones(3, np.float32),
        zeros=np.zeros(3, np.float32),
        **constants,
    )


def in_onnxruntime(model, x):
    """What onnxruntime gives for the model as it is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    (y,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    return y


@pytest.fixture
def cheap_steps(monkeypatch):
    """Normalizations of the sizes of these tests are worth a step."""
    monkeypatch.setattr(fuse_normalization, "LEAST_SIZE", 0)


@pytest.mark.usefixtures("cheap_steps")
@pytest.mark.parametrize("name", FUSED)
def test_every_form_gives_what_the_nodes_give(name):
    """A normalization after a ConvTranspose is one step of unpool with the nodes around it."""
    body, folded = FUSED[name]
    model, x = network(body), models.random(*SHAPE)
    session = unpool.InferenceSession(model)
    rows = [row for row in steps(session) if row.operator.endswith("Normalization")]
    assert {row.runner for row in rows} == {"unpool"}
    assert any(f"with {', '.join(folded)} folded in" in row.text for row in rows) == bool(folded)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], in_onnxruntime(model, x), rtol=0, atol=3e-6)


@pytest.mark.usefixtures("cheap_steps")
def test_a_group_normalization_is_fused():
    """Version 21 has a scale per channel; onnx refuses the version before, which has one per group."""
    body = "n = GroupNormalization <num_groups = 3> (c, scale, shift) y = Relu (n)"
    model, x = network(body, opset=21), models.random(*SHAPE)
    session = unpool.InferenceSession(model)
    assert [row.runner for row in steps(session)] == ["unpool", "unpool"]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], in_onnxruntime(model, x), rtol=0, atol=3e-6)


@pytest.mark.usefixtures("cheap_steps")
@pytest.mark.parametrize("name", KEPT)
def test_other_forms_stay_in_onnxruntime(name):
    """What is not surely a normalization of the input's channels is computed as it is written."""
    model, x = network(KEPT[name]), models.random(*SHAPE)
    session = unpool.InferenceSession(model)
    assert "GroupNormalization" not in {row.operator for row in steps(session)}
    np.testing.assert_allclose(session.run(None, {"x": x})[0], in_onnxruntime(model, x), rtol=0, atol=3e-6)


@pytest.mark.usefixtures("cheap_steps")
def test_a_normalization_before_a_conv_transpose_is_fused():
    """Onnxruntime's partition ends there anyway."""
    body = "n = InstanceNormalization (s, scale, shift) r = Relu (n) y = ConvTranspose (r, w)"
    model = models.model(
        f"net (float[1, 4, 5, 5] x) => (float y) {{ s = Sin (x) {body} }}".replace("float y", "float[1, 2, 6, 6] y"),
        w=models.random(4, 2, 2, 2), scale=models.random(4), shift=models.random(4, seed=1),
    )  # fmt: skip
    x, session = models.random(1, 4, 5, 5), unpool.InferenceSession(model)
    assert [(row.operator, row.runner) for row in steps(session)] == [
        ("Sin", "onnxruntime"), ("InstanceNormalization", "unpool"), ("ConvTranspose", "unpool"),
    ]  # fmt: skip
    np.testing.assert_allclose(session.run(None, {"x": x})[0], in_onnxruntime(model, x), rtol=0, atol=1e-5)


def test_a_small_normalization_stays():
    """A step takes longer than it saves, unless the next one is unpool's too."""
    rows = {row.operator: row.runner for row in steps(unpool.InferenceSession(network(FUSED["a Relu"][0])))}
    assert rows["InstanceNormalization"] == "onnxruntime"


@pytest.mark.usefixtures("cheap_steps")
def test_a_node_is_part_of_one_normalization_only():
    """The second Reshape ends one, and could begin the next."""
    norm = "InstanceNormalization (q, ones, zeros)"
    model = models.model(
        f"""net (float[2, 4, 9] x) => (float[2, 3, 10] y) {{
            c = ConvTranspose (x, w) q = Reshape (c, split) g = {norm} t = Reshape (g, split)
            h = {norm.replace("q", "t")} k = Reshape (h, split) y = ConvTranspose (k, v) }}""",
        w=models.random(4, 3, 2), v=models.random(3, 3, 1), split=np.array([2, 3, 10]),
        ones=np.ones(3, np.float32), zeros=np.zeros(3, np.float32),
    )  # fmt: skip
    x, session = models.random(2, 4, 9), unpool.InferenceSession(model)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], in_onnxruntime(model, x), rtol=0, atol=5e-6)


@pytest.mark.usefixtures("cheap_steps")
def test_a_value_that_others_read_is_kept():
    """The normalized values before the activation are an output too."""
    body = "n = InstanceNormalization (c, scale, shift) r = Relu (n) y = Add (r, n)"
    model, x = network(body), models.random(*SHAPE)
    session = unpool.InferenceSession(model)
    row = next(row for row in steps(session) if row.operator == "InstanceNormalization")
    assert row.runner == "unpool"
    assert "folded in" not in row.text
    np.testing.assert_allclose(session.run(None, {"x": x})[0], in_onnxruntime(model, x), rtol=0, atol=5e-6)


@pytest.mark.usefixtures("cheap_steps")
@pytest.mark.parametrize("way", ["exact", "level"])
def test_exact_sessions_and_lower_levels_compute_the_nodes_as_written(way):
    """A normalization rounds differently in unpool."""
    options = onnxruntime.SessionOptions()
    if way == "level":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = unpool.InferenceSession(network(FUSED["a Relu"][0]), options, exact=way == "exact")
    assert [row.runner for row in steps(session) if row.operator == "InstanceNormalization"] == ["onnxruntime"]


@pytest.mark.usefixtures("cheap_steps")
def test_a_normalization_before_indices_stays():
    """A pool could choose other positions among nearly equal elements."""
    pools = f"p, i = MaxPool <{models.POOL}> (n) y = MaxUnpool <{models.POOL}> (p, i)"
    body = f"n = InstanceNormalization (c, scale, shift) {pools}"
    rows = {row.operator: row.runner for row in steps(unpool.InferenceSession(network(body)))}
    assert rows["InstanceNormalization"] == "onnxruntime"


def test_dynamic_sizes_and_bound_outputs():
    """A value of unknown size counts as large; a bound output is written in place."""
    model = network(FUSED["a Relu"][0], dims="n, 4, h, w")
    session = unpool.InferenceSession(model)
    assert {row.runner for row in steps(session)} == {"unpool"}
    for shape in ((1, 4, 3, 3), (2, 4, 9, 5), (0, 4, 3, 3)):
        x = models.random(*shape)
        binding, y = session.io_binding(), np.empty((shape[0], 6, shape[2] + 1, shape[3] + 1), np.float32)
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, session.run(None, {"x": x})[0])
        if shape[0]:
            np.testing.assert_allclose(y, in_onnxruntime(model, x), rtol=0, atol=3e-6)
