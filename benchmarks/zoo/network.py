"""A network of the zoo: how it is built, and its inputs."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

TORCH, TRACED, UNPOOL = "torch", "traced", "unpool"
"""Exporters: torch.onnx.export, the same with dynamo=False, and unpool.torch.export, which writes MaxUnpool."""


ROUNDING = 0.05
"""The share where rounding decides which of two almost equal values of a window or classes is the larger one."""


@dataclass(frozen=True)
class Input:
    """An input of a network: normal numbers, or integers from 0 to below `high`.

    Attributes:
        name: in the file, and of the argument of `forward`.
        shape: of the array.
        high: 0 for float32; otherwise the input is int64.
    """

    name: str
    shape: tuple[int, ...]
    high: int = 0

    def array(self) -> np.ndarray:
        """The same numbers in every process."""
        rng = np.random.default_rng(zlib.crc32(f"{self.name}{self.shape}".encode()))
        if self.high:
            return rng.integers(0, self.high, self.shape)
        return rng.standard_normal(self.shape, np.float32)


@dataclass(frozen=True)
class Network:
    """A network of a library.

    Attributes:
        name: of the file; it begins with the library.
        build: gives the module, whose outputs are a tensor or a tuple of tensors; it imports the library itself.
        inputs: in the order of the module's arguments.
        dynamic: the axes of the first input whose sizes are dynamic.
        exporter: TORCH, TRACED or UNPOOL.
        has_initial_weights: whether the weights stay those that `build` gives; see `export.scale_weights`.
        share: of the numbers of each output that may differ from torch's, see ROUNDING.
    """

    name: str
    build: "Callable[[], torch.nn.Module]"
    inputs: tuple[Input, ...]
    dynamic: tuple[int, ...] = ()
    exporter: str = TORCH
    has_initial_weights: bool = False
    share: float = 0.0

    @property
    def package(self) -> str:
        """The module that defines the network; own networks need torch only."""
        return PACKAGES[self.name.partition("_")[0]]


PACKAGES = {
    "asteroid": "asteroid",
    "compressai": "compressai",
    "deepinv": "deepinv",
    "demucs": "demucs",
    "diff": "diffusers",
    "hf": "transformers",
    "instanseg": "instanseg",
    "monai": "monai",
    "nnunet": "dynamic_network_architectures",
    "own": "torch",
    "smp": "segmentation_models_pytorch",
    "spandrel": "spandrel",
    "timm": "timm",
    "tv": "torchvision",
    "ultralytics": "ultralytics",
    "unet": "unet",
    "xrv": "torchxrayvision",
}
"""How names begin, and the module that defines these networks."""


def image(*shape: int, name: str = "x") -> tuple[Input, ...]:
    """One input of float32 numbers."""
    return (Input(name, shape),)
