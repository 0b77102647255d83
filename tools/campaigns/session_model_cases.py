"""Random models for `unpool.InferenceSession`: what its passes look for, in forms that they may misread.

`case(seed)` adds to the steps of `onnxruntime_model_cases` one for each pass, and nodes of other kinds: training,
sequences, strings, quantized and contributed operators. Steps that round, as a normalization does, end with a Floor, so
that all other sums stay exact and every output is equal, bit for bit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.cases.draft import chance, ints, pick
from tools.campaigns import onnxruntime_model_cases as base
from tools.campaigns.onnxruntime_model_cases import (
    FUNCTIONS,
    NARROW,
    ModelCase,
    Names,
    Sketch,
    Value,
    conv_transpose,
    every_node,
    finish,
    limited,
    normalized,
    numbers,
    settings_of,
    tensor,
)

MICROSOFT = "com.microsoft"
BETWEEN = 0.3137  # so that no result lies where a Floor jumps


def whole(sketch: Sketch, y: str, x: Value) -> Value:
    """A value of whole numbers from -8 to 8, in the place of one that rounds."""
    if sketch.depth == 0 and not sketch.in_function and sketch.chance(0.2):
        sketch.names.outputs.append((y, TensorProto.FLOAT))
    between = sketch.one("Add", [y, sketch.constant(np.float32(BETWEEN))])
    return limited(sketch, Value(sketch.one("Floor", [between]), x.channels, x.size))


def two(sketch: Sketch, operator: str, left: str, right: str) -> str:
    """A Mul or Add, its inputs in any order."""
    return sketch.one(operator, [left, right] if sketch.chance(0.6) else [right, left])


def per_channel(sketch: Sketch, array: Any, channels: int) -> str:
    """A constant per channel, in any shape that is broadcast so."""
    array = np.broadcast_to(np.asarray(array, np.float32), (channels,))
    if (array == array[0]).all() and sketch.chance(0.5):
        return sketch.constant(pick(sketch.rng, (array[0], array[:1], array[:1].reshape(1, 1, 1))))
    shape = (channels, *[1] * sketch.rank) if sketch.chance(0.5) else (1, channels, *[1] * sketch.rank)
    return sketch.constant(array.reshape(shape))


def snake(sketch: Sketch, x: Value) -> Value:
    """The nodes of a Snake, often with an Add or a Reshape before them; now and then not quite."""
    sum_ = x.name
    if sketch.chance(0.4):
        other = pick(sketch.rng, (x.name, sketch.one("Neg", [x.name]), sketch.constant(np.float32(1))))
        sum_ = two(sketch, "Add", x.name, other)
    if sketch.chance(0.2):
        sum_ = sketch.one("Reshape", [sum_, sketch.one("Shape", [x.name])])
    rates = pick(sketch.rng, (np.float32(0.7), sketch.rng.uniform(0.2, 2, x.channels), np.zeros(x.channels), -1.5))
    scales = pick(sketch.rng, (np.float32(1.4), sketch.rng.uniform(0.2, 2, x.channels)))
    angle = two(sketch, "Mul", sum_, per_channel(sketch, rates, x.channels))
    power = pick(sketch.rng, (np.float32(2), np.float32([2]), np.float32(3), np.float32(4)), (6, 2, 1, 1))
    exponent = sketch.constant(power)
    square = sketch.one("Pow", [sketch.one("Sin", [angle]), exponent])
    if sketch.chance(0.1):
        square = sketch.one("Pow", [exponent, sketch.one("Sin", [angle])])
    part = two(sketch, "Mul", square, per_channel(sketch, scales, x.channels))
    last = sum_ if sketch.chance(0.9) else x.name
    result = Value(two(sketch, "Add", last, part), x.channels, x.size)
    y = whole(sketch, result.name, result)
    return Value(two(sketch, "Add", y.name, sum_), x.channels, x.size) if sketch.chance(0.2) else y


def normalization(sketch: Sketch, x: Value) -> Value:
    """An InstanceNormalization or GroupNormalization, what may follow it, or what exporters write for it."""
    rng, channels = sketch.rng, x.channels
    scale, shift = (sketch.rng.integers(1, 5, channels), sketch.rng.integers(-2, 3, channels))
    epsilon = pick(rng, (None, 1e-3, 0.1))
    form = pick(rng, ("instance", "group", "decomposed"), (3, 2, 3))
    groups = pick(rng, [size for size in range(1, channels + 1) if channels % size == 0])
    if form == "group" and sketch.opset >= 18:
        count = channels if sketch.opset >= 21 else groups
        parts = [sketch.constant(np.float32(each[:count])) for each in (scale, shift)]
        y = sketch.one("GroupNormalization", [x.name, *parts], num_groups=groups, epsilon=epsilon)
    elif form == "decomposed":
        split = sketch.constant(np.int64([0, groups, -1]))
        y = sketch.one("Reshape", [x.name, sketch.one("Identity", [split]) if sketch.chance(0.1) else split])
        fill = np.float32(pick(rng, (1, 1, 1, 2)))
        parts = [sketch.constant(np.full(groups, fill)), sketch.constant(np.zeros(groups, np.float32))]
        y = sketch.one("InstanceNormalization", [y, *parts], epsilon=epsilon)
        y = sketch.one("Reshape", [y, sketch.one("Shape", [x.name])])
        for operator, values in (("Mul", scale), ("Add", shift)):
            if sketch.chance(0.8):
                y = two(sketch, operator, y, per_channel(sketch, values, channels))
    else:
        parts = [sketch.constant(np.float32(each)) for each in (scale, shift)]
        if sketch.chance(0.1):
            parts[0] = sketch.one("Abs", [parts[0]])
        y = sketch.one("InstanceNormalization", [x.name, *parts], epsilon=epsilon)
    if sketch.chance(0.3):
        y = two(sketch, "Add", y, pick(rng, (x.name, sketch.one("Neg", [x.name]), sketch.constant(np.float32(1)))))
    if sketch.chance(0.4):
        y = activation(sketch, y)
    return whole(sketch, y, x)


def activation(sketch: Sketch, x: str) -> str:
    """An activation of parameters that keep numbers exact."""
    word = pick(sketch.rng, ("Relu", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish", "PRelu"))
    if word == "LeakyRelu":
        return sketch.one(word, [x], alpha=pick(sketch.rng, (0.5, -1.0, 0.0, 2.0)))
    if word == "HardSigmoid":
        return sketch.one(word, [x], alpha=0.25, beta=pick(sketch.rng, (0.5, -0.5)))
    if word == "HardSwish":
        return sketch.one(word, [x]) if sketch.opset >= 14 and not sketch.in_function else x
    if word == "PRelu":
        return sketch.one(word, [x, sketch.constant(np.float32(0.5))])
    if word == "Clip" and sketch.opset < 11:
        return sketch.one(word, [x], min=-2.0, max=6.0)
    if word == "Clip":
        kind = np.float32
        bounds = pick(sketch.rng, ((-2, 6), (None, 4), (-1, None), (3, -3), (None, None)))
        return sketch.one(word, [x, *["" if each is None else sketch.constant(kind(each)) for each in bounds]])
    return sketch.one(word, [x])


def folding(sketch: Sketch, x: Value) -> Value:
    """A ConvTranspose, what may be folded into it, and an activation, in any float type."""
    kinds = [name for name in ("float16", "float64") if sketch.chance(0.3)]
    kind = kinds[0] if kinds else "float32"
    number = TensorProto.FLOAT if kind == "float32" else NARROW[kind][0]
    inner = x if kind == "float32" else Value(sketch.one("Cast", [x.name], to=number), x.channels, x.size)
    y = conv_transpose(sketch, inner, kind=kind)
    name = y.name
    for word in pick(sketch.rng, ((), ("Mul",), ("Add",), ("Mul", "Add"), ("Norm",), ("Norm", "Mul"), ("Sub",))):
        if word == "Norm" and kind == "float32":
            name = normalized(sketch, Value(name, y.channels, y.size)).name
        elif word != "Norm":
            values = sketch.rng.integers(-1, 3, y.channels if sketch.chance(0.7) else 1).astype(kind)
            shape = [1, -1, *[1] * sketch.rank][sketch.rng.integers(2) if values.size > 1 else 0 :]
            other = sketch.constant(values.reshape(shape))
            name = sketch.one("Sub", [name, other]) if word == "Sub" else two(sketch, word, name, other)
    if kind == "float32" and sketch.chance(0.7):
        name = activation(sketch, name)
    elif sketch.chance(0.7):
        name = sketch.one(pick(sketch.rng, ("Relu", "LeakyRelu")), [name])
    if sketch.chance(0.1) and sketch.depth == 0 and not sketch.in_function:
        sketch.names.outputs.append((name, number))
    if kind != "float32":
        name = sketch.one("Cast", [name], to=TensorProto.FLOAT)
    result = Value(name, y.channels, y.size)
    return whole(sketch, name, result)


def strength(sketch: Sketch, x: Value) -> Value:
    """A PRelu of any slopes, an Elu, a Mish, a Softmax, an Einsum, or a Resize of nearest elements."""
    word = pick(
        sketch.rng, ("PRelu", "Elu", "Mish", "Softmax", "LogSoftmax", "Einsum", "Resize"), (3, 1, 1, 1, 1, 2, 2)
    )
    if word == "PRelu":
        slopes = pick(sketch.rng, ([0.5], [2.0], [-1.0], [0.0], [-0.0], [0.25, 1.0], [-1.0, 3.0]))
        array = np.resize(np.float32(slopes), x.channels if sketch.chance(0.7) else 1)
        shape = [1, -1, *[1] * sketch.rank][sketch.rng.integers(2) if array.size > 1 else 0 :]
        y = sketch.one("PRelu", [x.name, sketch.constant(array.reshape(shape))])
        return whole(sketch, y, x)
    if word == "Elu" or (word == "Mish" and sketch.opset >= 18):
        return whole(sketch, sketch.one(word, [x.name]), x)
    if word == "Mish":
        factor = sketch.one("Tanh", [sketch.one("Softplus", [x.name])])
        return whole(sketch, two(sketch, "Mul", x.name, factor), x)
    if word.endswith("Softmax") and sketch.opset >= 13:
        return whole(sketch, sketch.one(word, [x.name], axis=int(sketch.rng.integers(-2, sketch.rank + 2))), x)
    if word == "Einsum" and sketch.opset >= 12:
        axes, maps = "dhw"[: sketch.rank], int(sketch.rng.integers(1, 4))
        weights = sketch.constant(np.float32(sketch.rng.integers(-1, 2, (maps, x.channels))))
        operands = [("nc" + axes, x.name), ("mc", weights)][:: 1 if sketch.chance(0.6) else -1]
        terms, inputs = zip(*operands, strict=True)
        y = sketch.one("Einsum", list(inputs), equation=f"{','.join(terms)}->nm{axes}")
        return limited(sketch, Value(y, maps, x.size))
    if sketch.opset < 11:
        return base.resized(sketch, x)
    factors = ints(sketch.rng, 1, 3, sketch.rank)
    mapping, rounding = pick(sketch.rng, (
        ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"),
        ("align_corners", "round_prefer_floor"), ("asymmetric", "ceil"), ("pytorch_half_pixel", "floor"),
    ))  # fmt: skip
    scales = np.float32([1, 1, *factors])
    if sketch.chance(0.15):
        scales[2:] *= pick(sketch.rng, (0.5, 1.5))
    roi = sketch.constant(np.zeros(0, np.float32)) if sketch.opset in (11, 12) else ""
    given = {"mode": "nearest", "coordinate_transformation_mode": mapping, "nearest_mode": rounding}
    return Value(sketch.one("Resize", [x.name, roi, sketch.constant(scales)], **given), x.channels, sketch.new_size())


def scattered(sketch: Sketch, x: Value) -> Value:
    """An unpooling as torch writes it: a second pool for the offsets of planes, and a ScatterND into zeros."""
    if sketch.opset < 13 or sketch.in_function:
        return base.pool_and_unpool(sketch, x)
    rank, minus = sketch.rank, sketch.constant(np.int64([-1]))
    y, whole_ = sketch.add("MaxPool", [x.name], 2, kernel_shape=[2] * rank, strides=[2] * rank)
    _, ones = sketch.add("MaxPool", [x.name], 2, kernel_shape=[1] * rank)
    ends = (sketch.constant(np.int64([value] * rank)) for value in (0, 1))
    first = sketch.one("Slice", [ones, *ends, sketch.constant(np.int64(range(2, rank + 2)))])
    plane = sketch.one("Sub", [whole_, first])
    if sketch.chance(0.2):  # once more in a plane
        sketch.names.outputs.append((plane, TensorProto.INT64))
    i = sketch.one("Add", [plane, first])
    if sketch.chance(0.5):
        y = sketch.one(pick(sketch.rng, ("Relu", "Neg")), [y])
    shape = sketch.one("Shape", [x.name])
    data = sketch.one("Reshape", [sketch.one("ConstantOfShape", [shape]), minus])
    places = sketch.one("Unsqueeze", [sketch.one("Reshape", [i, minus]), minus])
    more = {"reduction": pick(sketch.rng, ("none", "add"))} if sketch.opset >= 16 and sketch.chance(0.2) else {}
    s = sketch.one("ScatterND", [data, places, sketch.one("Reshape", [y, minus])], **more)
    return Value(sketch.one("Reshape", [s, shape]), x.channels, x.size)


def broad_conv(sketch: Sketch, x: Value) -> Value:
    """A Conv that may be converted: any window, pads, groups, over any number of axes."""
    channels = pick(sketch.rng, (1, 2, 4, 16))
    group = 2 if x.channels % 2 == 0 and channels % 2 == 0 and sketch.chance(0.3) else 1
    kernel = ints(sketch.rng, 1, 3, sketch.rank)
    inputs = [x.name, sketch.constant(numbers(sketch, [channels, x.channels // group, *kernel]))]
    if sketch.chance(0.4):
        inputs.append(sketch.constant(numbers(sketch, [channels])) if sketch.chance(0.9) else "")
    given: dict[str, Any] = {"group": group if group > 1 else None}
    given |= pick(sketch.rng, (
        {}, {"pads": [1] * 2 * sketch.rank}, {"pads": ints(sketch.rng, 0, 2, 2 * sketch.rank)},
        {"auto_pad": "VALID"}, {"auto_pad": "SAME_UPPER"}, {"strides": [2] * sketch.rank, "pads": kernel * 2},
        {"dilations": [2] * sketch.rank, "pads": [size - 1 for size in kernel] * 2},
    ))  # fmt: skip
    y = Value(sketch.one("Conv", inputs, **given), channels, sketch.new_size())
    return limited(sketch, normalized(sketch, y) if sketch.chance(0.3) else y)


def contributed(sketch: Sketch, x: Value) -> Value:
    """An operator that only onnxruntime has, between others."""
    if sketch.in_function:
        return base.plain(sketch, x)
    word = pick(sketch.rng, ("FusedConv", "QuickGelu", "BiasAdd"))
    if word == "FusedConv":
        w = sketch.constant(numbers(sketch, [2, x.channels, *[1] * sketch.rank]))
        return limited(sketch, Value(sketch.one(word, [x.name, w], domain=MICROSOFT, activation="Relu"), 2, x.size))
    if word == "QuickGelu":
        return whole(sketch, sketch.one(word, [x.name], domain=MICROSOFT, alpha=1.5), x)
    y = sketch.one("ExpandDims", [x.name, sketch.constant(np.int32(0))], domain=MICROSOFT)
    y = sketch.one("Reshape", [y, sketch.one("Shape", [x.name])])
    return Value(y, x.channels, x.size)


def trained(sketch: Sketch, x: Value) -> Value:
    """A Dropout of a network in training, which keeps everything."""
    if sketch.opset >= 12:
        flags = [sketch.constant(np.float32(0)), sketch.constant(np.array(True))]
        return Value(sketch.one("Dropout", [x.name, *flags], seed=1), x.channels, x.size)
    return base.plain(sketch, x)


def gathered(sketch: Sketch, x: Value) -> Value:
    """Sequences, optional values and strings on the way."""
    way = pick(sketch.rng, ("sequence", "split", "optional", "string", "sum"))
    if way == "sequence" and sketch.opset >= 11:
        y = sketch.one("SequenceConstruct", [x.name, sketch.one("Neg", [x.name])])
        y = sketch.one("SequenceAt", [y, sketch.constant(np.int64(pick(sketch.rng, (0, 1, -1))))])
    elif way == "split" and sketch.opset >= 11:
        y = sketch.one("ConcatFromSequence", [sketch.one("SplitToSequence", [x.name], axis=1)], axis=1)
    elif way == "optional" and sketch.opset >= 18:
        y = sketch.one("OptionalGetElement", [sketch.one("Optional", [x.name])])
    elif way == "string":
        y = sketch.one("Cast", [sketch.one("Cast", [x.name], to=TensorProto.STRING)], to=TensorProto.FLOAT)
    else:
        y = sketch.one("Sum", [x.name, x.name, sketch.one("Neg", [x.name])])
    return Value(y, x.channels, x.size)


def constants_only(sketch: Sketch, x: Value) -> Value:
    """Operators of unpool or of its passes on constants, added to a value that has one element per channel."""
    rank, channels = sketch.rank, x.channels
    c = sketch.constant(numbers(sketch, [1, channels, *[2] * rank]))
    word = pick(sketch.rng, ("ConvTranspose", "InstanceNormalization", "PRelu", "Conv", "MaxPool", "Snake"))
    if word == "ConvTranspose":
        w = sketch.constant(numbers(sketch, [channels, channels, *[1] * rank]))
        c = sketch.one("Relu", [sketch.one(word, [c, w])])
    elif word == "InstanceNormalization":
        parts = [sketch.constant(np.float32(np.full(channels, fill))) for fill in (2, 1)]
        c = whole(sketch, sketch.one(word, [c, *parts]), Value(c, channels, 0)).name
    elif word == "Conv":
        c = sketch.one(word, [c, sketch.constant(numbers(sketch, [channels, channels, *[1] * rank]))])
    elif word == "MaxPool":
        (c,) = sketch.add(word, [c], kernel_shape=[1] * rank)
    elif word == "PRelu":
        c = sketch.one(word, [c, sketch.constant(np.float32([0.5]))])
    else:
        sine = sketch.one("Sin", [sketch.one("Mul", [c, sketch.constant(np.float32(0.7))])])
        part = sketch.one("Mul", [sketch.one("Pow", [sine, sketch.constant(np.float32(2))])] * 2)
        c = whole(sketch, sketch.one("Add", [c, part]), Value(c, channels, 0)).name
    (c,) = sketch.add("MaxPool", [c], kernel_shape=[2] * rank)
    return whole(sketch, sketch.one("Add", [x.name, c]), x)


def with_defaults(sketch: Sketch, x: Value) -> Value:
    """A function with default values, of an opset of its own, with what passes look for."""
    if sketch.opset < 13:
        return base.called(sketch, x)
    body = Sketch(sketch.names, in_function=True, depth=sketch.depth)
    step = pick(sketch.rng, (snake, normalization, folding, strength, broad_conv, base.keeping, base.pool))
    result = step(body, Value("given", x.channels, x.size))
    (y,) = body.add("LeakyRelu", [result.name])
    node = body.nodes[-1]
    del node.attribute[:]
    node.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    title = sketch.names.fresh("Function")
    opset = pick(sketch.rng, (sketch.opset, sketch.opset, max(13, sketch.opset - 1)))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(FUNCTIONS, 1)]
    made = helper.make_function(FUNCTIONS, title, ["given"], [y], body.nodes, imports)
    made.attribute_proto.append(helper.make_attribute("slope", 0.5))
    sketch.names.functions.append(made)
    given = {"slope": 2.0} if sketch.chance(0.4) else {}
    name = sketch.one(title, [x.name], domain=FUNCTIONS, **given)
    return whole(sketch, name, result)


def in_branch(sketch: Sketch, x: Value) -> Value:
    """An If around what passes look for, whose branches read a weight of the outer graph."""
    flag, bodies = base.condition(sketch, x), []
    for side in ("then", "else"):
        body = sketch.body()
        step = pick(sketch.rng, (snake, normalization, strength, base.pool_and_unpool, base.keeping))
        y = step(body, x)
        last = body.one("Identity", [y.name])
        bodies.append(finish(body, side, [], [tensor(last)]))
    made = sketch.one("If", [flag], then_branch=bodies[0], else_branch=bodies[1])
    return Value(made, x.channels, sketch.new_size())


STEPS: dict[Callable[[Sketch, Value], Value], float] = {
    **base.STEPS, snake: 6, normalization: 8, folding: 9, strength: 7, scattered: 6, broad_conv: 18, contributed: 2,
    trained: 2, gathered: 3, constants_only: 2, with_defaults: 4, in_branch: 3,
}  # fmt: skip


def drop_differences(pool: onnx.NodeProto) -> None:
    """Leave out what makes the size of a pool with auto_pad another one in onnxruntime than in the standard."""
    given = {each.name: helper.get_attribute_value(each) for each in pool.attribute}
    if given.get("auto_pad", b"NOTSET").startswith(b"SAME"):
        del pool.attribute[:]
        window = given["kernel_shape"]
        given["strides"] = list(map(min, given.get("strides", [1] * len(window)), window))
        kept = [(word, value) for word, value in given.items() if word != "dilations"]
        pool.attribute.extend(helper.make_attribute(word, value) for word, value in kept)


def case(seed: int) -> ModelCase:
    """The case of a seed; `settings` also has what `session_model_forms.disguise` does to the model."""
    rng = np.random.default_rng((seed, 5))
    names = Names(rng, pick(rng, (1, 2, 3), (2, 6, 2)), int(pick(rng, base.OPSETS, [4] + [1] * 5 + [3] * 12)))
    channels = int(rng.integers(1, 5))
    sizes = [int(rng.integers(1, 3)), channels, *ints(rng, 3, 8, names.rank)]
    form = pick(rng, ("fixed", "named", "batch", "none", "minus"), (6, 3, 2, 1, 2))
    axes = ["n", channels, *[f"d{axis}" for axis in range(names.rank)]]
    minus = [-1, channels, *[-1] * names.rank]
    model = base.model_of(
        names, channels,
        {"fixed": sizes, "named": axes, "batch": ["n", *sizes[1:]], "none": [None] * len(sizes), "minus": minus}[form],
        STEPS,
    )  # fmt: skip
    settings = settings_of(names, model)
    settings["exact"], settings["level"] = chance(rng, 0.15), int(pick(rng, range(4), (1, 1, 2, 6)))
    every = [sizes]
    if form == "named" and chance(rng, 0.3):
        settings["overrides"] = {name: size for name, size in zip(axes, sizes, strict=True) if name != channels}
    elif form in ("named", "none", "minus"):
        every.append([int(rng.integers(1, 3)), channels, *ints(rng, 2, 11, names.rank)])
    elif form == "batch":
        every.append([3, *sizes[1:]])
    if form != "fixed" and not settings["overrides"] and chance(rng, 0.1):
        every.append([0, *every[-1][1:]])
    feeds = [{"x": rng.integers(-4, 5, shape).astype(np.float32)} for shape in every]
    for node in every_node(model):
        if node.op_type == "MaxPool" and not any(each.ref_attr_name for each in node.attribute):
            drop_differences(node)
    put_special_values(rng, model, feeds, settings)
    return ModelCase(model, feeds, settings)


def put_special_values(
    rng: np.random.Generator, model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]], settings: dict[str, Any]
) -> None:
    """Zeros of either sign, subnormal numbers, infinity and NaN, where all runtimes agree on them."""
    operators = {node.op_type for node in every_node(model)}
    if chance(rng, 0.25):
        special = [[-0.0] * 3]
        # Their products are rounded, and onnxruntime leaves out a Cast to float16 and back, which loses them.
        if operators.isdisjoint({"Cast", "Conv", "ConvTranspose"}):
            special.append([1e-40, -1e-40, 1e-45])
        if "MaxPool" not in operators:  # in which unpool follows the standard, where NaN wins
            special += [[np.inf] * 3, [-np.inf] * 3, [np.nan] * 3, [np.inf, -np.inf, np.nan]]
        values = pick(rng, special)
        for feed in feeds:
            flat = feed["x"].reshape(-1)
            if flat.size:
                flat[rng.integers(0, flat.size, 3)] = values
        settings["special"] = repr(values)
    if chance(rng, 0.3):
        for feed in feeds:
            feed["x"][feed["x"] == 0] = -0.0
