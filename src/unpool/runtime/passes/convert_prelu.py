"""A PRelu with one constant slope becomes a LeakyRelu, which gives the same bits.

onnxruntime computes LeakyRelu in vectors and together with a Conv before it, PRelu by its general broadcasting; unpool
fuses a LeakyRelu into the step before it.
"""

from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from unpool.runtime.graph.graph import Graph, constant_array
from unpool.runtime.graph.nodes import domain, node_name


def convert_prelu(graph: Graph) -> Graph:
    """The graph, constants lifted, without PRelu nodes whose slope is one float32 number, of any rank."""
    nodes, origins = list(graph.nodes), dict(graph.origins)
    for position, node in enumerate(nodes):
        slope = constant_array(graph, node.input[1]) if _is_prelu(node) else None
        if slope is not None and slope.size == 1 and slope.dtype == np.float32:
            nodes[position] = helper.make_node(
                "LeakyRelu", node.input[:1], node.output, node_name(node), alpha=float(slope.item())
            )
            origins[node.output[0]] = "converted from PRelu: the same with one slope"
    return replace(graph, nodes=tuple(nodes), origins=origins)


def _is_prelu(node: onnx.NodeProto) -> bool:
    return node.op_type == "PRelu" and domain(node) == ""
