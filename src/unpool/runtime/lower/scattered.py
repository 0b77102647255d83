"""Writes a MaxUnpool as the scatter over a flat tensor of zeros that it is.

    large = Reshape(ScatterElements(Reshape(ConstantOfShape(S)), Reshape(I), Reshape(X)), S)

ONNX leaves open what ScatterElements does with an index that comes twice, and with negative ones; MaxUnpool takes the
last one and refuses the others.
"""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.runtime.lower.writer import Writer


def scattered(writer: Writer, node: onnx.NodeProto, shape: str, dtype: np.dtype[np.generic]) -> None:
    """Write nodes that make the output of a MaxUnpool whose indices count in the shape that `shape` holds."""
    flat = writer.constant([-1], "flat")
    zero = numpy_helper.from_array(np.zeros(1, dtype), "zero")
    zeros = writer.node("ConstantOfShape", [shape], "zeros", value=zero)
    x, i, cells = (writer.node("Reshape", [name, flat], "flat") for name in (node.input[0], node.input[1], zeros))
    filled = writer.node("ScatterElements", [cells, i, x], "filled", axis=0)
    writer.node("Reshape", [filled, shape], output=node.output[0])


def inferred_shape(writer: Writer, spec: MaxUnpoolSpec, x: str, inferred: Sequence[int] | None) -> str:
    """Write the shape that the attributes of a MaxUnpool give: of its spatial part, or for every size of x.

    The shape is (N, C, D1..Dk) with D = (d - 1) * stride + window - padding.
    """
    shape = writer.node("Shape", [x], "shape")
    outer = writer.node("Gather", [shape, writer.constant([0, 1], "outer")], "outer")
    if inferred is not None:
        return writer.node("Concat", [outer, writer.constant(inferred, "spatial")], "large_shape", axis=0)
    rank = len(spec.windows)
    strides = writer.constant([window.stride for window in spec.windows], "strides")
    rest = [window.size - window.stride - sum(pads) for window, pads in zip(spec.windows, spec.pads, strict=True)]
    steps = writer.node("Mul", [writer.spatial_sizes(x, rank), strides], "steps")
    spatial = writer.node("Add", [steps, writer.constant(rest, "rest")], "spatial")
    return writer.node("Concat", [outer, spatial], "large_shape", axis=0)
