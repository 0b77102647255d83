"""The operators between tensors and their kernels: a class for each, for one set of shapes and types."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from unpool.errors import IndicesError
from unpool.execute.gpu.index_checks import raise_or_defer
from unpool.execute.gpu.tensors import activation_options, numpy_dtype, output_buffers, storage_of, tensor_of
from unpool.kernels.gpu.conv_transpose import GpuConvProblem, PackedWeights, pack
from unpool.kernels.gpu.conv_transpose import launch as launch_conv_transpose
from unpool.kernels.gpu.elements import KINDS
from unpool.kernels.gpu.max_pool import GpuPoolProblem
from unpool.kernels.gpu.max_pool import launch as launch_max_pool
from unpool.kernels.gpu.max_unpool import GpuUnpoolProblem
from unpool.kernels.gpu.max_unpool import launch as launch_max_unpool
from unpool.kernels.gpu.max_unpool.check_indices import NO_POSITION
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec
from unpool.operators.tensors import Shape, index_type, same_type

Tensors = Sequence[torch.Tensor | None]

_PACKED = "_unpool_packed"
"""Attribute of weights that unpool owns: the same weights as kernels take them."""


def own_weights(spec: Spec, w: Any) -> torch.Tensor:
    """A copy of ConvTranspose's weights that only unpool can write to, with the packed weights.

    Raises:
        UnpoolError: `w` is no tensor on a GPU.
    """
    assert isinstance(spec, ConvTransposeSpec), "no other operator has weights"
    copy = tensor_of(spec.row.label, "W", w).clone(memory_format=torch.contiguous_format)
    if copy.dtype in KINDS and copy.dim() > 2 and copy.shape[0] % spec.group == 0:  # anything else is refused later
        setattr(copy, _PACKED, pack(copy, spec.group))
    return copy


class GpuConvTranspose:
    """ConvTranspose for one set of shapes and types."""

    def __init__(
        self,
        spec: ConvTransposeSpec,
        shape: Shape,
        dtype: torch.dtype,
        w: tuple[Shape, torch.dtype],
        b: tuple[Shape, torch.dtype] | None,
    ) -> None:
        self.row = row = spec.row
        storage = storage_of(row, spec.activation, dtype)
        for name, given in (("W", w), ("B", b)):
            if given is not None:
                same_type(row, f"X and {name}", storage.dtype, numpy_dtype(row.label, name, given[1]))
        self._call = call = conv_transpose.call(spec, shape, w[0], None if b is None else b[0])
        channels, maps = w[0][:2]
        problem = GpuConvProblem(
            call.axes, shape[0], spec.group, channels // spec.group, maps, storage.name, row.is_channels_last,
            **activation_options(spec.activation),
        )  # fmt: skip
        self._launch, self._groups = launch_conv_transpose(problem), spec.group

    def run(self, inputs: Tensors, out: Tensors, _: str) -> tuple[torch.Tensor, ...]:
        """Y of (X, W), or (X, W, B)."""
        x, w, b = (*inputs, None)[:3]
        assert x is not None, "X is required"
        assert w is not None, "W is required"
        others = (x, w) if b is None else (x, w, b)
        y, buffer = output_buffers(self.row, "Y", out[0], self._call.large.in_layout(self.row), (x.dtype, others))
        packed: PackedWeights = getattr(w, _PACKED, None) or pack(w, self._groups)
        self._launch(x.contiguous(), packed, None if b is None else b.contiguous(), buffer)
        return (_copy_to(y, buffer),)


class GpuMaxPool:
    """MaxPool for one shape and type of X."""

    def __init__(
        self, spec: MaxPoolSpec, shape: Shape, dtype: torch.dtype, has_indices: bool, nan_last: bool, per_plane: bool
    ) -> None:
        self.row, self._has_indices = spec.row, has_indices
        storage = storage_of(spec.row, spec.activation, dtype)
        self._call = call = max_pool.call(spec, shape)
        problem = GpuPoolProblem(
            call.axes, call.small.batch, call.small.channels, storage.name,
            int(np.array(storage.lowest, storage.dtype).view(storage.bits)), spec.row.is_channels_last,
            spec.is_column_major, nan_last, per_plane, **activation_options(spec.activation),
        )  # fmt: skip
        self._launch = launch_max_pool(problem, has_indices)

    def run(self, inputs: Tensors, out: Tensors, _: str) -> tuple[torch.Tensor, ...]:
        """Y of (X,), and with `has_indices` the indices, (N, C, d1..dk)."""
        x = inputs[0]
        assert x is not None, "X is required"
        y, y_buffer = output_buffers(self.row, "Y", out[0], self._call.small.in_layout(self.row), (x.dtype, (x,)))
        if not self._has_indices:
            self._launch(x.contiguous(), y_buffer, None)
            return (_copy_to(y, y_buffer),)
        shape, like = self._call.small.in_onnx_order(), (torch.int64, (x, y))
        if not self.row.is_channels_last:
            indices, buffer = output_buffers(self.row, "Indices", out[1], shape, like)
            self._launch(x.contiguous(), y_buffer, buffer)
            return _copy_to(y, y_buffer), _copy_to(indices, buffer)
        buffer = torch.empty(y_buffer.shape, dtype=torch.int64, device=x.device)  # the kernel writes in the order of y
        in_onnx_order = buffer.movedim(-1, 1)
        indices = in_onnx_order if out[1] is None else output_buffers(self.row, "Indices", out[1], shape, like)[0]
        self._launch(x.contiguous(), y_buffer, buffer)
        return _copy_to(y, y_buffer), _copy_to(indices, in_onnx_order)


def _copy_to(y: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    return y if buffer is y else y.copy_(buffer)


class GpuMaxUnpool:
    """MaxUnpool for one set of shapes, one type of X and one value of `output_shape`."""

    def __init__(
        self,
        spec: MaxUnpoolSpec,
        shape: Shape,
        dtype: torch.dtype,
        indices: Shape,
        index_dtype: torch.dtype,
        output_shape: Shape | None,
    ) -> None:
        self.row = row = spec.row
        storage = storage_of(row, spec.activation, dtype)
        index_type(row.label, "I", numpy_dtype(row.label, "I", index_dtype))
        self._call = call = max_unpool.call(spec, shape, indices, output_shape)
        outer = (call.small.batch, call.small.channels)
        problem = GpuUnpoolProblem(
            call.axes, call.inferred, *outer, storage.name, call.index_space, row.is_channels_last,
            **activation_options(spec.activation),
        )  # fmt: skip
        self._is_inferred = call.index_space == "inferred"
        self._limit = math.prod((*outer, *problem.index_sizes[self._is_inferred]))
        self._has_auto = call.index_space == "auto"
        self._launch = launch_max_unpool(problem)

    def run(self, inputs: Tensors, out: Tensors, check: str) -> tuple[torch.Tensor, ...]:
        """The output of (X, I)."""
        x, indices = inputs
        assert x is not None, "X is required"
        assert indices is not None, "I is required"
        shape = self._call.large.in_layout(self.row)
        y, buffer = output_buffers(self.row, "output", out[0], shape, (x.dtype, (x, indices)))
        if y is not buffer:
            buffer.copy_(y)
        result = self._launch(x.contiguous(), indices.contiguous(), buffer, out[0] is not None)
        raise_or_defer(result, check, partial(self._error, tuple(indices.shape)))
        return (_copy_to(y, buffer),)

    def _error(self, shape: Shape, result: list[int]) -> IndicesError | None:
        """The error that the result of a check stands for: see `kernels/gpu/max_unpool/check_indices.py`."""
        outside, apart, outside_inferred, apart_inferred = result
        if self._has_auto and apart != NO_POSITION and apart_inferred == NO_POSITION:
            return None
        first = outside_inferred if self._is_inferred else outside
        if first == NO_POSITION:
            return None
        at = [int(each) for each in np.unravel_index(first, shape)]
        return IndicesError(
            f"{self.row.label}: indices need values from 0 to {self._limit - 1}, got another at {at}. "
            "Pass the indices of the pool that made X, and its input shape as output_shape."
        )
