"""Replaces a second pool that only tells where every plane begins by a Mod.

torch.onnx.export writes a pool with indices as a pool, a pool with a window of 1, a Slice of the first index of every
plane of that, and a Sub:

    I - offset(n, c) = I mod (D1 * .. * Dk)

which holds for every index of a window that meets an element.
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper

from unpool.dtypes import AnyArray
from unpool.runtime.graph.dims import as_int
from unpool.runtime.graph.dynamic_dims import DimFlow
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.graph.nodes import attributes, domain, node_name
from unpool.runtime.passes.change import Change
from unpool.runtime.passes.edits import Edit
from unpool.runtime.passes.index_flow import Indices, never_empty, offsets, trace

FIRST_MOD = 10


def pool_edits(flow: DimFlow, names: FreshNames) -> Iterator[Edit]:
    """An edit for every Sub that takes away offsets which a pool with a window of 1 has found."""
    if flow.graph.opsets.get("", 0) < FIRST_MOD:
        return
    for node in flow.graph.nodes:
        if domain(node) == "" and node.op_type == "Sub":
            taken, source = offsets(flow, node.input[1]), trace(flow, node.output[0])
            if taken is not None and taken.tensor and source is not None and never_empty(flow, source.pool):
                yield _edit(names, node, source)


def _edit(names: FreshNames, node: onnx.NodeProto, source: Indices) -> Edit:
    assert source.pool is not None
    divisor, nodes, constants = plane_size(names, source)
    nodes.append(helper.make_node("Mod", [node.input[0], divisor], [node.output[0]], name=node.name))
    step = as_int(source.step)
    after = "Mod by the size of a plane" + ("" if step is None else f", {step}")
    return Edit(
        node.output[0], tuple(nodes), constants, Change(node_name(node), "MaxPool of window 1, Slice and Sub", after)
    )


def plane_size(names: FreshNames, source: Indices) -> tuple[str, list[onnx.NodeProto], dict[str, AnyArray]]:
    """A value that holds how many elements a plane of the pooled tensor has, and what makes it."""
    assert source.pool is not None
    stem = f"{source.pool.output[1]}_plane"
    step = as_int(source.step)
    if step is not None:
        name = names.fresh(stem)
        return name, [], {name: np.array([step], np.int64)}
    axes = range(len(attributes(source.pool)["kernel_shape"]))
    first = 1 if source.pool.domain else 2
    return sizes_multiplied(names, source.pool.input[0], [first + axis for axis in axes], stem)


def sizes_multiplied(
    names: FreshNames, tensor: str, axes: list[int], stem: str
) -> tuple[str, list[onnx.NodeProto], dict[str, AnyArray]]:
    """The product of the sizes of a tensor along some axes, of shape (1,)."""
    shape = names.fresh(f"{stem}_shape")
    node = helper.make_node("Shape", [tensor], [shape])
    name, nodes, constants = product_of(names, shape, axes, stem)
    return name, [node, *nodes], constants


def product_of(
    names: FreshNames, vector: str, places: list[int], stem: str
) -> tuple[str, list[onnx.NodeProto], dict[str, AnyArray]]:
    """The product of some elements of a vector, of shape (1,); a chain of Mul, which every opset has."""
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, AnyArray] = {}
    so_far = ""
    for place in places:
        at, one = names.fresh(f"{stem}_place"), names.fresh(f"{stem}_size")
        constants[at] = np.array([place], np.int64)
        nodes.append(helper.make_node("Gather", [vector, at], [one]))
        if so_far:
            both = names.fresh(stem)
            nodes.append(helper.make_node("Mul", [so_far, one], [both]))
        so_far = both if so_far else one
    return so_far, nodes, constants
