"""Translations with which torch.onnx.export writes one MaxPool per pool and one MaxUnpool per unpooling.

    ONNX index = torch index + (n * C + c) * D1 * .. * Dk

torch counts an index inside its (n, c) plane, ONNX over the whole tensor of spatial shape D1 .. Dk, which is
the input of a MaxPool and the output of a MaxUnpool. Nodes are written in opset 18, the exporter's own; the
exporter converts them to the version asked for.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import torch
from onnxscript import ir, opset18

from unpool.errors import UnsupportedError

FIRST_OPSET = 9

Window = tuple[int, int, int]
"""Window, stride and padding (at both ends) of one spatial axis, in elements."""

NO_WINDOW: Window = (1, 1, 0)

op: Any = opset18
"""Typed loosely, for while it is traced it takes ints and lists where its annotations name tensors."""


def translation_table(opset: int | None = None) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Entries for the `custom_translation_table` of `torch.onnx.export(..., dynamo=True)`.

    A pool with indices becomes MaxPool and Mod, an unpooling becomes Add and MaxUnpool with `output_shape`.
    ATen does not say the window of an unpooling. Where a spatial size is static it is the one from which the
    inferred size equals `output_shape`, so that every reading of the standard agrees; where it is dynamic it
    is the window of the pool that found the indices, and `output_shape` is what the indices count in.

    Args:
        opset: the `opset_version` of that call, at least 9; None for its default.

    Returns:
        ATen overload -> function that writes it with onnxscript.

    Raises:
        UnsupportedError: opset is below 9, where MaxUnpool does not exist.

    Source: ATen's native_functions.yaml; ONNX MaxPool-12, MaxUnpool-11, Mod-13.

    Example:
        >>> sorted(str(overload) for overload in translation_table(20))[-2:]
        ['aten.max_unpool2d.default', 'aten.max_unpool3d.default']
    """
    if opset is not None and opset < FIRST_OPSET:
        raise UnsupportedError(
            f"translation_table: opset must be at least {FIRST_OPSET}, the first with MaxUnpool, "
            f"got {opset}. Export with a newer opset_version."
        )
    aten = torch.ops.aten
    return {
        aten.max_pool1d_with_indices.default: _pool_translation(1),
        aten.max_pool2d_with_indices.default: _pool_translation(2),
        aten.max_pool3d_with_indices.default: _pool_translation(3),
        aten.max_unpool2d.default: _unpool_translation(2),
        aten.max_unpool3d.default: _unpool_translation(3),
    }


def _pool_translation(rank: int) -> Callable[..., Any]:
    """Translation of a pool with indices over `rank` spatial axes."""

    def max_pool_with_indices(
        x: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        window = _per_axis(kernel_size, rank)
        unbatched = len(x.shape) == rank + 1
        plane = _product([_size(x, axis) for axis in range(-rank, 0)])
        if unbatched:
            x = op.Unsqueeze(x, [0])
        values, indices = op.MaxPool(
            x,
            kernel_shape=window,
            strides=_per_axis(stride, rank) or window,
            pads=_per_axis(padding, rank) * 2,
            dilations=_per_axis(dilation, rank),
            ceil_mode=int(ceil_mode),
        )
        indices = op.Mod(indices, plane)
        if unbatched:
            return op.Squeeze(values, [0]), op.Squeeze(indices, [0])
        return values, indices

    return max_pool_with_indices


def _unpool_translation(rank: int) -> Callable[..., Any]:
    """Translation of an unpooling over `rank` spatial axes.

    The strides and padding of the 3-D form are not needed: the output size already holds them.
    """

    def max_unpool(x: Any, indices: Any, output_size: Any, stride: Any = (), padding: Any = ()) -> Any:  # noqa: ARG001
        outer = [_size(x, axis) for axis in range(-len(x.shape), -rank)]
        small = [_size(x, axis) for axis in range(-rank, 0)]
        large = [size if isinstance(size, int) else op.Reshape(size, [1]) for size in output_size]
        unbatched = len(outer) == 1
        if unbatched:
            x, indices, outer = op.Unsqueeze(x, [0]), op.Unsqueeze(indices, [0]), [1, *outer]
        windows = map(_unpool_window, small, large, _pool_windows(indices, rank))
        kernel_shape, strides, pads = zip(*windows, strict=True)
        y = op.MaxUnpool(
            x,
            op.Add(indices, _plane_offsets(outer, large)),
            _joined([*outer, *large]),
            kernel_shape=kernel_shape,
            strides=strides,
            pads=pads * 2,
        )
        return op.Squeeze(y, [0]) if unbatched else y

    return max_unpool


def _unpool_window(small: Any, large: Any, pooled: Window | None) -> Window:
    """Window of one axis for which MaxUnpool infers `large` from `small`; `pooled` where a size is dynamic.

    (small - 1) * stride + window - 2 * padding = large
    """
    if not (isinstance(small, int) and isinstance(large, int)):
        return pooled or NO_WINDOW
    if small == 0:
        return NO_WINDOW
    if large < small:
        return small - large + 1, 1, small - large
    stride = large // small
    if pooled and (small - 1) * pooled[1] < large:
        stride = pooled[1]
    return large - (small - 1) * stride, stride, 0


def _pool_windows(indices: Any, rank: int) -> list[Window | None]:
    """Windows of the MaxPool that found the indices, None per axis where there is no such pool.

    ceil_mode counts windows that hang over the end; there the window is cut to its first element inside, so
    that the shape that MaxUnpool infers is in no case larger than the pool's input.
    """
    node = indices.producer()
    while node is not None and node.op_type in ("Mod", "Unsqueeze", "Squeeze"):
        node = node.inputs[0].producer()
    if node is None or node.op_type != "MaxPool":
        return [None] * rank
    lists = (node.attributes.get_ints(name) for name in ("kernel_shape", "strides", "pads"))
    windows: list[Window | None] = []
    for window, stride, padding in zip(*lists, strict=False):
        cut = node.attributes.get_int("ceil_mode", 0)
        windows.append((padding + 1 if cut else window, stride, padding))
    return windows + [None] * (rank - len(windows))


def _plane_offsets(outer: Sequence[Any], large: Sequence[Any]) -> Any:
    """(n * C + c) * plane size in elements, as int64 of shape (N, C, 1 .. 1)."""
    planes, step = _product(outer), _product(large)
    shape = [-1, *outer[1:], *[1] * len(large)]
    if isinstance(planes, int) and isinstance(step, int):
        return op.Constant(value=ir.tensor(np.arange(planes, dtype=np.int64).reshape(shape) * step))
    last = planes if isinstance(planes, int) else op.Squeeze(planes)
    return op.Reshape(op.Mul(op.Range(0, last, 1), step), _joined(shape))


def _size(x: Any, axis: int) -> Any:
    """Elements along `axis` (negative): an int, or an int64 value of shape (1,) where it is dynamic."""
    size = x.shape[axis]
    return size if isinstance(size, int) else op.Shape(x, start=axis, end=axis + 1 or None)


def _product(sizes: Sequence[Any]) -> Any:
    """Product of sizes; a chain of Mul, because converters to older opsets drop ReduceProd."""
    known = prod(size for size in sizes if isinstance(size, int))
    dynamic = [size for size in sizes if not isinstance(size, int)]
    return reduce(op.Mul, dynamic, *([known] if known != 1 or not dynamic else []))


def _joined(sizes: Sequence[Any]) -> Any:
    """The sizes as one int64 vector."""
    if all(isinstance(size, int) for size in sizes):
        return _vector(sizes)
    return op.Concat(*(_vector([size]) if isinstance(size, int) else size for size in sizes), axis=0)


def _vector(values: Sequence[int]) -> Any:
    return op.Constant(value=ir.tensor(np.array(values, dtype=np.int64)))


def _per_axis(setting: Any, rank: int) -> list[int]:
    """ATen's int or list of ints, spread over the spatial axes; an empty list stays empty."""
    values = [setting] if isinstance(setting, int) else list(setting)
    return values * rank if len(values) == 1 else values
