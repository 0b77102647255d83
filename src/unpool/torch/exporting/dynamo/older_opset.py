"""Converts a model to an older opset, if each of its nodes can be expressed there.

onnx's own version converter does not go back for most operators whose later versions only added types, so that torch's
default exporter leaves such models at 18. It also leaves Softmax unchanged below 13, where its axis means another
thing. Here a node stays as it is if the older version has the same meaning, attributes, inputs and types; otherwise
`older_forms` rewrites it, or the model is refused.
"""

from collections.abc import Iterator
from typing import Any

import onnx
from onnxscript import ir

from unpool.errors import UnsupportedError
from unpool.torch.exporting.dynamo.older_forms import FORMS

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
"""Opset -> operators that from there on, up to 18, mean the same in every version that can hold a node.

Source: ONNX, Changelog.md.
"""

LOWEST = {name: opset for opset, names in SAME_FROM.items() for name in names.split()}


def in_opset(model: ir.Model, opset: int) -> ir.Model:
    """A copy of the model in the opset; the model itself if that is its opset.

    Args:
        model: as torch's default exporter gives it; not changed.
        opset: at least 9.

    Raises:
        UnsupportedError: a node cannot be expressed in this opset; the message has the oldest opset that works.

    Example:
        >>> from onnx import parser
        >>> from onnxscript import ir
        >>> old = in_opset(ir.from_proto(parser.parse_model('''
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
    older, reasons = _rewritten(model, opset)
    if reasons:
        lowest = next(at for at in range(opset + 1, newest + 1) if at == newest or not _rewritten(model, at)[1])
        raise UnsupportedError(
            f"export: expected nodes that opset {opset} has, got {reasons[0]}. "
            f"Export with opset_version={lowest}; dynamo=False may reach others."
        )
    return older


def _rewritten(model: ir.Model, opset: int) -> tuple[ir.Model, list[str]]:
    """A copy of the model in the opset, and for each node that cannot be expressed there the reason."""
    older = model.clone()
    ir.passes.common.InlinePass()(older)
    newest = older.opset_imports[""]
    reasons = [reason for node in tuple(older.graph) if (reason := _lower(node, newest, opset))]
    ir.passes.common.RemoveUnusedNodesPass()(older)
    older.opset_imports[""] = opset
    return older, reasons


def _lower(node: ir.Node, newest: int, opset: int) -> str | None:
    """Change a node to what it has to be in an older opset; returns the reason if there is no way."""
    if node.domain not in ("", "ai.onnx"):
        return None
    name = f"{node.op_type}->{node.outputs[0].name}"
    if any(
        attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()
    ):
        return f"{name}, whose subgraph cannot be converted"
    new = onnx.defs.get_schema(node.op_type, newest, "")
    if _since(node.op_type, opset) != new.since_version:
        if LOWEST.get(node.op_type, newest) > opset:
            return f"{name} as {node.op_type}-{new.since_version}"
        reason = FORMS[node.op_type](node, opset) if node.op_type in FORMS else None
        if reason:
            return f"{name} with {reason}"
    old = _since(node.op_type, opset)
    if old is None:
        return f"{name}, which came later"
    schema = onnx.defs.get_schema(node.op_type, old, "")
    reason = next(_misfits(node, new, schema), None)
    return None if reason is None else f"{name} with {reason}"


def _since(op_type: str, opset: int) -> int | None:
    """The version of the operator that the opset selects."""
    try:
        return int(onnx.defs.get_schema(op_type, opset, "").since_version)
    except onnx.defs.SchemaError:
        return None


def _misfits(node: ir.Node, new: Any, old: Any) -> Iterator[str]:
    """Whatever of a node its older version does not have, in words.

    Attributes that it does not have are removed from the node if they only state their default.
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
