"""ConvTranspose between arrays and kernels."""

from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.dtypes import AnyArray, storage_type
from unpool.execute.arrays import Optional, checked_type, contiguous, present
from unpool.execute.outputs import Output
from unpool.operators import conv_transpose
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import Shape, same_type

if TYPE_CHECKING:
    from unpool.kernels.cpu.conv_transpose import Work


class PreparedConvTranspose:
    """ConvTranspose for one set of shapes and types."""

    def __init__(
        self,
        spec: ConvTransposeSpec,
        shape: Shape,
        dtype: np.dtype[Any],
        w: tuple[Shape, np.dtype[Any]],
        b: tuple[Shape, np.dtype[Any]] | None,
    ) -> None:
        from unpool.kernels.cpu.activation import Ending

        self.row = row = spec.row
        self._storage = checked_type(row, spec.activation, dtype)
        same_type(row, "X and W", dtype, w[1])
        if b is not None:
            same_type(row, "X and B", dtype, b[1])
        self._call = call = conv_transpose.call(spec, shape, w[0], None if b is None else b[0])
        self._y = Output(row, "Y", call.large.in_layout(row), self._storage.dtype)
        self._zeros = np.zeros(call.large.channels, self._storage.compute)
        name, params = (None, ()) if spec.activation is None else (spec.activation.name, spec.activation.params)
        self._ending = Ending(row.is_channels_last, name, params)

    def run(self, inputs: Optional, targets: Optional, threads: int | None) -> tuple[AnyArray, ...]:
        """Y."""
        from unpool.kernels.cpu import conv_transpose as kernel

        x, w, b = present(inputs[0]), present(inputs[1]), inputs[2] if len(inputs) > 2 else None
        row, call, storage = self.row, self._call, self._storage
        y, work = self._y.place(targets[0], (x, w) if b is None else (x, w, b))
        bias = self._zeros if b is None else contiguous(b, row, storage.compute)
        kernel.conv_transpose(
            contiguous(x, row), contiguous(w, row), bias, call.axes, call.spec.group, work, threads, self._ending
        )
        if work is not y:
            y[...] = work
        return (y,)


def way(spec: ConvTransposeSpec, x_shape: Shape, w_shape: Shape, dtype: np.dtype[Any]) -> str:
    """How the kernels compute a ConvTranspose whose weights are finite and constant, such as "phases" or "matmul".

    Raises:
        UnpoolError: the shapes do not fit, or the type is none of ours.
    """
    from unpool.kernels.cpu import conv_transpose as kernel

    return kernel.ways(_work(spec, x_shape, w_shape, dtype))[0]


def pack(spec: ConvTransposeSpec, x_shape: Shape, w: AnyArray) -> None:
    """Derive from constant weights what calls on inputs of this shape need, so that the first one finds it ready.

    Raises:
        UnpoolError: the shapes do not fit, or the type is none of ours.
    """
    from unpool.kernels.cpu import conv_transpose as kernel

    kernel.prepare(contiguous(w, spec.row), _work(spec, x_shape, w.shape, w.dtype))


def _work(spec: ConvTransposeSpec, x_shape: Shape, w_shape: Shape, dtype: np.dtype[Any]) -> "Work":
    from unpool.kernels.cpu.conv_transpose import Work

    call, storage = conv_transpose.call(spec, x_shape, w_shape, None), storage_type(dtype, spec.row.label)
    is_plain = storage.dtype == storage.compute and not spec.row.is_channels_last
    return Work(call.axes, x_shape[0], spec.group, w_shape[0], w_shape[1], storage.compute, is_plain, is_kept=True)
