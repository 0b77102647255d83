"""Where a resolved call meets a kernel: NumPy arrays in, NumPy arrays out.

What follows from attributes, shapes and types alone is worked out once, by `prepare`, and kept; a prepared call only
takes memory and starts kernels. Everything that can be wrong is found before the first write to a caller's array:
types, ranks and shapes while preparing, destinations in `outputs`, and MaxUnpool's indices by a kernel that only reads.
"""

from typing import Any, TypeAlias

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError
from unpool.execute.arrays import Optional, checked_type, present
from unpool.execute.conv_transpose import PreparedConvTranspose
from unpool.execute.max_pool import PreparedMaxPool
from unpool.execute.max_unpool import PreparedMaxUnpool
from unpool.kernels.cpu.machine.stop import asking
from unpool.kernels.cpu.weights import own_weights
from unpool.memory import memory_error
from unpool.operators.contract import Row
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec
from unpool.operators.tensors import Shape, index_type, text
from unpool.shape_cache import cached

__all__ = [
    "KEPT",
    "Prepared",
    "asking",
    "available_cores",
    "check_outputs",
    "check_threads",
    "forget",
    "own_weights",
    "pack",
    "prepare",
    "run",
    "shape_value",
    "way",
]

KEPT = 1024
"""Prepared calls that are kept per operator; the least recently used ones go."""

Prepared: TypeAlias = PreparedMaxPool | PreparedMaxUnpool | PreparedConvTranspose
_max_pool = cached(KEPT)(PreparedMaxPool)
_max_unpool = cached(KEPT)(PreparedMaxUnpool)
_conv_transpose = cached(KEPT)(PreparedConvTranspose)


def run(
    spec: Spec,
    inputs: Optional,
    *,
    outputs: int = 1,
    threads: int | None = None,
    out: Optional = (),
    nan_last: bool = False,
    per_plane: bool = False,
) -> tuple[AnyArray, ...]:
    """Run one resolved operator.

    Args:
        spec: from `unpool.operators.resolve.spec`.
        inputs: in ONNX order; None for an optional input that is left out.
        outputs: how many outputs are wanted.
        threads: at most so many threads; None for every core that this process may use.
        out: where to write each output; None, or missing, where one is to be allocated.
        nan_last: whether MaxPool finds the last NaN of a window, as PyTorch does, rather than the first.
        per_plane: whether MaxPool's indices count inside their own plane, as PyTorch's do.

    Returns:
        As many arrays as `outputs`.

    Raises:
        UnpoolError: types, ranks, shapes, indices or destinations do not fit; nothing has been written then.
    """
    row = spec.row
    check_threads(row, threads)
    try:
        return prepare(spec, inputs, outputs, nan_last, per_plane).run(inputs, (*out, None, None)[:outputs], threads)
    except MemoryError as cause:
        raise memory_error(row.label, inputs, cause) from cause


def prepare(
    spec: Spec, inputs: Optional, outputs: int = 1, nan_last: bool = False, per_plane: bool = False
) -> "Prepared":
    """The call for inputs of these shapes and types, and for this value of MaxUnpool's `output_shape`.

    Raises:
        UnpoolError: types, ranks or shapes do not fit.
    """
    row = spec.row
    given = _inputs(row, inputs)
    check_outputs(row, outputs)
    x = present(given[0])
    if isinstance(spec, MaxPoolSpec):
        return _max_pool(spec, x.shape, x.dtype, outputs == 2, nan_last, per_plane)
    second, third = present(given[1]), given[2]
    if isinstance(spec, MaxUnpoolSpec):
        checked_type(row, spec.activation, x.dtype)
        index_type(row.label, "I", second.dtype)
        return _max_unpool(spec, x.shape, x.dtype, second.shape, shape_value(row, third))
    b = None if third is None else (third.shape, third.dtype)
    return _conv_transpose(spec, x.shape, x.dtype, (second.shape, second.dtype), b)


def way(spec: ConvTransposeSpec, x_shape: Shape, w_shape: Shape, dtype: np.dtype[Any]) -> str:
    """How a ConvTranspose is computed whose weights are finite and constant, such as "phases" or "points".

    Raises:
        UnpoolError: the shapes do not fit, or the type is none of ours.
    """
    return _conv_transpose(spec, x_shape, dtype, (w_shape, dtype), None).way


def pack(spec: ConvTransposeSpec, x_shape: Shape, w: AnyArray) -> None:
    """Derive from `own_weights` what calls on inputs of this shape need, so that the first one finds it ready.

    Raises:
        UnpoolError: the shapes do not fit, or the type is none of ours.
    """
    _conv_transpose(spec, x_shape, w.dtype, (w.shape, w.dtype), None).pack(w)


def check_outputs(row: Row, outputs: int) -> None:
    """No more outputs are wanted than this version has.

    Raises:
        UnpoolError: more are, or none.
    """
    if not 1 <= outputs <= row.max_outputs:
        raise UnpoolError(f"{row.label}: has 1 to {row.max_outputs} outputs, got {outputs} wanted. Ask for fewer.")


def check_threads(row: Row, threads: int | None) -> None:
    """A number of threads is None or an int of 1 or more.

    Raises:
        UnpoolError: it is not.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise UnpoolError(
            f"{row.label}: threads is None or an int of 1 or more, got {threads!r}. Pass None for all cores."
        )


def shape_value(row: Row, output_shape: AnyArray | None) -> tuple[int, ...] | None:
    """The third input of MaxUnpool as Python ints.

    Raises:
        UnpoolError: it is not int64, or has more axes than one.
    """
    if output_shape is None:
        return None
    index_type(row.label, "output_shape", output_shape.dtype)
    if output_shape.ndim != 1:
        raise ShapeError(
            f"{row.label}: output_shape needs rank 1, got shape {text(output_shape.shape)}. Give one size per axis."
        )
    return tuple(int(size) for size in output_shape)


def available_cores() -> int:
    """Cores that this process may use: what `threads=None` means."""
    from unpool.kernels.cpu.machine.cores import available

    return available()


def _inputs(row: Row, inputs: Optional) -> list[AnyArray | None]:
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    row.check_inputs(given)
    return given + [None] * (row.max_inputs - len(given))


def forget() -> None:
    """Drop all prepared calls: what they were prepared for has changed."""
    for prepared in (_max_pool, _max_unpool, _conv_transpose):
        prepared.cache_clear()
