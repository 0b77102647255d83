"""ConvTranspose between arrays and kernels."""

import math
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray, storage_type
from unpool.execute.arrays import Optional, Output, checked_type, contiguous, present
from unpool.operators import conv_transpose
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import Shape, same_type


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
        from unpool.kernels.cpu.conv_transpose.growth import Growth
        from unpool.kernels.cpu.conv_transpose.work import Work

        self.row = row = spec.row
        self._storage = checked_type(row, spec.activation, dtype)
        same_type(row, "X and W", dtype, w[1])
        if b is not None:
            same_type(row, "X and B", dtype, b[1])
        call = conv_transpose.call(spec, shape, w[0], None if b is None else b[0])
        self._y = Output(row, "Y", call.large.in_layout(row), self._storage.dtype)
        self._zeros = np.zeros(call.large.channels, self._storage.compute)
        name, params = (None, ()) if spec.activation is None else (spec.activation.name, spec.activation.params)
        is_plain = self._storage.dtype == self._storage.compute and not row.is_channels_last
        channels, maps = w[0][:2]
        work = Work(
            call.axes, shape[0], spec.group, channels, maps, self._storage.compute, is_plain, is_kept=True,
            is_channels_last=row.is_channels_last, is_exact=spec.is_exact, way=spec.way,
        )  # fmt: skip
        self._grow = Growth(work, dtype, Ending(row.is_channels_last, name, params))

    def run(self, inputs: Optional, targets: Optional, threads: int | None) -> tuple[AnyArray, ...]:
        """Y."""
        x, w, b = present(inputs[0]), present(inputs[1]), inputs[2] if len(inputs) > 2 else None
        row, storage = self.row, self._storage
        y, work = self._y.place(targets[0], (x, w) if b is None else (x, w, b))
        bias = self._zeros if b is None else contiguous(b, row, storage.compute)
        self._grow(contiguous(x, row), contiguous(w, row), bias, work, threads)
        if work is not y:
            y[...] = work
        return (y,)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables that were made for calls so far."""
        return self._grow.nbytes

    @property
    def way(self) -> str:
        """How a call with weights that are finite and constant is computed, such as "phases" or "points"."""
        return self._grow.ways(is_kept=True)[0]

    @property
    def possible_ways(self) -> tuple[str, ...]:
        """All ways that such a call can go, but for those that are hopeless."""
        return self._grow.possible

    @property
    def ways_in_question(self) -> tuple[str, ...]:
        """Those that may be the fastest on some machine."""
        return self._grow.in_question

    def pack(self, w: AnyArray) -> None:
        """Derive from weights that are unpool's own what calls need, so that the first one finds it ready."""
        self._grow.pack(contiguous(w, self.row))


def cost(spec: ConvTransposeSpec, x_shape: Shape, w_shape: Shape, dtype: np.dtype[Any]) -> float:
    """The time of a call with constant weights, in multiply-adds at the processor's peak; infinity where unknown.

    Raises:
        UnpoolError: the shapes do not fit, or the type is none of ours.
    """
    from unpool.kernels.cpu import conv_transpose as kernel
    from unpool.kernels.cpu.conv_transpose import phases_blocking, winograd
    from unpool.kernels.cpu.conv_transpose.winograd_depth import flattened
    from unpool.kernels.cpu.conv_transpose.work import Work

    axes, storage = conv_transpose.call(spec, x_shape, w_shape, None).axes, storage_type(dtype, spec.row.label)
    is_last = spec.row.is_channels_last
    is_plain = storage.dtype == storage.compute and not is_last
    work = Work(
        axes, x_shape[0], spec.group, w_shape[0], w_shape[1], storage.compute, is_plain, is_kept=True,
        is_channels_last=is_last,
    )  # fmt: skip
    way, channels, size, flat = kernel.ways(work)[0], work.channels // work.group, work.dtype.itemsize, flattened(work)
    if way == "winograd" and flat is not None:
        deep = flat.channels // flat.group
        return work.group * winograd.cost(flat.axes, flat.batch, deep, work.maps, size, is_kept=True)
    if way == "phases":
        return work.group * work.batch * phases_blocking.blocking(work.axes, channels, work.maps, size).cost
    return math.inf


def in_whole_vectors(count: int, dtype: np.dtype[Any]) -> int:
    """Elements that are computed where so many are wanted and whole vectors of this processor are filled."""
    from unpool.kernels.cpu.machine.host import vector_bytes

    lanes = vector_bytes() // dtype.itemsize
    return -(-count // lanes) * lanes
