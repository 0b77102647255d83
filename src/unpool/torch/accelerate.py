"""Runs the MaxPool, MaxUnpool and ConvTranspose modules of a model on unpool, without new modules.

Only the class of a module changes, to a subclass of the one it had. It stays the same object, with its parameters,
hooks and settings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch.nn.functional as F  # noqa: F401, N812 - a name in torch's source, for TorchScript
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from unpool.geometry import Window, upsampled_size
from unpool.torch.ops import conv_transpose as conv_transposes
from unpool.torch.ops import max_pool as max_pools
from unpool.torch.ops import max_unpool as max_unpools
from unpool.torch.ops.arguments import FLOATS, ArgumentError


@dataclass(frozen=True, slots=True)
class Swap:
    """The result for one module.

    Attributes:
        name: as in `model.named_modules()`; empty for the model itself.
        kind: the class that the module had.
        reason: why it was not swapped; None if it was.
    """

    name: str
    kind: str
    reason: str | None

    def __str__(self) -> str:
        """A readable line."""
        place = f"{self.name or '(model)'}: {self.kind}"
        return f"{place} runs on unpool" if self.reason is None else f"{place} left: {self.reason}"


def accelerate(model: nn.Module) -> list[Swap]:
    """Make every MaxPool, MaxUnpool and ConvTranspose module of a model run on unpool's operators.

    Values, indices and gradients stay the same. Parameters and hooks stay the same objects, so optimisers keep working.
    ONNX exporters write the same file. `torch.jit.trace` and `torch.jit.script` record torch's own operators, so the
    saved file runs without unpool. Functions of torch.nn.functional in a forward still run on torch.

    Args:
        model: changed in place; on the CPU.

    Returns:
        One record per pooling, unpooling or transposed convolution module, in the order of `named_modules`, with the
        reason if it was not swapped.

    >>> for swap in accelerate(nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.AdaptiveMaxPool2d(1))):
    ...     print(swap)
    1: MaxPool2d runs on unpool
    2: AdaptiveMaxPool2d left: its windows differ from place to place
    """
    swaps = []
    for name, module in model.named_modules():
        if isinstance(module, _FAMILIES):
            kind, reason = type(module).__name__, _obstacle(module)
            if reason is None:
                object.__setattr__(module, "__class__", UNPOOL_MODULES[type(module)])
            swaps.append(Swap(name, kind, reason))
    return swaps


def _max_pool(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, input: Tensor) -> Any:
        window = (self.kernel_size, self.stride, self.padding, self.dilation)
        return function(input, *window, ceil_mode=self.ceil_mode, return_indices=self.return_indices)

    return forward


def _max_unpool(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Any:
        return function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    return forward


def _conv_transpose(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Any:
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = output_padding_for_size(
                input, output_size, self.stride, self.padding, self.kernel_size, self.dilation
            )
        return function(
            input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation
        )

    return forward


def output_padding_for_size(
    input: Tensor,
    output_size: list[int],
    stride: Sequence[int],
    padding: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """The output_padding below the stride that gives `output_size`, which has N and C or not.

    It is a function of its own so that torch.fx traces it as one node, for any input size.
    """
    if has_torch_function_unary(input):
        settings = (output_size, stride, padding, kernel_size, dilation)
        return handle_torch_function(output_padding_for_size, (input,), input, *settings)
    rank = len(kernel_size)
    small, sizes = input.shape[-rank:], output_size[-rank:]
    if len(output_size) not in (rank, input.dim()):
        raise ArgumentError(
            f"conv_transpose{rank}d: output_size needs {rank} or {input.dim()} sizes, got {list(output_size)}. "
            "Give one per spatial axis."
        )
    windows = map(Window, kernel_size, stride, dilation)
    minimum = [
        upsampled_size(size, window, padding=2 * pad) for size, window, pad in zip(small, windows, padding, strict=True)
    ]
    for axis, (size, low, step) in enumerate(zip(sizes, minimum, stride, strict=True)):
        if not low <= size < low + step:
            raise ArgumentError(
                f"conv_transpose{rank}d: output_size needs {low} to {low + step - 1} elements on spatial axis {axis}, "
                f"got {size}. Change it, or the stride."
            )
    return [size - low for size, low in zip(sizes, minimum, strict=True)]


def _on_unpool(forward: Callable[..., Any], module_class: type[nn.Module]) -> Any:
    """A subclass of a module of torch with its name; assign it to that name here, or pickle does not find it.

    Its forward wraps that of torch, so `torch.jit.script` compiles torch's source, and finds its names in this file.
    """
    name = module_class.__name__
    doc = f"torch.nn.{name} on unpool's operator."
    members = {"forward": wraps(module_class.forward)(forward), "__module__": __name__, "__doc__": doc}
    return type(name, (module_class,), members)


MaxPool1d = _on_unpool(_max_pool(max_pools.max_pool1d), nn.MaxPool1d)
MaxPool2d = _on_unpool(_max_pool(max_pools.max_pool2d), nn.MaxPool2d)
MaxPool3d = _on_unpool(_max_pool(max_pools.max_pool3d), nn.MaxPool3d)
MaxUnpool1d = _on_unpool(_max_unpool(max_unpools.max_unpool1d), nn.MaxUnpool1d)
MaxUnpool2d = _on_unpool(_max_unpool(max_unpools.max_unpool2d), nn.MaxUnpool2d)
MaxUnpool3d = _on_unpool(_max_unpool(max_unpools.max_unpool3d), nn.MaxUnpool3d)
ConvTranspose1d = _on_unpool(_conv_transpose(conv_transposes.conv_transpose1d), nn.ConvTranspose1d)
ConvTranspose2d = _on_unpool(_conv_transpose(conv_transposes.conv_transpose2d), nn.ConvTranspose2d)
ConvTranspose3d = _on_unpool(_conv_transpose(conv_transposes.conv_transpose3d), nn.ConvTranspose3d)

UNPOOL_MODULES: dict[type[nn.Module], type[nn.Module]] = {
    module_class.__mro__[1]: module_class
    for module_class in (
        MaxPool1d, MaxPool2d, MaxPool3d,
        MaxUnpool1d, MaxUnpool2d, MaxUnpool3d,
        ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
    )
}  # fmt: skip

_OTHER_WINDOWS = (
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    nn.FractionalMaxPool2d, nn.FractionalMaxPool3d,
)  # fmt: skip
_FAMILIES: tuple[type[nn.Module], ...] = (*UNPOOL_MODULES, *_OTHER_WINDOWS)


def _obstacle(module: nn.Module) -> str | None:
    """Why a module of these families cannot run on unpool; None if it can."""
    if isinstance(module, _OTHER_WINDOWS):
        return "its windows differ from place to place"
    if type(module) in UNPOOL_MODULES.values():
        return "it already runs on unpool"
    if type(module) not in UNPOOL_MODULES:
        return "it is a subclass, whose forward may differ"
    for parameter in module.parameters(recurse=False):
        if parameter.device.type not in ("cpu", "cuda"):
            return f"its parameters are on {parameter.device}, not on the CPU or a CUDA device"
        if parameter.dtype not in FLOATS:
            return f"its parameters are {str(parameter.dtype).removeprefix('torch.')}"
    return None
