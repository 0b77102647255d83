"""Nodes converted to another opset by onnx's version converter, except those of unpool's operators.

The converter would also adapt the three operators, and to onnx's schemas rather than to their contract. So placeholders
of an unknown domain stand for them while it runs. `lift_opset` brings models of opsets 1 to 6, which onnxruntime does
not run, to opset 7: opsets 1 to 7 select the same rows of the three operators, and some nodes are changed here, because
the converter has no adapter for them or puts their axes in the wrong place.
"""

import logging
from collections.abc import Collection, Mapping
from copy import deepcopy
from itertools import starmap

import onnx
from onnx import TensorProto, defs, helper, version_converter

from unpool.errors import UnsupportedError
from unpool.graph import shapes
from unpool.graph.graph import FIRST_IR_WITH_DEFAULTS, FreshNames, Graph, unused_names
from unpool.graph.nodes import attributes, is_unpool_op, node_name, reads, subgraphs, with_subgraph_nodes, writes
from unpool.graph.operators import OperatorFact, having
from unpool.graph.shape_inference import infer
from unpool.graph.shapes import Types
from unpool.graph.weights import as_input, is_large, restore_initializers, strip_initializers
from unpool.operators.semantics import Semantics
from unpool.passes.rewrite import set_items

PLACEHOLDERS = "unpool.placeholder"  # domain of the nodes that stand for hidden ones


def convert_opset(
    model: onnx.ModelProto, opset: int, types: Types, hidden_operators: Collection[str] = ()
) -> onnx.ModelProto:
    """A copy of the model in an opset of ONNX; nodes of unpool and of `hidden_operators` keep their attributes.

    The model has no functions, and ONNX's domain under its short name. Adapters of old operators need the shapes in
    `types`. An UnsupportedError names the node that cannot be converted.
    """
    skeleton = _with_types(model, types)
    hidden = _hide_nodes(skeleton, hidden_operators)
    try:
        converted = version_converter.convert_version(skeleton, opset)
    except Exception as error:
        raise _blame_node(skeleton, opset, types, error) from error
    _restore_nodes(converted, hidden)
    return _merge(model, converted, opset)


def update_ir_version(model: onnx.ModelProto) -> None:
    """Raise the IR version to the one that the imports need, and keep callers from feeding fixed initializers."""
    needed = helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    if needed <= model.ir_version:
        return
    if model.ir_version < FIRST_IR_WITH_DEFAULTS:
        constants = {tensor.name for tensor in model.graph.initializer}
        set_items(model.graph.input, (value for value in model.graph.input if value.name not in constants))
    model.ir_version = needed


def _with_types(model: onnx.ModelProto, types: Types) -> onnx.ModelProto:
    """The model without large and sparse tensors, and with every known type written into it."""
    skeleton = strip_initializers(model)
    skeleton.ir_version = max(skeleton.ir_version, FIRST_IR_WITH_DEFAULTS)  # so that an initializer need be no input
    graph = skeleton.graph
    for sparse in graph.sparse_initializer:
        graph.input.append(helper.make_tensor_value_info(sparse.values.name, sparse.values.data_type, sparse.dims))
    stated = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    del graph.sparse_initializer[:]
    new = [(name, type_) for name, type_ in types.items() if name not in stated]
    set_items(graph.value_info, starmap(helper.make_value_info, new))
    return skeleton


def _merge(model: onnx.ModelProto, converted: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with the nodes and small tensors of the converted one; everything else is as it was."""
    merged = deepcopy(model)
    for node in with_subgraph_nodes(converted.graph.node):
        for _, subgraph in subgraphs(node):  # the converter inferred sizes without unpool's operators
            del subgraph.value_info[:]
            for value in subgraph.output:
                value.type.CopyFrom(shapes.without_sizes(value.type))
    set_items(merged.graph.node, converted.graph.node)
    set_items(merged.graph.initializer, [*converted.graph.initializer, *filter(is_large, model.graph.initializer)])
    for entry in merged.opset_import:
        if entry.domain == "":
            entry.version = opset
    return merged


def _blame_node(skeleton: onnx.ModelProto, opset: int, types: Types, error: Exception) -> UnsupportedError:
    """The error of the first node that cannot be converted alone; if all can, the error of the whole model."""
    where = "model"
    for node in skeleton.graph.node:
        if node.domain == "":
            try:
                version_converter.convert_version(_single_node_model(skeleton, node, types), opset)
            except Exception as own:
                where, error = f"node {node_name(node)!r} ({node.op_type})", own
                break
    reason = str(error).rsplit("failed: ", 1)[-1].strip().rstrip(".")
    return UnsupportedError(
        f"{where}: onnx's version converter cannot take it to opset {opset}: {reason}. Replace it, or export the model "
        "again in that opset."
    )


def _single_node_model(skeleton: onnx.ModelProto, node: onnx.NodeProto, types: Types) -> onnx.ModelProto:
    names = reads(node)
    small = [tensor for tensor in skeleton.graph.initializer if tensor.name in names]
    known: Mapping[str, onnx.TypeProto] = types | {tensor.name: as_input(tensor).type for tensor in small}
    open_type = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    inputs, outputs = (
        [helper.make_value_info(name, known.get(name, open_type)) for name in part] for part in (names, writes(node))
    )
    graph = helper.make_graph([node], "node", inputs, outputs, small)
    return helper.make_model(graph, opset_imports=skeleton.opset_import, ir_version=skeleton.ir_version)


def _hide_nodes(model: onnx.ModelProto, operators: Collection[str]) -> list[onnx.NodeProto]:
    """Replace nodes, inside subgraphs too, by placeholders with the same inputs and outputs; returns the nodes."""
    hidden: list[onnx.NodeProto] = []
    for node in with_subgraph_nodes(model.graph.node):
        if is_unpool_op(node) or (node.domain == "" and node.op_type in operators):
            hidden.append(deepcopy(node))
            node.domain, node.op_type = PLACEHOLDERS, "Placeholder"
            set_items(node.attribute, [helper.make_attribute("number", len(hidden) - 1)])
    if hidden:
        model.opset_import.append(helper.make_opsetid(PLACEHOLDERS, 1))
    return hidden


def _restore_nodes(model: onnx.ModelProto, hidden: list[onnx.NodeProto]) -> None:
    """Restore hidden nodes, with the inputs and outputs that their placeholders have now."""
    for node in with_subgraph_nodes(model.graph.node):
        if node.domain == PLACEHOLDERS:
            original = hidden[node.attribute[0].i]
            node.domain, node.op_type = original.domain, original.op_type
            set_items(node.attribute, original.attribute)
    set_items(model.opset_import, (entry for entry in model.opset_import if entry.domain != PLACEHOLDERS))


TARGET = 7
LAST_WITH_AXIS = 6  # the last opset in which an attribute says where the axes of an operand are
COMPARING = ("And", "Or", "Xor", "Equal", "Greater", "Less")
ALIGNED = having(OperatorFact.ALIGNED)
TRAINING = ("BatchNormalization", "Dropout")  # trains unless is_test is 1
RENAMED = {"Pad": ("paddings", "pads")}
PREPARED = ("Cast", *RENAMED, *COMPARING)  # changed by `_prepare`, or by `_align` for lack of an adapter

_LOG = logging.getLogger("unpool")


def lift_opset(model: onnx.ModelProto, semantics: Semantics) -> onnx.ModelProto:
    """The model in opset 7 if it is in an older one and has nodes of other operators; otherwise the model itself.

    It is valid and without functions, with ONNX's domain under its short name. An UnsupportedError names the node that
    cannot be lifted.
    """
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), TARGET)
    if opset >= TARGET or all(map(is_unpool_op, with_subgraph_nodes(model.graph.node))):
        return model
    _LOG.info("nodes of opset %d are lifted to opset %d; MaxPool and ConvTranspose stay", opset, TARGET)
    skeleton = strip_initializers(model)
    _prepare(skeleton.graph, opset)
    skeleton = convert_opset(skeleton, LAST_WITH_AXIS, {}, PREPARED)
    types = infer(Graph.from_model(skeleton), semantics).types
    _align(skeleton.graph, types, unused_names(skeleton.graph))
    types = infer(Graph.from_model(skeleton), semantics).types
    return restore_initializers(convert_opset(skeleton, TARGET, types, (*PREPARED, *ALIGNED)), model)


def _prepare(subgraph: onnx.GraphProto, opset: int) -> None:
    """Lift Cast and Pad, and write out defaults that are others later, in subgraphs too; refuse nodes that train."""
    for node in with_subgraph_nodes(subgraph.node):
        if node.domain != "":
            continue
        if node.op_type in TRAINING and attributes(node).get("is_test", 0) == 0:
            raise UnsupportedError(
                f"{node.op_type} node {node_name(node)!r}: expected is_test = 1, got 0, its default: it trains. "
                "Export the model for inference."
            )
        _write_defaults(node, opset)
        before, after = RENAMED.get(node.op_type, ("", ""))
        for attribute in node.attribute:
            if attribute.name == before:
                attribute.name = after
            elif node.op_type == "Cast" and attribute.type == onnx.AttributeProto.STRING:
                number = TensorProto.DataType.Value(attribute.s.decode().upper())
                attribute.CopyFrom(helper.make_attribute(attribute.name, number))


def _write_defaults(node: onnx.NodeProto, opset: int) -> None:
    given = {attribute.name for attribute in node.attribute}
    try:
        old, new = (defs.get_schema(node.op_type, version, "").attributes for version in (opset, TARGET))
    except defs.SchemaError:
        return
    for name, attribute in old.items():
        default = attribute.default_value
        if name not in given and default.name and name in new and new[name].default_value != default:
            node.attribute.append(default)


def _align(subgraph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto], names: FreshNames) -> None:
    """Broadcast as NumPy does: operands get the axes of size 1 that `axis` or the channels of PRelu stand for."""
    nodes = list(subgraph.node)
    del subgraph.node[:]
    for node in nodes:
        if node.domain == "" and node.op_type in ALIGNED:
            missing = _missing_axes(node, types)
            old = ("axis", "broadcast", "consumed_inputs")
            set_items(node.attribute, (entry for entry in node.attribute if entry.name not in old))
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
    """Number of axes of size 1 that the second operand lacks at its end; an error if a rank is unknown."""
    given = attributes(node)
    axis = 1 if node.op_type == "PRelu" else given.get("axis") if given.get("broadcast", 0) else None
    if axis is None:
        return 0
    first, second = (shapes.dims(types.get(name)) for name in node.input)
    if first is None or second is None:
        raise UnsupportedError(
            f"{node.op_type} node {node_name(node)!r}: its axis needs the rank of {node.input[first is not None]!r}, "
            f"which is unknown. Convert the model to opset {TARGET} or newer."
        )
    if (node.op_type == "PRelu" and len(second) != 1) or second == (1,) * len(second):
        return 0
    return len(first) - (axis if axis >= 0 else axis + len(first)) - len(second)
