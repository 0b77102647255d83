"""Each pass keeps what its docstring says: every operator, attribute and opset, on special and extreme values.

`tests/support/passes.py` runs a model with the pass, without it, and in onnxruntime.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support import models
from tests.support.passes import as_constant, check, rename, run_onnxruntime, special

NEWEST = 24
ULP = 2.0**-24  # half an ulp of 1


@dataclass(frozen=True)
class Case:
    """A node, {y} = .. ({x}); the opsets in which the pass replaces it, and its bound by x and y, None for bits."""

    node: str
    shape: tuple[int, ...]
    first: int
    last: int = NEWEST
    constants: dict[str, Any] = field(default_factory=dict)
    bound: Any = None
    others: tuple[str, ...] = ()  # types that onnxruntime also runs
    fires: bool = True


def values(_, y):
    """What Mish keeps."""
    return 2.0**-20 * np.abs(y.astype(np.float64)) + 2.0**-126


SLOPES = {
    "one slope": np.float32([0.25]),
    "one negative slope": np.float32(-0.5),
    "a slope of zero": np.float32([0]),
    "a slope of minus zero": np.float32([-0.0]),
    "slopes from 0 to 1": np.float32([1e-37, 0.25, 1]).reshape(3, 1, 1),
    "slopes of all signs": np.float32([-2, 0, 1e30]).reshape(3, 1, 1),
    "subnormal slopes": np.float32([1e-45, -1e-45, 1]).reshape(3, 1, 1),
    "a slope for each element": models.random(3, 4, 7),
}
REDUCED = {
    **{name: Case("{y} = PRelu ({x}, s)", (2, 3, 4, 7), 9, constants={"s": s}) for name, s in SLOPES.items()},
    "slopes with minus zero": Case(
        "{y} = PRelu ({x}, s)", (2, 3, 4, 7), 9, constants={"s": np.float32([-0.0, 2, 3]).reshape(3, 1, 1)}, fires=False
    ),
    "Mish": Case("{y} = Mish ({x})", (2, 3, 4, 17), 18, bound=values),
    **{
        f"Resize {given}": Case(
            f'{{y}} = Resize <mode = "nearest"{given}> ({{x}}, , , to)', (1, 2, 3, 4, 5), 13,
            constants={"to": np.array([1, 2, 6, 8, 15])},
        )
        for given in (
            "",
            ", cubic_coeff_a = -0.5",
            ', coordinate_transformation_mode = "asymmetric", nearest_mode = "floor", extrapolation_value = 3.0',
            ', coordinate_transformation_mode = "half_pixel", nearest_mode = "round_prefer_ceil"',
        )
    },
    **{
        f"Resize {given}": Case(
            f'{{y}} = Resize <mode = "nearest"{given}> ({{x}}, , , to)', (1, 2, 3, 4, 5), 18,
            constants={"to": np.array([1, 2, 6, 8, 10])},
        )
        for given in (', keep_aspect_ratio_policy = "stretch"', ", antialias = 0")
    },
}  # fmt: skip


def is_replaced(case, plan):
    """True if the plan says that the pass has replaced the node of a case."""
    operator = case.node.partition("= ")[2].split()[0]
    return any(f"replaces {operator} '{operator}->y'" in row.text for row in plan)


def reduced(case, opset, *, kind="float", dims="", context="{body}", outputs="(y)"):
    """A model of the node of a case, after a PRelu that changes nothing, so that a plan is made."""
    sizes = dims or ", ".join(map(str, case.shape))
    start = "{x} = PRelu (x, unit)" if kind == "float" else "{x} = Identity (x)"
    body = context.format(body=f"{start} {case.node}".format(x="t", y="y"))
    return models.model(
        f"net ({kind}[{sizes}] x) => {outputs} {{ {body} }}",
        opset=opset, ir=10, unit=np.ones(1, np.float32), **case.constants,
    )  # fmt: skip


def bound_of(case, x, model):
    """The bound of a case for an input."""
    return None if case.bound is None else case.bound(x, run_onnxruntime(model, {"x": x})[0])


OPSETS = [(name, opset) for name, case in REDUCED.items() for opset in range(case.first, case.last + 1)]


@pytest.mark.sample(29)
@pytest.mark.parametrize(("name", "opset"), OPSETS)
def test_a_faster_node_keeps_what_it_says(name, opset):
    """In every opset, on special values."""
    case = REDUCED[name]
    model, x = reduced(case, opset), special(*case.shape)
    plan, _ = check("reduce_strength", model, {"x": x}, bound_of(case, x, model))
    assert is_replaced(case, plan) == case.fires


@pytest.mark.sample(11)
@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-4, 1, 10, 1e4, 1e37])
@pytest.mark.parametrize("name", REDUCED)
def test_a_faster_node_keeps_what_it_says_at_every_magnitude(name, scale):
    """Random numbers of extreme magnitudes."""
    case = REDUCED[name]
    model, x = (
        reduced(case, min(17, case.last) if case.first < 18 else 20),
        models.random(*case.shape) * np.float32(scale),
    )
    check("reduce_strength", model, {"x": x}, bound_of(case, x, model))


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, case in REDUCED.items() for kind in case.others])
def test_other_types_are_kept(name, kind):
    """Only float32 is replaced."""
    case = REDUCED[name]
    model = reduced(case, 17, kind=kind)
    with np.errstate(over="ignore"):
        x = special(*case.shape).astype({"double": np.float64, "float16": np.float16}[kind])
    assert not is_replaced(case, check("reduce_strength", model, {"x": x})[0])


OLD = [
    ("one slope", 7), ("slopes from 0 to 1", 7), ("slopes of all signs", 8),
]  # fmt: skip


@pytest.mark.parametrize(("name", "opset"), OLD)
def test_an_opset_that_lacks_an_operator_keeps_the_node(name, opset):
    """Max and Sum broadcast from opset 8 on, Where from 9."""
    case = REDUCED[name]
    model, x = reduced(case, opset), special(*case.shape)
    assert not is_replaced(case, check("reduce_strength", model, {"x": x}, bound_of(case, x, model))[0])


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", REDUCED)
class TestContexts:
    """The node among others: what it reads and makes is read elsewhere, too, is fed otherwise, or has another name."""

    @staticmethod
    def model(case, **given):
        return reduced(case, min(case.last, 20), **given)

    def check(self, case, model):
        x = special(*case.shape)
        plain = self.model(case)
        return check("reduce_strength", model, {"x": x}, None if case.bound is None else bound_of(case, x, plain))

    def test_outputs_of_the_graph(self, name):
        """The value before it, and its own before another node."""
        case = REDUCED[name]
        model = self.model(case, context="{body} z = Neg (y)", outputs="(y)")
        self.check(case, model)

    def test_values_that_are_read_twice(self, name):
        """Two nodes alike over one value and the same constants."""
        case = REDUCED[name]
        again = case.node.format(x="t", y="z")
        self.check(case, self.model(case, context=f"{{body}} {again}", outputs="(y, z)"))

    def test_dynamic_sizes(self, name):
        """Without sizes it stays as it is."""
        case = REDUCED[name]
        dims = ", ".join(f"d{axis}" for axis in range(len(case.shape)))
        self.check(case, self.model(case, dims=dims))

    def test_a_constant_input(self, name):
        """The value is known when the model loads."""
        case = REDUCED[name]
        x = special(*case.shape)
        model = as_constant(self.model(case), "x", x)
        plain = self.model(case)
        bound = None if case.bound is None else bound_of(case, x, plain)
        feed = {"other": np.float32([-0.0])}
        if bound is None:
            check("reduce_strength", model, feed)
        else:
            model.graph.output.pop()
            check("reduce_strength", model, feed, bound)

    def test_odd_names(self, name):
        """Spaces, slashes, letters of other alphabets, and the names that the pass would choose."""
        case = REDUCED[name]
        names = {
            "x": "an input: 1/2",
            "t": "y_zero",
            "y": "ŷ",
            "s": "ŷ_one",
            "a": "ŷ_0",
            "i": "ŷ_start",
            "to": "ŷ_rows",
        }
        model = rename(self.model(case), names)
        x = special(*case.shape)
        bound = bound_of(case, x, self.model(case))
        check("reduce_strength", model, {"an input: 1/2": x}, bound)

    def test_a_branch(self, name):
        """In a subgraph, where it captures its input and constants."""
        case = REDUCED[name]
        model = models.model(
            f"""net (float[{", ".join(map(str, case.shape))}] x) => (y) {{
                t = PRelu (x, unit)
                k = Constant <value = bool {{1}}> ()
                y = If (k) <then_branch = yes () => (r) {{ {case.node.format(x="t", y="r")} }},
                            else_branch = no () => (q) {{ u = Neg (t) {case.node.format(x="u", y="q")} }} >
            }}""",
            opset=min(case.last, 20), ir=10, unit=np.ones(1, np.float32), **case.constants,
        )  # fmt: skip
        self.check(case, model)
