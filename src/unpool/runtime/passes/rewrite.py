"""Rewrites, each of which replaces one node by others, applied to a graph or a model; and readable records of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import onnx
from onnx import numpy_helper

from unpool.dtypes import AnyArray
from unpool.runtime.graph.graph import FIRST_IR_WITH_DEFAULTS, Graph
from unpool.runtime.graph.nodes import reads, writes
from unpool.runtime.graph.weights import as_input


@dataclass(frozen=True)
class NodeChange:
    """One node that is written differently: its name, and operator, version and attributes before and after."""

    node: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.node}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Rewrite:
    """Other nodes for one node.

    Attributes:
        output: the first output of the node that is replaced; one of `nodes` makes it.
        constants: the new constants that these nodes read, by name.
        change: shown to the user.
        fused_output: the first output of the node of unpool that replaces several nodes; "" if there is none.
        reason: shown in the plan for that node.
    """

    output: str
    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, AnyArray]
    change: NodeChange
    fused_output: str = ""
    reason: str = ""


def apply_to_graph(graph: Graph, edits: Iterable[Rewrite]) -> Graph:
    """The graph with the edits in it, not pruned."""
    by_output = {edit.output: edit for edit in edits}
    constants = dict(graph.constants)
    for edit in by_output.values():
        constants |= {name: numpy_helper.from_array(array, name) for name, array in edit.constants.items()}
    reasons = {edit.fused_output: edit.reason for edit in by_output.values() if edit.fused_output}
    nodes = tuple(chain.from_iterable(_in_place(node, by_output) for node in graph.nodes))
    return replace(graph, nodes=nodes, constants=constants, origins=dict(graph.origins) | reasons)


def apply_to_model(model: onnx.ModelProto, edits: Iterable[Rewrite]) -> None:
    """Put the edits into a model, which is changed, and drop nodes and tensors that only the replaced nodes needed."""
    by_output = {edit.output: edit for edit in edits}
    graph = model.graph
    needed = _needed(graph)
    nodes = list(chain.from_iterable(_in_place(node, by_output) for node in graph.node))
    del graph.node[:]
    graph.node.extend(nodes)
    constants = [
        numpy_helper.from_array(array, name) for edit in by_output.values() for name, array in edit.constants.items()
    ]
    graph.initializer.extend(constants)
    if model.ir_version < FIRST_IR_WITH_DEFAULTS:
        graph.input.extend(map(as_input, constants))
    _drop(graph, needed - _needed(graph))


def _in_place(node: onnx.NodeProto, edits: Mapping[str, Rewrite]) -> tuple[onnx.NodeProto, ...]:
    edit = edits.get(next(iter(node.output), ""))
    return (node,) if edit is None else edit.nodes


def _needed(graph: onnx.GraphProto) -> set[str]:
    """Names of the values that the outputs depend on."""
    needed = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if needed.intersection(writes(node)):
            needed.update((*reads(node), *writes(node)))
    return needed


def _drop(graph: onnx.GraphProto, useless: set[str]) -> None:
    fed = {value.name for value in graph.input}
    nodes = [node for node in graph.node if not writes(node) or not useless.issuperset(writes(node))]
    tensors = [tensor for tensor in graph.initializer if tensor.name not in useless or tensor.name in fed]
    made = {*(name for node in nodes for name in node.output), *fed, *(tensor.name for tensor in tensors)}
    values = [value for value in graph.value_info if value.name in made]
    for field, kept in ((graph.node, nodes), (graph.initializer, tensors), (graph.value_info, values)):
        del field[:]
        field.extend(kept)
