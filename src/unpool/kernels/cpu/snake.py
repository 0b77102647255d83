"""The activation Snake of an array or of a sum of two, one channel of an image after the other.

    total = x + residual
    y = total + magnitude * sin(frequency * total)^2

Source: Ziyin, Hartwig and Ueda (2020); decoders of sound use it. The argument of the sine is rounded to float32, as
onnxruntime does. The nearest multiple of pi is subtracted from it in float64, in two parts, which leaves no rounding
error that a float32 could show. The sine of the rest is a polynomial with an error of 6e-9 of the sine; the square
loses its sign.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.plan import DONE, NOT_MET, Condition, Operand, PlanStep
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.tuning import ELEMENT_COSTS
from unpool.kernels.cpu.vector.registration import overload_by_type

LARGEST = 1e6  # argument of the sine
PI_HIGH = math.floor(math.pi * 2**31) / 2**31  # 33 bits: its product with a multiple up to LARGEST is exact
PI_LOW = (math.pi - PI_HIGH) + 1.2246467991473532e-16  # the last is pi minus the float64 next to it
TO_NEAREST = 1.5 * 2.0**52  # added and subtracted, it rounds a float64 to an integer
COEFFICIENTS = (2.6056327e-06, -1.980954e-04, 8.3330655e-03, -1.6666660e-01)  # of x^9, x^7, x^5 and x^3 in the sine


class SnakeParams(NamedTuple):
    """What the kernel reads besides arrays."""

    channels: int  # of an image
    size: int  # elements of a channel of one image
    has_residual: bool
    has_total: bool  # whether the sum is written, too


@lru_cache(maxsize=256)
def _launch(shape: tuple[int, int, int], has_residual: bool, has_total: bool) -> Launch:
    images, channels, size = shape
    args = record(SnakeParams(channels, size, has_residual, has_total))
    return Launch(
        _make_kernel(vector_bytes() // 4), images * channels, ELEMENT_COSTS.snake * images * channels * size, args
    )


def snake(x, y, factors, *, residual=None, total=None, threads: int | None) -> bool:
    """Write y. False if an argument of the sine is above LARGEST, and True otherwise.

    x, the residual, the total and y are (images, channels, size), C-contiguous float32; y may be x or the residual. The
    factors are (2, channels): the frequency and the magnitude.
    """
    launch = _launch(x.shape, residual is not None, total is not None)
    arrays = x, x if residual is None else residual, y if total is None else total, y
    return not any(launch.run(arrays, threads, readonly(factors)))


def steps(
    x: Operand, y: Operand, factors: Operand, *, residual: Operand | None, total: Operand | None
) -> tuple[PlanStep, ...]:
    """A call of `snake` as the step of a plan; the plan ends if an argument of the sine is too large."""
    images, channels, *sizes = x.shape
    launch = _launch((images, channels, math.prod(sizes)), residual is not None, total is not None)
    arrays = x, x if residual is None else residual, y if total is None else total, y
    return launch.steps(arrays, None, factors.flat(), outcome=Condition.ALL_FALSE, then=(DONE, NOT_MET))


@specialize
def _make_kernel(lanes: int):
    static = vec.StaticArgs(lanes=lanes)

    @jit()
    def write_channels(x, residual, total, y, factors, args, first, stop):
        """Write some channels of images, a vector at a time; the number of channels with an argument too large."""
        params = args[0]
        count = 0
        for job in range(first, stop):
            place = 4 * job * params.size
            addresses = (
                vec.address_of(x) + place,
                vec.address_of(residual) + place if params.has_residual else 0,
                vec.address_of(total) + place if params.has_total else 0,
                vec.address_of(y) + place,
            )
            channel = job % params.channels
            pair = factors[channel], factors[params.channels + channel]
            count += write_channel(addresses, params.size, pair, static)
        return count

    return write_channels


@overload_by_type()
def write_channel(addresses, size, pair, static):
    """Write a channel; 1 if an argument of the sine is too large, otherwise 0. An address of 0 means no array."""
    lanes = static.lanes

    def write(addresses, size, pair, static):
        source, added, sums, target = addresses
        zero = vec.splat(np.float32(0), lanes)
        factors = vec.splat(pair[0], lanes), vec.splat(pair[1], lanes)
        largest = zero
        whole = size - size % lanes
        for place in range(0, 4 * whole, 4 * lanes):
            value = vec.load(source + place, types.float32, lanes)
            if added != 0:
                value = value + vec.load(added + place, types.float32, lanes)
            if sums != 0:
                vec.store(sums + place, value)
            value, square = add_squared_sine(value, factors, static)
            largest = vec.select(square > largest, square, largest)
            vec.store(target + place, value)
        if whole < size:
            some = vec.first_lanes(size - whole, zero)
            value = vec.load_masked(source + 4 * whole, some, zero)
            if added != 0:
                value = value + vec.load_masked(added + 4 * whole, some, zero)
            if sums != 0:
                vec.store_masked(sums + 4 * whole, value, some)
            value, square = add_squared_sine(value, factors, static)
            largest = vec.select(square > largest, square, largest)
            vec.store_masked(target + 4 * whole, value, some)
        return np.int64(vec.any_of(largest > vec.splat(np.float32(LARGEST * LARGEST), lanes)))

    return write


@overload_by_type(inline=True)
def add_squared_sine(value, factors, static):
    """Snake of a vector, and the squares of the arguments of its sine."""
    lanes = static.lanes

    def add(value, factors, static):
        frequency, magnitude = factors
        angle = value * frequency
        wide = vec.convert(angle, types.float64)
        magic = vec.splat(TO_NEAREST, lanes)
        turns = (wide * vec.splat(1 / math.pi, lanes) + magic) - magic
        rest = (wide - turns * vec.splat(PI_HIGH, lanes)) - turns * vec.splat(PI_LOW, lanes)
        x = vec.convert(rest, types.float32)
        t = x * x
        factor = vec.splat(np.float32(COEFFICIENTS[0]), lanes)
        factor = factor * t + vec.splat(np.float32(COEFFICIENTS[1]), lanes)
        factor = factor * t + vec.splat(np.float32(COEFFICIENTS[2]), lanes)
        factor = factor * t + vec.splat(np.float32(COEFFICIENTS[3]), lanes)
        sine = x + x * t * factor
        return value + magnitude * (sine * sine), angle * angle

    return add
