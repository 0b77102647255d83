"""The pass pipeline: brings a graph into the form that is planned; subgraphs go through it too.

A pass returns a new graph, and never changes the one that it got. So one that fails leaves nothing behind: the log says
so at level WARNING, and the next pass gets the graph as it was.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import onnx

from unpool.runtime.graph.errors import is_from_signal_handler, short_message
from unpool.runtime.graph.graph import Graph, lift_constants, prune
from unpool.runtime.graph.load import check_model
from unpool.runtime.graph.semantics import Semantics, check_nodes, check_types
from unpool.runtime.graph.shape_inference import infer, stated_types
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.convert_conv import conv_savings, convert_conv, values_before_indices
from unpool.runtime.passes.fold_weights import fold_weights
from unpool.runtime.passes.fuse_conv_transpose import fold, fuse
from unpool.runtime.passes.fuse_normalization import fuse_normalization
from unpool.runtime.passes.fuse_snake import fuse_snake
from unpool.runtime.passes.fuse_unpool import FusionResult, fuse_unpool_patterns
from unpool.runtime.passes.inline import inline, shorten_domains
from unpool.runtime.passes.profitability import is_profitable, leave_conv_transpose
from unpool.runtime.passes.reduce_strength import reduce_strength
from unpool.runtime.passes.upgrade_opset import lift_opset

_Result = TypeVar("_Result")
_log = logging.getLogger("unpool")


@dataclass(frozen=True)
class PassOptions:
    """The passes that change a graph."""

    fuses_unpool: bool  # decomposed unpoolings become MaxUnpool again
    conv_ranks: tuple[int, ...]  # numbers of spatial axes over which a Conv may become a ConvTranspose
    convert_conv_before_indices: bool  # also a Conv on which the Indices of some MaxPool depend
    fuses_activations: bool  # activations become part of the ConvTranspose before them
    fuses_computations: bool  # a Snake, and a normalization next to a node of unpool, become steps of unpool
    reduces_strength: bool  # nodes that onnxruntime computes slowly become others with the same result
    checks_profit: bool  # onnxruntime gets every ConvTranspose and Conv where unpool would not save enough time


def to_graph(model: onnx.ModelProto, semantics: Semantics) -> Graph:
    """The graph, in opset 7 or later, without functions and Constant nodes, of a model with shortened domains."""
    return lift_constants(Graph.from_model(lift_opset(inline(model), semantics)))


def prepare(model: onnx.ModelProto, semantics: Semantics, options: PassOptions) -> tuple[Graph, Types]:
    """The graph of a model after the checks and all passes, and the types of its values."""
    model = inline(shorten_domains(model))
    check_nodes(model.graph.node, {entry.domain: entry.version for entry in model.opset_import}, semantics)
    check_model(model)
    graph = to_graph(model, semantics)
    check_nodes(graph.nodes, graph.opsets, semantics)
    return run_passes(graph, infer(graph, semantics).types, semantics, options)


def run_passes(graph: Graph, types: Types, semantics: Semantics, options: PassOptions) -> tuple[Graph, Types]:
    """The graph, constants lifted, after all passes, pruned, and what is known of the types of its values."""
    if options.fuses_unpool:
        graph, types, _ = _attempt(fuse_unpool_patterns, FusionResult(graph, types, ()), graph, types, semantics)
    check_types(graph, types, semantics)
    excluded = set() if options.convert_conv_before_indices else values_before_indices(graph)
    if options.reduces_strength:
        graph, types = _attempt(reduce_strength, (graph, types), graph, types, excluded)
    if options.fuses_computations:
        graph = _attempt(fuse_snake, graph, graph, types, excluded)
    weighted = ("Conv", "ConvTranspose") if graph.computations else ("ConvTranspose",)
    graph = _attempt(fold_weights, graph, graph, weighted)
    if options.conv_ranks:
        savings = _attempt(conv_savings, dict[str, float](), graph, types, excluded, options.conv_ranks)
        if options.checks_profit and not _attempt(is_profitable, True, graph, types, savings, semantics):
            return prune(leave_conv_transpose(graph)), types
        graph = _attempt(convert_conv, graph, graph, savings)
    graph = _attempt(fold, graph, graph)
    if options.fuses_activations:
        graph = _attempt(fuse, graph, graph, types)
    if options.fuses_computations:
        graph = _attempt(fuse_normalization, graph, graph, types, excluded)
    graph = prune(graph)
    return graph, types | stated_types(graph)


def _attempt(change: Callable[..., _Result], otherwise: _Result, *arguments: Any) -> _Result:
    """The result of a pass; `otherwise` if it fails, whatever the exception, unless a handler of signals raises it."""
    try:
        return change(*arguments)
    except Exception as error:
        if is_from_signal_handler(error):
            raise
        fact = f"{type(error).__name__}: {short_message(error)}"
        _log.warning("model: the pass %s failed and is skipped: %s", change.__name__, fact)
        return otherwise
