"""Calls that onnxruntime refuses, or for which it may give another result than the standard."""

import numpy as np
import onnx

from unpool.geometry import Window
from unpool.graph import shapes
from unpool.graph.nodes import attributes, domain
from unpool.graph.shapes import Types
from unpool.operators.max_pool import MaxPoolSpec

MOST_AXES = 3  # of a ConvTranspose in onnxruntime


def pool_difference(spec: MaxPoolSpec, known: tuple[int | None, ...] | None) -> str:
    """The reason why onnxruntime could give another result for a MaxPool without Indices; "" when it cannot.

    `known` are the sizes of its input; None for one that is not known, or for all of them.
    """
    rank = len(spec.windows)
    if known is not None and 0 in known:
        return "onnxruntime refuses an empty input"
    sizes = known[2:] if known is not None and len(known) == rank + 2 else (None,) * rank
    differences = map(_difference_over_axis, [spec] * rank, sizes, spec.windows, spec.pads)
    return next(filter(None, differences), "")


def _difference_over_axis(spec: MaxPoolSpec, size: int | None, window: Window, pads: tuple[int, int]) -> str:
    if spec.padding in ("SAME_UPPER", "SAME_LOWER"):
        gap = "auto_pad SAME with a stride beyond the window" if window.stride > window.reach else ""
        return "auto_pad SAME with dilation" if window.dilation > 1 else gap
    if spec.padding == "VALID":
        return "VALID with ceil_mode" if spec.ceil else _floor_difference(size, window, (0, 0))
    if max(pads) >= window.size:
        return "pads reach the kernel size"
    if window.dilation > 1 and any(pads) and (size is None or size < window.dilation):
        return "a dilated window may see padding only"
    return _floor_difference(size, window, pads)


def _floor_difference(size: int | None, window: Window, pads: tuple[int, int]) -> str:
    """A window that does not fit: no output in the standard, one output in onnxruntime."""
    least = 1 if size is None else size
    return "the window may not fit the input" if window.stride > 1 and least + sum(pads) < window.reach else ""


def is_plain_conv_transpose(node: onnx.NodeProto, types: Types) -> bool:
    """True for a ConvTranspose of the standard that onnxruntime computes as it is written."""
    given, known = attributes(node), shapes.dims(types.get(node.input[0]))
    return (
        domain(node) == ""
        and shapes.dtype(types.get(node.input[0])) == np.float32
        and known is not None
        and 0 < len(known) - 2 <= MOST_AXES
        and 0 not in known
        and given.get("auto_pad", b"NOTSET") == b"NOTSET"
        and not given.get("output_shape")
        and max(given.get("output_padding", ()), default=0) < min(given.get("strides", ()), default=1)
    )
