"""Conversion of a model to an older opset, if each of its nodes can be expressed there.

onnx's version converter does not go back for most operators whose later versions only added types, so torch's default
exporter leaves such models at 18. It also leaves Softmax unchanged below 13, where its axis has another meaning. Here a
node is unchanged if the older version has the same meaning, attributes, inputs and types; otherwise one of `REWRITES`
changes it, or the model is rejected.

A rewrite changes the node itself, so that its output keeps its name, and may insert nodes before it. It returns None,
or the reason why the node cannot be rewritten.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnxscript import ir

from unpool.errors import UnsupportedError
from unpool.torch.exporting.nodes import FIRST_CEIL, ceil_ends, pool_of

Rewrite = Callable[[ir.Node], str | None]


def shape(node: ir.Node) -> str | None:
    """Shape with start or end: a Shape of all axes, and a Gather of those between start and end."""
    x = node.inputs[0]
    start, end = node.attributes.get_int("start") or 0, node.attributes.get_int("end")
    if start == 0 and end is None:
        return None
    if x is None or x.shape is None:
        return "start or end and an unknown rank"
    axes = list(range(len(x.shape))[start:end])
    _replace(node, "Gather", _insert_before(node, "Shape", [x]), _constant(node, axes))
    return None


def inputs_to_attributes(what: str, *names: str) -> Rewrite:
    """A rewrite: the inputs after the first become attributes of these names, floats or lists of ints."""

    def rewrite(node: ir.Node) -> str | None:
        for name, value in zip(names, node.inputs[1:], strict=False):
            if value is None:
                continue
            numbers = _constant_numbers(value)
            is_float = name in FLOAT_ATTRIBUTES
            if numbers is None or (is_float and len(numbers) != 1):
                return f"{what} that are not constant"
            node.attributes.add(ir.AttrFloat32(name, float(numbers[0])) if is_float else ir.AttrInt64s(name, numbers))
        node.resize_inputs(1)
        return None

    return rewrite


def empty_axes(node: ir.Node) -> str | None:
    """Reductions: noop_with_empty_axes is dropped if there are axes."""
    if node.attributes.get_int("noop_with_empty_axes") and [*node.inputs, None][1] is None:
        return "noop_with_empty_axes"
    node.attributes.pop("noop_with_empty_axes", None)
    return None


def equal_split(node: ir.Node) -> str | None:
    """Split: num_outputs is dropped if the parts are equal."""
    if "num_outputs" not in node.attributes:
        return None
    x, axis = node.inputs[0], node.attributes.get_int("axis", 0)
    size = None if x is None or x.shape is None else x.shape[axis]
    if not isinstance(size, int) or size % len(node.outputs):
        return "parts that may differ"
    node.attributes.pop("num_outputs")
    return None


def pad_axes(node: ir.Node) -> str | None:
    """Pad: unchanged; one with axes is rejected."""
    return "axes" if any(value is not None for value in node.inputs[3:]) else None


def gather(node: ir.Node) -> str | None:
    """Gather: unchanged; one of indices that may be negative is rejected."""
    indices = _constant_numbers(node.inputs[1])
    return "indices that may be negative" if indices is None or min(indices, default=0) < 0 else None


def axes_from_front(node: ir.Node) -> str | None:
    """Negative axes in an attribute become those from the front."""
    name = "axis" if "axis" in node.attributes else "axes"
    attribute = node.attributes.get(name)
    if attribute is None:
        return None
    axes = [attribute.value] if name == "axis" else list(attribute.value)
    if min(axes, default=0) >= 0:
        return None
    indexed = node.outputs[0] if node.op_type == "Unsqueeze" else node.inputs[0]
    if indexed is None or indexed.shape is None:
        return "a negative axis and an unknown rank"
    axes = [axis % len(indexed.shape) for axis in axes]
    node.attributes.add(ir.AttrInt64(name, axes[0]) if name == "axis" else ir.AttrInt64s(name, axes))
    return None


def reshape(node: ir.Node) -> str | None:
    """Reshape: allowzero is dropped if no size is 0."""
    if node.attributes.get_int("allowzero"):
        sizes = _constant_numbers(node.inputs[1])
        if sizes is None or 0 in sizes:
            return "allowzero"
        node.attributes.pop("allowzero")
    return None


def constant(node: ir.Node) -> None:
    """Constant: numbers and lists become a tensor, the only kind of old opsets."""
    tensor = ir.convenience.get_const_tensor(node.outputs[0])
    if tensor is not None:
        node.attributes.clear()
        node.attributes.add(ir.AttrTensor("value", tensor))


def conv_transpose(node: ir.Node) -> str | None:
    """ConvTranspose: unchanged; one with output_shape is rejected, because opsets read it differently."""
    return "output_shape" if "output_shape" in node.attributes else None


def max_pool(node: ir.Node) -> str | None:
    """MaxPool: ceil_mode becomes padding at the end; one with dilations is rejected."""
    if set(node.attributes.get_ints("dilations", [1])) != {1}:
        return "dilations"
    node.attributes.pop("dilations", None)
    if not node.attributes.get_int("ceil_mode"):
        return None
    x = node.inputs[0]
    window = list(node.attributes.get_ints("kernel_shape", []))
    strides = list(node.attributes.get_ints("strides", [1] * len(window)))
    pads = list(node.attributes.get_ints("pads", [0] * 2 * len(window)))
    begins = pads[: len(window)]
    large = [] if x is None or x.shape is None else list(x.shape)[2:]
    ends = ceil_ends(large, pool_of(len(window), window, strides, begins, 1, True)) if large else None
    if ends is None or pads != begins * 2:
        return "ceil_mode and dynamic sizes"
    node.attributes.add(ir.AttrInt64s("pads", [*begins, *(max(0, end) for end in ends)]))
    node.attributes.pop("ceil_mode")
    return None


def mod(node: ir.Node) -> str | None:
    """Mod of a pool's indices: x - x / divisor * divisor, which is the same because no index is negative."""
    x, divisor = node.inputs
    pool = None if x is None else x.producer()
    if pool is None or pool.op_type != "MaxPool":
        return "values that may be negative"
    multiple = _insert_before(node, "Mul", [_insert_before(node, "Div", [x, divisor]), divisor])
    _replace(node, "Sub", x, multiple)
    return None


def arange(node: ir.Node) -> str | None:
    """Range from 0 in steps of 1: NonZero of `limit` ones, which is the position of each."""
    start, limit, step = node.inputs
    if _constant_numbers(start) != [0] or _constant_numbers(step) != [1]:
        return "another start than 0 or another step than 1"
    count = _insert_before(node, "Reshape", [limit, _constant(node, [1])])
    ones = _insert_before(node, "ConstantOfShape", [count], value=ir.tensor(np.ones(1, dtype=np.int64)))
    _replace(node, "Reshape", _insert_before(node, "NonZero", [ones]), _constant(node, [-1]))
    return None


FLOAT_ATTRIBUTES = ("value", "min", "max")
AXES_ATTRIBUTE = inputs_to_attributes("axes", "axes")
REDUCTIONS = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare"

REWRITES: Mapping[str, tuple[tuple[int, Rewrite], ...]] = {
    "Shape": ((15, shape),),
    "Split": ((18, equal_split), (13, inputs_to_attributes("parts", "split")), (11, axes_from_front)),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), ((13, AXES_ATTRIBUTE), (11, axes_from_front))),
    "ReduceSum": ((13, empty_axes), (13, AXES_ATTRIBUTE), (11, axes_from_front)),
    **dict.fromkeys(REDUCTIONS.split(), ((18, empty_axes), (18, AXES_ATTRIBUTE), (11, axes_from_front))),
    **dict.fromkeys(("Concat", "Flatten"), ((11, axes_from_front),)),
    "Gather": ((11, gather), (11, axes_from_front)),
    "Pad": ((18, pad_axes), (11, inputs_to_attributes("pads or a value", "pads", "value"))),
    "Clip": ((11, inputs_to_attributes("bounds", "min", "max")),),
    "Reshape": ((14, reshape),),
    "Constant": ((13, constant),),
    "ConvTranspose": ((22, conv_transpose),),
    "MaxPool": ((FIRST_CEIL, max_pool),),
    "Mod": ((10, mod),),
    "Range": ((11, arange),),
}
"""Operator -> its rewrites in order, each with the first opset that does without it."""


def _constant_numbers(value: ir.Value | None) -> list[Any] | None:
    """The numbers of a constant."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else np.ravel(tensor.numpy()).tolist()


def _insert_before(node: ir.Node, op_type: str, inputs: list[ir.Value | None], **attributes: Any) -> ir.Value:
    """The output of a new node before `node`."""
    new = ir.node(op_type, inputs, attributes)
    assert node.graph is not None
    node.graph.insert_before(node, new)
    return new.outputs[0]


def _replace(node: ir.Node, op_type: str, *inputs: ir.Value | None) -> None:
    """Make the node one of another operator, without attributes."""
    node.attributes.clear()
    node.op_type = op_type
    node.resize_inputs(len(inputs))
    for position, value in enumerate(inputs):
        node.replace_input_with(position, value)


def _constant(node: ir.Node, numbers: list[int]) -> ir.Value:
    return _insert_before(node, "Constant", [], value=ir.tensor(np.array(numbers, dtype=np.int64)))


SAME_FROM = {
    9: """
        Abs Add And Atan AveragePool BatchNormalization Cast Ceil Clip Concat Constant ConstantOfShape Conv
        ConvTranspose Cos Div Elu Equal Erf Exp Expand Flatten Floor Gather Gemm GlobalAveragePool GlobalMaxPool
        Greater GRU HardSigmoid Identity InstanceNormalization IsNaN LeakyRelu Less Log LRN LSTM MatMul Max
        MaxPool MaxUnpool Mean Min Mod Mul Neg NonZero Not Or Pad PRelu Range Reciprocal ReduceL1 ReduceL2
        ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
        Reshape RNN Selu Shape Sigmoid Sign Sin Size Softplus Split Sqrt Squeeze Sub Sum Tan Tanh Tile Transpose
        Unsqueeze Where
    """,
    11: "ArgMax ArgMin CumSum DepthToSpace GatherElements GatherND OneHot ScatterElements ScatterND Slice",
    12: "GreaterOrEqual LessOrEqual Pow",
    13: "LogSoftmax Resize Softmax",
}
"""Opset -> operators with one meaning from there up to 18, in every version that can hold a node.

Source: ONNX, Changelog.md.
"""

MIN_OPSET = {name: opset for opset, names in SAME_FROM.items() for name in names.split()}


def downgrade_opset(model: ir.Model, opset: int) -> ir.Model:
    """A copy of the model in the opset, at least 9; the model itself if that is its opset.

    The error for a node that cannot be expressed there has the oldest opset that works.
    """
    newest = model.opset_imports.get("", opset)
    if newest == opset:
        return model
    if newest < opset:
        raise UnsupportedError(
            f"export: expected an opset that torch's exporter reaches, got {opset}, where it stays at {newest}. "
            "Choose an older opset_version."
        )
    older, reasons = _convert(model, opset)
    if reasons:
        lowest = next(at for at in range(opset + 1, newest + 1) if at == newest or not _convert(model, at)[1])
        raise UnsupportedError(
            f"export: expected nodes that opset {opset} has, got {reasons[0]}. "
            f"Export with opset_version={lowest}; dynamo=False may reach others."
        )
    return older


def _convert(model: ir.Model, opset: int) -> tuple[ir.Model, list[str]]:
    """A copy of the model in the opset, and for each node that cannot be expressed there the reason."""
    older = model.clone()
    ir.passes.common.InlinePass()(older)
    newest = older.opset_imports[""]
    reasons = [reason for node in tuple(older.graph) if (reason := _downgrade_node(node, newest, opset))]
    ir.passes.common.RemoveUnusedNodesPass()(older)
    older.opset_imports[""] = opset
    return older, reasons


def _downgrade_node(node: ir.Node, newest: int, opset: int) -> str | None:
    """Change a node for an older opset; returns the reason if that is not possible."""
    if node.domain not in ("", "ai.onnx"):
        return None
    op_type = node.op_type
    name = f"{op_type}->{node.outputs[0].name}"
    subgraphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(attribute.type in subgraphs for attribute in node.attributes.values()):
        return f"{name}, whose subgraph cannot be converted"
    new, old = onnx.defs.get_schema(op_type, newest, ""), _schema(op_type, opset)
    if old is None or old.since_version != new.since_version:
        if MIN_OPSET.get(op_type, newest) > opset:
            return f"{name} as {op_type}-{new.since_version}"
        for first, rewrite in REWRITES.get(op_type, ()):
            reason = rewrite(node) if opset < first else None
            if reason:
                return f"{name} with {reason}"
    old = _schema(node.op_type, opset)
    if old is None:
        return f"{name}, which came later"
    reason = next(_missing_parts(node, new, old), None)
    return None if reason is None else f"{name} with {reason}"


def _schema(op_type: str, opset: int) -> Any:
    """The operator's version that the opset selects, None if it has none."""
    return onnx.defs.get_schema(op_type, opset, "") if onnx.defs.has(op_type, opset, "") else None


def _missing_parts(node: ir.Node, new: Any, old: Any) -> Iterator[str]:
    """The parts of a node that the older version lacks, in words; removes attributes that have their default."""
    for name in [name for name in node.attributes if name not in old.attributes]:
        default = new.attributes[name].default_value if name in new.attributes else None
        if default is not None and ir.from_proto(default).value == node.attributes[name].value:
            node.attributes.pop(name)
        else:
            yield f"attribute {name}"
    if not old.min_input <= len(node.inputs) <= old.max_input or len(node.outputs) > old.max_output:
        yield f"{len(node.inputs)} inputs and {len(node.outputs)} outputs"
    for at, value in enumerate(node.inputs):
        dtype = "" if value is None or value.dtype is None else value.dtype.name.lower()
        if dtype and f"tensor({dtype})" not in old.inputs[min(at, len(old.inputs) - 1)].types:
            yield f"an input of type {dtype}"
