"""Makes up names for the values that a rewriting adds to a graph."""

from collections.abc import Iterable, Iterator

import onnx

from unpool.runtime.graph.nodes import bodies, with_inner
from unpool.runtime.graph.record import Graph


class FreshNames:
    """Gives out each name once, and none that is taken already.

    >>> names = FreshNames(["x"])
    >>> names.fresh("x"), names.fresh("x"), names.fresh("y")
    ('x_', 'x__', 'y')
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def fresh(self, wish: str) -> str:
        """The wished name, with as many underscores behind it as it takes until no value has that name."""
        name = wish
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def names_beside(graph: Graph) -> FreshNames:
    """Names that no value of a graph or of its bodies has."""
    ends = (value.name for value in (*graph.inputs, *graph.outputs))
    tensors = (*graph.constants, *graph.sparse_constants, *graph.defaults)
    return FreshNames([*ends, *tensors, *_in_nodes(graph.nodes)])


def names_beside_proto(graph: onnx.GraphProto) -> FreshNames:
    """The same for a graph as ONNX stores it."""
    return FreshNames([*_around_nodes(graph), *_in_nodes(graph.node)])


def _in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in with_inner(nodes):
        yield from (*node.input, *node.output)
        for _, body in bodies(node):
            yield from _around_nodes(body)


def _around_nodes(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (one.name for one in (*graph.input, *graph.output, *graph.initializer))
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
