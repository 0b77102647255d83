"""Transposed convolutions whose output_padding depends on sizes that stay open, as `output_size` gives it.

ONNX has output_padding as an attribute only. So the widest one is written, and what is too much is cut off:

    large = ConvTranspose(x, output_padding = widest)[: -(widest - output_padding)]

where the widest is max(stride, dilation) - 1. Other convolutions stay with torch's exporter.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from unpool.torch.exporting.dynamo.writer import ProgramWriter, op

THEIRS = "onnxscript.function_libs.torch_lib.ops.core"
"""The module of onnxscript with torch's own translations."""


def convolution_translation() -> Callable[..., Any] | None:
    """Translation of aten.convolution; None where torch's own cannot be had for all the others."""
    try:
        theirs = import_module(THEIRS).aten_convolution
    except (ImportError, AttributeError):
        return None

    def convolution(
        x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: Any, *more: Any
    ) -> Any:
        output_padding, groups = more
        if not transposed or all(isinstance(size, int) for size in output_padding):
            return theirs(x, w, b, stride, padding, dilation, transposed, output_padding, groups)
        rank = len(output_padding)
        strides, pads, dilations = ([*part] * (rank if len(part) == 1 else 1) for part in (stride, padding, dilation))
        widest = [max(pair) - 1 for pair in zip(strides, dilations, strict=True)]
        words = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": groups}
        large = op.ConvTranspose(x, w, b, output_padding=widest, **words)
        return _cut(large, widest, output_padding)

    return convolution


def _cut(large: Any, widest: Sequence[int], wanted: Sequence[Any]) -> Any:
    """Without the last elements of every spatial axis that `wanted` has less than `widest`."""
    write, rank = ProgramWriter(), len(widest)
    sizes = [size if isinstance(size, int) else op.Reshape(size, [1]) for size in wanted]
    more = op.Sub(write.constant(np.array(widest, np.int64)), write.vector(sizes))
    ends = op.Sub(op.Shape(large, start=2), more)
    axes = write.constant(np.arange(2, 2 + rank, dtype=np.int64))
    return op.Slice(large, write.constant(np.zeros(rank, np.int64)), ends, axes)
