"""Operators that move, cut, pad or regroup axes.

The proof of those whose links are the identity: y[s, d] = x[s, c(d)], where s is the position in the image and c maps
all other coordinates, which are the same in a tile. For the others the formula is with the rule.
"""

from math import prod

import onnx

from unpool.geometry import Window
from unpool.graph.nodes import attributes
from unpool.runtime.tiles.links import Link
from unpool.runtime.tiles.walk import Field, GraphWalk, Shape, refusal


def transpose(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Transpose: y[p(s)] = x[s], for an order p of the axes that is written down."""
    field = walk.field(node)
    order = attributes(node).get("perm", range(len(field.shape))[::-1])
    walk.add_permuted(node, [(field.shape[axis], field.axes[axis]) for axis in order])


def unsqueeze(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Unsqueeze: y[s, 0] = x[s]."""
    field = walk.field(node)
    axes = attributes(node).get("axes") or walk.ints(node, 1) or []
    rank = len(field.shape) + len(axes)
    added, own = {axis % rank for axis in axes}, zip(field.shape, field.axes, strict=True)
    walk.add_permuted(node, [(1, None) if place in added else next(own) for place in range(rank)])


def squeeze(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Squeeze of axes that are not the image's: y[s] = x[s, 0]."""
    field = walk.field(node)
    attrs = attributes(node).get("axes") or walk.ints(node, 1)
    if attrs is None:
        raise refusal(node, "drops every axis that has one element")
    dropped = {axis % len(field.shape) for axis in attrs}
    if any(field.axes[axis] is not None for axis in dropped):
        raise refusal(node, "drops a spatial axis of the image")
    own = enumerate(zip(field.shape, field.axes, strict=True))
    walk.add_permuted(node, [part for place, part in own if place not in dropped])


def concat(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Concat of channels: y[s, c] = x[s, c] for the first ones, then z[s, c - C]."""
    shapes, fields = [walk.shape(name) for name in node.input], [walk.fields.get(name) for name in node.input]
    own = next(field for field in fields if field is not None)
    axis = attributes(node).get("axis", 1) % len(own.shape)
    if own.axes[axis] is not None:
        raise refusal(node, "joins images along a spatial axis")
    if any(field is None or field.axes != own.axes for field in fields):
        raise refusal(node, "joins the image with values that are not tiled, or not alike")
    total = sum(shape[axis] for shape in shapes if shape is not None)
    walk.add_field(node, node.output[0], own.with_size(axis, total), {name: {} for name in node.input})


def split(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Split of channels: y[s, c] = x[s, c + C], for sums C of the sizes before."""
    field, attrs = walk.field(node), attributes(node)
    axis = attrs.get("axis", 0) % len(field.shape)
    if field.axes[axis] is not None:
        raise refusal(node, "cuts the image along a spatial axis")
    size, count = field.shape[axis], len(node.output)
    part = -(-size // count)
    equal = [min(part, size - part * number) for number in range(count)]
    sizes = attrs.get("split") or walk.sizes(node, 1) or equal
    for name, length in zip(node.output, sizes, strict=True):
        walk.add_field(node, name, field.with_size(axis, length), {node.input[0]: {}})


def gather(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Gather of channels: y[s, c] = x[s, index[c]]."""
    field, shape = walk.fields.get(node.input[0]), walk.shape(node.input[1])
    if field is None or shape is None or node.input[1] in walk.fields:
        raise refusal(node, "gathers by indices that are elements of the image")
    axis = attributes(node).get("axis", 0) % len(field.shape)
    if field.axes[axis] is not None:
        raise refusal(node, "gathers positions of the image")
    own = list(zip(field.shape, field.axes, strict=True))
    walk.add_permuted(node, [*own[:axis], *((size, None) for size in shape), *own[axis + 1 :]])


def slice_axes(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Slice: y[p] = x[p * step + start], with constant distances from either end of the image.

    Where start depends on the size, so does the link, and a tile is refused, because its link differs. The start and
    the step of channels are compared separately.
    """
    field = walk.field(node)
    shape, links, positions = list(field.shape), [Link()] * len(field.shape), list[int]()
    for axis, bounds in _bounds(walk, node, len(shape)).items():
        elements = range(shape[axis])[bounds]
        if field.axes[axis] is not None and (elements.step < 1 or not elements):
            raise refusal(node, "reverses the image, or takes no element of it")
        if field.axes[axis] is None:
            positions += [axis, elements.start, elements.step]
        shape[axis], links[axis] = len(elements), Link(Window(1, max(1, elements.step)), -elements.start)
    walk.record_positions(node, positions)
    walk.add_output(node, Field(tuple(shape), field.axes), field.links(links))


def _bounds(walk: GraphWalk, node: onnx.NodeProto, rank: int) -> dict[int, slice]:
    """The start and end of a Slice, by axis; INT64_MIN as the end of a backward Slice lies before the first element."""
    attrs = attributes(node)
    starts, stops = attrs.get("starts") or walk.sizes(node, 1), attrs.get("ends") or walk.sizes(node, 2)
    if starts is None or stops is None:
        raise refusal(node, "has no starts or no ends")
    axes = attrs.get("axes") or walk.ints(node, 3) or range(len(starts))
    steps = walk.sizes(node, 4) or [1] * len(starts)
    rows = zip(axes, starts, stops, steps, strict=True)
    return {
        axis % rank: slice(start, None if stop < -(2**62) and step < 0 else stop, step)
        for axis, start, stop, step in rows
    }


def pad(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Pad: y[p] = x[p - begin]; beyond the ends a number, the element at the end, or mirrored elements.

    Beyond the ends it is x[clamp(p - begin)] with mode "edge", and with "reflect" x[|p - begin|] at the first and
    x[2 * (size - 1) - (p - begin)] at the last. A tile has an end of the image with all the elements that a
    mode reads there, after those that negative pads cut off. Channels are padded by the same number in every tile.
    """
    field, attrs = walk.field(node), attributes(node)
    rank, mode = len(field.shape), attrs.get("mode", b"constant")
    if mode not in (b"constant", b"edge", b"reflect"):
        raise refusal(node, "pads one end of the image with elements of the other")
    pads = attrs.get("pads") or attrs.get("paddings") or walk.sizes(node, 1) or []
    axes = walk.ints(node, 3) or range(rank)
    shape, links, positions = list(field.shape), [Link()] * rank, list[int]()
    for axis, begin, end in zip(axes, pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True):
        mirrored = max(begin, end, 0) if mode == b"reflect" else 0
        shape[axis] += begin + end
        links[axis] = Link(begin=begin, least=1 + mirrored + max(0, -begin) + max(0, -end))
        positions += [axis % rank, begin] if field.axes[axis] is None else []
    walk.record_positions(node, positions)
    walk.add_output(node, Field(tuple(shape), field.axes), field.links(links))


def depth_to_space(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """DepthToSpace and SpaceToDepth: large[c, p * block + t] = small[c(t), p].

    The taps t are 0 to block - 1 along every axis; c(t) is by the mode.
    """
    field, block = walk.field(node), attributes(node)["blocksize"]
    if any(axis is not None for axis in field.axes[:2]):
        raise refusal(node, "takes a spatial axis of the image for channels or batch")
    grows = node.op_type == "DepthToSpace"
    outer, spatial = field.shape[:2], field.shape[2:]
    sizes = [size * block if grows else size // block for size in spatial]
    channels = outer[1] // block**2 if grows else outer[1] * block**2
    links = [Link(), Link(), *[Link(Window(block, block), is_upsampling=grows)] * len(spatial)]
    walk.add_output(node, Field((outer[0], channels, *sizes), field.axes), field.links(links))


def reshape(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Reshape and Flatten: y[.., s, ..] = x[.., s, ..], for spatial axes that stay as they are.

    An axis stays where the number of elements before it and its size are unchanged: then the formula holds in row-major
    order, and axes between such axes are regrouped. Of several candidates of one element, the rule takes the one at the
    same distance from the end: for a tile, it has to be that of the image.
    """
    field = walk.field(node)
    shape = _target_shape(walk, node, field.shape)
    axes: list[int | None] = [None] * len(shape)
    for place, (size, axis) in enumerate(zip(field.shape, field.axes, strict=True)):
        if axis is None:
            continue
        before, as_far = prod(field.shape[:place]), place - len(field.shape) + len(shape)
        candidates = [
            other
            for other, length in enumerate(shape)
            if length == size and axes[other] is None and prod(shape[:other]) == before
        ]
        if not candidates:
            raise refusal(node, "joins a spatial axis of the image with other axes, or cuts it")
        axes[as_far if as_far in candidates else candidates[0]] = axis
    walk.add_output(node, Field(shape, tuple(axes)))


def _target_shape(walk: GraphWalk, node: onnx.NodeProto, old_shape: Shape) -> Shape:
    attrs = attributes(node)
    if node.op_type == "Flatten":
        axis = attrs.get("axis", 1)
        return prod(old_shape[:axis]), prod(old_shape[axis:])
    requested = attrs.get("shape") or walk.sizes(node, 1) or []
    keeps = not attrs.get("allowzero")
    sizes = [old_shape[place] if size == 0 and keeps else size for place, size in enumerate(requested)]
    rest = prod(size for size in sizes if size != -1)
    return tuple(prod(old_shape) // max(1, rest) if size == -1 else size for size in sizes)


def expand(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Expand of axes that are not the image's: y[s, c] = x[s, 0]."""
    field = walk.fields.get(node.input[0])
    requested = walk.sizes(node, 1) or []
    if field is None:
        raise refusal(node, "fills a tensor of the size of the image")
    rank = max(len(requested), len(field.shape))
    missing = rank - len(field.shape)
    old_shape, axes = (*(1,) * missing, *field.shape), (*(None,) * missing, *field.axes)
    wanted = (*(1,) * (rank - len(requested)), *requested)
    shape = tuple(max(pair) for pair in zip(old_shape, wanted, strict=True))
    if any(axis is not None and size != own for axis, size, own in zip(axes, shape, old_shape, strict=True)):
        raise refusal(node, "stretches the image")
    walk.add_output(node, Field(shape, axes))
