"""Turns tensors into the arrays that kernels take, and results back into tensors.

Both share their memory where a tensor is row-major or channels-last without gaps; `view` copies others, such as slices.
Results have the memory format of the input, as those of torch's own operators have.
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
    """Whether torch takes a batched tensor for channels-last, and gives that format to results of it.

    Its strides then grow from the channels over the last spatial axis to the batch; there may be gaps. Axes of one
    element can have any stride: they count as torch counts them.
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
    """The domain whose operators take a tensor without a copy: channels-last, or row-major where both would do."""
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
    """A batched tensor in torch's channels_last format, copied only if its elements lie otherwise.

    Axes of one element get the strides that the format says, too.
    """
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
    """Run a resolved operator with as many threads as torch.get_num_threads() says.

    The first input and output have the layout that the spec names. Of several NaN in a window the last is found, and
    indices count inside their own plane.
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
