"""The bodies of If, Loop and Scan as graphs of their own, with everything that they see around them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx

from unpool.runtime.graph.graph import Graph, lift_constants
from unpool.runtime.graph.nodes import subgraphs
from unpool.runtime.graph.shape_inference import Inference


@dataclass(frozen=True)
class Scope:
    """A body.

    Attributes:
        graph: first the nodes around the body, then its own; both fit into one graph, for a body reuses no name that it
            sees.
        types: the known types of the values.
        own: names that its own nodes make.
    """

    graph: Graph
    types: Mapping[str, onnx.TypeProto]
    own: frozenset[str]


def scopes(graph: Graph, inference: Inference) -> Iterator[Scope]:
    """Every body at any depth."""
    return _scopes(graph, graph.nodes, iter(inference.inner))


def _scopes(
    around: Graph, nodes: Iterable[onnx.NodeProto], types: Iterator[Mapping[str, onnx.TypeProto]]
) -> Iterator[Scope]:
    for node in nodes:
        for _, body in subgraphs(node):
            graph = lift_constants(_inside(around, body))
            yield from _scopes(graph, body.node, types)
            yield Scope(graph, next(types), frozenset(name for one in body.node for name in one.output))


def _inside(around: Graph, body: onnx.GraphProto) -> Graph:
    fed = {value.name for value in body.input}
    constants = {name: tensor for name, tensor in around.constants.items() if name not in fed}
    constants |= {tensor.name: tensor for tensor in body.initializer}
    return replace(around, nodes=(*around.nodes, *body.node), constants=constants)
