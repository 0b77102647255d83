"""Random models, of which two of three are calm, nearly valid: operators of unpool among others, or others alone.

They have bodies and functions. Some have weights so large that those may stay in a file beside the model.
"""

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NHWC = "com.ms.internal.nhwc"
ODD = (-1, 0, 2, 7, 2**31 - 1, 2**31, 2**62, -(2**63), 2**63 - 1)
FLOATS = (TensorProto.FLOAT,) * 8 + (TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT8, TensorProto.BFLOAT16)
CALM = ("Relu", "Identity", "Neg", "Sigmoid", "LeakyRelu", "Abs", "Tanh", "Exp")
UNARY = ("Relu", "Identity", "Neg", "Sigmoid", "LeakyRelu", "Clip", "Shape", "Size", "Flatten", "Abs", "Not", "Cast")
BINARY = ("Add", "Mul", "Sub", "Mod", "MatMul", "Concat", "Reshape", "Gather", "Div", "Equal", "Unsqueeze", "Tile")
LONG = 300  # a window with which a weight is large
OTHERS = ("ConstantOfShape", "Slice", "Squeeze", "SequenceConstruct", "Range", "ScatterND", "NoSuch", "Optional", "Pad")


@dataclass
class Sketch:
    """A graph that is being drawn; `values` are the names that its next node may read.

    It is calm where it is nearly valid, and foreign where it has no operator of unpool.
    """

    draw: st.DrawFn
    rank: int
    values: list[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)
    prefix: str = ""
    calm: bool = True
    foreign: bool = False

    def fresh(self) -> str:
        """A name for a value; seldom one that is taken."""
        if self.rarely() and self.values:
            return self.any_value()
        return f"{self.prefix}v{len(self.nodes)}_{len(self.values)}"

    def rarely(self) -> bool:
        return not self.calm and self.draw(st.integers(0, 15)) == 0

    def any_value(self) -> str:
        """A value, mostly one of the last."""
        return self.draw(st.sampled_from(self.values[-4:] + self.values[:1])) if self.values else ""

    def numbers(self, count: int, low: int, high: int) -> list[int]:
        """Integers for an attribute; seldom odd ones, or another number of them."""
        found = [self.draw(st.integers(low, high)) for _ in range(count)]
        if self.rarely() and found:
            found[-1] = self.draw(st.sampled_from(ODD))
        return found[:-1] if self.rarely() else found

    def constant(self, array: Any) -> str:
        """A new initializer."""
        name = f"{self.prefix}c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, operator: str, inputs: list[str], outputs: int = 1, domain: str = "", **given: Any) -> list[str]:
        """A node; its outputs may be read from now on."""
        made = [self.fresh() + "abc"[place] for place in range(outputs)]
        given = {name: value for name, value in given.items() if value != []}
        self.nodes.append(helper.make_node(operator, inputs, made, domain=domain, **given))
        self.values += made[:1] if self.calm else made
        return made


def windows(sketch: Sketch, *, dilated: bool = True) -> dict[str, Any]:
    """Attributes of a pool."""
    rank = sketch.rank
    given: dict[str, Any] = {"kernel_shape": sketch.numbers(rank, 1, 3)}
    if sketch.draw(st.booleans()):
        given["strides"] = sketch.numbers(rank, 1, 3)
    if sketch.draw(st.booleans()):
        given["pads"] = sketch.numbers(2 * rank, 0, 1)
    elif sketch.draw(st.booleans()):
        modes = ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", *([] if sketch.calm else ["", "SAME"])]
        given["auto_pad"] = sketch.draw(st.sampled_from(modes))
    if dilated and sketch.draw(st.booleans()):
        given["dilations"] = sketch.numbers(rank, 1, 2)
    return given


def max_pool(sketch: Sketch) -> None:
    given = windows(sketch)
    for name in ("ceil_mode", "storage_order"):
        if sketch.draw(st.integers(0, 5)) == 0:
            given[name] = sketch.draw(st.sampled_from(ODD)) if sketch.rarely() else 1
    domain = NHWC if sketch.rarely() else ""
    sketch.add("MaxPool", [sketch.any_value()], sketch.draw(st.integers(1, 2)), domain, **given)


def pool_and_unpool(sketch: Sketch) -> None:
    """A pool, something between, and the unpooling of its indices, with or without output_shape."""
    given = windows(sketch, dilated=False)
    given.pop("auto_pad", None)
    x = sketch.any_value()
    y, i = sketch.add("MaxPool", [x], 2, **given)
    if sketch.draw(st.booleans()):
        (y,) = sketch.add("Relu", [y])
    between = sketch.draw(st.sampled_from(["none", "none", "none", "Mod", "Sub", "Add", "Cast"]))
    if between == "Cast":
        (i,) = sketch.add("Cast", [i], to=TensorProto.INT64)
    elif between != "none":
        amount = sketch.constant(np.array([sketch.draw(st.sampled_from([1, 4, 25, 0, -3, 2**40]))], np.int64))
        (i,) = sketch.add(between, [i, amount])
    inputs = [y, i]
    if sketch.draw(st.booleans()):
        inputs.append(sketch.add("Shape", [x])[0] if sketch.draw(st.integers(0, 3)) else shape_constant(sketch))
        sketch.values = [name for name in sketch.values if name != inputs[2] or not sketch.calm]
    sketch.values = [name for name in sketch.values if name != i or not sketch.calm]
    sketch.add("MaxUnpool", inputs, **given)


def shape_constant(sketch: Sketch) -> str:
    return sketch.constant(np.array([1, 2, *sketch.numbers(sketch.rank, 1, 9)], np.int64))


def convolution(sketch: Sketch) -> None:
    """A Conv or a ConvTranspose, with what may be folded into it behind."""
    given = windows(sketch)
    window = [min(max(one, 1), 5) for one in given.pop("kernel_shape")]
    if window and sketch.draw(st.integers(0, 7)) == 0:
        window[0] = LONG
    group = sketch.draw(st.sampled_from([1, 1, 1, 2] if sketch.calm else [1, 2, 0]))
    operator = sketch.draw(st.sampled_from(["Conv", "ConvTranspose", "ConvTranspose"]))
    if operator == "ConvTranspose" and sketch.draw(st.integers(0, 3)) == 0:
        given["output_shape"] = sketch.numbers(sketch.rank, 1, 9)
    if operator == "ConvTranspose" and sketch.draw(st.integers(0, 5)) == 0:
        given["output_padding"] = sketch.numbers(sketch.rank, 0, 1)
    if group != 1:
        given["group"] = group
    w = sketch.constant(np.ones([2, 2 // max(group, 1), *window], np.float32))
    inputs = [sketch.any_value(), w]
    if sketch.draw(st.booleans()):
        inputs.append(sketch.constant(np.ones(2 if sketch.calm else sketch.draw(st.integers(1, 3)), np.float32)))
    (y,) = sketch.add(operator, inputs, **given)
    behind = sketch.draw(st.sampled_from(["", "Relu", "Add", "BatchNormalization", "Clip"]))
    if behind == "BatchNormalization":
        one = sketch.constant(np.ones(2, np.float32))
        sketch.add(behind, [y, one, one, one, one])
    elif behind == "Add":
        sketch.add(behind, [y, sketch.constant(np.ones([2] + [1] * sketch.rank, np.float32))])
    elif behind:
        sketch.add(behind, [y])


def plain(sketch: Sketch) -> None:
    """Any other operator, of the right number of inputs or not."""
    kind = sketch.draw(st.integers(0, 9))
    if sketch.calm:
        value = sketch.any_value()
        sketch.add(*(("Add", [value, value]) if kind < 2 else (sketch.draw(st.sampled_from(CALM)), [value])))
    elif kind < 5:
        operator = sketch.draw(st.sampled_from(UNARY))
        given = {"to": sketch.draw(st.sampled_from([1, 7, 10, 11, 16, 8, 99]))} if operator == "Cast" else {}
        sketch.add(operator, [sketch.any_value()], **given)
    elif kind < 8:
        operator = sketch.draw(st.sampled_from(BINARY))
        given = {"axis": sketch.draw(st.integers(-2, 3))} if operator == "Concat" else {}
        other = sketch.any_value() if sketch.draw(st.booleans()) else shape_constant(sketch)
        sketch.add(operator, [sketch.any_value(), other], **given)
    else:
        operator = sketch.draw(st.sampled_from(OTHERS))
        sketch.add(operator, [sketch.any_value() for _ in range(sketch.draw(st.integers(0, 4)))])


def weighted(sketch: Sketch) -> None:
    """Adds the mean of a large tensor."""
    value = sketch.any_value()
    (mean,) = sketch.add("ReduceMean", [sketch.constant(np.full([2, 4 * LONG], 0.5, np.float32))], keepdims=0)
    sketch.values = [name for name in sketch.values if name != mean or not sketch.calm]
    sketch.add("Add", [value, mean])


def is_positive(sketch: Sketch) -> str:
    """Whether the mean of the input is above 0."""
    before = list(sketch.values)
    (mean,) = sketch.add("ReduceMean", ["x"], keepdims=0)
    (found,) = sketch.add("Greater", [mean, sketch.constant(np.float32(0))])
    sketch.values = before
    return found


def branch(sketch: Sketch) -> None:
    """An If with a body for each case, which see the values around them.

    Within another body its condition is no constant: onnxruntime 1.31 ends the process on an If of a constant, in an If
    of a constant, that has a Loop or a Scan.
    """
    condition = is_positive(sketch) if sketch.prefix else sketch.constant(np.array(sketch.draw(st.booleans())))
    bodies = [body(sketch, f"{sketch.prefix}b{len(sketch.nodes)}{side}", []) for side in "te"]
    sketch.add("If", [condition], then_branch=bodies[0], else_branch=bodies[1])


def repeated(sketch: Sketch) -> None:
    """A Loop that carries one value."""
    prefix = f"{sketch.prefix}l{len(sketch.nodes)}"
    made = body(sketch, prefix, [f"{prefix}now"])
    ends = [("step", TensorProto.INT64), ("go", TensorProto.BOOL)]
    inputs = [helper.make_tensor_value_info(prefix + name, kind, []) for name, kind in ends]
    loop = helper.make_graph(
        [helper.make_node("Identity", [f"{prefix}go"], [f"{prefix}after"]), *made.node],
        "loop",
        [*inputs, helper.make_tensor_value_info(f"{prefix}now", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info(f"{prefix}after", TensorProto.BOOL, []), *made.output],
        list(made.initializer),
    )
    times = sketch.constant(np.array(sketch.draw(st.integers(0, 3))))
    sketch.add("Loop", [times, sketch.constant(np.array(True)), sketch.any_value()], body=loop)


def scanned(sketch: Sketch) -> None:
    """A Scan that carries one value over three numbers, and stacks it."""
    prefix = f"{sketch.prefix}l{len(sketch.nodes)}"
    made = body(sketch, prefix, [f"{prefix}now"])
    scan = helper.make_graph(
        [*made.node, helper.make_node("Identity", [f"{prefix}each"], [f"{prefix}same"])],
        "scan",
        [helper.make_tensor_value_info(prefix + name, TensorProto.FLOAT, None) for name in ("now", "each")],
        [*made.output, output(f"{prefix}same", TensorProto.FLOAT)],
        list(made.initializer),
    )
    given = {"scan_input_axes": [0], "scan_input_directions": [1]} if sketch.draw(st.booleans()) else {}
    three = sketch.constant(np.float32([1, 2, 3]))
    sketch.add("Scan", [sketch.any_value(), three], 2, body=scan, num_scan_inputs=1, **given)


def mapped(sketch: Sketch) -> None:
    """A SequenceMap over a value twice, of which the first result is taken."""
    prefix = f"{sketch.prefix}l{len(sketch.nodes)}"
    value = sketch.any_value()
    made = body(sketch, prefix, [f"{prefix}now"])
    made.input.append(output(f"{prefix}now", TensorProto.FLOAT))
    (pair,) = sketch.add("SequenceConstruct", [value, value])
    (results,) = sketch.add("SequenceMap", [pair], body=made)
    sketch.values = [name for name in sketch.values if name not in (pair, results) or not sketch.calm]
    sketch.add("SequenceAt", [results, sketch.constant(np.array(0))])


def body(around: Sketch, prefix: str, own: list[str]) -> onnx.GraphProto:
    sketch = Sketch(around.draw, around.rank, [*around.values, *own], prefix=prefix, calm=around.calm)
    sketch.foreign = around.foreign
    depth = prefix.count("b") + prefix.count("l")
    fill(sketch, around.draw(st.integers(1, 3)), nested=depth < 3)
    output = helper.make_tensor_value_info(sketch.values[-1], TensorProto.FLOAT, None)
    return helper.make_graph(sketch.nodes, "body", [], [output], sketch.tensors)


def fill(sketch: Sketch, count: int, *, nested: bool) -> None:
    """Draw nodes."""
    ours = [max_pool, pool_and_unpool, pool_and_unpool, convolution, convolution]
    kinds = [plain, plain, weighted] if sketch.foreign else [*ours, plain, plain, weighted]
    for _ in range(count):
        sketch.draw(st.sampled_from([*kinds, branch, repeated, scanned, mapped] if nested else kinds))(sketch)


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """A model of one to eight steps."""
    calm = draw(st.integers(0, 2)) > 0
    rank, element = draw(st.sampled_from([1, 2, 2, 2, 3])), draw(st.sampled_from(FLOATS[: 8 if calm else None]))
    sketch = Sketch(draw, rank, ["x"], calm=calm, foreign=draw(st.integers(0, 3)) == 0)
    fill(sketch, draw(st.integers(1, 6)), nested=True)
    sizes: list[Any] = [1, 2, *(draw(st.integers(1, 9)) for _ in range(rank))]
    if draw(st.integers(0, 3)) == 0:
        sizes[draw(st.integers(0, rank + 1))] = draw(st.sampled_from(["n", None] if calm else ["n", None, 0, 2**40]))
    outputs = draw(st.lists(st.sampled_from(sketch.values), min_size=1, max_size=3, unique=True))
    typed = (
        TensorProto.FLOAT if calm else draw(st.sampled_from([TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL]))
    )
    graph = helper.make_graph(
        sketch.nodes,
        "fuzz",
        [helper.make_tensor_value_info("x", element, sizes)],
        [
            onnx.ValueInfoProto(name=name) if not typed else helper.make_tensor_value_info(name, typed, None)
            for name in outputs
        ],
        sketch.tensors,
    )
    opset = draw(st.sampled_from([11, 13, 17, 18, 21, 22] if calm else [1, 6, 7, 8, 9, 10, 12, 15, 23, 99]))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(NHWC, 22)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=draw(st.sampled_from([3, 4, 8, 8, 8, 10])))
    return as_function(draw, model) if draw(st.integers(0, 7)) == 0 else model


def output(name: str, typed: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, typed, None)


def as_function(draw: st.DrawFn, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its nodes in a function, which may call itself or be called twice."""
    graph, imports = model.graph, [*model.opset_import, helper.make_opsetid("local", 1)]
    weights = [helper.make_node("Constant", [], [one.name], value=one) for one in graph.initializer]
    made = graph.output[0].name
    if draw(st.integers(0, 19)) == 0:
        weights.append(helper.make_node("Whole", ["x"], ["again"], domain="local"))
    function = helper.make_function("local", "Whole", ["x"], [made], [*weights, *graph.node], imports)
    call = helper.make_node("Whole", ["x"], [made], domain="local")
    calling = helper.make_graph([call], "fuzz", graph.input, graph.output[:1])
    return helper.make_model(calling, opset_imports=imports, ir_version=8, functions=[function])
