"""Indices of a MaxPool that differ: did two runtimes choose among equal elements, or another value?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.operators.contract import NHWC
from unpool.runtime.compare.difference import Tolerance
from unpool.runtime.graph.nodes import attributes, domain


@dataclass(frozen=True)
class Choices:
    """Indices that differ, counted by the elements of X that they name.

    Attributes:
        tied: both elements are equal, and neither runtime is wrong about the value.
        near: they differ within the tolerance, so that rounding before the pool decides.
        other: they differ by more: one runtime did not choose the largest, or counts in another way.
        outside: one of the indices names no element of X.
    """

    tied: int = 0
    near: int = 0
    other: int = 0
    outside: int = 0

    def __str__(self) -> str:
        parts = (
            (self.tied, "tie"),
            (self.near, "almost tie"),
            (self.other, "of other values"),
            (self.outside, "outside"),
        )
        return "indices: " + ", ".join(f"{count} {what}" for count, what in parts if count)


def is_choice(node: onnx.NodeProto, position: int) -> bool:
    """Whether output `position` of the node holds indices of a MaxPool."""
    return node.op_type == "MaxPool" and domain(node) in ("", NHWC) and position == 1


def choices(node: onnx.NodeProto, x: AnyArray, expected: AnyArray, got: AnyArray, tolerance: Tolerance) -> Choices:
    """What the indices name where they differ.

    Args:
        node: the MaxPool.
        x: what it pooled, in the first runtime.
        expected: indices of the first runtime.
        got: indices of the second, of the same shape.
        tolerance: up to which elements almost tie.
    """
    cells = _in_order_of_indices(node, x)
    differs = expected != got
    first, second = expected[differs], got[differs]
    inside = (np.minimum(first, second) >= 0) & (np.maximum(first, second) < cells.size)
    one, other = cells[first[inside]], cells[second[inside]]
    tied = (one == other) | (np.isnan(one) & np.isnan(other))
    height = float(np.abs(cells[np.isfinite(cells)]).max(initial=0.0))
    near = ~tied & (np.abs(one - other) <= tolerance.of(x.dtype) * height)
    counts = int(tied.sum()), int(near.sum()), int((~tied & ~near).sum()), int((~inside).sum())
    return Choices(*counts)


def _in_order_of_indices(node: onnx.NodeProto, x: AnyArray) -> Any:
    """The elements of X as the indices of the node count them."""
    planes = np.moveaxis(x, -1, 1) if domain(node) == NHWC else x
    if attributes(node).get("storage_order"):
        planes = planes.transpose(0, 1, *range(planes.ndim - 1, 1, -1))
    return planes.astype(np.float64).reshape(-1)
