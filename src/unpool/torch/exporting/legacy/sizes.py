"""Sizes in the traced graph of torch's exporter behind dynamo=False: ints where they are static, else int64 values."""

from collections.abc import Callable, Sequence
from operator import add, mul, sub
from typing import Any

import torch

from unpool.errors import UnsupportedError

ARITHMETIC: dict[str, Callable[[int, int], int]] = {"onnx::Add": add, "onnx::Sub": sub, "onnx::Mul": mul}
SAME_VALUE = ("onnx::Cast", "onnx::Reshape", "onnx::Squeeze", "onnx::Unsqueeze", "onnx::Identity")


def sizes_of(x: Any) -> list[int | None]:
    """Sizes of a value's axes, None where they are dynamic.

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


def with_sizes(value: Any, like: Any, sizes: Sequence[Any], dtype: torch.dtype | None = None) -> Any:
    """Tell torch that a value has the type of `like` and these sizes; those that are no ints are dynamic."""
    kind = like.type().with_sizes([length if isinstance(length, int) else None for length in sizes])
    value.setType(kind if dtype is None else kind.with_dtype(dtype))
    return value


def size(g: Any, x: Any, axis: int) -> Any:
    """Elements along `axis`: an int, or an int64 value of shape () where it is dynamic."""
    sizes = sizes_of(x)
    length = sizes[axis]
    if length is not None:
        return length
    return g.op("Gather", g.op("Shape", x), constant(g, axis % len(sizes)), axis_i=0)


def known_size(value: Any) -> int | None:
    """The number that a value is known to be, computed from constants and static sizes; else None."""
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


def constant(g: Any, value: Any) -> Any:
    """A Constant of int64."""
    return g.op("Constant", value_t=torch.as_tensor(value, dtype=torch.int64))


def constant_of(value: Any) -> int | None:
    """The int of a Constant with one element, else None."""
    if value.node().kind() != "onnx::Constant":
        return None
    tensor = value.node().t("value")
    return int(tensor) if tensor.numel() == 1 else None


def joined(g: Any, sizes: Sequence[Any]) -> Any:
    """The sizes as one int64 vector."""
    if all(isinstance(length, int) for length in sizes):
        return constant(g, list(sizes))
    one = constant(g, [1])
    parts = [constant(g, [length]) if isinstance(length, int) else g.op("Reshape", length, one) for length in sizes]
    return g.op("Concat", *parts, axis_i=0)


def reshaped(g: Any, x: Any, sizes: Sequence[Any]) -> Any:
    """The value in another shape; itself if it has that shape.

    This is always a Reshape, which is the same in all opsets, where Squeeze and Unsqueeze are not.
    """
    if sizes_of(x) == list(sizes):
        return x
    y = g.op("Reshape", x, joined(g, sizes))
    return with_sizes(y, x, [length if length != -1 else None for length in sizes])
