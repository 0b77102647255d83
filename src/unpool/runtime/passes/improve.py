"""Brings a graph into the form that is planned; the graph of a body goes the same way as that of the model."""

from dataclasses import dataclass

from unpool.runtime.graph import node_contract
from unpool.runtime.graph.constants import prune
from unpool.runtime.graph.inference import infer, stated_types
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.graph.record import Graph
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.conv_as_transpose import as_conv_transpose, before_choices
from unpool.runtime.passes.fold import fold
from unpool.runtime.passes.fuse import fuse
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
