"""Transposed convolution of inputs with one element per channel: nothing overlaps, so it is a product of matrices.

    y[n, column] = b[column // taps] + sum over channels c: x[n, c] * w[c, column]

The columns are the taps of all output channels; of weights that are kept only those that some output meets. Weights are
read as they are, a tile of columns at a time, once for several images. For one image that is all there is to wait for,
so its tiles are as wide as registers allow. BLAS would split it over threads of its own, which then watch for more work
for milliseconds and keep the cores from everybody else.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from unpool.geometry import Axis, Window
from unpool.kernels.cpu.activation import PLAIN, Ending
from unpool.kernels.cpu.conv_transpose.costs import TOGETHER
from unpool.kernels.cpu.conv_transpose.work import Work
from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest, vector_bytes
from unpool.kernels.cpu.machine.threads import VECTORISED, Launch
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.vector import (
    Activation,
    activated,
    activation_in_lanes,
    activation_type,
    address_of,
    load,
    store,
    tile_add_product,
    tile_add_to,
    tile_store,
    tile_zero,
)
from unpool.kernels.cpu.vector.by_type import by_type
from unpool.kernels.cpu.vector.named import Fixed, record

Write = Callable[[Any, Any, Any, Any, int | None], object]
"""Writes y of (x, w, b, y, threads)."""

TILE = (8, 3) if vector_bytes() == 64 else (4, 3)
"""Images, and vectors of columns."""

_MOST_UNCUT = 2
"""Times the elements of y and w, up to which windows are cut after they are made: else the weights are cut, a copy."""

TILE_OF_ONE = (1, 16) if vector_bytes() == 64 else (1, 8)
"""The same for one image."""


class About(NamedTuple):
    """What the kernel reads of a call.

    Attributes:
        batch: number of images.
        channels: of x.
        columns: of w: taps of all output channels.
        taps: of each of them.
        activation: of the sums.
    """

    batch: int
    channels: int
    columns: int
    taps: int
    activation: Activation


def activates(work: Work) -> bool:
    """Whether `writer` can activate: where y is made of whole windows, and of many."""
    return _is_whole(work) and not _has_few_columns(work, work.taps)


def writer(work: Work, ending: Ending = PLAIN) -> Write:
    """What writes y from arrays of one type, all C-contiguous.

    Args:
        work: with one element per channel of x, and no dilation.
        ending: the activation of the sums, where `activates` allows one.
    """
    if _is_whole(work):
        return _writer_of_windows(work, work.taps, ending)
    target, source = zip(*(_shared(axis) for axis in work.axes), strict=True)
    before, after = (slice(None),) * len(source), source
    if work.batch * work.taps > _MOST_UNCUT * (work.batch * work.large + work.channels * work.taps):
        before, after = after, before
    sizes = [len(range(axis.window.size)[part]) for axis, part in zip(work.axes, before, strict=True)]
    grow = _writer_of_windows(work, math.prod(sizes))

    def grow_and_cut(x, w, b, y, threads):
        windows = np.empty((len(x), w.shape[1], *sizes), y.dtype)
        grow(x, np.ascontiguousarray(w[..., *before]), b, windows, threads)
        y[...] = b.reshape(-1, *[1] * len(work.axes))
        y[..., *target] = windows[..., *after]

    return grow_and_cut


def _is_whole(work: Work) -> bool:
    return all(axis.begin == 0 and axis.large == axis.window.size for axis in work.axes)


def met_taps(work: Work) -> tuple[slice, ...]:
    """Which taps of a window some output meets, per axis: the others need not be read. All where none is met."""
    met = tuple(_shared(axis)[1] for axis in work.axes)
    every = tuple(slice(0, axis.window.size) for axis in work.axes)
    return met if all(tap.start < tap.stop for tap in met) else every


def of_met_taps(work: Work) -> Work:
    """The same call with windows of these taps alone."""
    axes = [
        replace(axis, window=Window(tap.stop - tap.start), begin=axis.begin - tap.start)
        for axis, tap in zip(work.axes, met_taps(work), strict=True)
    ]
    return replace(work, axes=tuple(axes))


def _shared(axis: Axis) -> tuple[slice, slice]:
    """What an output and its window share, in either."""
    stop = min(axis.window.size, axis.begin + axis.large)
    return slice(0, max(0, stop - axis.begin)), slice(axis.begin, max(axis.begin, stop))


def _writer_of_windows(work: Work, taps: int, ending: Ending = PLAIN) -> Write:
    """What writes all windows of so many taps, uncut."""
    columns = work.maps * taps
    if _has_few_columns(work, taps):
        return _writer_by_maps(work, columns)
    about = About(work.batch, work.channels, columns, taps, Activation(ending.is_active, *ending.bounds))
    given, cost = record(about, activation=activation_type(work.dtype)), work.batch * work.channels * columns
    launch = Launch(_kernel(work.dtype, _tile(work)), -(-columns // _width(work)), cost // VECTORISED, given)
    return lambda x, w, b, y, threads: launch.on((x, w, b, y), threads)


def _tile(work: Work) -> tuple[int, int]:
    return TILE_OF_ONE if work.batch == 1 else TILE


def _width(work: Work) -> int:
    """Columns of a tile."""
    return _tile(work)[1] * (vector_bytes() // work.dtype.itemsize)


def _has_few_columns(work: Work, taps: int) -> bool:
    return work.maps * taps < _width(work)


def _writer_by_maps(work: Work, columns: int) -> Write:
    """For few columns, one image after the other."""
    launch = Launch(_weigh, work.maps, work.channels * columns)

    def write(x, w, b, y, threads):
        for image, out in zip(x, y, strict=True):
            launch.on((), threads, readonly(image), readonly(w), readonly(b), out.reshape(-1))

    return write


@compiled(fastmath={"contract"})
def _weigh(x, w, b, y, first, stop):
    """Write some output channels of one image, which stay in the cache.

    for every part of the input channels, for every channel of it
        for all columns of these output channels
    """
    window = y.size // b.size
    total, part = y[first * window : stop * window], np.empty((stop - first) * window, y.dtype)
    together = max(TOGETHER, int(np.sqrt(x.size)))
    total[:] = 0
    for begin in range(0, x.size, together):
        part[:] = 0
        for channel in range(begin, min(x.size, begin + together)):
            row, factor = w[channel * y.size + first * window :], x[channel]
            for column in range(part.size):
                part[column] += factor * row[column]
        for column in range(part.size):
            total[column] += part[column]
    for out_map in range(stop - first):
        total[out_map * window : (out_map + 1) * window] += b[first + out_map]


@cache
def _kernel(dtype: np.dtype[Any], tile: tuple[int, int]):
    lanes, (rows, vectors) = vector_bytes() // dtype.itemsize, tile
    fixed = Fixed(element=getattr(types, dtype.name), lanes=lanes, rows=rows, vectors=vectors)
    return _make(fixed, source_digest())


def _make(fixed, digest):
    element, lanes, rows, size = fixed.element, fixed.lanes, fixed.rows, fixed.element.bitwidth // 8
    wide = fixed.vectors * lanes

    @compiled()
    def grow_points(x, w, b, y, given, first, stop):
        """Write some tiles of columns. The last one ends with w.

        for every tile of columns, for every tile of images
            for every channel, in registers
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        about = given[0]
        batch, channels, columns, taps = about.batch, about.channels, about.columns, about.taps
        activation = activation_in_lanes(about.activation, lanes)
        turned = np.empty(-(-batch // rows) * rows * channels, element)
        results, line = np.empty(rows * wide, element), np.empty(wide, element)
        for image in range(-(-batch // rows) * rows):
            source = address_of(x) + min(image, batch - 1) * channels * size
            tile = address_of(turned) + (image // rows * channels * rows + image % rows) * size
            for channel in range(channels):
                store(tile + channel * rows * size, load(source + channel * size, element, 1))
        for job in range(first, stop):
            at = min(job * wide, columns - wide)
            number, left = at // taps, taps - at % taps
            for column in range(wide):
                store(address_of(line) + column * size, load(address_of(b) + number * size, element, 1))
                left -= 1
                if left == 0:
                    number, left = number + 1, taps
            for image in range(0, batch, rows):
                images, target = address_of(turned) + image * channels * size, address_of(results)
                sum_tile(images, address_of(w) + at * size, target, about, fixed)
                for row in range(min(rows, batch - image)):
                    out = address_of(y) + ((image + row) * columns + at) * size
                    for part in range(0, wide, lanes):
                        value = load(target + (row * wide + part) * size, element, lanes)
                        value = value + load(address_of(line) + part * size, element, lanes)
                        store(out + part * size, activated(value, activation))

    return grow_points


@by_type()
def sum_tile(images, weights, target, about, fixed):
    """Writes one tile, summed over parts of the channels: errors grow with the length of a sum."""
    element, lanes, rows, vectors, most = fixed.element, fixed.lanes, fixed.rows, fixed.vectors, TOGETHER
    size, wide, registers = element.bitwidth // 8, lanes * vectors, rows * vectors

    def sum_up(images, weights, target, about, fixed):
        channels, apart = about.channels, about.columns * size
        together = max(most, int(np.sqrt(channels)))
        for first in range(0, channels, together):
            total = tile_zero(element, lanes, registers)
            for _channel in range(min(together, channels - first)):
                total = tile_add_product(total, images, weights, element, lanes, rows, vectors)
                images += rows * size
                weights += apart
            if first == 0:
                tile_store(total, target, wide * size, rows, vectors)
            else:
                tile_add_to(total, target, wide * size, rows, vectors)

    return sum_up
