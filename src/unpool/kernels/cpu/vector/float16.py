"""16-bit floats as vectors of bits, int16 for float16 and uint16 for bfloat16: widened, and rounded to nearest even."""

import numpy as np
from numba import types

from unpool.kernels.cpu.vector import convert, reinterpret, select, splat
from unpool.kernels.cpu.vector.specialize import overload_by_type

BITS = {"float16": np.dtype(np.int16), "bfloat16": np.dtype(np.uint16)}
"""The integers that kernels see, by storage type."""

_SUBNORMAL = np.int32(0x38800000)  # bits of 2**-14, the least normal float16
_LIMIT = np.int32(0x47800000)  # bits of 2**16: from here on everything is infinity
_INFINITY = np.int32(0x7F800000)
_HALF = np.float32(0.5)  # its unit in the last place is the least float16


@overload_by_type()
def widen(value):
    """The numbers of a vector of 16-bit floats as float32; any other floats as they are."""
    if value.element == types.uint16:
        lanes = value.lanes
        return lambda value: reinterpret(convert(value, types.int32) * splat(np.int32(1 << 16), lanes), types.float32)
    if value.element == types.int16:
        return _from_float16(value.lanes)
    return lambda value: value


def _from_float16(lanes):
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
    if like.element == types.uint16:
        return _to_bfloat16(value.lanes)
    if like.element == types.int16:
        return _to_float16(value.lanes)
    return lambda value, like: value


def _to_bfloat16(lanes):
    def narrowed(value, like):
        bits = reinterpret(value, types.int32)
        odd = (bits >> splat(np.int32(16), lanes)) & splat(np.int32(1), lanes)
        rounded = (bits + splat(np.int32(0x7FFF), lanes) + odd) >> splat(np.int32(16), lanes)
        quiet = (bits >> splat(np.int32(16), lanes)) | splat(np.int32(0x40), lanes)
        return convert(select(value == value, rounded, quiet), types.uint16)

    return narrowed


def _to_float16(lanes):
    def narrowed(value, like):
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

    return narrowed
