"""Operations on single vectors and masks that Python has no operator for, activations, and 16-bit floats.

An activation is a slope below 0, then a lower and an upper bound: part of the record that a kernel takes. 16-bit floats
are vectors of bits, int16 for float16 and uint16 for bfloat16: widened, and rounded to nearest even.
"""

import numpy as np
from llvmlite import ir
from numba import types

from unpool.kernels.cpu.vector import ActivationParams
from unpool.kernels.cpu.vector.registration import overload_by_type
from unpool.kernels.cpu.vector.type import I32, I64, Vector, emit_splat, lane_numbers, operation, vector_of


@operation
def splat(scalar, lanes):
    """The scalar in every lane."""
    result = Vector(types.unliteral(scalar), lanes.literal_value)
    return result, lambda builder, value, _: emit_splat(builder, value, result.lanes)


@operation
def count_up(element, lanes, step):
    """0, step, 2 * step, ..."""
    result = vector_of(element, lanes)
    numbers = [lane * step.literal_value for lane in range(result.lanes)]
    return result, lambda builder, *_: ir.Constant(result.llvm, numbers)


@operation
def select(mask, x, y):
    """X where the mask is set, y elsewhere."""
    return x, lambda builder, mask, x, y: builder.select(mask, x, y)


@operation
def interleave(x, y):
    """One vector of twice the lanes: x[0], y[0], x[1], y[1], ..."""
    order = lane_numbers([lane + first for lane in range(x.lanes) for first in (0, x.lanes)])
    return Vector(x.element, 2 * x.lanes), lambda builder, x, y: builder.shuffle_vector(x, y, order)


@operation
def widen_mask(mask, like):
    """A mask as integers of the width of `like`: in registers, comparisons leave masks in this form."""
    return like.integers, lambda builder, mask, _: builder.sext(mask, like.integers.llvm)


@operation
def any_of(mask):
    """True if a mask, narrow or wide, is set in any lane."""
    bits = ir.IntType(mask.lanes * mask.bits)
    return types.boolean, lambda builder, mask: builder.icmp_unsigned("!=", builder.bitcast(mask, bits), bits(0))


@operation
def convert(x, element):
    """Integers sign- or zero-extended or cut, floats widened or rounded; equal widths keep their bits."""
    result = x.of(element.dtype)
    if x.bits == result.bits:
        method = "bitcast"
    elif x.bits > result.bits:
        method = "fptrunc" if x.is_float else "trunc"
    else:
        method = "fpext" if x.is_float else "sext" if x.element.signed else "zext"
    return result, lambda builder, value, _: getattr(builder, method)(value, result.llvm)


@operation
def reinterpret(x, element):
    """The same bits as elements of another type of equal width."""
    result = x.of(element.dtype)
    return result, lambda builder, value, _: builder.bitcast(value, result.llvm)


@operation
def first_lanes(count, like):
    """A mask of the lanes of `like` whose number is below `count`."""

    def emit(builder, value, _):
        narrow = builder.trunc(value, I32) if count.bitwidth > 32 else value
        return builder.icmp_signed("<", lane_numbers(range(like.lanes)), emit_splat(builder, narrow, like.lanes))

    return like.mask, emit


@operation
def count_set(mask):
    """The number of lanes of a mask that are set, as int64."""

    def emit(builder, value):
        count = builder.ctpop(builder.bitcast(value, ir.IntType(mask.lanes)))
        return builder.zext(count, I64) if mask.lanes < 64 else count

    return types.int64, emit


@operation
def unordered(x, y):
    """Lanes in which x or y is NaN; none for integers."""
    if not x.is_float:
        return x.mask, lambda builder, *_: x.mask.constant(0)
    return x.mask, lambda builder, x, y: builder.fcmp_unordered("uno", x, y)


@operation
def total_of(total, x):
    """Sums of floats, NaN if one of them is (or for infinities of both signs); of integers the old total."""
    is_float = x.is_float
    return total, lambda builder, total, x: builder.fadd(total, x) if is_float else total


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


@operation
def _bend(values, slope, low, high):
    """Multiply values below 0 by the slope, then clip all to the bounds."""

    def bend(builder, value, factor, least, most):
        is_below = builder.fcmp_ordered("<", value, ir.Constant(value.type, None))
        value = builder.select(is_below, builder.fmul(value, factor), value)
        value = builder.select(builder.fcmp_ordered("<", value, least), least, value)
        return builder.select(builder.fcmp_ordered(">", value, most), most, value)

    if isinstance(values, types.BaseTuple):
        return values, lambda builder, parts, *bounds: [bend(builder, part, *bounds) for part in parts]
    return values, bend


_SUBNORMAL = np.int32(0x38800000)  # bits of 2**-14, the smallest normal float16
_LIMIT = np.int32(0x47800000)  # bits of 2**16: this and all larger numbers round to infinity
_INFINITY = np.int32(0x7F800000)
_HALF = np.float32(0.5)  # its unit in the last place is the smallest float16


@overload_by_type()
def widen(value):
    """The numbers of a vector of 16-bit floats as float32; any other floats as they are."""
    if value.element not in (types.uint16, types.int16):
        return lambda value: value
    lanes = value.lanes
    if value.element == types.uint16:
        return lambda value: reinterpret(convert(value, types.int32) * splat(np.int32(1 << 16), lanes), types.float32)

    def widened(value):
        bits = convert(value, types.int32)
        magnitude = (bits & splat(np.int32(0x7FFF), lanes)) * splat(np.int32(1 << 13), lanes)
        number = reinterpret(magnitude, types.float32) * splat(np.float32(2.0**112), lanes)
        special = reinterpret(magnitude | splat(_INFINITY, lanes), types.float32)
        is_special = magnitude > splat(np.int32((0x7C00 << 13) - 1), lanes)
        sign = bits & splat(np.int32(-(1 << 31)), lanes)
        return reinterpret(reinterpret(select(is_special, special, number), types.int32) | sign, types.float32)

    return widened


@overload_by_type()
def narrow(value, like):
    """Float32 numbers rounded to the type of `like`; any other floats as they are."""
    if like.element not in (types.uint16, types.int16):
        return lambda value, like: value
    lanes = value.lanes

    def to_bfloat16(value, like):
        bits = reinterpret(value, types.int32)
        odd = (bits >> splat(np.int32(16), lanes)) & splat(np.int32(1), lanes)
        rounded = (bits + splat(np.int32(0x7FFF), lanes) + odd) >> splat(np.int32(16), lanes)
        quiet = (bits >> splat(np.int32(16), lanes)) | splat(np.int32(0x40), lanes)
        return convert(select(value == value, rounded, quiet), types.uint16)

    def to_float16(value, like):
        bits = reinterpret(value, types.int32)
        magnitude = bits & splat(np.int32(0x7FFFFFFF), lanes)
        sign = (bits >> splat(np.int32(16), lanes)) & splat(np.int32(0x8000), lanes)
        small = reinterpret(reinterpret(magnitude, types.float32) + splat(_HALF, lanes), types.int32)
        small = small - splat(np.int32(0x3F000000), lanes)
        odd = (magnitude >> splat(np.int32(13), lanes)) & splat(np.int32(1), lanes)
        normal = (magnitude - splat(np.int32((112 << 23) - 0xFFF), lanes) + odd) >> splat(np.int32(13), lanes)
        result = select(magnitude < splat(_SUBNORMAL, lanes), small, normal)
        special = select(
            magnitude > splat(_INFINITY, lanes), splat(np.int32(0x7E00), lanes), splat(np.int32(0x7C00), lanes)
        )
        return convert(select(magnitude < splat(_LIMIT, lanes), result, special) | sign, types.int16)

    return to_bfloat16 if like.element == types.uint16 else to_float16
