"""Nodes that stand in the place of others, put into a graph or into a model."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import onnx
from onnx import numpy_helper

from unpool.dtypes import AnyArray
from unpool.runtime.graph import FIRST_IR_WITH_DEFAULTS, Graph
from unpool.runtime.light import as_input
from unpool.runtime.nodes import bodies, reads, with_inner, writes
from unpool.runtime.passes.rewrite import Change


@dataclass(frozen=True)
class Edit:
    """What takes the place of one node.

    Attributes:
        output: first output of that node.
        nodes: what is put there; the value of that name is made by one of them.
        constants: what these nodes read, by name.
        change: in words.
        raised: first output of the node of ours that stands for others; "" where there is none.
        reason: of that node, for the plan.
    """

    output: str
    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, AnyArray]
    change: Change
    raised: str = ""
    reason: str = ""


class Names:
    """Names that no value of a graph has."""

    def __init__(self, graph: Graph) -> None:
        bound = (value.name for node in with_inner(graph.nodes) for _, body in bodies(node) for value in _bound(body))
        made = (name for node in with_inner(graph.nodes) for name in (*node.input, *node.output))
        fed = (value.name for value in (*graph.inputs, *graph.outputs))
        self._taken = {*bound, *made, *fed, *graph.constants, *graph.sparse_constants, *graph.defaults}

    def fresh(self, wish: str) -> str:
        """The wish, or the wish with lines behind it."""
        name = wish
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def into_graph(graph: Graph, edits: Iterable[Edit]) -> Graph:
    """The graph with the edits in it; what nothing needs any more is still there."""
    by_output = {edit.output: edit for edit in edits}
    constants = dict(graph.constants)
    for edit in by_output.values():
        constants |= {name: numpy_helper.from_array(array, name) for name, array in edit.constants.items()}
    reasons = {edit.raised: edit.reason for edit in by_output.values() if edit.raised}
    nodes = tuple(chain.from_iterable(_in_place(node, by_output) for node in graph.nodes))
    return replace(graph, nodes=nodes, constants=constants, raised=dict(graph.raised) | reasons)


def into_model(model: onnx.ModelProto, edits: Iterable[Edit]) -> None:
    """Put the edits into a model, and drop what was needed before and is not any more; the model is changed."""
    by_output = {edit.output: edit for edit in edits}
    graph = model.graph
    needed = _needed(graph)
    nodes = list(chain.from_iterable(_in_place(node, by_output) for node in graph.node))
    del graph.node[:]
    graph.node.extend(nodes)
    made = [
        numpy_helper.from_array(array, name) for edit in by_output.values() for name, array in edit.constants.items()
    ]
    graph.initializer.extend(made)
    if model.ir_version < FIRST_IR_WITH_DEFAULTS:
        graph.input.extend(map(as_input, made))
    _drop(graph, needed - _needed(graph))


def _in_place(node: onnx.NodeProto, edits: Mapping[str, Edit]) -> tuple[onnx.NodeProto, ...]:
    edit = edits.get(next(iter(node.output), ""))
    return (node,) if edit is None else edit.nodes


def _needed(graph: onnx.GraphProto) -> set[str]:
    """Names of the values that the outputs depend on."""
    found = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if found.intersection(writes(node)):
            found.update(reads(node))
            found.update(writes(node))
    return found


def _drop(graph: onnx.GraphProto, useless: set[str]) -> None:
    fed = {value.name for value in graph.input}
    nodes = [node for node in graph.node if not writes(node) or not useless.issuperset(writes(node))]
    tensors = [tensor for tensor in graph.initializer if tensor.name not in useless or tensor.name in fed]
    made = {*(name for node in nodes for name in node.output), *fed, *(tensor.name for tensor in tensors)}
    values = [value for value in graph.value_info if value.name in made]
    for field, kept in ((graph.node, nodes), (graph.initializer, tensors), (graph.value_info, values)):
        del field[:]
        field.extend(kept)


def _bound(body: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto | onnx.TensorProto]:
    yield from body.input
    yield from body.initializer
