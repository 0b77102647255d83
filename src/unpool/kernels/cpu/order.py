"""Integers in the order of numbers: what elements are compared by when they are only bits.

Sign-magnitude becomes two's complement, so that both zeros become 0, and every NaN becomes the largest key: one strict
integer comparison then propagates NaN and keeps the first of equals. No key is the smallest integer, which is left for
"nothing yet".
"""

import numpy as np
from numba import types
from numba.extending import overload

from unpool.kernels.cpu.vector import FIRST, LAST, Vector, is_larger, select, splat, unordered

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
        return lambda x, y, is_last: is_larger(x, y, LAST) if is_last else is_larger(x, y, FIRST)
    return lambda x, y, is_last: (x > y) | is_nan_key(x) if is_last else x > y


def is_amiss(total, key, is_last):
    """Lanes that may have seen NaN, where `>` alone does not order it; exists in compiled code only.

    Args:
        total: sum of what they saw.
        key: the largest of it.
        is_last: whether the last NaN is wanted.
    """


@overload(is_amiss)
def _is_amiss(total, key, is_last):
    """A sum with NaN is NaN; among keys the first NaN is the largest."""
    if isinstance(key.element, types.Float):
        return lambda total, key, is_last: unordered(total, total)
    return lambda total, key, is_last: is_nan_key(key) & (key == key if is_last else key != key)


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
