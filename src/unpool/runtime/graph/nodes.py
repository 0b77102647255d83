"""Facts about one NodeProto: operator, values read and written, subgraphs; and nodes in topological order."""

import heapq
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx
from onnx import helper

from unpool.errors import ModelError
from unpool.operators.contract import DOMAINS, OPERATORS
from unpool.runtime.errors import error_class

MAIN_DOMAINS = ("", "ai.onnx")
LONGEST_CYCLE = 8
"""Nodes of a cycle that a message names."""

_log = logging.getLogger("unpool")


def domain(node: onnx.NodeProto) -> str:
    """The node's domain, "" for ONNX's own under either of its names."""
    return "" if node.domain in MAIN_DOMAINS else node.domain


def is_unpool_op(node: onnx.NodeProto) -> bool:
    """True for a MaxPool, MaxUnpool or ConvTranspose of ONNX's or the channels-last domain."""
    return node.op_type in OPERATORS and domain(node) in DOMAINS


def node_name(node: onnx.NodeProto) -> str:
    """The node's name in messages and in the plan; without a name, its operator and first output.

    >>> node_name(onnx.helper.make_node("Relu", ["x"], ["y"]))
    'Relu->y'
    """
    return node.name or f"{node.op_type}->{next((name for name in node.output if name), '')}"


def since_version(node: onnx.NodeProto, opset: int) -> int:
    """The version of the node's operator that an opset selects; the opset itself for an operator unknown to onnx.

    >>> since_version(onnx.helper.make_node("Relu", ["x"], ["y"]), 17)
    14
    """
    try:
        return int(onnx.defs.get_schema(node.op_type, opset, domain(node)).since_version)
    except onnx.defs.SchemaError:
        return opset


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The subgraphs of If, Loop, Scan and the like, each with its attribute's name."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        for subgraph in attribute.graphs:
            yield attribute.name, subgraph


def subgraph_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The nodes in the subgraphs of a node, at any depth."""
    for _, subgraph in subgraphs(node):
        yield from with_subgraph_nodes(subgraph.node)


def with_subgraph_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, each followed by the nodes in its subgraphs at any depth."""
    for node in nodes:
        yield node
        if has_subgraphs(node):
            yield from subgraph_nodes(node)


def has_subgraphs(node: onnx.NodeProto) -> bool:
    """True if the node has subgraphs."""
    return any(attribute.type == onnx.AttributeProto.GRAPH or attribute.graphs for attribute in node.attribute)


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names that a node reads from its graph: its inputs, and what its subgraphs capture. Each once, in order."""
    names = [name for name in node.input if name]
    for _, subgraph in subgraphs(node) if node.attribute else ():
        names.extend(captured_names(subgraph))
    return tuple(dict.fromkeys(names))


def writes(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names of the outputs of a node."""
    return tuple(name for name in node.output if name)


def captured_names(subgraph: onnx.GraphProto) -> Iterator[str]:
    """Names that a subgraph reads from the graph around it, possibly repeated."""
    own = {value.name for value in (*subgraph.input, *subgraph.initializer)}
    own |= {tensor.values.name for tensor in subgraph.sparse_initializer}
    for node in subgraph.node:
        yield from (name for name in reads(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in subgraph.output if value.name not in own)


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attribute values as Python objects, without references to a function's attributes."""
    return {
        attribute.name: helper.get_attribute_value(attribute)
        for attribute in node.attribute
        if not attribute.ref_attr_name
    }


def sort_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all nodes, in subgraphs and functions too, in topological order; itself if they already are.

    ONNX requires that order and onnxruntime does not. Nodes keep their places as far as possible. A cycle raises a
    ModelError, which is also onnxruntime's Fail.

    >>> from onnx import parser
    >>> text = '<ir_version: 8, opset_import: ["" : 17]> g (float x) => (float z) { z = Abs (y) y = Neg (x) }'
    >>> [node.op_type for node in sort_nodes(parser.parse_model(text)).graph.node]
    ['Neg', 'Abs']
    """
    if _is_ordered(model.graph.node) and all(_is_ordered(function.node) for function in model.functions):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for holder in (copy.graph, *copy.functions):
        _order(holder)
    _log.info("model: its nodes were not in topological order, and are sorted.")
    return copy


def _is_ordered(nodes: Sequence[onnx.NodeProto]) -> bool:
    makers = _makers(nodes)
    for position, node in enumerate(nodes):
        is_nested = has_subgraphs(node)
        if any(makers.get(name, -1) >= position for name in (reads(node) if is_nested else node.input)):
            return False
        if is_nested and not all(_is_ordered(subgraph.node) for _, subgraph in subgraphs(node)):
            return False
    return True


def _makers(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """The position of the first node that makes each value."""
    return {name: position for position, node in reversed(list(enumerate(nodes))) for name in writes(node)}


def _order(holder: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Order the nodes in place, those of subgraphs first: what a subgraph captures depends on their order."""
    nodes = list(holder.node)
    for node in nodes:
        for _, subgraph in subgraphs(node):
            _order(subgraph)
    order = _topological_order(nodes)
    if order != list(range(len(nodes))):
        del holder.node[:]
        holder.node.extend(nodes[position] for position in order)


def _topological_order(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """The positions of the nodes; of several that could come next, the first one does."""
    makers = _makers(nodes)
    needs = [{makers[name] for name in reads(node) if name in makers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for position, needed in enumerate(needs):
        for maker in needed:
            readers[maker].append(position)
    missing = list(map(len, needs))
    ready = [position for position, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        raise error_class(ModelError, "Fail")(_cycle_message(nodes, needs, set(range(len(nodes))) - set(order)))
    return order


def _cycle_message(nodes: Sequence[onnx.NodeProto], needs: Sequence[set[int]], unordered: set[int]) -> str:
    """The message on a cycle among nodes, each of which needs another one of them."""
    path = [min(unordered)]
    while path[-1] not in path[:-1]:
        path.append(min(needs[path[-1]] & unordered))
    cycle = path[path.index(path[-1]) :][::-1]
    names = [repr(node_name(nodes[position])) for position in cycle]
    shown = names if len(names) <= LONGEST_CYCLE else [*names[: LONGEST_CYCLE - 1], "..."]
    return f"model: its graph has a cycle, nodes that need each other: {', '.join(shown)}. Export it again."
