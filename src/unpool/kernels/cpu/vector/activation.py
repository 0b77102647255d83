"""Activations in compiled code: a slope below 0, then a lower and an upper bound.

It is part of the record that a kernel takes, of the type that `activation_type` gives. The kernel hands scalars to
`activated` with that part as it is, and vectors or tiles of them with what `activation_in_lanes` makes of it.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.vector.arithmetic import splat
from unpool.kernels.cpu.vector.by_type import by_type
from unpool.kernels.cpu.vector.type import intrinsic


class Activation(NamedTuple):
    """What is done to sums: numbers of their type, or vectors.

    Attributes:
        is_active: whether anything is done.
        slope: by which values below 0 are multiplied.
        low: no result is below.
        high: no result is above.
    """

    is_active: bool
    slope: Any
    low: Any
    high: Any


def activation_type(dtype: np.dtype[Any]) -> np.dtype[np.void]:
    """The type of an activation as part of a record, for sums of a type."""
    return np.dtype([("is_active", np.bool_), *((name, dtype) for name in ("slope", "low", "high"))], align=True)


@by_type(inline=True)
def activation_in_lanes(given, lanes):
    """The part of a record as vectors of so many lanes."""

    def in_lanes(given, lanes):
        slope, low, high = splat(given.slope, lanes), splat(given.low, lanes), splat(given.high, lanes)
        return Activation(given.is_active, slope, low, high)

    return in_lanes


@by_type(inline=True)
def activated(values, activation):
    """A scalar, a vector or a tile, activated where that is asked for; NaN stays NaN."""

    def activate(values, activation):
        if activation.is_active:
            values = _bent(values, activation.slope, activation.low, activation.high)
        return values

    return activate


@intrinsic
def _bent(context, values, slope, low, high):
    """Values times the slope where they are below 0, then not below nor above the bounds."""

    def bend(builder, value, factor, least, most):
        is_below = builder.fcmp_ordered("<", value, ir.Constant(value.type, None))
        value = builder.select(is_below, builder.fmul(value, factor), value)
        value = builder.select(builder.fcmp_ordered("<", value, least), least, value)
        return builder.select(builder.fcmp_ordered(">", value, most), most, value)

    def emit(ctx, builder, signature, arguments):
        whole, *bounds = arguments
        if not isinstance(values, types.BaseTuple):
            return bend(builder, whole, *bounds)
        return ctx.make_tuple(
            builder, values, [bend(builder, each, *bounds) for each in cgutils.unpack_tuple(builder, whole)]
        )

    return values(values, slope, low, high), emit
