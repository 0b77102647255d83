"""Where a resolved call meets a kernel on a GPU: tensors on a CUDA device in and out, on the current stream.

This file runs the three operators; a prepared operator is kept for each set of shapes and types. `index_checks.py` has
the errors of indices, which the device finds, and `gradients.py` unpooling on torch's indices, and gradients.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from unpool.arrays import GPU_DEVICE_TYPES
from unpool.display import format_shape
from unpool.dtypes import StorageType
from unpool.errors import IndicesError, UnpoolError
from unpool.execute import CACHE_SIZE, shape_value
from unpool.execute.arrays import CallOptions, check_type, require
from unpool.execute.gpu.index_checks import raise_known, raise_or_defer
from unpool.kernels.gpu import conv_transpose as conv_kernels
from unpool.kernels.gpu import max_pool as pool_kernels
from unpool.kernels.gpu import max_unpool as unpool_kernels
from unpool.kernels.gpu.elements import INTERPRETED, KINDS
from unpool.kernels.gpu.max_unpool.check_indices import NO_POSITION
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.attributes import Activation
from unpool.operators.contract import OUTPUT_SHAPE, OperatorVersion
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec
from unpool.operators.tensors import Shape, index_type, same_type
from unpool.shape_cache import cached

__all__ = [
    "GpuCall", "check_devices", "numpy_dtype", "own_weights", "prepare", "prepare_arrays", "raise_known", "run",
    "tensor_of",
]  # fmt: skip

Tensors = Sequence[Tensor | None]
GpuInputTypes = tuple[tuple[Shape, torch.dtype] | None, ...]

_PACKED = "_unpool_packed"
"""Attribute of weights that unpool owns: the same weights in the order of the kernels."""


class GpuCall(Protocol):
    """An operator for one set of shapes and types."""

    version: OperatorVersion

    def run(self, inputs: Tensors, out: Tensors, check: str) -> tuple[Tensor, ...]:
        """The outputs, in the tensors of `out` where there are any; arguments are those of the function `run`."""


def run(
    spec: Spec,
    inputs: Sequence[Any],
    *,
    outputs: int = 1,
    out: Sequence[Any] = (),
    nan_last: bool = False,
    per_plane: bool = False,
    check: str = "later",
) -> tuple[Tensor, ...]:
    """Run one resolved operator on a GPU, without waiting for it; arguments are those of `unpool.execute.run`.

    With check="now" it waits, and raises if an index of MaxUnpool is wrong; "later" leaves the error to a later call.
    """
    call, tensors = prepare_arrays(spec, inputs, outputs, nan_last=nan_last, per_plane=per_plane)
    return call.run(tensors, (*out, None, None)[:outputs], check)


def prepare_arrays(
    spec: Spec, inputs: Sequence[Any], outputs: int, *, nan_last: bool = False, per_plane: bool = False
) -> tuple[GpuCall, Tensors]:
    """One resolved operator for arrays on a GPU, after all checks of them, and its inputs as tensors."""
    version = spec.version
    version.check_inputs(inputs)
    version.check_outputs(outputs)
    raise_known()
    shape = None
    if version.inputs[len(inputs) - 1] == OUTPUT_SHAPE:
        inputs, shape = inputs[:-1], _shape_on_host(version, inputs[-1])
    names = zip(version.inputs, inputs, strict=False)
    tensors = [None if x is None else tensor_of(version.label, name, x) for name, x in names]
    check_devices(version, tensors)
    return prepare(spec, tensors, CallOptions(outputs, nan_last, per_plane, shape)), tensors


def prepare(spec: Spec, inputs: Tensors, options: CallOptions) -> GpuCall:
    """One resolved operator for the shapes and types of these tensors."""
    return _prepared(spec, tuple(None if x is None else (tuple(x.shape), x.dtype) for x in inputs), options)


def check_devices(version: OperatorVersion, inputs: Tensors) -> None:
    """Refuse tensors that are not on the device of the first one."""
    x = require(inputs[0])
    for number, tensor in enumerate(inputs):
        if tensor is not None and tensor.device != x.device:
            raise UnpoolError(
                f"{version.label}: {version.inputs[number]} needs the device of X, {x.device}, got "
                f"{tensor.device}. Move it there."
            )


def own_weights(spec: Spec, w: Any) -> Tensor:
    """A copy of ConvTranspose's weights that only unpool can write to, with the packed weights."""
    assert isinstance(spec, ConvTransposeSpec), "no other operator has weights"
    copy = tensor_of(spec.version.label, "W", w).clone(memory_format=torch.contiguous_format)
    if copy.dtype in KINDS and copy.dim() > 2 and copy.shape[0] % spec.group == 0:  # anything else is refused later
        rank = copy.dim() - 2
        strides = conv_kernels.WindowStrides(spec.strides or (1,) * rank, spec.dilations or (1,) * rank)
        if len(strides.strides) == len(strides.dilations) == rank:
            setattr(copy, _PACKED, conv_kernels.pack(copy, spec.group, strides))
    return copy


class GpuConvTranspose:
    """ConvTranspose for one set of shapes and types."""

    def __init__(self, spec: ConvTransposeSpec, inputs: GpuInputTypes, _: CallOptions) -> None:
        self.version = version = spec.version
        x, second, b = (*inputs, None)[:3]
        (shape, dtype), w = require(x), require(second)
        storage = _storage_of(version, spec.activation, dtype)
        for name, tensor in (("W", w), ("B", b)):
            if tensor is not None:
                same_type(version, f"X and {name}", storage.dtype, numpy_dtype(version.label, name, tensor[1]))
        call = conv_transpose.call(spec, shape, w[0], None if b is None else b[0])
        channels, maps = w[0][:2]
        problem = conv_kernels.GpuConvProblem(
            call.axes, shape[0], spec.group, channels // spec.group, maps, storage.name, version.is_channels_last,
            **_activation_options(spec.activation),
        )  # fmt: skip
        windows = [axis.window for axis in call.axes]
        strides, dilations = (tuple(getattr(each, name) for each in windows) for name in ("stride", "dilation"))
        self._launch = conv_kernels.launch(problem)
        self._pack = conv_kernels.packer(w[0], w[1], spec.group, conv_kernels.WindowStrides(strides, dilations))
        self._y_shape = call.large.in_layout(version)

    def run(self, inputs: Tensors, out: Tensors, _: str) -> tuple[Tensor, ...]:
        """Y of (X, W), or (X, W, B)."""
        x, w, b = require(inputs[0]), require(inputs[1]), inputs[2] if len(inputs) > 2 else None
        others = (x, w) if b is None else (x, w, b)
        y, buffer = _output(self.version, "Y", out[0], self._y_shape, (x.dtype, others))
        packed: conv_kernels.PackedWeights = getattr(w, _PACKED, None) or self._pack(w)
        self._launch(x.contiguous(), packed, None if b is None else b.contiguous(), buffer)
        return (_copy_to(y, buffer),)


class GpuMaxPool:
    """MaxPool for one shape and type of X."""

    def __init__(self, spec: MaxPoolSpec, inputs: GpuInputTypes, options: CallOptions) -> None:
        self.version, self._has_indices = spec.version, options.outputs == 2
        shape, dtype = require(inputs[0])
        storage = _storage_of(spec.version, spec.activation, dtype)
        call = max_pool.call(spec, shape)
        self._y_shape, self._indices_shape = call.small.in_layout(spec.version), call.small.in_onnx_order()
        problem = pool_kernels.GpuPoolProblem(
            call.axes, call.small.batch, call.small.channels, storage.name,
            int(np.array(storage.lowest, storage.dtype).view(storage.bits)), spec.version.is_channels_last,
            spec.is_column_major, options.nan_last, options.per_plane, **_activation_options(spec.activation),
        )  # fmt: skip
        self._launch = pool_kernels.launch(problem, self._has_indices)

    def run(self, inputs: Tensors, out: Tensors, _: str) -> tuple[Tensor, ...]:
        """Y of (X,), and with `has_indices` the indices, (N, C, d1..dk)."""
        x = require(inputs[0])
        y, y_buffer = _output(self.version, "Y", out[0], self._y_shape, (x.dtype, (x,)))
        if not self._has_indices:
            self._launch(x.contiguous(), y_buffer, None)
            return (_copy_to(y, y_buffer),)
        shape, like = self._indices_shape, (torch.int64, (x, y))
        if not self.version.is_channels_last:
            indices, buffer = _output(self.version, "Indices", out[1], shape, like)
            self._launch(x.contiguous(), y_buffer, buffer)
            return _copy_to(y, y_buffer), _copy_to(indices, buffer)
        buffer = torch.empty(y_buffer.shape, dtype=torch.int64, device=x.device)  # the kernel writes in the order of y
        in_onnx_order = buffer.movedim(-1, 1)
        indices = in_onnx_order if out[1] is None else _output(self.version, "Indices", out[1], shape, like)[0]
        self._launch(x.contiguous(), y_buffer, buffer)
        return _copy_to(y, y_buffer), _copy_to(indices, in_onnx_order)


class GpuMaxUnpool:
    """MaxUnpool for one set of shapes, one type of X and one value of `output_shape`."""

    def __init__(self, spec: MaxUnpoolSpec, inputs: GpuInputTypes, options: CallOptions) -> None:
        self.version = version = spec.version
        (shape, dtype), indices = require(inputs[0]), require(inputs[1])
        storage = _storage_of(version, spec.activation, dtype)
        index_type(version.label, "I", numpy_dtype(version.label, "I", indices[1]))
        self._call = call = max_unpool.call(spec, shape, indices[0], options.output_shape)
        outer = (call.small.batch, call.small.channels)
        problem = unpool_kernels.GpuUnpoolProblem(
            call.axes, call.inferred, *outer, storage.name, call.index_space, version.is_channels_last,
            **_activation_options(spec.activation),
        )  # fmt: skip
        self._is_inferred = call.index_space == "inferred"
        self._limit = math.prod((*outer, *(call.inferred if self._is_inferred else call.large.spatial)))
        self._has_auto = call.index_space == "auto"
        self._launch = unpool_kernels.launch(problem)

    def run(self, inputs: Tensors, out: Tensors, check: str) -> tuple[Tensor, ...]:
        """The output of (X, I)."""
        x, indices = require(inputs[0]), require(inputs[1])
        shape = self._call.large.in_layout(self.version)
        y, buffer = _output(self.version, "output", out[0], shape, (x.dtype, (x, indices)))
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
            f"{self.version.label}: indices need values from 0 to {self._limit - 1}, got another at {at}. "
            "Pass the indices of the pool that made X, and its input shape as output_shape."
        )


PREPARED: Mapping[type[Spec], Callable[[Any, GpuInputTypes, CallOptions], GpuCall]] = {
    MaxPoolSpec: GpuMaxPool,
    MaxUnpoolSpec: GpuMaxUnpool,
    ConvTransposeSpec: GpuConvTranspose,
}
"""The prepared call of each type of spec."""


def _prepare(spec: Spec, inputs: GpuInputTypes, options: CallOptions) -> GpuCall:
    return PREPARED[type(spec)](spec, inputs, options)


_prepared = cached(CACHE_SIZE)(_prepare)


def tensor_of(where: str, name: str, array: Any) -> Tensor:
    """A tensor that shares the memory of an array on a GPU, which must not be part of a gradient graph."""
    x: Tensor = array
    if not isinstance(array, Tensor):
        try:
            x = torch.utils.dlpack.from_dlpack(array)
        except Exception as cause:
            raise UnpoolError(f"{where}: torch cannot view {name}: {cause}. Convert it to a tensor.") from cause
    if x.device.type not in GPU_DEVICE_TYPES and not (INTERPRETED and x.device.type == "cpu"):
        raise UnpoolError(f"{where}: {name} needs memory on the GPU, as X is, got {x.device}. Move it there.")
    if x.requires_grad:
        raise UnpoolError(f"{where}: {name} expects a tensor without gradient. Use {name}.detach().")
    return x


def _shape_on_host(version: OperatorVersion, output_shape: Any) -> tuple[int, ...] | None:
    """MaxUnpool's `output_shape` as ints: memory is allocated from them, so they have to be on the host."""
    if output_shape is None:
        return None
    if isinstance(output_shape, Tensor):
        if output_shape.is_cuda:
            raise UnpoolError(
                f"{version.label}: output_shape needs memory on the CPU, got {output_shape.device}. "
                "Pass a list, such as x.shape."
            )
        output_shape = output_shape.numpy()
    return shape_value(version, np.asarray(output_shape))


def numpy_dtype(where: str, name: str, dtype: torch.dtype) -> np.dtype[Any]:
    """The NumPy type of a tensor's elements; without such a type an UnpoolError."""
    name_of_type = str(dtype).removeprefix("torch.")
    try:
        return np.dtype(getattr(ml_dtypes, name_of_type, name_of_type))
    except TypeError as cause:
        raise UnpoolError(f"{where}: {name} has type {name_of_type}, which NumPy lacks. Convert it.") from cause


def _storage_of(version: OperatorVersion, activation: Activation | None, dtype: torch.dtype) -> StorageType:
    return check_type(version, activation, numpy_dtype(version.label, "X", dtype))


def _activation_options(activation: Activation | None) -> dict[str, Any]:
    """An activation as keyword arguments of kernels."""
    return {} if activation is None else {"activation": activation.name, "params": tuple(activation.params)}


def _output(
    version: OperatorVersion, name: str, target: Tensor | None, shape: Shape, like: tuple[torch.dtype, Sequence[Tensor]]
) -> tuple[Tensor, Tensor]:
    """An output in the caller's tensor, if any, and the contiguous memory that the kernel writes, mostly the same.

    `like` has the type, and the inputs, on whose device the output lies and which it must not overlap.
    """
    (dtype, inputs), device = like, like[1][0].device
    if target is None:
        y = torch.empty(shape, dtype=dtype, device=device)
        return y, y
    where = f"{version.label}: out for {name}"
    if tuple(target.shape) != shape or target.dtype != dtype or target.device != device:
        raise UnpoolError(
            f"{where} needs shape {format_shape(shape)}, {dtype} and {device}, got "
            f"{format_shape(target.shape)}, {target.dtype} and {target.device}."
        )
    first, end = _span(target)
    if any(first < other_end and other < end for other, other_end in map(_span, inputs)):
        raise UnpoolError(
            f"{where} needs memory of its own, got memory shared with another argument. Pass a new array."
        )
    return target, target if target.is_contiguous() else torch.empty(shape, dtype=dtype, device=device)


def _span(x: Tensor) -> tuple[int, int]:
    """The first address of a tensor, and the one after its last."""
    last = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size() if x.numel() else x.data_ptr()


def _copy_to(y: Tensor, buffer: Tensor) -> Tensor:
    return y if buffer is y else y.copy_(buffer)
