"""Max unpooling: indices are checked as a whole before anything is written, then elements are scattered as bits.

Whoever holds the indices may write to them meanwhile. So each is read once more to be written with, and what was read
is checked again: an index that has changed is refused, and no memory beside y is touched.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import split
from unpool.kernels.cpu.vector import address_of, clear, load_once


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
    small, large = indices.size // planes, limit // planes
    parts = split(_check_planes, planes, indices.size, threads, readonly(indices), small, large, limit)
    wrong = [first for first in parts if first >= 0]
    return (wrong[0] if wrong else -1), all(first == -1 for first in parts)


def is_consistent(indices, axes: Sequence[Axis], planes: int, threads: int | None) -> bool:
    """Whether every index, decoded in the large sizes of the axes, lies in its own plane and its own window."""
    if planes == 0 or indices.size == 0:
        return True
    sizes = np.array(
        [(axis.large, axis.small, axis.window.size, axis.window.stride, axis.begin) for axis in axes],
        np.int64,
    )
    small = indices.size // planes
    return all(split(_in_windows, planes, indices.size * len(axes), threads, readonly(indices), small, sizes))


def scatter(x, indices, y, channels: int, planes: int, is_local: bool, threads: int | None) -> bool:
    """Zeros, with element i of x at indices[i] of y; the last of equal indices wins.

    Args:
        x: C-contiguous integer view, (N, C, d1..dk), or (N, d1..dk, C) when `channels` is not 1.
        indices: C-contiguous int64 in (N, C, d1..dk) order, already checked, counting in (N, C, D1..Dk).
        y: C-contiguous integer view in the layout of x; every element is written.
        channels: C for channels-last arrays, otherwise 1.
        planes: N * C.
        is_local: whether every index stays in its own plane, so that planes are independent.
        threads: at most so many; None for all cores.

    Returns:
        Whether all indices were still in range. Where one was not, because it was changed since, y holds anything.
    """
    if x.size == 0 or not is_local or channels != 1:
        y[...] = 0
    if x.size == 0:
        return True
    small, large = x.size // planes, y.size // planes
    clears = is_local and channels == 1
    parts = split(
        _scatter(), planes, x.size + y.size, threads if is_local else 1,
        readonly(x), readonly(indices), y.reshape(-1), y.itemsize, small, large, channels, clears,
    )  # fmt: skip
    return all(parts)


@compiled()
def _check_planes(indices, small, large, limit, first, stop):
    """Memory order: plane, position. One pass for the smallest and the largest index, another where one is wrong.

    Returns:
        Where the first wrong index is; -2 if none is, but one leaves its plane; -1 otherwise.
    """
    is_local = True
    for plane in range(first, stop):
        base = plane * large
        lowest, highest = base, base
        line = indices[plane * small : (plane + 1) * small]
        for position in range(line.size):
            lowest = min(lowest, line[position])
            highest = max(highest, line[position])
        is_local &= lowest == base and highest < base + large
        if lowest < 0 or highest >= limit:
            for position in range(plane * small, (plane + 1) * small):
                if not 0 <= indices[position] < limit:
                    return position
    return -1 if is_local else -2


@compiled()
def _in_windows(indices, small, sizes, first, stop):
    """Memory order: plane, position, axis from last to first; both the position and its index are decoded.

    They are unsigned, which are divided several times faster.
    """
    for position in range(np.uint64(first * small), np.uint64(stop * small)):
        index, place = np.uint64(indices[position]), position
        if indices[position] < 0:
            return False
        for axis in range(sizes.shape[0] - 1, -1, -1):
            large, little = np.uint64(sizes[axis, 0]), np.uint64(sizes[axis, 1])
            if large == 0:
                return False
            start = np.int64(place % little) * sizes[axis, 3] - sizes[axis, 4]
            if not start <= np.int64(index % large) < start + sizes[axis, 2]:
                return False
            index //= large
            place //= little
        if index != place:
            return False
    return True


@cache
def _scatter():
    return _make_scatter(source_digest())


def _make_scatter(digest):
    @compiled()
    def scatter_planes(x, indices, y, size, small, large, channels, clears, first, stop):
        """Memory order: plane, position of the indices. A plane of its own is cleared just before it is written, while
        it is in the cache. Channels-last arrays swap plane and position on both sides.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        low, extent = np.uint64(0), np.uint64(y.size)
        for plane in range(first, stop):
            if clears:
                low, extent = np.uint64(plane * large), np.uint64(large)
                clear(address_of(y) + plane * large * size, large * size)
            for position in range(plane * small, (plane + 1) * small):
                index, place = load_once(address_of(indices) + position * 8), position
                if np.uint64(index) - low >= extent:
                    return False
                if channels != 1:
                    index = _channels_last(index, large, channels)
                    place = _channels_last(place, small, channels)
                y[np.uint64(index)] = x[np.uint64(place)]
        return True

    return scatter_planes


@compiled()
def _channels_last(index, plane, channels):
    """From the flat index of (n, c, q) to that of (n, q, c)."""
    batch_and_channel, inside = index // plane, index % plane
    batch, channel = batch_and_channel // channels, batch_and_channel % channels
    return (batch * plane + inside) * channels + channel
