"""A Softmax over an axis far from the last becomes its formula, which onnxruntime computes faster.

    y = e / sum(e), e = exp(x - max(x))

onnxruntime transposes such an x, so that the axis is the last, and transposes y back: for classes of a picture, (1, 64,
256, 256), this takes 120 ms, and the five nodes of the formula, which read x as it lies, take 10. Both round each step
once; sums are in another order.
"""

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph, unused_names
from unpool.runtime.graph.nodes import attributes, domain, node_name
from unpool.runtime.graph.shapes import Types

FIRST_OPSET = 13  # before it, a Softmax took all axes from its own on together
FIRST_MAX_WITH_INPUT = 18  # before it, ReduceMax had its axes as an attribute, as ReduceSum had before 13
LEAST_INNER = 1024  # elements of the axes after the Softmax's: for a few the formula's loops are too short


def split_softmax(graph: Graph, types: Types, excluded: Collection[str] = ()) -> Graph:
    """The graph in which such a Softmax of float32 is five nodes; `origins` lists the last of them.

    One that makes one of the `excluded` values stays, and one of unknown sizes.
    """
    opset = graph.opsets.get("", 0)
    positions = [n for n, node in enumerate(graph.nodes) if node.op_type == "Softmax" and domain(node) == ""]
    if opset < FIRST_OPSET or not positions:
        return graph
    names, nodes = unused_names(graph), {n: [node] for n, node in enumerate(graph.nodes)}
    constants, origins = dict(graph.constants), dict(graph.origins)
    for position in positions:
        node = graph.nodes[position]
        (x, y), axis = (node.input[0], node.output[0]), _axis(node, types)
        if axis is None or y in excluded:
            continue
        axes, top, low, e, total = (names.fresh(f"{y}_{part}") for part in ("axes", "max", "shifted", "exp", "sum"))
        constants[axes] = numpy_helper.from_array(np.array([axis]), axes)
        name = node_name(node)
        if opset < FIRST_MAX_WITH_INPUT:
            highest = helper.make_node("ReduceMax", [x], [top], f"{name}_max", axes=[axis])
        else:
            highest = helper.make_node("ReduceMax", [x, axes], [top], f"{name}_max")
        nodes[position] = [
            highest,
            helper.make_node("Sub", [x, top], [low], f"{name}_shifted"),
            helper.make_node("Exp", [low], [e], f"{name}_exp"),
            helper.make_node("ReduceSum", [e, axes], [total], f"{name}_sum"),
            helper.make_node("Div", [e, total], [y], name),
        ]
        origins[y] = "Softmax as its formula: faster so"
    in_order = tuple(node for group in nodes.values() for node in group)
    return replace(graph, nodes=in_order, constants=constants, origins=origins)


def _axis(node: onnx.NodeProto, types: Types) -> int | None:
    """The axis of a Softmax that is faster as its formula; None for any other."""
    x = types.get(node.input[0])
    sizes = shapes.static_dims(x)
    if sizes is None or shapes.dtype(x) != np.float32:
        return None
    axis = attributes(node).get("axis", -1) % len(sizes) if sizes else 0
    inner = [size for size in sizes[axis + 1 :] if size is not None]
    is_known = len(inner) == len(sizes) - axis - 1
    return axis if is_known and math.prod(inner) >= LEAST_INNER and inner else None
