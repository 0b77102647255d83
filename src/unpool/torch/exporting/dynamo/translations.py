"""Translations for torch's default exporter: one MaxPool per pool, one MaxUnpool per unpooling.

ONNX has output_padding as an attribute only. So a transposed convolution whose output_padding depends on dynamic sizes,
as `output_size` does, gets the largest one, and its output is cropped:

    large = ConvTranspose(x, output_padding = largest)[: -(largest - output_padding)]

with largest = max(stride, dilation) - 1. Other convolutions keep torch's translation.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch

from unpool.torch.exporting.attributes import check_opset, pool_of
from unpool.torch.exporting.dynamo.writer import ProgramWriter, op
from unpool.torch.exporting.nodes import write_max_pool, write_max_unpool

TORCH_LIB_MODULE = "onnxscript.function_libs.torch_lib.ops.core"
"""The module of onnxscript with torch's translations."""


def convolution_translation() -> Callable[..., Any] | None:
    """Translation of aten.convolution; None if torch's own translation is not found."""
    try:
        torch_convolution = import_module(TORCH_LIB_MODULE).aten_convolution
    except (ImportError, AttributeError):
        return None

    def convolution(
        x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: Any, *more: Any
    ) -> Any:
        output_padding, groups = more
        if not transposed or all(isinstance(size, int) for size in output_padding):
            return torch_convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)
        rank = len(output_padding)
        strides, pads, dilations = ([*part] * (rank if len(part) == 1 else 1) for part in (stride, padding, dilation))
        largest = [max(pair) - 1 for pair in zip(strides, dilations, strict=True)]
        words = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": groups}
        large = op.ConvTranspose(x, w, b, output_padding=largest, **words)
        return _crop(large, largest, output_padding)

    return convolution


def _crop(large: Any, largest: Sequence[int], needed: Sequence[Any]) -> Any:
    """Crop `largest - needed` elements from the end of every spatial axis."""
    writer, rank = ProgramWriter(), len(largest)
    sizes = [size if isinstance(size, int) else op.Reshape(size, [1]) for size in needed]
    more = op.Sub(writer.constant(np.array(largest, np.int64)), writer.vector(sizes))
    ends = op.Sub(op.Shape(large, start=2), more)
    axes = writer.constant(np.arange(2, 2 + rank, dtype=np.int64))
    return op.Slice(large, writer.constant(np.zeros(rank, np.int64)), ends, axes)


def translation_table(opset: int | None = None) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Entries for the `custom_translation_table` of `torch.onnx.export(..., dynamo=True)`.

    A pool with indices becomes MaxPool and Mod, an unpooling becomes Add and MaxUnpool; if the unpooling returns to the
    pool's size, Mod and Add are omitted. ATen does not state the window of an unpooling. If the spatial sizes are
    static, MaxUnpool gets a window that implies them. If one is dynamic, it gets the window of the pool that computed
    the indices, and the size as its input `output_shape`. A transposed convolution whose output_padding depends on a
    dynamic size becomes ConvTranspose and Slice.

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
    convolution = convolution_translation()
    return {
        **({} if convolution is None else {aten.convolution.default: convolution}),
        aten.max_pool1d.default: _pool_translation(1, with_indices=False),
        aten.max_pool2d.default: _pool_translation(2, with_indices=False),
        aten.max_pool3d.default: _pool_translation(3, with_indices=False),
        aten.max_pool1d_with_indices.default: _pool_translation(1, with_indices=True),
        aten.max_pool2d_with_indices.default: _pool_translation(2, with_indices=True),
        aten.max_pool3d_with_indices.default: _pool_translation(3, with_indices=True),
        aten.max_unpool2d.default: _max_unpool,
        aten.max_unpool3d.default: _max_unpool,
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
        pool = pool_of(rank, kernel_size, stride, padding, dilation, ceil_mode)
        return write_max_pool(ProgramWriter(), x, pool, with_indices=with_indices)

    return max_pool


def _max_unpool(x: Any, indices: Any, output_size: Any, stride: Any = (), padding: Any = ()) -> Any:  # noqa: ARG001
    """Translation of an unpooling.

    ATen has strides and padding in the 3-D one only; with a known output size they are not needed.
    """
    large = [size if isinstance(size, int) else op.Reshape(size, [1]) for size in output_size]
    return write_max_unpool(ProgramWriter(), x, indices, large)
