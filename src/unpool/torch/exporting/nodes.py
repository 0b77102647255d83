"""The nodes of an exported pool or unpooling, written by either of torch's exporters.

    ONNX index = torch index + (n * C + c) * D1 * .. * Dk

torch counts an index inside its (n, c) plane, ONNX over the whole tensor of spatial shape D1 .. Dk, which is the input
of a MaxPool and the output of a MaxUnpool. So a pool with indices is MaxPool and Mod, and an unpooling is Add and
MaxUnpool. If an unpooling returns to the planes of its pool, Add would undo Mod, and both are omitted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import prod
from operator import lt
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from unpool.errors import UnsupportedError
from unpool.geometry import UnpoolWindow, Window, pooled_size, upsampled_size, window_between, window_undoing
from unpool.operators import contract
from unpool.operators.max_unpool import window_attributes

FIRST_OPSET, FIRST_CEIL = 9, 10
"""The first opset with MaxUnpool, and the first whose MaxPool has ceil_mode and dilations."""


def check_opset(where: str, opset: int | None) -> None:
    """Refuse an opset without MaxUnpool."""
    if opset is not None and opset < FIRST_OPSET:
        raise UnsupportedError(
            f"{where}: opset must be at least {FIRST_OPSET}, the first with MaxUnpool, got {opset}. "
            "Export with a newer opset_version."
        )


def check_type(operator: str, opset: int, dtype: str) -> None:
    """Refuse a type, by NumPy's name, that the operator's version in this opset lacks."""
    version = contract.version_at(operator, "", opset)
    if dtype not in version.value_types:
        later = [new.since_version for new in contract.versions_of(operator, "") if dtype in new.value_types]
        where = f"Export with opset_version {later[0]} or later" if later else "Export another type"
        raise UnsupportedError(
            f"export: {operator}-{version.since_version} of opset {opset} takes {', '.join(version.value_types)}, "
            f"got {dtype}. {where}."
        )


@dataclass(frozen=True, slots=True)
class AtenPool:
    """A pool as ATen describes it: per axis a window, and elements of padding at both ends; and ATen's ceil_mode."""

    windows: tuple[Window, ...]
    pads: tuple[int, ...]
    ceil: bool


def pool_of(rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> AtenPool:
    """A pool over `rank` spatial axes from ATen's arguments, each an int, or a list of one or `rank` ints.

    An empty stride means the window's size.

    >>> pool_of(1, 3, [], 1, 1, False)
    AtenPool(windows=(Window(size=3, stride=3, dilation=1),), pads=(1,), ceil=False)
    """
    kernel = _spread(kernel_size, rank)
    steps, dilations = _spread(stride, rank) or kernel, _spread(dilation, rank)
    return AtenPool(tuple(map(Window, kernel, steps, dilations)), tuple(_spread(padding, rank)), ceil)


def _spread(setting: Any, rank: int) -> list[int]:
    """One int per axis; an empty list stays empty."""
    values = [setting] if isinstance(setting, int) else list(setting)
    return values * rank if len(values) == 1 else values


def pool_attributes(pool: AtenPool, large: Sequence[Any], opset: int) -> dict[str, Any]:
    """The attributes of a MaxPool of this opset; `large` are spatial sizes of its input, ints if they are static.

    Padding replaces ceil_mode if the opset has no ceil_mode, or if the last window of a pool would start in the
    padding: shape inference before MaxPool-22 counts that window, ATen does not.
    """
    dilations = [window.dilation for window in pool.windows]
    ends = ceil_ends(large, pool) if pool.ceil else None
    if opset < FIRST_CEIL and (set(dilations) != {1} or (pool.ceil and ends is None)):
        what = "ceil_mode with dynamic sizes" if set(dilations) == {1} else f"dilation {dilations}"
        raise UnsupportedError(
            f"export: MaxPool of opset {opset} has no dilations and no ceil_mode, got {what}. "
            f"Export with opset_version {FIRST_CEIL} or later."
        )
    is_padded = ends is not None and (opset < FIRST_CEIL or any(map(lt, ends, pool.pads)))
    attributes: dict[str, Any] = {
        "kernel_shape": [window.size for window in pool.windows],
        "strides": [window.stride for window in pool.windows],
        "pads": [*pool.pads, *((max(0, end) for end in ends) if ends is not None and is_padded else pool.pads)],
    }
    if opset < FIRST_CEIL:
        return attributes
    return attributes | {"dilations": dilations, "ceil_mode": int(pool.ceil and not is_padded)}


def pooled_sizes(large: Sequence[Any], pool: AtenPool) -> list[int | None]:
    """Elements along the spatial axes of a pool's output, None for dynamic ones."""
    return [
        pooled_size(size, window, pad, pad, ceil=pool.ceil) if isinstance(size, int) else None
        for size, window, pad in zip(large, pool.windows, pool.pads, strict=True)
    ]


def ceil_ends(large: Sequence[Any], pool: AtenPool) -> list[int] | None:
    """Padding at the ends that gives a pool without ceil_mode the windows of one with it; None if a size is dynamic.

    The last window then ends with the padding. This is less than the pool's own padding if ceil_mode drops a window
    that would start in the padding, and negative if no window covers the last elements.

    >>> ceil_ends([8, 7], pool_of(2, [3, 2], 2, [1, 0], 1, True)), ceil_ends([6], pool_of(1, 1, 2, 0, 1, True))
    ([2, 1], [-1])
    """
    small = pooled_sizes(large, pool)
    known = [count for count in small if count is not None]
    if len(known) < len(small):
        return None
    return [
        upsampled_size(count, window, padding=size + pad)
        for count, window, size, pad in zip(known, pool.windows, large, pool.pads, strict=True)
    ]


def pool_windows(attributes: Mapping[str, Any], rank: int) -> list[UnpoolWindow | None]:
    """For each of `rank` axes the window of an unpooling that undoes a MaxPool; None for axes that the pool lacks.

    Opset 9 has no ceil_mode: there it is recognised by different padding at begins and ends.

    >>> pool_windows({"kernel_shape": [3], "strides": [2], "pads": [1, 1], "dilations": [2], "ceil_mode": 0}, 2)
    [UnpoolWindow(size=5, stride=2, padding=1), None]
    """
    sizes = attributes["kernel_shape"]
    ones = [1] * len(sizes)
    pads = list(attributes.get("pads", [0, 0] * len(sizes)))
    begins, ends = pads[: len(sizes)], pads[len(sizes) :]
    ceil = bool(attributes.get("ceil_mode", begins != ends))
    windows = map(Window, sizes, attributes.get("strides", ones), attributes.get("dilations", ones))
    undoing = [window_undoing(window, begin, ceil=ceil) for window, begin in zip(windows, begins, strict=True)]
    return [*undoing, *[None] * rank][:rank]


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
        return self.node("Reshape", x, self.vector(sizes))

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
        return self.node("Mod", indices, plane)

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:  # noqa: ARG002
        """The output of a MaxUnpool, with the sizes `large` along its spatial axes."""
        return self.node("MaxUnpool", *inputs, **attributes)

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
    planes, pool = static_planes(small, large), writer.source_pool(indices, rank)
    reuses_indices = pool is not None and pool.planes is not None and pool.planes == planes
    all_indices = writer.indices_in_tensor(indices) if reuses_indices else indices
    is_unbatched = len(outer) == 1
    if is_unbatched:
        x, all_indices, outer = writer.add_batch(x), writer.add_batch(all_indices), [1, *outer]
    if not reuses_indices:
        all_indices = writer.node("Add", all_indices, _plane_offsets(writer, outer, large))
    known_sizes = ([size if isinstance(size, int) else None for size in sizes] for sizes in (small, large))
    windows = list(map(window_between, *known_sizes, [None] * rank if pool is None else pool.windows))
    inferred = planes and [window.output_size(size) for size, window in zip(small, windows, strict=True)]
    shape = [] if inferred == list(large) else [writer.vector([*outer, *large])]
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
