"""Integers in the order of numbers: what elements are compared by when they are only bits.

Sign-magnitude becomes two's complement, so that both zeros become 0, and every NaN becomes the largest key: one strict
integer comparison then propagates NaN and keeps the first of equals. No key is the smallest integer, which is left for
"nothing yet".
"""

import numpy as np
from numba import types

from unpool.kernels.cpu.vector import IGNORED, LAST, Vector, is_larger, select, splat, unordered
from unpool.kernels.cpu.vector.by_type import by_type

_NAN_KEY = np.int16(np.iinfo(np.int16).max)


@by_type()
def order(value, infinity):
    """The keys that elements in registers are compared by: integers for the bits of 16-bit floats, else themselves."""
    if isinstance(value, Vector) and value.element == types.int16:
        return lambda value, infinity: key_of_bits(value, infinity)
    return lambda value, infinity: value


@by_type()
def beats(x, y, nan):
    """Lanes in which key x takes the place of key y in a running maximum; the first of equals stays.

    Args:
        x: new keys.
        y: the largest so far.
        nan: which of several NaN stays, FIRST or LAST; the literal IGNORED where they need no order.
    """
    if x.element == types.int16 and getattr(nan, "literal_value", None) != IGNORED:
        return lambda x, y, nan: x > smaller(y, highest_kept(y, nan))
    return lambda x, y, nan: is_larger(x, y, nan)


@by_type()
def is_amiss(total, key, nan):
    """Lanes that may have seen NaN, where `>` alone does not order it.

    Args:
        total: sum of the elements they saw, which is NaN if one of them is.
        key: the largest key they saw; of 16-bit floats the first NaN has the largest.
        nan: FIRST or LAST, which of several is wanted.
    """
    if key.element == types.int16:
        return lambda total, key, nan: key > highest_kept(key, nan)
    return lambda total, key, nan: unordered(total, total)


@by_type()
def highest_kept(key, nan):
    """In every lane the largest key that one of the same size leaves in its place."""
    lanes = key.lanes
    return lambda key, nan: splat(np.int16(_NAN_KEY - (nan == LAST)), lanes)


@by_type()
def smaller(x, y):
    """The smaller one of two integers, lane by lane."""
    return lambda x, y: select(x > y, y, x)


@by_type()
def follow(wins, value, best, key):
    """The elements whose keys are `key`: `value` where it wins, else `best`."""
    if value.element == types.int16:
        return lambda wins, value, best, key: select(wins, value, best)
    return lambda wins, value, best, key: key  # they are their own keys, and need no second register


@by_type()
def key_of_bits(value, infinity):
    """Keys of a vector of float bits."""
    lanes, dtype = value.lanes, np.dtype(str(value.element)).type
    smallest, largest, zero = dtype(np.iinfo(dtype).min), dtype(np.iinfo(dtype).max), dtype(0)

    def key(value, infinity):
        magnitude = value & splat(largest, lanes)
        signed = select(value < splat(zero, lanes), splat(smallest, lanes) - value, value)
        return select(magnitude > infinity, splat(largest, lanes), signed)

    return key
