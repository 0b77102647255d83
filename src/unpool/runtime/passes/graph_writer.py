"""A writer of nodes, one by one, with the constants that they read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from unpool.dtypes import AnyArray
from unpool.runtime.graph.graph import FreshNames

TO_THE_END = 2**31 - 1
"""The `ends` of a Slice that goes to the end of an axis, in the range of every runtime."""


class GraphWriter:
    """Nodes in topological order and constants by name; methods that write a node return the name of its output.

    The names of new values begin with `stem`.
    """

    def __init__(self, names: FreshNames, stem: str) -> None:
        self._names = names
        self._stem = stem
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, AnyArray] = {}

    def node(self, operator: str, inputs: Sequence[str], stem: str = "", *, output: str = "", **attributes: Any) -> str:
        """A node whose output is named `output` or, if that is empty, by `stem` or the operator."""
        name = output or self._names.fresh(f"{self._stem}_{stem or operator.lower()}")
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{operator}->{name}", **attributes))
        return name

    def rename(self, value: str, output: str) -> None:
        """Call the output of the last node, which must be `value`, by another name."""
        assert self.nodes[-1].output[0] == value
        self.nodes[-1].output[0] = output
        self.nodes[-1].name = f"{self.nodes[-1].op_type}->{output}"

    def constant(self, value: Any, stem: str, dtype: Any = np.int64) -> str:
        """A constant; equal constants are written once."""
        array = np.asarray(value, dtype)
        for name, known in self.constants.items():
            if known.dtype == array.dtype and known.shape == array.shape and known.tobytes() == array.tobytes():
                return name
        name = self._names.fresh(f"{self._stem}_{stem}")
        self.constants[name] = array
        return name

    def slice(
        self,
        value: str,
        starts: Sequence[int],
        ends: Sequence[int] | str,
        steps: Sequence[int] | None = None,
        *,
        output: str = "",
    ) -> str:
        """The elements of each spatial axis from its start to its end; `ends` may be a value of the graph."""
        axes = range(2, len(starts) + 2)
        stop = ends if isinstance(ends, str) else self.constant(ends, "ends")
        inputs = [value, self.constant(starts, "starts"), stop, self.constant(axes, "axes")]
        if steps is not None and any(step != 1 for step in steps):
            inputs.append(self.constant(steps, "steps"))
        return self.node("Slice", inputs, "cut", output=output)

    def pad(self, value: str, begins: Sequence[int], ends: Sequence[int], fill: Any, dtype: Any) -> str:
        """The value with `fill` around its spatial axes; the value itself if it gets no padding."""
        if not any((*begins, *ends)):
            return value
        pads = self.constant([0, 0, *begins, 0, 0, *ends], "pads")
        return self.node("Pad", [value, pads, self.constant(fill, "fill", dtype)], "padded")

    def spatial_sizes(self, value: str, rank: int) -> str:
        """The sizes of the spatial axes of a value, a vector."""
        places = self.constant(range(2, rank + 2), "places")
        return self.node("Gather", [self.node("Shape", [value], "shape"), places], "sizes")

    def product(self, vector: str, positions: Sequence[int]) -> str:
        """The product of some elements of a vector, of shape (1,); a chain of Mul, which every opset has."""
        product = ""
        for position in positions:
            size = self.node("Gather", [vector, self.constant([position], "position")], "size")
            product = self.node("Mul", [product, size], "product") if product else size
        return product
