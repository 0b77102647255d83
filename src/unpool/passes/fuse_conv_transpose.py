"""Fuses a ConvTranspose and the activation after it, as onnxruntime does for a Conv.

Relu(conv(x, W) + b) is one node of unpool's domain, which saves a pass over memory. The result has onnxruntime's bits.
"""

import math
from collections.abc import Container
from copy import deepcopy
from dataclasses import replace
from itertools import starmap
from typing import Any

import numpy as np
import onnx
from onnx import helper

from unpool.graph import shapes
from unpool.graph.graph import Graph
from unpool.graph.nodes import attributes, domain, node_name
from unpool.graph.shapes import Types
from unpool.graph.weights import array_of
from unpool.operators.attributes import ACTIVATION_PARAMS, Activation
from unpool.operators.unpool_domain import DOMAIN, VERSION

FIRST_CLIP_WITH_INPUTS = 11
ACTIVATIONS = ("Relu", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish")
"""Those that a ConvTranspose takes; a Tanh or Sigmoid is faster as a node of onnxruntime."""
DEFAULTS = {"LeakyRelu": {"alpha": 0.01}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5}}


def fuse_conv_transpose(graph: Graph, types: Types, outputs: Container[str]) -> Graph:
    """The graph in which ConvTransposes that make these outputs are nodes of unpool's domain with their activations.

    Only float32 and float64: a shorter type would be rounded once where the model rounds twice.
    """
    floats = {name for name in graph.single if shapes.dtype(types.get(name)) in (np.float32, np.float64)}
    nodes: list[onnx.NodeProto] = []
    positions: dict[str, int] = {}  # of the ConvTranspose that makes a value
    folded, origins = dict(graph.folded_nodes), dict(graph.origins)
    for node in graph.nodes:
        source = next(iter(node.input), "")
        activation = node_activation(node, graph) if source in floats and source in positions else None
        if activation is None:
            if node.op_type == "ConvTranspose" and domain(node) == "" and node.output[0] in outputs:
                positions[node.output[0]] = len(nodes)
            nodes.append(node)
            continue
        nodes[positions[source]] = conv = deepcopy(nodes[positions[source]])
        conv.domain, conv.output[0] = DOMAIN, node.output[0]
        given = {"opset": graph.opsets[""], **activation_attributes(activation)}
        conv.attribute.extend(starmap(helper.make_attribute, given.items()))
        folded[conv.output[0]] = (*folded.pop(source, ()), node_name(node))
        if source in origins:
            origins[conv.output[0]] = origins.pop(source)
    if len(nodes) == len(graph.nodes):
        return graph
    opsets = {**graph.opsets, DOMAIN: VERSION}
    return replace(graph, nodes=tuple(nodes), folded_nodes=folded, origins=origins, opsets=opsets)


def activation_attributes(activation: Activation) -> dict[str, Any]:
    """The attributes of a node of unpool's domain that ends with an activation."""
    params = {"activation_params": list(activation.params)} if activation.params else {}
    return {"activation": activation.name, **params}


def node_activation(node: onnx.NodeProto, graph: Graph) -> Activation | None:
    """The activation that a node is; None for any other node, or bounds that are not constant, or no numbers."""
    if domain(node) != "" or node.op_type not in ACTIVATIONS:
        return None
    given = DEFAULTS.get(node.op_type, {}) | attributes(node)
    if node.op_type == "Clip" and graph.opsets[""] >= FIRST_CLIP_WITH_INPUTS:
        bounds = zip(("min", "max"), node.input[1:], strict=False)
        given = {word: array_of(graph.constants[name]).item() for word, name in bounds if name in graph.constants}
    if not all(name in given for name in ACTIVATION_PARAMS[node.op_type]):
        return None
    params = tuple(float(given[name]) for name in ACTIVATION_PARAMS[node.op_type])
    return None if any(map(math.isnan, params)) else Activation(node.op_type, params)
