"""The form in which every MaxUnpool of a graph is lowered, and the edit that puts it there.

If its indices are those of a MaxPool of the same graph and count in its output, they are found again by comparison
(`emit_argmax_taps`, `emit_where_unpool`); all other indices are scattered (`emit_scatter`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx

from unpool.errors import UnsupportedError
from unpool.geometry import Window
from unpool.operators import max_pool, resolve
from unpool.operators.max_pool import MaxPoolSpec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.dynamic_dims import DimFlow, as_ints
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.graph.nodes import attributes, node_name
from unpool.runtime.lower.emit_unpool import (
    Pooling,
    emit_argmax_taps,
    emit_inferred_shape,
    emit_scatter,
    emit_where_unpool,
)
from unpool.runtime.passes.rewrite import GraphWriter, NodeChange, Rewrite
from unpool.runtime.rewrite.repair_indices import Unpooling, counts_in, unpoolings

MAX_TAPS = 64
"""Taps of a window at most; each costs two nodes, so that a scatter is better for more."""

MAX_LAYERS = 1024
"""Windows that cover one cell at most, each of which costs some ten nodes; dilation makes them many."""

MAX_CELLS = 2**16
"""Cells that a window reaches over at most, and cells of a block of one stride."""

EXACT = {"float16": 2048, "bfloat16": 256}
"""The type holds every integer up to here; others hold all numbers of taps."""


@dataclass(frozen=True)
class LoweredUnpool:
    """The nodes that take the place of one MaxUnpool.

    Attributes:
        unpooling: the MaxUnpool.
        pooling: the MaxPool of its indices; None where they are scattered.
        edit: the nodes and their constants.
        dtype: element type of the values.
    """

    unpooling: Unpooling
    pooling: Pooling | None
    edit: Rewrite
    dtype: np.dtype[np.generic]


def lower_unpoolings(
    flow: DimFlow, names: FreshNames, max_rank_for_broadcast: int, index_space: str
) -> Iterator[LoweredUnpool]:
    """An edit for every MaxUnpool of the graph, with what its check needs; all nodes are in ONNX's own domain.

    Raises:
        UnsupportedError: it is not known where the indices of a MaxUnpool count.
    """
    for unpooling in unpoolings(flow):
        node = unpooling.node
        pooling = _find_pooling(flow, unpooling, index_space)
        writer = GraphWriter(names, node.output[0])
        if pooling is None:
            dtype = _scatter(flow, unpooling, writer, index_space)
            after = "ScatterElements into zeros"
        else:
            pool = _pool_of(unpooling)
            pooling = _append_axes(writer, pooling, pooling.rank - len(attributes(pool)["kernel_shape"]))
            taps = emit_argmax_taps(writer, pooling)
            broadcasts = pooling.rank <= max_rank_for_broadcast
            emit_where_unpool(writer, pooling, taps, node.input[0], node.output[0], broadcasts=broadcasts)
            dtype = pooling.dtype
            after = f"positions found again by comparing with the result of {node_name(pool)}"
        change = NodeChange(node_name(node), unpooling.spec.row.label, after)
        edit = Rewrite(node.output[0], tuple(writer.nodes), writer.constants, change)
        yield LoweredUnpool(unpooling, pooling, edit, dtype)


def _find_pooling(flow: DimFlow, unpooling: Unpooling, index_space: str) -> Pooling | None:
    """The pool of the indices of a MaxUnpool; None if that is not certain, or its form would be too large."""
    source = unpooling.source
    if source is None or source.pool is None or not source.is_whole or source.is_plane or not unpooling.large:
        return None
    if index_space == "inferred" and unpooling.inferred != as_ints(unpooling.large):
        return None
    known = _dtype(flow, source.pool.input[0])
    is_same_type = known is not None and known == _dtype(flow, unpooling.node.input[0])
    if not is_same_type or not counts_in(flow, unpooling, unpooling.large):
        return None
    pooling = _pooling(flow, source.pool, len(unpooling.large))
    return pooling if pooling is not None and _is_small(pooling) else None


def _is_small(pooling: Pooling) -> bool:
    """True if the form with comparisons takes few nodes and small constants."""
    windows = pooling.windows
    return (
        pooling.tap_count <= min(MAX_TAPS, EXACT.get(pooling.dtype.name, MAX_TAPS))
        and prod(-(-window.reach // window.stride) for window in windows) <= MAX_LAYERS
        and prod(window.reach for window in windows) <= MAX_CELLS
        and prod(pooling.strides) <= MAX_CELLS
    )


def _pool_of(unpooling: Unpooling) -> onnx.NodeProto:
    assert unpooling.source is not None
    assert unpooling.source.pool is not None
    return unpooling.source.pool


def _pooling(flow: DimFlow, pool: onnx.NodeProto, rank: int) -> Pooling | None:
    """The pool, with axes of one element after its own up to this rank, which `_append_axes` adds to its values."""
    spec = resolve.spec("MaxPool", attributes(pool), opset=flow.graph.opsets[""])
    assert isinstance(spec, MaxPoolSpec)
    dtype = _dtype(flow, pool.input[0])
    if spec.padding != "NOTSET" or dtype is None:
        return None
    large = as_ints((flow.dims(pool.input[0]) or ())[2:]) or None
    small = None if large is None else tuple(max_pool.axis(spec, axis, size).small for axis, size in enumerate(large))
    begins, ends = zip(*spec.pads, strict=True)
    more = rank - len(spec.windows)
    ones, zeros = (1,) * more, (0,) * more
    return Pooling(
        pool.input[0], pool.output[0], spec.windows + (Window(1),) * more, begins + zeros, ends + zeros, spec.ceil,
        large and large + ones, small and small + ones, dtype,
    )  # fmt: skip


def _append_axes(writer: GraphWriter, pooling: Pooling, more: int) -> Pooling:
    """The pooling of values with `more` axes of one element after the others."""
    if not more:
        return pooling
    axes = writer.constant(range(-more, 0), "last_axes")
    x, y = (writer.node("Unsqueeze", [name, axes], "pooled") for name in (pooling.x, pooling.y))
    return replace(pooling, x=x, y=y)


def _scatter(flow: DimFlow, unpooling: Unpooling, writer: GraphWriter, index_space: str) -> np.dtype[np.generic]:
    node, spec = unpooling.node, unpooling.spec
    dtype = _dtype(flow, node.input[0])
    if dtype is None:
        raise UnsupportedError(
            f"{spec.row.operator} node {node_name(node)!r}: needs an X of known type, got an unknown one. Infer "
            "its shapes."
        )
    if len(node.input) > 2 and node.input[2]:
        _require_index_space(unpooling, index_space)
        shape = node.input[2]
    else:
        shape = emit_inferred_shape(writer, spec, node.input[0], unpooling.inferred)
    emit_scatter(writer, node, shape, dtype)
    return dtype


def _require_index_space(unpooling: Unpooling, index_space: str) -> None:
    """Refuse a MaxUnpool if only the values of its indices say where they count."""
    if index_space == "output" or unpooling.is_inferred or unpooling.has_offsets_of_asked:
        return
    label = f"{unpooling.spec.row.label} node {node_name(unpooling.node)!r}"
    if index_space == "inferred":
        raise UnsupportedError(
            f"{label}: output_shape is not known to be the default output size, in which its indices count with "
            "--index-space inferred, and a scatter has one shape. Say --index-space output "
            "(index_space='output') if they count in output_shape, or leave output_shape out of the model."
        )
    raise UnsupportedError(
        f"{label}: cannot tell which shape the indices refer to: output_shape or the default output size. "
        " For models from torch it is output_shape: add --index-space output "
        "(index_space='output')."
    )


def _dtype(flow: DimFlow, name: str) -> np.dtype[np.generic] | None:
    return shapes.dtype(flow.types.get(name))
