"""Brings a graph into the form that is planned; the graph of a body goes the same way as that of the model."""

from dataclasses import dataclass

import onnx

from unpool.runtime.graph import node_contract
from unpool.runtime.graph.constants import lift_constants, prune
from unpool.runtime.graph.inference import infer, stated_types
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.graph.record import Graph, graph_of
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.validity import check_model
from unpool.runtime.passes.conv_as_transpose import as_conv_transpose, before_choices
from unpool.runtime.passes.domains import shorten
from unpool.runtime.passes.fold import fold
from unpool.runtime.passes.fuse import fuse
from unpool.runtime.passes.inline import inline
from unpool.runtime.passes.old_opsets import lift_opset
from unpool.runtime.passes.raising import raise_all


@dataclass(frozen=True)
class Changes:
    """Which of the passes change a graph.

    Attributes:
        raises: whether decomposed unpoolings become MaxUnpool again.
        turns: over how many spatial axes a Conv may become a ConvTranspose.
        before_indices: whether that holds too where the Indices of some MaxPool depend on it.
        fuses: whether activations become part of the ConvTranspose before them.
    """

    raises: bool
    turns: tuple[int, ...]
    before_indices: bool
    fuses: bool


def to_graph(model: onnx.ModelProto, meaning: Meaning) -> Graph:
    """The graph of a model in opset 7 or later, with functions inlined and Constant nodes as constants.

    Args:
        model: with shortened domains.
        meaning: how the three operators are read.
    """
    return lift_constants(graph_of(lift_opset(inline(model), meaning)))


def prepare(model: onnx.ModelProto, meaning: Meaning, changes: Changes) -> tuple[Graph, Types]:
    """The graph of a model after all passes, and the types of its values.

    Raises:
        ModelError: the model is invalid.
        UnpoolError: as `improve`.
    """
    model = shorten(model)
    node_contract.check_nodes(model.graph.node, {entry.domain: entry.version for entry in model.opset_import}, meaning)
    check_model(model)
    graph = to_graph(model, meaning)
    node_contract.check_nodes(graph.nodes, graph.opsets, meaning)
    return improve(graph, infer(graph, meaning).types, meaning, changes)


def improve(graph: Graph, types: Types, meaning: Meaning, changes: Changes) -> tuple[Graph, Types]:
    """The graph after all passes, pruned, and what is known of its values.

    Args:
        graph: constants lifted.
        types: what is known of the values.
        meaning: how the three operators are read.
        changes: those that are wanted.

    Raises:
        UnpoolError: a node of ours breaks its contract, or has values of types that do not fit.
    """
    if changes.raises:
        graph, types, _ = raise_all(graph, types, lambda one: infer(one, meaning).types)
    node_contract.check_types(graph, types, meaning)
    if changes.turns:
        spared = set() if changes.before_indices else before_choices(graph)
        graph = as_conv_transpose(graph, types, spared, changes.turns)
    folded = fold(graph)
    graph = prune(fuse(folded, types) if changes.fuses else folded)
    return graph, types | stated_types(graph)
