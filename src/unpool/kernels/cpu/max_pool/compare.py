"""Comparisons of elements: the running maximum of kernels that walk whole windows, and compute types of the others.

The separable and the rolling pool compare floats as they are, 16-bit floats as the upper half of a float32, and
integers as int32.
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import by_element
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.vector.registration import jit_inline, overload_by_type


class RunningMax(NamedTuple):
    """The largest elements so far, a vector of each."""

    value: Any  # elements as they are stored
    key: Any  # keys for comparisons, see `to_keys`
    place: Any  # their places, counted from the first tap of their window


@overload_by_type(inline=True)
def update_best(best, value, place, limit, nan, is_data):
    """The maximum after one more tap, at the same place in every lane.

    `limit` is infinity, as elements are stored; `nan` is FIRST, LAST or the literal IGNORED; `is_data` are the lanes
    whose tap is data, not padding, None where all are: the first such tap is always taken.
    """
    kind, lanes = best.types[best.fields.index("place")].element, value.lanes

    def compare(best, value, place, limit, nan, is_data):
        key = vec.to_keys(value, limit)
        is_new = _on_data(vec.key_is_larger(key, best.key, nan), best.place, is_data)
        key = vec.select(is_new, key, best.key)
        at = vec.select(is_new, vec.splat(kind(place), lanes), best.place)
        return RunningMax(vec.select_value(is_new, value, best.value, key), key, at)

    return compare


@overload_by_type(inline=True)
def _on_data(is_new, place, is_data):
    """Lanes whose maximum changes, if only data may; a lane without a place has met no data yet."""
    if isinstance(is_data, types.NoneType):
        return lambda is_new, place, is_data: is_new
    nowhere, lanes = np.dtype(str(place.element)).type(-1), place.lanes
    return lambda is_new, place, is_data: is_data & (is_new | (place == vec.splat(nowhere, lanes)))


def place_type(element: str, *, is_wide: bool):
    """The Numba integer for places counted from the first tap of a window, next to elements of a type."""
    return types.int64 if is_wide else getattr(types, f"int{_place_bits(np.dtype(element).itemsize)}")


@jit_inline
def is_wide(count: int, size: int) -> bool:
    """True if `count` places need more bits than usual, next to elements of `size` bytes."""
    return count >= 1 << (_place_bits(size) - 1)


@jit_inline
def _place_bits(size: int) -> int:
    return 16 if size == 2 else 32


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
        return vec.mark_nan(widen_element(value, compare_type), widen_element(limit, compare_type))

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
