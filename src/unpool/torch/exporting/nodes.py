"""Which nodes an exported pool or unpooling becomes, whichever of torch's exporters writes them.

    ONNX index = torch index + (n * C + c) * D1 * .. * Dk

torch counts an index inside its (n, c) plane, ONNX over the whole tensor of spatial shape D1 .. Dk, which is the input
of a MaxPool and the output of a MaxUnpool. So a pool with indices is MaxPool and Mod, and an unpooling is Add and
MaxUnpool. Where an unpooling gives back the planes of its pool, Add would undo Mod, and both are left out.
"""

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from typing import Any

import numpy as np

from unpool.operators.max_unpool import window_attributes
from unpool.torch.exporting.pools import Pool, pool_attributes, pooled_sizes
from unpool.torch.exporting.windows import is_inferred, unpool_windows
from unpool.torch.exporting.writer import Writer


def write_max_pool(write: Writer, x: Any, pool: Pool, *, with_indices: bool) -> Any:
    """The values of a pool; with_indices a pair of them and the indices as torch counts them.

    Args:
        write: what the exporter can do.
        x: with or without a batch axis.
        pool: as ATen describes it.
        with_indices: whether the indices are needed.
    """
    rank, sizes = len(pool.windows), write.known_sizes(x)
    large = sizes[-rank:]
    plane = product(write, [write.size(x, axis) for axis in range(-rank, 0)]) if with_indices else None
    is_unbatched = len(sizes) == rank + 1
    batch = write.with_batch(x) if is_unbatched else x
    attributes = pool_attributes(pool, large, write.opset)
    outputs = write.max_pool(batch, attributes, (large, pooled_sizes(large, pool)), with_indices=with_indices)
    if with_indices:
        outputs[1] = write.in_plane(outputs[1], plane)
    if is_unbatched:
        outputs = list(map(write.without_batch, outputs))
    return tuple(outputs) if with_indices else outputs[0]


def write_max_unpool(write: Writer, x: Any, indices: Any, large: Sequence[Any]) -> Any:
    """The output of an unpooling.

    Args:
        write: what the exporter can do.
        x: with or without a batch axis.
        indices: as torch counts them.
        large: sizes along the spatial axes of the output.
    """
    rank = len(large)
    sizes = [write.size(x, axis) for axis in range(-len(write.known_sizes(x)), 0)]
    outer, small = sizes[:-rank], sizes[-rank:]
    pool = write.pool_behind(indices, rank)
    is_as_pooled = pool is not None and pool.planes is not None and pool.planes == _static_planes(small, large)
    whole = write.as_pooled(indices) if is_as_pooled else indices
    is_unbatched = len(outer) == 1
    if is_unbatched:
        x, whole, outer = write.with_batch(x), write.with_batch(whole), [1, *outer]
    if not is_as_pooled:
        whole = write.node("Add", whole, plane_offsets(write, outer, large))
    windows = unpool_windows(small, large, [None] * rank if pool is None else pool.windows)
    shape = [] if is_inferred(small, large, windows) else [write.vector([*outer, *large])]
    y = write.max_unpool([x, whole, *shape], window_attributes(windows), large)
    return write.without_batch(y) if is_unbatched else y


def plane_offsets(write: Writer, outer: Sequence[Any], large: Sequence[Any]) -> Any:
    """(n * C + c) * plane size in elements, as int64 of shape (N, C, 1 .. 1).

    Args:
        write: what the exporter can do.
        outer: sizes N and C.
        large: sizes along the spatial axes of the plane.
    """
    planes, step = product(write, outer), product(write, large)
    shape = [-1, *outer[1:], *[1] * len(large)]
    if isinstance(planes, int) and isinstance(step, int):
        return write.constant(np.arange(planes, dtype=np.int64).reshape([*outer, *shape[2:]]) * step)
    return write.reshaped(write.node("Mul", write.numbers_below(planes), step), shape)


def product(write: Writer, sizes: Sequence[Any]) -> Any:
    """Product of sizes; a chain of Mul, because converters to older opsets drop ReduceProd."""
    known = prod(size for size in sizes if isinstance(size, int))
    dynamic = [size for size in sizes if not isinstance(size, int)]
    return reduce(partial(write.node, "Mul"), dynamic, *([known] if known != 1 or not dynamic else []))


def _static_planes(small: Sequence[Any], large: Sequence[Any]) -> tuple[int, int] | None:
    """Elements in a plane of both sizes, None if one is dynamic."""
    return (prod(small), prod(large)) if all(isinstance(size, int) for size in (*small, *large)) else None
