"""Convolutions and pools, and the operators that upsample: windows over an image, from large to small or back.

The proof of all of them is one line along every axis:

    large position = small position * stride + tap * dilation - begin

A tile begins at a multiple of the stride, and as many elements before the end of the image, so begin, the remainder of
its size and the number of windows are those of the image, and tap t of window p reads the same element in both. Taps
that fall on padding do so at an end of the image alone; at other ends of a tile they fall into its halo.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx

from unpool.geometry import Axis, pooling_walk
from unpool.graph.nodes import attributes
from unpool.graph.spec import naming, spec_of
from unpool.operators import conv_transpose, max_pool, max_unpool, resolve
from unpool.operators.contract import OperatorVersion
from unpool.operators.tensors import FeatureShape
from unpool.runtime.tiles.links import Link
from unpool.runtime.tiles.walk import Axes, Field, GraphWalk, refusal


@dataclass(frozen=True)
class PoolIndices:
    """Indices of a MaxPool: in the whole tensor, or with `is_plane` in their plane."""

    call: max_pool.MaxPoolCall
    is_plane: bool = False


def plane_indices(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Mod and Add of indices: place = index mod size, index = place + plane * size, for planes of `size` elements.

    torch counts inside a plane, so its exporters write these nodes. In a tile, `size` is that of its own planes. A node
    that does anything else with indices is refused.
    """
    name = next(name for name in node.input if name in walk.pool_indices)
    source: PoolIndices = walk.pool_indices[name]
    others = [walk.numbers(other) for other in node.input if other != name]
    number = others[0] if len(others) == 1 else None
    if node.op_type == "Mod" and number is not None and _gives_place(source, number) and node.input[0] == name:
        result = PoolIndices(source.call, is_plane=True)
    elif node.op_type == "Add" and number is not None and source.is_plane and _gives_index(source, number):
        result = PoolIndices(source.call)
    else:
        raise refusal(node, "computes with indices, which refer to a tile")
    walk.add_field(node, node.output[0], walk.fields[name], {name: {}})
    walk.pool_indices[node.output[0]] = result


def _gives_place(source: PoolIndices, divisor: np.ndarray[Any, Any]) -> bool:
    """True if the remainder is the index in a plane; a window without data has the index -1, and no remainder."""
    has_data = all((pooling_walk(axis).count > 0).all() for axis in source.call.axes)
    return has_data and divisor.size == 1 and int(divisor.reshape(-1)[0]) == prod(source.call.large.spatial)


def _gives_index(source: PoolIndices, offsets: np.ndarray[Any, Any]) -> bool:
    """True if every plane gets its own offset in the pooled tensor."""
    large = source.call.large
    shape = (large.batch, large.channels, *(1,) * len(large.spatial))
    expected = np.arange(large.batch * large.channels).reshape(shape) * prod(large.spatial)
    return offsets.ndim == len(shape) and np.array_equal(np.broadcast_to(offsets, shape), expected)


_WINDOW_ATTRIBUTES = ("kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode")


def conv(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Conv: y[p] = sum over t of w[t] * x[large]; the integer forms have w at other inputs."""
    shape = walk.shape(node.input[3 if node.op_type == "QLinearConv" else 1])
    if shape is None or any(name in walk.fields for name in node.input[1:]):
        raise refusal(node, "has weights that are not the same for every tile")
    _add_pooled_field(walk, node, channels=shape[0], kernel_shape=shape[2:])


def pool(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """AveragePool: y[p] = sum over t of x[large] / n[p]; LpPool: y[p] = (sum over t of |x[large]| ^ P) ^ (1 / P).

    n[p], the number of taps in the mean, depends only on the taps that fall on padding.
    """
    _add_pooled_field(walk, node)


def max_pool_rule(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """MaxPool: y[p] = max over t of x[large].

    Indices in a tile refer to the tensor of the tile. For a tile that begins at b, the coordinates in the image are
    those in the tile plus b.
    """
    spec, field = spec_of(node, walk.opsets, walk.semantics), walk.field(node)
    assert isinstance(spec, max_pool.MaxPoolSpec)
    spatial = _spatial(node, spec.version, field)
    call = max_pool.call(spec, field.shape)
    sources = {node.input[0]: _links(call.axes, spatial, is_upsampling=False)}
    walk.add_field(node, node.output[0], _field(spec.version, call.small, spatial), sources)
    if len(node.output) > 1 and node.output[1]:
        outer = Field(call.small.in_onnx_order(), (None, None, *spatial))
        walk.add_field(node, node.output[1], outer, sources)
        if not (spec.version.is_channels_last or spec.is_column_major):
            walk.indexed_values[node.output[1]] = node.input[0]
        walk.pool_indices[node.output[1]] = PoolIndices(call)


def max_unpool_rule(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """MaxUnpool: y[index[p]] = x[p], of indices that a MaxPool made for a tensor of the same shape.

    The index lies in the window of p, so an element of y depends on the p whose windows reach it.
    """
    spec, (x, indices) = spec_of(node, walk.opsets, walk.semantics), node.input[:2]
    assert isinstance(spec, max_unpool.MaxUnpoolSpec)
    source: PoolIndices | None = walk.pool_indices.get(indices)
    if source is None or source.is_plane or x not in walk.fields:
        raise refusal(node, "takes indices that do not come from a MaxPool")
    pooled, output_shape = source.call, walk.sizes(node, 2)
    spatial = _spatial(node, spec.version, walk.fields[x])
    outer = walk.fields[indices].shape
    with naming(node):
        call = max_unpool.call(spec, walk.fields[x].shape, outer, None if output_shape is None else tuple(output_shape))
    _check_index_space(node, pooled, call)
    links = _links(pooled.axes, spatial, is_upsampling=True)
    walk.add_field(node, node.output[0], _field(spec.version, call.large, spatial), {x: links, indices: links})


def _check_index_space(node: onnx.NodeProto, pooled: max_pool.MaxPoolCall, call: max_unpool.MaxUnpoolCall) -> None:
    """Refuse indices that refer to different positions in a tile and in the image."""
    if call.large != pooled.large:
        raise refusal(node, f"makes {call.large.spatial} of what was pooled from {pooled.large.spatial}")
    if pooled.spec.is_column_major:
        raise refusal(node, "takes indices of storage_order 1")
    if call.index_space == "inferred":
        raise refusal(node, "counts indices in another shape than that of its output")
    if call.index_space == "auto" and not all(map(_is_inside, pooled.axes, call.axes)):
        raise refusal(node, 'decides by its indices where they count; index_space="output" settles that')


def _is_inside(pooled: Axis, unpooled: Axis) -> bool:
    """True if the windows of a pool lie in those of an unpooling, so that its indices refer to the output."""
    ends = (unpooled.window.size - unpooled.begin, pooled.window.reach - pooled.begin)
    return unpooled.window.stride == pooled.window.stride and unpooled.begin >= pooled.begin and ends[0] >= ends[1]


def conv_transpose_rule(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """ConvTranspose: y[large] = sum over the taps t that reach it of w[t] * x[small]."""
    spec, field = spec_of(node, walk.opsets, walk.semantics), walk.fields.get(node.input[0])
    assert isinstance(spec, conv_transpose.ConvTransposeSpec)
    shape, bias = walk.shape(node.input[1]), walk.shape(node.input[2]) if len(node.input) > 2 else None
    if field is None or shape is None or any(name in walk.fields for name in node.input[1:]):
        raise refusal(node, "has weights that are not the same for every tile")
    spatial = _spatial(node, spec.version, field)
    with naming(node):
        call = conv_transpose.call(spec, field.shape, shape, bias)
    walk.add_output(node, _field(spec.version, call.large, spatial), _links(call.axes, spatial, is_upsampling=True))


def _add_pooled_field(walk: GraphWalk, node: onnx.NodeProto, channels: int | None = None, **windows: Any) -> None:
    """Record the output of an operator with the windows of a MaxPool, whose defaults are equal in all versions."""
    windows |= {name: value for name, value in attributes(node).items() if name in _WINDOW_ATTRIBUTES}
    with naming(node):
        spec = resolve.spec("MaxPool", windows)
    assert isinstance(spec, max_pool.MaxPoolSpec)
    field = walk.field(node)
    spatial = _spatial(node, spec.version, field)
    with naming(node):
        call = max_pool.call(spec, field.shape)
    if 0 in call.small.spatial and 0 not in call.large.spatial:
        raise refusal(node, "has a window longer than the image, for which runtimes give outputs of other sizes")
    shape = (call.small.batch, call.small.channels if channels is None else channels, *call.small.spatial)
    walk.add_output(node, Field(shape, (None, None, *spatial)), _links(call.axes, spatial, is_upsampling=False))


def _spatial(node: onnx.NodeProto, version: OperatorVersion, field: Field) -> Axes:
    """The axes of the image that the spatial axes of a feature map are."""
    axes = field.axes
    outer = (axes[0], axes[-1]) if version.is_channels_last else axes[:2]
    if any(axis is not None for axis in outer):
        raise refusal(node, "takes a spatial axis of the image for channels or batch")
    return axes[1:-1] if version.is_channels_last else axes[2:]


def _field(version: OperatorVersion, shape: FeatureShape, spatial: Axes) -> Field:
    axes: Axes = (None, *spatial, None) if version.is_channels_last else (None, None, *spatial)
    return Field(shape.in_layout(version), axes)


def _links(axes: Sequence[Axis], spatial: Axes, *, is_upsampling: bool) -> dict[int, Link]:
    pairs = zip(axes, spatial, strict=True)
    return {number: Link(axis.window, axis.begin, is_upsampling) for axis, number in pairs if number is not None}
