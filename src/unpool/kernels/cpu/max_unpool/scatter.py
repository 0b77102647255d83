"""Max unpooling of any windows: indices are checked, then elements are scattered as bits.

    y[indices[i]] = x[i], everything else 0

The check comes before the first write to a caller's memory. The caller may change indices during the call, so each is
read once for the write and checked again: a wrong one is refused, and no memory outside y is touched.

With fewer planes than threads, planes of y are cut into parts: each reads all indices of its plane, in order, and takes
those that lie in it. So the last of equal indices wins, whichever thread computes a part.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.jobs import choose_time, is_even
from unpool.kernels.cpu.machine.plan import DONE, NOT_MET, OUT_OF_RANGE, Condition, KernelStep, Operand
from unpool.kernels.cpu.machine.threads import Launch, Launches
from unpool.kernels.cpu.tuning import UNPOOL
from unpool.kernels.cpu.vector.registration import jit_inline

AXIS = np.dtype([(name, np.int64) for name in ("large", "small", "window", "stride", "begin")])  # an axis in kernels


def steps(
    operands: tuple[Operand, Operand, Operand], channels: int, planes: int, given: tuple[Operand, int],
    first: tuple[KernelStep, ...] = (),
) -> tuple[KernelStep, ...]:  # fmt: skip
    """The steps that check indices, and write y if they are in range, from (x, indices, y).

    x and y are integer operands, (N, C, d1..dk), or (N, d1..dk, C) where `channels` is C rather than 1. Indices are
    int64 in (N, C, d1..dk) order, in N * C planes, and count in (N, C, D1..Dk); of equal ones the last wins. Errors
    tell the caller's indices and their limit, which are `given`. Where every index stays in its own plane, `first` is
    tried before elements are scattered. If an index was changed since the check, the end is NOT_MET.
    """
    x, indices, y = operands
    if x.size == 0:
        return (_clear_step(y),) if y.size else ()
    check = KernelStep(
        _range_check(x.size, y.size, planes), (), (indices.flat(),), Condition.IN_RANGE, (DONE, DONE, OUT_OF_RANGE),
        *given,
    )  # fmt: skip
    if y.size == 0:
        return (check,)
    local = (*first, *_scatter_steps(operands, channels, planes, is_local=True))
    others = _scatter_steps(operands, channels, planes, is_local=False)
    return (check._replace(then=(1, 1 + len(local), OUT_OF_RANGE)), *local, *others)


def window_check(indices: Operand, axes: Sequence[Axis], planes: int, then: tuple[int, int]) -> KernelStep:
    """Whether every index, decoded in the large sizes of the axes, lies in its own plane and its own window."""
    launch = _window_check(indices.size, tuple(axes), planes)
    return KernelStep(launch, (), (indices.flat(),), Condition.ALL_TRUE, then)


def _scatter_steps(
    operands: tuple[Operand, Operand, Operand], channels: int, planes: int, *, is_local: bool
) -> tuple[KernelStep, ...]:
    """The steps for checked indices; with `is_local` each stays in its plane, so planes are independent."""
    x, indices, y = operands
    clears, work = is_local and channels == 1, x.size + y.size

    def launch(threads: int) -> Launch:
        parts = _parts(planes, x.size // planes, y.size // planes, threads) if clears else 0
        return Launch(scatter_planes, planes * max(1, parts), work, planes, parts, channels)

    views = x.flat(), indices.flat(), y.flat(is_writable=True)
    last = KernelStep(
        Launches(work, launch), (), views, Condition.ALL_TRUE, (DONE, NOT_MET), threads=None if is_local else 1
    )
    return (last,) if clears else (_clear_step(y), last)


def _clear_step(y: Operand) -> KernelStep:
    size = y.size * y.dtype.itemsize
    return KernelStep(Launch(clear, -(-size // UNPOOL.cleared), size // 8, size), (y,))


@jit()
def clear(y, size, first, stop):
    """Write zeros to some parts of an array of `size` bytes."""
    begin = first * UNPOOL.cleared
    vec.clear(vec.address_of(y) + begin, min(stop * UNPOOL.cleared, size) - begin)


@lru_cache(maxsize=64)
def _range_check(size: int, limit: int, planes: int) -> Launch:
    small = size // planes
    parts = -(-small // UNPOOL.checked)
    return Launch(_check_planes, planes * parts, size, small, parts, limit // planes, limit)


@lru_cache(maxsize=64)
def _window_check(size: int, axes: tuple[Axis, ...], planes: int) -> Launch:
    read = [(axis.large, axis.small, axis.window.size, axis.window.stride, axis.begin) for axis in axes]
    return Launch(_in_windows, planes, size * len(axes), size // planes, np.array(read, AXIS))


@jit()
def _check_planes(indices, small, parts, large, limit, first, stop):
    """For every plane, for every part of it: the smallest and largest index, and all indices again if one is wrong.

    The result is where the first wrong index is; -2 if none is, but one leaves its plane; -1 otherwise.
    """
    is_local = True
    for job in range(first, stop):
        plane, part = job // parts, job % parts
        begin, end = plane * small + small * part // parts, plane * small + small * (part + 1) // parts
        base = plane * large
        lowest, highest = base, base
        line = indices[begin:end]
        for position in range(line.size):
            lowest = min(lowest, line[position])
            highest = max(highest, line[position])
        is_local &= lowest == base and highest < base + large
        if lowest < 0 or highest >= limit:
            for position in range(begin, end):
                if not 0 <= indices[position] < limit:
                    return position
    return -1 if is_local else -2


@jit()
def _in_windows(indices, small, axes, first, stop):
    """For every position, every axis from last to first: decode it and its index, unsigned, which divides faster."""
    for position in range(np.uint64(first * small), np.uint64(stop * small)):
        index, place = np.uint64(indices[position]), position
        if indices[position] < 0:
            return False
        for number in range(axes.size - 1, -1, -1):
            axis = axes[number]
            large, little = np.uint64(axis.large), np.uint64(axis.small)
            if large == 0:
                return False
            start = np.int64(place % little) * axis.stride - axis.begin
            if not start <= np.int64(index % large) < start + axis.window:
                return False
            index //= large
            place //= little
        if index != place:
            return False
    return True


@jit_inline
def plane_parts(planes: int, small: int, large: int, threads: int) -> int:
    """The number of parts of each plane, which has `small` elements of x and `large` of y."""
    most = min(threads, large)
    times, are_even = np.empty(most, np.float64), np.empty(most, np.bool_)
    for number in range(most):
        parts = number + 1
        each = small * UNPOOL.read + (small * UNPOOL.write + large * UNPOOL.clear) / parts
        total = planes * parts * each
        times[number] = min(-(-planes * parts // threads) * each, total)
        are_even[number] = is_even(times[number], total, threads)
    return choose_time(times, are_even) + 1


_parts = lru_cache(maxsize=256)(plane_parts)


@jit()
def scatter_planes(x, indices, y, planes, parts, channels, first, stop):
    """For every plane, for every part of it, for every position of its indices; whether all were in range.

    Where there are parts, a plane takes no index of another one, and a part of it is cleared just before it is
    written, while it is in the cache. Channels-last arrays swap plane and position on both sides.
    """
    small, large, size = x.size // planes, y.size // planes, y.itemsize
    low, extent = np.uint64(0), np.uint64(y.size)
    begin, reach = low, extent
    for job in range(first, stop):
        plane, part = job // max(1, parts), job % max(1, parts)
        if parts > 0:
            low, extent = np.uint64(plane * large), np.uint64(large)
            start, end = plane * large + large * part // parts, plane * large + large * (part + 1) // parts
            begin, reach = np.uint64(start), np.uint64(end - start)
            vec.clear(vec.address_of(y) + start * size, (end - start) * size)
        for position in range(plane * small, (plane + 1) * small):
            index, place = vec.load_once(vec.address_of(indices) + position * 8), position
            if np.uint64(index) - begin < reach:
                if channels != 1:
                    index = _channels_last(index, large, channels)
                    place = _channels_last(place, small, channels)
                y[np.uint64(index)] = x[np.uint64(place)]
            elif np.uint64(index) - low >= extent:
                return False
    return True


@jit()
def _channels_last(index, plane, channels):
    """From the flat index of (n, c, q) to that of (n, q, c)."""
    batch_and_channel, inside = index // plane, index % plane
    batch, channel = batch_and_channel // channels, batch_and_channel % channels
    return (batch * plane + inside) * channels + channel
