"""What passes fuse, as nodes of the domain `unpool` with attributes and inputs of their own.

The passes keep what they have fused in tables of the graph, by the first output of a node, and the node itself is some
node of the standard. Here both become one node, which a checker, a report and any session can read.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.execute.normalization import Normalization
from unpool.execute.snake import Snake
from unpool.operators.attributes import Activation
from unpool.operators.unpool_domain import DOMAIN, VERSION
from unpool.runtime.graph.graph import Graph, unused_names


def with_own_nodes(graph: Graph) -> Graph:
    """The graph without tables of computations and activations: nodes of the domain unpool hold what these said."""
    if not graph.computations and not graph.activations:
        return graph
    constants, names = dict(graph.constants), unused_names(graph)

    def constant(array: Any, wish: str) -> str:
        name = names.fresh(wish)
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def own_node(node: onnx.NodeProto) -> onnx.NodeProto:
        output = next(iter(node.output), "")
        computation, activation = graph.computations.get(output), graph.activations.get(output)
        if computation is None and activation is None:
            return node
        if isinstance(computation, Snake):
            x, *residual = node.input
            inputs = [x, constant(computation.factors, f"{output}_factors"), *residual]
            return helper.make_node("Snake", inputs, node.output, node.name, domain=DOMAIN)
        if isinstance(computation, Normalization):
            x, *residual = node.input
            scale, shift = computation.scale, computation.shift
            inputs = [x, constant(scale, f"{output}_scale"), constant(shift, f"{output}_shift"), *residual]
            given: dict[str, Any] = {"epsilon": computation.epsilon, **_attributes(computation.activation)}
            is_instance = computation.groups == scale.size
            operator = "InstanceNormalization" if is_instance else "GroupNormalization"
            given |= {} if is_instance else {"num_groups": computation.groups}
            return helper.make_node(operator, inputs, node.output, node.name, domain=DOMAIN, **given)
        own = onnx.NodeProto()
        own.CopyFrom(node)
        own.domain = DOMAIN
        for name, value in {"opset": graph.opsets[""], **_attributes(activation)}.items():
            own.attribute.append(helper.make_attribute(name, value))
        return own

    nodes = tuple(map(own_node, graph.nodes))
    opsets = {**graph.opsets, DOMAIN: VERSION}
    return replace(graph, nodes=nodes, constants=constants, opsets=opsets, computations={}, activations={})


def _attributes(activation: Activation | None) -> dict[str, Any]:
    if activation is None:
        return {}
    params = {"activation_params": list(activation.params)} if activation.params else {}
    return {"activation": activation.name, **params}
