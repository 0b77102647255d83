"""The NodeWriter of torch's exporter behind dynamo=False, for opset 9 and later.

Sizes are ints if they are static, else int64 values. Opset 9 has no Mod, opset 10 no Range: other nodes replace them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from operator import add, mul, sub
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unpool.errors import UnsupportedError
from unpool.torch.compat import torch_internal
from unpool.torch.exporting.attributes import pool_windows
from unpool.torch.exporting.nodes import SourcePool

ARITHMETIC: dict[str, Callable[[int, int], int]] = {"onnx::Add": add, "onnx::Sub": sub, "onnx::Mul": mul}
SAME_VALUE = ("onnx::Cast", "onnx::Reshape", "onnx::Squeeze", "onnx::Unsqueeze", "onnx::Identity")


def sizes_of(x: Any) -> list[int | None]:
    """Sizes of a value's axes, None for dynamic ones.

    Raises:
        UnsupportedError: not even the number of axes is known.
    """
    sizes = x.type().varyingSizes() if isinstance(x.type(), torch.TensorType) else None
    if sizes is None:
        raise UnsupportedError(
            f"export: expected a tensor with a known number of axes, got {x.debugName()} of type {x.type()}. "
            "Export with dynamo=True, or trace the model instead of scripting it."
        )
    return list(sizes)


def set_sizes(value: Any, like: Any, sizes: Sequence[Any], dtype: torch.dtype | None = None) -> Any:
    """Set the type of a value to that of `like` with these sizes; sizes that are no ints are dynamic."""
    kind = like.type().with_sizes([length if isinstance(length, int) else None for length in sizes])
    value.setType(kind if dtype is None else kind.with_dtype(dtype))
    return value


def axis_size(g: Any, x: Any, axis: int) -> Any:
    """Elements along `axis`: an int, or an int64 value of shape () if dynamic."""
    sizes = sizes_of(x)
    length = sizes[axis]
    if length is not None:
        return length
    return g.op("Gather", g.op("Shape", x), int64_constant(g, axis % len(sizes)), axis_i=0)


def known_size(value: Any) -> int | None:
    """The number of a value, if it follows from constants and static sizes; else None."""
    node = value.node()
    inputs = list(node.inputs())
    if node.kind() == "onnx::Constant":
        return constant_of(value)
    if node.kind() == "onnx::Gather" and inputs[0].node().kind() == "onnx::Shape":
        axis = known_size(inputs[1])
        sizes = inputs[0].node().inputsAt(0).type().varyingSizes()
        return None if axis is None or sizes is None else sizes[axis]
    if node.kind() in SAME_VALUE:
        return known_size(inputs[0])
    if node.kind() in ARITHMETIC:
        left, right = map(known_size, inputs)
        return None if left is None or right is None else ARITHMETIC[node.kind()](left, right)
    return None


def int64_constant(g: Any, value: Any) -> Any:
    """A Constant of int64."""
    return g.op("Constant", value_t=torch.as_tensor(value, dtype=torch.int64))


def constant_of(value: Any) -> int | None:
    """The int of a Constant with one element, else None."""
    if value.node().kind() != "onnx::Constant":
        return None
    tensor = value.node().t("value")
    return int(tensor) if tensor.numel() == 1 else None


def concat_sizes(g: Any, sizes: Sequence[Any]) -> Any:
    """The sizes as one int64 vector."""
    if all(isinstance(length, int) for length in sizes):
        return int64_constant(g, list(sizes))
    one = int64_constant(g, [1])
    parts = [
        int64_constant(g, [length]) if isinstance(length, int) else g.op("Reshape", length, one) for length in sizes
    ]
    return g.op("Concat", *parts, axis_i=0)


def reshape(g: Any, x: Any, sizes: Sequence[Any]) -> Any:
    """The value in another shape; itself if it has that shape.

    Always by Reshape, which is the same in all opsets, unlike Squeeze and Unsqueeze.
    """
    if sizes_of(x) == list(sizes):
        return x
    y = g.op("Reshape", x, concat_sizes(g, sizes))
    return set_sizes(y, x, [length if length != -1 else None for length in sizes])


FIRST_MOD = 10
FIRST_RANGE = 11


@dataclass(frozen=True, slots=True)
class TracedWriter:
    """The `NodeWriter` behind dynamo=False. A dynamic size is an int64 value of shape ().

    Attributes:
        g: the graph, as torch hands it to a symbolic.
    """

    g: Any

    @property
    def opset(self) -> int:
        """See `NodeWriter`."""
        return int(self.g.opset)

    def static_sizes(self, x: Any) -> list[int | None]:
        """See `NodeWriter`."""
        return sizes_of(x)

    def size(self, x: Any, axis: int) -> Any:
        """See `NodeWriter`."""
        return axis_size(self.g, x, axis)

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        """See `NodeWriter`; the attributes are ints or lists of ints."""
        values = [int64_constant(self.g, one) if isinstance(one, int) else one for one in inputs]
        return self.g.op(op_type, *values, **_suffix_kinds(attributes))

    def constant(self, numbers: npt.NDArray[np.int64]) -> Any:
        """See `NodeWriter`."""
        return int64_constant(self.g, numbers)

    def vector(self, sizes: Sequence[Any]) -> Any:
        """See `NodeWriter`."""
        return concat_sizes(self.g, sizes)

    def reshape(self, x: Any, sizes: Sequence[Any]) -> Any:
        """See `NodeWriter`."""
        return reshape(self.g, x, sizes)

    def arange(self, count: Any) -> Any:
        """See `NodeWriter`."""
        if self.opset >= FIRST_RANGE:
            return self.node("Range", 0, count, 1)
        ones = self.g.op("ConstantOfShape", self.vector([count]), value_t=torch.ones(1, dtype=torch.int64))
        return self.node("NonZero", ones)

    def add_batch(self, x: Any) -> Any:
        """See `NodeWriter`."""
        return self.reshape(x, [1, *self.sizes_of_axes(x)])

    def remove_batch(self, x: Any) -> Any:
        """See `NodeWriter`."""
        return self.reshape(x, self.sizes_of_axes(x)[1:])

    def max_pool(self, x: Any, attributes: dict[str, Any], sizes: Any, *, with_indices: bool) -> list[Any]:
        """See `NodeWriter`."""
        known = [*sizes_of(x)[:2], *sizes[1]]
        if not with_indices:
            return [set_sizes(self.node("MaxPool", x, **attributes), x, known)]
        values, indices = self.g.op("MaxPool", x, outputs=2, **_suffix_kinds(attributes))
        return [set_sizes(values, x, known), set_sizes(indices, x, known, torch.int64)]

    def indices_in_plane(self, indices: Any, plane: Any) -> Any:
        """See `NodeWriter`; no index is negative."""
        plane = int64_constant(self.g, plane) if isinstance(plane, int) else plane
        if self.opset >= FIRST_MOD:
            rest = self.node("Mod", indices, plane)
        else:
            rest = self.node("Sub", indices, self.node("Mul", self.node("Div", indices, plane), plane))
        return set_sizes(rest, indices, sizes_of(indices))

    def max_unpool(self, inputs: Sequence[Any], attributes: dict[str, Any], large: Sequence[Any]) -> Any:
        """See `NodeWriter`."""
        x = inputs[0]
        return set_sizes(self.node("MaxUnpool", *inputs, **attributes), x, [*sizes_of(x)[:2], *large])

    def source_pool(self, indices: Any, rank: int) -> SourcePool | None:
        """See `NodeWriter`."""
        pool, _ = _source_pool(indices)
        if pool is None:
            return None
        get: Any = torch_internal("torch.onnx.symbolic_helper._node_get")
        windows = pool_windows({name: get(pool, name) for name in pool.attributeNames()}, rank)
        small, large = map(_plane_size, (pool.outputsAt(1), pool.inputsAt(0)))
        return SourcePool(windows, None if small is None or large is None else (small, large))

    def indices_in_tensor(self, indices: Any) -> Any:
        """See `NodeWriter`."""
        pool, is_reshaped = _source_pool(indices)
        found = pool.outputsAt(1)
        return self.reshape(found, self.sizes_of_axes(indices)) if is_reshaped else found

    def sizes_of_axes(self, x: Any) -> list[Any]:
        """The sizes along all axes."""
        return [self.size(x, axis) for axis in range(len(sizes_of(x)))]


def _source_pool(indices: Any) -> tuple[Any, bool]:
    """The MaxPool of indices that a Mod or Sub counts inside their plane, or None; and whether they were reshaped."""
    node, steps = indices.node(), 0
    while node.kind() in ("onnx::Unsqueeze", "onnx::Squeeze", "onnx::Reshape"):
        node, steps = node.inputsAt(0).node(), steps + 1
    pool = node.inputsAt(0).node() if node.kind() in ("onnx::Mod", "onnx::Sub") else None
    return (None if pool is None or pool.kind() != "onnx::MaxPool" else pool), steps > 0


def _plane_size(x: Any) -> int | None:
    """Elements along all axes but the first two, None if a size is dynamic."""
    sizes = sizes_of(x)[2:]
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def _suffix_kinds(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with torch's suffix for ints."""
    return {f"{name}_i": value for name, value in attributes.items()}
