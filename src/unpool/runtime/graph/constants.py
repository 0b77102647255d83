"""Moves the values of Constant nodes among the constants of the graph, and drops nodes that no output needs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.runtime.graph.nodes import attributes, domain, reads, writes
from unpool.runtime.graph.record import Graph
from unpool.runtime.graph.weight_files import array_of
from unpool.runtime.graph.without_weights import LARGE, is_large

DEEPEST = 16
"""Nodes that are followed back from a value to the constants that it is made of."""

_MOVES = ("Cast", "Concat", "ConstantOfShape", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")

_AS_ARRAY: Mapping[str, Callable[[Any], Any]] = {
    "value_float": lambda value: np.array(value, np.float32),
    "value_floats": lambda value: np.array(value, np.float32),
    "value_int": lambda value: np.array(value, np.int64),
    "value_ints": lambda value: np.array(value, np.int64),
    "value_string": lambda value: np.array(value, object),
    "value_strings": lambda value: np.array(value, object),
}


def lift_constants(graph: Graph) -> Graph:
    """The graph without Constant nodes, and without Identity nodes of constants: their values are constants instead."""
    constants, sparse = dict(graph.constants), dict(graph.sparse_constants)
    nodes = []
    for node in graph.nodes:
        if domain(node) == "" and node.op_type == "Constant":
            _store(node, constants, sparse)
        elif domain(node) == "" and node.op_type == "Identity" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), constants=constants, sparse_constants=sparse)


def prune(graph: Graph) -> Graph:
    """The graph without the nodes and constants that no output needs."""
    needed = set(graph.output_names)
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.nodes):
        if needed.intersection(writes(node)):
            kept.append(node)
            needed.update(reads(node))
    return replace(
        graph,
        nodes=tuple(reversed(kept)),
        constants={name: tensor for name, tensor in graph.constants.items() if name in needed},
        sparse_constants={name: tensor for name, tensor in graph.sparse_constants.items() if name in needed},
    )


def constant_array(graph: Graph, name: str) -> AnyArray | None:
    """The small array that a value is in every run; None if it is large, or if that is not known.

    It is a constant, or made of constants by nodes that move or convert numbers: torch's exporter behind dynamo=False
    writes the pads of a Pad with seven of them.
    """
    makers = {output: node for node in graph.nodes for output in writes(node)}
    return _constant_array(graph, makers, name, DEEPEST)


def _constant_array(graph: Graph, makers: Mapping[str, onnx.NodeProto], name: str, depth: int) -> AnyArray | None:
    tensor, node = graph.constants.get(name), makers.get(name)
    if tensor is not None:
        return None if is_large(tensor) else array_of(tensor)
    if node is None or domain(node) or node.op_type not in _MOVES or not depth:
        return None
    feed = {one: _constant_array(graph, makers, one, depth - 1) for one in filter(None, node.input)}
    known = {one: array for one, array in feed.items() if array is not None}
    is_large_one = node.op_type == "ConstantOfShape" and any(array.prod() > LARGE for array in known.values())
    if len(known) < len(feed) or is_large_one:
        return None
    return evaluated(graph, node, known)


def evaluated(graph: Graph, node: onnx.NodeProto, feed: Mapping[str, AnyArray]) -> AnyArray | None:
    """The first output of a node of ONNX's own domain, by onnx's ReferenceEvaluator; None where that raises.

    Args:
        graph: whose opset it is.
        node: without bodies.
        feed: an array for every input.
    """
    from onnx.reference import ReferenceEvaluator

    inputs = [helper.make_tensor_value_info(one, 0, None) for one in feed]
    outputs = [helper.make_tensor_value_info(node.output[0], 0, None)]
    model = helper.make_model(
        helper.make_graph([node], "constant", inputs, outputs),
        opset_imports=[helper.make_opsetid("", graph.opsets[""])],
    )
    try:
        (made,) = ReferenceEvaluator(model).run(None, dict(feed))
    except Exception:  # it raises whatever Python and NumPy raise
        return None
    return np.asarray(made)


def _store(
    node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], sparse: dict[str, onnx.SparseTensorProto]
) -> None:
    (kind, value), *_ = attributes(node).items()
    name = node.output[0]
    if kind == "value":
        constants[name] = value
    elif kind == "sparse_value":
        sparse[name] = value
    else:
        constants[name] = numpy_helper.from_array(_AS_ARRAY[kind](value), name)
