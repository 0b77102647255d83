"""PyTorch's functions, where they have the node's attributes; Indices are carried over to the whole tensor.

PyTorch has no versions, so only the newest opset is asked; it has neither auto_pad nor storage_order, its pads are
symmetric, and its indices count inside one (n, c) plane.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from torch.nn import functional

from conformance.runtimes import NoMapping

NOISE: tuple[str, ...] = ()
NEWEST_OPSET = 22
RANKS = (1, 2, 3)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
Tensors = tuple[torch.Tensor, ...]


def version() -> str:
    """Of the installed package; one thread from here on."""
    torch.set_num_threads(1)
    return str(torch.__version__)


def answer(model: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the node's counterpart."""
    parsed = onnx.load_from_string(model)
    (node,) = parsed.graph.node
    if node.domain or parsed.opset_import[0].version != NEWEST_OPSET:
        raise NoMapping("PyTorch has neither versions nor domains")
    inputs = [feeds.get(name) for name in node.input]
    x = inputs[0]
    if x is None or x.ndim - 2 not in RANKS:
        raise NoMapping("one to three spatial axes")
    given = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    return CALLS[node.op_type](x.ndim - 2, inputs, Attributes(given, x.ndim - 2), len(node.output))


class Attributes:
    """The node's attributes in PyTorch's terms."""

    def __init__(self, given: Mapping[str, Any], rank: int) -> None:
        self.given = given
        self.rank = rank
        if self.get("auto_pad", b"NOTSET") not in (b"", b"NOTSET"):
            raise NoMapping("auto_pad")
        if self.get("storage_order", 0) or "activation" in given or "activation_params" in given:
            raise NoMapping("storage_order or activation")

    def get(self, name: str, default: Any) -> Any:
        """The value as ONNX has it."""
        return self.given.get(name, default)

    def per_axis(self, name: str, default: int) -> list[int]:
        """One number for every spatial axis."""
        values = list(self.get(name, [default] * self.rank))
        if len(values) != self.rank:
            raise NoMapping(f"{name} of another length")
        return values

    def padding(self) -> list[int]:
        """Pads that are the same on both sides."""
        values = list(self.get("pads", [0] * 2 * self.rank))
        if len(values) != 2 * self.rank or values[: self.rank] != values[self.rank :]:
            raise NoMapping("pads that are not symmetric")
        return values[: self.rank]


def max_pool(rank: int, inputs: Sequence[Any], given: Attributes, outputs: int) -> list[np.ndarray]:
    """Y, or Y and whole-tensor Indices."""
    if given.get("ceil_mode", 0) not in (0, 1):
        raise NoMapping("ceil_mode that is not a truth value")
    function: Callable[..., Any] = getattr(functional, f"max_pool{rank}d")
    x = inputs[0]
    result = function(
        to_tensor(x),
        given.per_axis("kernel_shape", 0),
        given.per_axis("strides", 1),
        given.padding(),
        given.per_axis("dilations", 1),
        ceil_mode=bool(given.get("ceil_mode", 0)),
        return_indices=outputs == 2,
    )
    if outputs == 1:
        return [to_array(result)]
    return [to_array(result[0]), to_array(result[1]) + first_of_planes(x.shape)]


def max_unpool(rank: int, inputs: Sequence[Any], given: Attributes, _outputs: int) -> list[np.ndarray]:
    """The unpooled tensor; output_shape is PyTorch's output_size."""
    x, indices = inputs[:2]
    asked = inputs[2] if len(inputs) > 2 else None
    kernel, strides, pads = given.per_axis("kernel_shape", 0), given.per_axis("strides", 1), given.padding()
    if asked is None:
        axes = zip(x.shape[2:], kernel, strides, pads, strict=True)
        spatial = [(n - 1) * s + k - 2 * p for n, k, s, p in axes]
    elif asked.shape != (x.ndim,) or tuple(asked[:2]) != x.shape[:2]:
        raise NoMapping("output_size has no N and C of its own")
    else:
        spatial = [int(size) for size in asked[2:]]
    if indices.shape != x.shape:
        in_plane = indices
    else:
        in_plane = indices - first_of_planes((*x.shape[:2], *spatial))
        total = int(np.prod([*x.shape[:2], *spatial]))
        if ((indices >= 0) & (indices < total) & ((in_plane < 0) | (in_plane >= np.prod(spatial)))).any():
            raise NoMapping("indices that leave their plane")
    function: Callable[..., Any] = getattr(functional, f"max_unpool{rank}d")
    size = None if asked is None else spatial
    return [to_array(function(to_tensor(x), to_tensor(in_plane), kernel, strides, pads, output_size=size))]


def conv_transpose(rank: int, inputs: Sequence[Any], given: Attributes, _outputs: int) -> list[np.ndarray]:
    """The transposed convolution; the window's size is that of the weights."""
    if "output_shape" in given.given:
        raise NoMapping("output_shape")
    x, w = inputs[:2]
    if list(given.get("kernel_shape", w.shape[2:])) != list(w.shape[2:]):
        raise NoMapping("kernel_shape next to the weights")
    function: Callable[..., Any] = getattr(functional, f"conv_transpose{rank}d")
    bias = inputs[2] if len(inputs) > 2 else None
    result = function(
        to_tensor(x),
        to_tensor(w),
        None if bias is None else to_tensor(bias),
        given.per_axis("strides", 1),
        given.padding(),
        given.per_axis("output_padding", 0),
        given.get("group", 1),
        given.per_axis("dilations", 1),
    )
    return [to_array(result)]


CALLS: dict[str, Callable[[int, Sequence[Any], Attributes, int], list[np.ndarray]]] = {
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
    "ConvTranspose": conv_transpose,
}


def first_of_planes(shape: Sequence[int]) -> np.ndarray:
    """The whole-tensor index of the first element of every (n, c) plane."""
    planes = np.arange(shape[0] * shape[1], dtype=np.int64) * int(np.prod(shape[2:]))
    return planes.reshape(shape[0], shape[1], *[1] * (len(shape) - 2))


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor; bfloat16 by its bits."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as an array; bfloat16 by its bits."""
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(BFLOAT16)
    return np.asarray(tensor.numpy())
