"""The caller's arrays as tensors of torch on one device; their types, and memory for outputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from unpool.display import format_shape
from unpool.dtypes import StorageType
from unpool.errors import UnpoolError
from unpool.execute.arrays import check_type
from unpool.kernels.gpu.launch import INTERPRETED
from unpool.operators.attributes import Activation
from unpool.operators.contract import Row
from unpool.operators.tensors import Shape, index_type


def tensor_of(where: str, name: str, array: Any) -> torch.Tensor:
    """A tensor that shares the memory of an array on a GPU.

    Raises:
        UnpoolError: the array is not on a GPU, or is part of a gradient graph.
    """
    x: torch.Tensor = array
    if not isinstance(array, torch.Tensor):
        try:
            x = torch.utils.dlpack.from_dlpack(array)
        except Exception as cause:
            raise UnpoolError(
                f"{where}: {name} expects an array that torch can view, got {cause}. Convert it."
            ) from cause
    if x.device.type != "cuda" and not (INTERPRETED and x.device.type == "cpu"):
        raise UnpoolError(f"{where}: {name} needs memory on the GPU, as X is, got {x.device}. Move it there.")
    if x.requires_grad:
        raise UnpoolError(f"{where}: {name} expects a tensor without gradient. Use {name}.detach().")
    return x


def host_shape(row: Row, output_shape: Any) -> tuple[int, ...] | None:
    """MaxUnpool's `output_shape` as ints: it decides how much memory is taken, so it has to be on the host.

    Raises:
        UnpoolError: `output_shape` is on a GPU, not int64, or not of rank 1.
    """
    if output_shape is None:
        return None
    if isinstance(output_shape, torch.Tensor):
        if output_shape.is_cuda:
            raise UnpoolError(
                f"{row.label}: output_shape needs memory on the CPU, got {output_shape.device}. "
                "Pass a list, such as x.shape."
            )
        output_shape = output_shape.numpy()
    sizes = np.asarray(output_shape)
    index_type(row.label, "output_shape", sizes.dtype)
    if sizes.ndim != 1:
        raise UnpoolError(
            f"{row.label}: output_shape needs rank 1, got shape {format_shape(sizes.shape)}. Give one size per axis."
        )
    return tuple(int(size) for size in sizes)


def numpy_dtype(where: str, name: str, dtype: torch.dtype) -> np.dtype[Any]:
    """The NumPy type of a tensor's elements.

    Raises:
        UnpoolError: NumPy has no such type.
    """
    name_of_type = str(dtype).removeprefix("torch.")
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name_of_type, name_of_type))
    except TypeError as cause:
        raise UnpoolError(f"{where}: {name} expects a type that NumPy has, got {name_of_type}. Convert it.") from cause


def storage_of(row: Row, activation: Activation | None, dtype: torch.dtype) -> StorageType:
    """Storage and compute types of the elements of X; refuses a type that this version does not have."""
    return check_type(row, activation, numpy_dtype(row.label, "X", dtype))


def activation_options(activation: Activation | None) -> dict[str, Any]:
    """An activation as keyword arguments of kernels."""
    return {} if activation is None else {"activation": activation.name, "params": tuple(activation.params)}


def output_buffers(
    row: Row, name: str, target: torch.Tensor | None, shape: Shape, like: tuple[torch.dtype, Sequence[torch.Tensor]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The tensor of an output, and the contiguous memory that the kernel writes: mostly the same tensor.

    Args:
        row: of the operator.
        name: of the output.
        target: the caller's tensor; None for a new one.
        shape: of the output.
        like: its type, and the inputs, on whose device it lies and which it must not overlap.

    Raises:
        UnpoolError: the caller's tensor does not fit.
    """
    dtype, inputs = like
    device = inputs[0].device
    if target is None:
        y = torch.empty(shape, dtype=dtype, device=device)
        return y, y
    where = f"{row.label}: out for {name}"
    if tuple(target.shape) != shape or target.dtype != dtype or target.device != device:
        raise UnpoolError(
            f"{where} needs shape {format_shape(shape)}, {dtype} and {device}, got "
            f"{format_shape(target.shape)}, {target.dtype} and {target.device}."
        )
    if any(_overlap(target, x) for x in inputs):
        raise UnpoolError(
            f"{where} needs memory of its own, got memory shared with another argument. Pass a new array."
        )
    return target, target if target.is_contiguous() else torch.empty(shape, dtype=dtype, device=device)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if the spans of memory of two tensors meet."""
    (first, end), (other, other_end) = _span(a), _span(b)
    return first < other_end and other < end


def _span(x: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size() if x.numel() else x.data_ptr()
