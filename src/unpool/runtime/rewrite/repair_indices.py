"""Repairs MaxUnpool nodes whose indices do not count where it counts, if it is certain what the indices mean.

Indices that count inside a plane get the offset of their plane. A window from which another size than output_shape
follows is replaced by one from which output_shape follows, if the indices are known to count in output_shape.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import helper

from unpool.geometry import window_between
from unpool.operators import resolve
from unpool.operators.max_unpool import MaxUnpoolSpec, inferred_size
from unpool.runtime.graph.dynamic_dims import DimExpr, DimExprs, DimFlow, as_int, as_ints, multiply, upsample
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, node_name
from unpool.runtime.passes.fuse_unpool import short_attributes, windows_undoing, write_plane_size
from unpool.runtime.passes.index_flow import Indices, trace
from unpool.runtime.passes.rewrite import GraphWriter, NodeChange, Rewrite


@dataclass(frozen=True)
class Unpooling:
    """A MaxUnpool with what is known of it.

    Attributes:
        node: the MaxUnpool.
        spec: what its attributes mean.
        source: what is known of its indices; None if nothing is recognised.
        small: spatial sizes of X.
        asked: spatial sizes in output_shape; None if that is not connected or not known.
        large: spatial sizes of the output; empty if not even their number is known.
    """

    node: onnx.NodeProto
    spec: MaxUnpoolSpec
    source: Indices | None
    small: DimExprs
    asked: DimExprs | None
    large: DimExprs

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
        found = tuple(map(upsample, self.small, (window.stride for window in self.spec.windows), rests))
        return bool(found) and None not in found and self.asked == found

    @property
    def has_offsets_of_asked(self) -> bool:
        """True if the offsets of planes in its indices are those of output_shape, so that they count there."""
        source = self.source
        if source is None or source.is_plane or not self.asked:
            return False
        return source.step is not None and source.step == multiply(self.asked)

    @property
    def has_plane_indices(self) -> bool:
        """True if its indices certainly count inside planes, of which there may be several."""
        source = self.source
        return source is not None and source.is_plane and as_int(source.planes) != 1

    @property
    def has_column_indices(self) -> bool:
        """True if its indices certainly come from a MaxPool with storage_order 1."""
        pool = None if self.source is None else self.source.pool
        return pool is not None and bool(attributes(pool).get("storage_order", 0))


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
            small = _spatial(flow, spec, node.input[0])
            large = asked[2:] if asked is not None else _spatial(flow, spec, node.output[0])
            yield Unpooling(node, spec, trace(flow, node.input[1]), small, asked and asked[2:], large)


def counts_in(flow: DimFlow, one: Unpooling, spatial: DimExprs) -> bool:
    """True if its indices count in a tensor of these spatial sizes, or did before offsets were taken away.

    The tensor may lack axes of one element behind the others, as for torch's 1-D unpooling, which is a 2-D one.
    """
    source = one.source
    if source is None or not source.tensor or source.pool is None or one.has_column_indices:
        return False
    known = flow.dims(source.tensor) or ()
    large = known[1:-1] if source.pool.domain else known[2:]
    return large + (DimExpr(1),) * (len(spatial) - len(large)) == spatial


def offset_edits(flow: DimFlow, names: FreshNames) -> tuple[tuple[Rewrite, ...], tuple[NodeProblem, ...]]:
    """Edits for the MaxUnpool nodes with indices inside planes, and the nodes of these that cannot be put right."""
    edits, left = [], []
    for one in unpoolings(flow):
        if not one.has_plane_indices:
            continue
        why = offset_obstacle(flow, one)
        if why:
            left.append(NodeProblem(node_name(one.node), why))
        else:
            edits.append(_with_offsets(names, one))
    return tuple(edits), tuple(left)


def window_edits(flow: DimFlow) -> tuple[tuple[Rewrite, ...], tuple[NodeProblem, ...]]:
    """Edits for the MaxUnpool nodes whose output_shape does not follow from their window, and those that must stay."""
    edits, left = [], []
    for one in unpoolings(flow):
        asked = None if one.asked is None else as_ints(one.asked)
        if one.inferred is None or asked is None or one.inferred == asked:
            continue
        if not one.has_plane_indices and counts_in(flow, one, one.asked or ()):
            edits.append(_with_window(flow, one, asked))
        else:
            why = (
                f"output_shape {list(asked)} is not the inferred {list(one.inferred)}, and it is not certain which of "
            )
            left.append(NodeProblem(node_name(one.node), why + "the two its indices count in"))
    return tuple(edits), tuple(left)


def offset_obstacle(flow: DimFlow, one: Unpooling) -> str:
    """Why the offsets of planes cannot be added to the indices of a MaxUnpool; "" if they can."""
    assert one.source is not None
    assert one.source.pool is not None
    if one.has_column_indices:
        return "its indices come from a MaxPool with storage_order 1, which MaxUnpool cannot read"
    if flow.rank(one.source.pool.output[1]) != flow.rank(one.node.input[1]):
        return "its indices have another rank than those of the pool that found them"
    if not one.large or (len(one.node.input) < 3 and multiply(one.large) is None):
        return "the size of its output is unknown"
    has_shape = len(one.node.input) > 2 and one.node.input[2] != ""
    if not has_shape and as_int(multiply(one.large)) is None and multiply(one.large) != one.source.step:
        return "the size of its output is unknown; give the sizes of the inputs with --size"
    return ""


def _with_offsets(names: FreshNames, one: Unpooling) -> Rewrite:
    source, node = one.source, one.node
    assert source is not None
    assert source.pool is not None
    whole = source.pool.output[1]
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    row = one.spec.row.label
    if source.is_whole and source.step is not None and source.step == multiply(one.large):
        copy.input[1] = whole
        change = NodeChange(
            node_name(node), f"{row} of indices inside planes", f"{row} of the indices of {node_name(source.pool)}"
        )
        return Rewrite(node.output[0], (copy,), {}, change)
    writer = GraphWriter(names, node.output[0])
    plane, step = write_plane_size(writer, source), _write_step(writer, one)
    offsets = writer.node("Mul", [writer.node("Div", [whole, plane], "planes"), step], "offsets")
    copy.input[1] = writer.node("Add", [node.input[1], offsets], "indices")
    change = NodeChange(
        node_name(node), f"{row} of indices inside planes", f"{row} of these plus the offset of their plane"
    )
    return Rewrite(node.output[0], (*writer.nodes, copy), writer.constants, change)


def _write_step(writer: GraphWriter, one: Unpooling) -> str:
    """Write the number of elements of a plane of the output, of shape (1,)."""
    step = as_int(multiply(one.large))
    if step is None:
        return writer.product(one.node.input[2], [axis + 2 for axis in range(len(one.large))])
    return writer.constant([step], "plane")


def _with_window(flow: DimFlow, one: Unpooling, asked: tuple[int, ...]) -> Rewrite:
    known = as_ints(one.small)
    assert known is not None
    opset = flow.graph.opsets[domain(one.node)]
    pooled = windows_undoing(None if one.source is None else one.source.pool, opset, len(asked))
    given = short_attributes([window_between(*each) for each in zip(known, asked, pooled, strict=True)])
    copy = onnx.NodeProto()
    copy.CopyFrom(one.node)
    kept = [value for value in one.node.attribute if value.name not in ("kernel_shape", "strides", "pads")]
    del copy.attribute[:]
    copy.attribute.extend([*kept, *(helper.make_attribute(name, values) for name, values in given.items())])
    before, after = (_described(one.spec, attributes(node)) for node in (one.node, copy))
    return Rewrite(one.node.output[0], (copy,), {}, NodeChange(node_name(one.node), before, after))


def _described(spec: MaxUnpoolSpec, given: dict[str, object]) -> str:
    shown = ", ".join(f"{name}={given[name]}" for name in ("kernel_shape", "strides", "pads") if name in given)
    return f"{spec.row.label} ({shown})"


def _spatial(flow: DimFlow, spec: MaxUnpoolSpec, name: str) -> DimExprs:
    known = flow.dims(name) or ()
    if len(known) != len(spec.windows) + 2:
        return ()
    return known[1:-1] if spec.row.is_channels_last else known[2:]
