"""Float types inside a model: the narrowest one that a value depends on, and models converted to wider floats.

A value is as exact as the narrowest type in which it, or a value that it depends on, was rounded. Tolerances of
comparisons follow that type.
"""

from collections.abc import Collection

import onnx
from onnx import TensorProto, helper, numpy_helper

from unpool.graph import shapes
from unpool.graph.graph import Graph
from unpool.graph.nodes import has_subgraphs, reads, subgraph_nodes, writes
from unpool.graph.shape_inference import Inference, iter_subgraphs
from unpool.graph.weights import array_of
from unpool.numerics import narrowest_float

HALF_NAMES = ("float16", "bfloat16")
HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
TYPE_ATTRIBUTES = ("to", "dtype")  # of an output


def narrowest_floats(graph: Graph, inference: Inference) -> dict[str, str]:
    """The name of that type for every value that depends on an input; "" where no node on the way makes floats.

    Inputs and constants are exact in any type, and so is the size of a value: they have no entry of their own type.
    """
    narrowest = {value.name: "" for value in graph.inputs}
    inside = _subgraph_floats(graph, inference)
    for node in graph.nodes:
        types = [narrowest[name] for name in reads(node) if name in narrowest]
        if not types or node.op_type in ("Shape", "Size"):
            continue
        types += (inside[name] for inner in subgraph_nodes(node) for name in writes(inner))
        for name in writes(node):
            narrowest[name] = narrowest_float((*types, _float_name(inference.types.get(name))))
    return narrowest


def _subgraph_floats(graph: Graph, inference: Inference) -> dict[str, str]:
    """The type of each value in subgraphs; the narrowest one where several subgraphs use its name."""
    narrowest: dict[str, str] = {}
    for scope in iter_subgraphs(graph, inference) if any(map(has_subgraphs, graph.nodes)) else ():
        for name in scope.own:
            narrowest[name] = narrowest_float((narrowest.get(name, ""), _float_name(scope.types.get(name))))
    return narrowest


def _float_name(type_: onnx.TypeProto | None) -> str:
    dtype = shapes.dtype(type_)
    return "" if dtype is None else narrowest_float((dtype.name,))


def widen(model: onnx.ModelProto, kinds: Collection[int], wide: int) -> onnx.ModelProto:
    """A copy of a model without functions, whose floats of some types are of a wider one, inputs and outputs too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _widen_graph(copy.graph, kinds, wide)
    return copy


def _widen_graph(graph: onnx.GraphProto, kinds: Collection[int], wide: int) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor, kinds, wide)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in kinds:
            value.type.tensor_type.elem_type = wide
    for attribute in (entry for node in graph.node for entry in node.attribute):
        if attribute.name in TYPE_ATTRIBUTES and attribute.i in kinds:
            attribute.i = wide
        if attribute.HasField("t"):
            _widen_tensor(attribute.t, kinds, wide)
        for subgraph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            _widen_graph(subgraph, kinds, wide)


def _widen_tensor(tensor: onnx.TensorProto, kinds: Collection[int], wide: int) -> None:
    if tensor.data_type in kinds:
        elements = array_of(tensor).astype(helper.tensor_dtype_to_np_dtype(wide))
        tensor.CopyFrom(numpy_helper.from_array(elements, tensor.name))
