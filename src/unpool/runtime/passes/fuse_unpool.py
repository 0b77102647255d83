"""Decomposed unpoolings fused into one MaxUnpool each, and doubled pools into one MaxPool.

torch.onnx.export(dynamo=True) writes nn.MaxUnpool as

    Reshape(ScatterND(Reshape(ConstantOfShape(S)), Unsqueeze(Reshape(I)), Reshape(X)), S)

I counts in the whole output there, as the I of MaxUnpool does. Values are moved, none is computed. torch's exporter
also writes a second pool that only finds where every plane begins; a Mod takes its place.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from unpool.display import format_shape
from unpool.dtypes import AnyArray
from unpool.geometry import UnpoolWindow, window_between, window_undoing
from unpool.operators import contract
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import window_attributes
from unpool.operators.resolve import spec as resolve_spec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.dynamic_dims import DimExpr, DimExprs, DimFlow, as_int, as_ints, multiply
from unpool.runtime.graph.graph import FreshNames, Graph, prune, unused_names
from unpool.runtime.graph.nodes import attributes, domain, node_name
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import array_of
from unpool.runtime.passes.graph_writer import GraphWriter
from unpool.runtime.passes.index_flow import Indices, never_empty, offsets, trace
from unpool.runtime.passes.rewrite import NodeChange, Rewrite, apply_to_graph

FIRST_MAX_UNPOOL = 9
FIRST_AXES_INPUT = 13  # before it, the axes of Unsqueeze were an attribute


@dataclass(frozen=True)
class Scatter:
    """A ScatterND that is an unpooling.

    Attributes:
        node: the ScatterND.
        end: the Reshape behind it.
        x: the values, of the rank of the output.
        i: the indices, of that rank.
        source: what is known of the indices.
        shape: the name of a value that holds the shape of the output; "" if there is none, and all sizes are numbers.
        sizes: the shape of the output.
        lead: how many axes are before the spatial ones: 2, or 1 without a batch.
    """

    node: onnx.NodeProto
    end: onnx.NodeProto
    x: str
    i: str
    source: Indices
    shape: str
    sizes: DimExprs
    lead: int


def find_unpool_patterns(flow: DimFlow, names: FreshNames) -> Iterator[Rewrite]:
    """An edit for every ScatterND that is an unpooling."""
    if flow.graph.opsets.get("", 0) < FIRST_MAX_UNPOOL:
        return
    uses = flow.graph.uses()
    readers = {name: node for node in flow.graph.nodes for name in node.input}
    for node in flow.graph.nodes:
        if domain(node) == "" and node.op_type == "ScatterND" and uses[node.output[0]] == 1:
            end = readers.get(node.output[0])
            is_end = (
                end is not None and domain(end) == "" and end.op_type == "Reshape" and end.input[0] == node.output[0]
            )
            found = match_scatter(flow, node, end) if end is not None and is_end else None
            if found is not None:
                yield _UnpoolWriter(flow, names, found).rewrite()


def match_scatter(flow: DimFlow, node: onnx.NodeProto, end: onnx.NodeProto) -> Scatter | None:
    """The unpooling that a ScatterND and the Reshape behind it do; None if they do something else."""
    data, places, values = node.input
    ranks = (flow.rank(data), flow.rank(places), flow.rank(values))
    last = shapes.dims(flow.types.get(places)) or (None,)
    is_flat = ranks == (1, 2, 1) and last[-1] == 1
    if not is_flat or attributes(node).get("reduction", b"none") != b"none" or not _is_zero(flow, data):
        return None
    shape, sizes = _shape(flow, end, data)
    x, i = (flow.before_reshapes(name, len(sizes)) for name in (values, places))
    source = trace(flow, i)
    if source is None or any(flow.rank(name) != len(sizes) for name in (x, i)) or not _keeps_values(flow, x):
        return None
    lead = _missing_axes(flow, x, sizes, source)
    if lead is None or not _has_matching_dims(flow.dims(x), flow.dims(i)) or not _is_evident(source, sizes[lead:]):
        return None
    return Scatter(node, end, x, i, source, shape, sizes, lead)


def _is_zero(flow: DimFlow, name: str) -> bool:
    """True if every element is +0."""
    name = flow.before_reshapes(name)
    node = flow.maker(name, "ConstantOfShape")
    if node is not None:
        fill = attributes(node).get("value")
        return fill is None or _is_positive_zero(array_of(fill))
    tensor = flow.graph.constants.get(name)
    return tensor is not None and _is_positive_zero(array_of(tensor))


def _is_positive_zero(array: AnyArray) -> bool:
    return array.dtype.kind in "fV" and not array.view(np.uint8).any() if array.size else False


def _shape(flow: DimFlow, end: onnx.NodeProto, data: str) -> tuple[str, DimExprs]:
    """Name and sizes of the output's shape; no sizes if neither is known."""
    asked, made = flow.values(end.input[1]), flow.maker(flow.before_reshapes(data), "ConstantOfShape")
    filled = None if made is None else flow.values(made.input[0])
    if made is not None and asked is not None and filled is not None and _is_filled(asked, filled):
        return made.input[0], filled
    if min(as_ints(asked or ()) or (0,)) > 0 and asked is not None:
        return end.input[1], asked
    known = shapes.dims(flow.types.get(end.output[0])) or ()
    found = tuple(DimExpr(size) for size in known if isinstance(size, int))
    return "", found if len(found) == len(known) else ()


def _is_filled(asked: DimExprs, filled: DimExprs) -> bool:
    """True if Reshape to `asked` gives `filled`: they are equal, but for one -1."""
    if len(asked) != len(filled) or None in filled:
        return False
    others = [one for one, other in zip(asked, filled, strict=True) if one != other]
    return not others or others == [DimExpr(-1)]


def _keeps_values(flow: DimFlow, x: str) -> bool:
    """True if MaxUnpool has the type of the values in this opset."""
    dtype = shapes.dtype(flow.types.get(x))
    row = contract.row("MaxUnpool", "", flow.graph.opsets[""])
    return dtype is not None and dtype.name in row.value_types


def _missing_axes(flow: DimFlow, x: str, sizes: DimExprs, source: Indices) -> int | None:
    """Number of axes that X and the output share before the spatial ones; None if they share none."""
    known = flow.dims(x) or ()
    pooled = 0 if source.pool is None else len(attributes(source.pool)["kernel_shape"])
    wished = (1, 2) if pooled and len(sizes) == pooled + 1 else (2, 1)
    for lead in wished:
        if len(sizes) > lead and all(one is not None for one in sizes[:lead]) and known[:lead] == sizes[:lead]:
            return lead
    return None


def _has_matching_dims(x: DimExprs | None, i: DimExprs | None) -> bool:
    """True if two shapes may be equal."""
    pairs = zip(x or (), i or (), strict=True)
    return all(as_int(one) in (None, as_int(other)) or as_int(other) is None for one, other in pairs)


def _is_evident(source: Indices, spatial: DimExprs) -> bool:
    """True if the indices come from a pool and count in a whole tensor, or have the offsets of the output's planes."""
    if source.is_plane:
        return as_int(source.planes) == 1
    return source.pool is not None or (source.step is not None and source.step == multiply(spatial))


class _UnpoolWriter:
    """Writes the nodes of one rewrite."""

    def __init__(self, flow: DimFlow, names: FreshNames, scatter: Scatter) -> None:
        self._flow = flow
        self._names = names
        self._scatter = scatter
        self._writer = GraphWriter(names, scatter.end.output[0])

    def rewrite(self) -> Rewrite:
        """The rewrite that puts a MaxUnpool in the place of the Reshape after the ScatterND."""
        scatter, nodes = self._scatter, self._writer.nodes
        opset = self._flow.graph.opsets[""]
        pooled, windows = self._windows()
        attributes = short_attributes(windows)
        has_batch = scatter.lead == 2
        shape = scatter.shape or self._writer.constant([as_int(size) for size in scatter.sizes], "shape")
        x = scatter.x if has_batch else self._unsqueeze(scatter.x, opset)
        inputs = [x, self._indices(x, opset), shape if has_batch else self._shape_with_batch(shape)]
        output = scatter.end.output[0] if has_batch else self._names.fresh(f"{scatter.end.output[0]}_batch")
        node = helper.make_node("MaxUnpool", inputs, [output], name=scatter.node.name)
        node.attribute.extend(helper.make_attribute(name, values) for name, values in attributes.items())
        nodes.append(node)
        if not has_batch:
            end = onnx.NodeProto()
            end.CopyFrom(scatter.end)
            end.input[0] = output
            nodes.append(end)
        row = contract.row("MaxUnpool", "", opset)
        shown = ", ".join(f"{key}={value}" for key, value in attributes.items()) + self._other_window(pooled, windows)
        change = NodeChange(node_name(scatter.node), "ScatterND into zeros", f"{row.label} ({shown})")
        reason = f"fused from ScatterND {node_name(scatter.node)!r}"
        return Rewrite(scatter.end.output[0], tuple(nodes), self._writer.constants, change, output, reason)

    def _windows(self) -> tuple[list[UnpoolWindow | None], list[UnpoolWindow]]:
        """By spatial axis, the window that undoes the pool, and the one that also leads to the size of the output."""
        scatter = self._scatter
        spatial = scatter.sizes[scatter.lead :]
        small = (self._flow.dims(scatter.x) or ())[scatter.lead :]
        pooled = windows_undoing(scatter.source.pool, self._flow.graph.opsets[""], len(spatial))
        windows = [
            window_between(as_int(one), as_int(two), three)
            for one, two, three in zip(small, spatial, pooled, strict=True)
        ]
        return pooled, windows

    def _other_window(self, pooled: Sequence[UnpoolWindow | None], windows: Sequence[UnpoolWindow]) -> str:
        """Why kernel_shape is not the pool's, where it is not."""
        have, need = [None if one is None else one.size for one in pooled], [one.size for one in windows]
        sizes = as_ints(self._scatter.sizes[self._scatter.lead :])
        if None in have or have == need or sizes is None:
            return ""
        odd = "odd " if all(size % 2 for size in sizes) else ""
        shown = f"for the {odd}size {format_shape(sizes)}"
        return f"; {format_shape(need)} rather than the pool's {format_shape(have)}, {shown}"

    def _indices(self, x: str, opset: int) -> str:
        """The indices in the shape of X: the pool's own, if the offsets that were taken from them were added again."""
        scatter = self._scatter
        source = scatter.source
        if source.pool is None or source.is_plane or not source.is_whole:
            return scatter.i if scatter.lead == 2 else self._unsqueeze(scatter.i, opset)
        whole: str = source.pool.output[1]
        rank = len(scatter.sizes) + 2 - scatter.lead
        if self._flow.rank(whole) == rank:
            return whole
        known = as_ints(self._flow.dims(scatter.x) or (None,))
        if known is None:
            shape = self._writer.node("Shape", [x], "shape_of_x")
        else:
            shape = self._writer.constant([1] * (2 - scatter.lead) + list(known), "shape_of_x")
        return self._writer.node("Reshape", [whole, shape], "indices")

    def _unsqueeze(self, name: str, opset: int) -> str:
        if opset < FIRST_AXES_INPUT:
            return self._writer.node("Unsqueeze", [name], "batch", axes=[0])
        return self._writer.node("Unsqueeze", [name, self._writer.constant([0], "first")], "batch")

    def _shape_with_batch(self, shape: str) -> str:
        known = as_ints(self._scatter.sizes)
        if known is not None:
            return self._writer.constant([1, *known], "shape_with_batch")
        return self._writer.node("Concat", [self._writer.constant([1], "one"), shape], "shape_with_batch", axis=0)


MAX_ROUNDS = 64
"""Rounds at most; each looks at the whole graph, and an unpooling behind more than so many others stays decomposed."""


class FusionResult(NamedTuple):
    """The graph after all edits, the known types of its values, and the edits, round by round."""

    graph: Graph
    types: Types
    rounds: tuple[tuple[Rewrite, ...], ...]

    @property
    def edits(self) -> tuple[Rewrite, ...]:
        """The edits of all rounds."""
        return tuple(edit for one in self.rounds for edit in one)


def fuse_unpool_patterns(graph: Graph, types: Types, infer: Callable[[Graph], Types]) -> FusionResult:
    """Replace everything that can be replaced; results stay the same, bit for bit.

    Indices outside of the output, which ScatterND may refuse or count from its end, are refused then. A MaxUnpool says
    more of its output than the Reshape before, so the next one may be recognised only after it.

    Args:
        graph: constants lifted.
        types: what is known of the values.
        infer: gives the same for another graph.
    """
    rounds: list[tuple[Rewrite, ...]] = []
    finders = [find_unpool_patterns, find_doubled_pools]
    while finders and len(rounds) < MAX_ROUNDS:
        edits = tuple(finders[0](DimFlow(graph, types), unused_names(graph)))
        if edits:
            rounds.append(edits)
            graph = prune(apply_to_graph(graph, edits))
            types = infer(graph)
        else:
            finders.pop(0)
    return FusionResult(graph, types, tuple(rounds))


FIRST_MOD = 10


def find_doubled_pools(flow: DimFlow, names: FreshNames) -> Iterator[Rewrite]:
    """An edit for every Sub that takes away offsets which a pool with a window of 1 has found."""
    if flow.graph.opsets.get("", 0) < FIRST_MOD:
        return
    for node in flow.graph.nodes:
        if domain(node) == "" and node.op_type == "Sub":
            taken, source = offsets(flow, node.input[1]), trace(flow, node.output[0])
            if taken is not None and taken.tensor and source is not None and never_empty(flow, source.pool):
                yield _merge_pool(names, node, source)


def _merge_pool(names: FreshNames, node: onnx.NodeProto, source: Indices) -> Rewrite:
    writer = GraphWriter(names, node.output[0])
    inputs = [node.input[0], write_plane_size(writer, source)]
    writer.nodes.append(helper.make_node("Mod", inputs, [node.output[0]], name=node.name))
    step = as_int(source.step)
    after = "Mod by the size of a plane" + ("" if step is None else f", {step}")
    change = NodeChange(node_name(node), "MaxPool of window 1, Slice and Sub", after)
    return Rewrite(node.output[0], tuple(writer.nodes), writer.constants, change)


def write_plane_size(writer: GraphWriter, source: Indices) -> str:
    """Write the number of elements of a plane of the pooled tensor, of shape (1,)."""
    assert source.pool is not None
    step = as_int(source.step)
    if step is not None:
        return writer.constant([step], "plane")
    axes = range(len(attributes(source.pool)["kernel_shape"]))
    first = 1 if source.pool.domain else 2
    shape = writer.node("Shape", [source.pool.input[0]], "shape")
    return writer.product(shape, [first + axis for axis in axes])


def windows_undoing(pool: onnx.NodeProto | None, opset: int, rank: int) -> list[UnpoolWindow | None]:
    """For each of `rank` spatial axes the window with which an unpooling undoes a MaxPool.

    Returns:
        `window_undoing` per axis; None where there is no pool, and for axes that it pads unevenly or by auto_pad.
    """
    spec = None if pool is None else resolve_spec("MaxPool", attributes(pool), domain=domain(pool), opset=opset)
    if not isinstance(spec, MaxPoolSpec):
        return [None] * rank
    found: list[UnpoolWindow | None] = []
    for window, (begin, end) in zip(spec.windows, spec.pads, strict=True):
        is_plain = spec.padding == "NOTSET" and begin == end
        found.append(window_undoing(window, begin, ceil=spec.ceil) if is_plain else None)
    return (found + [None] * rank)[:rank]


def short_attributes(windows: Sequence[UnpoolWindow]) -> dict[str, list[int]]:
    """The windows as attributes of a MaxUnpool, without pads that are all zero."""
    return {name: values for name, values in window_attributes(windows).items() if any(values)}
