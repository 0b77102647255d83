"""The order of elements: which of two is larger, and how kernels compare them.

    -inf < ... < -0 = +0 < ... < +inf < NaN         and of several NaN the first one or the last one is the maximum

Kernels compare floats of 32 and 64 bits as they are, and 16-bit floats, whose bits are int16, in one of three forms:

    keys      integers in the same order, compared as they are stored. Sign-magnitude becomes two's complement, so both
              zeros are 0, and each NaN is the largest key: a strict comparison keeps the first of equals. No key is the
              smallest integer, which means "nothing yet".
    widened   the upper half of a float32, which has the same order; bits beyond infinity are marked as a NaN of
              float32, and the lower half then keeps them.
    ranks     as keys, one element at a time, as int64

`nan` is FIRST or LAST, at compile time or run time; or the literal IGNORED: then a NaN is never larger, and the kernel
detects whether there is one.
"""

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import by_element
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.vector import IGNORED, LAST
from unpool.kernels.cpu.vector.registration import LazyModule, jit_inline, overload_by_type

maxima = LazyModule("unpool.kernels.cpu.max_pool.maxima")

_NAN_KEY = np.int16(np.iinfo(np.int16).max)
_NAN_RANK = 2**63 - 1

# by the kernels' name of an element type, the type that compares it; int16 holds the bits of 16-bit floats
COMPARE_TYPES = {"float32": "float32", "float64": "float64", "int16": "float32", "int8": "int32", "uint8": "int32"}


@by_element
def compare_size(element: str) -> int:
    """Bytes of an element while it is compared."""
    return np.dtype(COMPARE_TYPES[element]).itemsize


@by_element
def compare_lanes(element: str) -> int:
    """Elements in one register while they are compared."""
    return vector_bytes() // compare_size(element)


@overload_by_type()
def to_keys(value, infinity):
    """The keys of elements in registers: integers for the bits of 16-bit floats, else the elements."""
    if isinstance(value, vec.Vector) and value.element == types.int16:
        return lambda value, infinity: keys_of_bits(value, infinity)
    return lambda value, infinity: value


@overload_by_type()
def key_is_larger(x, y, nan):
    """Lanes in which key x takes the place of key y, the first of equals; for `nan` see above."""
    if x.element == types.int16 and getattr(nan, "literal_value", None) != IGNORED:
        return lambda x, y, nan: x > minimum(y, largest_key_that_stays(y, nan))
    return lambda x, y, nan: maxima.is_larger(x, y, nan)


@overload_by_type()
def may_have_nan(total, key, nan):
    """Lanes that may have seen NaN, where `>` alone does not order it.

    `total` is the sum of the elements of a lane, and `key` their largest key; the first NaN of 16 bits has the largest.
    """
    if key.element == types.int16:
        return lambda total, key, nan: key > largest_key_that_stays(key, nan)
    return lambda total, key, nan: vec.unordered(total, total)


@overload_by_type()
def largest_key_that_stays(key, nan):
    """In every lane the largest key that an equal one does not replace."""
    lanes = key.lanes
    return lambda key, nan: vec.splat(np.int16(_NAN_KEY - (nan == LAST)), lanes)


@overload_by_type()
def minimum(x, y):
    """The smaller of two integers, lane by lane."""
    return lambda x, y: vec.select(x > y, y, x)


@overload_by_type()
def select_value(is_new, value, best, key):
    """The elements of the keys `key`: `value` where it is larger, else `best`."""
    if value.element == types.int16:
        return lambda is_new, value, best, key: vec.select(is_new, value, best)
    return lambda is_new, value, best, key: key  # elements are their own keys, and need no second register


@overload_by_type()
def keys_of_bits(value, infinity):
    """Keys of a vector of float bits."""
    lanes, dtype = value.lanes, np.dtype(str(value.element)).type
    smallest, largest, zero = dtype(np.iinfo(dtype).min), dtype(np.iinfo(dtype).max), dtype(0)

    def key(value, infinity):
        magnitude = value & vec.splat(largest, lanes)
        signed = vec.select(value < vec.splat(zero, lanes), vec.splat(smallest, lanes) - value, value)
        return vec.select(magnitude > infinity, vec.splat(largest, lanes), signed)

    return key


@overload_by_type(inline=True)
def widen_element(value, compare_type):
    """Elements as they are compared."""
    if value.element == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, compare_type: vec.convert(
            vec.convert(value, types.int32) << vec.splat(sixteen, lanes), types.float32
        )
    if isinstance(value.element, types.Float):
        return lambda value, compare_type: value
    return lambda value, compare_type: vec.convert(value, types.int32)


@overload_by_type(inline=True)
def widen_marking_nan(value, compare_type, infinity):
    """As `widen_element`, but a NaN of 16 bits becomes a NaN of float32, whose bits `narrow_marked_nan` restores."""
    if value.element != types.int16:
        return lambda value, compare_type, infinity: widen_element(value, compare_type)
    lanes = value.lanes

    def mark(value, compare_type, infinity):
        limit = vec.splat(types.int16(infinity), lanes)
        return maxima.mark_nan(widen_element(value, compare_type), widen_element(limit, compare_type))

    return mark


@overload_by_type(inline=True)
def narrow_element(value, element):
    """Elements as they are stored."""
    kind = element.dtype
    if kind == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, element: vec.convert(vec.convert(value, types.int32) >> vec.splat(sixteen, lanes), kind)
    if isinstance(kind, types.Float):
        return lambda value, element: value
    return lambda value, element: vec.convert(value, kind)


@overload_by_type(inline=True)
def narrow_marked_nan(value, element):
    """Elements as they are stored, where 16-bit floats that are NaN were marked by `mark_nan`."""
    kind, lanes = element.dtype, value.lanes
    if kind != types.int16:
        return lambda value, element: narrow_element(value, element)

    def restore(value, element):
        bits = vec.reinterpret(value, types.int32)
        return vec.convert(vec.select(vec.unordered(value, value), bits, bits >> vec.splat(np.int32(16), lanes)), kind)

    return restore


@overload_by_type(inline=True)
def has_nan(x, y, infinity):
    """True if two registers of elements as stored hold a NaN, as a mask."""
    lanes, kind = x.lanes, x.element
    if isinstance(kind, types.Float):
        return lambda x, y, infinity: vec.unordered(x, y)
    if kind == types.int16:
        magnitude = np.int16(0x7FFF)

        def is_beyond(x, y, infinity):
            limit, bits = vec.splat(types.int16(infinity), lanes), vec.splat(magnitude, lanes)
            return ((x & bits) > limit) | ((y & bits) > limit)

        return is_beyond
    return lambda x, y, infinity: x != x


@jit_inline
def rank_of(bits, infinity, magnitude):
    """The rank of an integer, or of the bits of a float: `infinity` are those of +infinity, 0 for integers.

    `magnitude` are all bits but the sign.
    """
    if infinity != 0:
        absolute = bits & magnitude
        bits = _NAN_RANK if absolute > infinity else absolute if bits >= 0 else -absolute
    return bits


@jit_inline
def better_rank(ranks, one, other, nan_last):
    """The place of the better of two elements; -1 is no element."""
    if one < 0 or other < 0:
        return max(one, other)
    first, second = ranks[one], ranks[other]
    if first != second:
        return one if first > second else other
    return max(one, other) if nan_last and first == _NAN_RANK else min(one, other)
