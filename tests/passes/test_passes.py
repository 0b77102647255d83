"""Every pass: the operators that it makes, and results that are onnxruntime's, on special values and in every context.

`tests/support/passes.py` runs a model with the pass, without it, and in onnxruntime.
"""

import numpy as np
import pytest

import unpool
from tests.passes.cases import CASES, FORMS
from tests.support import models
from tests.support.passes import as_constant, check, operators, rename, special, steps

pytestmark = pytest.mark.usefixtures("every_size")
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.mark.parametrize("case", FORMS.values(), ids=FORMS)
def test_a_form_is_replaced_or_left(case):
    """The operators after the pass are those of the case, and outputs are onnxruntime's within the bound."""
    x = models.random(*case.shape)
    session = check(case.optimizer, case.model(), {"x": x}, case.limit(x))
    assert operators(session) == case.after
    assert any(case.says in step.text for step in steps(session))


@pytest.mark.sample(5)
@every_case
def test_a_pass_keeps_what_it_says(case):
    """On special values and at every magnitude."""
    for x in case.inputs():
        check(case.optimizer, case.model(), {"x": x}, case.limit(x))


OPSETS = [(name, opset) for name, case in CASES.items() for opset in range(case.first, case.last + 1)]


@pytest.mark.sample(23)
@pytest.mark.parametrize(("name", "opset"), OPSETS)
def test_a_pass_works_in_every_opset(name, opset):
    """The same operators, which the plan explains, and results on special values."""
    case = CASES[name]
    x = special(*case.shape)
    session = check(case.optimizer, case.model(opset), {"x": x}, case.limit(x))
    assert operators(session) == case.after
    assert any(case.says in step.text for step in steps(session))


CONTEXTS = {
    "an output that is read elsewhere": {"context": "{body} z = Neg (y)", "outputs": "(y, z)"},
    "an input that is read elsewhere": {"context": "{body} z = Abs (u)", "outputs": "(y, u, z)"},
    "a value inside that is an output": {"outputs": "(y, inner)"},
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("context", CONTEXTS)
@every_case
def test_values_that_others_read_are_kept(case, context):
    """Values before, inside and after the nodes are outputs of the graph, too."""
    given = dict(CONTEXTS[context])
    inner = next((value for value in ("t", "n", "m", "w") if f"{value} = " in case.nodes), "u")
    given["outputs"] = given["outputs"].replace("inner", inner)
    x = models.random(*case.shape)
    check(case.optimizer, case.model(**given), {"x": x}, case.limit(x))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.optimizer == "reduce_strength"])
def test_equal_nodes_are_each_replaced(name):
    """Two nodes over one value and the same constants."""
    case = CASES[name]
    x, again = special(*case.shape), case.nodes.format(x="u", y="z")
    check(case.optimizer, case.model(context=f"{{body}} {again}", outputs="(y, z)"), {"x": x}, case.limit(x))


@pytest.mark.sample(4)
@every_case
def test_sizes_may_be_dynamic(case):
    """All of them, the channels too."""
    x = special(*case.shape)
    dims = ", ".join(f"d{axis}" for axis in range(len(case.shape)))
    check(case.optimizer, case.model(dims=dims), {"x": x}, case.limit(x))


@pytest.mark.sample(4)
@every_case
def test_an_input_may_be_constant(case):
    """The value is known when the model loads."""
    x = models.random(*case.shape)
    model = as_constant(case.model(), "x", x)
    check(case.optimizer, model, {"other": np.float32([1])}, case.limit(x))


@pytest.mark.sample(4)
@every_case
def test_names_may_be_odd(case):
    """Spaces, slashes, other alphabets, and the names that a pass would choose."""
    names = {"x": "an input: 1/2", "u": "ŷ_factors", "y": "ŷ", "b": "w_converted", "s": "ŷ_less", "to": "ŷ_reshape"}
    x = models.random(*case.shape)
    check(case.optimizer, rename(case.model(), names), {"an input: 1/2": x}, case.limit(x))


@pytest.mark.sample(4)
@every_case
def test_a_branch_keeps_it_too(case):
    """Nodes of a subgraph that captures their input and constants."""
    x = models.random(*case.shape)
    model = models.model(
        f"""net (float[{", ".join(map(str, case.shape))}] x) => (y) {{
            u = Neg (x)
            k0 = Constant <value = bool {{1}}> ()
            y = If (k0) <then_branch = yes () => (e) {{ {case.nodes.format(x="u", y="e")} }},
                         else_branch = no () => (e) {{ e = Neg (u) }} >
        }}""",
        opset=case.opset, ir=10, **case.constants,
    )  # fmt: skip
    check(case.optimizer, model, {"x": x}, case.limit(x))


def test_short_floats_are_rounded_twice():
    """In float16 an activation stays a node of its own, as the model rounds between the two."""
    nodes = "h = Cast <to = 10> (x) u = Cast <to = 10> (w) c = ConvTranspose (h, u) y = Relu (c)"
    model = models.model(f"g (float[1, 2, 5] x) => (float16[1, 3, n] y) {{ {nodes} }}", w=models.random(2, 3, 2))
    assert operators(unpool.InferenceSession(model)).endswith("ConvTranspose* Relu")


@pytest.mark.parametrize("name", ["Elu", "Mish", "slopes of all signs"])
def test_numbers_have_as_many_axes_as_the_values(name):
    """Else onnxruntime takes a hundred times as long where the last size is 1."""
    graph = unpool.InferenceSession(CASES[name].model()).prepared_graph().graph
    numbers = [tensor for tensor in graph.constants.values() if np.prod(tensor.dims) == 1]
    assert numbers
    assert {len(tensor.dims) for tensor in numbers} == {4}


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 3, 0, 5), (2, 0, 4, 5), (1, 1, 1, 1)])
def test_a_softmax_of_open_sizes_may_be_empty(shape):
    """A shape with a size of 0 is no reason to copy another one."""
    case = FORMS["a Softmax of open sizes"]
    check(case.optimizer, case.model(dims="n, c, h, w"), {"x": models.random(*shape)})
