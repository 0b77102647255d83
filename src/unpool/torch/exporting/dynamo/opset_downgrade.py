"""Conversion of a model to an older opset, if each of its nodes can be expressed there.

onnx's version converter does not go back for most operators whose later versions only added types, so torch's default
exporter leaves such models at 18. It also leaves Softmax unchanged below 13, where its axis has another meaning. Here a
node is unchanged if the older version has the same meaning, attributes, inputs and types; otherwise one of `REWRITES`
changes it, or the model is rejected.

A rewrite takes a node and the opset, changes the node itself, so that its output keeps its name, and may insert nodes
before it. It returns None, or the reason why the node cannot be rewritten.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnxscript import ir

from unpool.errors import UnsupportedError
from unpool.torch.exporting.attributes import FIRST_CEIL, ceil_ends, pool_of

FIRST_NEGATIVE_AXIS = 11
FIRST_SHAPE_PART = 15
FIRST_ALLOWZERO = 14
FIRST_MOD = 10
FIRST_PAD_INPUTS = 11
FIRST_PAD_AXES = 18
FIRST_CLIP_INPUTS = 11
FIRST_RANGE = 11
FIRST_AXES_INPUT = {"Squeeze": 13, "Unsqueeze": 13, "ReduceSum": 13, "Split": 13}
FIRST_REDUCED_AXES_INPUT = 18

Rewrite = Callable[[ir.Node, int], str | None]


def shape(node: ir.Node, opset: int) -> str | None:
    """Shape with start or end: a Shape of all axes, and a Gather of those between start and end."""
    x = node.inputs[0]
    start, end = node.attributes.get_int("start") or 0, node.attributes.get_int("end")
    if opset >= FIRST_SHAPE_PART or (start == 0 and end is None):
        return None
    if x is None or x.shape is None:
        return "start or end and an unknown rank"
    axes = range(len(x.shape))[start:end]
    node.attributes.clear()
    node.op_type = "Gather"
    node.resize_inputs(2)
    node.replace_input_with(0, _insert_before(node, "Shape", [x]))
    node.replace_input_with(1, _constant(node, list(axes)))
    return None


def axes_attribute(node: ir.Node, opset: int) -> str | None:
    """Squeeze, Unsqueeze and reductions: the input axes becomes an attribute."""
    if opset >= FIRST_AXES_INPUT.get(node.op_type, FIRST_REDUCED_AXES_INPUT):
        return None
    if node.attributes.get_int("noop_with_empty_axes") and _second_input(node) is None:
        return "noop_with_empty_axes"
    node.attributes.pop("noop_with_empty_axes", None)
    if not _input_to_attribute(node, "axes"):
        return "axes that are not constant"
    return _count_from_front(node, "axes", opset)


def split(node: ir.Node, opset: int) -> str | None:
    """Split: num_outputs is dropped if the parts are equal, and the input split becomes an attribute."""
    if "num_outputs" in node.attributes:
        x, axis = node.inputs[0], node.attributes.get_int("axis", 0)
        size = None if x is None or x.shape is None else x.shape[axis]
        if not isinstance(size, int) or size % len(node.outputs):
            return "parts that may differ"
        node.attributes.pop("num_outputs")
    if opset < FIRST_AXES_INPUT["Split"] and not _input_to_attribute(node, "split"):
        return "parts that are not constant"
    return _count_from_front(node, "axis", opset)


def pad(node: ir.Node, opset: int) -> str | None:
    """Pad: the inputs pads and value become attributes; one with axes cannot be rewritten."""
    inputs = [*node.inputs, None, None][:4]
    if opset < FIRST_PAD_AXES and inputs[3] is not None:
        return "axes"
    if opset >= FIRST_PAD_INPUTS:
        return None
    pads = _constant_ints(inputs[1])
    value = _constant_number(inputs[2], 0.0)
    if pads is None or value is None:
        return "pads or a value that are not constant"
    node.attributes["pads"] = ir.AttrInt64s("pads", pads)
    node.attributes["value"] = ir.AttrFloat32("value", value)
    node.resize_inputs(1)
    return None


def clip(node: ir.Node, opset: int) -> str | None:
    """Clip: the bounds become attributes."""
    if opset >= FIRST_CLIP_INPUTS:
        return None
    bounds = [_constant_number(bound, None) for bound in (*node.inputs[1:], None, None)[:2]]
    if any(bound is None and given is not None for bound, given in zip(bounds, node.inputs[1:], strict=False)):
        return "bounds that are not constant"
    for name, bound in zip(("min", "max"), bounds, strict=True):
        if bound is not None:
            node.attributes[name] = ir.AttrFloat32(name, bound)
    node.resize_inputs(1)
    return None


def axis_attribute(node: ir.Node, opset: int) -> str | None:
    """Concat, Flatten and Gather: axes are counted from the front; a Gather of negative indices cannot be rewritten."""
    if opset < FIRST_NEGATIVE_AXIS and node.op_type == "Gather":
        indices = _constant_ints(node.inputs[1])
        if indices is None or min(indices, default=0) < 0:
            return "indices that may be negative"
    return _count_from_front(node, "axis", opset)


def reshape(node: ir.Node, opset: int) -> str | None:
    """Reshape: allowzero is dropped if no size is 0."""
    if opset < FIRST_ALLOWZERO and node.attributes.get_int("allowzero"):
        sizes = _constant_ints(node.inputs[1])
        if sizes is None or 0 in sizes:
            return "allowzero"
        node.attributes.pop("allowzero")
    return None


def constant(node: ir.Node, opset: int) -> str | None:  # noqa: ARG001 - one signature for all forms
    """Constant: numbers and lists become a tensor, the only kind of old opsets."""
    tensor = ir.convenience.get_const_tensor(node.outputs[0])
    if tensor is not None:
        node.attributes.clear()
        node.attributes["value"] = ir.AttrTensor("value", tensor)
    return None


def conv_transpose(node: ir.Node, opset: int) -> str | None:  # noqa: ARG001
    """ConvTranspose: unchanged; one with output_shape is rejected, because opsets read it differently."""
    return "output_shape" if "output_shape" in node.attributes else None


def max_pool(node: ir.Node, opset: int) -> str | None:
    """MaxPool: ceil_mode becomes padding at the end; one with dilations cannot be rewritten."""
    if opset >= FIRST_CEIL:
        return None
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
    node.attributes["pads"] = ir.AttrInt64s("pads", [*begins, *(max(0, end) for end in ends)])
    node.attributes.pop("ceil_mode")
    return None


def mod(node: ir.Node, opset: int) -> str | None:
    """Mod of a pool's indices: x - x / divisor * divisor, which is the same because no index is negative."""
    if opset >= FIRST_MOD:
        return None
    x, divisor = node.inputs
    pool = None if x is None else x.producer()
    if pool is None or pool.op_type != "MaxPool":
        return "values that may be negative"
    all_indices = _insert_before(node, "Mul", [_insert_before(node, "Div", [x, divisor]), divisor])
    node.attributes.clear()
    node.op_type = "Sub"
    node.replace_input_with(1, all_indices)
    return None


def arange(node: ir.Node, opset: int) -> str | None:
    """Range from 0 in steps of 1: NonZero of `limit` ones, which is the position of each."""
    if opset >= FIRST_RANGE:
        return None
    start, limit, step = node.inputs
    if _constant_ints(start) != [0] or _constant_ints(step) != [1]:
        return "another start than 0 or another step than 1"
    count = _insert_before(node, "Reshape", [limit, _constant(node, [1])])
    ones = _insert_before(node, "ConstantOfShape", [count], value=ir.tensor(np.ones(1, dtype=np.int64)))
    node.op_type = "Reshape"
    node.replace_input_with(0, _insert_before(node, "NonZero", [ones]))
    node.replace_input_with(1, _constant(node, [-1]))
    node.resize_inputs(2)
    return None


REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

REWRITES: Mapping[str, Rewrite] = {
    "Shape": shape,
    "Split": split,
    **dict.fromkeys(("Squeeze", "Unsqueeze", *(f"Reduce{name}" for name in REDUCTIONS.split())), axes_attribute),
    **dict.fromkeys(("Concat", "Flatten", "Gather"), axis_attribute),
    "Pad": pad,
    "Clip": clip,
    "Reshape": reshape,
    "Constant": constant,
    "ConvTranspose": conv_transpose,
    "MaxPool": max_pool,
    "Mod": mod,
    "Range": arange,
}
"""Operator -> the function that rewrites it."""


def _count_from_front(node: ir.Node, name: str, opset: int) -> str | None:
    """Make the axes of an attribute non-negative, if the opset has no negative ones."""
    attribute = node.attributes.get(name)
    if opset >= FIRST_NEGATIVE_AXIS or attribute is None:
        return None
    axes = [attribute.value] if isinstance(attribute.value, int) else list(attribute.value)
    if min(axes, default=0) >= 0:
        return None
    all_indices = node.outputs[0] if node.op_type == "Unsqueeze" else node.inputs[0]
    if all_indices is None or all_indices.shape is None:
        return "a negative axis and an unknown rank"
    axes = [axis % len(all_indices.shape) for axis in axes]
    is_one = isinstance(attribute.value, int)
    node.attributes[name] = ir.AttrInt64(name, axes[0]) if is_one else ir.AttrInt64s(name, axes)
    return None


def _input_to_attribute(node: ir.Node, name: str) -> bool:
    """Turn the second input, if any, into an attribute of ints; false if it is not constant."""
    given = _second_input(node)
    numbers = _constant_ints(given)
    if numbers is not None:
        node.attributes[name] = ir.AttrInt64s(name, numbers)
    elif given is not None:
        return False
    node.resize_inputs(1)
    return True


def _second_input(node: ir.Node) -> ir.Value | None:
    return node.inputs[1] if len(node.inputs) > 1 else None


def _constant_ints(value: ir.Value | None) -> list[int] | None:
    """The ints of a constant."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else [int(number) for number in np.ravel(tensor.numpy())]


def _constant_number(value: ir.Value | None, absent: float | None) -> float | None:
    """The number of a constant, None for other values; `absent` for an omitted input."""
    if value is None:
        return absent
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.size != 1 else float(tensor.numpy().reshape(-1)[0])


def _insert_before(node: ir.Node, op_type: str, inputs: list[ir.Value | None], **attributes: Any) -> ir.Value:
    """The output of a new node before `node`."""
    new = ir.node(op_type, inputs, attributes)
    assert node.graph is not None
    node.graph.insert_before(node, new)
    return new.outputs[0]


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

    Raises:
        UnsupportedError: a node cannot be expressed in this opset; the message has the oldest opset that works.

    >>> from onnx import parser
    >>> from onnxscript import ir
    >>> old = downgrade_opset(ir.from_proto(parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 18]>
    ...     size (float[2, 3] x) => (int64[1] n) { n = Shape <start = 1> (x) }''')), 9)
    >>> old.opset_imports, [node.op_type for node in old.graph]
    ({'': 9}, ['Shape', 'Constant', 'Gather'])
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
    name = f"{node.op_type}->{node.outputs[0].name}"
    if any(
        attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()
    ):
        return f"{name}, whose subgraph cannot be converted"
    new = onnx.defs.get_schema(node.op_type, newest, "")
    if _since(node.op_type, opset) != new.since_version:
        if MIN_OPSET.get(node.op_type, newest) > opset:
            return f"{name} as {node.op_type}-{new.since_version}"
        reason = REWRITES[node.op_type](node, opset) if node.op_type in REWRITES else None
        if reason:
            return f"{name} with {reason}"
    old = _since(node.op_type, opset)
    if old is None:
        return f"{name}, which came later"
    schema = onnx.defs.get_schema(node.op_type, old, "")
    reason = next(_missing_parts(node, new, schema), None)
    return None if reason is None else f"{name} with {reason}"


def _since(op_type: str, opset: int) -> int | None:
    """The version of the operator that the opset selects."""
    try:
        return int(onnx.defs.get_schema(op_type, opset, "").since_version)
    except onnx.defs.SchemaError:
        return None


def _missing_parts(node: ir.Node, new: Any, old: Any) -> Iterator[str]:
    """The parts of a node that the older version lacks, in words.

    Attributes that it lacks are removed from the node if they have their default.
    """
    for name in [name for name in node.attributes if name not in old.attributes]:
        default = new.attributes[name].default_value if name in new.attributes else None
        if default is not None and ir.from_proto(default).value == node.attributes[name].value:
            node.attributes.pop(name)
        else:
            yield f"attribute {name}"
    if not old.min_input <= len(node.inputs) <= old.max_input or len(node.outputs) > old.max_output:
        yield f"{len(node.inputs)} inputs and {len(node.outputs)} outputs"
    for at, value in enumerate(node.inputs):
        if value is not None and value.dtype is not None:
            kind = f"tensor({value.dtype.name.lower()})"
            if kind not in old.inputs[min(at, len(old.inputs) - 1)].types:
                yield f"an input of type {value.dtype.name.lower()}"
