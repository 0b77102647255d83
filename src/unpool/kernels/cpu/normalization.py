"""Instance and group normalization with an activation, one group of channels after the other.

    y = activation((x - mean) / sqrt(variance + epsilon) * scale + shift)

Mean and biased variance are those of a group: of all positions of some channels of one image. A group is read in
blocks that stay in the nearest cache: a block is summed in float32, in as many sums as two vectors have lanes, then its
squared differences from its own mean are. Blocks are combined in float64, by the formula of Chan, Golub and LeVeque
(1979), so that nothing cancels where the mean is large. A group that fits in the second cache is read from memory once.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import Epilogue
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.vector.registration import overload_by_type

BLOCK = 4096  # elements, 16 KiB: half of the nearest cache or less


class NormalizationParams(NamedTuple):
    """What a kernel reads besides arrays."""

    groups: int  # of channels, in one image
    channels: int  # of one group
    size: int  # elements of a channel of one image
    epsilon: float
    activation: vec.ActivationParams


@lru_cache(maxsize=256)
def _launch(images: int, groups: int, channels: int, size: int, epsilon: float, epilogue: Epilogue) -> Launch:
    activation = vec.ActivationParams(epilogue.is_active, *epilogue.bounds)
    params = NormalizationParams(groups, channels, size, epsilon, activation)
    args = record(params, epsilon=np.float64, activation=vec.activation_dtype(np.dtype(np.float32)))
    return Launch(_make_kernel(vector_bytes() // 4), images * groups, images * groups * channels * size, args)


def normalize(x, y, scale, shift, groups: int, epsilon: float, epilogue: Epilogue, threads: int | None) -> None:
    """Write y, which may be x: both (images, channels, size), C-contiguous; scale and shift (channels,); all float32.

    The activation has to be simple.
    """
    images, channels, size = x.shape
    launch = _launch(images, groups, channels // groups, size, epsilon, epilogue)
    launch.run((x, y), threads, readonly(scale), readonly(shift))


@specialize
def _make_kernel(lanes: int):
    static = vec.StaticArgs(lanes=lanes)

    @jit()
    def normalize_groups(x, y, scale, shift, args, first, stop):
        """Write some groups.

        for every group
            for every block of it, in order: its sum, then its squared differences
            for every channel of it: for every vector
        """
        params = args[0]
        channels, size = params.channels, params.size
        activation = vec.splat_activation(params.activation, lanes)
        sums = np.empty(lanes, np.float32)
        for job in range(first, stop):
            begin = 4 * job * channels * size
            mean, squares, count = 0.0, 0.0, 0
            while count < channels * size:
                block, length = vec.address_of(x) + begin + 4 * count, min(channels * size - count, BLOCK)
                block_mean = sum_block(block, length, sums, np.float32(0), False, static) / length
                center, difference, total = np.float32(block_mean), block_mean - mean, count + length
                squares += sum_block(block, length, sums, center, True, static) - length * (block_mean - center) ** 2
                squares += difference * difference * count * length / total
                mean += difference * length / total
                count = total
            center = np.float32(mean)
            for channel in range(channels):
                number, place = job % params.groups * channels + channel, begin + 4 * channel * size
                factor = scale[number] / np.sqrt(squares / count + params.epsilon)
                term = np.float32(shift[number] + (center - mean) * factor)
                source, target = vec.address_of(x) + place, vec.address_of(y) + place
                scale_channel(source, target, size, center, np.float32(factor), term, activation, static)

    return normalize_groups


@overload_by_type()
def sum_block(address, count, sums, center, is_squared, static):
    """The sum of differences from a center, or of their squares, in float64."""
    lanes = static.lanes

    def sum_up(address, count, sums, center, is_squared, static):
        even, centers = vec.splat(np.float32(0), lanes), vec.splat(center, lanes)
        odd, whole = even, count - count % (2 * lanes)
        for place in range(address, address + 4 * whole, 8 * lanes):
            left = vec.load(place, types.float32, lanes) - centers
            right = vec.load(place + 4 * lanes, types.float32, lanes) - centers
            even = even + (left * left if is_squared else left)
            odd = odd + (right * right if is_squared else right)
        for element in range(whole, count, lanes):
            some = vec.first_lanes(count - element, centers)
            left = vec.load_masked(address + 4 * element, some, centers) - centers
            even = even + (left * left if is_squared else left)
        vec.store(vec.address_of(sums), even + odd)
        total = 0.0
        for lane in range(lanes):
            total += sums[lane]
        return total

    return sum_up


@overload_by_type()
def scale_channel(source, target, size, center, factor, term, activation, static):
    """Writes the channel of one image."""
    lanes = static.lanes

    def scale(source, target, size, center, factor, term, activation, static):
        centers, factors, terms = vec.splat(center, lanes), vec.splat(factor, lanes), vec.splat(term, lanes)
        whole = size - size % lanes
        for place in range(0, 4 * whole, 4 * lanes):
            value = (vec.load(source + place, types.float32, lanes) - centers) * factors + terms
            vec.store(target + place, vec.activate_sums(value, activation))
        if whole < size:
            some = vec.first_lanes(size - whole, centers)
            value = (vec.load_masked(source + 4 * whole, some, centers) - centers) * factors + terms
            vec.store_masked(target + 4 * whole, vec.activate_sums(value, activation), some)

    return scale
