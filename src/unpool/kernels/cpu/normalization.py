"""Instance normalization, one channel of an image after the other.

    y = (x - mean) / sqrt(variance + epsilon) * scale + shift

Mean and biased variance are those of all positions of a channel of one image, which is read in blocks that stay in the
nearest cache. The mean of the first eighth of a block is subtracted from all of it, and the differences and their
squares are summed in float32, in as many sums as two vectors have lanes. The two means differ by at most the square
root of 7 variances of the block, so little cancels, however large they are. Blocks are combined in float64, by the
formula of Chan, Golub and LeVeque (1979). A channel that fits in the second cache is read from memory once.
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
from unpool.kernels.cpu.machine.plan import Operand, PlanStep
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.vector.registration import overload_by_type

BLOCK = 4096  # elements, 16 KiB: half of the nearest cache or less


class NormalizationParams(NamedTuple):
    """What a kernel reads besides arrays."""

    channels: int  # of an image
    size: int  # elements of a channel of one image
    epsilon: float


@lru_cache(maxsize=256)
def _launch(shape: tuple[int, int, int], epsilon: float) -> Launch:
    images, channels, size = shape
    args = record(NormalizationParams(channels, size, epsilon), epsilon=np.float64)
    return Launch(_make_kernel(vector_bytes() // 4), images * channels, images * channels * size, args)


def normalize(x, y, scale, shift, epsilon: float, *, threads: int | None) -> None:
    """Write y, which may be x; both are (images, channels, size) and C-contiguous, all are float32.

    Scale and shift are (channels,).
    """
    _launch(x.shape, epsilon).run((x, y), threads, readonly(scale), readonly(shift))


def steps(x: Operand, y: Operand, scale: Operand, shift: Operand, epsilon: float) -> tuple[PlanStep, ...]:
    """The step of a plan that is a call of `normalize`."""
    images, channels, *sizes = x.shape
    return _launch((images, channels, math.prod(sizes)), epsilon).steps((x, y), None, scale.flat(), shift.flat())


@specialize
def _make_kernel(lanes: int):
    static = vec.StaticArgs(lanes=lanes)

    @jit()
    def normalize_channels(x, y, scale, shift, args, first, stop):
        """Write some channels.

        for every channel of an image
            for every block of it, in order: the mean of an eighth, then the differences from it
            for every vector of it
        """
        params = args[0]
        size = params.size
        sums = np.empty(2 * lanes, np.float32)
        for job in range(first, stop):
            begin = 4 * job * size
            mean, squares, count = 0.0, 0.0, 0
            while count < size:
                block, length = vec.address_of(x) + begin + 4 * count, min(size - count, BLOCK)
                few = min(length, BLOCK // 8)
                center = np.float32(sum_block(block, few, sums, np.float32(0), static)[0] / few)
                rest, block_squares = sum_block(block, length, sums, center, static)
                difference, total = center + rest / length - mean, count + length
                squares += block_squares - rest * rest / length + difference * difference * count * length / total
                mean += difference * length / total
                count = total
            center, channel = np.float32(mean), job % params.channels
            factor = scale[channel] / np.sqrt(squares / count + params.epsilon)
            term = np.float32(shift[channel] + (center - mean) * factor)
            places = (vec.address_of(x) + begin, vec.address_of(y) + begin)
            scale_channel(places, size, center, np.float32(factor), term, static)

    return normalize_channels


@overload_by_type()
def sum_block(address, count, sums, center, static):
    """The sum of the differences from a center and of their squares, in float64."""
    lanes = static.lanes

    def sum_up(address, count, sums, center, static):
        zero, centers = vec.splat(np.float32(0), lanes), vec.splat(center, lanes)
        even, odd, even_squares, odd_squares = zero, zero, zero, zero
        whole = count - count % (2 * lanes)
        for place in range(address, address + 4 * whole, 8 * lanes):
            left = vec.load(place, types.float32, lanes) - centers
            right = vec.load(place + 4 * lanes, types.float32, lanes) - centers
            even, even_squares = even + left, even_squares + left * left
            odd, odd_squares = odd + right, odd_squares + right * right
        for element in range(whole, count, lanes):
            some = vec.first_lanes(count - element, centers)
            left = vec.load_masked(address + 4 * element, some, centers) - centers
            even, even_squares = even + left, even_squares + left * left
        vec.store(vec.address_of(sums), even + odd)
        vec.store(vec.address_of(sums) + 4 * lanes, even_squares + odd_squares)
        total, squares = 0.0, 0.0
        for lane in range(lanes):
            total += sums[lane]
            squares += sums[lanes + lane]
        return total, squares

    return sum_up


@overload_by_type()
def scale_channel(addresses, size, center, factor, term, static):
    """Writes the channel of one image."""
    lanes = static.lanes

    def scale(addresses, size, center, factor, term, static):
        source, target = addresses
        centers, factors, terms = vec.splat(center, lanes), vec.splat(factor, lanes), vec.splat(term, lanes)
        whole = size - size % lanes
        for place in range(0, 4 * whole, 4 * lanes):
            value = (vec.load(source + place, types.float32, lanes) - centers) * factors + terms
            vec.store(target + place, value)
        if whole < size:
            some = vec.first_lanes(size - whole, centers)
            value = (vec.load_masked(source + 4 * whole, some, centers) - centers) * factors + terms
            vec.store_masked(target + 4 * whole, value, some)

    return scale
