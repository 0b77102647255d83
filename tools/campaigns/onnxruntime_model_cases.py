"""Random small models with the operators among others, in bodies and functions, whose sums are all exact.

`case(seed)` makes the model, inputs of a few sizes, and the settings of a session. Values, weights and scales are small
integers and powers of two, so that every order of additions, every fusion and every layout gives the same numbers. A
value remembers its channels and its `size`: values of one size may be added, whatever the sizes of the inputs are.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.cases.draft import chance, ints, pick

OPSETS = range(7, 25)
FUNCTIONS = "local"
NARROW = {
    "float16": (TensorProto.FLOAT16, 7),
    "float64": (TensorProto.DOUBLE, 7),
    "bfloat16": (TensorProto.BFLOAT16, 22),
}
"""Types, and the opset from which on the operators have them."""

BYTES = {"int8": (TensorProto.INT8, 12), "uint8": (TensorProto.UINT8, 12)}


@dataclass(frozen=True)
class Value:
    """A value (N, C, D1..Dk) of float32; values of one number have one size along all axes but C."""

    name: str
    channels: int
    size: int


@dataclass
class Names:
    """What all graphs of a model share."""

    rng: np.random.Generator
    rank: int
    opset: int
    count: int = 0
    weights: list[onnx.TensorProto] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    outputs: list[tuple[str, int]] = field(default_factory=list)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"


@dataclass
class Sketch:
    """A graph that is being drawn; a body also reads what is around it."""

    names: Names
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    own: list[onnx.TensorProto] = field(default_factory=list)
    in_function: bool = False
    depth: int = 0

    @property
    def rng(self) -> np.random.Generator:
        return self.names.rng

    @property
    def rank(self) -> int:
        return self.names.rank

    @property
    def opset(self) -> int:
        return self.names.opset

    def chance(self, probability: float) -> bool:
        return chance(self.rng, probability)

    def add(self, operator: str, inputs: list[str], outputs: int = 1, domain: str = "", **given: Any) -> list[str]:
        """A node."""
        made = [self.names.fresh(operator.lower()) for _ in range(outputs)]
        name = self.names.fresh("n") if self.chance(0.7) else ""
        given = {key: value for key, value in given.items() if value is not None}
        self.nodes.append(helper.make_node(operator, inputs, made, name=name, domain=domain, **given))
        return made

    def one(self, operator: str, inputs: list[str], **given: Any) -> str:
        return self.add(operator, inputs, **given)[0]

    def constant(self, array: Any, kind: str = "float32") -> str:
        """A weight: an initializer of this graph or of the whole one, a Constant, or something computed from one."""
        tensor = numpy_helper.from_array(np.asarray(array), self.names.fresh("w"))
        how = pick(self.rng, ("outer", "own", "node"), (5, 2, 2))
        if self.in_function:
            how = "node"
        if how == "node":
            self.nodes.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
        else:
            (self.names.weights if how == "outer" else self.own).append(tensor)
        return self.one("Identity", [tensor.name]) if self.chance(0.1) else tensor.name

    def new_size(self) -> int:
        self.names.count += 1
        return self.names.count

    def body(self) -> "Sketch":
        """A graph inside this one."""
        return Sketch(self.names, in_function=self.in_function, depth=self.depth + 1)


def window(sketch: Sketch, *, same: bool) -> dict[str, Any]:
    """Attributes of a pool; `same` keeps the sizes."""
    rank = sketch.rank
    if same:
        given: dict[str, Any] = {"kernel_shape": [3] * rank}
        given |= pick(sketch.rng, ({"pads": [1] * 2 * rank}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}))
        return given
    kernel = ints(sketch.rng, 1, 3, rank)
    given = {"kernel_shape": kernel}
    if sketch.chance(0.8):
        given["strides"] = pick(sketch.rng, (kernel, [2] * rank, ints(sketch.rng, 1, 3, rank)))
    if sketch.chance(0.3):
        given["pads"] = [int(sketch.rng.integers(0, size)) for size in kernel * 2]
    return given


def max_pool(sketch: Sketch, x: str, same: bool, outputs: int = 1, **more: Any) -> list[str]:
    """A MaxPool of any attributes."""
    given = window(sketch, same=same) | more
    if not same and not outputs > 1 and sketch.chance(0.2):
        given.pop("pads", None)
        given["auto_pad"] = pick(sketch.rng, ("SAME_UPPER", "SAME_LOWER", "VALID"))
    if not same and sketch.opset >= 10:
        if sketch.chance(0.2):
            given["ceil_mode"] = 1
        if sketch.chance(0.15):
            given["dilations"] = ints(sketch.rng, 1, 2, sketch.rank)
    if outputs == 2 and sketch.chance(0.15):
        given["storage_order"] = 1
    return sketch.add("MaxPool", [x], outputs, **given)


def pool(sketch: Sketch, x: Value) -> Value:
    """A MaxPool, whose indices may be an output of the model."""
    same = sketch.chance(0.3)
    wants = sketch.opset >= 8 and sketch.chance(0.3)
    y, *indices = max_pool(sketch, x.name, same, 1 + wants)
    if indices and sketch.depth == 0 and not sketch.in_function:
        sketch.names.outputs.append((indices[0], TensorProto.INT64))
    return Value(y, x.channels, x.size if same else sketch.new_size())


def pool_and_unpool(sketch: Sketch, x: Value, *, keep: bool = False) -> Value:
    """A pool, something between, and the unpooling of its indices."""
    if sketch.opset < 9:
        return pool(sketch, x) if not keep else plain(sketch, x)
    given = window(sketch, same=False)
    y, i = sketch.add("MaxPool", [x.name], 2, **given)
    for _ in range(int(sketch.rng.integers(0, 3))):
        y = plain(sketch, Value(y, x.channels, -1)).name
    if sketch.chance(0.3):
        i = pick(sketch.rng, (
            lambda: sketch.one("Identity", [i]),
            lambda: sketch.one("Cast", [i], to=TensorProto.INT64),
            lambda: sketch.one("Add", [i, sketch.constant(np.int64([0]))]),
            lambda: sketch.one("Cast", [sketch.one("Cast", [i], to=TensorProto.INT32)], to=TensorProto.INT64),
            lambda: sketch.one("Sub", [i, sketch.constant(np.int64([3]))]),
        ), (4, 2, 3, 2, 1))()  # fmt: skip
    inputs = [y, i]
    sized = keep or sketch.chance(0.6)
    if sized:
        shape = sketch.one("Shape", [x.name])
        if sketch.chance(0.3):
            shape = sketch.one("Concat", [slices(sketch, shape, 0, 2), slices(sketch, shape, 2, 9)], axis=0)
        inputs.append(shape)
    elif sketch.chance(0.2):
        inputs.append("")
    given.pop("auto_pad", None)
    return Value(sketch.one("MaxUnpool", inputs, **given), x.channels, x.size if sized else sketch.new_size())


def slices(sketch: Sketch, x: str, start: int, stop: int) -> str:
    """A part of a list of numbers."""
    if sketch.opset < 10:
        return sketch.one("Slice", [x], starts=[start], ends=[stop])
    return sketch.one("Slice", [x, sketch.constant(np.int64([start])), sketch.constant(np.int64([stop]))])


def numbers(sketch: Sketch, shape: list[int]) -> np.ndarray:
    return sketch.rng.integers(-1, 2, shape).astype(np.float32)


def conv(sketch: Sketch, x: Value) -> Value:
    """A Conv, often with what onnxruntime fuses into it, of the same sizes."""
    channels = int(sketch.rng.integers(1, 4)) if sketch.chance(0.8) else 16
    kernel = pick(sketch.rng, (1, 3))
    inputs = [x.name, sketch.constant(numbers(sketch, [channels, x.channels, *[kernel] * sketch.rank]))]
    if sketch.chance(0.5):
        inputs.append(sketch.constant(numbers(sketch, [channels])))
    y = sketch.one("Conv", inputs, kernel_shape=[kernel] * sketch.rank, pads=[kernel // 2] * 2 * sketch.rank)
    value = Value(y, channels, x.size)
    if sketch.chance(0.4):
        value = normalized(sketch, value)
    return limited(sketch, value)


def normalized(sketch: Sketch, x: Value) -> Value:
    """A BatchNormalization by powers of two."""
    scale, bias, mean = (sketch.constant(numbers(sketch, [x.channels])) for _ in range(3))
    variance = sketch.constant(np.float32(4.0 ** sketch.rng.integers(0, 2, x.channels)))
    return Value(
        sketch.one("BatchNormalization", [x.name, scale, bias, mean, variance], epsilon=0.0), x.channels, x.size
    )


def limited(sketch: Sketch, x: Value) -> Value:
    """A Clip to -8 and 8, so that sums stay small, often after a Relu."""
    y = sketch.one("Relu", [x.name]) if sketch.chance(0.4) else x.name
    if sketch.opset < 11:
        return Value(sketch.one("Clip", [y], min=-8.0, max=8.0), x.channels, x.size)
    limits = [sketch.constant(np.float32(-8)), sketch.constant(np.float32(8))]
    return Value(sketch.one("Clip", [y, *limits]), x.channels, x.size)


def conv_transpose(sketch: Sketch, x: Value, *, same: bool = False, kind: str = "float32") -> Value:
    """A ConvTranspose, with weights that are constant or computed."""
    rank, group = sketch.rank, 1
    dtype = np.dtype(kind) if kind != "bfloat16" else np.dtype(np.float32)
    maps = x.channels if same else int(sketch.rng.integers(1, 4))
    if x.channels % 2 == 0 and maps % 2 == 0 and sketch.chance(0.4):
        group = 2
    kernel = [3] * rank if same else ints(sketch.rng, 1, 3, rank)
    given: dict[str, Any] = {"group": group if group > 1 or sketch.chance(0.3) else None}
    if same:
        given["pads"] = [1] * 2 * rank
    else:
        strides = pick(sketch.rng, (kernel, ints(sketch.rng, 1, 3, rank)))
        given["strides"] = strides
        how = pick(sketch.rng, ("pads", "auto_pad", "output_shape", "plain"), (2, 2, 1, 3))
        if how == "pads":
            given["pads"] = [int(sketch.rng.integers(0, size)) for size in kernel * 2]
            given["output_padding"] = [int(sketch.rng.integers(0, stride)) for stride in strides]
        elif how == "auto_pad":
            given["auto_pad"] = pick(sketch.rng, ("SAME_UPPER", "SAME_LOWER", "VALID"))
        elif how == "output_shape" and sketch.opset >= 11:
            given["output_shape"] = ints(sketch.rng, 4, 12, rank)
    if sketch.chance(0.5):
        given["kernel_shape"] = kernel
    weights = numbers(sketch, [x.channels, maps // group, *kernel]).astype(dtype)
    w = sketch.constant(weights)
    b = [sketch.constant(numbers(sketch, [maps]).astype(dtype))] if sketch.chance(0.5) else []
    if kind == "bfloat16":
        w, b = (
            sketch.one("Cast", [w], to=NARROW[kind][0]),
            [sketch.one("Cast", [each], to=NARROW[kind][0]) for each in b],
        )
    if not b and sketch.chance(0.1):
        b = [""]
    y = sketch.one("ConvTranspose", [x.name, w, *b], **given)
    return Value(y, maps, x.size if same else sketch.new_size())


def grown(sketch: Sketch, x: Value) -> Value:
    """A ConvTranspose with what may follow it."""
    y = conv_transpose(sketch, x)
    return limited(sketch, normalized(sketch, y) if sketch.chance(0.3) else y)


def plain(sketch: Sketch, x: Value) -> Value:
    """Another operator that keeps sizes."""
    kinds = [("Relu", {}), ("Neg", {}), ("Identity", {}), ("Abs", {}), ("Dropout", {}), ("LeakyRelu", {"alpha": 0.5})]
    operator, given = pick(sketch.rng, kinds)
    if operator == "Dropout" and sketch.opset < 7:
        operator = "Relu"
    return Value(sketch.one(operator, [x.name], **given), x.channels, x.size)


def typed(sketch: Sketch, x: Value) -> Value:
    """Operators of another type between two Casts."""
    kinds = NARROW if sketch.chance(0.7) else BYTES
    allowed = [name for name, (_, opset) in kinds.items() if sketch.opset >= opset]
    if not allowed:
        return pool(sketch, x)
    kind = pick(sketch.rng, allowed)
    number = {**NARROW, **BYTES}[kind][0]
    y = sketch.one("Relu", [x.name]) if kind == "uint8" else x.name
    inner = Value(sketch.one("Cast", [y], to=number), x.channels, x.size)
    steps: list[Callable[[], Value]] = [
        lambda: Value(max_pool(sketch, inner.name, False)[0], x.channels, sketch.new_size())
    ]
    if kinds is NARROW:
        steps.append(lambda: conv_transpose(sketch, inner, kind=kind))
        if sketch.opset >= 9:
            steps.append(lambda: unpooled(sketch, inner))
    result = pick(sketch.rng, steps)()
    back = Value(sketch.one("Cast", [result.name], to=TensorProto.FLOAT), result.channels, result.size)
    return limited(sketch, back)


def unpooled(sketch: Sketch, x: Value) -> Value:
    """A pool and its unpooling to the same sizes, nothing between."""
    given = window(sketch, same=False)
    y, i = sketch.add("MaxPool", [x.name], 2, **given)
    return Value(sketch.one("MaxUnpool", [y, i, sketch.one("Shape", [x.name])], **given), x.channels, x.size)


def transposed(sketch: Sketch, x: Value) -> Value:
    """A pool or its like between two Transposes, which onnxruntime moves."""
    axes = list(sketch.rng.permutation(sketch.rank) + 2)
    order = [0, 1, *map(int, axes)]
    if sketch.chance(0.5):  # channels last for others, and back
        last = [0, *range(2, sketch.rank + 2), 1]
        y = sketch.one("Transpose", [x.name], perm=last)
        y = sketch.one(pick(sketch.rng, ("Relu", "Neg")), [y])
        y = sketch.one("Transpose", [y], perm=[0, sketch.rank + 1, *range(1, sketch.rank + 1)])
        return pool(sketch, Value(y, x.channels, x.size))
    y = sketch.one("Transpose", [x.name], perm=order)
    result = pick(sketch.rng, (pool, pool_and_unpool, grown))(sketch, Value(y, x.channels, sketch.new_size()))
    back = sketch.one("Transpose", [result.name], perm=[order.index(axis) for axis in range(sketch.rank + 2)])
    return Value(back, result.channels, sketch.new_size())


def padded(sketch: Sketch, x: Value) -> Value:
    """A Pad before a pool, which onnxruntime fuses."""
    pads = [0, 0, *ints(sketch.rng, 0, 2, sketch.rank), 0, 0, *ints(sketch.rng, 0, 2, sketch.rank)]
    fill = pick(sketch.rng, (0.0, -np.inf, 3.0))
    if sketch.opset < 11:
        y = sketch.one("Pad", [x.name], pads=pads, value=float(fill))
    else:
        more = [sketch.constant(np.float32(fill))] if fill or sketch.chance(0.5) else []
        y = sketch.one("Pad", [x.name, sketch.constant(np.int64(pads)), *more])
    return limited(sketch, pool(sketch, Value(y, x.channels, sketch.new_size())))


def resized(sketch: Sketch, x: Value) -> Value:
    """Nearest neighbours, twice as many."""
    scales = np.float32([1, 1, *ints(sketch.rng, 1, 2, sketch.rank)])
    size = sketch.new_size()
    if sketch.opset < 9:
        return Value(sketch.one("Upsample", [x.name], scales=scales.tolist(), mode="nearest"), x.channels, size)
    scale = sketch.constant(scales)
    if sketch.opset < 10:
        return Value(sketch.one("Upsample", [x.name, scale], mode="nearest"), x.channels, size)
    inputs = [x.name, scale] if sketch.opset < 11 else [x.name, "", scale]
    if sketch.opset in (11, 12):
        inputs[1] = sketch.constant(np.zeros(0, np.float32))
    more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if sketch.opset >= 11 else {}
    return Value(sketch.one("Resize", inputs, mode="nearest", **more), x.channels, size)


def quantized(sketch: Sketch, x: Value) -> Value:
    """A pool between DequantizeLinear and QuantizeLinear; onnxruntime quantizes the weights of a Conv there."""
    if sketch.opset < 12:
        return pool(sketch, x)
    kind = pick(sketch.rng, (np.uint8, np.int8))
    scale, zero = sketch.constant(np.float32(0.5)), sketch.constant(kind(pick(sketch.rng, (0, 5))))
    q = sketch.one("QuantizeLinear", [x.name, scale, zero])
    y = sketch.one("DequantizeLinear", [q, scale, zero])
    result = pick(sketch.rng, (pool, pool_and_unpool))(sketch, Value(y, x.channels, x.size))
    again = sketch.one("QuantizeLinear", [result.name, scale, zero])
    return Value(sketch.one("DequantizeLinear", [again, scale, zero]), result.channels, result.size)


def reshaped(sketch: Sketch, x: Value) -> Value:
    """The sizes asked for and given again, which onnxruntime folds where they are known."""
    shape = sketch.one("Shape", [x.name])
    y = sketch.one("Reshape", [x.name, sketch.constant(np.int64([0, 0, -1]))])
    y = sketch.one(pick(sketch.rng, ("Relu", "Identity")), [y])
    return Value(sketch.one("Reshape", [y, shape]), x.channels, x.size)


def folded(sketch: Sketch, x: Value) -> Value:
    """The result of operators on constants, which onnxruntime computes once where it can, added."""
    weights = numbers(sketch, [1, x.channels, *[2] * sketch.rank])
    given: dict[str, Any] = {"kernel_shape": [2] * sketch.rank}
    if sketch.opset < 9 or sketch.chance(0.4):
        (y,) = sketch.add("MaxPool", [sketch.constant(weights)], **given)
    else:
        small, i = sketch.add("MaxPool", [sketch.constant(weights)], 2, **given)
        (y,) = sketch.add("MaxPool", [sketch.one("MaxUnpool", [small, i], **given)], **given)
    return limited(sketch, Value(sketch.one("Add", [x.name, y]), x.channels, x.size))


def joined(sketch: Sketch, x: Value) -> Value:
    """Two ways of the same size, added or side by side."""
    left, right = keeping(sketch, x), keeping(sketch, x)
    if sketch.chance(0.5):
        return limited(sketch, Value(sketch.one("Add", [left.name, right.name]), x.channels, x.size))
    return Value(sketch.one("Concat", [left.name, right.name], axis=1), 2 * x.channels, x.size)


def keeping(sketch: Sketch, x: Value) -> Value:
    """One or two steps that keep channels and sizes."""
    for _ in range(int(sketch.rng.integers(1, 3))):
        step = pick(sketch.rng, ("plain", "pool", "unpool", "transpose"))
        if step == "plain":
            x = plain(sketch, x)
        elif step == "pool":
            x = Value(max_pool(sketch, x.name, True)[0], x.channels, x.size)
        elif step == "unpool":
            x = pool_and_unpool(sketch, x, keep=True)
        else:
            x = limited(sketch, conv_transpose(sketch, x, same=True))
    return x


def condition(sketch: Sketch, x: Value) -> str:
    """A condition that is constant or depends on the input."""
    if sketch.chance(0.3) and sketch.depth == 0:
        return sketch.constant(np.array(sketch.chance(0.5)))
    least = sketch.one("ReduceMax", [x.name], keepdims=0)
    return sketch.one("Greater", [least, sketch.constant(np.float32(3))])


def tensor(name: str, kind: int = TensorProto.FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def finish(body: Sketch, title: str, inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
    return helper.make_graph(body.nodes, title, inputs, outputs, body.own)


def branched(sketch: Sketch, x: Value) -> Value:
    """An If whose branches read the value around them."""
    flag, bodies, keep = condition(sketch, x), [], sketch.chance(0.5)
    for side in ("then", "else"):
        body = sketch.body()
        y = keeping(body, x) if keep else pick(sketch.rng, (pool, pool_and_unpool, keeping))(body, x)
        if y.name == x.name or not body.nodes:
            y = Value(body.one("Identity", [y.name]), y.channels, y.size)
        bodies.append(finish(body, side, [], [tensor(y.name)]))
    made = sketch.one("If", [flag], then_branch=bodies[0], else_branch=bodies[1])
    return Value(made, x.channels, x.size if keep else sketch.new_size())


def repeated(sketch: Sketch, x: Value) -> Value:
    """A Loop that carries a value."""
    body, fresh = sketch.body(), sketch.names.fresh
    step, go, now = fresh("step"), fresh("go"), fresh("now")
    y = keeping(body, Value(now, x.channels, x.size))
    after = body.one("Identity", [go])
    ends = [tensor(step, TensorProto.INT64, []), tensor(go, TensorProto.BOOL, []), tensor(now)]
    loop = finish(body, "loop", ends, [tensor(after, TensorProto.BOOL, []), tensor(y.name)])
    trips = sketch.constant(np.int64(sketch.rng.integers(0, 4)))
    return Value(sketch.one("Loop", [trips, sketch.constant(np.array(True)), x.name], body=loop), x.channels, x.size)


def scanned(sketch: Sketch, x: Value) -> Value:
    """A Scan over the batch."""
    if sketch.opset < 9:
        return plain(sketch, x)
    body = sketch.body()
    each = sketch.names.fresh("each")
    y = keeping(body, Value(axis_zero(body, "Unsqueeze", each), x.channels, -2))
    out = axis_zero(body, "Squeeze", y.name)
    sizes = [None] * (sketch.rank + 1)  # onnxruntime asks for the rank
    scan = finish(body, "scan", [tensor(each, shape=sizes)], [tensor(out, shape=sizes)])
    return Value(sketch.one("Scan", [x.name], body=scan, num_scan_inputs=1), x.channels, x.size)


def axis_zero(sketch: Sketch, operator: str, x: str) -> str:
    if sketch.opset < 13:
        return sketch.one(operator, [x], axes=[0])
    return sketch.one(operator, [x, sketch.constant(np.int64([0]))])


def called(sketch: Sketch, x: Value) -> Value:
    """A function of the model, which may take an attribute of its pool from the call."""
    body = Sketch(sketch.names, in_function=True, depth=sketch.depth)
    given, inner = {}, Value("given", x.channels, x.size)
    result = pick(sketch.rng, (keeping, pool, pool_and_unpool, joined))(body, inner)
    if sketch.chance(0.5):
        (y,) = body.add("MaxPool", [result.name], kernel_shape=[1] * sketch.rank)
        node = body.nodes[-1]
        del node.attribute[:]
        for name, value in (("kernel_shape", [2] * sketch.rank), ("strides", [1] * sketch.rank)):
            node.attribute.append(
                onnx.AttributeProto(name=name, ref_attr_name=f"the_{name}", type=onnx.AttributeProto.INTS)
            )
            given[f"the_{name}"] = value
        result = Value(y, result.channels, sketch.new_size())
    title = sketch.names.fresh("Function")
    imports = [helper.make_opsetid("", sketch.opset), helper.make_opsetid(FUNCTIONS, 1)]
    made = helper.make_function(FUNCTIONS, title, ["given"], [result.name], body.nodes, imports, list(given))
    sketch.names.functions.append(made)
    y = sketch.one(title, [x.name], domain=FUNCTIONS, **given)
    return Value(y, result.channels, result.size)


STEPS = {
    pool: 4, pool_and_unpool: 5, grown: 4, conv: 3, plain: 2, typed: 3, transposed: 2, padded: 2, resized: 1,
    quantized: 2, reshaped: 1, folded: 1, joined: 2, branched: 2, repeated: 2, scanned: 1, called: 2,
}  # fmt: skip


CLEAR = {
    "MaxPool", "MaxUnpool", "Identity", "Neg", "Abs", "Shape", "Slice", "Concat", "Transpose", "Reshape", "Dropout",
    "Constant", "Loop", "Scan", "Squeeze", "Unsqueeze", "Cast", "Pad", "Upsample", "Resize",
}  # fmt: skip
"""Operators that agree on NaN and infinity in all runtimes; but for MaxPool in the blocked layout."""


def every_node(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a model, of its bodies and functions."""
    graphs: list[Any] = [model.graph, *model.functions]
    while graphs:
        for node in graphs.pop().node:
            yield node
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]


@dataclass
class ModelCase:
    """A model, the inputs of its runs, and the settings of its session."""

    model: onnx.ModelProto
    feeds: list[dict[str, np.ndarray]]
    settings: dict[str, Any]


def case(seed: int) -> ModelCase:
    """The case of a seed."""
    rng = np.random.default_rng((seed, 3))
    names = Names(rng, pick(rng, (1, 2, 3), (2, 6, 1)), int(pick(rng, OPSETS)))
    channels = int(rng.integers(1, 5))
    base = [int(rng.integers(1, 3)), channels, *ints(rng, 4, 9, names.rank)]
    form = pick(rng, ("fixed", "named", "batch", "none"), (3, 3, 2, 1))
    axes = ["n", channels, *[f"d{axis}" for axis in range(names.rank)]]
    model = model_of(
        names, channels, {"fixed": base, "named": axes, "batch": ["n", *base[1:]], "none": [None] * len(base)}[form]
    )
    settings = settings_of(names, model)
    sizes = [base]
    if form == "named" and chance(rng, 0.3):
        settings["overrides"] = {name: size for name, size in zip(axes, base, strict=True) if name != channels}
    elif form in ("named", "none"):
        sizes += [[int(rng.integers(1, 3)), channels, *ints(rng, 2, 12, names.rank)] for _ in range(2)]
    elif form == "batch":
        sizes += [[3, *base[1:]]]
    sizes.append(base)
    feeds = [{"x": rng.integers(-4, 5, shape).astype(np.float32)} for shape in sizes]
    is_clear = {node.op_type for node in every_node(model)} <= CLEAR and (settings["exact"] or settings["level"] < 3)
    if is_clear and chance(rng, 0.5):
        for feed in feeds:
            feed["x"].reshape(-1)[:1] = pick(rng, (np.inf, -np.inf, np.nan))
    return ModelCase(model, feeds, settings)


def model_of(names: Names, channels: int, sizes: list[Any], steps: Mapping[Any, float] = STEPS) -> onnx.ModelProto:
    """A model of one to six steps, whose input has these sizes; `steps` have weights."""
    rng, sketch, value = names.rng, Sketch(names), Value("x", channels, 0)
    for _ in range(int(rng.integers(1, 7))):
        value = pick(rng, tuple(steps), tuple(steps.values()))(sketch, value)
        if chance(rng, 0.15):
            names.outputs.append((value.name, TensorProto.FLOAT))
    names.outputs.append((value.name if value.name != "x" else sketch.one("Identity", ["x"]), TensorProto.FLOAT))
    inputs = [tensor("x", TensorProto.FLOAT, sizes)]
    if chance(rng, 0.1):  # weights that are inputs may be given by a caller, so they are no constants
        inputs += [tensor(each.name, each.data_type, list(each.dims)) for each in names.weights]
    outputs = [tensor(name, kind) for name, kind in dict(names.outputs).items()]
    graph = helper.make_graph(sketch.nodes, "campaign", inputs, outputs, [*names.weights, *sketch.own])
    imports = [helper.make_opsetid("", names.opset)]
    version = 8 if names.opset < 22 else 10
    model = helper.make_model(graph, opset_imports=imports, ir_version=version, functions=names.functions)
    for domain in sorted({node.domain for node in every_node(model)} - {""}):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def settings_of(names: Names, model: onnx.ModelProto) -> dict[str, Any]:
    """The settings of a session; fast algorithms of ConvTranspose round, so a model with one is computed exactly."""
    rng = names.rng
    return {
        "level": int(rng.integers(4)),
        "threads": pick(rng, (1, 2)),
        "is_parallel": chance(rng, 0.15),
        "memory_pattern": chance(rng, 0.5),
        "arena": chance(rng, 0.7),
        "overrides": {},
        "opset": names.opset if names.opset < 11 else pick(rng, (names.opset, None)),
        "exact": any(node.op_type == "ConvTranspose" for node in every_node(model)) or chance(rng, 0.5),
    }
