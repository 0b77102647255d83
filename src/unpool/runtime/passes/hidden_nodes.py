"""Hides nodes from onnx's version converter: a placeholder of an unknown domain stands for each of them."""

from collections.abc import Callable

import onnx
from onnx import helper

from unpool.runtime.graph.nodes import with_subgraph_nodes

DOMAIN = "unpool.placeholder"
NUMBER = "number"


def hide(model: onnx.ModelProto, is_hidden: Callable[[onnx.NodeProto], bool]) -> list[onnx.NodeProto]:
    """Put a placeholder with the same inputs and outputs in the place of nodes, inside bodies too.

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


def restore(model: onnx.ModelProto, hidden: list[onnx.NodeProto]) -> None:
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
