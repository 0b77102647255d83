"""Models of opsets 1 to 6, which onnxruntime does not run, brought to opset 7.

unpool's nodes keep their version: opsets 1 to 7 select the same rows of the three operators. onnx's version converter
does the rest, except for nodes that it has no adapter for, or whose axes it puts in the wrong place.
"""

import logging
from collections.abc import Mapping

import onnx
from onnx import TensorProto, defs, helper

from unpool.errors import UnsupportedError
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import FreshNames, Graph, unused_names_in_proto
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, node_name, subgraphs, with_subgraph_nodes
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import infer
from unpool.runtime.graph.weights import restore_initializers, strip_initializers
from unpool.runtime.passes.upgrade_opset import convert_opset

TARGET = 7
COMPARING = ("And", "Or", "Xor", "Equal", "Greater", "Less")
ALIGNED = ("Add", "Sub", "Mul", "Div", "Pow", "PRelu", *COMPARING)
TRAINING = ("BatchNormalization", "Dropout")  # trains unless is_test is 1
RENAMED = {"Pad": ("paddings", "pads")}


def is_prepared(node: onnx.NodeProto) -> bool:
    """True if the converter must not touch the node on the way to opset 6.

    Either it is ours, or `prepare` has changed it, or the converter has no adapter for it and `align` changes it later.
    """
    return is_unpool_op(node) or (domain(node) == "" and node.op_type in ("Cast", *RENAMED, *COMPARING))


def is_aligned(node: onnx.NodeProto) -> bool:
    """True if the converter must not touch the node on the way to opset 7: it is ours, or changed here already."""
    return is_prepared(node) or (domain(node) == "" and node.op_type in ALIGNED)


def prepare(subgraph: onnx.GraphProto, opset: int) -> None:
    """Lift Cast and Pad, and write out defaults that are others later; the graph is changed, its subgraphs too.

    Raises:
        UnsupportedError: a node that trains.
    """
    for node in subgraph.node:
        if domain(node) == "":
            _require_inference(node)
            _write_defaults(node, opset)
            for one in node.attribute:
                _modernise(node, one)
        for _, inner in subgraphs(node):
            prepare(inner, opset)


def align(graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """Broadcast as NumPy does: operands get the axes of size 1 that `axis` or the channels of PRelu stand for.

    Args:
        graph: is changed, and so are its subgraphs.
        types: what is known of the values.

    Raises:
        UnsupportedError: the rank of an operand is unknown.
    """
    _align(graph, types, unused_names_in_proto(graph))


def _align(subgraph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto], names: FreshNames) -> None:
    nodes = list(subgraph.node)
    del subgraph.node[:]
    for node in nodes:
        if domain(node) == "" and node.op_type in ALIGNED:
            missing = _missing_axes(node, types)
            kept = [one for one in node.attribute if one.name not in ("axis", "broadcast", "consumed_inputs")]
            del node.attribute[:]
            node.attribute.extend(kept)
            if missing:
                name = names.fresh(f"unpool.aligned.{node.output[0]}")
                rank = len(shapes.dims(types[node.input[1]]) or ())
                axes = list(range(rank, rank + missing))
                subgraph.node.append(helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes))
                node.input[1] = name
        for _, inner in subgraphs(node):
            _align(inner, types, names)
        subgraph.node.append(node)


def _missing_axes(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> int:
    """Number of axes of size 1 that the second operand lacks at its end."""
    given = attributes(node)
    if node.op_type == "PRelu":
        axis = 1
    elif given.get("broadcast", 0) and "axis" in given:
        axis = given["axis"]
    else:
        return 0
    first, second = (shapes.dims(types.get(name)) for name in node.input)
    if first is None or second is None:
        raise UnsupportedError(
            f"{node.op_type} node {node_name(node)!r}: expected operands of known rank, which its axis needs, got "
            f"{node.input[0 if first is None else 1]!r} of unknown rank. Convert the model to opset {TARGET} or newer."
        )
    if (node.op_type == "PRelu" and len(second) != 1) or second == (1,) * len(second):
        return 0
    return len(first) - (axis if axis >= 0 else axis + len(first)) - len(second)


def _require_inference(node: onnx.NodeProto) -> None:
    if node.op_type in TRAINING and attributes(node).get("is_test", 0) == 0:
        raise UnsupportedError(
            f"{node.op_type} node {node_name(node)!r}: expected is_test = 1, got 0, its default: it trains. "
            "Export the model for inference."
        )


def _write_defaults(node: onnx.NodeProto, opset: int) -> None:
    given = {one.name for one in node.attribute}
    try:
        old, new = (defs.get_schema(node.op_type, version, "").attributes for version in (opset, TARGET))
    except defs.SchemaError:
        return
    for name, attribute in old.items():
        later = new.get(name)
        default = attribute.default_value
        if name not in given and default.name and later is not None and later.default_value != default:
            node.attribute.append(default)


def _modernise(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    before, after = RENAMED.get(node.op_type, ("", ""))
    if attribute.name == before:
        attribute.name = after
    elif node.op_type == "Cast" and attribute.type == onnx.AttributeProto.STRING:
        number = TensorProto.DataType.Value(attribute.s.decode().upper())
        attribute.CopyFrom(helper.make_attribute(attribute.name, number))


LAST_WITH_AXIS = 6  # the last opset in which an attribute says where the axes of an operand are

_LOG = logging.getLogger("unpool")


def lift_opset(model: onnx.ModelProto, semantics: Semantics) -> onnx.ModelProto:
    """The model in opset 7 if it is in an older one and has nodes that are not ours; else the model itself.

    Args:
        model: valid, without functions, ONNX's domain under its short name.
        semantics: of nodes of unpool, for the shapes of what they make.

    Raises:
        UnsupportedError: a node that cannot be lifted, and the message names it.
    """
    opset = next((one.version for one in model.opset_import if one.domain == ""), TARGET)
    if opset >= TARGET or all(map(is_unpool_op, with_subgraph_nodes(model.graph.node))):
        return model
    _LOG.info("nodes of opset %d are lifted to opset %d; MaxPool and ConvTranspose stay", opset, TARGET)
    skeleton = strip_initializers(model)
    prepare(skeleton.graph, opset)
    skeleton = convert_opset(skeleton, LAST_WITH_AXIS, {}, is_prepared)
    align(skeleton.graph, infer(Graph.from_model(skeleton), semantics).types)
    skeleton = convert_opset(skeleton, TARGET, infer(Graph.from_model(skeleton), semantics).types, is_aligned)
    return restore_initializers(skeleton, model)
