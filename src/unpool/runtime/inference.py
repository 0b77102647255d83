"""Types and shapes of all values: our own inference for the three operators, onnx's for every other node.

onnx's is wrong for ceil_mode, for SAME with a window below the stride, for ConvTranspose under auto_pad or output_shape
and for pads beside auto_pad, and does not know the channels-last domain. It therefore sees each output of our nodes as
an Identity of an input of the graph, whose type is what we know so far. Both take turns until nothing new is found: as
often as the data passes through our nodes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import onnx
from onnx import TensorProto, helper, numpy_helper

from unpool.errors import ModelError
from unpool.operators.resolve import Spec
from unpool.runtime import shapes
from unpool.runtime.bound import Meaning, bind
from unpool.runtime.graph import Graph
from unpool.runtime.light import as_input, is_large
from unpool.runtime.nodes import attributes, bodies, domain, is_ours, with_inner
from unpool.runtime.shapes import Types
from unpool.runtime.symbolic import Dims, output_dims

MADE = "unpool.made."
INVENTED = "unk__"  # how onnx's inference names a size that it does not know


@dataclass(frozen=True)
class OurNode:
    """A node of ours with its spec and the dims of its inputs: None where the rank is unknown."""

    node: onnx.NodeProto
    spec: Spec
    inputs: tuple[Dims | None, ...] = ()


@dataclass(frozen=True)
class Inference:
    """What is known of a graph.

    Attributes:
        types: of every value of the graph itself, those of unknown type left out.
        ours: our nodes, inside bodies too, in the order of `nodes.with_inner`.
        inner: of every value that each body sees, in the order in which the bodies end.
    """

    types: Types
    ours: tuple[OurNode, ...]
    inner: tuple[Types, ...]


def infer(graph: Graph, meaning: Meaning) -> Inference:
    """What is known of every value and of the inputs of our nodes.

    Raises:
        ModelError: onnx's inference fails on the model.
        UnpoolError: a node of ours breaks its contract.
    """
    ours = tuple(OurNode(node, bind(node, graph.opsets, meaning)) for node in with_inner(graph.nodes) if is_ours(node))
    skeleton = _skeleton(graph)
    known: Types = {}
    while True:
        inferred = _by_onnx(skeleton, known)
        turn = _Turn(graph, ours)
        types = turn.visit(inferred, stated_types(graph))
        if turn.made == known:
            inner = tuple(map(_only_known, turn.inner))
            return Inference(_only_known(types), tuple(turn.ours), inner)
        known = turn.made


class _Turn:
    """One walk over what onnx inferred: our nodes' inputs are read off, and their outputs are made."""

    def __init__(self, graph: Graph, ours: tuple[OurNode, ...]) -> None:
        self._nodes = ours
        self._declared = graph.declared
        self._vectors = _vectors_of(graph.constants.items())
        self.ours: list[OurNode] = []
        self.inner: list[Types] = []
        self.made: Types = {}

    def visit(self, body: onnx.GraphProto, outer: Mapping[str, onnx.TypeProto]) -> Types:
        """Walk a graph or body; `outer` holds the types that it sees around it, the result its own as well."""
        for one in body.input:
            self._vectors.pop(one.name, None)
        self._vectors |= _vectors_of((one.name, one) for one in body.initializer)
        types = {one.name: as_input(one).type for one in body.initializer}
        types |= {one.name: _plain(one.type) for one in (*body.input, *body.value_info, *body.output)}
        types |= outer
        for node in body.node:
            if node.input and node.input[0].startswith(MADE):
                self._our_output(node, types)
            for name in node.output:
                self._vectors.pop(name, None)
            self._follow_vector(node, types)
            for _, inner in bodies(node):
                self.inner.append(self.visit(inner, types))
        return types

    def _our_output(self, identity: onnx.NodeProto, types: Types) -> None:
        number, position = map(int, identity.input[0].removeprefix(MADE).split("."))
        if number == len(self.ours):
            node = self._nodes[number].node
            inputs = tuple(shapes.dims(types.get(name)) if name else None for name in node.input)
            self.ours.append(OurNode(node, self._nodes[number].spec, inputs))
        ours = self.ours[number]
        name = ours.node.output[position]
        asked = ours.node.input[2] if ours.node.op_type == "MaxUnpool" and len(ours.node.input) > 2 else ""
        found = output_dims(ours.spec, ours.inputs, self._vectors.get(asked, ()) if asked else None)[position]
        element = TensorProto.INT64 if position else shapes.element(types.get(ours.node.input[0]))
        element = element or shapes.element(self._declared.get(name))
        if element > 0:
            types[name] = self.made[identity.input[0]] = shapes.tensor_type(element, found)

    def _follow_vector(self, node: onnx.NodeProto, types: Types) -> None:
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
        elif node.op_type == "Concat" and all(name in self._vectors for name in node.input):
            values = [size for name in node.input for size in self._vectors[name]]
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
    """What needs no inference: constants and inputs."""
    known = {name: as_input(tensor).type for name, tensor in graph.constants.items()}
    for name, sparse in graph.sparse_constants.items():
        known[name] = shapes.tensor_type(sparse.values.data_type, list(sparse.dims))
    return known | {value.name: value.type for value in graph.inputs}


def _only_known(types: Types) -> Types:
    return {name: one for name, one in types.items() if _is_known(name, one)}


def _is_known(name: str, type_: onnx.TypeProto) -> bool:
    return type_.WhichOneof("value") is not None and shapes.element(type_) != 0 and not name.startswith(MADE)


def _plain(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type without the names that onnx's inference makes up anew in every turn."""
    known = shapes.dims(type_)
    if known is None or not any(isinstance(dim, str) and dim.startswith(INVENTED) for dim in known):
        return type_
    kept = [None if isinstance(dim, str) and dim.startswith(INVENTED) else dim for dim in known]
    return shapes.tensor_type(shapes.element(type_), kept)


def _by_onnx(skeleton: onnx.ModelProto, made: Types) -> onnx.GraphProto:
    model = onnx.ModelProto()
    model.CopyFrom(skeleton)
    model.graph.input.extend(helper.make_value_info(name, type_) for name, type_ in made.items())
    try:
        return onnx.shape_inference.infer_shapes(model).graph
    except Exception as error:
        raise ModelError(
            f"model: expected a graph whose types can be inferred, got: {error}. Export it again."
        ) from error


def _skeleton(graph: Graph) -> onnx.ModelProto:
    numbers = count()
    nodes = [stand_in for node in graph.nodes for stand_in in _stand_ins(node, numbers.__next__)]
    small = {name: tensor for name, tensor in graph.constants.items() if not is_large(tensor)}
    fed = {value.name for value in graph.inputs}
    given = [
        helper.make_value_info(name, one) for name, one in stated_types(graph).items() if name not in {*small, *fed}
    ]
    known = {*graph.constants, *graph.sparse_constants, *fed}
    body = helper.make_graph(
        nodes,
        "skeleton",
        [*graph.inputs, *given],
        list(map(_without_shape, graph.outputs)),
        [_renamed(name, tensor) for name, tensor in small.items()],
        value_info=[
            helper.make_value_info(name, shapes.without_shape(one))
            for name, one in graph.declared.items()
            if name not in known
        ],
    )
    imports = [helper.make_opsetid(name, version) for name, version in graph.opsets.items()]
    return helper.make_model(body, opset_imports=imports, ir_version=max(graph.ir_version, 4))


def _stand_ins(node: onnx.NodeProto, next_number: Callable[[], int]) -> Iterator[onnx.NodeProto]:
    """The nodes that onnx sees in place of one node."""
    if is_ours(node):
        number = next_number()
        for position, output in enumerate(node.output):
            if output:
                yield helper.make_node("Identity", [f"{MADE}{number}.{position}"], [output])
        return
    if not any(True for _ in bodies(node)):
        yield node
        return
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for _, body in bodies(copy):
        inner = [stand_in for one in body.node for stand_in in _stand_ins(one, next_number)]
        outputs, declared = (list(map(_without_shape, values)) for values in (body.output, body.value_info))
        for field in (body.node, body.output, body.value_info):
            del field[:]
        body.node.extend(inner)
        body.output.extend(outputs)
        body.value_info.extend(declared)
    yield copy


def _without_shape(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(value.name, shapes.without_shape(value.type))


def _renamed(name: str, tensor: onnx.TensorProto) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy
