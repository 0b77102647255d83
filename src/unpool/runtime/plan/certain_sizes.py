"""Chooses the inferred sizes that a partition states of its inputs; onnxruntime relies on them and checks them.

onnxruntime fuses an Add into a Conv only where it knows that both inputs have the same shape. But if inference got a
size wrong, onnxruntime would refuse a value that is right. So sizes are stated only where plain operators made them.
"""

import onnx

from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, reads, writes
from unpool.runtime.graph.shapes import Types

_PLAIN = {
    "Add",
    "BatchNormalization",
    "Clip",
    "Concat",
    "Conv",
    "Div",
    "Identity",
    "LeakyRelu",
    "Mul",
    "Relu",
    "Sigmoid",
    "Sub",
    "Tanh",
}
"""Operators whose sizes onnx infers as everybody computes them."""


def certain(graph: Graph, types: Types) -> Types:
    """The types with every size left open that is not certain, or not known.

    Args:
        graph: in topological order.
        types: what is known of the values.
    """
    sure = {*graph.constants, *graph.sparse_constants, *(value.name for value in graph.inputs)}
    for node in graph.nodes:
        if _is_plain(node) and sure.issuperset(reads(node)):
            sure.update(writes(node))
    return {name: _only_sizes(one) if name in sure else shapes.rank_only(one) for name, one in types.items()}


def _is_plain(node: onnx.NodeProto) -> bool:
    """Whether onnx's inference, or ours for our nodes, is right about it."""
    pads = attributes(node).get("auto_pad", b"NOTSET")
    return is_unpool_op(node) or (domain(node) == "" and node.op_type in _PLAIN and pads in (b"NOTSET", b""))


def _only_sizes(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type without names of sizes: values that share one are not checked for that."""
    known = shapes.static_dims(type_)
    return type_ if known is None else shapes.tensor_type(shapes.element(type_), known)
