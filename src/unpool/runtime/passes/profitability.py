"""Profitability: an estimate whether a model runs faster with ConvTranspose and large Convs in unpool.

Every node of unpool cuts the model into partitions, and onnxruntime loses by that: no node is fused over a cut, memory
of one partition is not used again by the next, threads sleep sooner, and maps leave the blocked layout. So onnxruntime
gets the whole model where

    sum of what unpool saves  <=  LOSS * time of the model in onnxruntime

All times are in multiply-adds at the processor's peak. For a ConvTranspose, onnxruntime multiplies matrices and then
adds up the elements of the product: in two dimensions in vectors, in others one by one.

LOSS is fitted to 60 networks on Intel Xeons with AVX-512. Over three axes Convs have no blocked layout, and
onnxruntime is slower than the estimate. Over two axes a converted Conv loses its fusion with the Add or Relu behind it
and the layout of its neighbours, so a part of its savings counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from unpool.errors import UnpoolError
from unpool.execute.conv_transpose import cost
from unpool.operators.conv_transpose import ConvTransposeSpec, call
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, subgraph_nodes
from unpool.runtime.graph.semantics import Semantics, spec_of
from unpool.runtime.graph.shape_inference import infer
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.convert_conv import cost_in_onnxruntime

LOSS, LOSS_OVER_THREE_AXES = 0.11, 0.03
CONV_SHARE = 0.5  # of the savings of Convs over two axes
LEAST_TIME = 50_000_000  # of a model, a third of a millisecond: in smaller ones, products are not what takes the time
ASSUMED = {1: 1024, 2: 256}  # a size that is not known, by the number of spatial axes of an input
ASSUMED_OTHERWISE = 64
PLANE, OTHER = 70, 150  # of an element that onnxruntime adds up, over two axes and over another number
STORE_COST = 40  # of an element of unpool's result
ELEMENT_COST = 20  # of an element that any other node makes
MATRIX_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
MOST_AXES = 3  # of a ConvTranspose in onnxruntime

Sizes = tuple[int, ...]


def is_profitable(graph: Graph, types: Types, conv_savings: Mapping[str, float], semantics: Semantics) -> bool:
    """True if unpool is to run its nodes: they save enough time, or onnxruntime may not compute them as written.

    Also if it runs a computation anyway.

    Args:
        graph: constants lifted, before any Conv is converted.
        types: of its values; sizes that are not known are assumed.
        conv_savings: what is saved by each Conv that unpool would compute, by output.
        semantics: of the session.
    """
    has_cut = not all(map(is_unpool_op, graph.nodes))
    if not has_cut or graph.computations or not all(_is_plain(node, types) for node in graph.nodes):
        return True
    convs = [node for node in graph.nodes if is_unpool_op(node) and node.op_type == "ConvTranspose"]
    if not convs and not conv_savings:
        return False
    if any(None in (shapes.static_dims(value.type) or ()) for value in graph.inputs):
        types = _assume_sizes(graph, semantics)
    shape_of = Shapes(graph, types)
    try:
        savings = [_saving(node, graph, shape_of, semantics) for node in convs]
    except UnpoolError:  # raised again, with its advice, when the node is loaded or runs
        return True
    time = sum(time_in_onnxruntime(node, shape_of) for node in graph.nodes)
    if None not in savings and time < LEAST_TIME:
        return True
    has_depth = any(
        node.op_type == "Conv" and len(shape_of(node.input[0]) or ()) == MOST_AXES + 2 for node in graph.nodes
    )
    loss, share = (LOSS_OVER_THREE_AXES, 1) if has_depth else (LOSS, CONV_SHARE)
    return sum(filter(None, savings)) + share * sum(conv_savings.values()) > loss * time


def leave_conv_transpose(graph: Graph) -> Graph:
    """The graph in which onnxruntime gets every ConvTranspose."""
    names = (node.output[0] for node in graph.nodes if is_unpool_op(node) and node.op_type == "ConvTranspose")
    return replace(graph, left_to_onnxruntime=frozenset(names))


def _is_plain(node: onnx.NodeProto, types: Types) -> bool:
    """True for a node of other operators, and for those that onnxruntime computes as they are written."""
    if not is_unpool_op(node):
        return not any(map(is_unpool_op, subgraph_nodes(node)))
    if node.op_type == "MaxPool":
        return not any(node.output[1:])
    return is_plain_conv_transpose(node, types)


def is_plain_conv_transpose(node: onnx.NodeProto, types: Types) -> bool:
    """True for a ConvTranspose that onnxruntime computes as it is written."""
    given, known = attributes(node), shapes.dims(types.get(node.input[0]))
    return (
        node.op_type == "ConvTranspose"
        and domain(node) == ""
        and shapes.dtype(types.get(node.input[0])) == np.float32
        and known is not None
        and 0 < len(known) - 2 <= MOST_AXES
        and 0 not in known
        and given.get("auto_pad", b"NOTSET") == b"NOTSET"
        and not given.get("output_shape")
        and max(given.get("output_padding", ()), default=0) < min(given.get("strides", ()), default=1)
    )


def _assume_sizes(graph: Graph, semantics: Semantics) -> Types:
    """The types of all values for inputs whose unknown sizes are usual ones: a single image of the usual size."""
    inputs = []
    for value in graph.inputs:
        known = shapes.static_dims(value.type)
        if known is not None and None in known:
            usual, is_batch = ASSUMED.get(len(known) - 2, ASSUMED_OTHERWISE), len(known) > 2
            sizes = [size or (1 if axis == 0 and is_batch else usual) for axis, size in enumerate(known)]
            value = helper.make_value_info(value.name, shapes.tensor_type(shapes.element(value.type), sizes))
        inputs.append(value)
    outputs = tuple(onnx.ValueInfoProto(name=value.name) for value in graph.outputs)
    try:
        return infer(replace(graph, inputs=tuple(inputs), outputs=outputs, declared={}), semantics).types
    except UnpoolError:
        return {}


class Shapes:
    """The shape of a value, by its name; None where it is not known."""

    def __init__(self, graph: Graph, types: Types) -> None:
        self._constants, self._types = graph.constants, types

    def __call__(self, name: str) -> Sizes | None:
        """The shape of a value."""
        if name in self._constants:
            return tuple(self._constants[name].dims)
        known = shapes.static_dims(self._types.get(name)) or (None,)
        sizes = tuple(size for size in known if size is not None)
        return sizes if len(sizes) == len(known) else None


def time_in_onnxruntime(node: onnx.NodeProto, shape_of: Shapes) -> float:
    """The time of a node in onnxruntime; 0 where shapes are not known."""
    y = shape_of(node.output[0]) if node.output else None
    if y is None:
        return 0
    if node.op_type not in MATRIX_PRODUCTS or domain(node) != "":
        return ELEMENT_COST * math.prod(y)
    x, w = (shape_of(name) for name in node.input[:2])
    if not x or not w:
        return 0
    if node.op_type == "Conv":
        return cost_in_onnxruntime(w, y, attributes(node).get("group", 1), np.dtype(np.float32))
    if node.op_type == "ConvTranspose":
        return time_of_conv_transpose(x, w)
    terms = x[0] if node.op_type == "Gemm" and attributes(node).get("transA") else x[-1]
    return math.prod(y) * terms


def time_of_conv_transpose(x: Sequence[int], w: Sequence[int]) -> float:
    """The time of a ConvTranspose in onnxruntime, of input and weights of these shapes."""
    positions, products = x[0] * math.prod(x[2:]), math.prod(w[1:])
    return positions * products * (x[1] + (PLANE if len(x) == MOST_AXES + 1 else OTHER))


def _saving(node: onnx.NodeProto, graph: Graph, shape_of: Shapes, semantics: Semantics) -> float | None:
    """The time that unpool saves by a ConvTranspose; None where shapes are not known, an UnpoolError for wrong ones."""
    x, w = (shape_of(name) for name in node.input[:2])
    if x is None or w is None:
        return None
    spec = spec_of(node, graph.opsets, semantics)
    assert isinstance(spec, ConvTransposeSpec)
    y = call(spec, x, w, None).large.in_onnx_order()
    time = cost(spec, x, w, np.dtype(np.float32))
    if time == math.inf:  # small or unusual calls, whose algorithm has no model: products only
        time = math.prod(x) * math.prod(w[1:])
    return time_of_conv_transpose(x, w) - time - STORE_COST * math.prod(y)
