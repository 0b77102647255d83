"""Repairs of MaxUnpool nodes whose indices do not count in its output, if it is certain what the indices mean.

Indices that count inside a plane get the offset of their plane. A window from which another size than output_shape
follows is replaced by one from which output_shape follows, if the indices are known to count in output_shape.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from unpool.geometry import window_between
from unpool.graph.dynamic_dims import DimExpr, DimExprs, DimFlow, as_int, as_ints, multiply, upsample
from unpool.graph.graph import FreshNames
from unpool.graph.nodes import attributes, domain, is_unpool_op, node_name
from unpool.operators import resolve
from unpool.operators.max_unpool import MaxUnpoolSpec, inferred_size
from unpool.passes.fuse_unpool import short_attributes, windows_undoing, write_plane_size
from unpool.passes.index_flow import Indices, trace
from unpool.passes.rewrite import GraphWriter, NodeChange, Rewrite, copy_node

WINDOW = ("kernel_shape", "strides", "pads")


@dataclass(frozen=True)
class Unpooling:
    """A MaxUnpool, its resolved attributes, and the known facts about its inputs and its output."""

    node: onnx.NodeProto
    spec: MaxUnpoolSpec
    source: Indices | None  # origin of its indices, if it is recognised
    shape: str  # the value that is its output_shape; "" if that is not connected
    small: DimExprs  # spatial sizes of X
    asked: DimExprs | None  # spatial sizes in output_shape; None if that is not connected or not known
    large: DimExprs  # spatial sizes of the output; empty if not even their number is known

    @property
    def pool(self) -> onnx.NodeProto | None:
        """The MaxPool of its indices."""
        return None if self.source is None else self.source.pool

    @property
    def inferred(self) -> tuple[int, ...] | None:
        """The size that follows from the attributes, if it is known."""
        known = as_ints(self.small)
        return None if not known else tuple(inferred_size(self.spec, axis, size) for axis, size in enumerate(known))

    @property
    def is_inferred(self) -> bool:
        """True if output_shape certainly is the size that follows from the attributes."""
        pairs = zip(self.spec.windows, self.spec.pads, strict=True)
        rests = [window.reach - window.stride - sum(pads) for window, pads in pairs]
        sizes = tuple(map(upsample, self.small, (window.stride for window in self.spec.windows), rests))
        return bool(sizes) and None not in sizes and self.asked == sizes

    @property
    def has_offsets_of_asked(self) -> bool:
        """True if its indices have the offsets of planes of output_shape, so that they refer to output_shape."""
        step = None if self.source is None or self.source.is_plane else self.source.step
        return step is not None and bool(self.asked) and step == multiply(self.asked or ())

    @property
    def has_plane_indices(self) -> bool:
        """True if its indices certainly count inside planes, of which there may be several."""
        return self.source is not None and self.source.is_plane and as_int(self.source.planes) != 1

    @property
    def has_column_indices(self) -> bool:
        """True if its indices certainly come from a MaxPool with storage_order 1."""
        return self.pool is not None and bool(attributes(self.pool).get("storage_order", 0))


@dataclass(frozen=True)
class NodeProblem:
    """A node with a problem that a rewrite cannot repair; `print` shows the node and the reason."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: not changed: {self.reason}"


def unpoolings(flow: DimFlow) -> Iterator[Unpooling]:
    """The MaxUnpool nodes of a graph, those inside subgraphs left out."""
    for node in flow.graph.nodes:
        if is_unpool_op(node) and node.op_type == "MaxUnpool":
            where = domain(node)
            spec = resolve.spec("MaxUnpool", attributes(node), domain=where, opset=flow.graph.opsets[where])
            assert isinstance(spec, MaxUnpoolSpec)
            shape = node.input[2] if len(node.input) > 2 else ""
            asked = flow.values(shape) if shape else None
            small, large = (_spatial(flow, spec, name) for name in (node.input[0], node.output[0]))
            asked = None if asked is None else asked[2:]
            source = trace(flow, node.input[1])
            yield Unpooling(node, spec, source, shape, small, asked, large if asked is None else asked)


def _spatial(flow: DimFlow, spec: MaxUnpoolSpec, name: str) -> DimExprs:
    known = flow.dims(name) or ()
    if len(known) != len(spec.windows) + 2:
        return ()
    return known[1:-1] if spec.version.is_channels_last else known[2:]


def counts_in(flow: DimFlow, unpooling: Unpooling, spatial: DimExprs) -> bool:
    """True if its indices count in a tensor of these spatial sizes, or did before offsets were taken away.

    The tensor may lack axes of one element after the others, as for torch's 1-D unpooling, which is a 2-D one.
    """
    source = unpooling.source
    if source is None or not source.tensor or source.pool is None or unpooling.has_column_indices:
        return False
    known = flow.dims(source.tensor) or ()
    large = known[1:-1] if source.pool.domain else known[2:]
    return large + (DimExpr(1),) * (len(spatial) - len(large)) == spatial


def offset_edits(flow: DimFlow, names: FreshNames) -> Iterator[Rewrite | NodeProblem]:
    """An edit for every MaxUnpool with indices inside planes, or the reason why it cannot be repaired."""
    for unpooling in unpoolings(flow):
        if unpooling.has_plane_indices:
            obstacle = offset_obstacle(flow, unpooling)
            yield NodeProblem(node_name(unpooling.node), obstacle) if obstacle else _with_offsets(names, unpooling)


def window_edits(flow: DimFlow) -> Iterator[Rewrite | NodeProblem]:
    """An edit for every MaxUnpool whose output_shape does not follow from its window, or the reason against it."""
    for unpooling in unpoolings(flow):
        inferred, asked = unpooling.inferred, None if unpooling.asked is None else as_ints(unpooling.asked)
        if inferred is None or asked is None or inferred == asked:
            continue
        if not unpooling.has_plane_indices and counts_in(flow, unpooling, unpooling.asked or ()):
            yield _with_window(flow, unpooling, asked)
        else:
            yield NodeProblem(
                node_name(unpooling.node),
                f"output_shape {list(asked)} is not the inferred {list(inferred)}, and it is not certain which of the "
                "two its indices count in",
            )


def offset_obstacle(flow: DimFlow, unpooling: Unpooling) -> str:
    """Why the offsets of planes cannot be added to the indices of a MaxUnpool; "" if they can."""
    source, node, plane = unpooling.source, unpooling.node, multiply(unpooling.large)
    assert source is not None
    assert source.pool is not None
    if unpooling.has_column_indices:
        return "its indices come from a MaxPool with storage_order 1, which MaxUnpool cannot read"
    if flow.rank(source.pool.output[1]) != flow.rank(node.input[1]):
        return "its indices have another rank than those of the pool that found them"
    if not unpooling.large or (len(node.input) < 3 and plane is None):
        return "the size of its output is unknown"
    if not unpooling.shape and as_int(plane) is None and plane != source.step:
        return "the size of its output is unknown; give the sizes of the inputs with --size"
    return ""


def _with_offsets(names: FreshNames, unpooling: Unpooling) -> Rewrite:
    source, node, label = unpooling.source, unpooling.node, unpooling.spec.version.label
    assert source is not None
    assert source.pool is not None
    whole, size = source.pool.output[1], multiply(unpooling.large)
    copy, writer = copy_node(node), GraphWriter(names, node.output[0])
    if source.is_whole and source.step is not None and source.step == size:
        copy.input[1], after = whole, f"{label} of the indices of {node_name(source.pool)}"
    else:
        plane, step = write_plane_size(writer, source), as_int(size)
        if step is None:
            large_plane = writer.product(unpooling.shape, [axis + 2 for axis in range(len(unpooling.large))])
        else:
            large_plane = writer.constant([step], "plane")
        offsets = writer.node("Mul", [writer.node("Div", [whole, plane], "planes"), large_plane], "offsets")
        copy.input[1] = writer.node("Add", [node.input[1], offsets], "indices")
        after = f"{label} of these plus the offset of their plane"
    writer.nodes.append(copy)
    return writer.rewrite(NodeChange(node_name(node), f"{label} of indices inside planes", after))


def _with_window(flow: DimFlow, unpooling: Unpooling, asked: tuple[int, ...]) -> Rewrite:
    node, small = unpooling.node, as_ints(unpooling.small)
    assert small is not None
    pooled = windows_undoing(unpooling.pool, flow.graph.opsets, len(asked))
    given = short_attributes([window_between(*sizes) for sizes in zip(small, asked, pooled, strict=True)])
    copy = copy_node(node, WINDOW, **given)
    shown = []
    for values in (attributes(node), attributes(copy)):
        words = ", ".join(f"{name}={values[name]}" for name in WINDOW if name in values)
        shown.append(f"{unpooling.spec.version.label} ({words})")
    return Rewrite(node.output[0], (copy,), {}, NodeChange(node_name(node), *shown))
