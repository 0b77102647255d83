"""Nodes sorted topologically, for models that have them in another order, which onnxruntime accepts.

ONNX asks for nodes that read only earlier values, and its checker refuses others.
"""

import heapq
import logging
from collections.abc import Sequence

import onnx

from unpool.errors import ModelError
from unpool.runtime.errors import error_class
from unpool.runtime.graph.nodes import has_subgraphs, node_name, reads, subgraphs

LONGEST_CYCLE = 8
"""Nodes of a cycle that a message names."""

_log = logging.getLogger("unpool")


def sort_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all nodes, subgraphs and functions included, in topological order; itself if they already are.

    Nodes keep their places as far as that is possible.

    Raises:
        ModelError: a node needs its own output; also onnxruntime's Fail.

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
    """True if every node, in subgraphs too, reads only what comes before it."""
    makers = _makers(nodes)
    for position, node in enumerate(nodes):
        if has_subgraphs(node):
            if any(makers.get(name, -1) >= position for name in reads(node)):
                return False
            if not all(_is_ordered(subgraph.node) for _, subgraph in subgraphs(node)):
                return False
        elif any(makers.get(name, -1) >= position for name in node.input):
            return False
    return True


def _makers(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """The position of the node that makes each value; the first one, if there are several."""
    found: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            if name:
                found.setdefault(name, position)
    return found


def _order(holder: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Order the nodes of a graph or function in place, subgraphs first: the values that these capture depend on it."""
    for node in holder.node:
        for _, subgraph in subgraphs(node):
            _order(subgraph)
    nodes = list(holder.node)
    order = _positions(nodes)
    if order != list(range(len(nodes))):
        del holder.node[:]
        holder.node.extend(nodes[position] for position in order)


def _positions(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """The positions of the nodes in topological order; of several that could come next, the first one does."""
    makers = _makers(nodes)
    needs = [{makers[name] for name in reads(node) if name in makers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for position, makers_of_inputs in enumerate(needs):
        for maker in makers_of_inputs:
            readers[maker].append(position)
    waits = [len(makers_of_inputs) for makers_of_inputs in needs]
    ready = [position for position, count in enumerate(waits) if count == 0]
    order: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        raise error_class(ModelError, "Fail")(_cycle_text(nodes, needs, set(range(len(nodes))) - set(order)))
    return order


def _cycle_text(nodes: Sequence[onnx.NodeProto], needs: Sequence[set[int]], rest: set[int]) -> str:
    """The message on a cycle among the nodes that no order has; each of these needs another one of them."""
    path = [min(rest)]
    while path[-1] not in path[:-1]:
        path.append(min(needs[path[-1]] & rest))
    cycle = path[path.index(path[-1]) :][::-1]
    names = [repr(node_name(nodes[position])) for position in cycle]
    shown = names if len(names) <= LONGEST_CYCLE else [*names[: LONGEST_CYCLE - 1], "..."]
    return f"model: expected an acyclic graph, got nodes that need each other: {', '.join(shown)}. Export it again."
