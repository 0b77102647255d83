"""A MaxUnpool over an axis of one element, which an Unsqueeze adds and a Squeeze drops, becomes one over the others.

torch computes max_unpool1d so, and its exporter writes

    Unsqueeze(X), Unsqueeze(I) -> MaxUnpool of windows k x 1 -> Squeeze

An index counts in the whole output, which has the same elements in the same order with and without that axis. Nothing
is left for onnxruntime then between the MaxUnpool and the steps of unpool around it.
"""

from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph, prune, unused_names
from unpool.runtime.graph.nodes import attributes, domain, node_name
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.neighbours import Neighbours

LEADING = 2  # the axes of images and channels


def narrow_unpool(graph: Graph, types: Types) -> Graph:
    """The graph, constants lifted, in which every such MaxUnpool has an axis less."""
    if not any(node.op_type == "MaxUnpool" for node in graph.nodes):
        return graph
    around, folded = Neighbours(graph, types), dict(graph.folded_nodes)
    constants, names = dict(graph.constants), unused_names(graph)
    nodes: dict[int, onnx.NodeProto] = dict(enumerate(graph.nodes))
    for position, node in enumerate(graph.nodes):
        narrow = _narrow(node, around) if node.op_type == "MaxUnpool" and domain(node) == "" else None
        end = None if narrow is None else around.next(node.output[0], "Squeeze")
        if narrow is None or end is None:
            continue
        nodes[position] = narrow
        del nodes[end]
        folded[narrow.output[0]] = (*folded.pop(node.output[0], ()), node_name(graph.nodes[end]))
        shape = _output_shape(node, around)
        if shape:
            del shape[_axes(graph.nodes[end], around)[0]]
            name = names.fresh(f"{node.input[2]}_narrow")
            constants[name] = numpy_helper.from_array(np.array(shape, np.int64), name)
            narrow.input.append(name)
    in_order = tuple(nodes[position] for position in sorted(nodes))
    return prune(replace(graph, nodes=in_order, constants=constants, folded_nodes=folded))


def _narrow(node: onnx.NodeProto, around: Neighbours) -> onnx.NodeProto | None:
    """The MaxUnpool without the axis; None if there is none, or if it is not certain that it can be dropped."""
    rank = len(shapes.dims(around.types.get(node.input[0])) or ())
    end = around.next(node.output[0], "Squeeze")
    shape = _output_shape(node, around)
    if rank <= LEADING + 1 or end is None or shape is None:
        return None
    x, axis = _without_axis(node.input[0], rank, around)
    i, axis_of_i = _without_axis(node.input[1], rank, around)
    i = i or _before_reshape(node.input[1], x, around)
    dropped = [each % rank for each in _axes(around.graph.nodes[end], around)]
    if not x or not i or axis_of_i not in (axis, -1) or axis < LEADING or dropped != [axis]:
        return None
    if shape and (len(shape) != rank or shape[axis] != 1):
        return None
    given, place, count = attributes(node), axis - LEADING, rank - LEADING
    kernel = given.get("kernel_shape") or []
    strides, pads = given.get("strides") or [1] * count, given.get("pads") or [0] * 2 * count
    if len(kernel) != count or len(strides) != count or len(pads) != 2 * count:
        return None
    if (kernel[place], strides[place], pads[place], pads[place + count]) != (1, 1, 0, 0):
        return None
    del kernel[place], strides[place], pads[place + count], pads[place]
    output = around.graph.nodes[end].output
    return helper.make_node(
        "MaxUnpool", [x, i], output, node_name(node), kernel_shape=kernel, strides=strides, pads=pads
    )


def _output_shape(node: onnx.NodeProto, around: Neighbours) -> list[int] | None:
    """The sizes that a MaxUnpool is given, none if it is given none; None if they are not constant."""
    if len(node.input) < 3 or not node.input[2]:
        return []
    array = around.array(node.input[2])
    return None if array is None else [int(size) for size in array.ravel()]


def _without_axis(name: str, rank: int, around: Neighbours) -> tuple[str, int]:
    """The input of the Unsqueeze that makes a value, and the axis that it adds; "" and -1 if there is no such node."""
    maker = around.makers.get(name)
    node = None if maker is None else around.graph.nodes[maker]
    axes = _axes(node, around) if node is not None and node.op_type == "Unsqueeze" and domain(node) == "" else []
    if node is None or len(axes) != 1 or not -rank <= axes[0] < rank:
        return "", -1
    return node.input[0], axes[0] % rank


def _before_reshape(name: str, x: str, around: Neighbours) -> str:
    """The input of the Reshape that makes a value, if it has the shape of x; otherwise ""."""
    maker = around.makers.get(name)
    node = None if maker is None else around.graph.nodes[maker]
    sizes = shapes.static_dims(around.types.get(x))
    if node is None or node.op_type != "Reshape" or domain(node) or sizes is None or None in sizes:
        return ""
    return node.input[0] if shapes.static_dims(around.types.get(node.input[0])) == sizes else ""


def _axes(node: onnx.NodeProto, around: Neighbours) -> list[int]:
    """The axes of an Unsqueeze or Squeeze; none if they are not constant."""
    if len(node.input) < 2:
        return list(attributes(node).get("axes", []))
    array = around.array(node.input[1])
    return [] if array is None else [int(axis) for axis in array.ravel()]
