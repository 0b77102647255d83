"""A model, an image and tiles for every operator that can be tiled, drawn from a seed; every value of every attribute.

Images of sums are small whole numbers, so that sums of float32 are exact in any order; others are normal. A few have
NaN and infinities. Constants are sometimes made from the size of the image, and may be others in a tile.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NHWC = "com.ms.internal.nhwc"
NEWEST = 24
"""The newest opset that is drawn; the oldest is 7, from which onnxruntime runs models."""

GENERATORS: dict[str, Callable[["Sketch"], None]] = {}


@dataclass
class Case:
    """One model, what it gets, how it lies, and the cells of its tiles, by spatial axis."""

    operator: str
    model: onnx.ModelProto
    feed: dict[str, np.ndarray]
    layout: str
    cells: list[tuple[int, ...]]
    words: dict[str, object]


def generator(*operators):
    """Register a function that adds one node of these operators to a sketch."""

    def register(function):
        GENERATORS.update(dict.fromkeys(operators, function))
        return function

    return register


def case(operator, seed):
    """The case of an operator with a seed."""
    sketch = Sketch(operator, seed)
    GENERATORS[operator](sketch)
    layout = "NHWC" if sketch.is_last else "NCHW"
    return Case(operator, sketch.model(), sketch.feed, layout, sketch.cells(), sketch.session_words())


@cache
def schemas():
    """By operator, ONNX's schemas of all versions."""
    found = {}
    for one in onnx.defs.get_all_schemas_with_history():
        if one.domain == "":
            found.setdefault(one.name, []).append(one)
    return found


class Sketch:
    """A model that grows around one node."""

    def __init__(self, operator, seed):
        self.operator = operator
        self.rng = np.random.default_rng([zlib.crc32(operator.encode()), seed])
        known = schemas().get(operator, [])
        versions = {max(7, one.since_version) for one in known if one.since_version <= NEWEST}
        stops = [one.since_version for one in known if one.deprecated]
        self.opset = self.pick([*versions.difference(stops), min([18, *[stop - 1 for stop in stops]])])
        self.opset = max(self.opset, min(versions))
        self.schema = onnx.defs.get_schema(operator, self.opset)
        self.nodes, self.weights, self.outputs, self.feed, self.count = [], [], [], {}, 0
        self.is_last, self.step, self.domain, self.kinds = False, 1, "", {}
        self.has_extremes = self.chance(0.08)

    def pick(self, choices):
        """One of some values."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share):
        """True in this share of cases."""
        return self.rng.random() < share

    def whole(self, low, high):
        """A number from `low` to `high`."""
        return int(self.rng.integers(low, high + 1))

    def image(
        self, dtype=np.float32, *, ranks=(1, 2, 2, 2, 3), channels=None, step=1, last=0.0, sums=False, prefix=0.4
    ):
        """The input, and sometimes a pool before the node, by which tiles have a halo and another stride; its name."""
        self.rank, self.step = self.pick(ranks), step
        self.channels = channels or self.whole(1, 3)
        least, most = {1: (5, 24), 2: (4, 11), 3: (3, 6)}[self.rank]
        self.sizes = [
            max(1, step * self.whole(least, most) // self.pick([1, 2]) + self.pick([0, 0, 1, step - 1]))
            for _ in range(self.rank)
        ]
        self.is_last = self.chance(last)
        batch = self.pick([1, 1, 2])
        shape = (batch, *self.sizes, self.channels) if self.is_last else (batch, self.channels, *self.sizes)
        self.shape = shape
        self.feed["x"] = self.numbers(shape, dtype, sums=sums)
        if not self.is_last and dtype == np.float32 and self.chance(prefix):
            return self.pooled("x")
        return "x"

    def of_any_layout(self, *args, **words):
        """An image for an operator that has a form for channels last in another domain."""
        found = self.image(*args, last=0.2, **words)
        if self.is_last:
            self.domain, self.opset = NHWC, min(self.opset, 21)
        return found

    def numbers(self, shape, dtype=np.float32, *, sums=False):
        """Values of a type, normal or small whole numbers."""
        if np.dtype(dtype).kind != "f":
            return self.rng.integers(0 if np.dtype(dtype).kind == "u" else -5, 6, shape).astype(dtype)
        found = self.rng.integers(-5, 6, shape) if sums else self.rng.standard_normal(shape) * 2
        if self.has_extremes and np.ndim(found) > 3:
            at = self.rng.random(shape) < 0.05
            found = np.where(at, self.rng.choice([np.nan, np.inf, -np.inf, -0.0], shape), found)
        return found.astype(dtype)

    def pooled(self, x):
        """A MaxPool of 1 to 3 elements, and of a stride of 1 to 3, along every axis."""
        kernel = [self.whole(1, 3) for _ in range(self.rank)]
        strides = [self.whole(1, 3) for _ in range(self.rank)]
        pads = [self.whole(0, size - 1) for size in kernel * 2]
        return self.node("MaxPool", x, kernel_shape=kernel, strides=strides, pads=pads)

    @property
    def axes(self):
        """The number of axes, batch and channels with them."""
        return self.rank + 2

    @property
    def channel(self):
        """The axis of the channels, sometimes counted from the end."""
        return self.pick([-1, self.axes - 1] if self.is_last else [1, 1, 1, 1 - self.axes])

    def words(self, **choices):
        """Attributes that the operator has in this opset: each left out sometimes, or one of its values."""
        found = {}
        for name, values in choices.items():
            if name in self.schema.attributes and (self.schema.attributes[name].required or self.chance(0.7)):
                found[name] = self.pick(values)
        return found

    def node(self, operator, *inputs, outputs=1, **attributes):
        """Add a node; its first output's name, or the names of all."""
        made = [f"v{self.count}_{number}" for number in range(outputs)]
        self.count += 1
        self.nodes.append(helper.make_node(operator, list(inputs), made, **attributes))
        return made[0] if outputs == 1 else made

    def put(self, *inputs, outputs=1, **attributes):
        """Add the node that all is about, and give what it makes."""
        if self.domain:
            attributes |= {"domain": self.domain, **self.activation()}
        made = self.node(self.operator, *inputs, outputs=outputs, **attributes)
        for name in [made] if outputs == 1 else made:
            self.outputs.append(name)
        return made

    def activation(self):
        """The function behind a node of the other domain, which ONNX's do not have."""
        if self.chance(0.6):
            return {}
        kind, *parameters = self.pick([["Relu"], ["LeakyRelu", 0.25], ["Clip", -1.0, 2.0], ["HardSigmoid", 0.25, 0.5]])
        return {"activation": kind, **({"activation_params": parameters} if parameters else {})}

    def session_words(self):
        """Words of the session."""
        spaces = ["output", "output", "auto", "inferred"] if self.operator == "MaxUnpool" else ["output"]
        is_exact = self.has_extremes or self.chance(0.8)
        compat = self.pick(["spec", "spec", "spec", "ort"])
        return {"exact": is_exact, "index_space": self.pick(spaces), "compat": compat}

    def follow_the_size(self):
        """Make one of the constants from the remainder of a size of the image, which a tile may have another of."""
        chosen = [one for one in self.weights if one.data_type in (TensorProto.INT64, TensorProto.FLOAT)]
        if not chosen or self.opset < 10:
            return
        weight, divisor = self.pick(chosen), self.whole(2, 3)
        axis = self.whole(1, self.rank) if self.is_last else self.whole(2, self.rank + 1)
        old, behind = weight.name, self.nodes
        weight.name, self.nodes = f"{old}_less", []
        size = self.node("Gather", self.node("Shape", "x"), self.constant(axis))
        rest = self.node("Mod", size, self.constant(divisor))
        change = self.node("Mul", rest, self.constant(self.pick([1, -1])))
        if weight.data_type == TensorProto.FLOAT:
            change = self.node("Cast", change, to=TensorProto.FLOAT)
        self.nodes.append(helper.make_node("Add", [weight.name, change], [old]))
        self.nodes += behind

    def constant(self, values, dtype=np.int64):
        """Add a constant; its name."""
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def model(self):
        """The model, whose spatial sizes are open."""
        if self.chance(0.12):
            self.follow_the_size()
        if self.chance(0.03):
            for node in self.nodes:
                node.name = "node"  # onnxruntime refuses names that two nodes have, and onnx's evaluator runs them
        graph = helper.make_graph(
            self.nodes,
            "case",
            [
                helper.make_tensor_value_info(
                    name,
                    helper.np_dtype_to_tensor_dtype(array.dtype),
                    [None] * array.ndim if array.ndim == self.axes else list(array.shape),
                )
                for name, array in self.feed.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in self.outputs],
            self.weights,
        )
        imports = [helper.make_opsetid("", self.opset), *([helper.make_opsetid(NHWC, 11)] if self.domain else [])]
        made = helper.make_model(graph, opset_imports=imports, ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(made)
        for value, found in zip(made.graph.output, inferred.graph.output, strict=True):
            kind = self.kinds.get(value.name, found.type.tensor_type.elem_type or TensorProto.FLOAT)
            value.type.tensor_type.elem_type = kind
        return made

    def cells(self):
        """Tiles of one stride, of some, and of all but one element."""
        few = [1, max(self.sizes) - 1, self.whole(2, 9), self.step * self.whole(1, 4)]
        return [tuple(max(1, self.pick(few)) for _ in range(self.rank)) for _ in range(3)]


UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg",
    "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
SCALES = [0.25, 0.5, 1.0, 1.7]


@generator(*UNARY)
def unary(one):
    x = one.image(one.pick([np.float32] * 5 + [np.float64]), last=0.3)
    one.put(
        x,
        **one.words(
            alpha=SCALES, beta=SCALES, gamma=SCALES, lambd=SCALES, bias=SCALES, approximate=["none", "tanh"],
            detect_negative=[0, 1], detect_positive=[0, 1],
        ),
    )  # fmt: skip


@generator("Add", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mul", "PRelu", "Pow", "Sub")
def binary(one):
    kind = one.pick([np.float32] * 5 + [np.float64, np.int32, np.int64])
    if one.operator == "Equal" and one.opset < 11:
        kind = np.int32
    x = one.image(kind, last=0.3)
    operands = [x, operand(one, x, kind)]
    if one.operator not in ("PRelu", "Pow") and one.chance(0.5):
        operands.reverse()
    one.put(*operands)


def operand(one, x, kind):
    """Another operand: of the image, one number, one per channel, or a second image; seldom numbers along an axis."""
    way = one.whole(0, 9)
    if way < 3:
        return one.node("Identity", x)
    if way < 5:
        return one.constant(one.numbers((), kind), kind)
    if way < 9 or x != "x":
        shape = [one.channels] if one.is_last else [one.channels, *[1] * one.rank]
        return one.constant(one.numbers(shape, kind), kind)
    if one.chance(0.5):
        one.feed["z"] = one.numbers(one.shape, kind)
        return "z"
    return one.constant(one.numbers(one.sizes[-1], kind), kind)


@generator("Max", "Mean", "Min", "Sum")
def variadic(one):
    x = one.image(last=0.3)
    one.put(*[x] + [operand(one, x, np.float32) for _ in range(one.whole(0, 2))])


@generator("And", "Or", "Xor", "Not")
def logical(one):
    x = one.node("Greater", one.image(last=0.3), one.constant(0, np.float32))
    others = [] if one.operator == "Not" else [one.pick([x, one.constant([True], bool), one.node("Not", x)])]
    one.put(x, *others)


@generator("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")
def bitwise(one):
    x = one.image(np.int32, last=0.3)
    one.put(x, *([] if one.operator == "BitwiseNot" else [operand(one, x, np.int32)]))


@generator("BitShift")
def bit_shift(one):
    x = one.image(np.uint32, last=0.3)
    one.put(x, operand(one, x, np.uint32), **one.words(direction=["LEFT", "RIGHT"]))


@generator("Mod")
def mod(one):
    fmod = one.pick([0, 1])
    kind = np.float32 if fmod else np.int32
    x = one.image(kind, last=0.3)
    one.put(x, one.constant([3], kind), **({"fmod": 1} if fmod else one.words(fmod=[0])))


@generator("Clip")
def clip(one):
    x = one.image(last=0.3)
    if one.opset < 11:
        one.put(x, **one.words(min=[-1.0], max=[1.5]))
    else:
        bounds = [one.pick(["", one.constant(value, np.float32)]) for value in (-1, 1.5)]
        one.put(x, *bounds)


@generator("Where")
def where(one):
    x = one.image(last=0.3)
    one.put(one.node("Greater", x, one.constant(0, np.float32)), x, operand(one, x, np.float32))


@generator("BatchNormalization")
def batch_norm(one):
    x = one.image(last=0.1)
    values = [np.abs(one.numbers(one.channels)) + 0.5 for _ in range(4)]
    one.put(
        x,
        *[one.constant(value, np.float32) for value in values],
        **one.words(epsilon=[1e-5, 0.1], momentum=[0.9, 0.5], training_mode=[0] * 9 + [1]),
    )


@generator("Cast")
def cast(one):
    x = one.image(last=0.3)
    words = one.words(
        to=[
            TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8,
            TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64, TensorProto.DOUBLE, TensorProto.FLOAT16,
            TensorProto.BFLOAT16, TensorProto.BOOL, TensorProto.STRING,
        ]
    )  # fmt: skip
    one.has_extremes = False  # no integer stands for them, and which one comes is left open
    extra = one.words(saturate=[0, 1], round_mode=["up", "down", "nearest"])
    if extra:
        words = {"to": TensorProto.FLOAT8E4M3FN if "round_mode" not in extra else TensorProto.FLOAT16, **extra}
    one.put(x, **words)
    if words["to"] in (TensorProto.FLOAT8E4M3FN, TensorProto.BFLOAT16):
        one.outputs = [one.node("Cast", one.outputs[0], to=TensorProto.FLOAT)]


@generator("CastLike")
def cast_like(one):
    x = one.image(last=0.3)
    kind = one.constant(0, one.pick([np.int32, np.float64]))
    one.put(x, kind, **one.words(saturate=[0, 1], round_mode=["up", "down", "nearest"]))


@generator("QuantizeLinear", "DequantizeLinear")
def quantise(one):
    quantises = one.operator == "QuantizeLinear"
    kinds = [np.uint8, np.int8, *([np.uint16, np.int16] if one.opset >= 21 else [])]
    if quantises and one.opset >= 19:
        kinds.append(ml_dtypes.float8_e4m3fn)
    if quantises and one.opset >= 21:
        kinds.append(ml_dtypes.uint4)
    kind = one.pick(kinds)
    one.has_extremes = False  # no integer stands for them
    x = one.image(np.float32 if quantises else kind, last=0.3)
    along = one.opset >= 13 and one.chance(0.6)
    axis = one.channel if one.chance(0.8) else one.pick([1, 2])
    count = (one.shape[axis],) if along else ()
    words = {"axis": axis} if along and (axis % one.axes != 1 or one.chance(0.5)) else {}
    if quantises:
        target = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        words |= one.words(saturate=[0, 1], output_dtype=[target], precision=[TensorProto.FLOAT])
    else:
        words |= one.words(output_dtype=[TensorProto.FLOAT])
    scale = one.constant(np.full(count, 0.1) + 0.1 * one.rng.random(count), np.float32)
    zero = one.constant(np.zeros(count), kind)
    made = one.put(x, scale, zero, **words)
    if quantises and kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.uint4):
        back = {name: value for name, value in words.items() if name == "axis"}
        one.outputs = [one.node("DequantizeLinear", made, scale, zero, **back)]


@generator("Dropout")
def dropout(one):
    x = one.image(last=0.3)
    extra = []
    if one.opset >= 12 and one.chance(0.5):
        extra = [one.constant(0.3, np.float32), one.constant(one.chance(0.2), bool)]
    one.put(x, *extra, outputs=one.pick([1, 1, 2]) if not extra else 1, **one.words(ratio=[0.3], seed=[3]))


@generator("LRN")
def lrn(one):
    x = one.image(last=0.2, ranks=(2,), channels=one.whole(1, 5))
    one.put(x, **one.words(size=[1, 3, 5], alpha=[0.0001, 0.5], beta=[0.75, 0.5], bias=[1.0, 2.0]))


@generator("Hardmax", "LogSoftmax", "LpNormalization", "Softmax")
def along(one):
    x = one.image(last=0.5, sums=one.operator == "LpNormalization")
    axis = one.channel if one.chance(0.9) else one.pick([0, 2, -1])
    one.put(x, **one.words(axis=[axis], p=[1, 2]))


@generator("LayerNormalization")
def layer_norm(one):
    x = one.image(last=0.9, sums=True)
    scale = one.constant(one.numbers(one.channels if one.is_last else one.shape[-1]), np.float32)
    one.put(
        x,
        scale,
        outputs=one.pick([1] * 9 + [3]),
        **one.words(axis=[-1, one.axes - 1], epsilon=[1e-5, 0.1], stash_type=[1]),
    )


@generator("CumSum")
def cum_sum(one):
    x = one.image(last=0.4, sums=True)
    axis = one.channel if one.chance(0.9) else 2
    one.put(x, one.constant(axis), **one.words(exclusive=[0, 1], reverse=[0, 1]))


@generator("ArgMax", "ArgMin")
def arg_max(one):
    x = one.image(last=0.4, sums=True)
    axis = one.pick([one.channel] * 8 + [0, 2])
    one.put(x, **one.words(axis=[axis], keepdims=[0, 1], select_last_index=[0, 1]))


@generator(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def reduce(one):
    x = one.image(last=0.4, sums=True)
    axes = one.pick([[one.channel]] * 6 + [[0, one.channel], [0], [2]])
    words = one.words(keepdims=[0, 1])
    if "axes" in one.schema.attributes:
        one.put(x, **words, **one.words(axes=[axes] * 6))
    elif one.chance(0.2):
        one.put(x, *one.pick([[], [one.constant([])]]), **words, noop_with_empty_axes=one.pick([1, 1, 0]))
    else:
        one.put(x, one.constant(axes), **words, **one.words(noop_with_empty_axes=[0, 1]))


@generator("MatMul")
def mat_mul(one):
    x = one.image(last=0.9, sums=True)
    size = one.channels if one.is_last else one.shape[-1]
    one.put(x, one.constant(one.numbers((size, one.whole(1, 3)), sums=True), np.float32))


@generator("TopK")
def top_k(one):
    x = one.image(last=0.5, sums=True, channels=one.whole(2, 5))
    count = one.whole(1, one.channels)
    words = {"axis": one.channel, **one.words(largest=[0, 1], sorted=[1, 1, 1, 0])}
    if one.is_last and one.chance(0.5):
        del words["axis"]
    if one.opset < 10:
        one.put(x, outputs=2, k=count, **words)
    else:
        one.put(x, one.constant([count]), outputs=2, **words)


def windows(one, most=3, strides=3, pads=True):
    """Attributes that place windows."""
    kernel = [one.whole(1, most) for _ in range(one.rank)]
    found = one.words(strides=[[one.whole(1, strides) for _ in range(one.rank)]])
    if one.chance(0.4):
        found |= one.words(dilations=[[one.whole(1, 2) for _ in range(one.rank)]])
    if one.chance(0.35):
        found |= one.words(auto_pad=["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
    if pads and found.get("auto_pad", "NOTSET") == "NOTSET":
        found |= one.words(pads=[[one.whole(0, size - 1) for size in kernel * 2]])
    return kernel, found


@generator("Conv", "ConvInteger", "QLinearConv")
def conv(one):
    kind = np.float32 if one.operator == "Conv" else np.uint8
    group = one.pick([1, 1, 2])
    x = one.image(kind, channels=2, sums=True, ranks=(1, 2, 2, 2, 3) if one.operator == "Conv" else (2,))
    kernel, words = windows(one)
    words |= one.words(kernel_shape=[kernel]) | ({"group": group} if group > 1 else one.words(group=[1]))
    weights = one.constant(one.rng.integers(0 if kind == np.uint8 else -2, 3, (2 * group, 2 // group, *kernel)), kind)
    if one.operator == "QLinearConv":
        scale, zero = one.constant(0.5, np.float32), one.constant(one.whole(0, 2), np.uint8)
        bias = one.pick([[], [one.constant(one.rng.integers(-3, 4, 2 * group), np.int32)]])
        one.put(x, scale, zero, weights, scale, zero, scale, zero, *bias, **words)
    elif one.operator == "ConvInteger":
        one.put(x, weights, *one.pick([[], [one.constant(2, np.uint8)]]), **words)
    else:
        one.put(x, weights, *one.pick([[], [one.constant(one.rng.integers(-3, 4, 2 * group), np.float32)]]), **words)


@generator("AveragePool", "LpPool")
def pool(one):
    x = one.image(sums=True)
    kernel, words = windows(one)
    one.put(x, kernel_shape=kernel, **words, **one.words(ceil_mode=[0, 1], count_include_pad=[0, 1], p=[1, 2, 3]))


@generator("MaxPool")
def max_pool(one):
    kinds = [np.float32] * 5 + ([np.uint8, np.int8] if one.opset >= 12 else []) + [np.float64]
    x = one.of_any_layout(one.pick(kinds), ranks=(1, 2, 2, 2, 3))
    kernel, words = windows(one)
    count = one.pick([1, 2]) if one.opset >= 8 else 1
    if one.domain:
        count = 1
    one.put(x, outputs=count, kernel_shape=kernel, **words, **one.words(ceil_mode=[0, 1], storage_order=[0, 0, 0, 1]))


@generator("MaxUnpool")
def max_unpool(one):
    is_averaged = one.chance(0.25)
    x = one.of_any_layout(ranks=(1, 2, 2, 2, 3), sums=is_averaged)
    kernel = [one.whole(1, 3) for _ in range(one.rank)]
    words = {"strides": [one.whole(1, size) for size in kernel]} if one.chance(0.8) else {}
    if one.chance(0.4):
        words["pads"] = [one.whole(0, size - 1) for size in kernel] * 2
    domain = {"domain": one.domain} if one.domain else {}
    pooled, indices = one.node("MaxPool", x, outputs=2, kernel_shape=kernel, **words, **domain)
    if is_averaged and not one.domain:  # another value for every window, of which several may have one index
        pooled = one.node("AveragePool", x, kernel_shape=kernel, **words)
    pooled = one.pick([pooled, one.node("Neg", pooled)])
    if not one.domain and one.opset >= 10 and one.chance(0.25):
        indices = inside_planes(one, x, indices)
    sizes = [one.node("Shape", x)] if one.chance(0.7) else []
    if sizes and one.domain:
        order = [0, one.rank + 1, *range(1, one.rank + 1)]
        sizes = [one.node("Gather", sizes[0], one.constant(order))]
    if one.chance(0.1):
        kernel = [one.whole(1, 3) for _ in range(one.rank)]
    one.put(pooled, indices, *sizes, kernel_shape=kernel, **words)


def inside_planes(one, x, indices):
    """Indices that are taken inside their plane, as torch counts them, and mostly put back."""
    plane = prod(one.sizes) if one.chance(0.3) else None
    if plane is None:
        shape = one.node("Shape", x)
        sizes = one.node("Gather", shape, one.constant(range(2, one.axes)))
        plane = one.node("ReduceProd", sizes, keepdims=0)
        outer = one.node("ReduceProd", one.node("Gather", shape, one.constant([0, 1])), keepdims=0)
    else:
        plane, outer = one.constant(plane), one.constant(one.shape[0] * one.channels)
    inside = one.node("Mod", indices, plane)
    if one.opset < 11 or one.chance(0.1):
        return inside
    numbers = one.node("Range", one.constant(0), outer, one.constant(1))
    shape = one.constant([one.shape[0], one.channels, *[1] * one.rank])
    offsets = one.node("Mul", one.node("Reshape", numbers, shape), plane)
    return one.node("Add", inside, offsets)


@generator("ConvTranspose")
def conv_transpose(one):
    group = one.pick([1, 1, 2])
    x = one.of_any_layout(channels=2, sums=True, ranks=(1, 2, 2, 2, 3))
    kernel, words = windows(one, pads=False)
    strides = words.get("strides", [1] * one.rank)
    words |= one.words(kernel_shape=[kernel], group=[1]) | ({"group": group} if group > 1 else {})
    if one.chance(0.4):
        words |= one.words(output_padding=[[one.whole(0, stride - 1) for stride in strides]])
    if words.get("auto_pad", "NOTSET") == "NOTSET":
        words |= one.words(pads=[[one.whole(0, size - 1) for size in kernel * 2]])
    if one.chance(0.05):
        words["output_shape"] = [size * 2 for size in one.sizes]
    weights = one.constant(one.rng.integers(-2, 3, (2, one.whole(1, 2), *kernel)), np.float32)
    one.put(x, weights, **words)


@generator("Concat")
def concat(one):
    x = one.image(last=0.4)
    others = [one.pick([x, one.node("Neg", x)]) for _ in range(one.whole(0, 2))]
    one.put(x, *others, axis=one.pick([one.channel] * 6 + [0, 2]))


@generator("DepthToSpace", "SpaceToDepth")
def depth_to_space(one):
    block = one.whole(1, 3)
    grows = one.operator == "DepthToSpace"
    x = one.image(ranks=(2,), channels=block**2 * one.whole(1, 2) if grows else None, prefix=0.3 if grows else 0)
    if not grows:
        one.sizes = [max(1, size) * block for size in one.sizes]
        one.step = block
        one.feed["x"] = one.numbers((one.shape[0], one.channels, *one.sizes))
    one.put(x, **one.words(blocksize=[block], mode=["DCR", "CRD"]))


@generator("Expand")
def expand(one):
    x = one.image(last=0.3, channels=1)
    asked = one.pick([[2, *[1] * one.axes], [1] * one.rank, [1, 1, *[1] * one.rank], None])
    if one.is_last and one.chance(0.5):
        asked = [3]
    shape = one.node("Shape", x) if asked is None else one.constant(asked)
    one.put(x, shape)


@generator("Gather")
def gather(one):
    x = one.image(last=0.4)
    axis = one.pick([one.channel] * 8 + [2])
    size = one.shape[axis] if x == "x" else one.channels
    chosen = one.rng.integers(0, size, one.pick([(), (1,), (3,), (2, 2)]))
    if axis % one.axes in (2, 3, 4) and x != "x":
        chosen = chosen * 0
    one.put(x, one.constant(chosen), axis=axis)


@generator("Pad")
def pad(one):
    x = one.image(last=0.3)
    mode = one.pick(["constant", "edge", "reflect", "wrap"] if one.opset >= 19 else ["constant", "edge", "reflect"])
    spatial = range(1, 1 + one.rank) if one.is_last else range(2, 2 + one.rank)
    chosen = [axis for axis in spatial if one.chance(0.8)] or [one.axes - 1]
    pads = {
        axis: [one.whole(-1 if one.chance(0.3) else 0, 3 if mode != "reflect" else 2) for _ in range(2)]
        for axis in chosen
    }
    words = {} if mode == "constant" and one.chance(0.5) else {"mode": mode}
    begins, ends = [[pads.get(axis, [0, 0])[end] for axis in range(one.axes)] for end in range(2)]
    if one.opset < 11:
        one.put(x, pads=[*begins, *ends], **words, **one.words(value=[2.0]))
    elif one.opset >= 18 and one.chance(0.5):
        axes = [axis - one.pick([0, one.axes]) for axis in chosen]
        flat = [pads[axis][end] for end in range(2) for axis in chosen]
        one.put(x, one.constant(flat), one.constant(1.5, np.float32), one.constant(axes), **words)
    else:
        one.put(x, one.constant([*begins, *ends]), *one.pick([[], [one.constant(1.5, np.float32)]]), **words)
    one.outputs = [one.node("Neg", one.outputs[0])]


@generator("Flatten")
def flatten(one):
    x = one.image(ranks=(1,), channels=one.pick([1, 2]))
    before = one.pick([x, one.node("Identity", x)])
    one.put(before, **one.words(axis=[2, 2, 2, -1] if one.opset >= 11 else [2, 2]))


@generator("Reshape")
def reshape(one):
    x = one.image(channels=one.pick([1, 2, 4]), last=0.2)
    words = {}
    if one.is_last:
        asked = [0] * (one.rank + 1) + [1, -1]
    else:
        asked = one.pick([[0] * one.axes, [0, -1] + [0] * one.rank, [0] * (one.axes - 1) + [-1], None])
    if asked is None or one.chance(0.3):
        words = one.words(allowzero=[0, 1])
        asked = one.node("Shape", x)
    else:
        words = one.words(allowzero=[0])
        asked = one.constant(asked)
    one.put(x, asked, **words)


@generator("Slice")
def cut(one):
    x = one.image(last=0.2)
    channel = one.axes - 1 if one.is_last else 1
    axes = [axis for axis in range(1, one.axes) if one.chance(0.7)] or [channel]
    starts = [
        0 if axis == channel else one.pick([0, 0, 1, 2, 1 - one.sizes[0] if one.chance(0.1) else 0]) for axis in axes
    ]
    far = [2**31 - 1, 2**63 - 1]
    ends = [one.pick([*far, *far, -1, -2, 3]) if axis != channel else one.pick([1, *far]) for axis in axes]
    steps = [1 if axis == channel or one.chance(0.5) else one.whole(1, 3) for axis in axes]
    if one.chance(0.1) and channel in axes:
        place = axes.index(channel)
        starts[place], ends[place], steps[place] = -1, -(2**63), -1
    if one.opset < 10:
        one.put(x, starts=starts, ends=ends, **({"axes": axes} if axes != list(range(len(axes))) else {}))
        return
    more = [one.constant(axes), *([one.constant(steps)] if one.chance(0.7) else [])]
    one.put(x, one.constant(starts), one.constant(ends), *more)


@generator("Split")
def split(one):
    count = one.whole(1, 3)
    channels = one.whole(count, 5)
    x = one.image(last=0.3, channels=channels)
    axis = one.channel
    cuts = np.sort(one.rng.choice(np.arange(1, channels), count - 1, replace=False)) if count > 1 else []
    sizes = np.diff([0, *cuts, channels]).tolist()
    if one.opset < 13:
        one.put(x, outputs=count, axis=axis, split=sizes)
    elif one.opset >= 18 and one.chance(0.5) and -(-channels // count) * (count - 1) < channels:
        one.put(x, outputs=count, axis=axis, num_outputs=count)
    else:
        one.put(x, one.constant(sizes), outputs=count, axis=axis)


@generator("Squeeze")
def squeeze(one):
    x = one.image(last=0.3, channels=1)
    axis = [one.channel]
    if one.opset < 13:
        one.put(x, **({"axes": [axis[0] % one.axes]} if one.chance(0.9) else {}))
    else:
        one.put(x, *([one.constant(axis)] if one.chance(0.9) else []))


@generator("Unsqueeze")
def unsqueeze(one):
    x = one.image(last=0.3)
    axes = one.pick([[0], [1], [one.axes], [0, 2], [1, 2]])
    if one.opset < 13:
        one.put(x, axes=axes)
    else:
        one.put(x, one.constant(one.pick([axes, [-1]])))


@generator("Transpose")
def transpose(one):
    x = one.image(last=0.3)
    one.put(x, **one.words(perm=[one.rng.permutation(one.axes).tolist()]))


PLACINGS = [
    "half_pixel", "half_pixel", "pytorch_half_pixel", "pytorch_half_pixel", "asymmetric", "asymmetric",
    "half_pixel_symmetric", "half_pixel_symmetric", "align_corners", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]  # fmt: skip
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
ODD_SCALES = [0.3333, 0.3334, 0.4999, 0.5001, 1.9999, 2.0001, 3.0003, 0.25001, 1.5, 0.75]


@generator("Resize")
def resize(one):
    is_old = one.opset < 11
    mode = one.pick(["nearest", "linear"] if is_old else ["nearest", "linear", "cubic"])
    count = one.pick([1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7])
    shrinks = one.chance(0.55)
    ranks = {"nearest": (1, 2, 2, 3), "linear": (1, 2, 2, 3), "cubic": (2,)}[mode]
    kind = one.pick([np.float32] * 6 + ([np.uint8, np.int8, np.int32] if mode != "cubic" else []))
    x = one.image(kind, ranks=ranks, step=count if shrinks else 1, prefix=0.25)
    words = {"mode": mode} if mode != "nearest" or one.chance(0.5) else {}
    chosen = one.words(coordinate_transformation_mode=PLACINGS, extrapolation_value=[0.0, 5.0])
    if mode == "nearest":
        chosen |= one.words(nearest_mode=NEAREST)
    if mode == "cubic":
        chosen |= one.words(cubic_coeff_a=[-0.75, -0.5], exclude_outside=[0, 1])
    if mode != "nearest" and one.chance(0.1):
        chosen |= one.words(antialias=[0, 1])
    spatial = list(range(2, one.axes))
    axes = one.words(axes=[spatial]) if one.chance(0.4) else {}
    rates = [(1, count) if shrinks else (count, 1) for _ in spatial]
    if one.chance(0.2):
        rates[-1] = (1, 1)
    words |= chosen | axes
    if not is_old and one.chance(0.35):
        words |= one.words(keep_aspect_ratio_policy=["stretch", "stretch", "not_larger", "not_smaller"])
        sizes = asked_sizes(one, x, rates, has_all="axes" not in axes)
        one.put(x, region(one, words, spatial, axes), "", sizes, **words)
        return
    scales = [np.float32(above) / np.float32(below) for above, below in rates]
    if one.chance(0.1):
        scales[0] = np.float32(one.pick(ODD_SCALES))
    scales = one.constant(scales if axes else [1, 1, *scales], np.float32)
    one.put(x, *([scales] if is_old else [region(one, words, spatial, axes), scales]), **words)


def region(one, words, spatial, axes):
    """The region of the image that a Resize with tf_crop_and_resize takes, here all of it; others have none."""
    if words.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        return ""
    count = len(spatial) if axes else one.axes
    return one.constant([0.0] * count + [1.0] * count, np.float32)


def asked_sizes(one, x, rates, *, has_all):
    """The sizes that a Resize makes, computed from those that it gets."""
    shape = one.node("Shape", x)
    full = rates if not has_all else [(1, 1), (1, 1), *rates]
    if not has_all:
        shape = one.node("Gather", shape, one.constant(range(2, one.axes)), axis=0)
    grown = one.node("Mul", shape, one.constant([above for above, _ in full]))
    return one.node("Div", grown, one.constant([below for _, below in full]))


@generator("Upsample")
def upsample(one):
    mode = one.pick(["nearest", "linear"])
    x = one.image(ranks=(2,), prefix=0.4)
    scales = [1.0, 1.0, *[float(one.pick([1, 2, 2, 2, 3, 4])) for _ in range(2)]]
    if one.chance(0.05):
        scales[2] = 2.5
    words = {"mode": mode} if mode == "linear" or one.chance(0.5) else {}
    if one.opset < 9:
        one.put(x, scales=scales, **words)
    else:
        one.put(x, one.constant(scales, np.float32), **words)


@generator("Shape", "Size")
def measure(one):
    """Sizes that a later node computes with: refused, but for the shape of a padding that they make."""
    x = one.image()
    if one.operator == "Size":
        one.node("Size", x)
        size = one.node("Mul", one.nodes[-1].output[0], one.constant(0))
        one.outputs.append(one.node("Add", x, one.node("Cast", size, to=TensorProto.FLOAT)))
        return
    words = one.words(start=[0, 1, -1], end=[one.axes, -1])
    shape = one.node("Shape", x, **words)
    one.outputs.append(one.node("Reshape", x, one.node("Shape", x)))
    zero = one.node("ReduceProd", shape, keepdims=0)
    if one.chance(0.2):
        one.outputs.append(one.node("Add", x, one.node("Cast", zero, to=TensorProto.FLOAT)))


def operators():
    """All operators that have a generator, in order."""
    return sorted(GENERATORS)


def elements(one):
    """Elements of all that a case is fed."""
    return sum(prod(array.shape) for array in one.feed.values())
