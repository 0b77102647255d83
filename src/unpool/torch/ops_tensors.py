"""Tensors as the arrays that kernels take, and back, without a copy.

A batched tensor is row-major, or channels-last where it has torch's channels_last memory format; anything else is
made row-major first. Results have the memory format of the input, as torch's own have.
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
    """Whether the channels of a batched tensor are fastest in memory; a tensor that is both counts as row-major."""
    if x.dim() not in _FORMATS or x.is_contiguous():
        return False
    return x.is_contiguous(memory_format=_FORMATS[x.dim()])


def domain_of(x: torch.Tensor) -> str:
    """The domain whose operators take the layout of a tensor."""
    return contract.NHWC if is_channels_last(x) else ""


def empty(model: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """An uninitialised tensor with the memory format of `model`: what a kernel would return, for tracing."""
    memory_format = _FORMATS[model.dim()] if is_channels_last(model) else torch.contiguous_format
    return torch.empty(shape, dtype=dtype or model.dtype, device=model.device, memory_format=memory_format)


def view(name: str, x: torch.Tensor) -> AnyArray:
    """The memory of a batched tensor as an array of the same shape."""
    return to_numpy(x.detach() if is_channels_last(x) else x.detach().contiguous(), name)


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
    y = tensor(results[0], x)
    if spec.row.is_channels_last:
        y = y.movedim(-1, 1)
    return y, *(tensor(each, x) for each in results[1:])
