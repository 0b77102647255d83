"""The cases of the harness of passes: nodes in ONNX's text form, the pass that replaces them, and what it makes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support import models
from tests.support.passes import LARGEST, special

ULP = 2.0**-24  # half an ulp of 1 in float32
C = 4  # channels


@dataclass(frozen=True)
class Case:
    """Nodes that make {y} of {x}, the pass, and the operators after it, those that unpool computes with a star.

    Attributes:
        shape: of x.
        constants: initializers by name.
        bound: of what the pass keeps, by x and the constants; None for bits.
        first: opset in which the pass replaces the nodes; `last` is the last one.
        dims: sizes of x in the model, if they are not those of `shape`.
        outputs: of the graph.
        says: what the plan says of a node.
    """

    optimizer: str
    nodes: str
    after: str
    shape: tuple[int, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    bound: Any = None
    first: int = 9
    last: int = 24
    dims: str = ""
    outputs: str = "(y)"
    says: str = ""

    @property
    def opset(self):
        """The one for tests of a single opset: onnxruntime has all operators of the cases up to 20."""
        return min(self.last, max(self.first, 17), 20)

    def model(self, opset=0, *, context="{body}", dims="", outputs=""):
        """A model of the nodes, whose input a Neg makes."""
        sizes = dims or self.dims or ", ".join(map(str, self.shape))
        body = context.format(body="u = Neg (x) " + self.nodes.format(x="u", y="y"))
        text = f"net (float[{sizes}] x) => {outputs or self.outputs} {{ {body} }}"
        return models.model(text, opset=opset or self.opset, ir=10, **self.constants)

    def limit(self, x):
        """The bound for an input."""
        return None if self.bound is None else self.bound(x, self.constants)

    def inputs(self):
        """Special values, without the largest ones where they are summed; and numbers of several magnitudes."""
        yield special(*self.shape)
        values = special(*self.shape, seed=1)
        yield np.where(np.abs(values) > 1e20, np.float32(2), values)
        for scale in (1e-42, 1e-20, 1, 1e4, 1e19, 1e37):
            yield models.random(*self.shape) * np.float32(scale)
        yield models.random(*self.shape) + np.float32(1e4)


def finite(x):
    """The largest magnitude in float64; infinities and NaN count as 0: they make no result that rounds."""
    wide = np.abs(x.astype(np.float64))
    return np.where(np.isfinite(wide), wide, 0).max()


def products(x, constants):
    """What a convolution keeps; where a sum may overflow, anything."""
    n = constants["w"][0].size
    total = n * finite(x) * finite(constants["w"]) + 4 * (finite(constants["b"]) if "b" in constants else 0)
    return (2 * n + 8) * ULP * total + n * 2.0**-149 if total < LARGEST else np.inf


def snake(x, constants):
    """What a Snake keeps."""
    return 2.0**-22 * (np.nan_to_num(np.abs(x.astype(np.float64)), posinf=0) + finite(constants["h"]))


def absolute(*_):
    """What Tanh and Sigmoid keep."""
    return 2.0**-21


def relative(*_):
    """What Mish keeps."""
    return lambda y: 2.0**-20 * np.abs(y.astype(np.float64)) + 2.0**-126


def exponential(*_):
    """What Elu keeps."""
    return 2.0**-22


def close(x, _):
    """For nodes around those of a pass, of ordinary numbers."""
    return 1e-5 * max(1.0, finite(x))


ONE = {"w": np.ones((1, 1, 1), np.float32)}  # a ConvTranspose that changes nothing
BOUNDS = {"low": np.float32(-0.5), "high": np.float32(6), "one": np.float32(1)}
SPECIAL_BOUNDS = {"zero": np.float32(-0.0), "one": np.float32(1), "nan": np.float32(np.nan)}
IN_ONE, APART = "Neg ConvTranspose*", "Neg ConvTranspose* {}"


def activation(text, constants=BOUNDS, *, fused=True, **given):
    """An activation of t, the result of a ConvTranspose."""
    operator, used = text.split()[0], {name: value for name, value in constants.items() if f" {name}" in text}
    nodes = f"t = ConvTranspose ({{x}}, w) {{y}} = {text}"
    says = {"says": f"with {operator}->y folded in"} if fused else {}
    after = IN_ONE if fused else APART.format(operator)
    return Case("fuse_activation", nodes, after, (1, 1, 51), ONE | used, **says, **given)


def prelu(slope, after, shape=(2, 3, 4, 7), **given):
    """A PRelu; the last slope of a case counts for all channels, or for one each."""
    says = {"says": "replaces PRelu 'PRelu->y'"} if after != "PRelu" else {}
    return Case(
        "reduce_strength", "{y} = PRelu ({x}, s)", f"Neg {after}", shape, {"s": np.float32(slope)}, **says, **given
    )


def channels(*slopes):
    """A slope for each channel."""
    return np.float32(slopes).reshape(-1, 1, 1)


FLOOR = ', coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
VOLUME = (1, 2, 3, 4, 5)
REPEATED = "Neg Reshape Resize Reshape Expand Reshape"


def resize(given, to, after=REPEATED, shape=VOLUME, *, by="to", first=13):
    """A Resize to nearest elements, to a size or by factors."""
    inputs = ", , , to" if by == "to" else ", , scales"
    constants = {"to": np.array(to)} if by == "to" else {"scales": np.float32(to)}
    nodes = f'{{y}} = Resize <mode = "nearest"{given}> ({{x}}{inputs})'
    return Case("reduce_strength", nodes, after, shape, constants, first=first)


def softmax(axis, after, shape, operator="Softmax", **given):
    """A Softmax over an axis."""
    says = {"says": f"replaces {operator} '{operator}->y'"} if "Transpose" in after else {}
    nodes = f"{{y}} = {operator} <axis = {axis}> ({{x}})"
    return Case("reduce_strength", nodes, f"Neg {after}", shape, **({"first": 13} | given), **says)


def gather(indices, after, shape=(2, 3, 40), *, axis=-1, **given):
    """A Gather of a table of indices."""
    says = {"says": "replaces Gather 'Gather->y'"} if "Slice" in after else {}
    nodes = f"{{y}} = Gather <axis = {axis}> ({{x}}, i)"
    return Case("reduce_strength", nodes, f"Neg {after}", shape, {"i": indices}, **({"first": 13} | given), **says)


def windows(count, size, stride=1, dilation=1, first=0):
    """The indices of windows."""
    return first + stride * np.arange(count)[:, None] + dilation * np.arange(size)


def einsum(equation, after, shape=(2, C, 5, 3), weights=(6, C), *, inputs="{x}, w", constants=None, **given):
    """An Einsum of x and weights."""
    says = {"says": "replaces Einsum 'Einsum->y'"} if "MatMul" in after else {}
    constants = {"w": models.random(*weights)} if constants is None else constants
    nodes = f'{{y}} = Einsum <equation = "{equation}"> ({inputs})'
    return Case(
        "reduce_strength", nodes, f"Neg {after}", shape, constants, **({"bound": products, "first": 12} | given), **says
    )


SNAKE = "m = Mul (f, {x}) i = Sin (m) p = Pow (i, two) g = Mul (h, p) {y} = Add ({x}, g)"
WAVES = {"f": models.random(1, C, 1), "h": models.random(C, 1, seed=1), "two": np.float32(2)}
SLOWLY = {"says": "with Mul->m, Pow->p, Mul->g, Add->y folded in"}


def waves(nodes=SNAKE, after="Neg Snake*", shape=(1, C, 51), bound=snake, more=None, **given):
    """A Snake in nodes of the standard."""
    used = {name: value for name, value in (WAVES | (more or {})).items() if name in nodes}
    return Case("fuse_snake", nodes, after, shape, used, bound, **given)


WEIGHTS = {"w": models.random(C, C, 3, 3)}


def conv(attributes, weights, shape, inputs="{x}, w", *, after="Neg ConvTranspose*", nodes="", says=None):
    """A Conv with weights `w` and a bias `b`."""
    constants = {"w": models.random(*weights) / np.float32(np.sqrt(np.prod(weights[1:])))}
    constants |= {"b": models.random(weights[0], seed=5)} if "b" in inputs else {}
    says = "converted from Conv 'Conv->y': faster so" if says is None and "*" in after else says or ""
    nodes = nodes or f"{{y}} = Conv <{attributes}> ({inputs})".replace("<> ", "")
    return Case("convert_conv", nodes, after, shape, constants, products, says=says)


CASES = {
    **{
        case.nodes.partition("{y} = ")[2]: case
        for case in (
            activation("Relu (t)"),
            activation("LeakyRelu (t)"),
            activation("LeakyRelu <alpha = -0.3> (t)"),
            activation("Clip (t, low, high)", first=11),
            activation("Clip (t, zero, one)", SPECIAL_BOUNDS, first=11),
            activation("Clip (t, nan, one)", SPECIAL_BOUNDS, fused=False, first=11),
            activation("Clip (t, high, low)", first=11),
            activation("HardSigmoid (t)"),
            activation("HardSwish (t)", first=14),
            activation("Tanh (t)", fused=False, bound=absolute),
            activation("Sigmoid (t)", fused=False, bound=absolute),
        )
    },
    "one slope": prelu([0.25], "LeakyRelu"),
    "one negative slope": prelu(-0.5, "LeakyRelu"),
    "a slope of zero": prelu([0], "LeakyRelu"),
    "a slope of minus zero": prelu([-0.0], "LeakyRelu"),
    "slopes from 0 to 1": prelu(channels(1e-37, 0.25, 1), "Mul Max"),
    "slopes of all signs": prelu(channels(-2, 0, 1e30), "Less Where Mul"),
    "slopes with minus zero": prelu(channels(-0.0, 2, 3), "PRelu"),
    "subnormal slopes": prelu(channels(1e-45, -1e-45, 1), "Less Where Mul"),
    "a slope for each element": prelu(models.random(3, 4, 7), "Less Where Mul"),
    "Mish": Case("reduce_strength", "{y} = Mish ({x})", "Neg Min Exp Add Mul Add Div Mul", (2, 3, 4, 17),
                 bound=relative, first=18, says="replaces Mish 'Mish->y'"),
    "Softmax of channels": softmax(1, "Reshape Transpose Softmax Transpose Reshape", (2, 3, 4, 5)),
    "Softmax of the first axis": softmax(-3, "Reshape Transpose LogSoftmax Transpose Reshape", (5, 2, 3), "LogSoftmax"),
    "Gather of windows": gather(windows(38, 3), f"{'Slice Unsqueeze ' * 3}Concat"),
    "Einsum of channels": einsum("nchw, kc -> nkhw", "Transpose Reshape MatMul Reshape Transpose"),
    "a Mish of three nodes": Case(
        "reduce_strength", "s = Softplus ({x}) t = Tanh (s) {y} = Mul ({x}, t)", "Neg Min Exp Add Mul Add Div Mul",
        (2, 3, 4, 17), bound=relative, first=8, says="replaces Mul 'Mul->y'"),
    "Elu": Case("reduce_strength", "{y} = Elu ({x})", "Neg Min Exp Sub Max", (2, 3, 4, 17), bound=exponential, first=8,
                says="replaces Elu 'Elu->y'"),
    **{
        f"Resize {given}": resize(given, (1, 2, 6, 8, 15))
        for given in (
            "",
            ", cubic_coeff_a = -0.5",
            f"{FLOOR}, extrapolation_value = 3.0",
            ', coordinate_transformation_mode = "half_pixel", nearest_mode = "round_prefer_ceil"',
        )
    },
    **{
        f"Resize {given}": resize(given, (1, 2, 6, 8, 10), first=18)
        for given in (', keep_aspect_ratio_policy = "stretch"', ", antialias = 0")
    },
    "a Snake": waves(**SLOWLY),
    "a Snake of high frequency": waves(more={"f": 1e4 * WAVES["f"]}),
    "a Snake of infinite frequency": waves(more={"f": np.inf * WAVES["f"]}),
    "a Conv": Case("convert_conv", "{y} = Conv <pads = [1, 1, 1, 1]> ({x}, w)", "Neg ConvTranspose*", (1, C, 6, 7),
                   WEIGHTS, products),
    "a Conv of one axis": conv("dilations = [2], pads = [1, 4]", (3, C, 4), (2, C, 9), "{x}, w, b"),
    "a Conv of three axes": conv("", (3, C, 3, 2, 1), (1, C, 5, 6, 7), "{x}, w, b"),
    "an unpooling as torch writes it": Case(
        "fuse_unpool",
        """q = IsNaN ({x}) f = Where (q, zero, {x}) p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (f)
            a = Reshape (i, flat) j = Unsqueeze (a, one) v = Reshape (moved, flat)
            o = ConstantOfShape (all) c = ScatterND (o, j, v) {y} = Reshape (c, shape)""",
        "Neg IsNaN Where MaxPool* MaxUnpool*", (1, C, 6, 8),
        {"flat": np.array([-1]), "one": np.array([1]), "all": np.array([C * 48]), "zero": np.float32(0),
         "moved": special(1, C, 3, 4), "shape": np.array([1, C, 6, 8])}, first=13,
    ),
}  # fmt: skip
"""Those that run in every opset, on special values and in every context."""

UP = "c = ConvTranspose <strides = [2]> ({x}, up)"
UP_WEIGHTS = {"up": models.random(C, C, 4), "same": np.array([1, C, -1]), "three": np.float32(3),
              "at": models.random(62)}  # fmt: skip
UPPER = SNAKE.replace("{x}", "c")
POOL = "kernel_shape = [2, 2], strides = [2, 2]"


def upper(nodes, after, shape=(1, C, 30), **given):
    """A Snake behind a ConvTranspose."""
    return waves(nodes, f"Neg ConvTranspose* {after}", shape, close, UP_WEIGHTS, **given)


NODES = "Mul Sin Pow Mul Add"
SUM = "v = ConvTranspose <strides = [2]> ({x}, up) r = Cos (v)"
LARGE = {"weights": (64, 64, 3, 3), "shape": (1, 64, 40, 40)}
PADDED = "pads = [1, 1, 1, 1]"

FORMS = {
    "an activation of channels": Case(
        "fuse_activation", "t = ConvTranspose <strides = [2]> ({x}, up) {y} = Relu (t)", IN_ONE, (1, C, 7),
        {"up": UP_WEIGHTS["up"]}, close),
    "Clip with attributes": activation("Clip <min = -0.5, max = 0.75> (t)", last=10),
    "another operator": activation("Abs (t)", fused=False),
    "two readers": Case("fuse_activation", "t = ConvTranspose ({x}, w) r = Relu (t) {y} = Add (r, t)",
                        APART.format("Relu Add"), (1, 1, 51), ONE),
    "a bound that is computed": Case(
        "fuse_activation", "t = ConvTranspose ({x}, w) s = ReduceMax <keepdims = 0> ({x}) {y} = Clip (t, low, s)",
        APART.format("ReduceMax Clip"), (1, 1, 51), ONE | {"low": BOUNDS["low"]}, first=12, last=17),
    "one bound": activation("Clip (t, low)", fused=False, first=11),
    "a second activation": Case("fuse_activation", "t = ConvTranspose ({x}, w) r = Relu (t) {y} = Tanh (r)",
                                f"{IN_ONE} Tanh", (1, 1, 51), ONE, absolute),
    "a PRelu becomes a LeakyRelu, which a ConvTranspose applies": Case(
        "reduce_strength", "t = ConvTranspose ({x}, w) {y} = PRelu (t, s)", IN_ONE, (1, 1, 51),
        ONE | {"s": np.float32([[0.3]])}),
    "infinite slopes": prelu(channels(np.inf, 2, 3), "PRelu"),
    "slopes that are not numbers": prelu(channels(np.nan), "PRelu"),
    "a PRelu in double": Case("reduce_strength", "d = Cast <to = 11> ({x}) {y} = PRelu (d, s)", "Neg Cast PRelu",
                              (2, 3), {"s": np.float64([0.3])}),
    "slopes that are computed": Case("reduce_strength", "s = ReduceMax <keepdims = 0> ({x}) {y} = PRelu ({x}, s)",
                                     "Neg ReduceMax PRelu", (2, 3), last=17),
    "Min broadcasts from opset 8": prelu(channels(1e-37, 0.25, 1), "PRelu", first=7, last=7),
    "Where comes with opset 9": prelu(channels(-2, 0, 1e30), "PRelu", first=8, last=8),
    "no PRelu is replaced before opset 8": prelu([0.25], "PRelu", first=7, last=7),
    "a Mish the other way round": Case(
        "reduce_strength", "s = Softplus ({x}) t = Tanh (s) {y} = Mul (t, {x})", "Neg Min Exp Add Mul Add Div Mul",
        (2, 3, 4, 17), bound=relative),
    "a Mish of another value": Case(
        "reduce_strength", "v = Abs ({x}) s = Softplus (v) t = Tanh (s) {y} = Mul ({x}, t)",
        "Neg Abs Softplus Tanh Mul", (2, 3, 4, 17), bound=close),
    "a Mish before opset 8": Case(
        "reduce_strength", "s = Softplus ({x}) t = Tanh (s) {y} = Mul ({x}, t)", "Neg Softplus Tanh Mul",
        (2, 3, 4, 17), bound=close, first=7, last=7),
    "another alpha": Case("reduce_strength", "{y} = Elu <alpha = 0.5> ({x})", "Neg Elu", (2, 3, 4, 17)),
    "an Elu before opset 8": Case("reduce_strength", "{y} = Elu ({x})", "Neg Elu", (2, 3, 4, 17), first=7, last=7),
    "an Elu of open sizes": Case("reduce_strength", "{y} = Elu ({x})", "Neg Min Exp Sub Max", (2, 3, 4, 17),
                                 bound=exponential, dims="2, n, 4, 17"),
    "a Mish before Indices": Case(
        "reduce_strength", f"t = Mish ({{x}}) {{y}}, i = MaxPool <{POOL}> (t)", "Neg Mish MaxPool*", (1, 3, 8, 8),
        first=18, outputs="(y, i)"),
    "Softmax over the last axis": softmax(3, "Softmax", (2, 3, 4, 5)),
    "Softmax over the last axis that has a size": softmax(1, "Softmax", (2, 3, 1, 1)),
    "Softmax of all axes from one on": softmax(1, "Softmax", (2, 3, 4), first=11, last=12),
    "Softmax between two axes": softmax(1, "Transpose Softmax Transpose", (2, 3, 4)),
    "a Softmax of three open sizes": softmax(1, "Transpose Softmax Transpose", (2, 3, 4), dims="a, b, c", first=15),
    "a Softmax of open sizes": softmax(
        1, "Shape Shape Shape ReduceProd ReduceProd Concat Reshape Transpose Softmax Transpose Shape Reshape",
        (2, 3, 4, 5), dims="n, 3, h, w", first=15),
    "a Softmax of open sizes before opset 15": softmax(1, "Softmax", (2, 3, 4, 5), dims="n, 3, h, w", last=14),
    "a Gather of two windows": gather(windows(2, 30, 5, 1, 4), f"{'Slice Unsqueeze ' * 2}Concat", axis=2),
    "a Gather of windows with holes": gather(windows(13, 3, 2, 4, 1), f"{'Slice Unsqueeze ' * 3}Concat"),
    "a Gather of windows of one element": gather(windows(20, 1, 2), "Slice Unsqueeze"),
    "a Gather of one window": gather(windows(1, 20, 1, 2), "Slice Unsqueeze"),
    "a Gather of windows from another axis": gather(windows(2, 2), "Gather", axis=1),
    "a Gather of one row of indices": gather(np.arange(30), "Gather"),
    "a Gather of other indices": gather(windows(38, 3)[:, ::-1], "Gather"),
    "a Gather of indices that jump": gather(np.array([[0, 1, 2], [1, 2, 4]]), "Gather"),
    "a Gather from the end": gather(windows(3, 3) - 40, "Gather"),
    "a Gather of many windows": gather(windows(33, 33), "Gather", (1, 1, 70)),
    "a Gather of windows before opset 13": gather(windows(38, 3), "Gather", first=11, last=12),
    "scores of attention": einsum("bhid,bhjd->bhij", "Transpose MatMul", (1, 2, 3, C), (1, 2, 7, C)),
    "values of attention": einsum("bhij,bhjd->bhid", "MatMul", (1, 2, 3, C), (1, 2, C, 7)),
    "a batch at the end": einsum("fts,bfs->bts", "Transpose Transpose MatMul Transpose", (C, 9, 60), (2, C, 60)),
    "the second operand on the left": einsum("ncwl,vw->ncvl", "Transpose Reshape MatMul Reshape Transpose",
                                             (2, 3, C, 7), (6, C)),
    "a batch of one": einsum("nchw,kc->nkhw", "Reshape MatMul Reshape", (1, C, 5, 3)),
    "a capital letter and two sums": einsum("abC,bCd->ad", "Reshape Reshape MatMul", (5, 2, 3), (2, 3, 4)),
    "an order of letters": einsum("nchw,kc", "Einsum"),
    "a single operand": einsum("nchw->nhwc", "Einsum", inputs="{x}", constants={}, bound=None),
    "any axes": einsum("n...c,kc->n...k", "Einsum", (2, 5, 3, C)),
    "a diagonal": einsum("iic,kc->ik", "Einsum", (3, 3, C)),
    "a sum of one operand": einsum("nchw,kc->nkh", "Einsum", bound=close),
    "products of elements": einsum("nc,nc->nc", "Einsum", (6, C)),
    "a product without rows": einsum("nc,nc->n", "Einsum", (6, C)),
    "an outer product": einsum("nc,k->nck", "Einsum", (6, C), (5,)),
    "a repeated element": einsum("nchw,kc->nkhw", "Einsum", (2, C, 5, 3), (6, 1)),
    "an Einsum without elements": einsum("nc,kc->nk", "Einsum", (0, C), bound=None),
    "an Einsum before Indices": Case(
        "reduce_strength", f't = Einsum <equation = "nchw,kc->nkhw"> ({{x}}, w) {{y}}, i = MaxPool <{POOL}> (t)',
        "Neg Einsum MaxPool*", (1, C, 8, 8), {"w": models.random(6, C)}, first=12, outputs="(y, i)"),
    "twice": resize(FLOOR, (2, 3, 8, 10, 12), shape=(2, 3, 4, 5, 6)),
    "one axis": resize(FLOOR, (1, 2, 6, 4, 5)),
    "factors": resize(FLOOR, (1, 1, 2, 3, 1), by="scales"),
    "half pixels up": resize(', nearest_mode = "round_prefer_ceil"', (1, 2, 6, 20, 15)),
    "two axes": resize(FLOOR, (1, 2, 8, 10), "Neg Resize", (1, 2, 4, 5)),
    "a broken factor": resize(FLOOR, (1, 2, 6, 6, 10), "Neg Resize"),
    "smaller": resize(FLOOR, (1, 2, 2, 2, 3), "Neg Resize", (1, 2, 4, 4, 6)),
    "broken factors": resize(FLOOR, (1, 1, 2.2, 2, 2), "Neg Resize", by="scales"),
    "more channels": resize(FLOOR, (1, 4, 6, 8, 10), "Neg Resize"),
    "the same size": resize(FLOOR, VOLUME, "Neg Resize"),
    "rounded up": resize(FLOOR.replace("floor", "ceil"), (1, 2, 6, 8, 10), "Neg Resize"),
    "asymmetric and rounded": resize(FLOOR.replace("floor", "round_prefer_floor"), (1, 2, 6, 8, 10), "Neg Resize"),
    "aligned corners": resize(FLOOR.replace("asymmetric", "align_corners"), (1, 2, 6, 8, 10), "Neg Resize"),
    "a Snake behind a ConvTranspose": upper(f"{UP} {UPPER}", "Snake*"),
    "a Snake the other way round": upper(
        f"{UP} m = Mul (c, f) i = Sin (m) p = Pow (i, two) g = Mul (p, h) {{y}} = Add (g, c)", "Snake*"),
    "a Snake behind a Reshape": upper(f"t = {UP[4:]} c = Reshape (t, same) {UPPER}", "Snake*"),
    "a Snake of one frequency": upper(f"{UP} {UPPER.replace('(f, c)', '(two, c)')}", "Snake*"),
    "a Snake of open sizes": upper(f"{UP} {UPPER}", "Snake*", shape=(3, C, 7), dims=f"n, {C}, l"),
    "another power": upper(f"{UP} {UPPER.replace('two', 'three')}", NODES),
    "a sum with something else": upper(f"{UP} {UPPER.replace('Add (c, g)', 'Add (m, g)')}", NODES),
    "a sine that is read twice": upper(f"{UP} {UPPER.replace('{y} =', 'a =')} {{y}} = Add (a, i)", f"{NODES} Add"),
    "a frequency of positions": upper(f"{UP} {UPPER.replace('(f, c)', '(at, c)')}", NODES),
    "a frequency that is computed": upper(
        f"{UP} k = ReduceMax <keepdims = 0> ({{x}}) {UPPER.replace('(f, c)', '(k, c)')}", f"ReduceMax {NODES}",
        last=17),
    "a Snake before Indices": upper(
        f"{UP} {UPPER.replace('{y} =', 'a =')} {{y}}, i2 = MaxPool <kernel_shape = [2]> (a)", f"{NODES} MaxPool*",
        outputs="(y, i2)"),
    "a sum that others read": upper(f"{SUM} c = Add (v, r) {UPPER.replace('{y} =', 'a =')} {{y}} = Sub (a, c)",
                                    "Cos Snake* Sub"),
    "a sum that is an output": upper(f"{SUM} c = Add (r, v) {UPPER}", "Cos Snake*", outputs="(y, c)"),
    "a sum that nothing else reads": upper(f"{SUM} c = Add (r, v) {UPPER}", "Cos Snake*"),
    "a sum behind a Reshape": upper(
        f"{SUM} d = Add (r, v) c = Reshape (d, same) {UPPER.replace('{y} =', 'a =')} {{y}} = Sub (a, d)",
        "Cos Snake* Sub"),
    "a sum that broadcasts": upper(
        f"v = {UP[4:]} r = ReduceMax <axes = [2]> (v) c = Add (v, r) {UPPER}", "ReduceMax Add Snake*", last=17),
    "pads, a bias": conv(PADDED, (3, 4, 3, 3), (2, 4, 5, 7), "{x}, w, b"),
    "no pads": conv('kernel_shape = [3, 2], auto_pad = "NOTSET"', (3, 4, 3, 2), (1, 4, 5, 7)),
    "VALID": conv('auto_pad = "VALID"', (3, 4, 3, 2), (1, 4, 5, 7)),
    "uneven pads": conv("pads = [0, 1, 2, 0]", (3, 4, 3, 3), (1, 4, 5, 7)),
    "groups": conv(f"{PADDED}, group = 2", (6, 2, 3, 3), (1, 4, 5, 7), "{x}, w, b"),
    "dilation": conv("dilations = [3, 2], strides = [1, 1], pads = [2, 1, 0, 4]", (3, 4, 2, 3), (1, 4, 5, 7)),
    "three axes": conv("pads = [0, 1, 0, 1, 1, 0]", (3, 2, 2, 3, 1), (1, 2, 3, 4, 5)),
    "a Conv by tiles": conv(PADDED, inputs="{x}, w, b", **LARGE),
    "a Conv with a Relu": conv("", nodes=f"c = Conv <{PADDED}> ({{x}}, w) {{y}} = Relu (c)",
                               says="converted from Conv 'Conv->c': faster so; with Relu->y folded in", **LARGE),
    "a stride": conv(f"{PADDED}, strides = [1, 2]", after="Neg Conv", **LARGE),
    "pads that depend on the size": conv('auto_pad = "SAME_UPPER"', after="Neg Conv", **LARGE),
    "pads beyond the window": conv("pads = [3, 3, 3, 3]", after="Neg Conv", **LARGE),
    "weights that are computed": conv("", nodes="v = Abs (w) {y} = Conv ({x}, v)", after="Neg Abs Conv", **LARGE),
    "a Conv before Indices, and one behind": conv(
        "", nodes=f"""a = Conv <{PADDED}> ({{x}}, w) r = Relu (a) p, i = MaxPool <{POOL}> (r)
            e = MaxUnpool <{POOL}> (p, i) {{y}} = Conv <{PADDED}> (e, w)""",
        after="Neg Conv Relu MaxPool* MaxUnpool* ConvTranspose*", **LARGE),
}  # fmt: skip
"""Those of which one model says all: forms that a pass replaces, and near ones that it leaves."""
