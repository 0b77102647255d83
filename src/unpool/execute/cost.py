"""How long a ConvTranspose takes, for those who choose between it and something else."""

import math
from typing import Any

import numpy as np

from unpool.dtypes import storage_type
from unpool.operators import conv_transpose
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import Shape


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
