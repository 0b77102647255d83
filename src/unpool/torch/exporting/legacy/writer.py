"""Writes nodes for torch's exporter behind dynamo=False, in the opset that was asked for, from 9 on.

Opset 9 has no Mod, opset 10 no Range: other nodes take their places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unpool.torch.exporting.legacy import sizes as traced
from unpool.torch.exporting.windows import pool_windows
from unpool.torch.exporting.writer import PoolBehind
from unpool.torch.private import private

FIRST_MOD = 10
FIRST_RANGE = 11


@dataclass(frozen=True, slots=True)
class TracedWriter:
    """The `Writer` behind dynamo=False. A dynamic size is an int64 value of shape ().

    Attributes:
        g: the graph, as torch hands it to a symbolic.
    """

    g: Any

    @property
    def opset(self) -> int:
        """See `Writer`."""
        return int(self.g.opset)

    def known_sizes(self, x: Any) -> list[int | None]:
        """See `Writer`."""
        return traced.sizes_of(x)

    def size(self, x: Any, axis: int) -> Any:
        """See `Writer`."""
        return traced.size(self.g, x, axis)

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        """See `Writer`; the attributes are ints or lists of ints."""
        values = [traced.constant(self.g, one) if isinstance(one, int) else one for one in inputs]
        return self.g.op(op_type, *values, **_with_kinds(attributes))

    def constant(self, numbers: npt.NDArray[np.int64]) -> Any:
        """See `Writer`."""
        return traced.constant(self.g, numbers)

    def vector(self, sizes: Sequence[Any]) -> Any:
        """See `Writer`."""
        return traced.joined(self.g, sizes)

    def reshaped(self, x: Any, sizes: Sequence[Any]) -> Any:
        """See `Writer`."""
        return traced.reshaped(self.g, x, sizes)

    def numbers_below(self, count: Any) -> Any:
        """See `Writer`."""
        if self.opset >= FIRST_RANGE:
            return self.node("Range", 0, count, 1)
        ones = self.g.op("ConstantOfShape", self.vector([count]), value_t=torch.ones(1, dtype=torch.int64))
        return self.node("NonZero", ones)

    def with_batch(self, x: Any) -> Any:
        """See `Writer`."""
        return self.reshaped(x, [1, *self.all_sizes(x)])

    def without_batch(self, x: Any) -> Any:
        """See `Writer`."""
        return self.reshaped(x, self.all_sizes(x)[1:])

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        """See `Writer`."""
        known = [*traced.sizes_of(x)[:2], *sizes[1]]
        if not with_indices:
            return [traced.with_sizes(self.node("MaxPool", x, **attributes), x, known)]
        values, indices = self.g.op("MaxPool", x, outputs=2, **_with_kinds(attributes))
        return [traced.with_sizes(values, x, known), traced.with_sizes(indices, x, known, torch.int64)]

    def in_plane(self, indices: Any, plane: Any) -> Any:
        """See `Writer`; no index is negative."""
        plane = traced.constant(self.g, plane) if isinstance(plane, int) else plane
        if self.opset >= FIRST_MOD:
            rest = self.node("Mod", indices, plane)
        else:
            rest = self.node("Sub", indices, self.node("Mul", self.node("Div", indices, plane), plane))
        return traced.with_sizes(rest, indices, traced.sizes_of(indices))

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:
        """See `Writer`."""
        x = inputs[0]
        return traced.with_sizes(self.node("MaxUnpool", *inputs, **attributes), x, [*traced.sizes_of(x)[:2], *large])

    def pool_behind(self, indices: Any, rank: int) -> PoolBehind | None:
        """See `Writer`."""
        pool, _ = _pool_of(indices)
        if pool is None:
            return None
        get: Any = private("torch.onnx.symbolic_helper._node_get")
        windows = pool_windows({name: get(pool, name) for name in pool.attributeNames()}, rank)
        small, large = map(_elements_of_plane, (pool.outputsAt(1), pool.inputsAt(0)))
        return PoolBehind(windows, None if small is None or large is None else (small, large))

    def as_pooled(self, indices: Any) -> Any:
        """See `Writer`."""
        pool, is_reshaped = _pool_of(indices)
        found = pool.outputsAt(1)
        return self.reshaped(found, self.all_sizes(indices)) if is_reshaped else found

    def all_sizes(self, x: Any) -> list[Any]:
        """The sizes along all axes."""
        return [self.size(x, axis) for axis in range(len(traced.sizes_of(x)))]


def _pool_of(indices: Any) -> tuple[Any, bool]:
    """The MaxPool that found indices, which a Mod or Sub then counts inside their plane; None if there is no such pair.

    The second value says whether the indices were reshaped after that.
    """
    node, steps = indices.node(), 0
    while node.kind() in ("onnx::Unsqueeze", "onnx::Squeeze", "onnx::Reshape"):
        node, steps = node.inputsAt(0).node(), steps + 1
    pool = node.inputsAt(0).node() if node.kind() in ("onnx::Mod", "onnx::Sub") else None
    return (None if pool is None or pool.kind() != "onnx::MaxPool" else pool), steps > 0


def _elements_of_plane(x: Any) -> int | None:
    """Elements along all axes but the first two, None if a size is dynamic."""
    sizes = traced.sizes_of(x)[2:]
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def _with_kinds(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with the suffix that tells torch that they are ints, as all of ours are."""
    return {f"{name}_i": value for name, value in attributes.items()}
