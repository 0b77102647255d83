"""Transposed convolution of inputs with one element per channel: nothing overlaps, so it is a product of matrices.

    y[n, column] = b[column // taps] + sum over channels c: x[n, c] * w[c, column]

The columns are the taps of all output channels. Weights are read as they are, a tile of columns at a time, once for
several images. For one image that is all there is to wait for, so its tiles are as wide as registers allow. BLAS would
split it over threads of its own, which then watch for more work for milliseconds and keep the cores from everybody
else.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.conv_transpose_costs import PIECE
from unpool.kernels.cpu.conv_transpose_work import Work
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import VECTORISED, Launch, split
from unpool.kernels.cpu.vector import address_of, load, store, tile_add_product, tile_add_to, tile_store, tile_zero

TILE = (8, 3) if vector_bytes() == 64 else (4, 3)
"""Images, and vectors of columns."""

_MOST_UNCUT = 2
"""Times the elements of y and w, up to which windows are cut after they are made: else the weights are cut, a copy."""

TILE_OF_ONE = (1, 16) if vector_bytes() == 64 else (1, 8)
"""The same for one image."""


def prepare(work: Work) -> Callable[[Any, Any, Any, Any, int | None], object]:
    """What writes y of (x, w, b, y, threads), all of one type and C-contiguous.

    Args:
        work: with one element per channel of x, and no dilation.
    """
    if all(axis.begin == 0 and axis.large == axis.window.size for axis in work.axes):
        return _prepare_whole(work, work.taps)
    target, source = zip(*(_shared(axis) for axis in work.axes), strict=True)
    before, after = (slice(None),) * len(source), source
    if work.batch * work.taps > _MOST_UNCUT * (work.batch * work.large + work.channels * work.taps):
        before, after = after, before
    sizes = [len(range(axis.window.size)[part]) for axis, part in zip(work.axes, before, strict=True)]
    grow = _prepare_whole(work, math.prod(sizes))

    def grow_and_cut(x, w, b, y, threads):
        windows = np.empty((len(x), w.shape[1], *sizes), y.dtype)
        grow(x, np.ascontiguousarray(w[..., *before]), b, windows, threads)
        y[...] = b.reshape(-1, *[1] * len(work.axes))
        y[..., *target] = windows[..., *after]

    return grow_and_cut


def _shared(axis: Axis) -> tuple[slice, slice]:
    """What an output and its window share, in either."""
    stop = min(axis.window.size, axis.begin + axis.large)
    return slice(0, max(0, stop - axis.begin)), slice(axis.begin, max(axis.begin, stop))


def _prepare_whole(work: Work, taps: int) -> Callable[[Any, Any, Any, Any, int | None], object]:
    """Writes all windows of so many taps, uncut."""
    columns, tile = work.maps * taps, TILE_OF_ONE if work.batch == 1 else TILE
    wide = tile[1] * (vector_bytes() // work.dtype.itemsize)
    if columns < wide:
        return _weigh_each
    numbers = np.array([work.batch, work.channels, columns, taps])
    cost = work.batch * work.channels * columns // VECTORISED
    launch = Launch(_kernel(work.dtype, tile), -(-columns // wide), cost, numbers)
    return lambda x, w, b, y, threads: launch.on((x, w, b, y), threads)


def _weigh_each(x, w, b, y, threads: int | None) -> None:
    """One image after the other."""
    for image, out in zip(x, y, strict=True):
        split(_weigh, b.size, w.size, threads, readonly(image), readonly(w), readonly(b), out.reshape(-1))


@compiled(fastmath={"contract"})
def _weigh(x, w, b, y, first, stop):
    """Memory order: piece of the channels, channel, then the outputs of all maps from `first` to `stop`, which stay in
    the cache.
    """
    window = y.size // b.size
    total, part = y[first * window : stop * window], np.empty((stop - first) * window, y.dtype)
    piece = max(PIECE, int(np.sqrt(x.size)))
    total[:] = 0
    for begin in range(0, x.size, piece):
        part[:] = 0
        for channel in range(begin, min(x.size, begin + piece)):
            row, factor = w[channel * y.size + first * window :], x[channel]
            for column in range(part.size):
                part[column] += factor * row[column]
        for column in range(part.size):
            total[column] += part[column]
    for out_map in range(stop - first):
        total[out_map * window : (out_map + 1) * window] += b[first + out_map]


@cache
def _kernel(dtype: np.dtype[Any], tile: tuple[int, int]):
    lanes = vector_bytes() // dtype.itemsize
    return _make(getattr(types, dtype.name), lanes, dtype.itemsize, *tile, source_digest())


def _make(element, lanes, size, rows, vectors, digest):
    wide = vectors * lanes

    @compiled()
    def grow_points(x, w, b, y, numbers, first, stop):
        """Memory order: tile of columns, tile of images; then channels in registers. The last tile ends with w."""
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        batch, channels, columns, taps = numbers[0], numbers[1], numbers[2], numbers[3]
        turned = np.empty(-(-batch // rows) * rows * channels, element)
        results, line = np.empty(rows * wide, element), np.empty(wide, element)
        for image in range(-(-batch // rows) * rows):
            source = address_of(x) + min(image, batch - 1) * channels * size
            tile = address_of(turned) + (image // rows * channels * rows + image % rows) * size
            for channel in range(channels):
                copy(tile + channel * rows * size, source + channel * size, element)
        for job in range(first, stop):
            at = min(job * wide, columns - wide)
            number, left = at // taps, taps - at % taps
            for column in range(wide):
                copy(address_of(line) + column * size, address_of(b) + number * size, element)
                left -= 1
                if left == 0:
                    number, left = number + 1, taps
            for image in range(0, batch, rows):
                a, source, target = address_of(turned), address_of(w) + at * size, address_of(results)
                a += image * channels * size
                multiply(a, source, columns, channels, target, element, lanes, rows, vectors)
                for row in range(min(rows, batch - image)):
                    out = address_of(y) + ((image + row) * columns + at) * size
                    for part in range(0, wide, lanes):
                        value = load(target + (row * wide + part) * size, element, lanes)
                        store(out + part * size, value + load(address_of(line) + part * size, element, lanes))

    return grow_points


def copy(target, source, element):
    """Exists in compiled code only."""


@overload(copy)
def _copy(target, source, element):
    """One element."""

    def one(target, source, element):
        store(target, load(source, element, 1))

    return one


def multiply(a, source, columns, channels, target, element, lanes, rows, vectors):
    """Exists in compiled code only."""


@overload(multiply, prefer_literal=True)
def _multiply(a, source, columns, channels, target, element, lanes, rows, vectors):
    """One tile, summed over pieces of the channels: errors grow with the length of a sum."""
    most = PIECE
    size = element.dtype.bitwidth // 8
    wide = lanes.literal_value * vectors.literal_value
    registers = rows.literal_value * vectors.literal_value

    def product(a, source, columns, channels, target, element, lanes, rows, vectors):
        piece = max(most, int(np.sqrt(channels)))
        for first in range(0, channels, piece):
            total = tile_zero(element, lanes, registers)
            for _channel in range(min(piece, channels - first)):
                total = tile_add_product(total, a, source, element, lanes, rows, vectors)
                a += rows * size
                source += columns * size
            if first == 0:
                tile_store(total, target, wide * size, rows, vectors)
            else:
                tile_add_to(total, target, wide * size, rows, vectors)

    return product
