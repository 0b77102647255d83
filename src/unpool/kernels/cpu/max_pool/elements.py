"""Elements as the separable and the rolling pool compare them.

Floats are compared as they are, 16-bit floats as the upper half of a float32, integers as int32.
"""

import numpy as np
from numba import types

from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.vector import convert, mark_nan, reinterpret, select, splat, unordered
from unpool.kernels.cpu.vector.by_type import by_type

COMPARED = {"float32": "float32", "float64": "float64", "int16": "float32", "int8": "int32", "uint8": "int32"}
"""By the kernels' name of an element type, what elements are compared as; int16 holds the bits of 16-bit floats."""


def compared_size(element: str) -> int:
    """Bytes of an element while it is compared."""
    return np.dtype(COMPARED[element]).itemsize


def compared_lanes(element: str) -> int:
    """Elements in one register while they are compared."""
    return vector_bytes() // compared_size(element)


@by_type(inline=True)
def enter(value, compared):
    """Elements as they are compared."""
    if value.element == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, compared: convert(convert(value, types.int32) << splat(sixteen, lanes), types.float32)
    if isinstance(value.element, types.Float):
        return lambda value, compared: value
    return lambda value, compared: convert(value, types.int32)


@by_type(inline=True)
def enter_marked(value, compared, infinity):
    """As `enter`, but NaN among 16-bit floats is NaN of float32 too, and `leave_marked` finds its bits again."""
    if value.element != types.int16:
        return lambda value, compared, infinity: enter(value, compared)
    lanes = value.lanes

    def mark(value, compared, infinity):
        return mark_nan(enter(value, compared), enter(splat(types.int16(infinity), lanes), compared))

    return mark


@by_type(inline=True)
def leave(value, element):
    """Elements as they are stored."""
    kind = element.dtype
    if kind == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, element: convert(convert(value, types.int32) >> splat(sixteen, lanes), kind)
    if isinstance(kind, types.Float):
        return lambda value, element: value
    return lambda value, element: convert(value, kind)


@by_type(inline=True)
def leave_marked(value, element):
    """Elements as they are stored, where 16-bit floats that are NaN were marked by `mark_nan`."""
    kind, lanes = element.dtype, value.lanes
    if kind != types.int16:
        return lambda value, element: leave(value, element)

    def restore(value, element):
        bits = reinterpret(value, types.int32)
        return convert(select(unordered(value, value), bits, bits >> splat(np.int32(16), lanes)), kind)

    return restore


@by_type(inline=True)
def has_nan(x, y, infinity):
    """Whether two registers of elements as stored hold a NaN, as a mask."""
    lanes, kind = x.lanes, x.element
    if isinstance(kind, types.Float):
        return lambda x, y, infinity: unordered(x, y)
    if kind == types.int16:
        magnitude = np.int16(0x7FFF)

        def is_beyond(x, y, infinity):
            limit, bits = splat(types.int16(infinity), lanes), splat(magnitude, lanes)
            return ((x & bits) > limit) | ((y & bits) > limit)

        return is_beyond
    return lambda x, y, infinity: x != x
