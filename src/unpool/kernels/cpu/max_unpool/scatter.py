"""Max unpooling of any windows: indices are checked, then elements are scattered as bits.

    y[indices[i]] = x[i], everything else 0

The check comes before the first write to a caller's memory. The caller may change indices during the call, so each is
read once for the write and checked again: a wrong one is refused, and no memory outside y is touched.

With fewer planes than threads, planes of y are cut into parts: each reads all indices of its plane, in order, and takes
those that lie in it. So the last of equal indices wins, whichever thread computes a part.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.jobs import JobSplit, choose_split
from unpool.kernels.cpu.machine.plan import DONE, NOT_MET, OUT_OF_RANGE, Condition, Operand, PlanStep
from unpool.kernels.cpu.machine.threads import Launch, thread_count

AXIS = np.dtype([(name, np.int64) for name in ("large", "small", "window", "stride", "begin")])  # an axis in kernels
_CLEARED_BYTES = 1 << 20  # that a job clears
_TOGETHER = 1 << 15  # indices that a job checks: some 20 microseconds


def check_range(indices, limit: int, planes: int, threads: int | None) -> tuple[int, bool]:
    """The flat position of the first index outside [0, limit), or -1; True if every index stays in its own plane.

    Indices are C-contiguous int64 in N * C planes; `limit` is the size of the tensor that they count in.
    """
    if planes == 0 or indices.size == 0:
        return -1, True
    parts = _range_check(indices.size, limit, planes).run((), threads, readonly(indices))
    wrong = [first for first in parts if first >= 0]
    return (wrong[0] if wrong else -1), all(first == -1 for first in parts)


def is_consistent(indices, axes: Sequence[Axis], planes: int, threads: int | None) -> bool:
    """True if every index, decoded in the large sizes of the axes, lies in its own plane and its own window."""
    if planes == 0 or indices.size == 0:
        return True
    return all(_window_check(indices.size, tuple(axes), planes).run((), threads, readonly(indices)))


def steps(
    operands: tuple[Operand, Operand, Operand], axes: Sequence[Axis], inferred: Sequence[Axis] | None, channels: int,
    planes: int,
) -> tuple[PlanStep, ...]:  # fmt: skip
    """The steps of a plan that check indices, and write y if they are in range, from (x, indices, y).

    `inferred` are the axes that indices may count in instead, None if they count in y.
    """
    _, indices, y = operands
    limit, positions = y.size, indices.flat()
    guess: tuple[PlanStep, ...] = ()
    if inferred is not None:
        checks = [_window_check(indices.size, tuple(each), planes) for each in (axes, inferred)]
        guess = (
            *checks[0].steps((), None, positions, outcome=Condition.ALL_TRUE, then=(2, 1)),
            *checks[1].steps((), None, positions, outcome=Condition.ALL_TRUE, then=(NOT_MET, 1)),
        )
    local = _scatter_steps(operands, channels, planes, is_local=True)
    check = _range_check(indices.size, limit, planes).steps(
        (), None, positions, outcome=Condition.IN_RANGE, then=(1, 1 + len(local), OUT_OF_RANGE)
    )
    ready = tuple(step._replace(indices=indices, limit=limit) for step in check)
    return (*guess, *ready, *local, *_scatter_steps(operands, channels, planes, is_local=False))


def _scatter_steps(
    operands: tuple[Operand, Operand, Operand], channels: int, planes: int, *, is_local: bool
) -> tuple[PlanStep, ...]:
    """The steps of `scatter`."""
    x, indices, y = operands
    clears, work = is_local and channels == 1, x.size + y.size
    count = thread_count(work, None if is_local else 1)
    parts = _parts(planes, x.size // planes, y.size // planes, count) if clears else 0
    first = () if clears else _clear(y.size * y.dtype.itemsize).steps((y,), None)
    launch = _launch(x.dtype, planes, parts, work, channels)
    last = launch.steps(
        (), count, x.flat(), indices.flat(), y.flat(is_writable=True), outcome=Condition.ALL_TRUE, then=(DONE, NOT_MET)
    )
    return (*first, *last)


@lru_cache(maxsize=64)
def _clear(size: int) -> Launch:
    return Launch(clear, -(-size // _CLEARED_BYTES), size // 8, size)


@jit()
def clear(y, size, first, stop):
    """Write zeros to some parts of an array of `size` bytes."""
    begin = first * _CLEARED_BYTES
    vec.clear(vec.address_of(y) + begin, min(stop * _CLEARED_BYTES, size) - begin)


@lru_cache(maxsize=64)
def _range_check(size: int, limit: int, planes: int) -> Launch:
    small = size // planes
    parts = -(-small // _TOGETHER)
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


_READ, _WRITE, _CLEAR = 0.5, 1.0, 0.2  # nanoseconds, about: reading an index, writing an element, and clearing one


def scatter(x, indices, y, channels: int, planes: int, is_local: bool, threads: int | None) -> bool:
    """Zeros, with element i of x at indices[i] of y, the last of equal indices; False if an index was out of range.

    x and y are C-contiguous integer views, (N, C, d1..dk), or (N, d1..dk, C) where `channels` is C rather than 1.
    Indices are checked int64 in (N, C, d1..dk) order and count in (N, C, D1..Dk); with `is_local` each stays in its
    plane, so planes are independent. If an index was changed since the check, y holds anything.
    """
    clears, work = is_local and channels == 1, x.size + y.size
    if y.size and (x.size == 0 or not clears):
        _clear(y.nbytes).run((y,), threads)
    if x.size == 0:
        return True
    count = thread_count(work, threads if is_local else 1)
    parts = _parts(planes, x.size // planes, y.size // planes, count) if clears else 0
    launch = _launch(x.dtype, planes, parts, work, channels)
    return all(launch.run((), count, readonly(x), readonly(indices), y.reshape(-1)))


@lru_cache(maxsize=256)
def _parts(planes: int, small: int, large: int, threads: int) -> int:
    """The number of parts of each plane, which has `small` elements of x and `large` of y."""

    def cut(parts: int) -> JobSplit:
        each = small * _READ + (small * _WRITE + large * _CLEAR) / parts
        return JobSplit(planes * parts, each, planes * parts * each)

    return choose_split(map(cut, range(1, min(threads, large) + 1)), threads).jobs // planes


@lru_cache(maxsize=64)
def _launch(_: np.dtype[Any], planes: int, parts: int, work: int, channels: int) -> Launch:
    """The launch for arrays of one type; 0 parts where planes are not independent, or not contiguous."""
    return Launch(scatter_planes, planes * max(1, parts), work, planes, parts, channels)


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
