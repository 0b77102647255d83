"""Chooses for every MaxUnpool of a graph the form in which it is lowered, and makes the edit that puts it there.

Where its indices are those of a MaxPool of the same graph and count in its output, it follows the choice of that pool
(`chosen`, `placed`); all other indices are scattered (`scattered`).
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np
import onnx

from unpool.errors import UnsupportedError
from unpool.geometry import Window
from unpool.operators import max_pool, resolve
from unpool.operators.max_pool import MaxPoolSpec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.dims import as_ints
from unpool.runtime.graph.dynamic_dims import DimFlow
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.graph.nodes import attributes, node_name
from unpool.runtime.lower.chosen import chosen_taps
from unpool.runtime.lower.lowered import Part
from unpool.runtime.lower.placed import placed
from unpool.runtime.lower.pooling import Pooling
from unpool.runtime.lower.scattered import inferred_shape, scattered
from unpool.runtime.lower.writer import Writer
from unpool.runtime.passes.rewrite import NodeChange, Rewrite
from unpool.runtime.rewrite.repair_indices import Unpooling, counts_in, unpoolings

MOST_TAPS = 64
"""Taps of a window at most; each costs two nodes, so that a scatter is better for more."""

MOST_LAYERS = 1024
"""Windows that cover one cell at most, each of which costs some ten nodes; dilation makes them many."""

MOST_CELLS = 2**16
"""Cells that a window reaches over at most, and cells of a block of one stride."""

EXACT = {"float16": 2048, "bfloat16": 256}
"""The type holds every integer up to here; others hold all numbers of taps."""


def lowered_unpoolings(
    flow: DimFlow, names: FreshNames, doubled: int, index_space: str
) -> Iterator[tuple[Rewrite, Part]]:
    """An edit for every MaxUnpool of the graph, with what it takes to check it.

    Args:
        flow: sizes in the graph, all of whose nodes are in ONNX's own domain.
        names: for the new values.
        doubled: up to so many spatial axes are doubled, see `placed`.
        index_space: in which tensor indices count: "auto", "output" or "inferred".

    Raises:
        UnsupportedError: it is not known where the indices of a MaxUnpool count.
    """
    for one in unpoolings(flow):
        pooling = _followed(flow, one, index_space)
        writer = Writer(names, one.node.output[0])
        if pooling is None:
            dtype = _scatter(flow, one, writer, index_space)
            after = "ScatterElements into zeros"
        else:
            pooling = _with_axes(writer, pooling, pooling.rank - len(attributes(_pool_of(one))["kernel_shape"]))
            taps = chosen_taps(writer, pooling)
            placed(writer, pooling, taps, one.node.input[0], one.node.output[0], doubles=pooling.rank <= doubled)
            dtype = pooling.dtype
            after = f"positions found again by comparing with the result of {node_name(_pool_of(one))}"
        change = NodeChange(node_name(one.node), one.spec.row.label, after)
        edit = Rewrite(one.node.output[0], tuple(writer.nodes), writer.constants, change)
        yield edit, Part(one, pooling, edit, dtype)


def _followed(flow: DimFlow, one: Unpooling, index_space: str) -> Pooling | None:
    """The pool whose choice the MaxUnpool follows; None if that is not certain, or too much to write."""
    source = one.source
    if source is None or source.pool is None or not source.is_whole or source.is_plane or not one.large:
        return None
    if index_space == "inferred" and one.inferred != as_ints(one.large):
        return None
    known = _dtype(flow, source.pool.input[0])
    is_same_type = known is not None and known == _dtype(flow, one.node.input[0])
    if not is_same_type or not counts_in(flow, one, one.large):
        return None
    pooling = _pooling(flow, source.pool, len(one.large))
    return pooling if pooling is not None and _is_short(pooling) else None


def _is_short(pooling: Pooling) -> bool:
    """Whether following the pool takes few nodes and small constants."""
    windows = pooling.windows
    return (
        pooling.tap_count <= min(MOST_TAPS, EXACT.get(pooling.dtype.name, MOST_TAPS))
        and prod(-(-window.reach // window.stride) for window in windows) <= MOST_LAYERS
        and prod(window.reach for window in windows) <= MOST_CELLS
        and prod(pooling.strides) <= MOST_CELLS
    )


def _pool_of(one: Unpooling) -> onnx.NodeProto:
    assert one.source is not None
    assert one.source.pool is not None
    return one.source.pool


def _pooling(flow: DimFlow, pool: onnx.NodeProto, rank: int) -> Pooling | None:
    """The pool, with axes of one element behind its own up to this rank, which `_with_axes` gives to its values."""
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


def _with_axes(writer: Writer, pooling: Pooling, more: int) -> Pooling:
    """The pooling of values with so many axes of one element more behind the others."""
    if not more:
        return pooling
    axes = writer.constant(range(-more, 0), "last_axes")
    x, y = (writer.node("Unsqueeze", [name, axes], "pooled") for name in (pooling.x, pooling.y))
    return replace(pooling, x=x, y=y)


def _scatter(flow: DimFlow, one: Unpooling, writer: Writer, index_space: str) -> np.dtype[np.generic]:
    node, spec = one.node, one.spec
    dtype = _dtype(flow, node.input[0])
    if dtype is None:
        raise UnsupportedError(
            f"{spec.row.operator} node {node_name(node)!r}: needs an X of known type, got an unknown one. Infer its "
            "shapes."
        )
    if len(node.input) > 2 and node.input[2]:
        _require_certain_space(one, index_space)
        shape = node.input[2]
    else:
        shape = inferred_shape(writer, spec, node.input[0], one.inferred)
    scattered(writer, node, shape, dtype)
    return dtype


def _require_certain_space(one: Unpooling, index_space: str) -> None:
    """Refuse a MaxUnpool of which only the values of its indices say where they count."""
    if index_space == "output" or one.is_inferred or one.has_offsets_of_asked:
        return
    if index_space == "inferred":
        raise UnsupportedError(
            f"{one.spec.row.label} node {node_name(one.node)!r}: output_shape is not known to be the default output "
            "size, "
            "in which its indices count with --index-space inferred, and a scatter has one shape. Say --index-space "
            "output (index_space='output') if they count in output_shape, or leave output_shape out of the model."
        )
    raise UnsupportedError(
        f"{one.spec.row.label} node {node_name(one.node)!r}: cannot tell which shape the indices refer to: "
        "output_shape or the default output size. For models from torch it is output_shape: add --index-space output "
        "(index_space='output')."
    )


def _dtype(flow: DimFlow, name: str) -> np.dtype[np.generic] | None:
    return shapes.dtype(flow.types.get(name))
