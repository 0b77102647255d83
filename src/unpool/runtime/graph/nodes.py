"""Facts about one NodeProto: its operator, the values that it reads and writes, and its subgraphs."""

from collections.abc import Iterable, Iterator
from typing import Any

import onnx
from onnx import helper

from unpool.operators.contract import DOMAINS, OPERATORS

MAIN_DOMAINS = ("", "ai.onnx")


def domain(node: onnx.NodeProto) -> str:
    """The node's domain, "" for ONNX's own under either of its names."""
    return "" if node.domain in MAIN_DOMAINS else node.domain


def is_unpool_op(node: onnx.NodeProto) -> bool:
    """True if the node is a MaxPool, MaxUnpool or ConvTranspose of one of our domains."""
    return node.op_type in OPERATORS and domain(node) in DOMAINS


def node_name(node: onnx.NodeProto) -> str:
    """The name that messages and the plan give to the node: its own, or else one made of its operator and its output.

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
    """The sub-graphs of If, Loop, Scan and the like, each with its attribute's name."""
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
    """Nodes, and the nodes in their subgraphs at any depth."""
    for node in nodes:
        yield node
        if has_subgraphs(node):
            yield from subgraph_nodes(node)


def has_subgraphs(node: onnx.NodeProto) -> bool:
    """True if the node may have sub-graphs."""
    return any(one.type == onnx.AttributeProto.GRAPH or one.graphs for one in node.attribute)


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names that a node reads from its graph: its inputs, and what its subgraphs capture. Each once, in order."""
    names = [name for name in node.input if name]
    for _, subgraph in subgraphs(node) if node.attribute else ():
        names.extend(captured_names(subgraph))
    return tuple(dict.fromkeys(names))


def writes(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names that a node makes."""
    return tuple(name for name in node.output if name)


def captured_names(subgraph: onnx.GraphProto) -> Iterator[str]:
    """Names that a subgraph reads from around it; one may come several times."""
    own = {value.name for value in (*subgraph.input, *subgraph.initializer)}
    own |= {tensor.values.name for tensor in subgraph.sparse_initializer}
    for node in subgraph.node:
        yield from (name for name in reads(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in subgraph.output if value.name not in own)


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attribute values as Python objects; references to a function's attributes are left out."""
    return {one.name: helper.get_attribute_value(one) for one in node.attribute if not one.ref_attr_name}
