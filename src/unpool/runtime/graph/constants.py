"""Moves the values of Constant nodes among the constants of the graph, and drops nodes that no output needs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.runtime.graph.nodes import attributes, domain, reads, writes
from unpool.runtime.graph.record import Graph

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
