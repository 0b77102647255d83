"""Where a resolved call meets a kernel: NumPy arrays in, NumPy arrays out.

`prepare` does all that depends on attributes, shapes and types alone, and keeps the result; a prepared call only
allocates memory and starts kernels. All errors are raised before the first write to a caller's array: types, ranks and
shapes by `prepare`, destinations by `arrays.py`, and MaxUnpool's indices by a kernel that only reads.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError
from unpool.execute.arrays import CallOptions, InputTypes, OptionalArrays
from unpool.execute.conv import PreparedConv, prepare_conv
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.execute.max_pool import PreparedMaxPool
from unpool.execute.max_unpool import PreparedMaxUnpool
from unpool.execute.normalization import PreparedNormalization
from unpool.execute.snake import PreparedSnake
from unpool.kernels.cpu.machine.host import available_cores
from unpool.kernels.cpu.weights import as_own_weights, own_weights
from unpool.memory import memory_error
from unpool.operators.contract import OUTPUT_SHAPE, OperatorVersion
from unpool.operators.conv import ConvSpec, flip_window
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.normalization import NormalizationSpec
from unpool.operators.snake import SnakeSpec
from unpool.operators.tensors import Shape, index_type
from unpool.operators.unpool_domain import Spec
from unpool.shape_cache import cached, shortcuts

__all__ = [
    "CACHE_SIZE",
    "PreparedCall",
    "available_cores",
    "bind_weights",
    "check_threads",
    "clear_cache",
    "kernel_of",
    "own_weights",
    "prepare",
    "run",
    "shape_value",
]

CACHE_SIZE = 1024  # prepared calls; the least recently used are dropped

PreparedCall: TypeAlias = (
    PreparedMaxPool | PreparedMaxUnpool | PreparedConvTranspose | PreparedConv | PreparedSnake | PreparedNormalization
)
PREPARED: Mapping[type[Spec], Callable[[Any, InputTypes, CallOptions], PreparedCall]] = {
    MaxPoolSpec: PreparedMaxPool,
    MaxUnpoolSpec: PreparedMaxUnpool,
    ConvTransposeSpec: PreparedConvTranspose,
    ConvSpec: prepare_conv,
    SnakeSpec: PreparedSnake,
    NormalizationSpec: PreparedNormalization,
}
"""The prepared call of each type of spec."""


def _prepare(spec: Spec, inputs: InputTypes, options: CallOptions) -> PreparedCall:
    return PREPARED[type(spec)](spec, inputs, options)


_prepared = cached(CACHE_SIZE)(_prepare)


def run(
    spec: Spec,
    inputs: OptionalArrays,
    *,
    outputs: int = 1,
    threads: int | None = None,
    out: OptionalArrays = (),
    nan_last: bool = False,
    per_plane: bool = False,
) -> tuple[AnyArray, ...]:
    """The outputs of one resolved operator on inputs in ONNX order, None for an optional input that is left out.

    `out` has an array for each output, or None for a new array. With `nan_last` MaxPool finds the last NaN of a window,
    and with `per_plane` its indices count inside their own plane, both as in PyTorch.

    Raises:
        UnpoolError: types, ranks, shapes, indices or destinations do not fit; nothing is written then.
    """
    version = spec.version
    check_threads(version, threads)
    try:
        return prepare(spec, inputs, outputs, nan_last, per_plane).run(inputs, (*out, None, None)[:outputs], threads)
    except MemoryError as cause:
        raise memory_error(version.label, inputs, cause) from cause


def prepare(
    spec: Spec, inputs: OptionalArrays, outputs: int = 1, nan_last: bool = False, per_plane: bool = False
) -> PreparedCall:
    """The call for inputs of these shapes and types, and for this value of MaxUnpool's `output_shape`."""
    version, arrays = spec.version, list(inputs)
    while arrays and arrays[-1] is None:
        arrays.pop()
    version.check_inputs(arrays)
    version.check_outputs(outputs)
    shape = shape_value(version, arrays.pop()) if version.inputs[len(arrays) - 1] == OUTPUT_SHAPE else None
    types = tuple(None if x is None else (x.shape, x.dtype) for x in arrays)
    return _prepared(spec, types, CallOptions(outputs, nan_last, per_plane, shape))


def bind_weights(spec: Spec, w: AnyArray) -> tuple[Spec, AnyArray]:
    """A spec for constant weights, and a view or a copy of them whose packings are kept.

    No one may write to the weights while the view is in use. Inputs of other operators stay as they are.
    """
    if isinstance(spec, ConvSpec):
        if w.ndim < 3 or w.shape[0] % spec.group:
            return spec, w  # refused later
        return replace(spec, w_shape=w.shape), as_own_weights(_read_only(flip_window(w, spec.group)))
    if not isinstance(spec, ConvTransposeSpec):
        return spec, w
    return spec, as_own_weights(_read_only(np.ascontiguousarray(w).view()))


def _read_only(array: AnyArray) -> AnyArray:
    array.flags.writeable = False
    return array


def kernel_of(spec: Spec, inputs: InputTypes, outputs: int = 1, output_shape: Shape | None = None) -> str:
    """The name of the kernel for inputs of these shapes and types, such as "tiles"; weights are finite and constant."""
    return _prepared(spec, inputs, CallOptions(outputs, output_shape=output_shape)).kernel


def check_threads(version: OperatorVersion, threads: int | None) -> None:
    """Refuse a number of threads other than None or an int of 1 or more."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise UnpoolError(
            f"{version.label}: threads is None or an int of 1 or more, got {threads!r}. Pass None for all cores."
        )


def shape_value(version: OperatorVersion, output_shape: AnyArray | None) -> tuple[int, ...] | None:
    """The third input of MaxUnpool, which has to be int64 of rank 1, as Python ints."""
    if output_shape is None:
        return None
    index_type(version.label, "output_shape", output_shape.dtype)
    if output_shape.ndim != 1:
        raise ShapeError(
            f"{version.label}: output_shape needs rank 1, got shape {format_shape(output_shape.shape)}. "
            "Give one size per axis."
        )
    return tuple(map(int, output_shape))


def clear_cache() -> None:
    """Drop all prepared calls."""
    _prepared.cache_clear()
    shortcuts.clear()
