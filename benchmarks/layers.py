"""A network as an ONNX graph, layer by layer, with random weights that keep values near 1."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.one_node import IR_VERSION, OPSET

SEED = 5


class Layers:
    """A graph that grows; every method adds nodes and gives the name of what the last one makes.

    Args:
        shape: (N, C, spatial) of the input, which is called x.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._rank = len(shape) - 2
        self._channels = {"x": shape[1]}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(SEED)

    def conv(
        self,
        x: str,
        channels: int,
        window: int | Sequence[int],
        stride: int = 1,
        dilation: int = 1,
        pad: int | None = None,
        after: str = "Relu",
    ) -> str:
        """A convolution that keeps the size, divided by the stride, and a function after it ("" for none).

        Without `pad`, odd windows are padded so that they do, and even ones are not padded.
        """
        sides = self._per_axis(window)
        pads = [(side // 2 * dilation if side % 2 else 0) if pad is None else pad for side in sides]
        weights = self._weights((channels, self._channels[x], *sides), self._channels[x] * int(np.prod(sides)))
        y = self._add(
            "Conv", [x, weights, self._weights((channels,), channels)], channels,
            strides=self._per_axis(stride), dilations=self._per_axis(dilation), pads=pads * 2,
        )  # fmt: skip
        return self.after(after, y)

    def grow(self, x: str, channels: int, window: int, stride: int, pad: int, after: str = "Relu") -> str:
        """A transposed convolution; odd windows get the output padding that makes the size a multiple of the stride."""
        terms = self._channels[x] * max(1, window // stride) ** self._rank
        weights = self._weights((self._channels[x], channels, *self._per_axis(window)), terms)
        missing = max(0, stride - window + 2 * pad)
        y = self._add(
            "ConvTranspose", [x, weights, self._weights((channels,), channels)], channels,
            strides=self._per_axis(stride), pads=self._per_axis(pad) * 2, output_padding=self._per_axis(missing),
        )  # fmt: skip
        return self.after(after, y)

    def after(self, operator: str, x: str) -> str:
        """A function of every element; "" for none."""
        return self._add(operator, [x], self._channels[x]) if operator else x

    def normalise(self, x: str) -> str:
        """Every channel of an image to a mean of 0 and a variance of 1."""
        channels = self._channels[x]
        scale, mean = (self._constant(np.full(channels, value, np.float32)) for value in (1, 0))
        return self._add("InstanceNormalization", [x, scale, mean], channels)

    def pool(self, x: str) -> str:
        """A max pool of window and stride 2."""
        return self._add("MaxPool", [x], self._channels[x], kernel_shape=self._per_axis(2), strides=self._per_axis(2))

    def pool_with_indices(self, x: str) -> tuple[str, str]:
        """The same, and its indices."""
        y = self.pool(x)
        indices = f"{y}_indices"
        self._nodes[-1].output.append(indices)
        return y, indices

    def unpool(self, x: str, indices: str, spatial: Sequence[int]) -> str:
        """A MaxUnpool to a spatial shape."""
        shape = np.array([self._shape[0], self._channels[x], *spatial], np.int64)
        inputs = [x, indices, self._constant(shape)]
        window = {"kernel_shape": self._per_axis(2), "strides": self._per_axis(2)}
        return self._add("MaxUnpool", inputs, self._channels[x], **window)

    def sum(self, x: str, y: str) -> str:
        """Element by element."""
        return self._add("Add", [x, y], self._channels[x])

    def add(self, x: str, y: str) -> str:
        """A sum and a Relu."""
        return self.after("Relu", self.sum(x, y))

    def concat(self, x: str, y: str) -> str:
        """Both along the channels."""
        return self._add("Concat", [x, y], self._channels[x] + self._channels[y], axis=1)

    def channels(self, x: str) -> int:
        """How many a value has."""
        return self._channels[x]

    def model(self, y: str) -> onnx.ModelProto:
        """The network that ends in `y`."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self._shape)
        made = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "network", [x], [made], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _add(self, operator: str, inputs: Sequence[str], channels: int, **attributes: Any) -> str:
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [f"{name}_y"], name, **attributes))
        self._channels[f"{name}_y"] = channels
        return f"{name}_y"

    def _weights(self, shape: Sequence[int], terms: int) -> str:
        return self._constant(self._rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / terms)))

    def _constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def _per_axis(self, value: int | Sequence[int]) -> list[int]:
        return [value] * self._rank if isinstance(value, int) else list(value)
