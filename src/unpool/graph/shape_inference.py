"""Types and shapes of all values: unpool's own inference for the three operators, onnx's for every other node.

onnx infers wrong shapes for ceil_mode, for SAME with a window below the stride, for ConvTranspose under auto_pad or
output_shape and for pads next to auto_pad, and does not know the channels-last domain. So onnx never sees these nodes:
in place of each of their outputs it sees an Identity of an input of the graph, which gets the type that was inferred
here. Both inferences alternate, level by level, so that each node is visited once. Only subgraphs of If, Loop and Scan
with such nodes are visited repeatedly, until nothing new is found.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import accumulate, chain, count
from typing import NamedTuple, TypeAlias

import onnx
from onnx import TensorProto, helper, numpy_helper

from unpool.errors import ModelError, UnsupportedError
from unpool.graph import shapes
from unpool.graph.errors import short_message
from unpool.graph.graph import FIRST_IR_WITH_DEFAULTS, Graph, has_type, lift_constants
from unpool.graph.nodes import (
    attributes,
    domain,
    has_subgraphs,
    is_unpool_op,
    node_name,
    reads,
    subgraphs,
    with_subgraph_nodes,
    writes,
)
from unpool.graph.shapes import Dims, Types
from unpool.graph.spec import spec_of
from unpool.graph.weights import LARGE, as_input, is_large
from unpool.operators.resolve import Spec
from unpool.operators.semantics import FUSED_UNPOOL, Semantics

STAND_IN = "unpool.made."  # begin of the name of the input that stands for an output of unpool
INVENTED = "unk__"  # begin of the names that onnx's inference gives to sizes that it does not know

MAX_VISITED_NODES = 200_000  # nodes that onnx may look at for the subgraphs of one node, every time counted
Vectors: TypeAlias = Mapping[str, Dims | None]


@dataclass(frozen=True)
class ResolvedNode:
    """A node of unpool with its spec and the dims of each input, None if its rank is unknown."""

    node: onnx.NodeProto
    spec: Spec
    inputs: tuple[Dims | None, ...] = ()


@dataclass(frozen=True)
class Inference:
    """Inferred types and shapes of a graph."""

    types: Types  # of the values of the graph itself, without those whose type is unknown
    resolved: tuple[ResolvedNode, ...]  # nodes of unpool, in subgraphs too, in the order of `with_subgraph_nodes`
    subgraph_types: tuple[Mapping[str, onnx.TypeProto], ...]  # of all values that a subgraph sees, as subgraphs end


class PreparedGraph(NamedTuple):
    """A graph after all passes, the types of its values, and how unpool's operators are read."""

    graph: Graph
    types: Types
    semantics: Semantics

    def semantics_of(self, node: onnx.NodeProto) -> Semantics:
        """How a node is read; the indices of a decomposed unpooling that became a MaxUnpool count in its output."""
        return FUSED_UNPOOL if node.op_type == "MaxUnpool" and node.output[0] in self.graph.origins else self.semantics


def infer(graph: Graph, semantics: Semantics) -> Inference:
    """The types and shapes of all values, and the resolved nodes of unpool."""
    graph = lift_constants(graph)  # onnx reads the value of a Constant at any distance from the node that needs it
    inference = _GraphInference(graph, semantics)
    for plain, crossing in inference.levels():
        inference.visit_plain(plain)
        for position in crossing:
            if is_unpool_op(graph.nodes[position]):
                inference.visit_unpool_op(position)
            else:
                inference.visit_control_flow(position)
    return inference.result()


class _GraphInference:
    def __init__(self, graph: Graph, semantics: Semantics) -> None:
        self._graph = graph
        own = [list(filter(is_unpool_op, with_subgraph_nodes([node]))) for node in graph.nodes]
        self._nodes = list(chain.from_iterable(own))
        self._specs = [spec_of(node, graph.opsets, semantics) for node in self._nodes]
        self._counts = list(map(len, own))  # of nodes of unpool in each node
        self._first = list(accumulate(self._counts, initial=0))
        self._small = {name: tensor for name, tensor in graph.constants.items() if not is_large(tensor)}
        stated = {**graph.declared, **{value.name: value.type for value in graph.outputs if has_type(value)}}
        self._stated = {name: shapes.without_shape(type_) for name, type_ in stated.items()}
        self._types: Types = self._stated | stated_types(graph)
        self._vectors: MutableMapping[str, Dims | None] = dict(_vectors_of(graph.constants.items()))
        self._resolved: dict[int, ResolvedNode] = {}
        self._inner: dict[int, list[tuple[Types, ...]]] = {}
        self._imports = [helper.make_opsetid(name, version) for name, version in graph.opsets.items()]

    def levels(self) -> list[tuple[list[int], list[int]]]:
        """Positions of nodes by the number of unpool's nodes before them: those that onnx infers, then unpool's."""
        made_at: dict[str, int] = {}  # values behind a node of unpool
        levels: dict[int, tuple[list[int], list[int]]] = {}
        for position, (node, count_) in enumerate(zip(self._graph.nodes, self._counts, strict=True)):
            level = max((made_at[name] for name in reads(node) if name in made_at), default=0) if made_at else 0
            levels.setdefault(level, ([], []))[count_ > 0].append(position)
            if level or count_:
                made_at |= dict.fromkeys(node.output, level + (count_ > 0))
        return [levels[level] for level in sorted(levels)]

    def result(self) -> Inference:
        types = {name: type_ for name, type_ in self._types.items() if _is_known(name, type_)}
        in_order = chain.from_iterable(self._inner[position] for position in sorted(self._inner))
        inner = tuple(ChainMap(*own, types) for own in in_order)
        return Inference(types, tuple(self._resolved[number] for number in sorted(self._resolved)), inner)

    def visit_plain(self, positions: Sequence[int]) -> None:
        if not positions:
            return
        inferred = self._infer_by_onnx([self._graph.nodes[position] for position in positions], {})
        self._types |= _plain_types((*inferred.value_info, *inferred.output))
        visit = _SubgraphVisitor(self, self._vectors, {})
        for position, node in zip(positions, inferred.node, strict=True):
            self._inner[position] = visit.node(node, self._types, ())

    def visit_unpool_op(self, position: int) -> None:
        number = self._first[position]
        output = self._nodes[number].output
        inferred = self.infer_op(number, self._types, self._vectors)
        self._types |= {output[place]: type_ for place, type_ in inferred.items()}
        self._vectors.update(dict.fromkeys(output))

    def visit_control_flow(self, position: int) -> None:
        """Let onnx infer a node with nodes of unpool in subgraphs, again whenever their types are known better."""
        numbers = count(self._first[position])
        (stand_in,) = _stand_ins(self._graph.nodes[position], numbers.__next__)
        size = sum(1 for _ in with_subgraph_nodes([stand_in]))
        known: Types = {}
        for rounds in count(1):
            inferred = self._infer_by_onnx([stand_in], known)
            visit = _SubgraphVisitor(self, ChainMap({}, self._vectors), {})
            own: Types = _plain_types((*inferred.value_info, *inferred.output))
            inner = visit.node(inferred.node[0], ChainMap(own, self._types), ())
            if visit.made == known:
                break
            if rounds * size > MAX_VISITED_NODES:
                raise UnsupportedError(
                    f"{stand_in.op_type} node {node_name(stand_in)!r}: expected subgraphs in which few nodes of unpool "
                    f"follow each other, got {size} nodes, inferred {rounds} times. Move them out of the subgraph."
                )
            known = visit.made
        self._types |= own
        self._inner[position] = inner

    def infer_op(self, number: int, types: Mapping[str, onnx.TypeProto], vectors: Vectors) -> dict[int, onnx.TypeProto]:
        """The types of the outputs of one node of unpool, by position; its inputs are recorded for `result`."""
        node, spec = self._nodes[number], self._specs[number]
        inputs = tuple(shapes.dims(types.get(name)) if name else None for name in node.input)
        self._resolved[number] = ResolvedNode(node, spec, inputs)
        output_shape = node.input[2] if node.op_type == "MaxUnpool" and len(node.input) > 2 else ""
        dims = shapes.output_dims(spec, inputs, (vectors.get(output_shape) or ()) if output_shape else None)
        output_types = {}
        for place, name in enumerate(node.output):
            element = TensorProto.INT64 if place else shapes.element(types.get(node.input[0]))
            element = element or shapes.element(self._graph.declared.get(name))
            if name and element > 0:
                output_types[place] = shapes.tensor_type(element, dims[place])
        return output_types

    def _infer_by_onnx(self, nodes: Sequence[onnx.NodeProto], made: Types) -> onnx.GraphProto:
        own = dict.fromkeys(name for node in nodes for name in writes(node))
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        types = self._types | made if made else self._types
        fed = [name for name in read if name in types and name not in self._small and name not in own]
        inputs = [helper.make_value_info(name, types[name]) for name in fed]
        small = [name for name in read if name in self._small]
        tensors = [deepcopy(self._small[name]) for name in small]
        for name, tensor in zip(small, tensors, strict=True):
            tensor.name = name
        stated = [helper.make_value_info(name, self._stated[name]) for name in own if name in self._stated]
        graph = helper.make_graph(nodes, "nodes", inputs, [], tensors, value_info=stated)
        version = max(self._graph.ir_version, FIRST_IR_WITH_DEFAULTS)
        model = helper.make_model(graph, opset_imports=self._imports, ir_version=version)
        try:
            return infer_by_onnx(model).graph
        except Exception as error:
            raise ModelError(f"model: type inference failed: {short_message(error)}. Export it again.") from error


def infer_by_onnx(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types that onnx infers; in `model`, sizes below 0 become unknown, as in onnxruntime.

    onnx computes with them as with other numbers.
    """
    graphs = [model.graph]
    graphs += (graph for node in with_subgraph_nodes(model.graph.node) for _, graph in subgraphs(node))
    for value in chain.from_iterable((*graph.input, *graph.output, *graph.value_info) for graph in graphs):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("dim_value")
    return onnx.shape_inference.infer_shapes(model)


class _SubgraphVisitor:
    """Walks over nodes that onnx has inferred: collects the types in subgraphs, and adds those of unpool, in `made`."""

    def __init__(self, inference: _GraphInference, vectors: MutableMapping[str, Dims | None], made: Types) -> None:
        self._inference = inference
        self._vectors = vectors
        self.made = made

    def node(
        self, node: onnx.NodeProto, types: MutableMapping[str, onnx.TypeProto], around: tuple[Types, ...]
    ) -> list[tuple[Types, ...]]:
        """The types that each subgraph of a node sees, innermost first, in the order in which the subgraphs end."""
        self._vectors.update(dict.fromkeys(node.output))
        self._follow_vector(node, types)
        return [scopes for _, subgraph in subgraphs(node) for scopes in self._subgraph(subgraph, types, around)]

    def _subgraph(
        self, subgraph: onnx.GraphProto, outer: MutableMapping[str, onnx.TypeProto], around: tuple[Types, ...]
    ) -> list[tuple[Types, ...]]:
        self._vectors.update(dict.fromkeys(value.name for value in subgraph.input))
        self._vectors.update(_vectors_of((tensor.name, tensor) for tensor in subgraph.initializer))
        own = {tensor.name: as_input(tensor).type for tensor in subgraph.initializer}
        own |= _plain_types((*subgraph.input, *subgraph.value_info, *subgraph.output))
        types = ChainMap(own, outer)
        scopes: list[tuple[Types, ...]] = []
        for node in subgraph.node:
            if node.input and node.input[0].startswith(STAND_IN):
                number, place = map(int, node.input[0].removeprefix(STAND_IN).split("."))
                output_types = self._inference.infer_op(number, types, self._vectors)
                if place in output_types:
                    types[node.output[0]] = self.made[node.input[0]] = output_types[place]
            scopes += self.node(node, types, (own, *around))
        for name in [name for name, type_ in own.items() if not _is_known(name, type_)]:
            del own[name]
        return [*scopes, (own, *around)]

    def _follow_vector(self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> None:
        """Record the known integers in the vector that a Constant, a Shape or a Concat makes."""
        values: Iterable[int | str | None] | None = None
        if node.op_type not in ("Constant", "Shape", "Concat") or domain(node) != "":
            return
        given = attributes(node)
        if node.op_type == "Constant":
            values = _vector(given["value"]) if "value" in given else given.get("value_ints")
        elif node.op_type == "Shape":
            known = shapes.dims(types.get(node.input[0]))
            values = None if known is None else known[given.get("start", 0) : given.get("end")]
        elif node.op_type == "Concat":
            parts = [part for part in map(self._vectors.get, node.input) if part is not None]
            if len(parts) == len(node.input) and sum(map(len, parts)) <= LARGE:
                values = chain.from_iterable(parts)
        if values is not None:
            self._vectors[node.output[0]] = tuple(values)


def _vectors_of(tensors: Iterable[tuple[str, onnx.TensorProto]]) -> dict[str, Dims]:
    vectors = {name: _vector(tensor) for name, tensor in tensors}
    return {name: values for name, values in vectors.items() if values is not None}


def _vector(tensor: onnx.TensorProto) -> Dims | None:
    if tensor.data_type != TensorProto.INT64 or len(tensor.dims) != 1 or is_large(tensor):
        return None
    return tuple(numpy_helper.to_array(tensor).tolist())


def stated_types(graph: Graph) -> Types:
    """The types of constants and of inputs, which need no inference; a captured value may be an input without type."""
    known = {name: shapes.tensor_type(tensor.data_type, tensor.dims) for name, tensor in graph.constants.items()}
    for name, sparse in graph.sparse_constants.items():
        known[name] = shapes.tensor_type(sparse.values.data_type, list(sparse.dims))
    return known | {value.name: value.type for value in graph.inputs if has_type(value)}


def _is_known(name: str, type_: onnx.TypeProto) -> bool:
    return type_.WhichOneof("value") is not None and shapes.element(type_) != 0 and not name.startswith(STAND_IN)


def _plain_types(values: Iterable[onnx.ValueInfoProto]) -> Types:
    """The types of values without the names that onnx's inference invents in every round."""
    types = {value.name: value.type for value in values}
    for name, type_ in types.items():
        if any(dim.dim_param.startswith(INVENTED) for dim in type_.tensor_type.shape.dim):
            known = shapes.dims(type_) or ()
            kept = [None if isinstance(dim, str) and dim.startswith(INVENTED) else dim for dim in known]
            types[name] = shapes.tensor_type(shapes.element(type_), kept)
    return types


def _stand_ins(node: onnx.NodeProto, next_number: Callable[[], int]) -> Iterator[onnx.NodeProto]:
    """The nodes that onnx sees in place of one node."""
    if is_unpool_op(node):
        number = next_number()
        for position, output in enumerate(node.output):
            if output:
                yield helper.make_node("Identity", [f"{STAND_IN}{number}.{position}"], [output])
        return
    if not has_subgraphs(node):
        yield node
        return
    copy = deepcopy(node)
    for _, subgraph in subgraphs(copy):
        inner = [stand_in for one in subgraph.node for stand_in in _stand_ins(one, next_number)]
        del subgraph.node[:]
        subgraph.node.extend(inner)
        for value in (*subgraph.output, *subgraph.value_info):
            value.type.CopyFrom(shapes.without_shape(value.type))
    yield copy


@dataclass(frozen=True)
class SubgraphScope:
    """A subgraph together with the nodes around it; both fit into one graph, because it reuses no name that it sees."""

    graph: Graph  # first the nodes around the subgraph, then its own
    types: Mapping[str, onnx.TypeProto]  # as far as they are known
    own: frozenset[str]  # names that its own nodes make


def iter_subgraphs(graph: Graph, inference: Inference) -> Iterator[SubgraphScope]:
    """Every subgraph at any depth."""
    types = iter(inference.subgraph_types)

    def scopes(around: Graph, nodes: Iterable[onnx.NodeProto]) -> Iterator[SubgraphScope]:
        for _, subgraph in chain.from_iterable(map(subgraphs, nodes)):
            fed = {value.name for value in subgraph.input}
            constants = {name: tensor for name, tensor in around.constants.items() if name not in fed}
            constants |= {tensor.name: tensor for tensor in subgraph.initializer}
            visible = (*around.nodes, *subgraph.node)
            inner = lift_constants(replace(around, nodes=visible, constants=constants))
            yield from scopes(inner, subgraph.node)
            yield SubgraphScope(inner, next(types), frozenset(chain.from_iterable(map(writes, subgraph.node))))

    return scopes(graph, graph.nodes)
