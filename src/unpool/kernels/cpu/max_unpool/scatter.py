"""Max unpooling of any windows: elements are scattered as bits, to places that were checked before.

    y[indices[i]] = x[i], everything else 0

Whoever holds the indices may write to them meanwhile. So each is read once more to be written with, and what was read
is checked again: an index that has changed is refused, and no memory beside y is touched.

Where there are fewer planes than threads want, planes of y are cut into parts: each reads all indices of its plane, in
their order, and takes those that lie in it. So the last of equal ones wins whoever computes which part.
"""

from functools import cache, lru_cache
from typing import Any

import numpy as np

from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest
from unpool.kernels.cpu.machine.jobs import Cut, choose
from unpool.kernels.cpu.machine.threads import Launch, useful
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.vector import address_of, clear, load_once

_READ, _WRITE, _CLEAR = 0.5, 1.0, 0.2
"""Nanoseconds, about: reading an index, writing an element, and clearing one."""


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
    clears, work = is_local and channels == 1, x.size + y.size
    if x.size == 0 or not clears:
        y[...] = 0
    if x.size == 0:
        return True
    count = useful(work, threads if is_local else 1)
    parts = _parts(planes, x.size // planes, y.size // planes, count) if clears else 0
    launch = _launch(x.dtype, planes, parts, work, channels)
    return all(launch.on((), count, readonly(x), readonly(indices), y.reshape(-1)))


@lru_cache(maxsize=256)
def _parts(planes: int, small: int, large: int, threads: int) -> int:
    """Into how many parts planes are cut, each of so many elements of x and y."""

    def cut(parts: int) -> Cut:
        each = small * _READ + (small * _WRITE + large * _CLEAR) / parts
        return Cut(planes * parts, each, planes * parts * each)

    return choose(map(cut, range(1, min(threads, large) + 1)), threads).jobs // planes


@lru_cache(maxsize=64)
def _launch(_: np.dtype[Any], planes: int, parts: int, work: int, channels: int) -> Launch:
    """For arrays of one type; 0 parts are those of planes that are not independent, or not side by side."""
    return Launch(_kernel(), planes * max(1, parts), work, planes, parts, channels)


@cache
def _kernel():
    return _make(source_digest())


def _make(digest):
    @compiled()
    def scatter_planes(x, indices, y, planes, parts, channels, first, stop):
        """For every plane, for every part of it, for every position of its indices; whether all were in range.

        Where there are parts, a plane takes no index of another one, and a part of it is cleared just before it is
        written, while it is in the cache. Channels-last arrays swap plane and position on both sides.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        small, large, size = x.size // planes, y.size // planes, y.itemsize
        low, extent = np.uint64(0), np.uint64(y.size)
        begin, reach = low, extent
        for job in range(first, stop):
            plane, part = job // max(1, parts), job % max(1, parts)
            if parts > 0:
                low, extent = np.uint64(plane * large), np.uint64(large)
                start, end = plane * large + large * part // parts, plane * large + large * (part + 1) // parts
                begin, reach = np.uint64(start), np.uint64(end - start)
                clear(address_of(y) + start * size, (end - start) * size)
            for position in range(plane * small, (plane + 1) * small):
                index, place = load_once(address_of(indices) + position * 8), position
                if np.uint64(index) - begin < reach:
                    if channels != 1:
                        index = _channels_last(index, large, channels)
                        place = _channels_last(place, small, channels)
                    y[np.uint64(index)] = x[np.uint64(place)]
                elif np.uint64(index) - low >= extent:
                    return False
        return True

    return scatter_planes


@compiled()
def _channels_last(index, plane, channels):
    """From the flat index of (n, c, q) to that of (n, q, c)."""
    batch_and_channel, inside = index // plane, index % plane
    batch, channel = batch_and_channel // channels, batch_and_channel % channels
    return (batch * plane + inside) * channels + channel
