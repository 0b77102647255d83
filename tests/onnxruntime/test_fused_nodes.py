"""Conv, Snake and InstanceNormalization of the domain `unpool`, in stock sessions.

They are as evaluated in Python, and as the graph that they stand for; and their schemas, sizes, types and refusals.
"""

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import helper

import unpool
import unpool.onnxruntime
from tests.support.library_sessions import node_model, plain_session
from tests.support.library_sessions import session_of as library_session
from tests.support.models import random
from tests.support.ort_values import run_values
from unpool import onnx_reference
from unpool.operators.contract import AttributeType
from unpool.operators.unpool_domain import OPERATORS

model_of = partial(node_model, opset=21)
session_of = partial(library_session, domains="unpool")


class Case:
    """A node of the domain, its arrays, and the nodes of the standard that it stands for."""

    def __init__(self, name, node, inputs, constants, unfused, tolerance, outputs=("y",)):
        self.name, self.node, self.unfused, self.tolerance = name, node, unfused, tolerance
        self.inputs, self.constants, self.outputs = inputs, constants, outputs

    def arrays(self):
        values = {**self.inputs, **self.constants}
        return [values.get(name) for name in self.node.input]

    def model(self, nodes=(), sizes=None):
        """A model of the node, or of others in its place."""
        return model_of(nodes or [self.node], self.inputs, self.constants, self.outputs, sizes)


def assert_same(outputs, expected):
    """The same bits, of all outputs."""
    for output, array in zip(outputs, expected, strict=True):
        assert np.array_equal(output, array, equal_nan=True)


def own(operator, inputs, outputs=("y",), **attributes):
    return helper.make_node(operator, inputs, outputs, domain="unpool", **attributes)


def conv_cases():
    """One to three axes, groups, dilations, pads of either end, a bias, and activations."""
    relu = [helper.make_node("Relu", ["a"], ["y"])]
    for name, x, w, has_bias, given in [
        ("one axis", (2, 8, 50), (6, 8, 7), True, {"pads": [3, 3]}),
        ("two axes", (1, 5, 19, 23), (8, 5, 3, 3), False, {"pads": [1, 1, 1, 1]}),
        ("many channels", (1, 64, 24, 24), (64, 64, 3, 3), True, {"pads": [1] * 4}),
        ("groups", (2, 6, 9, 11), (4, 3, 3, 2), True, {"group": 2, "pads": [0, 1, 2, 0], "dilations": [1, 2]}),
        ("three axes", (1, 8, 6, 7, 9), (5, 8, 3, 3, 3), True, {"pads": [1] * 6}),
        ("no pads", (1, 4, 8, 8), (3, 4, 3, 3), False, {}),
        ("valid", (1, 4, 8, 8), (3, 4, 3, 3), False, {"auto_pad": "VALID"}),
        ("one by one", (1, 16, 8, 8), (12, 16, 1, 1), True, {}),
        ("relu", (1, 8, 6, 7, 9), (5, 8, 3, 3, 3), True, {"pads": [1] * 6, "activation": "Relu"}),
    ]:
        constants = {"w": random(*w, seed=1) / float(np.prod(w[1:])) ** 0.5}
        constants |= {"b": random(w[0], seed=2)} if has_bias else {}
        standard = {key: value for key, value in given.items() if key != "activation"}
        end = relu if "activation" in given else []
        unfused = [helper.make_node("Conv", ["x", *constants], ["a" if end else "y"], **standard), *end]
        yield Case(
            f"Conv: {name}", own("Conv", ["x", *constants], **given), {"x": random(*x)}, constants, unfused, 1e-5
        )


def snake_cases():
    """With and without a residual, and with the sum as an output."""
    factors = np.abs(random(2, 6, seed=1)) + 0.5
    constants = {"factors": factors, "f": factors[0][:, None], "m": factors[1][:, None], "two": np.float32(2)}
    snake = [
        helper.make_node("Mul", ["total", "f"], ["angle"]), helper.make_node("Sin", ["angle"], ["sine"]),
        helper.make_node("Pow", ["sine", "two"], ["square"]), helper.make_node("Mul", ["square", "m"], ["term"]),
        helper.make_node("Add", ["total", "term"], ["y"]),
    ]  # fmt: skip
    x = {"x": random(2, 6, 301)}
    both = {**x, "r": random(2, 6, 301, seed=3)}
    copied, added = helper.make_node("Identity", ["x"], ["total"]), helper.make_node("Add", ["x", "r"], ["total"])
    outputs = ("y", "total")
    yield Case("Snake", own("Snake", ["x", "factors"]), x, constants, [copied, *snake], 1e-6)
    yield Case("Snake: residual", own("Snake", ["x", "factors", "r"]), both, constants, [added, *snake], 1e-6)
    yield Case(
        "Snake: total", own("Snake", ["x", "factors", "r"], outputs), both, constants, [added, *snake], 1e-6, outputs
    )


def normalization_cases():
    """With an epsilon."""
    x, constants = {"x": random(2, 8, 9, 31) + 3}, {"scale": random(8, seed=1), "shift": random(8, seed=2)}
    names, operator = ["x", *constants], "InstanceNormalization"
    standard = helper.make_node(operator, names, ["y"], epsilon=1e-3)
    yield Case(operator, own(operator, names, epsilon=1e-3), x, constants, [standard], 1e-5)


CASES = {case.name: case for case in (*conv_cases(), *snake_cases(), *normalization_cases())}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_a_session_gives_the_bits_of_the_evaluation(case, calls):
    """And asks Python for a plan once, which the next run needs no more."""
    session = session_of(case.model())
    assert_same(session.run(None, case.inputs), unpool.onnxruntime.evaluate(case.node, case.arrays()))
    asked = len(calls)
    session.run(None, case.inputs)
    assert len(calls) == asked == 1


def test_a_node_is_the_graph_that_it_stands_for(case):
    """As onnxruntime computes that, except for rounding."""
    expected = plain_session(case.model(case.unfused)).run(None, case.inputs)
    for output, array in zip(session_of(case.model()).run(None, case.inputs), expected, strict=True):
        assert np.allclose(output, array, case.tolerance, case.tolerance * np.abs(array).max())


def test_weights_and_factors_need_no_constants(case):
    """They may be inputs of the model, with the same results."""
    feed = {name: value for name, value in {**case.inputs, **case.constants}.items() if name in case.node.input}
    outputs = session_of(model_of([case.node], feed, {}, case.outputs)).run(None, feed)
    assert_same(outputs, unpool.onnxruntime.evaluate(case.node, case.arrays(), constant_weights=False))


def test_sizes_are_inferred(case):
    """Known sizes are known before anything runs, and unknown ones are those of X where they have to be."""
    expected = [list(array.shape) for array in unpool.onnxruntime.evaluate(case.node, case.arrays())]
    assert [output.shape for output in session_of(case.model()).get_outputs()] == expected
    axes = ["n", *(f"d{axis}" for axis in range(case.inputs["x"].ndim - 1))]
    session = session_of(case.model(sizes=axes))
    names = session.get_outputs()[0].shape
    assert names == axes if case.node.op_type != "Conv" else (names[0], names[1]) == ("n", expected[0][1])
    assert [list(array.shape) for array in session.run(None, case.inputs)] == expected


def test_the_evaluator_of_onnx_runs_it(case):
    """`new_ops` has the operators of the domain, too."""
    evaluator = onnx.reference.ReferenceEvaluator(case.model(), new_ops=onnx_reference.new_ops(21))
    expected = unpool.onnxruntime.evaluate(case.node, case.arrays(), exact=True, constant_weights=False)
    assert_same(evaluator.run(None, case.inputs), expected)


@pytest.fixture(scope="module")
def checker():
    """Onnx with the schemas of the domain."""
    for schema in unpool.onnxruntime.schemas():
        onnx.defs.register_schema(schema)
    yield lambda model: onnx.checker.check_model(model, check_custom_domain=True)
    for schema in unpool.onnxruntime.schemas():
        onnx.defs.deregister_schema(schema.name, 1, "unpool")


def test_the_checker_accepts_it(case, checker):
    """With the schema of its operator."""
    checker(case.model())


@pytest.mark.parametrize(
    "wrong",
    [
        own("Snake", ["x"]), own("Snake", ["x", "f"], alpha=1.0),
        own("Conv", ["x", "f"], exact=1.5), own("Sine", ["x"]), own("MaxPool", ["x"], kernel_shape=2),
    ],
    ids=lambda node: node.op_type,
)  # fmt: skip
def test_the_checker_refuses_other_nodes(wrong, checker):
    """Of an unknown operator, with a missing input, or an attribute that is unknown, missing or of another type."""
    with pytest.raises(onnx.checker.ValidationError):
        checker(model_of([wrong], {"x": random(1, 2, 3), "f": random(2, 2)}, {}))


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_attribute_of_the_table_reaches_a_node(operator):
    """One of another type is refused with its name."""
    data = {"x": random(1, 4, 6, 6), "i": np.zeros((1, 4, 6, 6), np.int64), "w": random(4, 4, 3, 3)}
    names = {"MaxPool": ["x"], "MaxUnpool": ["x", "i"], "Conv": ["x", "w"], "ConvTranspose": ["x", "w"]}
    inputs = names.get(operator, ["x", "w", "w"])
    required = {"kernel_shape": [3, 3]}
    for name, kind in OPERATORS[operator].attributes.items():
        given = {key: required[key] for key in OPERATORS[operator].version.required} | {
            name: 1 if kind == AttributeType.STRING else "x"
        }
        model = model_of([own(operator, inputs, **given)], {key: data[key] for key in dict.fromkeys(inputs)}, {})
        with pytest.raises(Exception, match=rf"{operator}.*{name}"):
            session_of(model)


REFUSED = [
    ("Conv", ["x", "w"], {"strides": [2, 2]}, r"Conv: expected strides of 1 and explicit pads, got strides \[2, 2\]"),
    ("Conv", ["x", "w"], {"auto_pad": "SAME_UPPER"}, "got auto_pad SAME_UPPER. Use the standard's Conv"),
    ("Conv", ["x", "w"], {"pads": [3, 0, 0, 0]}, "pads up to 2, the reach of its window"),
    ("Conv", ["x", "w"], {"group": 2}, "Conv: W needs 4 / 2 input channels second"),
    ("Conv", ["x", "w"], {"group": 0}, "group needs a value of 1 or more, got 0"),
    ("Conv", ["x", "w"], {"kernel_shape": [2, 2]}, r"kernel_shape needs the window of W, \[3, 3\]"),
    ("Conv", ["x", "w"], {"dilations": [4, 1]}, "spatial axis 0 needs room for a window of 9, got 6 elements"),
    ("Conv", ["x", "w"], {"activation": "Elu"}, "activation is one of"),
    ("Conv", ["x", "s"], {}, "Conv: W needs rank 4"),
    ("Conv", ["x", "w", "s", "s"], {}, "Conv: takes 3 inputs at most"),
    ("Snake", ["x", "s"], {}, r"Snake: factors needs shape \(2, 4\)"),
    ("Snake", ["x", "f", "w"], {}, "Snake: residual needs the shape of X"),
    ("InstanceNormalization", ["x", "s", "f"], {}, r"InstanceNormalization: B needs shape \(4,\)"),
    ("InstanceNormalization", ["x", "s", "s"], {"epsilon": 0.0}, "epsilon needs a finite number above 0, got 0"),
    ("InstanceNormalization", ["x", "s", "s"], {"epsilon": "small"}, "epsilon expects numbers"),
]


@pytest.mark.parametrize(("operator", "inputs", "attributes", "words"), REFUSED)
def test_what_does_not_fit_is_one_sentence(operator, inputs, attributes, words):
    """When the model is loaded, or at the first run where only shapes show it; in Python the same."""
    data = {"x": random(1, 4, 6, 6), "w": random(5, 4, 3, 3), "f": random(2, 4), "s": random(4)}
    node = own(operator, inputs, **attributes)
    with pytest.raises(unpool.UnpoolError, match=words):
        unpool.onnxruntime.evaluate(node, [data[name] for name in inputs])
    with pytest.raises(Exception, match=words):
        session_of(model_of([node], {"x": data["x"]}, {name: data[name] for name in "wfs"})).run(None, {"x": data["x"]})


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_types_of_conv(dtype):
    """All of ConvTranspose; onnxruntime alone refuses some."""
    case = CASES["Conv: many channels"]
    constants = {name: value.astype(dtype) for name, value in case.constants.items()}
    x = case.inputs["x"].astype(dtype)
    (expected,) = unpool.onnxruntime.evaluate(case.node, [x, *constants.values()])
    model = model_of([case.node], {"x": x}, constants)
    (y,) = run_values(session_of(model), {"x": x})
    assert np.array_equal(y, expected)
    wide = [array.astype(np.float64) for array in (x, *constants.values())]
    exact = unpool.onnxruntime.evaluate(case.node, wide, exact=True)[0]
    assert np.allclose(expected.astype(np.float64), exact, 0.02, 0.02)


@pytest.mark.parametrize("operator", ["Snake: total", "InstanceNormalization"])
def test_float64_is_what_float32_is_compared_with(operator):
    """Python computes it, in sessions, too; float32 differs by rounding."""
    case = CASES[operator]
    narrow = unpool.onnxruntime.evaluate(case.node, case.arrays())
    wide = {name: x.astype(np.float64) for name, x in {**case.inputs, **case.constants}.items()}
    outputs = unpool.onnxruntime.evaluate(case.node, [wide[name] for name in case.node.input])
    feed = {name: wide[name] for name in case.inputs}
    model = model_of([case.node], feed, {name: wide[name] for name in case.constants}, case.outputs)
    for expected, exact, output in zip(narrow, outputs, session_of(model).run(None, feed), strict=True):
        assert exact.dtype == np.float64
        assert np.array_equal(output, exact)
        assert np.allclose(expected, exact, 1e-6, 1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("operator", ["Snake", "InstanceNormalization"])
def test_other_types_are_refused(operator):
    """At loading: there is no such operator."""
    case = CASES[operator]
    arrays = {name: x.astype(np.float16) for name, x in {**case.inputs, **case.constants}.items()}
    constants = {name: arrays[name] for name in case.constants}
    with pytest.raises(Exception, match=operator):
        session_of(model_of([case.node], {"x": arrays["x"]}, constants))
    with pytest.raises(unpool.UnpoolError, match=f"{operator}: X expects one of float32, float64"):
        unpool.onnxruntime.evaluate(case.node, [arrays.get(name) for name in case.node.input])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9, -3e38])
def test_large_arguments_of_the_sine(value):
    """The plan ends there, and Python computes the node: with the sines of NumPy."""
    case = CASES["Snake: total"]
    feed = {name: x.copy() for name, x in case.inputs.items()}
    feed["x"][1, 2, 7] = value
    outputs = session_of(model_of([case.node], feed, case.constants, case.outputs)).run(None, feed)
    assert_same(outputs, unpool.onnxruntime.evaluate(case.node, [feed["x"], case.constants["factors"], feed["r"]]))


@pytest.mark.parametrize("name", ["Conv: three axes", "Snake: total", "InstanceNormalization"])
def test_no_elements(name):
    """A batch of none gives none."""
    case = CASES[name]
    feed = {key: x[:0] for key, x in case.inputs.items()}
    axes = ["n", *case.inputs["x"].shape[1:]]
    outputs = session_of(model_of([case.node], feed, case.constants, case.outputs, axes)).run(None, feed)
    assert all(output.size == 0 for output in outputs)


def test_evaluate_refuses_other_domains():
    """It says which operators it knows."""
    with pytest.raises(unpool.UnpoolError, match="expected a node of the domain 'unpool', one of MaxPool"):
        unpool.onnxruntime.evaluate(helper.make_node("Conv", ["x", "w"], ["y"]), [random(1, 1, 4), random(1, 1, 2)])
