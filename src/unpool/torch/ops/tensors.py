"""Conversion of tensors to arrays for kernels, and of results to tensors.

They share memory if a tensor is row-major or channels-last without gaps; `view` copies others, such as slices. Results
have the memory format of the input, like those of torch's own operators.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import torch

from unpool.arrays import is_on_gpu
from unpool.dtypes import AnyArray
from unpool.execute import CACHE_SIZE, prepare
from unpool.execute.arrays import CallOptions
from unpool.memory import memory_error
from unpool.operators import contract
from unpool.operators.resolve import Spec
from unpool.shape_cache import add_shortcut, shortcuts
from unpool.torch.ops.arguments import hashable

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def has_channels_last(x: torch.Tensor) -> bool:
    """True if torch treats a batched tensor as channels-last, and gives its results that format; not for tracing.

    Its strides then increase from the channels over the last spatial axis to the batch; gaps are allowed. Axes of one
    element can have any stride; they are treated as torch treats them.
    """
    return x.dim() in _FORMATS and _cached_channels_last(x.shape, x.stride())


def _is_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    if len(sizes) not in _FORMATS or strides[1] == 0:
        return False
    least = 0
    for axis in (1, *range(len(sizes) - 1, 1, -1), 0):
        step, size = strides[axis], sizes[axis]
        if step < least or size == 0 or (axis == 0 and least == strides[1]):
            return False
        least = step * size if size > 1 else step
    return True


_cached_channels_last = lru_cache(maxsize=CACHE_SIZE)(_is_channels_last)


def domain_of(x: torch.Tensor) -> str:
    """The domain whose operators take a tensor without a copy: channels-last, or row-major if both are possible."""
    return "" if x.is_contiguous() or not has_channels_last(x) else contract.NHWC


def empty(
    model: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None, other: torch.Tensor | None = None
) -> torch.Tensor:
    """An uninitialised tensor like a result, for tracing, channels-last if `model` or `other` is."""
    is_last = any(_is_channels_last(each.shape, each.stride()) for each in (model, other) if each is not None)
    memory_format = _FORMATS[len(shape)] if is_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype or model.dtype, device=model.device, memory_format=memory_format)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """A batched tensor in torch's channels_last format, also on axes of one element; copied only from another order."""
    dense = x.contiguous(memory_format=_FORMATS[x.dim()])
    strides, step = [0] * x.dim(), 1
    for axis in (1, *range(x.dim() - 1, 1, -1), 0):
        strides[axis] = step
        step *= x.shape[axis]
    return dense if dense.stride() == tuple(strides) else dense.as_strided(dense.shape, strides)


def view(x: torch.Tensor) -> AnyArray:
    """The memory of a batched tensor as an array of the same shape."""
    dense = x.detach()
    if not dense.is_contiguous():
        dense = channels_last(dense) if has_channels_last(x) else dense.contiguous()
    return array(dense)


def in_format_of(y: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """A result in the memory format of `model`."""
    return channels_last(y) if has_channels_last(model) and y.numel() else y


def array(x: torch.Tensor) -> AnyArray:
    """A tensor without gradient as an array that shares its memory."""
    return x.numpy() if x.dtype != torch.bfloat16 else x.view(torch.int16).numpy().view(_BFLOAT16)


def tensor(x: AnyArray) -> torch.Tensor:
    """An array as a tensor that shares its memory."""
    if x.dtype == _BFLOAT16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def run(
    resolve: Callable[..., Spec], settings: tuple[Any, ...], inputs: Sequence[torch.Tensor | None], outputs: int = 1
) -> tuple[torch.Tensor, ...]:
    """Outputs of an operator on torch.get_num_threads() threads; the first has the memory format of the first input.

    Of several NaN in a window the last one is the maximum, and indices count inside their own plane. `resolve` checks
    (*inputs, *settings), and returns their Spec; it is called once for the same settings, shapes, strides, types and
    devices.
    """
    key = (
        resolve, outputs, is_on_gpu(inputs[0]), *map(hashable, settings),
        *[None if each is None else (each.shape, each.stride(), each.dtype, each.device) for each in inputs],
    )  # fmt: skip
    try:
        call: _Call | None = shortcuts.get(key)
        if call is None:
            call = _Call(resolve(*inputs, *settings), inputs, outputs)
            add_shortcut(key, call)
        return call(inputs)
    except MemoryError as cause:
        raise memory_error("unpool.torch", inputs, cause) from cause


class _Call:
    """A resolved operator for tensors of the same shapes, strides, types and devices."""

    def __init__(self, spec: Spec, inputs: Sequence[torch.Tensor | None], outputs: int) -> None:
        x = inputs[0]
        assert x is not None, "the first input is never optional"
        self.order = (0, *range(2, x.dim()), 1) if spec.version.is_channels_last else None
        self.back = (0, x.dim() - 1, *range(1, x.dim() - 1))
        self.targets = (None,) * outputs
        self.needs_channels_last = self.order is None and has_channels_last(x)
        self.on_gpu: Any = None
        if is_on_gpu(x):
            from unpool.execute import gpu

            gpu.check_devices(spec.version, inputs)
            self.on_gpu = gpu.prepare(spec, self.operands(inputs), CallOptions(outputs, True, True))
            self.raise_known = gpu.raise_known
        else:
            self.prepared = prepare(spec, self.arrays(inputs), outputs, nan_last=True, per_plane=True)

    def __call__(self, inputs: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, ...]:
        if self.on_gpu is not None:
            self.raise_known()
            first, *others = self.on_gpu.run(self.operands(inputs), self.targets, "later")
        else:
            first, *others = map(tensor, self.prepared.run(self.arrays(inputs), self.targets, torch.get_num_threads()))
        if self.order:
            return first.permute(self.back), *others
        return channels_last(first) if self.needs_channels_last and first.numel() else first, *others

    def operands(self, inputs: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        """The inputs in the layout of the spec."""
        if not self.order:
            return inputs
        return [inputs[0].permute(self.order), *inputs[1:]]  # type: ignore[union-attr]  # never optional

    def arrays(self, inputs: Sequence[torch.Tensor | None]) -> list[AnyArray | None]:
        """The inputs as arrays for the kernels."""
        arrays = [None if each is None else array(each.detach()) for each in inputs]
        if self.order:
            arrays[0] = arrays[0].transpose(self.order)  # type: ignore[union-attr]  # never optional
        return arrays
