"""Decomposed unpoolings fused into one MaxUnpool each, and doubled pools into one MaxPool.

torch.onnx.export(dynamo=True) writes nn.MaxUnpool as

    Reshape(ScatterND(Reshape(ConstantOfShape(S)), Unsqueeze(Reshape(I)), Reshape(X)), S)

I counts in the whole output there, as the I of MaxUnpool does. Values are moved, none is computed. torch's exporter
also writes a second pool that only finds where every plane begins; a Mod takes its place.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from unpool.display import format_shape
from unpool.geometry import UnpoolWindow, window_between, window_undoing
from unpool.graph import shapes
from unpool.graph.dynamic_dims import DimExpr, DimExprs, DimFlow, as_int, as_ints, multiply
from unpool.graph.graph import FreshNames, Graph, prune, unused_names
from unpool.graph.nodes import attributes, domain, node_name
from unpool.graph.shape_inference import infer
from unpool.graph.shapes import Types
from unpool.graph.weights import array_of
from unpool.operators import contract
from unpool.operators.max_unpool import window_attributes
from unpool.operators.semantics import Semantics
from unpool.passes.index_flow import Indices, never_empty, offsets, pool_spec, trace
from unpool.passes.rewrite import GraphWriter, NodeChange, Rewrite, apply_to_graph

FIRST_MAX_UNPOOL = 9
FIRST_MOD = 10
FIRST_AXES_INPUT = 13  # before it, the axes of Unsqueeze were an attribute


@dataclass(frozen=True)
class Scatter:
    """A ScatterND that is an unpooling, and the Reshape after it."""

    node: onnx.NodeProto
    end: onnx.NodeProto
    x: str  # the values, of the rank of the output
    i: str  # the indices, of that rank
    source: Indices
    shape: str  # a value that holds the shape of the output; "" if there is none, and all sizes are numbers
    sizes: DimExprs  # the shape of the output
    lead: int  # number of axes before the spatial ones: 2, or 1 without a batch


def _find_unpool_patterns(flow: DimFlow, names: FreshNames) -> Iterator[Rewrite]:
    """A rewrite for every ScatterND that is an unpooling."""
    found = (_match_scatter(flow, *each) for each in _scatters(flow.graph))
    return (_UnpoolWriter(flow, names, each).unpool() for each in found if each is not None)


def _scatters(graph: Graph) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Every ScatterND that only a Reshape reads, and this one."""
    for node in graph.nodes if graph.opsets.get("", 0) >= FIRST_MAX_UNPOOL else ():
        if domain(node) == "" and node.op_type == "ScatterND" and node.output[0] in graph.single:
            end = graph.nodes[graph.readers[node.output[0]][0]]
            if domain(end) == "" and end.op_type == "Reshape" and end.input[0] == node.output[0]:
                yield node, end


def _match_scatter(flow: DimFlow, node: onnx.NodeProto, end: onnx.NodeProto) -> Scatter | None:
    """The unpooling that a ScatterND and the Reshape after it do; None if they do something else."""
    data, places, values = node.input
    is_flat = (flow.rank(data), flow.rank(places), flow.rank(values)) == (1, 2, 1)
    if not is_flat or (shapes.dims(flow.types.get(places)) or (None,))[-1] != 1:
        return None
    if attributes(node).get("reduction", b"none") != b"none" or not _is_zero(flow, data):
        return None
    shape, sizes = _output_shape(flow, end, data)
    x, i = (flow.before_reshapes(name, len(sizes)) for name in (values, places))
    x_dims, i_dims, source = flow.dims(x) or (), flow.dims(i) or (), trace(flow, i)
    if source is None or any(flow.rank(name) != len(sizes) for name in (x, i)):
        return None
    dtype = shapes.dtype(flow.types.get(x))
    if dtype is None or dtype.name not in contract.version_at("MaxUnpool", "", flow.graph.opsets[""]).value_types:
        return None
    lead = _lead(x_dims, sizes, source)
    pairs = zip(map(as_int, x_dims), map(as_int, i_dims), strict=True)
    if lead is None or any(size != other and None not in (size, other) for size, other in pairs):
        return None
    has_offsets = source.step is not None and source.step == multiply(sizes[lead:])
    if not (as_int(source.planes) == 1 if source.is_plane else source.pool is not None or has_offsets):
        return None  # it is not certain that the indices count in the output
    return Scatter(node, end, x, i, source, shape, sizes, lead)


def _is_zero(flow: DimFlow, name: str) -> bool:
    """True if every element is +0."""
    name = flow.before_reshapes(name)
    node = flow.maker(name, "ConstantOfShape")
    tensor = flow.graph.constants.get(name) if node is None else attributes(node).get("value")
    if tensor is None:
        return node is not None  # ConstantOfShape fills with zeros by default
    array = array_of(tensor)
    return array.size > 0 and array.dtype.kind in "fV" and not array.view(np.uint8).any()


def _output_shape(flow: DimFlow, end: onnx.NodeProto, data: str) -> tuple[str, DimExprs]:
    """Name and sizes of the output's shape; no sizes if neither is known."""
    target, zeros = flow.values(end.input[1]), flow.maker(flow.before_reshapes(data), "ConstantOfShape")
    filled = None if zeros is None else flow.values(zeros.input[0])
    if zeros is not None and target is not None and filled is not None and None not in filled:
        # a Reshape to `target` gives `filled` if they are equal, but for one -1
        others = [size for size, other in zip(target, filled, strict=False) if size != other]
        if len(target) == len(filled) and others in ([], [DimExpr(-1)]):
            return zeros.input[0], filled
    if target is not None and min(as_ints(target) or (0,)) > 0:
        return end.input[1], target
    known = shapes.dims(flow.types.get(end.output[0])) or ()
    sizes = tuple(DimExpr(size) for size in known if isinstance(size, int))
    return "", sizes if len(sizes) == len(known) else ()


def _lead(x: DimExprs, sizes: DimExprs, source: Indices) -> int | None:
    """Number of axes that X and the output share before the spatial ones; None if they share none."""
    pooled = 0 if source.pool is None else len(attributes(source.pool)["kernel_shape"])
    for lead in (1, 2) if pooled and len(sizes) == pooled + 1 else (2, 1):
        if len(sizes) > lead and None not in sizes[:lead] and x[:lead] == sizes[:lead]:
            return lead
    return None


class _UnpoolWriter(GraphWriter):
    """Writes a MaxUnpool in the place of the Reshape after the ScatterND."""

    def __init__(self, flow: DimFlow, names: FreshNames, scatter: Scatter) -> None:
        super().__init__(names, scatter.end.output[0])
        self._flow, self._scatter, self._opset = flow, scatter, flow.graph.opsets[""]

    def unpool(self) -> Rewrite:
        scatter, output, x = self._scatter, self._scatter.end.output[0], self._scatter.x
        large, small = (sizes[scatter.lead :] for sizes in (scatter.sizes, self._flow.dims(x) or ()))
        pooled = windows_undoing(scatter.source.pool, self._flow.graph.opsets, len(large))
        windows = list(map(window_between, map(as_int, small), map(as_int, large), pooled))
        given: dict[str, Any] = {**short_attributes(windows)}
        shape = scatter.shape or self.constant([as_int(size) for size in scatter.sizes], "shape")
        if scatter.lead == 1:
            x, output, known = self._unsqueeze(x), self.names.fresh(f"{output}_batch"), as_ints(scatter.sizes)
            if known is None:
                shape = self.node("Concat", [self.constant([1], "one"), shape], "shape_with_batch", axis=0)
            else:
                shape = self.constant([1, *known], "shape_with_batch")
        inputs = [x, self._indices(x), shape]
        self.nodes.append(helper.make_node("MaxUnpool", inputs, [output], scatter.node.name, **given))
        if scatter.lead == 1:
            self.nodes.append(deepcopy(scatter.end))
            self.nodes[-1].input[0] = output
        shown = ", ".join(f"{key}={value}" for key, value in given.items()) + _other_window(pooled, windows, large)
        after = f"{contract.version_at('MaxUnpool', '', self._opset).label} ({shown})"
        change = NodeChange(node_name(scatter.node), "ScatterND into zeros", after)
        return self.rewrite(change, output, f"fused from ScatterND {node_name(scatter.node)!r}")

    def _indices(self, x: str) -> str:
        """The indices in the shape of X: the pool's own, if the offsets that were taken from them were added again."""
        scatter, source = self._scatter, self._scatter.source
        if source.pool is None or source.is_plane or not source.is_whole:
            return scatter.i if scatter.lead == 2 else self._unsqueeze(scatter.i)
        whole: str = source.pool.output[1]
        if self._flow.rank(whole) == len(scatter.sizes) + 2 - scatter.lead:
            return whole
        known = as_ints(self._flow.dims(scatter.x) or (None,))
        if known is None:
            shape = self.node("Shape", [x], "shape_of_x")
        else:
            shape = self.constant([1] * (2 - scatter.lead) + list(known), "shape_of_x")
        return self.node("Reshape", [whole, shape], "indices")

    def _unsqueeze(self, name: str) -> str:
        if self._opset < FIRST_AXES_INPUT:
            return self.node("Unsqueeze", [name], "batch", axes=[0])
        return self.node("Unsqueeze", [name, self.constant([0], "first")], "batch")


def _other_window(pooled: Sequence[UnpoolWindow | None], windows: Sequence[UnpoolWindow], large: DimExprs) -> str:
    """The reason why kernel_shape is not the pool's, where it is not."""
    have, need = [window and window.size for window in pooled], [window.size for window in windows]
    sizes = as_ints(large)
    if None in have or have == need or sizes is None:
        return ""
    odd = "odd " if all(size % 2 for size in sizes) else ""
    return (
        f"; {format_shape(need)} rather than the pool's {format_shape(have)}, for the {odd}size {format_shape(sizes)}"
    )


MAX_ROUNDS = 64  # each reads the whole graph; an unpooling after more others than these stays decomposed


class FusionResult(NamedTuple):
    """The graph after all rewrites, the known types of its values, and the rewrites, round by round."""

    graph: Graph
    types: Types
    rounds: tuple[tuple[Rewrite, ...], ...]


def fuse_unpool_patterns(graph: Graph, types: Types, semantics: Semantics) -> FusionResult:
    """The graph, constants lifted, with every pattern replaced; results stay the same, bit for bit.

    Indices outside of the output, which ScatterND may refuse or count from its end, are refused then. The shape of a
    MaxUnpool is known better than that of the Reshape before, so the next one may be recognised only after it.
    """
    rounds: list[tuple[Rewrite, ...]] = []
    finders = [_find_unpool_patterns] if any(_scatters(graph)) else []
    if any(node.op_type == "MaxPool" and any(node.output[1:]) for node in graph.nodes):
        finders.append(_find_doubled_pools)
    while finders and len(rounds) < MAX_ROUNDS:
        edits = tuple(finders[0](DimFlow(graph, types), unused_names(graph)))
        if edits:
            rounds.append(edits)
            graph = prune(apply_to_graph(graph, edits))
            types = infer(graph, semantics).types
        else:
            finders.pop(0)
    return FusionResult(graph, types, tuple(rounds))


def _find_doubled_pools(flow: DimFlow, names: FreshNames) -> Iterator[Rewrite]:
    """A rewrite to a Mod for every Sub of offsets which a pool with a window of 1 has found."""
    if flow.graph.opsets.get("", 0) < FIRST_MOD:
        return
    for node in flow.graph.nodes:
        if domain(node) != "" or node.op_type != "Sub":
            continue
        taken, source = offsets(flow, node.input[1]), trace(flow, node.output[0])
        if taken is None or not taken.tensor or source is None or not never_empty(flow, source.pool):
            continue
        if as_int(source.step) == 0:  # onnxruntime refuses a Mod by 0, also of no elements
            continue
        writer = GraphWriter(names, node.output[0])
        inputs = [node.input[0], write_plane_size(writer, source)]
        writer.nodes.append(helper.make_node("Mod", inputs, [node.output[0]], name=node.name))
        step = as_int(source.step)
        after = "Mod by the size of a plane" + ("" if step is None else f", {step}")
        change = NodeChange(node_name(node), "MaxPool of window 1, Slice and Sub", after)
        yield writer.rewrite(change)


def write_plane_size(writer: GraphWriter, source: Indices) -> str:
    """Write the number of elements of a plane of the pooled tensor, of shape (1,)."""
    assert source.pool is not None
    step = as_int(source.step)
    if step is not None:
        return writer.constant([step], "plane")
    first = 1 if source.pool.domain else 2
    shape = writer.node("Shape", [source.pool.input[0]], "shape")
    return writer.product(shape, range(first, first + len(attributes(source.pool)["kernel_shape"])))


def windows_undoing(pool: onnx.NodeProto | None, opsets: Mapping[str, int], rank: int) -> list[UnpoolWindow | None]:
    """For each of `rank` spatial axes the window with which an unpooling undoes a MaxPool, see `window_undoing`.

    None where there is no pool, and for axes that it pads unevenly or by auto_pad.
    """
    if pool is None:
        return [None] * rank
    spec = pool_spec(pool, opsets)
    windows: list[UnpoolWindow | None] = [
        window_undoing(window, begin, ceil=spec.ceil) if spec.padding == "NOTSET" and begin == end else None
        for window, (begin, end) in zip(spec.windows, spec.pads, strict=True)
    ]
    return (windows + [None] * rank)[:rank]


def short_attributes(windows: Sequence[UnpoolWindow]) -> dict[str, list[int]]:
    """The windows as attributes of a MaxUnpool, without pads that are all zero."""
    return {name: values for name, values in window_attributes(windows).items() if any(values)}
