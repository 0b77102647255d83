"""The passes of a session: a list, in the order in which they run, each of which takes a model and gives a model.

Every model in between is a valid one: of standard operators up to `convert_conv`, and with nodes of the domain
`unpool` from `fuse_snake` on. A pass never changes the model that it gets, and returns this one where it has nothing to
do. One that fails leaves the model as it was; the log says so at level WARNING.

`disabled_optimizers={"fuse_snake"}` switches a pass off. With the environment variable UNPOOL_DUMP, each pass that
changes a model writes it into that folder, without its large weights.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import starmap
from pathlib import Path
from typing import NamedTuple, TypeAlias

import onnx
from onnx import helper

from unpool.graph.errors import is_from_signal_handler, short_message
from unpool.graph.graph import FIRST_IR_WITH_DEFAULTS, Graph, lift_constants, prune
from unpool.graph.nodes import domain, with_subgraph_nodes
from unpool.graph.shape_inference import infer
from unpool.graph.shapes import Types
from unpool.graph.weights import ElementsNeededError, as_input, copy_fields, strip_initializers
from unpool.onnxruntime.model_cache import DUMP
from unpool.onnxruntime.placement import Placement
from unpool.operators.contract import OPERATORS
from unpool.operators.semantics import Semantics
from unpool.passes.convert_conv import RANKS, convert_conv, values_before_indices
from unpool.passes.fuse_conv_transpose import ACTIVATIONS, fuse_conv_transpose
from unpool.passes.fuse_snake import fuse_snake
from unpool.passes.fuse_unpool import fuse_unpool_patterns
from unpool.passes.inline import inline
from unpool.passes.reduce_strength import may_reduce, reduce_strength
from unpool.passes.rewrite import set_items
from unpool.passes.upgrade_opset import TARGET, lift_opset

_log = logging.getLogger("unpool")


@dataclass
class PassContext:
    """The settings that passes read, and the notes that they make about nodes."""

    semantics: Semantics
    keeps_axes: bool = False
    """True if values have to keep their axes, so that tiles can follow them."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """By first output of a node: text about the nodes that it replaced."""
    folded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By first output of a node: names of nodes that became a part of it."""
    counts_in_output: frozenset[str] = frozenset()
    """Outputs of MaxUnpools whose indices count in the output, however the model is read."""
    types: Types | None = None
    """Of all values, from the first pass that needs them on."""
    read: tuple[onnx.ModelProto, Graph] | None = None
    """The latest model that a pass has read as a graph, and this graph."""
    has_failed: bool = False
    """True if a pass has failed."""

    def details(self) -> dict[str, str]:
        """What the passes say of nodes, by first output."""
        folded = {name: f"with {', '.join(names)} folded in" for name, names in self.folded.items()}
        names = (*self.origins, *(name for name in folded if name not in self.origins))
        return {name: "; ".join(filter(None, (self.origins.get(name), folded.get(name)))) for name in names}


Run: TypeAlias = Callable[[onnx.ModelProto, PassContext], onnx.ModelProto]
GraphChange: TypeAlias = Callable[[Graph, Types, PassContext], Graph]


class Pass(NamedTuple):
    """A pass: `operators` are those without one of which it has nothing to do, `why` why it stands at its place."""

    name: str
    run: Run
    operators: frozenset[str]
    why: str
    is_needed: bool = False  # also where the options switch all optimizations off
    is_exact: bool = True  # also with exact=True
    has_own_nodes: bool = False  # it makes nodes of the domain unpool


def _inline(model: onnx.ModelProto, _: PassContext) -> onnx.ModelProto:
    """Functions replaced by their nodes, where there are nodes in them that another pass looks for."""
    inner = (node for function in model.functions for node in with_subgraph_nodes(function.node))
    return inline(model) if any(node.op_type in _LOOKED_FOR and domain(node) == "" for node in inner) else model


def _lift_opset(model: onnx.ModelProto, context: PassContext) -> onnx.ModelProto:
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), TARGET)
    return model if opset >= TARGET else lift_opset(inline(model), context.semantics)


def _on_graph(change: GraphChange, may_fire: Callable[[Graph], bool] = lambda _: True) -> Run:
    """The pass of a function of the graph, which returns the same graph where it has nothing to do.

    `may_fire` is asked before the types of all values are inferred, which takes most of the time.
    """

    def run(model: onnx.ModelProto, context: PassContext) -> onnx.ModelProto:
        if context.read is None or context.read[0] is not model:
            graph = lift_constants(Graph.from_model(model))
            context.read = model, replace(graph, origins=context.origins, folded_nodes=context.folded)
        _, graph = context.read
        if not may_fire(graph):
            return model
        if context.types is None:
            context.types = infer(graph, context.semantics).types
        changed = change(graph, context.types, context)
        if changed is graph:
            return model
        context.origins, context.folded = changed.origins, changed.folded_nodes
        pruned = prune(changed)
        context.read = to_model(pruned, model), pruned
        return context.read[0]

    return run


def _has_convs(graph: Graph) -> bool:
    """True if there is a Conv over as many axes as those that are converted."""
    weights = (graph.constants.get(node.input[1]) for node in graph.nodes if node.op_type == "Conv")
    return any(tensor is not None and len(tensor.dims) - 2 in RANKS for tensor in weights)


def _has_pairs(first: Collection[str], second: Collection[str]) -> Callable[[Graph], bool]:
    """True if a node of the second operators reads what one of the first makes."""

    def may_fire(graph: Graph) -> bool:
        values = {node.output[0] for node in graph.nodes if node.op_type in first and node.output}
        return any(node.op_type in second and not values.isdisjoint(node.input) for node in graph.nodes)

    return may_fire


def _fuse_unpool(graph: Graph, types: Types, context: PassContext) -> Graph:
    result = fuse_unpool_patterns(graph, types, context.semantics)
    rewrites = [rewrite for rewrites in result.rounds for rewrite in rewrites]
    context.counts_in_output |= {rewrite.fused_output for rewrite in rewrites if rewrite.fused_output}
    context.types = result.types
    return result.graph if rewrites else graph


def _reduce_strength(graph: Graph, types: Types, context: PassContext) -> Graph:
    excluded = values_before_indices(graph)
    changed, context.types = reduce_strength(graph, types, excluded, keeps_axes=context.keeps_axes)
    return changed


def _convert_conv(graph: Graph, types: Types, _: PassContext) -> Graph:
    return convert_conv(graph, types, values_before_indices(graph))


def _fuse_snake(graph: Graph, types: Types, _: PassContext) -> Graph:
    return fuse_snake(graph, types, values_before_indices(graph))


def _fuse_activation(graph: Graph, types: Types, context: PassContext) -> Graph:
    placement = Placement(graph.nodes, graph.constants.values(), graph.opsets, context.semantics, types)
    convs = (node for node in graph.nodes if node.op_type == "ConvTranspose" and domain(node) == "")
    own = {node.output[0] for node in convs if placement.reason(node).runner == "unpool"}
    return fuse_conv_transpose(graph, types, own)


def to_model(graph: Graph, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the nodes and constants of a graph that was made from it, in a copy."""
    changed = onnx.ModelProto()
    copy_fields(model, changed, "graph", "opset_import")
    set_items(changed.opset_import, starmap(helper.make_opsetid, graph.opsets.items()))
    target = changed.graph
    copy_fields(model.graph, target, "node", "initializer", "sparse_initializer", "input", "value_info")
    target.node.extend(graph.nodes)
    target.input.extend(graph.inputs)
    for name, tensor in {**graph.constants, **graph.defaults}.items():
        target.initializer.append(tensor)
        target.initializer[-1].name = name
        if model.ir_version < FIRST_IR_WITH_DEFAULTS and name in graph.constants:
            target.input.append(as_input(target.initializer[-1]))
    for name, sparse in graph.sparse_constants.items():
        target.sparse_initializer.append(sparse)
        target.sparse_initializer[-1].values.name = name
    made = {name for node in graph.nodes for name in node.output}
    target.value_info.extend(value for value in model.graph.value_info if value.name in made)
    return changed


PASSES: tuple[Pass, ...] = (
    Pass("inline", _inline, frozenset(), "first, so that the others see every node", is_needed=True),
    Pass("lift_opset", _lift_opset, frozenset(), "before the others, which read opset 7 and later", is_needed=True),
    Pass(
        "fuse_unpool",
        _on_graph(_fuse_unpool),
        frozenset({"ScatterND", "Sub"}),
        "before nodes are replaced one by one: it recognizes what torch's exporter has written",
    ),
    Pass(
        "reduce_strength",
        _on_graph(_reduce_strength, may_reduce),
        frozenset({"PRelu", "Elu", "Mish", "Resize", "Softmax", "LogSoftmax", "Softplus", "Einsum", "Gather"}),
        "before activations are fused: a PRelu of one slope is one",
    ),
    Pass(
        "convert_conv",
        _on_graph(_convert_conv, _has_convs),
        frozenset({"Conv"}),
        "before activations are fused, those behind a Conv too",
        is_exact=False,
    ),
    Pass(
        "fuse_snake",
        _on_graph(_fuse_snake),
        frozenset({"Sin"}),
        "behind the passes that read standard operators only",
        is_exact=False,
        has_own_nodes=True,
    ),
    Pass(
        "fuse_activation",
        _on_graph(_fuse_activation, _has_pairs(("ConvTranspose",), ACTIVATIONS)),
        frozenset({"ConvTranspose"}),
        "last: no other pass looks for an activation",
        has_own_nodes=True,
    ),
)
"""All passes, in the order in which they run."""

_LOOKED_FOR = {*OPERATORS, "InstanceNormalization", *(name for each in PASSES for name in each.operators)}
NAMES = frozenset(each.name for each in PASSES)


def run_passes(
    model: onnx.ModelProto,
    context: PassContext,
    disabled: Collection[str] = (),
    *,
    optimizes: bool = True,
    has_own_nodes: bool = True,
) -> onnx.ModelProto:
    """The model after all passes that are not disabled; the same object if none has changed it.

    Without `optimizes` only those run that a model may need to run at all, without `has_own_nodes` none that makes
    nodes of the domain unpool.
    """
    folder, operators = os.environ.get(DUMP, ""), _operators(model)
    for number, each in enumerate(PASSES):
        is_off = each.name in disabled or not (optimizes or each.is_needed)
        is_off |= (context.semantics.exact and not each.is_exact) or (each.has_own_nodes and not has_own_nodes)
        if is_off or (each.operators and each.operators.isdisjoint(operators)):
            continue
        changed = _attempt(each, model, context)
        if changed is model:
            continue
        model, operators = changed, _operators(changed)
        if folder:
            _dump(model, Path(folder, f"{number}_{each.name}.onnx"))
    return model


def _operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node if domain(node) == ""}


def _attempt(each: Pass, model: onnx.ModelProto, context: PassContext) -> onnx.ModelProto:
    """The result of a pass; the model as it was if it fails, whatever the exception, unless a signal raises it.

    An ElementsNeededError is no failure: the passes run again, on the whole model.
    """
    own = replace(context)
    try:
        changed = each.run(model, own)
    except Exception as error:
        if is_from_signal_handler(error) or isinstance(error, ElementsNeededError):
            raise
        context.has_failed = True
        fact = f"{type(error).__name__}: {short_message(error)}"
        _log.warning("model: the pass %s failed and is skipped: %s", each.name, fact)
        return model
    for name, value in vars(own).items():
        setattr(context, name, value)
    return changed


def _dump(model: onnx.ModelProto, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(strip_initializers(model).SerializeToString())
    except OSError as error:
        _log.warning("%s: the model after a pass cannot be written: %s", path, short_message(error))
