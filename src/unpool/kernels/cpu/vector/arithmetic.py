"""Operations on single vectors and masks that Python has no operator for, and activations.

An activation is a slope below 0, then a lower and an upper bound: part of the record that a kernel takes.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.vector.specialize import overload_by_type
from unpool.kernels.cpu.vector.type import (
    I32,
    I64,
    Vector,
    bits_of,
    concatenated,
    emit_splat,
    intrinsic,
    is_float,
    lane_numbers,
    mask_of,
)


@intrinsic
def splat(context, scalar, lanes):
    """The scalar in every lane."""
    result = Vector(types.unliteral(scalar), lanes.literal_value)
    return result(result.element, lanes), lambda ctx, builder, signature, arguments: emit_splat(
        builder, arguments[0], result.lanes
    )


@intrinsic
def count_up(context, element, lanes, step):
    """0, step, 2 * step, ..."""
    result = Vector(element.dtype, lanes.literal_value)
    numbers = [lane * step.literal_value for lane in range(result.lanes)]
    return result(element, lanes, step), lambda ctx, builder, signature, arguments: ir.Constant(result.llvm, numbers)


@intrinsic
def select(context, mask, x, y):
    """X where the mask is set, y elsewhere."""
    return x(mask, x, y), lambda ctx, builder, signature, arguments: builder.select(*arguments)


@intrinsic
def interleave(context, x, y):
    """One vector of twice the lanes: x[0], y[0], x[1], y[1], ..."""
    result = Vector(x.element, 2 * x.lanes)
    places = lane_numbers([lane + x.lanes * which for lane in range(x.lanes) for which in (0, 1)])
    return result(x, y), lambda ctx, builder, signature, arguments: builder.shuffle_vector(*arguments, places)


@intrinsic
def repeat(context, x, times):
    """The lanes of x, repeated `times` times, a power of two."""
    result = Vector(x.element, x.lanes * times.literal_value)
    return result(x, times), lambda ctx, builder, signature, arguments: concatenated(
        builder, [arguments[0]] * times.literal_value
    )


@intrinsic
def every_second(context, x, y, first):
    """Lanes `first`, `first` + 2, ... of x and then of y; `first` is 0 or 1."""
    lanes = lane_numbers(range(first.literal_value, 2 * x.lanes, 2))
    return x(x, y, first), lambda ctx, builder, signature, arguments: builder.shuffle_vector(*arguments[:2], lanes)


@intrinsic
def widen_mask(context, mask, like):
    """A mask as integers as wide as the elements of `like`, the form in which comparisons leave it in registers."""
    result = like.of(getattr(types, f"int{bits_of(like.element)}"))
    return result(mask, like), lambda ctx, builder, signature, arguments: builder.sext(arguments[0], result.llvm)


@intrinsic
def any_of(context, mask):
    """True if a mask, narrow or wide, is set in any lane."""
    bits = ir.IntType(mask.lanes * bits_of(mask.element))

    def emit(ctx, builder, signature, arguments):
        return builder.icmp_unsigned("!=", builder.bitcast(arguments[0], bits), ir.Constant(bits, 0))

    return types.boolean(mask), emit


@intrinsic
def convert(context, x, element):
    """Integers sign- or zero-extended or cut, floats widened or rounded; equal widths keep their bits."""
    result = x.of(element.dtype)

    def emit(ctx, builder, signature, arguments):
        before, after = bits_of(x.element), bits_of(result.element)
        if before == after:
            return builder.bitcast(arguments[0], result.llvm)
        if before > after:
            return (builder.fptrunc if is_float(x) else builder.trunc)(arguments[0], result.llvm)
        widen = builder.fpext if is_float(x) else builder.sext if x.element.signed else builder.zext
        return widen(arguments[0], result.llvm)

    return result(x, element), emit


@intrinsic
def first_lanes(context, count, like):
    """A mask of the lanes of `like` whose number is below `count`."""
    result = mask_of(like)

    def emit(ctx, builder, signature, arguments):
        narrow = builder.trunc(arguments[0], I32) if count.bitwidth > 32 else arguments[0]
        numbers = ir.Constant(ir.VectorType(I32, like.lanes), list(range(like.lanes)))
        return builder.icmp_signed("<", numbers, emit_splat(builder, narrow, like.lanes))

    return result(count, like), emit


@intrinsic
def reinterpret(context, x, element):
    """The same bits as elements of another type of equal width."""
    result = x.of(element.dtype)
    return result(x, element), lambda ctx, builder, signature, arguments: builder.bitcast(arguments[0], result.llvm)


@intrinsic
def count_set(context, mask):
    """The number of lanes of a mask that are set, as int64."""

    def emit(ctx, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], ir.IntType(mask.lanes))
        return builder.zext(builder.ctpop(bits), I64) if mask.lanes < 64 else builder.ctpop(bits)

    return types.int64(mask), emit


@intrinsic
def unordered(context, x, y):
    """Lanes in which x or y is NaN; none for integers."""

    def emit(ctx, builder, signature, arguments):
        if is_float(x):
            return builder.fcmp_unordered("uno", *arguments)
        return ir.Constant(mask_of(x).llvm, [0] * x.lanes)

    return mask_of(x)(x, y), emit


@intrinsic
def total_of(context, total, x):
    """Sums of floats, NaN if one of them is (or for infinities of both signs); of integers the old total."""

    def emit(ctx, builder, signature, arguments):
        return builder.fadd(*arguments) if is_float(x) else arguments[0]

    return total(total, x), emit


class ActivationParams(NamedTuple):
    """An activation of sums: numbers of their type, or vectors."""

    is_active: bool  # whether there is an activation
    slope: Any  # factor of values below 0
    low: Any  # lower bound
    high: Any  # upper bound


def activation_dtype(dtype: np.dtype[Any]) -> np.dtype[np.void]:
    """The type of an activation as part of a record, for sums of a type."""
    return np.dtype([("is_active", np.bool_), *((name, dtype) for name in ("slope", "low", "high"))], align=True)


@overload_by_type(inline=True)
def splat_activation(params, lanes):
    """The activation of a record as vectors of `lanes` lanes."""

    def in_lanes(params, lanes):
        slope, low, high = splat(params.slope, lanes), splat(params.low, lanes), splat(params.high, lanes)
        return ActivationParams(params.is_active, slope, low, high)

    return in_lanes


@overload_by_type(inline=True)
def activate_sums(values, activation):
    """A scalar, a vector or a tile, activated if there is an activation; NaN stays NaN."""

    def activate(values, activation):
        if activation.is_active:
            values = _bend(values, activation.slope, activation.low, activation.high)
        return values

    return activate


@intrinsic
def _bend(context, values, slope, low, high):
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
