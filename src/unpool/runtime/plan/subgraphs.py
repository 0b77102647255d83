"""Subgraphs of If, Loop, Scan and SequenceMap as graphs of their own, which are planned as the model is.

Types with static shapes are stated where a partition begins: onnxruntime fuses an Add into a Conv only where it knows
that both inputs have the same shape. But it refuses correct values where a stated size is wrong, so sizes are stated
only where plain operators made them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import onnx
from onnx import TensorProto, helper

from unpool.errors import ModelError
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph, lift_constants
from unpool.runtime.graph.nodes import attributes, captured_names, domain, is_unpool_op, node_name, reads, subgraphs
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import infer
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.convert_conv import values_before_indices

_PLAIN = (
    *("Add", "BatchNormalization", "Clip", "Concat", "Conv", "Div", "Identity", "LeakyRelu", "Mul", "Relu", "Sigmoid"),
    *("Sub", "Tanh"),
)
"""Operators whose sizes onnx infers as every runtime computes them."""

CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")  # the operators whose subgraphs unpool runs
FIRST_SCAN_OF_AXES = 9  # Scan-8 has a batch and then a sequence axis instead

MOST_ROUNDS = 4  # number of rounds that make single sizes dynamic; then all sizes of loop-carried values become dynamic
Carried: TypeAlias = tuple[tuple[int, int], ...]
Maybe: TypeAlias = onnx.TypeProto | None


def static_shapes(graph: Graph, types: Types) -> Types:
    """The types with their static sizes, and these only where they are certain: names of sizes are not checked."""
    sure = {*graph.constants, *graph.sparse_constants, *(value.name for value in graph.inputs)}
    for node in graph.nodes:
        is_plain = domain(node) == "" and node.op_type in _PLAIN
        has_pads = not is_plain or attributes(node).get("auto_pad", b"NOTSET") in (b"NOTSET", b"")
        if ((is_plain and has_pads) or is_unpool_op(node)) and sure.issuperset(reads(node)):
            sure.update(node.output)
    return {name: shapes.without_names(type_, keeps_sizes=name in sure) for name, type_ in types.items()}


@dataclass(frozen=True)
class Subgraph:
    """A subgraph as a graph of its own."""

    name: str  # of the attribute that holds it
    graph: Graph  # its inputs are those of the subgraph, and then what the subgraph captures
    types: Types
    declared: tuple[onnx.ValueInfoProto, ...]  # the inputs of the subgraph, as it declares them
    captured: tuple[str, ...]  # names that it reads from the graph around it

    @property
    def fed(self) -> tuple[str, ...]:
        """Names of the inputs of the subgraph."""
        return tuple(value.name for value in self.declared)


def has_unpool_subgraphs(node: onnx.NodeProto) -> bool:
    """True if unpool can run the subgraphs of a node."""
    return domain(node) == "" and node.op_type in CONTROL_FLOW


def build_subgraphs(
    around: Graph, node: onnx.NodeProto, types: Types, semantics: Semantics, *, has_indices_after: bool
) -> Iterator[Subgraph]:
    """The subgraphs of a control flow node, before any pass.

    `around` is the graph of the node, and `types` what is certain of its values, constants included;
    `has_indices_after` tells whether the Indices of some MaxPool after the node depend on it.
    """
    for name, subgraph in subgraphs(node):
        fed, carried = _fed(node, subgraph, types, around.opsets[""])
        if len(fed) != len(subgraph.input):
            fact = f"expected {len(fed)} inputs of its {name}, got {len(subgraph.input)}"
            raise ModelError(f"{node.op_type} node {node_name(node)!r}: {fact}. Export the model again.")
        graph, known = _infer_carried(around, subgraph, types, semantics, fed, carried)
        before = _outputs_before_indices(graph, subgraph, carried, has_indices_after=has_indices_after)
        captured = tuple(value.name for value in graph.inputs[len(fed) :])
        graph = replace(graph, outputs_before_indices=before)
        yield Subgraph(name, graph, known, tuple(subgraph.input), captured)


def _fed(
    node: onnx.NodeProto, subgraph: onnx.GraphProto, types: Types, opset: int
) -> tuple[tuple[Maybe, ...], Carried]:
    """The types of a subgraph's inputs, and the positions of each input that gets an output in the next iteration."""
    given = [types.get(name) for name in node.input]
    if node.op_type == "If":
        return (), ()
    if node.op_type == "SequenceMap":
        return tuple(map(_element_type, given)), ()
    if node.op_type == "Loop":
        count = shapes.tensor_type(TensorProto.INT64, single_shape(subgraph.input[0]))
        go = shapes.tensor_type(TensorProto.BOOL, single_shape(subgraph.input[1]))
        return (count, go, *given[2:]), tuple((place + 2, place + 1) for place in range(len(given) - 2))
    count_scanned = attributes(node)["num_scan_inputs"]
    scan_axes = attributes(node).get("scan_input_axes") or [0] * count_scanned
    has_batch = opset < FIRST_SCAN_OF_AXES
    given = given[1:] if has_batch else given
    first = len(given) - count_scanned
    states = [_without_axes(type_, (0,) if has_batch else ()) for type_ in given[:first]]
    axes = [(0, 1)] * count_scanned if has_batch else [(axis,) for axis in scan_axes]
    elements = map(_without_axes, given[first:], axes)
    return (*states, *elements), tuple((place, place) for place in range(first))


def single_shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The shape in which a subgraph wants a single element: (1,) if it says so, otherwise that of a scalar."""
    return (1,) * (len(shapes.dims(value.type) or ()) == 1)


def _element_type(type_: Maybe) -> Maybe:
    if type_ is None or type_.WhichOneof("value") != "sequence_type":
        return type_
    return shapes.without_shape(type_.sequence_type.elem_type)


def _without_axes(type_: Maybe, axes: Sequence[int]) -> Maybe:
    known = shapes.dims(type_)
    if type_ is None or known is None or not axes:
        return type_
    dropped = {axis % len(known) for axis in axes if known}
    return shapes.tensor_type(shapes.element(type_), [dim for axis, dim in enumerate(known) if axis not in dropped])


def _infer_carried(
    around: Graph, subgraph: onnx.GraphProto, types: Types, semantics: Semantics, fed: Sequence[Maybe], carried: Carried
) -> tuple[Graph, Types]:
    """The graph of a subgraph whose carried values have sizes that stay the same, and what is known of its values."""
    fed = list(fed)
    for rounds_left in reversed(range(MOST_ROUNDS)):
        graph = _graph(around, subgraph, types, fed)
        known = infer(graph, semantics).types
        sure = static_shapes(graph, known)
        before = list(fed)
        for source, target in carried:
            after = sure.get(subgraph.output[target].name)
            fed[source] = _common(fed[source], after if rounds_left > 1 else None)
        if fed == before:
            break
    return graph, known


def _common(first: Maybe, second: Maybe) -> Maybe:
    if first is None or not first.HasField("tensor_type"):
        return first
    sizes, others = shapes.static_dims(first), shapes.static_dims(second)
    if sizes is None or others is None or len(sizes) != len(others):
        return shapes.without_shape(first)
    common = [size if size == other else None for size, other in zip(sizes, others, strict=True)]
    return shapes.tensor_type(shapes.element(first), common)


def _graph(around: Graph, subgraph: onnx.GraphProto, types: Types, fed: Sequence[Maybe]) -> Graph:
    """The graph of a subgraph whose inputs have these types or, where one is unknown, the declared one of any size."""
    inputs = [
        helper.make_value_info(value.name, shapes.without_shape(value.type) if type_ is None else type_)
        for value, type_ in zip(subgraph.input, fed, strict=True)
    ]
    names = {value.name for value in subgraph.input}
    own = {tensor.name: tensor for tensor in subgraph.initializer if tensor.name not in names}
    own_sparse = {one.values.name: one for one in subgraph.sparse_initializer if one.values.name not in names}
    read = dict.fromkeys(captured_names(subgraph))
    constants = {name: around.constants[name] for name in read if name in around.constants}
    sparse = {name: tensor for name, tensor in around.sparse_constants.items() if name in read}
    captured = [name for name in read if name not in constants and name not in sparse]
    graph = Graph(
        nodes=tuple(subgraph.node),
        constants=constants | own,
        sparse_constants=sparse | own_sparse,
        defaults={},
        inputs=(*inputs, *(onnx.ValueInfoProto(name=name, type=types.get(name)) for name in captured)),
        outputs=tuple(subgraph.output),
        declared={value.name: value.type for value in subgraph.value_info},
        opsets=around.opsets,
        ir_version=around.ir_version,
    )
    return lift_constants(graph)


def _outputs_before_indices(
    graph: Graph, subgraph: onnx.GraphProto, carried: Carried, *, has_indices_after: bool
) -> frozenset[str]:
    """The outputs of a subgraph on which Indices depend, of a MaxPool after the node or in a later iteration."""
    chosen = {value.name for value in subgraph.output} if has_indices_after else set()
    while True:
        before = values_before_indices(replace(graph, outputs_before_indices=frozenset(chosen)))
        handed = {subgraph.output[target].name for source, target in carried if subgraph.input[source].name in before}
        if handed <= chosen:
            return frozenset(chosen)
        chosen |= handed
