"""Operators that treat every position of the image by itself, alone or with all its channels.

The proof of all of them: with s for a position of the image and c for all other coordinates,

    y[s, :] = f(x[s, :], z[s, :], ...)

where f is the same for every s. So a link is the identity, and each rule has to show that no axis of the image is among
those that f joins, and that no number of f depends on s or on the size of the image.
"""

from collections.abc import Sequence

import numpy as np
import onnx

from unpool.graph.nodes import attributes
from unpool.runtime.tiles.walk import Field, GraphWalk, refusal


def elementwise(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Operators that broadcast all their inputs: y[s] = f(x[s], z[s]), or f(x[s], z) without axes s."""
    shapes = {name: walk.known_shape(node, name) for name in node.input if name}
    try:
        full = np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        known = ", ".join(str(shapes[name]) for name in node.input if name)
        raise refusal(node, f"joins shapes that do not fit, {known}") from error
    axes: list[int | None] = [None] * len(full)
    sources = [name for name in shapes if name in walk.fields]
    for own in (walk.fields[name].axes for name in sources):
        for place, axis in enumerate(own, len(axes) - len(own)):  # axes are aligned at the end
            if axis is not None and axes[place] not in (None, axis):
                raise refusal(node, "joins different axes of the image")
            axes[place] = axes[place] if axis is None else axis
    output = Field(tuple(full), tuple(axes))
    for name in shapes:
        _check_operand(walk, node, name, output)
    for name in node.output:
        walk.add_field(node, name, output, {source: {} for source in sources})


def _check_operand(walk: GraphWalk, node: onnx.NodeProto, name: str, output: Field) -> None:
    """Refuse an operand with numbers of its own for every position, and a field that is stretched."""
    shape = walk.known_shape(node, name)
    own = walk.fields[name].axes if name in walk.fields else (None,) * len(shape)
    for place, (axis, size) in enumerate(zip(own, shape, strict=True), len(output.axes) - len(shape)):
        if output.axes[place] is not None and axis is None and size != 1:
            raise refusal(node, f"reads {name!r}, which has {size} numbers along the image and is not tiled")
        if axis is not None and size != output.shape[place]:
            raise refusal(node, f"stretches {name!r} over the image")


def per_channel(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Operators of one image and of scalars, or of one number per channel: y[c, s] = f(x[:, s], c)."""
    field, attrs = walk.field(node), attributes(node)
    if any(name in walk.fields for name in node.input[1:]):
        raise refusal(node, "is parametrised by values of the image")
    if node.op_type == "BatchNormalization" and (attrs.get("training_mode") or any(node.output[1:])):
        raise refusal(node, "normalises over the image")
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        mode = walk.numbers(node.input[2])
        if mode is None or mode.any():
            raise refusal(node, "drops random elements")
    _require_no_spatial_axis(node, field, _channel_axes(walk, node, field))
    for name in node.output:
        walk.add_field(node, name, field, {node.input[0]: {}})


def _channel_axes(walk: GraphWalk, node: onnx.NodeProto, field: Field) -> list[int]:
    """The axes along which an operator has one number per element, or joins elements."""
    if node.op_type in ("BatchNormalization", "LRN"):
        return [1] if len(field.shape) > 1 else [0]
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return []
    scale = walk.known_shape(node, node.input[1])
    if len(scale) > 1:
        raise refusal(node, "has a scale for every block of elements")
    return [attributes(node).get("axis", 1) % len(field.shape)] if scale else []


def along_axis(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Operators along one axis, or from one axis to the last, that keep the shape: y[:, s] = f(x[:, s])."""
    field = walk.field(node)
    # before opset 13, all axes from the given one are one axis
    is_flattening = node.op_type in ("Softmax", "LogSoftmax", "Hardmax") and walk.opsets[""] < 13
    if node.op_type == "CumSum":
        (axis,) = walk.ints(node, 1) or [0]
    else:
        axis = attributes(node).get("axis", 1 if is_flattening else -1)
    axis %= len(field.axes)
    is_open = is_flattening or node.op_type == "LayerNormalization"
    _require_no_spatial_axis(node, field, range(axis, len(field.axes)) if is_open else [axis])
    if any(node.output[1:]):
        raise refusal(node, "gives the mean, too, which no rule describes")
    for name in filter(None, node.input[1:]):
        _check_operand(walk, node, name, field)
    per_channel(walk, node)


def reduce(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """ReduceSum and the like, ArgMax and ArgMin, over channels: y[s] = f(x[:, s])."""
    field, attrs = walk.field(node), attributes(node)
    rank = len(field.shape)
    if node.op_type in ("ArgMax", "ArgMin"):
        axes: Sequence[int] = [attrs.get("axis", 0)]
    else:
        axes = attrs.get("axes") or walk.ints(node, 1) or ([] if attrs.get("noop_with_empty_axes") else range(rank))
    reduced = {axis % rank for axis in axes}
    _require_no_spatial_axis(node, field, reduced)
    keeps_axes = attrs.get("keepdims", 1)
    parts = [
        (1 if place in reduced else size, axis)
        for place, (size, axis) in enumerate(zip(field.shape, field.axes, strict=True))
        if keeps_axes or place not in reduced
    ]
    walk.add_permuted(node, parts)


def top_k(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """TopK of channels: y[:, s] and i[:, s] = f(x[:, s]), in the order of the elements."""
    field = walk.field(node)
    if not attributes(node).get("sorted", 1):
        raise refusal(node, "has sorted 0, which leaves the order open; sorted 1 does not")
    axis = attributes(node).get("axis", -1) % len(field.shape)
    _require_no_spatial_axis(node, field, [axis])
    (count,) = walk.sizes(node, 1) or [attributes(node).get("k", 1)]
    for name in node.output:
        walk.add_field(node, name, field.with_size(axis, count), {node.input[0]: {}})


def mat_mul(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """MatMul of channels, which are last, with weights: y[s, j] = sum over c of x[s, c] * w[c, j]."""
    field, weights = walk.fields.get(node.input[0]), walk.shape(node.input[1])
    is_plain = weights is not None and len(weights) == 2 and node.input[1] not in walk.fields
    if field is None or weights is None or not is_plain or field.axes[-1] is not None:
        raise refusal(node, "multiplies positions of the image with each other")
    walk.add_output(node, field.with_size(len(field.shape) - 1, weights[1]))


def _require_no_spatial_axis(node: onnx.NodeProto, field: Field, axes: Sequence[int] | set[int]) -> None:
    if any(field.axes[axis] is not None for axis in axes):
        raise refusal(node, "works on all positions of the image at once")
