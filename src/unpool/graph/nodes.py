"""Facts about one NodeProto: operator, values read and written, subgraphs; and nodes in topological order."""

import heapq
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx
from onnx import helper

from unpool.errors import ModelError
from unpool.graph.errors import error_class
from unpool.operators.contract import DOMAINS, OPERATORS

MAIN_DOMAINS = ("", "ai.onnx")
GRAPH = onnx.AttributeProto.GRAPH
PLAIN_KINDS = frozenset(
    getattr(onnx.AttributeProto, kind) for kind in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")
)
"""Kinds of attributes that hold neither tensors nor graphs."""
LONGEST_CYCLE = 8  # nodes of a cycle that a message names
_log = logging.getLogger("unpool")


def domain(node: onnx.NodeProto) -> str:
    """The node's domain, "" for ONNX's own under either of its names."""
    return "" if node.domain in MAIN_DOMAINS else node.domain


def is_unpool_op(node: onnx.NodeProto) -> bool:
    """True for a MaxPool, MaxUnpool or ConvTranspose of ONNX's or the channels-last domain."""
    return node.op_type in OPERATORS and domain(node) in DOMAINS


def node_name(node: onnx.NodeProto) -> str:
    """The node's name in messages and in the plan; without a name, its operator and first output."""
    return node.name or f"{node.op_type}->{next((name for name in node.output if name), '')}"


def since_version(node: onnx.NodeProto, opset: int) -> int:
    """The version of the node's operator that an opset selects; the opset itself for an operator unknown to onnx."""
    try:
        return int(onnx.defs.get_schema(node.op_type, opset, domain(node)).since_version)
    except onnx.defs.SchemaError:
        return opset


def operator_version(node: onnx.NodeProto, opsets: Mapping[str, int]) -> str:
    """The operator with its version, such as "MaxPool-12", and the domain where it is not ONNX's own."""
    label = f"{node.op_type}-{since_version(node, opsets.get(domain(node), 1))}"
    return f"{label} ({node.domain})" if domain(node) else label


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The subgraphs of If, Loop, Scan and the like, each with its attribute's name."""
    for attribute in node.attribute:
        if attribute.type in PLAIN_KINDS:
            continue
        if attribute.type == GRAPH:
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
    for attribute in node.attribute:  # of every node, many times in a load
        kind = attribute.type
        if kind not in PLAIN_KINDS and (kind == GRAPH or attribute.graphs):
            return True
    return False


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names that a node reads from its graph: its inputs, and what its subgraphs capture. Each once, in order."""
    names = dict.fromkeys(node.input)
    for _, subgraph in subgraphs(node) if has_subgraphs(node) else ():
        names |= dict.fromkeys(captured_names(subgraph))
    names.pop("", None)
    return tuple(names)


def writes(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names of the outputs of a node."""
    return tuple(filter(None, node.output))


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
    """The model with all nodes, in subgraphs and functions too, in topological order, moved as little as possible."""
    if _is_ordered(model.graph.node) and all(_is_ordered(function.node) for function in model.functions):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for holder in (copy.graph, *copy.functions):
        _order(holder)
    _log.info("model: its nodes were not in topological order, and are sorted.")
    return copy


def _is_ordered(nodes: Sequence[onnx.NodeProto]) -> bool:
    made, awaited = {""}, set[str]()  # outputs so far, and what was read before it was made, if it is made here
    for node in nodes:
        is_nested = has_subgraphs(node)
        awaited.update(name for name in (reads(node) if is_nested else node.input) if name not in made)
        if any(name in awaited for name in node.output):
            return False
        made.update(node.output)
        if is_nested and not all(_is_ordered(subgraph.node) for _, subgraph in subgraphs(node)):
            return False
    return True


def _makers(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    return {name: position for position, node in reversed(list(enumerate(nodes))) for name in writes(node)}


def _order(holder: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Order the nodes in place, those of subgraphs first: what a subgraph captures depends on their order."""
    nodes = list(holder.node)
    for node in nodes:
        for _, subgraph in subgraphs(node):
            _order(subgraph)
    makers = _makers(nodes)
    needs = [[makers[name] for name in reads(node) if name in makers] for node in nodes]
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:
        names = [repr(node_name(nodes[position])) for position in error.args[1]]
        shown = names if len(names) <= LONGEST_CYCLE else [*names[: LONGEST_CYCLE - 1], "..."]
        raise error_class(ModelError, "Fail")(
            f"model: its graph is not acyclic, these nodes need each other: {', '.join(shown)}. Export it again."
        ) from error
    ready, order = list(sorter.get_ready()), []
    while ready:  # of several nodes that could come next, the first one does
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
        for position in sorter.get_ready():
            heapq.heappush(ready, position)
    if order != list(range(len(nodes))):
        del holder.node[:]
        holder.node.extend(nodes[position] for position in order)
