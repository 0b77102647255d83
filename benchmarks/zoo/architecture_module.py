"""The networks of benchmarks/architectures.py as modules of torch: one definition, for ONNX and for torch."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.architectures import Architecture

CONVOLUTIONS: Sequence[Callable[..., torch.Tensor]] = (functional.conv1d, functional.conv2d, functional.conv3d)
TRANSPOSED: Sequence[Callable[..., torch.Tensor]] = (
    functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d,
)  # fmt: skip
POOLS: Sequence[Callable[..., Any]] = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
UNPOOLS: Sequence[Callable[..., torch.Tensor]] = (
    functional.max_unpool1d, functional.max_unpool2d, functional.max_unpool3d,
)  # fmt: skip
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Relu": functional.relu,
    "LeakyRelu": functional.leaky_relu,
    "Tanh": torch.tanh,
}


class ArchitectureModule(nn.Module):
    """An architecture with weights of its own.

    Args:
        build: takes layers and spatial sizes, and gives the name of the output.
        shape: of the input.
        classes: whether the output is the number of the largest channel.
    """

    def __init__(self, build: Architecture, shape: Sequence[int], *, classes: bool = False) -> None:
        super().__init__()
        self._build, self._classes = build, classes
        self.weights = nn.ParameterList()
        with torch.no_grad():
            self._run(torch.zeros(*shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output of the architecture."""
        y = self._run(x)
        return y.argmax(1) if self._classes else y

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        layers = TorchLayers(x, self.weights)
        return layers.values[self._build(layers, tuple(x.shape[2:]))]  # type: ignore[arg-type]


class TorchLayers:
    """The methods of `benchmarks.layers.Layers`, computed at once by torch.

    Args:
        x: the input.
        weights: used in order; a missing one is added, with random numbers that keep values near 1.
    """

    def __init__(self, x: torch.Tensor, weights: nn.ParameterList) -> None:
        self.values = {"x": x}
        self._weights = weights
        self._used = 0
        self._rank = x.dim() - 2

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
        """A convolution and a function after it."""
        sides = [window] * self._rank if isinstance(window, int) else list(window)
        pads = [(side // 2 * dilation if side % 2 else 0) if pad is None else pad for side in sides]
        terms = self.channels(x) * prod(sides)
        weights, bias = self._weight((channels, self.channels(x), *sides), terms), self._weight((channels,), channels)
        y = CONVOLUTIONS[self._rank - 1](self.values[x], weights, bias, stride, pads, dilation)
        return self.after(after, self._add(y))

    def grow(self, x: str, channels: int, window: int, stride: int, pad: int, after: str = "Relu") -> str:
        """A transposed convolution and a function after it."""
        terms = self.channels(x) * max(1, window // stride) ** self._rank
        weights = self._weight((self.channels(x), channels, *[window] * self._rank), terms)
        bias, missing = self._weight((channels,), channels), max(0, stride - window + 2 * pad)
        y = TRANSPOSED[self._rank - 1](self.values[x], weights, bias, stride, pad, missing)
        return self.after(after, self._add(y))

    def after(self, operator: str, x: str) -> str:
        """A function of every element; "" for none."""
        return self._add(FUNCTIONS[operator](self.values[x])) if operator else x

    def normalise(self, x: str) -> str:
        """Every channel of an image to a mean of 0 and a variance of 1."""
        return self._add(functional.instance_norm(self.values[x]))

    def pool(self, x: str) -> str:
        """A max pool of window and stride 2."""
        return self._add(POOLS[self._rank - 1](self.values[x], 2))

    def pool_with_indices(self, x: str) -> tuple[str, str]:
        """The same, and its indices."""
        y, indices = POOLS[self._rank - 1](self.values[x], 2, return_indices=True)
        return self._add(y), self._add(indices)

    def unpool(self, x: str, indices: str, spatial: Sequence[int]) -> str:
        """A MaxUnpool to a spatial shape."""
        y = UNPOOLS[self._rank - 1](self.values[x], self.values[indices], 2, output_size=tuple(spatial))
        return self._add(y)

    def sum(self, x: str, y: str) -> str:
        """Element by element."""
        return self._add(self.values[x] + self.values[y])

    def add(self, x: str, y: str) -> str:
        """A sum and a Relu."""
        return self.after("Relu", self.sum(x, y))

    def concat(self, x: str, y: str) -> str:
        """Both along the channels."""
        return self._add(torch.cat([self.values[x], self.values[y]], 1))

    def channels(self, x: str) -> int:
        """How many a value has."""
        return int(self.values[x].shape[1])

    def _weight(self, shape: tuple[int, ...], terms: int) -> torch.Tensor:
        self._used += 1
        if self._used > len(self._weights):
            self._weights.append(nn.Parameter(torch.randn(shape) * (2 / terms) ** 0.5))
        weight: torch.Tensor = self._weights[self._used - 1]
        return weight

    def _add(self, value: torch.Tensor) -> str:
        self.values[f"value_{len(self.values)}"] = value
        return f"value_{len(self.values) - 1}"
