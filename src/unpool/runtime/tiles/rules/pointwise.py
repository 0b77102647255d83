"""Operators that treat every position of the image by itself, alone or with all its channels."""

from collections.abc import Sequence

import numpy as np
import onnx

from unpool.runtime.graph.nodes import attributes
from unpool.runtime.tiles.walk import Axes, Field, Walk, refusal


def elementwise(walk: Walk, node: onnx.NodeProto) -> None:
    """Operators that broadcast all their inputs."""
    names = [name for name in node.input if name]
    shapes = [walk.shape(name) for name in names]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(names):
        raise refusal(node, f"reads {names[shapes.index(None)]!r}, whose shape is not known")
    try:
        full = np.broadcast_shapes(*known)
    except ValueError as error:
        raise refusal(node, f"joins shapes that do not fit, {', '.join(map(str, known))}") from error
    axes: list[int | None] = [None] * len(full)
    for field in (walk.fields[name] for name in names if name in walk.fields):
        _merge(node, axes, field.axes)
    for name, shape in zip(names, known, strict=True):
        own = walk.fields[name].axes if name in walk.fields else (None,) * len(shape)
        _check_axes(node, (name, own, shape), axes, full)
        walk.use(node, name)
    made = Field(tuple(full), tuple(axes))
    for name in node.output:
        walk.put(node, name, made, {source: {} for source in names if source in walk.fields})


def _merge(node: onnx.NodeProto, axes: list[int | None], own: Axes) -> None:
    """Add the spatial axes of one operand, which are aligned at the end."""
    begin = len(axes) - len(own)
    for place, axis in enumerate(own, begin):
        if axis is not None and axes[place] not in (None, axis):
            raise refusal(node, "joins different axes of the image")
        axes[place] = axes[place] if axis is None else axis


def _check_axes(
    node: onnx.NodeProto, operand: tuple[str, Axes, Sequence[int]], axes: Sequence[int | None], full: Sequence[int]
) -> None:
    """Refuse an operand with numbers of its own for every position, and a field that is stretched."""
    name, own, shape = operand
    begin = len(axes) - len(shape)
    for place, (axis, size) in enumerate(zip(own, shape, strict=True), begin):
        if axes[place] is not None and axis is None and size != 1:
            raise refusal(node, f"reads {name!r}, which has {size} numbers along the image and is not tiled")
        if axis is not None and size != full[place]:
            raise refusal(node, f"stretches {name!r} over the image")


def first(walk: Walk, node: onnx.NodeProto) -> None:
    """Operators of one image, whose other inputs are scalars, or have one number per channel."""
    field = walk.fields.get(node.input[0])
    if field is None or any(name in walk.fields for name in node.input[1:]):
        raise refusal(node, "is parametrised by values of the image")
    if node.op_type == "BatchNormalization" and attributes(node).get("training_mode"):
        raise refusal(node, "normalises over the image")
    for name in node.input[1:]:
        walk.use(node, name)
    for name in node.output:
        walk.put(node, name, field, {node.input[0]: {}})


def along_axis(walk: Walk, node: onnx.NodeProto) -> None:
    """Operators along one axis, or from one axis to the last, that keep the shape."""
    field = walk.fields[node.input[0]]
    default = -1 if node.op_type == "LayerNormalization" or walk.opsets[""] >= 13 else 1
    axis = _axis(walk, node, default) % len(field.axes)
    is_open = node.op_type == "LayerNormalization" or (node.op_type in _FLATTENING and walk.opsets[""] < 13)
    _keep_apart(node, field, range(axis, len(field.axes)) if is_open else [axis])
    first(walk, node)


_FLATTENING = ("Softmax", "LogSoftmax", "Hardmax")
"""Operators that before opset 13 took all axes from the given one for one axis."""


def _axis(walk: Walk, node: onnx.NodeProto, default: int) -> int:
    if node.op_type == "CumSum":
        (found,) = walk.ints(node, 1) or [0]
        return found
    return int(attributes(node).get("axis", default))


def reduce(walk: Walk, node: onnx.NodeProto) -> None:
    """ReduceSum and the like, ArgMax and ArgMin, over channels."""
    field, given = walk.fields[node.input[0]], attributes(node)
    rank = len(field.shape)
    if node.op_type in ("ArgMax", "ArgMin"):
        axes: Sequence[int] = [given.get("axis", 0)]
    else:
        axes = given.get("axes") or walk.ints(node, 1) or ([] if given.get("noop_with_empty_axes") else range(rank))
    gone = {axis % rank for axis in axes}
    _keep_apart(node, field, gone)
    kept = given.get("keepdims", 1)
    parts = [
        (1 if place in gone else size, axis)
        for place, (size, axis) in enumerate(zip(field.shape, field.axes, strict=True))
        if kept or place not in gone
    ]
    made = Field(tuple(size for size, _ in parts), tuple(axis for _, axis in parts))
    walk.put(node, node.output[0], made, {node.input[0]: {}})


def top_k(walk: Walk, node: onnx.NodeProto) -> None:
    """TopK of channels."""
    field = walk.fields[node.input[0]]
    axis = attributes(node).get("axis", -1) % len(field.shape)
    _keep_apart(node, field, [axis])
    (count,) = walk.ints(node, 1) or [attributes(node).get("k", 1)]
    made = Field((*field.shape[:axis], count, *field.shape[axis + 1 :]), field.axes)
    for name in node.output:
        walk.put(node, name, made, {node.input[0]: {}})


def mat_mul(walk: Walk, node: onnx.NodeProto) -> None:
    """MatMul of channels, which are last, with weights."""
    field, weights = walk.fields.get(node.input[0]), walk.shape(node.input[1])
    is_plain = weights is not None and len(weights) == 2 and node.input[1] not in walk.fields
    if field is None or weights is None or not is_plain or field.axes[-1] is not None:
        raise refusal(node, "multiplies positions of the image with each other")
    walk.put(node, node.output[0], Field((*field.shape[:-1], weights[1]), field.axes), {node.input[0]: {}})


def _keep_apart(node: onnx.NodeProto, field: Field, axes: Sequence[int] | set[int]) -> None:
    """Refuse an operator whose axes are spatial axes of the image."""
    if any(field.axes[axis] is not None for axis in axes):
        raise refusal(node, "works on all positions of the image at once")
