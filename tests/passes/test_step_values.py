"""Passes that make steps of unpool keep what their docstrings say, on special and extreme values, in every context.

`tests/support/passes.py` runs a model with the pass, without it, and in onnxruntime.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support import models
from tests.support.passes import LARGEST, as_constant, check, rename, special
from unpool.passes import convert_conv

ULP = 2.0**-24  # half an ulp of 1 in float32
C = 4  # channels
WEIGHTS = {"w": models.random(C, C, 3, 3)}


@dataclass(frozen=True)
class Case:
    """Nodes that make {y} of {x}, and the pass; the bound by x and the constants, None for bits."""

    name: str
    nodes: str
    shape: tuple[int, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    bound: Any = None
    first: int = 9
    last: int = 24
    fires: bool = True


def finite(x):
    """Magnitudes in float64; infinities and NaN count as 0: they make no result that rounds."""
    wide = np.abs(x.astype(np.float64))
    return np.where(np.isfinite(wide), wide, 0).max()


def products(x, constants):
    """What a convolution keeps; where a sum may overflow, anything."""
    n = constants["w"].shape[0] * constants["w"][0, 0].size
    total = n * finite(x) * finite(constants["w"]) + 4 * (finite(constants["b"]) if "b" in constants else 0)
    return (2 * n + 8) * ULP * total + n * 2.0**-149 if total < LARGEST else np.inf


def snake(x, constants):
    """What a Snake keeps."""
    return 2.0**-22 * (np.nan_to_num(np.abs(x.astype(np.float64)), posinf=0) + finite(constants["h"]))


def absolute(*_):
    """What Tanh and Sigmoid keep."""
    return 2.0**-21


ONE = {"w": np.ones((1, 1, 1), np.float32)}  # a ConvTranspose that changes nothing
SNAKE = "m = Mul (f, {x}) i = Sin (m) p = Pow (i, two) g = Mul (h, p) {y} = Add ({x}, g)"
WAVES = {"f": models.random(1, C, 1), "h": models.random(C, 1, seed=1), "two": np.float32(2)}
IMAGE = (1, C, 6, 7)
CASES = {
    **{
        text: Case(
            "fuse_activation", f"t = ConvTranspose ({{x}}, w) {{y}} = {text}", (1, 1, 51), ONE | bounds, bound, first,
            fires="nan" not in bounds and not text.startswith(("Tanh", "Sigmoid")),
        )
        for text, bounds, bound, first in (
            ("Relu (t)", {}, None, 9),
            ("LeakyRelu (t)", {}, None, 9),
            ("LeakyRelu <alpha = -0.3> (t)", {}, None, 9),
            ("Clip (t, low, high)", {"low": np.float32(-0.5), "high": np.float32(6)}, None, 11),
            ("Clip (t, zero, high)", {"zero": np.float32(-0.0), "high": np.float32(1)}, None, 11),
            ("Clip (t, nan, high)", {"nan": np.float32(np.nan), "high": np.float32(1)}, None, 11),
            ("Clip (t, high, low)", {"low": np.float32(-0.5), "high": np.float32(6)}, None, 11),
            ("HardSigmoid (t)", {}, None, 9),
            ("HardSwish (t)", {}, None, 14),
            ("Tanh (t)", {}, absolute, 9),
            ("Sigmoid (t)", {}, absolute, 9),
        )
    },
    "a Snake": Case("fuse_snake", SNAKE, (1, C, 51), WAVES, snake),
    "a Snake of high frequency": Case("fuse_snake", SNAKE, (1, C, 51), WAVES | {"f": 1e4 * WAVES["f"]}, snake),
    "a Snake of infinite frequency": Case("fuse_snake", SNAKE, (1, C, 51), WAVES | {"f": np.inf * WAVES["f"]}, snake),
    "a Conv": Case("convert_conv", "{y} = Conv <pads = [1, 1, 1, 1]> ({x}, w)", IMAGE, WEIGHTS, products),
    "a Conv of three axes": Case(
        "convert_conv", "{y} = Conv ({x}, w, b)", (1, C, 5, 6, 7),
        {"w": models.random(3, C, 3, 2, 1), "b": models.random(3)}, products,
    ),
    "an unpooling as torch writes it": Case(
        "fuse_unpool",
        """q = IsNaN ({x}) f = Where (q, zero, {x}) p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (f)
            a = Reshape (i, flat) j = Unsqueeze (a, one) v = Reshape (moved, flat)
            o = ConstantOfShape (all) c = ScatterND (o, j, v) {y} = Reshape (c, shape)""",
        (1, C, 6, 8), {"flat": np.array([-1]), "one": np.array([1]), "all": np.array([C * 48]), "zero": np.float32(0),
                       "moved": special(1, C, 3, 4), "shape": np.array([1, C, 6, 8])}, None, 13,
    ),
}  # fmt: skip


def inputs(case):
    """Special values, without the largest ones where they are summed; and numbers of several magnitudes."""
    yield special(*case.shape)
    values = special(*case.shape, seed=1)
    yield np.where(np.abs(values) > 1e20, np.float32(2), values)
    for scale in (1e-42, 1e-20, 1, 1e4, 1e19):
        yield models.random(*case.shape) * np.float32(scale)
    yield models.random(*case.shape) + np.float32(1e4)


def of(case, opset, *, context="{body}", dims="", outputs="(y)"):
    """A model of the nodes of a case, whose input a Neg makes."""
    sizes = dims or ", ".join(map(str, case.shape))
    body = context.format(body="u = Neg (x) " + case.nodes.format(x="u", y="y"))
    return models.model(f"net (float[{sizes}] x) => {outputs} {{ {body} }}", opset=opset, ir=10, **case.constants)


@pytest.fixture(autouse=True)
def all_convs(monkeypatch):
    """Every Conv becomes a ConvTranspose."""
    monkeypatch.setattr(convert_conv, "_pays", lambda *_: True)


def bound_of(case, x):
    """The bound of a case for an input."""
    return None if case.bound is None else case.bound(x, case.constants)


def newest(case):
    """The opset for tests of a single one; onnxruntime has all its operators up to 20."""
    return min(case.last, 20)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", CASES)
def test_a_step_keeps_what_its_pass_says(name):
    """On special values and at every magnitude."""
    case = CASES[name]
    model = of(case, newest(case))
    for x in inputs(case):
        check(case.name, model, {"x": x}, bound_of(case, x))


OPSETS = [(name, opset) for name, case in CASES.items() for opset in range(case.first, case.last + 1)]


@pytest.mark.sample(23)
@pytest.mark.parametrize(("name", "opset"), OPSETS)
def test_a_pass_makes_steps_in_every_opset(name, opset):
    """The plan is another one than without the pass, where the pass can keep what it says."""
    case = CASES[name]
    x = models.random(*case.shape)
    with_pass, without = check(case.name, of(case, opset), {"x": x}, bound_of(case, x))
    assert (str(with_pass) != str(without)) == case.fires


CONTEXTS = {
    "outputs that are read elsewhere": {"context": "{body} z = Neg (y)", "outputs": "(y, z)"},
    "an input that is read elsewhere": {"context": "{body} z = Abs (u)", "outputs": "(y, u, z)"},
    "a value inside that is an output": {"context": "{body}", "outputs": "(y, t)"},
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", CASES)
def test_values_that_others_read_are_kept(name, context):
    """Values before, inside and after the nodes are outputs of the graph, too."""
    case, given = CASES[name], dict(CONTEXTS[context])
    inner = next((value for value in ("t", "n", "m", "w") if f"{value} = " in case.nodes), "u")
    given["outputs"] = given["outputs"].replace("t)", f"{inner})")
    x = models.random(*case.shape)
    check(case.name, of(case, newest(case), **given), {"x": x}, bound_of(case, x))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_sizes_may_be_dynamic(name):
    """All of them, the channels too."""
    case = CASES[name]
    x = special(*case.shape)
    dims = ", ".join(f"d{axis}" for axis in range(len(case.shape)))
    check(case.name, of(case, newest(case), dims=dims), {"x": x}, bound_of(case, x))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_an_input_may_be_constant(name):
    """The value is known when the model loads."""
    case = CASES[name]
    x = models.random(*case.shape)
    bound = bound_of(case, x)
    check(case.name, as_constant(of(case, newest(case)), "x", x), {"other": np.float32([1])}, bound)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_names_may_be_odd(name):
    """Spaces, slashes, other alphabets, and the names that a pass would choose."""
    case = CASES[name]
    names = {"x": "an input: 1/2", "u": "w_folded_W", "y": "ŷ", "k": "w_folded_b", "b": "w_converted", "v": "w_"}
    x = models.random(*case.shape)
    check(case.name, rename(of(case, newest(case)), names), {"an input: 1/2": x}, bound_of(case, x))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_a_branch_keeps_it_too(name):
    """Nodes of a subgraph that captures their input and constants."""
    case = CASES[name]
    x = models.random(*case.shape)
    model = models.model(
        f"""net (float[{", ".join(map(str, case.shape))}] x) => (y) {{
            u = Neg (x)
            k0 = Constant <value = bool {{1}}> ()
            y = If (k0) <then_branch = yes () => (e) {{ {case.nodes.format(x="u", y="e")} }},
                         else_branch = no () => (e) {{ e = Neg (u) }} >
        }}""",
        opset=newest(case), ir=10, **case.constants,
    )  # fmt: skip
    check(case.name, model, {"x": x}, bound_of(case, x))
