"""Where a resolved call meets a kernel on a GPU: tensors on a CUDA device in and out, on the current stream.

tensors.py    the caller's arrays <-> tensors, their types, and where results are written
verdicts.py   what is wrong with indices, which only the device knows
per_plane.py  unpooling and gradients on torch's indices
conv_gradients.py  the gradients of ConvTranspose
indices.py    indices from counting in planes to counting in whole tensors, and back
one file per operator
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from torch import Tensor

from unpool.errors import UnpoolError
from unpool.execute.gpu.conv_transpose import GpuConvTranspose, own_weights
from unpool.execute.gpu.max_pool import GpuMaxPool
from unpool.execute.gpu.max_unpool import GpuMaxUnpool
from unpool.execute.gpu.tensors import host_shape, tensor_of
from unpool.execute.gpu.verdicts import raise_known
from unpool.operators.contract import INPUT_NAMES, Row
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec

__all__ = ["Prepared", "check_devices", "own_weights", "prepare", "raise_known", "run", "tensor_of"]


class Prepared(Protocol):
    """An operator for one set of shapes and types."""

    def run(self, given: Sequence[Tensor | None], targets: Sequence[Tensor | None], check: str) -> tuple[Tensor, ...]:
        """The outputs of inputs on one device, written to targets where there are any; `check` is that of `run`."""


_KEPT = 1024
_max_pool = lru_cache(_KEPT)(GpuMaxPool)
_max_unpool = lru_cache(_KEPT)(GpuMaxUnpool)
_conv_transpose = lru_cache(_KEPT)(GpuConvTranspose)


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
        outputs: how many are wanted.
        out: where to write each output; None, or missing, where one is to be allocated.
        nan_last: whether MaxPool finds the last NaN of a window, as PyTorch does, rather than the first.
        per_plane: whether MaxPool's indices count inside their own plane, as PyTorch's do.
        check: "now" waits, and raises if an index of MaxUnpool is wrong; "later" leaves that to the next call.

    Raises:
        UnpoolError: types, ranks, shapes, devices or destinations do not fit; indices that are wrong, of this call with
            check="now", or of an earlier one.
    """
    row = spec.row
    _check(row, inputs, outputs)
    raise_known()
    names, label = INPUT_NAMES[row.operator], row.label
    shape = None
    if isinstance(spec, MaxUnpoolSpec) and len(inputs) > 2:
        inputs, shape = inputs[:2], host_shape(row, inputs[2])
    given = [None if each is None else tensor_of(label, name, each) for name, each in zip(names, inputs, strict=False)]
    check_devices(row, given)
    prepared = prepare(spec, given, outputs, nan_last=nan_last, per_plane=per_plane, shape=shape)
    return prepared.run(given, (*out, None, None)[:outputs], check)


def prepare(
    spec: Spec,
    given: Sequence[Tensor | None],
    outputs: int,
    *,
    nan_last: bool = False,
    per_plane: bool = False,
    shape: tuple[int, ...] | None = None,
) -> Prepared:
    """One resolved operator for the shapes and types of these tensors.

    Args:
        spec: from `unpool.operators.resolve.spec`.
        given: the inputs, as `Prepared.run` takes them; of MaxUnpool X and I.
        outputs: as for `run`.
        nan_last: as for `run`.
        per_plane: as for `run`.
        shape: MaxUnpool's `output_shape`.

    Raises:
        UnpoolError: types, ranks or shapes do not fit.
    """
    x, *others = given
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


def check_devices(row: Row, given: Sequence[Tensor | None]) -> None:
    """Refuse tensors that are not on the device of the first one.

    Raises:
        UnpoolError: one is elsewhere.
    """
    x = given[0]
    assert x is not None, "required inputs were checked"
    for number, each in enumerate(given):
        if each is not None and each.device != x.device:
            raise UnpoolError(
                f"{row.label}: {INPUT_NAMES[row.operator][number]} needs the device of X, {x.device}, got "
                f"{each.device}. Move it."
            )


def _check(row: Row, inputs: Sequence[Any], outputs: int) -> None:
    row.check_inputs(inputs)
    if not 1 <= outputs <= row.max_outputs:
        raise UnpoolError(f"{row.label}: has 1 to {row.max_outputs} outputs, got {outputs} wanted. Ask for fewer.")
