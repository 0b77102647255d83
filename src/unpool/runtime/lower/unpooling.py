"""The form in which every MaxUnpool of a graph is lowered, and the edit that puts it there.

If its indices are those of a MaxPool of the same graph and count in its output, they are found again by comparison
(`emit_argmax_taps`, `emit_where_unpool`); all other indices are scattered (`emit_scatter`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx
from onnx import helper

from unpool.errors import UnsupportedError
from unpool.geometry import Window
from unpool.graph import shapes
from unpool.graph.dynamic_dims import DimFlow, as_ints
from unpool.graph.graph import FreshNames
from unpool.graph.narrow_floats import HALF_NAMES
from unpool.graph.nodes import attributes, node_name
from unpool.operators import max_pool
from unpool.passes.index_flow import pool_spec
from unpool.passes.rewrite import GraphWriter, NodeChange, Rewrite, copy_node
from unpool.runtime.lower.emit_unpool import (
    Pooling,
    emit_argmax_taps,
    emit_inferred_shape,
    emit_scatter,
    emit_where_unpool,
)
from unpool.runtime.rewrite.repair_indices import Unpooling, counts_in, unpoolings

MAX_TAPS = 64  # of a window; each costs two nodes, so that a scatter is better for more
MAX_LAYERS = 1024  # windows that cover one cell; each costs about ten nodes, and dilation makes them many
MAX_CELLS = 2**16  # cells that a window reaches over, and cells of a block of one stride


@dataclass(frozen=True)
class LoweredUnpool:
    """The nodes that take the place of one MaxUnpool."""

    unpooling: Unpooling
    pooling: Pooling | None  # the MaxPool of its indices; None where they are scattered
    edit: Rewrite
    dtype: np.dtype[np.generic]  # element type of the values
    pool_edit: Rewrite | None = None  # of that MaxPool, if it is compared in float32; several unpoolings may share it


def lower_unpoolings(
    flow: DimFlow, names: FreshNames, max_rank_for_broadcast: int, index_space: str
) -> Iterator[LoweredUnpool]:
    """An edit for every MaxUnpool of the graph, all nodes in ONNX's own domain.

    An UnsupportedError if it is not known where the indices of a MaxUnpool count.
    """
    pool_edits: dict[str, Rewrite] = {}
    for unpooling in unpoolings(flow):
        node, label, pool = unpooling.node, unpooling.spec.version.label, unpooling.pool
        dtype = shapes.dtype(flow.types.get(node.input[0]))
        if dtype is None:
            raise UnsupportedError(
                f"{unpooling.spec.version.operator} node {node_name(node)!r}: needs an X of known type, got an unknown "
                "one. Infer its shapes."
            )
        writer, pooling = GraphWriter(names, node.output[0]), _find_pooling(flow, unpooling, dtype, index_space)
        pool_edit = None
        if pool is None or pooling is None:
            if unpooling.shape:
                _require_index_space(unpooling, index_space)
            shape = unpooling.shape or emit_inferred_shape(writer, unpooling.spec, node.input[0], unpooling.inferred)
            emit_scatter(writer, node, shape, dtype)
            after = "ScatterElements into zeros"
        else:
            if dtype.name in HALF_NAMES:
                pool_edit = pool_edits.get(pooling.y) or _pool_in_float32(names, pool, dtype)
                pool_edits[pooling.y] = pool_edit
                wide = pool_edit.nodes[1]
                pooling = replace(pooling, x=wide.input[0], y=wide.output[0], dtype=np.dtype(np.float32))
            more = pooling.rank - len(attributes(pool)["kernel_shape"])
            if more:  # axes of one element after the pool's own
                axes = writer.constant(range(-more, 0), "last_axes")
                x, y = (writer.node("Unsqueeze", [name, axes], "pooled") for name in (pooling.x, pooling.y))
                pooling = replace(pooling, x=x, y=y)
            taps = emit_argmax_taps(writer, pooling)
            if pooling.dtype != dtype:
                taps = _cast(writer, taps, dtype)
            broadcasts, cells = pooling.rank <= max_rank_for_broadcast, replace(pooling, dtype=dtype)
            emit_where_unpool(writer, cells, taps, node.input[0], node.output[0], broadcasts=broadcasts)
            after = f"positions found again by comparing with the result of {node_name(pool)}"
        edit = writer.rewrite(NodeChange(node_name(node), label, after))
        yield LoweredUnpool(unpooling, pooling, edit, dtype, pool_edit)


def _pool_in_float32(names: FreshNames, pool: onnx.NodeProto, dtype: np.dtype[np.generic]) -> Rewrite:
    """A MaxPool between two Casts: what is compared with its maxima then comes from the same Cast as they do.

    onnxruntime computes a Conv of float16 in float32, and passes its sums on unrounded to a MaxPool, which it computes
    in float32 too, but rounded to a Slice: a maximum would be none of the elements of its window.
    """
    writer = GraphWriter(names, pool.output[0])
    x = _cast(writer, pool.input[0], np.dtype(np.float32))
    wide = copy_node(pool)
    wide.input[0], wide.output[0] = x, names.fresh(f"{pool.output[0]}_float32")
    writer.nodes.append(wide)
    writer.node("Cast", [wide.output[0]], output=pool.output[0], to=helper.np_dtype_to_tensor_dtype(dtype))
    return writer.rewrite(
        NodeChange(node_name(pool), f"MaxPool of {dtype.name}", "MaxPool of float32 between two Casts")
    )


def _cast(writer: GraphWriter, value: str, dtype: np.dtype[np.generic]) -> str:
    return writer.node("Cast", [value], dtype.name, to=helper.np_dtype_to_tensor_dtype(dtype))


def _find_pooling(flow: DimFlow, unpooling: Unpooling, dtype: np.dtype[np.generic], index_space: str) -> Pooling | None:
    """The pool of the indices of a MaxUnpool; None if that is not certain, or its form would be too large.

    It has as many axes as the MaxUnpool: those of one element that its values lack come after its own.
    """
    source, pool, large = unpooling.source, unpooling.pool, unpooling.large
    if source is None or pool is None or not source.is_whole or source.is_plane or not large:
        return None
    if index_space == "inferred" and unpooling.inferred != as_ints(large):
        return None
    spec = pool_spec(pool, flow.graph.opsets)
    is_same_type = shapes.dtype(flow.types.get(pool.input[0])) == dtype
    if not is_same_type or not counts_in(flow, unpooling, large) or spec.padding != "NOTSET":
        return None
    x_sizes = as_ints((flow.dims(pool.input[0]) or ())[2:])
    y_sizes = tuple(max_pool.axis(spec, axis, size).small for axis, size in enumerate(x_sizes or ()))
    begins, ends = zip(*spec.pads, strict=True)
    more = len(large) - len(spec.windows)
    ones, zeros = (1,) * more, (0,) * more
    pooling = Pooling(
        pool.input[0], pool.output[0], spec.windows + (Window(1),) * more, begins + zeros, ends + zeros, spec.ceil,
        (x_sizes + ones) if x_sizes else None, (y_sizes + ones) if x_sizes else None, dtype,
    )  # fmt: skip
    is_small = (
        prod(window.size for window in pooling.windows) <= MAX_TAPS
        and prod(-(-window.reach // window.stride) for window in pooling.windows) <= MAX_LAYERS
        and prod(window.reach for window in pooling.windows) <= MAX_CELLS
        and prod(pooling.strides) <= MAX_CELLS
    )
    return pooling if is_small else None


def _require_index_space(unpooling: Unpooling, index_space: str) -> None:
    """Refuse a MaxUnpool if only the values of its indices say where they count."""
    if index_space == "output" or unpooling.is_inferred or unpooling.has_offsets_of_asked:
        return
    label = f"{unpooling.spec.version.label} node {node_name(unpooling.node)!r}"
    if index_space == "inferred":
        raise UnsupportedError(
            f"{label}: output_shape is not known to be the default output size, in which its indices count with "
            "--index-space inferred, and a scatter has one shape. Say --index-space output "
            "(index_space='output') if they count in output_shape, or leave output_shape out of the model."
        )
    raise UnsupportedError(
        f"{label}: cannot tell which shape the indices refer to: output_shape or the default output size. For models "
        "from torch it is output_shape: add --index-space output (index_space='output')."
    )
