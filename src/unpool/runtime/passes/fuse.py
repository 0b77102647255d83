"""An activation behind a ConvTranspose becomes part of its step.

    Relu(conv(x, W) + b)  is one step of the plan, not two

Once the graph is cut, onnxruntime could only run the activation in a partition of its own: one more pass over memory.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.operators.activation import PARAMETERS, Activation
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import attributes, domain, node_name
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.fold import FIRST_OPSET

FIRST_CLIP_WITH_INPUTS = 11
DEFAULTS = {"LeakyRelu": {"alpha": 0.01}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5}}


def fuse(graph: Graph, types: Types) -> Graph:
    """The graph without the activations that a ConvTranspose applies itself; `activations` says which ones.

    Only float32 and float64: a shorter type would be rounded once where the model rounds twice.
    """
    if graph.opsets.get("", 0) < FIRST_OPSET:
        return graph
    single = {name for name, count in graph.uses().items() if count == 1} - set(graph.output_names)
    floats = {name for name in single if shapes.dtype(types.get(name)) in (np.float32, np.float64)}
    nodes: list[onnx.NodeProto] = []
    makers: dict[str, int] = {}
    folded, found, origins = dict(graph.folded_nodes), dict(graph.activations), dict(graph.origins)
    for node in graph.nodes:
        source, name = next(iter(node.input), ""), next(iter(node.output), "")
        activation = _activation(node, graph) if source in makers else None
        if activation is not None:
            nodes[makers[source]] = _with_output(nodes[makers[source]], name)
            folded[name] = (*folded.pop(source, ()), node_name(node))
            found[name] = activation
            if source in origins:
                origins[name] = origins.pop(source)
            continue
        if node.op_type == "ConvTranspose" and domain(node) == "" and name in floats:
            makers[name] = len(nodes)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), folded_nodes=folded, activations=found, origins=origins)


def _with_output(node: onnx.NodeProto, name: str) -> onnx.NodeProto:
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.output[0] = name
    return changed


def _activation(node: onnx.NodeProto, graph: Graph) -> Activation | None:
    """Activation of the node; None for any other node, or bounds that are not constant."""
    if domain(node) != "" or node.op_type not in PARAMETERS:
        return None
    given = DEFAULTS.get(node.op_type, {}) | attributes(node)
    if node.op_type == "Clip" and graph.opsets[""] >= FIRST_CLIP_WITH_INPUTS:
        given = _bounds(node, graph.constants)
    if not all(name in given for name in PARAMETERS[node.op_type]):
        return None
    return Activation(node.op_type, tuple(float(given[name]) for name in PARAMETERS[node.op_type]))


def _bounds(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> dict[str, float]:
    known = {word: constants.get(name) for word, name in zip(("min", "max"), node.input[1:], strict=False)}
    return {word: numpy_helper.to_array(tensor).item() for word, tensor in known.items() if tensor is not None}
