"""The nodes of an exported pool or unpooling, written by either of torch's exporters.

    ONNX index = torch index + (n * C + c) * D1 * .. * Dk

torch counts an index inside its (n, c) plane, ONNX over the whole tensor of spatial shape D1 .. Dk, which is the input
of a MaxPool and the output of a MaxUnpool. So a pool with indices is MaxPool and Mod, and an unpooling is Add and
MaxUnpool. If an unpooling returns to the planes of its pool, Add would undo Mod, and both are omitted.
"""

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from unpool.geometry import UnpoolWindow
from unpool.operators.max_unpool import window_attributes
from unpool.torch.exporting.attributes import AtenPool, is_inferred, pool_attributes, pooled_sizes, unpool_windows


class SourcePool(NamedTuple):
    """The MaxPool that computed some indices: a window per spatial axis (see `pool_windows`), and `static_planes`.

    The planes are also None if other nodes than those of `write_max_pool` lead from the MaxPool to the indices.
    """

    windows: list[UnpoolWindow | None]
    planes: tuple[int, int] | None


class NodeWriter(Protocol):
    """Reads sizes and writes nodes in one of torch's exporters.

    A value is an input or output of that exporter's nodes; an int stands for a constant. A size is an int if it is
    static, else an int64 value with one element.
    """

    opset: int

    def static_sizes(self, x: Any) -> list[int | None]:
        """Elements along every axis, None for dynamic ones; writes no node."""

    def size(self, x: Any, axis: int) -> Any:
        """The size along one axis."""

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        """The output of a new node."""

    def constant(self, numbers: npt.NDArray[np.int64]) -> Any:
        """A constant."""

    def vector(self, sizes: Sequence[Any]) -> Any:
        """The sizes as one int64 value of one axis."""

    def reshape(self, x: Any, sizes: Sequence[Any]) -> Any:
        """The value in another shape; one of the sizes may be -1."""

    def arange(self, count: Any) -> Any:
        """The numbers from 0 to `count` - 1."""

    def add_batch(self, x: Any) -> Any:
        """The value with a new first axis of one element."""

    def remove_batch(self, x: Any) -> Any:
        """The value without its first axis, which has one element."""

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        """The values of a MaxPool of `x`, which has a batch axis, and with_indices its indices too.

        `sizes` are those along the spatial axes of its input and of its output, None if dynamic.
        """

    def indices_in_plane(self, indices: Any, plane: Any) -> Any:
        """Indices of a MaxPool, counted inside planes of `plane` elements."""

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:
        """The output of a MaxUnpool, with the sizes `large` along its spatial axes."""

    def source_pool(self, indices: Any, rank: int) -> SourcePool | None:
        """The MaxPool that computed the indices of an unpooling over `rank` axes, or None."""

    def indices_in_tensor(self, indices: Any) -> Any:
        """Indices with a source pool, counted over the whole tensor again, as by its MaxPool."""


def write_max_pool(writer: NodeWriter, x: Any, pool: AtenPool, *, with_indices: bool) -> Any:
    """Write a pool of `x`, with or without a batch axis; its values, or also its indices as torch counts them."""
    rank, sizes = len(pool.windows), writer.static_sizes(x)
    large = sizes[-rank:]
    plane = _product(writer, [writer.size(x, axis) for axis in range(-rank, 0)]) if with_indices else None
    is_unbatched = len(sizes) == rank + 1
    batch = writer.add_batch(x) if is_unbatched else x
    attributes = pool_attributes(pool, large, writer.opset)
    outputs = writer.max_pool(batch, attributes, (large, pooled_sizes(large, pool)), with_indices=with_indices)
    if with_indices:
        outputs[1] = writer.indices_in_plane(outputs[1], plane)
    if is_unbatched:
        outputs = list(map(writer.remove_batch, outputs))
    return tuple(outputs) if with_indices else outputs[0]


def write_max_unpool(writer: NodeWriter, x: Any, indices: Any, large: Sequence[Any]) -> Any:
    """Write an unpooling of `x`, with or without a batch axis, to spatial sizes `large`; indices count as in torch."""
    rank = len(large)
    sizes = [writer.size(x, axis) for axis in range(-len(writer.static_sizes(x)), 0)]
    outer, small = sizes[:-rank], sizes[-rank:]
    pool = writer.source_pool(indices, rank)
    reuses_indices = pool is not None and pool.planes is not None and pool.planes == static_planes(small, large)
    all_indices = writer.indices_in_tensor(indices) if reuses_indices else indices
    is_unbatched = len(outer) == 1
    if is_unbatched:
        x, all_indices, outer = writer.add_batch(x), writer.add_batch(all_indices), [1, *outer]
    if not reuses_indices:
        all_indices = writer.node("Add", all_indices, _plane_offsets(writer, outer, large))
    windows = unpool_windows(small, large, [None] * rank if pool is None else pool.windows)
    shape = [] if is_inferred(small, large, windows) else [writer.vector([*outer, *large])]
    y = writer.max_unpool([x, all_indices, *shape], window_attributes(windows), large)
    return writer.remove_batch(y) if is_unbatched else y


def _plane_offsets(writer: NodeWriter, outer: Sequence[Any], large: Sequence[Any]) -> Any:
    """(n * C + c) * plane size, as int64 of shape (N, C, 1 .. 1); `outer` are N and C, `large` the plane's sizes."""
    planes, step = _product(writer, outer), _product(writer, large)
    shape = [-1, *outer[1:], *[1] * len(large)]
    if isinstance(planes, int) and isinstance(step, int):
        return writer.constant(np.arange(planes, dtype=np.int64).reshape([*outer, *shape[2:]]) * step)
    return writer.reshape(writer.node("Mul", writer.arange(planes), step), shape)


def _product(writer: NodeWriter, sizes: Sequence[Any]) -> Any:
    """Product of sizes; a chain of Mul, because converters to older opsets drop ReduceProd."""
    known = prod(size for size in sizes if isinstance(size, int))
    dynamic = [size for size in sizes if not isinstance(size, int)]
    return reduce(partial(writer.node, "Mul"), dynamic, *([known] if known != 1 or not dynamic else []))


def static_planes(small: Sequence[Any], large: Sequence[Any]) -> tuple[int, int] | None:
    """Elements in planes of these sizes, None if one is dynamic."""
    return (prod(small), prod(large)) if all(isinstance(size, int) for size in (*small, *large)) else None
