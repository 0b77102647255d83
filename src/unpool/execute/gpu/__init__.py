"""Where a resolved call meets a kernel on a GPU: tensors on a CUDA device in and out, on the current stream.

tensors.py       the caller's arrays as tensors, their types, and memory for outputs
index_checks.py  errors of indices, which the device finds
operators.py     the three operators
gradients.py     unpooling on torch's indices, and gradients
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from torch import Tensor

from unpool.errors import UnpoolError
from unpool.execute.gpu.index_checks import raise_known
from unpool.execute.gpu.operators import GpuConvTranspose, GpuMaxPool, GpuMaxUnpool, own_weights
from unpool.execute.gpu.tensors import host_shape, tensor_of
from unpool.operators.contract import INPUT_NAMES, Row
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec

__all__ = ["GpuCall", "check_devices", "own_weights", "prepare", "raise_known", "run", "tensor_of"]


class GpuCall(Protocol):
    """An operator for one set of shapes and types."""

    def run(self, inputs: Sequence[Tensor | None], out: Sequence[Tensor | None], check: str) -> tuple[Tensor, ...]:
        """The outputs, in the tensors of `out` where there are any; arguments are those of the function `run`."""


_CACHE_SIZE = 1024
_max_pool = lru_cache(_CACHE_SIZE)(GpuMaxPool)
_max_unpool = lru_cache(_CACHE_SIZE)(GpuMaxUnpool)
_conv_transpose = lru_cache(_CACHE_SIZE)(GpuConvTranspose)


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
    """Run one resolved operator on a GPU, without waiting for it.

    Args:
        spec: from `unpool.operators.resolve.spec`.
        inputs: in ONNX order, on one device; None for an optional input that is left out.
        outputs: number of outputs.
        out: tensors for the outputs; None, or nothing, for a new one.
        nan_last: whether MaxPool finds the last NaN of a window, as PyTorch does, rather than the first.
        per_plane: whether MaxPool's indices count inside their own plane, as PyTorch's do.
        check: "now" waits, and raises if an index of MaxUnpool is wrong; "later" leaves the error to a later call.

    Raises:
        UnpoolError: types, ranks, shapes, devices or destinations do not fit; indices of this call, with check="now",
            or of an earlier call are wrong.
    """
    row = spec.row
    _check(row, inputs, outputs)
    raise_known()
    names, label = INPUT_NAMES[row.operator], row.label
    shape = None
    if isinstance(spec, MaxUnpoolSpec) and len(inputs) > 2:
        inputs, shape = inputs[:2], host_shape(row, inputs[2])
    tensors = [None if x is None else tensor_of(label, name, x) for name, x in zip(names, inputs, strict=False)]
    check_devices(row, tensors)
    call = prepare(spec, tensors, outputs, nan_last=nan_last, per_plane=per_plane, shape=shape)
    return call.run(tensors, (*out, None, None)[:outputs], check)


def prepare(
    spec: Spec,
    inputs: Sequence[Tensor | None],
    outputs: int,
    *,
    nan_last: bool = False,
    per_plane: bool = False,
    shape: tuple[int, ...] | None = None,
) -> GpuCall:
    """One resolved operator for the shapes and types of these tensors.

    Args:
        spec: from `unpool.operators.resolve.spec`.
        inputs: as `GpuCall.run` takes them; of MaxUnpool X and I.
        outputs: as for `run`.
        nan_last: as for `run`.
        per_plane: as for `run`.
        shape: MaxUnpool's `output_shape`.

    Raises:
        UnpoolError: types, ranks or shapes do not fit.
    """
    x, *others = inputs
    assert x is not None, "required inputs were checked"
    if isinstance(spec, MaxPoolSpec):
        return _max_pool(spec, tuple(x.shape), x.dtype, outputs == 2, nan_last, per_plane)
    second = others[0]
    assert second is not None, "required inputs were checked"
    if isinstance(spec, MaxUnpoolSpec):
        return _max_unpool(spec, tuple(x.shape), x.dtype, tuple(second.shape), second.dtype, shape)
    b = others[1] if len(others) > 1 else None
    bias = None if b is None else (tuple(b.shape), b.dtype)
    return _conv_transpose(spec, tuple(x.shape), x.dtype, (tuple(second.shape), second.dtype), bias)


def check_devices(row: Row, inputs: Sequence[Tensor | None]) -> None:
    """Refuse tensors that are not on the device of the first one.

    Raises:
        UnpoolError: a tensor is on another device.
    """
    x = inputs[0]
    assert x is not None, "required inputs were checked"
    for number, tensor in enumerate(inputs):
        if tensor is not None and tensor.device != x.device:
            raise UnpoolError(
                f"{row.label}: {INPUT_NAMES[row.operator][number]} needs the device of X, {x.device}, got "
                f"{tensor.device}. Move it."
            )


def _check(row: Row, inputs: Sequence[Any], outputs: int) -> None:
    row.check_inputs(inputs)
    if not 1 <= outputs <= row.max_outputs:
        raise UnpoolError(f"{row.label}: has 1 to {row.max_outputs} outputs, got {outputs} wanted. Ask for fewer.")
