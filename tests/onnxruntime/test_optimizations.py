"""What onnxruntime's optimizations make of a model stays right if the operators of the library are in it."""

import re

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

import unpool.onnxruntime
from tests.support import models
from tests.support.models import random

POOL = "MaxPool <kernel_shape = [2, 2], strides = [2, 2]>"
UNPOOL = "MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]>"
QUANTIZED = f"""g (float[1, 3, 8, 8] x) => (float[1, 3, 4, 4] z) {{
    q = QuantizeLinear (x, scale, zero)
    d = DequantizeLinear (q, scale, zero)
    p = {POOL} (d)
    r = QuantizeLinear (p, scale, zero)
    z = DequantizeLinear (r, scale, zero)
}}"""
CASES = {
    "a pool of a constant": (
        f"g (float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] z) {{ y = {POOL} (large) z = Add (x, y) }}",
        (8, 11, 12, 22),
    ),
    "a ConvTranspose of a constant": (
        "g (float[1, 4, 16, 16] x) => (float[1, 4, 16, 16] z) {"
        " y = ConvTranspose <strides = [2, 2]> (large, w) z = Add (x, y) }",
        (10, 11, 22),
    ),
    "an old ConvTranspose": (
        "g (float[1, 3, 8, 8] x) => (float[1, 4, 16, 16] z) { z = ConvTranspose <strides = [2, 2]> (x, w) }",
        (9, 10),
    ),
    "a pool between quantizations": (QUANTIZED, (12, 13, 22)),
    "a pool between transpositions": (
        f"""g (float[1, 8, 8, 3] x) => (float[1, 4, 4, 3] z) {{
            t = Transpose <perm = [0, 3, 1, 2]> (x)
            p = {POOL} (t)
            z = Transpose <perm = [0, 2, 3, 1]> (p)
        }}""",
        (8, 12, 22),
    ),
    "a pool after a Pad": (
        f"g (float[1, 3, 8, 8] x) => (float[1, 3, 5, 5] z) {{ p = Pad (x, pads, lowest) z = {POOL} (p) }}",
        (11, 12, 22),
    ),
    "a loop": (
        f"""g (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] z) {{
            n = Constant <value = int64 {{3}}> ()
            t = Constant <value = bool {{1}}> ()
            z = Loop (n, t, x) <body = b (int64 k, bool c, float[1, 3, 8, 8] s) => (bool e, float[1, 3, 8, 8] o) {{
                e = Identity (c)
                y, i = {POOL} (s)
                o = {UNPOOL} (y, i)
            }}>
        }}""",
        (11, 17),
    ),
    "a function": (
        f"""g (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] z) {{ z = local.hourglass (x) }}
        <domain: "local", opset_import: ["" : 17]>
        hourglass (x) => (z) {{ y, i = {POOL} (x) z = {UNPOOL} (y, i) }}""",
        (17,),
    ),
}
CONSTANTS = {
    "large": (1, 3, 8, 8), "w": (3, 4, 2, 2), "scale": np.float32(0.05), "zero": np.uint8(128),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "lowest": np.float32(-np.inf),
}  # fmt: skip


def model(text, opset):
    """A model with the constants that it names."""
    made = models.model(text, opset=opset, imports=', "local" : 1, "unpool" : 1')
    used = {name for node in made.graph.node for name in node.input}
    for name in used & CONSTANTS.keys():
        value = CONSTANTS[name]
        made.graph.initializer.append(
            numpy_helper.from_array(random(*value) if isinstance(value, tuple) else np.asarray(value), name)
        )
    return made.SerializeToString()


def run(content, level, register=True, **given):
    """The output of a session for random numbers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, level
    if register:
        unpool.onnxruntime.register(options, **given)
    session = onnxruntime.InferenceSession(content, options)
    (x,) = session.get_inputs()
    return session.run(None, {"x": random(*x.shape)})[0]


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize(("name", "opset"), [(name, opset) for name, (_, opsets) in CASES.items() for opset in opsets])
def test_results_are_those_of_onnxruntime_alone(name, opset, level):
    """Constants are folded, layouts changed and functions inlined around the operators, as without the library."""
    content, chosen = model(CASES[name][0], opset), getattr(onnxruntime.GraphOptimizationLevel, level)
    expected = run(content, chosen, register=False)
    for given in ({}, {"opset": opset}):
        np.testing.assert_allclose(run(content, chosen, **given), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", CASES)
def test_nodes_of_the_domain_unpool_give_the_same(name, level):
    """Beside operators of onnxruntime's own, also in functions and loops."""
    text, opsets = CASES[name]
    chosen = getattr(onnxruntime.GraphOptimizationLevel, level)
    own = re.sub(r"\b(?=(MaxPool|MaxUnpool|ConvTranspose)\b)", "unpool.", text)
    own = own.replace('opset_import: ["" : 17]', 'opset_import: ["" : 17, "unpool" : 1]')
    expected = run(model(text, opsets[-1]), chosen, register=False)
    given = {"domains": "unpool", "opset": opsets[-1]}
    np.testing.assert_allclose(run(model(own, opsets[-1]), chosen, **given), expected, rtol=1e-5, atol=1e-5)


def test_a_convolution_between_quantizations_runs_in_a_session(caplog):
    """An optimizer of onnxruntime takes a ConvTranspose of any domain, and adds nodes of that domain: it is off."""
    source = model(
        """g (float[1, 3, 8, 8] x) => (float[1, 4, 16, 16] z) {
            q = QuantizeLinear (x, scale, zero)
            d = DequantizeLinear (q, scale, zero)
            y = ConvTranspose <strides = [2, 2]> (d, w)
            r = QuantizeLinear (y, scale, zero)
            z = DequantizeLinear (r, scale, zero)
        }""",
        17,
    )
    x = random(1, 3, 8, 8)
    plain = onnxruntime.InferenceSession(source, disabled_optimizers={"WeightBiasQuantization"}).run(None, {"x": x})
    session = unpool.InferenceSession(source, exact=True)
    assert [row.runner for row in session.plan] == ["unpool"]
    np.testing.assert_allclose(session.run(None, {"x": x}), plain, atol=0.051)
    assert not caplog.records
