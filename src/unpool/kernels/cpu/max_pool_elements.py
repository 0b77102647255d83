"""Elements as the separable and the rolling pool compare them; all exist in compiled code only.

Floats are compared as they are, 16-bit floats as the upper half of a float32, integers as int32.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.vector import convert, mark_nan, reinterpret, select, splat, unordered

INLINED: Any = {"forceinline": True, "error_model": "numpy"}
"""Numba's own inlining would give the same instructions, and take twice the time."""


def enter(value, compared):
    """Elements as they are compared."""


@overload(enter, jit_options=INLINED)
def _enter(value, compared):
    if value.element == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, compared: convert(convert(value, types.int32) << splat(sixteen, lanes), types.float32)
    if isinstance(value.element, types.Float):
        return lambda value, compared: value
    return lambda value, compared: convert(value, types.int32)


def enter_marked(value, compared, infinity):
    """As `enter`, but NaN among 16-bit floats is NaN of float32 too, and `leave_marked` finds its bits again."""


@overload(enter_marked, jit_options=INLINED)
def _enter_marked(value, compared, infinity):
    if value.element != types.int16:
        return lambda value, compared, infinity: enter(value, compared)
    lanes = value.lanes

    def mark(value, compared, infinity):
        return mark_nan(enter(value, compared), enter(splat(types.int16(infinity), lanes), compared))

    return mark


def leave(value, element):
    """Elements as they are stored."""


@overload(leave, jit_options=INLINED)
def _leave(value, element):
    kind = element.dtype
    if kind == types.int16:
        sixteen, lanes = np.int32(16), value.lanes
        return lambda value, element: convert(convert(value, types.int32) >> splat(sixteen, lanes), kind)
    if isinstance(kind, types.Float):
        return lambda value, element: value
    return lambda value, element: convert(value, kind)


def leave_marked(value, element):
    """Elements as they are stored, where 16-bit floats that are NaN were marked by `mark_nan`."""


@overload(leave_marked, jit_options=INLINED)
def _leave_marked(value, element):
    kind, lanes = element.dtype, value.lanes
    if kind != types.int16:
        return lambda value, element: leave(value, element)

    def restore(value, element):
        bits = reinterpret(value, types.int32)
        return convert(select(unordered(value, value), bits, bits >> splat(np.int32(16), lanes)), kind)

    return restore


def has_nan(x, y, infinity):
    """Whether two registers of elements as stored hold a NaN, as a mask."""


@overload(has_nan, jit_options=INLINED)
def _has_nan(x, y, infinity):
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
