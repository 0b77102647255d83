"""Translations with which torch.onnx.export writes one MaxPool per pool and one MaxUnpool per unpooling.

    ONNX index = torch index + (n * C + c) * D1 * .. * Dk

torch counts an index inside its (n, c) plane, ONNX over the whole tensor of spatial shape D1 .. Dk, which is
the input of a MaxPool and the output of a MaxUnpool. Nodes are written in opset 18, the exporter's own; the
exporter converts them to the version asked for.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from operator import lt
from typing import Any

import numpy as np
import torch
from onnxscript import ir, opset18

from unpool.geometry import Fitted
from unpool.torch.export_window import (
    Setting,
    ceil_ends,
    check_opset,
    is_inferred,
    per_axis,
    pooled_sizes,
    pooled_window,
    unpool_window,
)

op: Any = opset18
"""Typed loosely, for while it is traced it takes ints and lists where its annotations name tensors."""

PLANES = "unpool.planes"
"""Key of a MaxPool node's meta data: elements in a plane of its output and of its input, None if dynamic."""


def translation_table(opset: int | None = None) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Entries for the `custom_translation_table` of `torch.onnx.export(..., dynamo=True)`.

    A pool with indices becomes MaxPool and Mod, an unpooling becomes Add and MaxUnpool; where the unpooling
    gives back the pool's size, Mod and Add are left out. ATen does not say the window of an unpooling. Where the
    spatial sizes are static it is the one that infers them, so that every reading of the standard agrees; where
    one is dynamic it is the window of the pool that found the indices, and `output_shape` is what they count in.

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
    check_opset("translation_table", opset)
    aten = torch.ops.aten
    return {
        aten.max_pool1d.default: _pool_translation(1, with_indices=False),
        aten.max_pool2d.default: _pool_translation(2, with_indices=False),
        aten.max_pool3d.default: _pool_translation(3, with_indices=False),
        aten.max_pool1d_with_indices.default: _pool_translation(1, with_indices=True),
        aten.max_pool2d_with_indices.default: _pool_translation(2, with_indices=True),
        aten.max_pool3d_with_indices.default: _pool_translation(3, with_indices=True),
        aten.max_unpool2d.default: _unpool_translation(2),
        aten.max_unpool3d.default: _unpool_translation(3),
    }


def _pool_translation(rank: int, *, with_indices: bool) -> Callable[..., Any]:
    """Translation of a pool over `rank` spatial axes."""

    def max_pool(
        x: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        window = per_axis(kernel_size, rank)
        setting = (window, per_axis(stride, rank) or window, per_axis(padding, rank), per_axis(dilation, rank))
        large = list(x.shape)[-rank:]
        plane = _product([_size(x, axis) for axis in range(-rank, 0)]) if with_indices else None
        unbatched = len(x.shape) == rank + 1
        if unbatched:
            x = op.Unsqueeze(x, [0])
        values, indices = op.MaxPool(x, **_pool_attributes(large, setting, ceil_mode))
        if with_indices:
            indices.producer().meta[PLANES] = _planes(large, setting, ceil_mode)
            indices = op.Mod(indices, plane)
        if unbatched:
            values, indices = op.Squeeze(values, [0]), op.Squeeze(indices, [0])
        return (values, indices) if with_indices else values

    return max_pool


def _planes(large: Sequence[Any], setting: Setting, ceil: bool) -> tuple[int, int] | None:
    """Elements in a plane of the pool's output and of its input; None where sizes are dynamic."""
    small = pooled_sizes(large, setting, ceil=ceil)
    if None in small:
        return None
    return prod(size for size in small if size is not None), prod(large)


def _pool_attributes(large: Sequence[Any], setting: Setting, ceil: bool) -> dict[str, Any]:
    """Attributes of MaxPool; padding in place of ceil_mode where that is misread."""
    window, strides, pads, dilations = setting
    ends = ceil_ends(large, setting) if ceil else None
    is_misread = ends is not None and any(map(lt, ends, pads))
    return {
        "kernel_shape": window,
        "strides": strides,
        "pads": [*pads, *(max(0, end) for end in ends)] if ends is not None and is_misread else pads * 2,
        "dilations": dilations,
        "ceil_mode": int(ceil and not is_misread),
    }


def _unpool_translation(rank: int) -> Callable[..., Any]:
    """Translation of an unpooling over `rank` spatial axes.

    The strides and padding of the 3-D form are not needed: the output size already holds them.
    """

    def max_unpool(x: Any, indices: Any, output_size: Any, stride: Any = (), padding: Any = ()) -> Any:  # noqa: ARG001
        outer = [_size(x, axis) for axis in range(-len(x.shape), -rank)]
        small = [_size(x, axis) for axis in range(-rank, 0)]
        large = [size if isinstance(size, int) else op.Reshape(size, [1]) for size in output_size]
        windows = list(map(unpool_window, small, large, _pool_windows(indices, rank)))
        whole = _found_indices(indices, small, large)
        unbatched = len(outer) == 1
        if unbatched:
            x, indices, outer = op.Unsqueeze(x, [0]), op.Unsqueeze(indices, [0]), [1, *outer]
        if whole is None:
            whole = op.Add(indices, _plane_offsets(outer, large))
        elif unbatched:
            whole = op.Unsqueeze(whole, [0])
        kernel_shape, strides, pads = zip(*windows, strict=True)
        shape = [] if is_inferred(small, large, windows) else [_joined([*outer, *large])]
        y = op.MaxUnpool(x, whole, *shape, kernel_shape=kernel_shape, strides=strides, pads=pads * 2)
        return op.Squeeze(y, [0]) if unbatched else y

    return max_unpool


def _trail(indices: Any) -> list[Any]:
    """Nodes from the indices back to the MaxPool that found them, which is the last; empty without such a pool."""
    nodes = [indices.producer()]
    while nodes[-1] is not None and nodes[-1].op_type in ("Mod", "Unsqueeze", "Squeeze"):
        nodes.append(nodes[-1].inputs[0].producer())
    return nodes if nodes[-1] is not None and nodes[-1].op_type == "MaxPool" else []


def _found_indices(indices: Any, small: Sequence[Any], large: Sequence[Any]) -> Any:
    """The indices as MaxPool found them, in the shape that they are used in; None unless they fit the output.

    They do if the pool's planes are statically as large as the output's and those of its output as those of the
    input: then Mod and Add would cancel.
    """
    trail = _trail(indices)
    mods = [node for node in trail if node.op_type == "Mod"]
    if len(mods) != 1 or not all(isinstance(size, int) for size in (*small, *large)):
        return None
    if trail[-1].meta.get(PLANES) != (prod(small), prod(large)):
        return None
    value = trail[-1].outputs[1]
    for node in reversed(trail[:-1]):
        if node.op_type != "Mod":
            value = getattr(op, node.op_type)(value, node.inputs[1])
    return value


def _pool_windows(indices: Any, rank: int) -> list[Fitted | None]:
    """Windows of the MaxPool that found the indices, None per axis where there is no such pool."""
    trail = _trail(indices)
    if not trail:
        return [None] * rank
    attributes = trail[-1].attributes
    lists = (attributes.get_ints(name) for name in ("kernel_shape", "strides", "pads", "dilations"))
    ceil = bool(attributes.get_int("ceil_mode", 0))
    windows = [pooled_window(*one, ceil=ceil) for one in zip(*lists, strict=False)]
    return [*windows, *[None] * (rank - len(windows))]


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
