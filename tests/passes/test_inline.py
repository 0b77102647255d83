"""Every feature of a model-local function means what it means in onnxruntime, bit for bit."""

import logging

import onnxruntime
import pytest
from onnx import helper, numpy_helper

import unpool
from tests.support import models
from unpool.passes.inline import inline

HEAD = '<domain: "my", opset_import: ["" : 17, "my" : 1]>'
SLOPE = f"{HEAD} Slope <alpha: float = 0.75> (a) => (b) {{ b = LeakyRelu <alpha: float = @alpha> (a) }}"
BRANCHES = """b = If (k) <
    then_branch = yes () => (float[n, c, h] r) { r = %s (a) },
    else_branch = no () => (float[n, c, h] s) { s = Neg (a) }
>"""
TRUE = "k = Constant <value = bool {1}> ()"
CALL = "y = my.F (x)"


def function(parameters, body, head=HEAD):
    """A function F; `parameters` are its attributes, inputs and outputs."""
    return f"{head} F {parameters} {{ {body} }}"


def nested(parameters, given):
    """A function F that calls Slope."""
    return SLOPE + function(f"{parameters} (a) => (b)", f"b = my.Slope {given} (a)")


DEFAULTS = {
    "a float": (CALL, SLOPE.replace("Slope", "F")),
    "an int": (CALL, function("<axis: int = 1> (a) => (b)", "b = Softmax <axis: int = @axis> (a)")),
    "ints": (CALL, function("<perm: ints = [0, 2, 1]> (a) => (b)", "b = Transpose <perm: ints = @perm> (a)")),
    "a string": (
        CALL,
        function(
            '<m: string = "edge"> (a) => (b)',
            "p = Constant <value_ints = [0, 1, 1, 0, 1, 1]> () b = Pad <mode: string = @m> (a, p)",
        ),
    ),
    "a tensor": (
        CALL,
        function("<t: tensor = float[1] {3}> (a) => (b)", "c = Constant <value: tensor = @t> () b = Mul (a, c)"),
    ),
    "a Constant": (
        CALL,
        function("<t: floats = [3.0]> (a) => (b)", "c = Constant <value_floats: floats = @t> () b = Mul (a, c)"),
    ),
    "given in the call": ("y = my.F <alpha = 0.2> (x)", SLOPE.replace("Slope", "F")),
    "in one of two calls": ("t = my.F <alpha = 0.2> (x) u = my.F (t) y = Sub (u, t)", SLOPE.replace("Slope", "F")),
    "used twice": (
        CALL,
        function(
            "<p: float = 0.75> (a) => (b)",
            "t = LeakyRelu <alpha: float = @p> (a) u = Neg (t) b = Elu <alpha: float = @p> (u)",
        ),
    ),
    "none, so the operator's own": (CALL, function("<p> (a) => (b)", "b = LeakyRelu <alpha: float = @p> (a)")),
    "next to an unknown attribute": ("y = my.F <other = 1> (x)", SLOPE.replace("Slope", "F")),
    "of the inner function": (CALL, nested("", "")),
    "of the outer function": (CALL, nested("<q: float = 0.4>", "<alpha: float = @q>")),
    "of the inner function, for the outer has none": (CALL, nested("<q>", "<alpha: float = @q>")),
    "given to the outer function": ("y = my.F <q = 0.2> (x)", nested("<q: float = 0.4>", "<alpha: float = @q>")),
    "in a branch of a function": (
        CALL,
        function("<p: float = 0.75> (a) => (b)", TRUE + BRANCHES % "LeakyRelu <alpha: float = @p>"),
    ),
    "of a call in a branch of a function": (
        CALL,
        SLOPE + function("<q: float = 0.4> (a) => (b)", TRUE + BRANCHES % "my.Slope <alpha: float = @q>"),
    ),
    "of a call in a branch of the graph": (
        f"{TRUE} a = Abs (x) {BRANCHES % 'my.Slope'} y = Neg (b)",
        SLOPE,
    ),
}
VALUES = {
    "a missing input": (CALL, function("(a, low, high) => (b)", "b = Clip (a, low, high)")),
    "a skipped input": (
        "k = Constant <value_float = 0.5> () y = my.F (x, , k)",
        function("(a, low, high) => (b)", "b = Clip (a, low, high)"),
    ),
    "a skipped output": (", y = my.F (x)", function("(a) => (b, c)", "b = Relu (a) c = Neg (b)")),
    "an unused input": ("t = Neg (x) y = my.F (x, t)", function("(a, c) => (b)", "b = Abs (a)")),
    "the same input twice": ("y = my.F (x, x)", function("(a, c) => (b)", "t = Neg (a) b = Mul (t, c)")),
    "an output that is read inside": (CALL, function("(a) => (b)", "b = Abs (a) c = Neg (b)")),
    "names of the caller": (
        "t = Neg (x) b = Abs (x) z = my.F (t) y = Add (z, b)",
        function("(x) => (b)", "t = Relu (x) b = Exp (t)"),
    ),
    "a name in both branches": (
        CALL,
        function(
            "(a) => (b)",
            f"""{TRUE} b = If (k) <
                then_branch = yes () => (float[n, c, h] q) {{ r = Exp (a) q = Add (r, a) }},
                else_branch = no () => (float[n, c, h] s) {{ r = Neg (a) s = Neg (r) }} >""",
        ),
    ),
    "a value that a branch captures": (
        "m = Neg (x) y = my.F (m)",
        function("(a) => (b)", f"m = Abs (a) {TRUE} {BRANCHES % 'Sub'}".replace("Sub (a)", "Sub (m, a)")),
    ),
    "a loop": (
        CALL,
        function(
            "<n: int = 3> (a) => (b)",
            f"""m = Constant <value_int: int = @n> () {TRUE} b = Loop (m, k, a) <
                body = once (int64 i, bool go, float[n, c, h] now) => (bool on, float[n, c, h] next)
                    {{ on = Identity (go) next = Add (now, a) }} >""",
        ),
    ),
    "a function that is declared after its caller": (CALL, function("(a) => (b)", "b = my.Slope (a)") + SLOPE),
}
IMPORTS = {
    "an older opset, whose operator is the same": (
        CALL,
        function("(a) => (b)", "b = Relu (a)", '<domain: "my", opset_import: ["" : 13]>'),
    ),
    "an older opset, whose operator means something else": (
        CALL,
        function("(a) => (b)", "b = Softmax <axis = 1> (a)", '<domain: "my", opset_import: ["" : 12]>'),
    ),
    "a newer opset": (CALL, function("(a) => (b)", "b = Relu (a)", '<domain: "my", opset_import: ["" : 18]>')),
    "a domain that the model does not import": (
        CALL,
        function(
            "(a) => (b)",
            "b = com.microsoft.Gelu (a)",
            '<domain: "my", opset_import: ["" : 17, "com.microsoft" : 1]>',
        ),
    ),
    "another opset, in a function that nobody calls": (
        "y = Relu (x)",
        function("(a) => (b)", "b = Softmax <axis = 1> (a)", '<domain: "my", opset_import: ["" : 11]>'),
    ),
}
CASES = DEFAULTS | VALUES | IMPORTS


def calling(nodes, functions):
    """A model of these nodes and functions."""
    return models.model(
        f"g (float[2, 3, 5] x) => (float[a, b, c] y) {{ {nodes} }}", ir=10, imports=', "my" : 1', functions=functions
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_a_function_computes_what_it_computes_in_onnxruntime(name):
    """Defaults, missing values, names, subgraphs and imports; a session inlines some of these functions only."""
    model, x = calling(*CASES[name]), models.random(2, 3, 5)
    expected, *others = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": x})[0] for each in (model, inline(model))
    )
    for got in (*others, *unpool.InferenceSession(model).run(None, {"x": x})):
        assert got.shape == expected.shape
        assert got.tobytes() == expected.tobytes()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_no_function_is_left(name):
    """No call, no reference to an attribute; the model that came is not changed."""
    model = calling(*CASES[name])
    before = model.SerializeToString()
    flat = inline(model)
    assert not flat.functions
    assert "my" not in str(flat.graph)
    assert "ref_attr_name" not in str(flat.graph)
    assert model.SerializeToString() == before


def test_functions_are_inlined_with_their_weights():
    """Large weights of the model are still there, and still constant."""
    model = models.with_function()
    model.graph.initializer.append(numpy_helper.from_array(models.random(40, 40), "large"))
    flat = inline(model)
    assert {tensor.name for tensor in flat.graph.initializer} == {"w1", "large"}
    assert [value.name for value in flat.graph.input] == ["x"]


def test_an_operator_of_another_version_is_logged(caplog):
    """The function imports a Softmax of several axes; the model's, which onnxruntime runs too, has one."""
    nodes, functions = IMPORTS["an older opset, whose operator means something else"]
    with caplog.at_level(logging.INFO, "unpool"):
        inline(calling(nodes, functions))
    assert "my.F imports opset 12, the model 17: its Softmax" in caplog.text


def test_functions_that_call_functions_may_be_nested_deeply():
    """A thousand calls, each in the one before: no limit of Python's is reached."""
    functions = [
        helper.make_function("my", f"F{n}", ["a"], ["b"], [helper.make_node(f"F{n + 1}", ["a"], ["b"], domain="my")],
                             [helper.make_opsetid("my", 1)])
        for n in range(1000)
    ]  # fmt: skip
    model = calling("y = my.F0 (x)", SLOPE.replace("Slope", "F1000"))
    model.functions.extend(functions)
    assert [node.op_type for node in inline(model).graph.node] == ["LeakyRelu"]
