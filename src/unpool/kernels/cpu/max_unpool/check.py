"""Indices of max unpooling, checked as a whole before anything is written to a caller's memory."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.rows import readonly

AXIS = np.dtype([(name, np.int64) for name in ("large", "small", "window", "stride", "begin")])
"""What a kernel reads of an axis; the names are those of `Axis` and `Window`."""

_TOGETHER = 1 << 15  # indices that a job checks: some 20 microseconds


def check_range(indices, limit: int, planes: int, threads: int | None) -> tuple[int, bool]:
    """Test every index against [0, limit).

    Args:
        indices: C-contiguous int64 (N, C, d1..dk).
        limit: elements of the tensor that the indices count in.
        planes: N * C.
        threads: at most so many; None for all cores.

    Returns:
        The flat position of the first index out of range, or -1; whether every index stays in its own plane.
    """
    if planes == 0 or indices.size == 0:
        return -1, True
    parts = _range_check(indices.size, limit, planes).on((), threads, readonly(indices))
    wrong = [first for first in parts if first >= 0]
    return (wrong[0] if wrong else -1), all(first == -1 for first in parts)


def is_consistent(indices, axes: Sequence[Axis], planes: int, threads: int | None) -> bool:
    """Whether every index, decoded in the large sizes of the axes, lies in its own plane and its own window."""
    if planes == 0 or indices.size == 0:
        return True
    return all(_window_check(indices.size, tuple(axes), planes).on((), threads, readonly(indices)))


@lru_cache(maxsize=64)
def _range_check(size: int, limit: int, planes: int) -> Launch:
    small = size // planes
    parts = -(-small // _TOGETHER)
    return Launch(_check_planes, planes * parts, size, small, parts, limit // planes, limit)


@lru_cache(maxsize=64)
def _window_check(size: int, axes: tuple[Axis, ...], planes: int) -> Launch:
    read = [(axis.large, axis.small, axis.window.size, axis.window.stride, axis.begin) for axis in axes]
    return Launch(_in_windows, planes, size * len(axes), size // planes, np.array(read, AXIS))


@compiled()
def _check_planes(indices, small, parts, large, limit, first, stop):
    """For every plane, for every part of it: its smallest and largest index, and all again where one is wrong.

    Returns:
        Where the first wrong index is; -2 if none is, but one leaves its plane; -1 otherwise.
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


@compiled()
def _in_windows(indices, small, axes, first, stop):
    """For every position, and every axis from last to first: both the position and its index are decoded.

    They are unsigned, which are divided several times faster.
    """
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
