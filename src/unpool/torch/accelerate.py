"""Lets the MaxPool, MaxUnpool and ConvTranspose modules of a model run on unpool, without building new modules.

Only the class of a module changes, to a subclass of the one it had. It stays the same object, with its parameters,
hooks and settings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from unpool.geometry import Window, upsampled_size
from unpool.torch.ops import conv_transpose as conv_transposes
from unpool.torch.ops import max_pool as max_pools
from unpool.torch.ops import max_unpool as max_unpools
from unpool.torch.ops.arguments import FLOATS, ArgumentError


@dataclass(frozen=True, slots=True)
class Swap:
    """What became of one module.

    Attributes:
        name: as in `model.named_modules()`; empty for the model itself.
        kind: the class that the module had.
        reason: why it was left; None where it was swapped.
    """

    name: str
    kind: str
    reason: str | None

    def __str__(self) -> str:
        """One line for people."""
        place = f"{self.name or '(model)'}: {self.kind}"
        return f"{place} runs on unpool" if self.reason is None else f"{place} left: {self.reason}"


def accelerate(model: nn.Module) -> list[Swap]:
    """Let every MaxPool, MaxUnpool and ConvTranspose module of a model run on our operators.

    The model computes what it computed before: values, indices and gradients. Its parameters and hooks stay the same
    objects, so that optimisers keep working, and ONNX exporters write the same file. Functions of torch.nn.functional
    that a forward calls are no modules, and still run on torch.

    Args:
        model: changed in place; on the CPU.

    Returns:
        One record per module of these families, in the order of `named_modules`, each with why it was left if it was.

    >>> for swap in accelerate(nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.AdaptiveMaxPool2d(1))):
    ...     print(swap)
    1: MaxPool2d runs on unpool
    2: AdaptiveMaxPool2d left: its windows differ from place to place
    """
    found = []
    for name, module in model.named_modules():
        if isinstance(module, _FAMILIES):
            kind, reason = type(module).__name__, _obstacle(module)
            if reason is None:
                object.__setattr__(module, "__class__", OURS[type(module)])
            found.append(Swap(name, kind, reason))
    return found


class _Pooling:
    """A pooling module whose forward is `function`."""

    function: ClassVar[Callable[..., Any]]

    def forward(self: Any, input: Tensor) -> Any:
        """Compute what torch's module computes."""
        return type(self).function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class _Unpooling:
    """An unpooling module whose forward is `function`."""

    function: ClassVar[Callable[..., Any]]

    def forward(self: Any, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Any:
        """Compute what torch's module computes."""
        return type(self).function(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _ConvTransposing:
    """A transposed convolution whose forward is `function`."""

    function: ClassVar[Callable[..., Any]]

    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Any:
        """Compute what torch's module computes."""
        extra = self.output_padding
        if output_size is not None:
            extra = padding_to_size(input, output_size, self.stride, self.padding, self.kernel_size, self.dilation)
        return type(self).function(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


def padding_to_size(
    input: Tensor,
    output_size: list[int],
    stride: Sequence[int],
    padding: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """The output_padding with which a transposed convolution gives `output_size`.

    Args:
        input: (N, C, d1 .. dk), or without N.
        output_size: spatial sizes, or all sizes of the output.
        stride: one int per spatial axis, as are the others.
        padding: elements cut from both sides of the output.
        kernel_size: window size in elements.
        dilation: step between the taps of a window.

    Raises:
        ArgumentError: a size is one that no output_padding below the stride leads to, as torch's module refuses it.

    >>> import torch
    >>> padding_to_size(torch.ones(1, 1, 3, 3), [1, 1, 6, 5], (2, 2), (1, 1), (3, 3), (1, 1))
    [1, 0]
    """
    if has_torch_function_unary(input):
        settings = (output_size, stride, padding, kernel_size, dilation)
        return handle_torch_function(padding_to_size, (input,), input, *settings)
    rank = len(kernel_size)
    small, asked = input.shape[-rank:], output_size[-rank:]
    if len(output_size) not in (rank, input.dim()):
        raise ArgumentError(
            f"conv_transpose{rank}d: output_size needs {rank} or {input.dim()} sizes, got {list(output_size)}. "
            "Give one per spatial axis."
        )
    windows = [Window(*each) for each in zip(kernel_size, stride, dilation, strict=True)]
    least = [
        upsampled_size(size, window, padding=2 * pad) for size, window, pad in zip(small, windows, padding, strict=True)
    ]
    for axis, (size, low, step) in enumerate(zip(asked, least, stride, strict=True)):
        if not low <= size < low + step:
            raise ArgumentError(
                f"conv_transpose{rank}d: output_size needs {low} to {low + step - 1} elements on spatial axis {axis}, "
                f"got {size}. Change it, or the stride."
            )
    return [size - low for size, low in zip(asked, least, strict=True)]


class MaxPool1d(_Pooling, nn.MaxPool1d):
    """torch.nn.MaxPool1d on our operator."""

    function = staticmethod(max_pools.max_pool1d)


class MaxPool2d(_Pooling, nn.MaxPool2d):
    """torch.nn.MaxPool2d on our operator."""

    function = staticmethod(max_pools.max_pool2d)


class MaxPool3d(_Pooling, nn.MaxPool3d):
    """torch.nn.MaxPool3d on our operator."""

    function = staticmethod(max_pools.max_pool3d)


class MaxUnpool1d(_Unpooling, nn.MaxUnpool1d):
    """torch.nn.MaxUnpool1d on our operator."""

    function = staticmethod(max_unpools.max_unpool1d)


class MaxUnpool2d(_Unpooling, nn.MaxUnpool2d):
    """torch.nn.MaxUnpool2d on our operator."""

    function = staticmethod(max_unpools.max_unpool2d)


class MaxUnpool3d(_Unpooling, nn.MaxUnpool3d):
    """torch.nn.MaxUnpool3d on our operator."""

    function = staticmethod(max_unpools.max_unpool3d)


class ConvTranspose1d(_ConvTransposing, nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d on our operator."""

    function = staticmethod(conv_transposes.conv_transpose1d)


class ConvTranspose2d(_ConvTransposing, nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d on our operator."""

    function = staticmethod(conv_transposes.conv_transpose2d)


class ConvTranspose3d(_ConvTransposing, nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d on our operator."""

    function = staticmethod(conv_transposes.conv_transpose3d)


OURS: dict[type[nn.Module], type[nn.Module]] = {
    ours.__mro__[2]: ours
    for ours in (
        MaxPool1d, MaxPool2d, MaxPool3d,
        MaxUnpool1d, MaxUnpool2d, MaxUnpool3d,
        ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
    )
}  # fmt: skip

_OTHER_WINDOWS = (
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    nn.FractionalMaxPool2d, nn.FractionalMaxPool3d,
)  # fmt: skip
_FAMILIES: tuple[type[nn.Module], ...] = (*OURS, *_OTHER_WINDOWS)


def _obstacle(module: nn.Module) -> str | None:
    """Why a module of these families cannot run on unpool; None if it can."""
    if isinstance(module, _OTHER_WINDOWS):
        return "its windows differ from place to place"
    if type(module) in OURS.values():
        return "it already runs on unpool"
    if type(module) not in OURS:
        return "it is a subclass, whose forward may differ"
    for parameter in module.parameters(recurse=False):
        if parameter.device.type not in ("cpu", "cuda"):
            return f"its parameters are on {parameter.device}, not on the CPU or a CUDA device"
        if parameter.dtype not in FLOATS:
            return f"its parameters are {str(parameter.dtype).removeprefix('torch.')}"
    return None
