"""Types and shapes of all values: our own inference for the three operators, onnx's for every other node.

onnx infers wrong shapes for ceil_mode, for SAME with a window below the stride, for ConvTranspose under auto_pad or
output_shape and for pads beside auto_pad, and does not know the channels-last domain. So onnx never sees these nodes:
in place of each of their outputs it sees an Identity of an input of the graph, which gets the type that was inferred
here. Both inferences alternate, level by level, so that each node is visited once. Only subgraphs of If, Loop and Scan
with such nodes are visited repeatedly, until nothing new is found.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, count
from typing import TypeAlias

import onnx
from onnx import TensorProto, helper, numpy_helper

from unpool.errors import ModelError, UnsupportedError
from unpool.operators.resolve import Spec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.dims import Dims, output_dims
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.graph import FIRST_IR_WITH_DEFAULTS, Graph, has_type, lift_constants
from unpool.runtime.graph.nodes import (
    attributes,
    domain,
    is_unpool_op,
    node_name,
    reads,
    subgraphs,
    with_subgraph_nodes,
    writes,
)
from unpool.runtime.graph.semantics import Semantics, spec_of
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import LARGE, as_input, is_large

STAND_IN = "unpool.made."  # how the input is named that stands for an output of unpool
INVENTED = "unk__"  # how onnx's inference names a size that it does not know

MAX_VISITED_NODES = 200_000
"""Nodes that onnx may look at for the subgraphs of one node, every time counted."""

Vectors: TypeAlias = Mapping[str, Dims | None]


@dataclass(frozen=True)
class ResolvedNode:
    """A node of unpool with its spec, and with the dims of each input or, where its rank is unknown, None."""

    node: onnx.NodeProto
    spec: Spec
    inputs: tuple[Dims | None, ...] = ()


@dataclass(frozen=True)
class Inference:
    """Inferred types and shapes of a graph.

    Attributes:
        types: the type of every value of the graph itself, without the values whose type is unknown.
        resolved: nodes of unpool's operators, inside subgraphs too, in the order of `nodes.with_inner`.
        subgraph_types: for each subgraph the types of all values that it sees, in the order in which the subgraphs end.
    """

    types: Types
    resolved: tuple[ResolvedNode, ...]
    subgraph_types: tuple[Mapping[str, onnx.TypeProto], ...]


def infer(graph: Graph, semantics: Semantics) -> Inference:
    """Infer the types and shapes of all values, and resolve the nodes of unpool.

    Raises:
        ModelError: onnx's inference fails on the model.
        UnpoolError: a node of unpool breaks its contract.
    """
    graph = lift_constants(graph)  # onnx reads what a Constant holds, wherever the node that needs it is
    walk = _GraphInference(graph, semantics)
    for plain, crossing in _levels(graph):
        walk.visit_plain(plain)
        for position in crossing:
            if is_unpool_op(graph.nodes[position]):
                walk.visit_unpool_op(position)
            else:
                walk.visit_control_flow(position)
    return walk.done()


def _levels(graph: Graph) -> list[tuple[list[int], list[int]]]:
    """Positions of nodes, grouped by how many nodes of unpool their inputs pass through.

    Each group has the positions that onnx infers, and then those of nodes that are ours or hold ours in a subgraph.
    """
    made_at: dict[str, int] = {}
    levels: dict[int, tuple[list[int], list[int]]] = {}
    for position, node in enumerate(graph.nodes):
        level = max((made_at.get(name, 0) for name in reads(node)), default=0)
        crosses = any(map(is_unpool_op, with_subgraph_nodes([node])))
        levels.setdefault(level, ([], []))[crosses].append(position)
        made_at |= dict.fromkeys(writes(node), level + crosses)
    return [levels[level] for level in sorted(levels)]


class _GraphInference:
    """Infers a graph level by level: onnx what is between nodes of unpool, and we each node of ours, once."""

    def __init__(self, graph: Graph, semantics: Semantics) -> None:
        self._graph = graph
        self._nodes = [node for node in with_subgraph_nodes(graph.nodes) if is_unpool_op(node)]
        self._specs = [spec_of(node, graph.opsets, semantics) for node in self._nodes]
        self._first = list(accumulate((_count_unpool_ops(node) for node in graph.nodes), initial=0))
        self._small = {name: tensor for name, tensor in graph.constants.items() if not is_large(tensor)}
        stated = {**graph.declared, **{value.name: value.type for value in graph.outputs if has_type(value)}}
        self._stated = {name: shapes.without_shape(one) for name, one in stated.items()}
        self._types: Types = self._stated | stated_types(graph)
        self._vectors: MutableMapping[str, Dims | None] = dict(_vectors_of(graph.constants.items()))
        self._resolved: dict[int, ResolvedNode] = {}
        self._inner: dict[int, list[tuple[Types, ...]]] = {}
        self._imports = [helper.make_opsetid(name, version) for name, version in graph.opsets.items()]

    def done(self) -> Inference:
        """Everything that was found."""
        types = _only_known(self._types)
        bodies_in_order = chain.from_iterable(self._inner[position] for position in sorted(self._inner))
        inner = tuple(ChainMap(*own, types) for own in bodies_in_order)
        return Inference(types, tuple(self._resolved[number] for number in sorted(self._resolved)), inner)

    def visit_plain(self, positions: Sequence[int]) -> None:
        """Let onnx infer nodes that are not ours and hold none of ours, all at once."""
        if not positions:
            return
        inferred = self._by_onnx([self._graph.nodes[position] for position in positions], {})
        found = _plain_types((*inferred.value_info, *inferred.output))
        self._types |= found
        visit = _SubgraphVisitor(self, self._vectors, {})
        for position, node in zip(positions, inferred.node, strict=True):
            self._inner[position] = visit.node(node, self._types, ())

    def visit_unpool_op(self, position: int) -> None:
        """Infer one node of ours."""
        number = self._first[position]
        made = self.infer_op(number, self._types, self._vectors)
        self._types |= {self._nodes[number].output[place]: type_ for place, type_ in made.items()}
        for name in self._nodes[number].output:
            self._vectors[name] = None

    def visit_control_flow(self, position: int) -> None:
        """Let onnx infer a node whose subgraphs hold ours, and again whenever we have learnt more of ours in there."""
        numbers = count(self._first[position])
        (stand_in,) = _stand_ins(self._graph.nodes[position], numbers.__next__)
        size = sum(1 for _ in with_subgraph_nodes([stand_in]))
        known: Types = {}
        for turns in count(1):
            inferred = self._by_onnx([stand_in], known)
            visit = _SubgraphVisitor(self, ChainMap({}, self._vectors), {})
            own: Types = _plain_types((*inferred.value_info, *inferred.output))
            inner = visit.node(inferred.node[0], ChainMap(own, self._types), ())
            if visit.made == known:
                break
            if turns * size > MAX_VISITED_NODES:
                raise UnsupportedError(
                    f"{stand_in.op_type} node {node_name(stand_in)!r}: expected subgraphs in which few nodes of unpool "
                    f"follow each other, got {size} nodes, gone through {turns} times. Move them out of the subgraph."
                )
            known = visit.made
        self._types |= own
        self._inner[position] = inner

    def infer_op(self, number: int, types: Mapping[str, onnx.TypeProto], vectors: Vectors) -> dict[int, onnx.TypeProto]:
        """The types of the outputs of one node of ours, by position; what is known of its inputs is kept for `done`."""
        node, spec = self._nodes[number], self._specs[number]
        inputs = tuple(shapes.dims(types.get(name)) if name else None for name in node.input)
        self._resolved[number] = ResolvedNode(node, spec, inputs)
        asked = node.input[2] if node.op_type == "MaxUnpool" and len(node.input) > 2 else ""
        found = output_dims(spec, inputs, (vectors.get(asked) or ()) if asked else None)
        made = {}
        for place, name in enumerate(node.output):
            element = TensorProto.INT64 if place else shapes.element(types.get(node.input[0]))
            element = element or shapes.element(self._graph.declared.get(name))
            if name and element > 0:
                made[place] = shapes.tensor_type(element, found[place])
        return made

    def _by_onnx(self, nodes: Sequence[onnx.NodeProto], made: Types) -> onnx.GraphProto:
        """Types that onnx infers for some nodes from the types of their inputs."""
        own = [name for node in nodes for name in writes(node)]
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        given = self._types | made if made else self._types
        outside = [name for name in read if name not in self._small and name in given]
        inner = set(own)
        subgraph = helper.make_graph(
            nodes,
            "nodes",
            [helper.make_value_info(name, given[name]) for name in outside if name not in inner],
            [],
            [_renamed(name, self._small[name]) for name in read if name in self._small],
            value_info=[helper.make_value_info(name, self._stated[name]) for name in own if name in self._stated],
        )
        version = max(self._graph.ir_version, FIRST_IR_WITH_DEFAULTS)
        model = helper.make_model(subgraph, opset_imports=self._imports, ir_version=version)
        try:
            return onnx.shape_inference.infer_shapes(model).graph
        except Exception as error:
            raise ModelError(
                f"model: expected a graph whose types can be inferred, got: {short_message(error)}. Export it again."
            ) from error


class _SubgraphVisitor:
    """Walks once over nodes that onnx has inferred, collects the types in their subgraphs, and adds those of ours."""

    def __init__(self, walk: _GraphInference, vectors: MutableMapping[str, Dims | None], made: Types) -> None:
        self._walk = walk
        self._vectors = vectors
        self.made = made

    def node(
        self, node: onnx.NodeProto, types: MutableMapping[str, onnx.TypeProto], around: tuple[Types, ...]
    ) -> list[tuple[Types, ...]]:
        """The types that each subgraph of a node sees, innermost first, in the order in which the subgraphs end."""
        for name in node.output:
            self._vectors[name] = None
        self._follow_vector(node, types)
        return [one for _, subgraph in subgraphs(node) for one in self._body(subgraph, types, around)]

    def _body(
        self, subgraph: onnx.GraphProto, outer: MutableMapping[str, onnx.TypeProto], around: tuple[Types, ...]
    ) -> list[tuple[Types, ...]]:
        for one in subgraph.input:
            self._vectors[one.name] = None
        self._vectors.update(_vectors_of((one.name, one) for one in subgraph.initializer))
        own = {one.name: as_input(one).type for one in subgraph.initializer}
        own |= _plain_types((*subgraph.input, *subgraph.value_info, *subgraph.output))
        types, found = ChainMap(own, outer), []
        for node in subgraph.node:
            if node.input and node.input[0].startswith(STAND_IN):
                self._add_output_type(node, types)
            found += self.node(node, types, (own, *around))
        for name in [name for name, one in own.items() if not _is_known(name, one)]:
            del own[name]
        return [*found, (own, *around)]

    def _add_output_type(self, identity: onnx.NodeProto, types: MutableMapping[str, onnx.TypeProto]) -> None:
        number, place = map(int, identity.input[0].removeprefix(STAND_IN).split("."))
        made = self._walk.infer_op(number, types, self._vectors)
        if place in made:
            types[identity.output[0]] = self.made[identity.input[0]] = made[place]

    def _follow_vector(self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> None:
        """Note what is known of the integers in a vector that a Constant, a Shape or a Concat makes."""
        if domain(node) != "":
            return
        given = attributes(node)
        if node.op_type == "Constant":
            tensor = given.get("value")
            values = given.get("value_ints") if tensor is None else _vector(tensor)
        elif node.op_type == "Shape":
            known = shapes.dims(types.get(node.input[0]))
            values = None if known is None else known[given.get("start", 0) : given.get("end")]
        elif node.op_type == "Concat":
            parts = [self._vectors.get(name) for name in node.input]
            known_parts = [part for part in parts if part is not None]
            fits = len(known_parts) == len(parts) and sum(map(len, known_parts)) <= LARGE
            values = tuple(chain.from_iterable(known_parts)) if fits else None
        else:
            values = None
        if values is not None:
            self._vectors[node.output[0]] = tuple(values)


def _vectors_of(tensors: Iterable[tuple[str, onnx.TensorProto]]) -> dict[str, Dims]:
    found = {name: _vector(tensor) for name, tensor in tensors}
    return {name: values for name, values in found.items() if values is not None}


def _vector(tensor: onnx.TensorProto) -> Dims | None:
    if tensor.data_type != TensorProto.INT64 or len(tensor.dims) != 1 or is_large(tensor):
        return None
    return tuple(numpy_helper.to_array(tensor).tolist())


def stated_types(graph: Graph) -> Types:
    """The types of constants and of inputs, which need no inference; a captured value may be an input without type."""
    known = {name: as_input(tensor).type for name, tensor in graph.constants.items()}
    for name, sparse in graph.sparse_constants.items():
        known[name] = shapes.tensor_type(sparse.values.data_type, list(sparse.dims))
    return known | {one.name: one.type for one in graph.inputs if has_type(one)}


def _count_unpool_ops(node: onnx.NodeProto) -> int:
    return sum(map(is_unpool_op, with_subgraph_nodes([node])))


def _plain_types(values: Iterable[onnx.ValueInfoProto]) -> Types:
    return {one.name: _plain(one.type) for one in values}


def _only_known(types: Types) -> Types:
    return {name: one for name, one in types.items() if _is_known(name, one)}


def _is_known(name: str, type_: onnx.TypeProto) -> bool:
    return type_.WhichOneof("value") is not None and shapes.element(type_) != 0 and not name.startswith(STAND_IN)


def _plain(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type without the names that onnx's inference makes up anew in every turn."""
    known = shapes.dims(type_)
    if known is None or not any(isinstance(dim, str) and dim.startswith(INVENTED) for dim in known):
        return type_
    kept = [None if isinstance(dim, str) and dim.startswith(INVENTED) else dim for dim in known]
    return shapes.tensor_type(shapes.element(type_), kept)


def _stand_ins(node: onnx.NodeProto, next_number: Callable[[], int]) -> Iterator[onnx.NodeProto]:
    """The nodes that onnx sees in place of one node."""
    if is_unpool_op(node):
        number = next_number()
        for position, output in enumerate(node.output):
            if output:
                yield helper.make_node("Identity", [f"{STAND_IN}{number}.{position}"], [output])
        return
    if not any(True for _ in subgraphs(node)):
        yield node
        return
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for _, subgraph in subgraphs(copy):
        inner = [stand_in for one in subgraph.node for stand_in in _stand_ins(one, next_number)]
        outputs, declared = (list(map(_without_shape, values)) for values in (subgraph.output, subgraph.value_info))
        for field in (subgraph.node, subgraph.output, subgraph.value_info):
            del field[:]
        subgraph.node.extend(inner)
        subgraph.output.extend(outputs)
        subgraph.value_info.extend(declared)
    yield copy


def _without_shape(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(value.name, shapes.without_shape(value.type))


def _renamed(name: str, tensor: onnx.TensorProto) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


@dataclass(frozen=True)
class SubgraphScope:
    """A subgraph together with the nodes around it.

    Attributes:
        graph: first the nodes around the subgraph, then its own; both fit into one graph, because a subgraph reuses no
            name that it sees.
        types: the known types of the values.
        own: names that its own nodes make.
    """

    graph: Graph
    types: Mapping[str, onnx.TypeProto]
    own: frozenset[str]


def iter_subgraphs(graph: Graph, inference: Inference) -> Iterator[SubgraphScope]:
    """Every subgraph at any depth."""
    return _iter_subgraphs(graph, graph.nodes, iter(inference.subgraph_types))


def _iter_subgraphs(
    around: Graph, nodes: Iterable[onnx.NodeProto], types: Iterator[Mapping[str, onnx.TypeProto]]
) -> Iterator[SubgraphScope]:
    for node in nodes:
        for _, subgraph in subgraphs(node):
            graph = lift_constants(_joined_graph(around, subgraph))
            yield from _iter_subgraphs(graph, subgraph.node, types)
            yield SubgraphScope(graph, next(types), frozenset(name for one in subgraph.node for name in one.output))


def _joined_graph(around: Graph, subgraph: onnx.GraphProto) -> Graph:
    fed = {value.name for value in subgraph.input}
    constants = {name: tensor for name, tensor in around.constants.items() if name not in fed}
    constants |= {tensor.name: tensor for tensor in subgraph.initializer}
    return replace(around, nodes=(*around.nodes, *subgraph.node), constants=constants)
