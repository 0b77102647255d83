"""Which nodes an exported pool or unpooling becomes, whichever of torch's exporters writes them.

    ONNX index = torch index + (n * C + c) * D1 * .. * Dk

torch counts an index inside its (n, c) plane, ONNX over the whole tensor of spatial shape D1 .. Dk, which is the input
of a MaxPool and the output of a MaxUnpool. So a pool with indices is MaxPool and Mod, and an unpooling is Add and
MaxUnpool. Where an unpooling gives back the planes of its pool, Add would undo Mod, and both are left out.
"""

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from unpool.geometry import UnpoolWindow
from unpool.operators.max_unpool import window_attributes
from unpool.torch.exporting.attributes import Pool, is_inferred, pool_attributes, pooled_sizes, unpool_windows


class PoolBehind(NamedTuple):
    """What is known of the MaxPool that found some indices.

    Attributes:
        windows: one per spatial axis, see `windows.pool_windows`.
        planes: elements in a plane of the MaxPool's output and of its input; None where a size is dynamic, and where
            the indices did not come from the MaxPool by the nodes that `nodes.write_max_pool` writes.
    """

    windows: list[UnpoolWindow | None]
    planes: tuple[int, int] | None


class Writer(Protocol):
    """Reads sizes and writes nodes in one of torch's exporters.

    A value is what that exporter's nodes take and give. A size is an int where it is static, and where it is dynamic an
    int64 value with one element. Where a method takes a value, an int stands for a constant.
    """

    @property
    def opset(self) -> int:
        """The opset in which nodes are written."""

    def known_sizes(self, x: Any) -> list[int | None]:
        """Elements along every axis, None where they are dynamic; writes no node."""

    def size(self, x: Any, axis: int) -> Any:
        """The size along one axis."""

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        """The output of a new node."""

    def constant(self, numbers: npt.NDArray[np.int64]) -> Any:
        """A constant."""

    def vector(self, sizes: Sequence[Any]) -> Any:
        """The sizes as one int64 value of one axis."""

    def reshaped(self, x: Any, sizes: Sequence[Any]) -> Any:
        """The value in another shape; one of the sizes may be -1."""

    def numbers_below(self, count: Any) -> Any:
        """The numbers from 0 to `count` - 1."""

    def with_batch(self, x: Any) -> Any:
        """The value with an axis of one element in front."""

    def without_batch(self, x: Any) -> Any:
        """The value without its first axis, which has one element."""

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        """The values of a MaxPool, and with_indices its indices too.

        Args:
            x: with a batch axis.
            attributes: with ONNX names.
            sizes: known sizes along the spatial axes, a list for the input and one for the output.
            with_indices: whether the indices are needed.
        """

    def in_plane(self, indices: Any, plane: Any) -> Any:
        """Indices of a MaxPool, counted inside planes with so many elements."""

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:
        """The output of a MaxUnpool, which has the sizes `large` along its spatial axes."""

    def pool_behind(self, indices: Any, rank: int) -> PoolBehind | None:
        """The MaxPool that found indices for an unpooling over `rank` axes, None if something else made them."""

    def as_pooled(self, indices: Any) -> Any:
        """Indices that have a pool behind them, counted over the whole tensor again, as its MaxPool counts them."""


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
