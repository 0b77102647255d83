"""Converts a Conv of stride 1 to a ConvTranspose with a flipped window, where unpool's kernels compute that faster.

    y[m, p] = sum over channels c, taps t: W[m, c, t] * x[c, p + t * dilation - begin]

    is the ConvTranspose of W'[c, m, t] = W[m, c, last - t], cut at last * dilation - begin; last = window - 1

Both sum the same products. Over two axes, onnxruntime computes one product per tap, with an output channel in every
lane of a vector. So three output channels, as in a picture, cost as much as sixteen. unpool's lanes are positions, and
Winograd's algorithm needs fewer products. onnxruntime also reads the weights again for each row of the output; those of
a large window are not in a near cache. Over one axis and over three, it first copies x for every tap.

A Conv is converted if that saves more than it costs: the call of a node, and the conversion of its input and output
between layouts. Between Convs over two axes, onnxruntime keeps maps in blocks of a vector, and fuses an Add with the
Conv before it. Convs with dilations over two axes are not converted, because unpool computes as many products for them.
Over one axis, windows of one tap stay, for which onnxruntime copies nothing, and those of one channel, of which few
products pay for an output that unpool stores.

Results differ by rounding: with n products per element by at most (2 * n + 8) * 2**-24 * (n * |x| * |W| + |bias|),
where each is the largest magnitude. So a Conv before a MaxPool with Indices usually stays: the pool would choose other
positions among nearly equal elements, and MaxUnpool would put whole values there.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.errors import UnpoolError
from unpool.execute.conv_transpose import cost, round_up_to_vectors
from unpool.graph import shapes
from unpool.graph.bare import flip_bare
from unpool.graph.graph import FreshNames, Graph, unused_names
from unpool.graph.nodes import attributes, domain, node_name, reads, with_subgraph_nodes
from unpool.graph.shapes import Types
from unpool.graph.weights import array_of
from unpool.operators.conv import flip_window
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.resolve import spec as resolve_spec

NODE_COST = 1_000_000  # multiply-adds in the time of a call, about 20 microseconds
LEAST_GAIN = 0.1  # as a part of the cost in onnxruntime: costs are estimates
ELEMENT_COST = 40  # multiply-adds in the time that an element takes from one layout to another
COPY_COST = 10  # multiply-adds in the time of one of onnxruntime's copies
PRODUCT_COST = 1.06  # multiply-adds in the time of one in onnxruntime's product of matrices over one axis
LINE_GAIN, LINE_ELEMENT_COST, LINE_COPY_COST = 0.05, 5, 8  # as above, over one axis, which has no other layout
RELOAD_COST = 10  # multiply-adds in the time of reading a weight that was not kept in a cache
VECTORS = 4  # of output channels, whose weights onnxruntime reads together, row by row of its output; 1x1 has no rows
KEPT_BYTES = 1 << 20  # of these weights, which stay in the second cache from one row to the next
TYPES = (np.float32, np.float64)
LINE, PLANE, VOLUME = RANKS = (1, 2, 3)  # spatial axes of Convs that may be converted
OPEN_SIZES = {LINE: 8192, PLANE: 32, VOLUME: 16}
"""What stands for an open size, by the number of spatial axes; the gain hardly depends on it, but for the call."""


def convert_conv(graph: Graph, types: Types, excluded: Collection[str] = ()) -> Graph:
    """The graph, constants lifted, in which Convs are ConvTransposes where that is faster; `origins` lists them.

    A Conv that makes one of the `excluded` values stays.
    """
    names: FreshNames | None = None
    nodes, constants, origins = list(graph.nodes), dict(graph.constants), dict(graph.origins)
    for position, node in enumerate(nodes):
        is_conv = node.op_type == "Conv" and domain(node) == "" and node.output[0] not in excluded
        tensor = graph.constants.get(node.input[1]) if is_conv else None
        given = None if tensor is None else _attributes(node, tensor.dims)
        if tensor is None or given is None:
            continue
        x, y = (types.get(name) for name in (node.input[0], node.output[0]))
        if not _pays(given, tensor, x, y, graph.opsets[""]):
            continue
        names = names or unused_names(graph)
        weights = names.fresh(f"{node.input[1]}_converted")
        constants[weights] = _flipped(tensor, weights, given.get("group", 1))
        inputs = [node.input[0], weights, *node.input[2:]]
        nodes[position] = helper.make_node("ConvTranspose", inputs, node.output, node_name(node), **given)
        origins[node.output[0]] = f"converted from Conv {node_name(node)!r}: faster so"
    return replace(graph, nodes=tuple(nodes), constants=constants, origins=origins) if names else graph


def _flipped(tensor: onnx.TensorProto, name: str, group: int) -> onnx.TensorProto:
    """The weight of the ConvTranspose: a bare one has no elements to flip."""
    maps, channels, *window = tensor.dims
    bare = flip_bare(tensor, name, (group * channels, maps // group, *window), group)
    return bare or numpy_helper.from_array(flip_window(array_of(tensor), group), name)


def values_before_indices(graph: Graph) -> set[str]:
    """Values on which the Indices of some MaxPool depend, in subgraphs too."""
    values: set[str] = set()
    for node in reversed(graph.nodes):
        pools = (inner for inner in with_subgraph_nodes([node]) if inner.op_type == "MaxPool")
        if any(any(pool.output[1:]) for pool in pools) or not values.isdisjoint(node.output):
            values.update(reads(node))
    return values


def _attributes(node: onnx.NodeProto, w_shape: Sequence[int]) -> dict[str, Any] | None:
    """The attributes of the ConvTranspose; None for a Conv with strides, computed pads, or lists of a wrong length."""
    given = attributes(node)
    rank, group, strides = len(w_shape) - 2, given.get("group", 1), given.pop("strides", ())
    padding, pads = given.pop("auto_pad", b"NOTSET"), given.pop("pads", None) or [0] * 2 * rank
    dilations = given.get("dilations", [1] * rank)
    is_known = padding == b"VALID" or (padding == b"NOTSET" and len(pads) == 2 * rank)
    if not is_known or len(dilations) != rank or group < 1 or w_shape[0] % group or set(strides) - {1}:
        return None
    reach = [(size - 1) * dilation for size, dilation in zip(w_shape[2:], dilations, strict=True)] * 2
    cut = [0] * len(reach) if padding == b"VALID" else pads
    pads = [far - near for far, near in zip(reach, cut, strict=True)]
    return given | {"pads": pads} if min(pads, default=0) >= 0 else None


def _pays(
    given: Mapping[str, Any], w: onnx.TensorProto, x: onnx.TypeProto | None, y: onnx.TypeProto | None, opset: int
) -> bool:
    """True if unpool saves more time than the node costs; False if shapes are unknown or do not fit."""
    maps, channels, *window = w.dims
    group, dtype, rank = given.get("group", 1), helper.tensor_dtype_to_np_dtype(w.data_type), len(window)
    x_shape, y_shape = _shape(x, channels * group), _shape(y, maps)
    if not x_shape or not y_shape or dtype not in TYPES or rank not in RANKS:
        return False
    if (rank == PLANE and max(given.get("dilations", (1,))) > 1) or (rank == LINE and 1 in (channels, *window)):
        return False
    in_onnxruntime = _cost_in_onnxruntime(w.dims, y_shape, group, dtype)
    element, least = (LINE_ELEMENT_COST, LINE_GAIN) if rank == LINE else (ELEMENT_COST, LEAST_GAIN)
    node = NODE_COST + element * (math.prod(x_shape) + math.prod(y_shape)) + least * in_onnxruntime
    if in_onnxruntime <= node:  # most Convs of a small network
        return False
    try:
        spec = resolve_spec("ConvTranspose", given, opset=opset)
        assert isinstance(spec, ConvTransposeSpec)
        return in_onnxruntime - cost(spec, x_shape, (channels * group, maps // group, *window), dtype) > node
    except UnpoolError:
        return False


def _shape(value: onnx.TypeProto | None, channels: int) -> tuple[int, ...]:
    """A shape, () if its rank is unknown; a batch of 1 and OPEN_SIZES stand for open sizes."""
    known = shapes.static_dims(value) or ()
    rank = len(known) - 2
    others = (1, channels, *[OPEN_SIZES.get(rank, 0)] * rank)
    return tuple(size if size is not None else other for size, other in zip(known, others, strict=False))


def _cost_in_onnxruntime(w_shape: Sequence[int], y_shape: Sequence[int], group: int, dtype: np.dtype[Any]) -> float:
    """Cost of a Conv in onnxruntime, in multiply-adds at the processor's peak."""
    maps, channels, *window = w_shape
    rows, terms = y_shape[0] * math.prod(y_shape[2:-1]), channels * math.prod(window)
    products = rows * y_shape[-1] * terms
    if len(window) == LINE:
        return products * (PRODUCT_COST * maps + LINE_COPY_COST * group)
    if len(window) == VOLUME:
        return products * (maps + COPY_COST * group)
    if group > 1 or dtype != np.float32:
        return products * maps
    each, together = round_up_to_vectors(maps, dtype), VECTORS * round_up_to_vectors(1, dtype)
    is_far = terms > channels and min(each, together) * terms * dtype.itemsize > KEPT_BYTES
    return products * each + (RELOAD_COST * rows * terms * each if is_far else 0)
