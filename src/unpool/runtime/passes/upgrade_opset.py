"""Nodes converted to another opset by onnx's version converter, except those of unpool's operators.

The converter would also adapt the three operators, and to onnx's schemas rather than to their contract. So placeholders
of an unknown domain stand for them while it runs.
"""

from collections.abc import Callable, Mapping

import onnx
from onnx import TensorProto, helper, version_converter

from unpool.errors import UnsupportedError
from unpool.runtime.graph import shapes
from unpool.runtime.graph.nodes import is_unpool_op, node_name, reads, subgraphs, with_subgraph_nodes
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import as_input, is_large, strip_initializers

FIRST_IR_WITH_DEFAULTS = 4


def convert_opset(
    model: onnx.ModelProto, opset: int, types: Types, is_hidden: Callable[[onnx.NodeProto], bool] = is_unpool_op
) -> onnx.ModelProto:
    """A copy of the model with its other nodes in an opset of ONNX; nodes of unpool keep their attributes.

    Args:
        model: without functions, ONNX's domain under its short name.
        opset: to be reached.
        types: what is known of the values; adapters of old operators need shapes.
        is_hidden: which nodes stay as they are; ours at least.

    Raises:
        UnsupportedError: a node cannot be converted; the message names it.
    """
    skeleton = _with_types(model, types)
    hidden = hide_nodes(skeleton, is_hidden)
    try:
        converted = version_converter.convert_version(skeleton, opset)
    except Exception as error:
        raise _blame_node(skeleton, opset, types, error) from error
    restore_nodes(converted, hidden)
    return _merge(model, converted, opset)


def update_ir_version(model: onnx.ModelProto) -> None:
    """Raise the IR version to the one that the imports need, and keep callers from feeding fixed initializers."""
    needed = helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    if needed <= model.ir_version:
        return
    if model.ir_version < FIRST_IR_WITH_DEFAULTS:
        constants = {tensor.name for tensor in model.graph.initializer}
        kept = [value for value in model.graph.input if value.name not in constants]
        del model.graph.input[:]
        model.graph.input.extend(kept)
    model.ir_version = needed


def _with_types(model: onnx.ModelProto, types: Types) -> onnx.ModelProto:
    """The model without large and sparse tensors, and with every known type written into it."""
    skeleton = strip_initializers(model)
    skeleton.ir_version = max(skeleton.ir_version, FIRST_IR_WITH_DEFAULTS)  # so that an initializer need be no input
    graph = skeleton.graph
    for sparse in graph.sparse_initializer:
        graph.input.append(helper.make_tensor_value_info(sparse.values.name, sparse.values.data_type, sparse.dims))
    del graph.sparse_initializer[:]
    stated = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    del graph.value_info[:]
    graph.value_info.extend(helper.make_value_info(name, one) for name, one in types.items() if name not in stated)
    return skeleton


def _merge(model: onnx.ModelProto, converted: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with the nodes and small tensors of the converted one; everything else is as it was."""
    merged = onnx.ModelProto()
    merged.CopyFrom(model)
    for node in with_subgraph_nodes(converted.graph.node):
        for _, subgraph in subgraphs(node):
            _forget_sizes(subgraph)
    large = [tensor for tensor in model.graph.initializer if is_large(tensor)]
    del merged.graph.node[:], merged.graph.initializer[:]
    merged.graph.node.extend(converted.graph.node)
    merged.graph.initializer.extend([*converted.graph.initializer, *large])
    for one in merged.opset_import:
        if one.domain == "":
            one.version = opset
    return merged


def _forget_sizes(subgraph: onnx.GraphProto) -> None:
    """Leave the outputs of a subgraph type and rank: the converter inferred sizes without unpool's operators."""
    del subgraph.value_info[:]
    for value in subgraph.output:
        value.type.CopyFrom(shapes.rank_only(value.type))


def _blame_node(skeleton: onnx.ModelProto, opset: int, types: Types, error: Exception) -> UnsupportedError:
    """The error of the first node that cannot be converted alone; if all can, the error of the whole model."""
    for node in skeleton.graph.node:
        if node.domain == "":
            try:
                version_converter.convert_version(_single_node_model(skeleton, node, types), opset)
            except Exception as own:
                return _unsupported(f"node {node_name(node)!r} ({node.op_type})", opset, own)
    return _unsupported("model", opset, error)


def _single_node_model(skeleton: onnx.ModelProto, node: onnx.NodeProto, types: Types) -> onnx.ModelProto:
    names = reads(node)
    small = [tensor for tensor in skeleton.graph.initializer if tensor.name in names]
    known: Mapping[str, onnx.TypeProto] = types | {tensor.name: as_input(tensor).type for tensor in small}
    open_type = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    inputs = [helper.make_value_info(name, known.get(name, open_type)) for name in names]
    outputs = [helper.make_value_info(name, known.get(name, open_type)) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs, small)
    return helper.make_model(graph, opset_imports=skeleton.opset_import, ir_version=skeleton.ir_version)


def _unsupported(where: str, opset: int, error: Exception) -> UnsupportedError:
    reason = str(error).rsplit("failed: ", 1)[-1].strip().rstrip(".")
    return UnsupportedError(
        f"{where}: onnx's version converter cannot take it to opset {opset}: {reason}. Replace it, or export the model "
        "anew in that opset."
    )


DOMAIN = "unpool.placeholder"
NUMBER = "number"


def hide_nodes(model: onnx.ModelProto, is_hidden: Callable[[onnx.NodeProto], bool]) -> list[onnx.NodeProto]:
    """Put a placeholder with the same inputs and outputs in the place of nodes, inside subgraphs too.

    Args:
        model: is changed.
        is_hidden: which nodes.

    Returns:
        the nodes as they were, for `restore`.
    """
    hidden: list[onnx.NodeProto] = []
    for node in with_subgraph_nodes(model.graph.node):
        if is_hidden(node):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            node.domain, node.op_type = DOMAIN, "Placeholder"
            del node.attribute[:]
            node.attribute.append(helper.make_attribute(NUMBER, len(hidden)))
            hidden.append(copy)
    if hidden:
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return hidden


def restore_nodes(model: onnx.ModelProto, hidden: list[onnx.NodeProto]) -> None:
    """Put the hidden nodes back, with the inputs and outputs that their placeholders have now; the model is changed."""
    for node in with_subgraph_nodes(model.graph.node):
        if node.domain == DOMAIN:
            original = hidden[node.attribute[0].i]
            node.domain, node.op_type = original.domain, original.op_type
            del node.attribute[:]
            node.attribute.extend(original.attribute)
    kept = [one for one in model.opset_import if one.domain != DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)
