"""Tensors as the arrays that kernels take, and back, without a copy.

A batched tensor is channels-last where torch reads its strides so, slices included, else row-major; one without gaps is
used where it lies. Results have the memory format of the input, as torch's own have.
"""

from collections.abc import Sequence

import numpy as np
import torch

from unpool import functional
from unpool.arrays import like, to_numpy
from unpool.dtypes import AnyArray
from unpool.operators import contract
from unpool.operators.resolve import Spec

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def is_channels_last(x: torch.Tensor) -> bool:
    """Whether torch would give its channels_last format to what it makes of a batched tensor.

    Its strides grow from the channels over the last spatial axis to the batch, gaps or not; where axes of one element
    leave the order open it is torch's rule that decides.
    """
    if x.dim() not in _FORMATS:
        return False
    strides, sizes, least = x.stride(), x.shape, 0
    if strides[1] == 0:
        return False
    for axis in (1, *range(x.dim() - 1, 1, -1), 0):
        step, size = strides[axis], sizes[axis]
        if step < least or size == 0 or (axis == 0 and least == strides[1]):
            return False
        least = step * size if size > 1 else step
    return True


def domain_of(x: torch.Tensor) -> str:
    """The domain whose operators take the layout of a tensor; row-major for one that has either without a copy."""
    return contract.NHWC if is_channels_last(x) and not x.is_contiguous() else ""


def empty(
    model: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None, other: torch.Tensor | None = None
) -> torch.Tensor:
    """An uninitialised tensor with the memory format of `model`: what a kernel would return, for tracing.

    It is channels-last where `other` is, too.
    """
    is_last = is_channels_last(model) or (other is not None and is_channels_last(other))
    memory_format = _FORMATS[model.dim()] if is_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype or model.dtype, device=model.device, memory_format=memory_format)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """A batched tensor in torch's channels_last format, itself if its elements lie so, with the strides of that."""
    dense = x.contiguous(memory_format=_FORMATS[x.dim()])
    strides, step = [0] * x.dim(), 1
    for axis in (1, *range(x.dim() - 1, 1, -1), 0):
        strides[axis] = step
        step *= x.shape[axis]
    return dense if dense.stride() == tuple(strides) else dense.as_strided(dense.shape, strides)


def view(name: str, x: torch.Tensor) -> AnyArray:
    """The memory of a batched tensor as an array of the same shape."""
    dense = x.detach()
    if not dense.is_contiguous():
        dense = channels_last(dense) if is_channels_last(x) else dense.contiguous()
    return to_numpy(dense, name)


def laid_out(y: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """A result in the memory format of `model`."""
    return channels_last(y) if is_channels_last(model) and y.numel() else y


def tensor(x: AnyArray, model: torch.Tensor) -> torch.Tensor:
    """An array as a tensor that shares its memory."""
    shared: torch.Tensor = like(x, model)
    return shared


def run(spec: Spec, inputs: Sequence[torch.Tensor | None], *, outputs: int = 1) -> tuple[torch.Tensor, ...]:
    """Run a resolved operator whose first input and output have the layout of its row.

    Uses as many threads as torch.get_num_threads() says. The last NaN of a window is the one that is found,
    and indices count inside their own plane.
    """
    x = inputs[0]
    assert x is not None, "the first input is never optional"
    first = to_numpy(x.detach(), "input")
    others = [None if each is None else to_numpy(each.detach(), "input") for each in inputs[1:]]
    arrays = [np.moveaxis(first, 1, -1) if spec.row.is_channels_last else first, *others]
    threads = torch.get_num_threads()
    results = functional.run(spec, arrays, outputs=outputs, threads=threads, nan_last=True, per_plane=True)
    first_result = tensor(results[0], x)
    y = first_result.movedim(-1, 1) if spec.row.is_channels_last else laid_out(first_result, x)
    return y, *(tensor(each, x) for each in results[1:])
