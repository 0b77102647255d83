"""Integers in the order of numbers: what elements are compared by when they are only bits.

Sign-magnitude becomes two's complement, so that both zeros become 0, and every NaN becomes the largest key: one strict
integer comparison then propagates NaN and keeps the first of equals. No key is the smallest integer, which is left for
"nothing yet".
"""

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.vector import Vector, select, splat, unordered

_NAN_KEY = np.int16(np.iinfo(np.int16).max)


def order(value, infinity):
    """What elements in registers are compared by; exists in compiled code only."""


@overload(order)
def _order(value, infinity):
    """The elements themselves, but keys for the bits of 16-bit floats."""
    if isinstance(value, Vector) and value.element == types.int16:
        return lambda value, infinity: key_of_bits(value, infinity)
    return lambda value, infinity: value


def beats(x, y, is_last):
    """Lanes of x that take the place of y in a running maximum; exists in compiled code only."""


@overload(beats)
def _beats(x, y, is_last):
    """The first of equals stays; of NaN too, unless `is_last`."""
    if isinstance(x.element, types.Float):
        return lambda x, y, is_last: ~(y >= x) & ((y == y) | ((x != x) & is_last))
    return lambda x, y, is_last: (x > y) | (is_nan_key(x) & is_last)


def may_be_nan(total, key):
    """Lanes that may have seen NaN, by the sum and the largest key of what they saw; exists in compiled code only."""


@overload(may_be_nan)
def _may_be_nan(total, key):
    """A sum with NaN is NaN."""
    if isinstance(key.element, types.Float):
        return lambda total, key: unordered(total, total)
    return lambda total, key: is_nan_key(key)


def is_nan_key(key):
    """Lanes whose key is that of NaN, none for integers that are no keys; exists in compiled code only."""


@overload(is_nan_key)
def _is_nan_key(key):
    lanes = key.lanes
    if key.element != types.int16:
        return lambda key: unordered(key, key)
    return lambda key: key == splat(_NAN_KEY, lanes)


def follow(wins, value, best, key):
    """The elements whose keys are `key`; exists in compiled code only."""


@overload(follow)
def _follow(wins, value, best, key):
    """Elements that are their own keys need no second register."""
    if value.element == types.int16:
        return lambda wins, value, best, key: select(wins, value, best)
    return lambda wins, value, best, key: key


def key_of_bits(value, infinity):
    """Keys of a vector of float bits; exists in compiled code only."""


@overload(key_of_bits)
def _key_of_bits(value, infinity):
    lanes, dtype = value.lanes, np.dtype(str(value.element)).type
    smallest, largest, zero = dtype(np.iinfo(dtype).min), dtype(np.iinfo(dtype).max), dtype(0)

    def key(value, infinity):
        magnitude = value & splat(largest, lanes)
        signed = select(value < splat(zero, lanes), splat(smallest, lanes) - value, value)
        return select(magnitude > infinity, splat(largest, lanes), signed)

    return key
