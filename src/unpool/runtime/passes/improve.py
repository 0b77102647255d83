"""Brings a graph into the form that is planned; the graph of a body goes the same way as that of the model."""

from dataclasses import dataclass

import onnx

from unpool.runtime.graph.graph import Graph, lift_constants, prune
from unpool.runtime.graph.semantics import Semantics, check_nodes, check_types
from unpool.runtime.graph.shape_inference import infer, stated_types
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


def to_graph(model: onnx.ModelProto, semantics: Semantics) -> Graph:
    """The graph of a model in opset 7 or later, with functions inlined and Constant nodes as constants.

    Args:
        model: with shortened domains.
        semantics: how the three operators are read.
    """
    return lift_constants(Graph.from_model(lift_opset(inline(model), semantics)))


def prepare(model: onnx.ModelProto, semantics: Semantics, changes: Changes) -> tuple[Graph, Types]:
    """The graph of a model after all passes, and the types of its values.

    Raises:
        ModelError: the model is invalid.
        UnpoolError: as `improve`.
    """
    model = shorten(model)
    check_nodes(model.graph.node, {entry.domain: entry.version for entry in model.opset_import}, semantics)
    check_model(model)
    graph = to_graph(model, semantics)
    check_nodes(graph.nodes, graph.opsets, semantics)
    return improve(graph, infer(graph, semantics).types, semantics, changes)


def improve(graph: Graph, types: Types, semantics: Semantics, changes: Changes) -> tuple[Graph, Types]:
    """The graph after all passes, pruned, and what is known of its values.

    Args:
        graph: constants lifted.
        types: what is known of the values.
        semantics: how the three operators are read.
        changes: those that are wanted.

    Raises:
        UnpoolError: a node of ours breaks its contract, or has values of types that do not fit.
    """
    if changes.raises:
        graph, types, _ = raise_all(graph, types, lambda one: infer(one, semantics).types)
    check_types(graph, types, semantics)
    if changes.turns:
        spared = set() if changes.before_indices else before_choices(graph)
        graph = as_conv_transpose(graph, types, spared, changes.turns)
    folded = fold(graph)
    graph = prune(fuse(folded, types) if changes.fuses else folded)
    return graph, types | stated_types(graph)
