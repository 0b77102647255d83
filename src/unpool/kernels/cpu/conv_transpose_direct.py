"""Transposed convolution of few channels per group, each output vector summed in registers from the rows that reach it.

    y[row, u * stride + phase] = b + sum over rows and taps that reach it: x[other row, u - shift(tap)] * w[tap]

The phases of an output row are computed side by side and interleaved in registers, so whole vectors of neighbours are
stored. What is read is a copy of some rows of x with zeros at both ends, so no vector needs a mask to be loaded. These
zeros are multiplied, so weights must be finite; rows outside x are left out.
"""

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from unpool.geometry import Axis
from unpool.kernels.cpu import conv_transpose_direct_tables as tables
from unpool.kernels.cpu.activation import PLAIN, Ending
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.conv_transpose_work import Work
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.threads import Launch
from unpool.kernels.cpu.vector import (
    address_of,
    clear,
    first_lanes,
    int64_at,
    keep_terms,
    load_like,
    load_masked,
    splat,
    splat_rows,
    store,
    tile_activate,
    tile_add,
    tile_alternate,
    tile_store,
    tile_store_first,
    tile_sum_terms,
)

STRIDES = (1, 2, 4, 8)
"""Along the lanes: what is interleaved in registers."""

PANEL_BYTES = 1 << 16
"""Rows of x that are laid out at once: they stay in the second cache."""

STRIP_BYTES = 1 << 10
"""Rows of y that are written kind by kind, so that short ones seldom load the terms of their kind. Beyond that rows are
written in order: memory takes up to five times as long where its lines do not follow one another.
"""

NARROW = 2
"""Vectors of positions that are summed together at the end of a row: with their phases enough not to wait."""

WIDE = {1: 4, 2: 4, 4: 2, 8: 2}
"""The same before that, per stride: more share a weight that is loaded, and fewer fit into registers with it."""

KEPT_TERMS = {1: 8, 2: 4, 4: 4, 8: 0}
"""Per stride: how many terms of each sum stay in registers while a row is written. The others are loaded each time."""

MOST_STEPS = 2048
"""Positions along the lanes that are laid out at once."""

MOST_TERMS = 1 << 14
"""Products that all kinds of output rows list together."""

MOST_ROWS = 1 << 20
"""Output rows of a plane, which a table lists."""

MOST_PANEL_BYTES = 1 << 23
"""Where all rows between the first and the last that one output row needs are more, this way is not taken."""

MOST_PRODUCTS = 10
"""Per output, those in unused lanes counted: with more of them it is worth laying out tiles for a dense product."""

MOST_PRODUCTS_ALONE = 25
"""The same for groups of one output channel, which fill no tile."""


@lru_cache(maxsize=1024)
def pays(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> bool:
    """Whether this way is the fastest: for input and output channels of a group, and elements of so many bytes."""
    if not channels or not all(axis.small and axis.large for axis in axes):
        return False
    lanes, steps = NARROW * vector_bytes() // size, -(-axes[-1].large // axes[-1].window.stride)
    filled = -(-steps // lanes) * lanes / steps
    products = channels * math.prod(axis.window.size / axis.window.stride for axis in axes) * filled
    return products <= (MOST_PRODUCTS if maps > 1 else MOST_PRODUCTS_ALONE) and fits(axes, channels, size)


def fits(axes: tuple[Axis, ...], channels: int, size: int) -> bool:
    """Whether this way knows the stride along the lanes, and its tables and its panel are small, for so many channels.

    Args:
        axes: one per spatial axis, none of them empty.
        channels: of the input, in one group.
        size: bytes of an element.
    """
    *leading, last = axes
    if last.window.stride not in STRIDES or math.prod(axis.large for axis in leading) > MOST_ROWS:
        return False
    rows = math.prod(axis.small for axis in leading)
    if len(leading) == 1:
        rows = min(rows, leading[0].window.reach // leading[0].window.stride + 1)
    width = min(MOST_STEPS, last.large // last.window.stride) + last.window.reach + 8 * vector_bytes() // size
    kinds = math.prod(len(tables.kinds_of(axis)[0]) * axis.window.size / axis.window.stride for axis in leading)
    is_small = channels * rows * width * size <= MOST_PANEL_BYTES
    return is_small and channels * kinds * last.window.size <= MOST_TERMS


def prepare(work: Work, ending: Ending = PLAIN) -> Launch:
    """The call that writes a transposed convolution which this way `fits`.

    It takes (x, w, b, y), all C-contiguous and of one type: (N, C, d1..dk); (C, M/group, k1..kk), finite; (M,);
    (N, M, D1..Dk).

    Args:
        work: what is to be computed.
        ending: the activation of the sums.
    """
    last, channels, size = work.axes[-1], work.channels // work.group, work.dtype.itemsize
    lanes = vector_bytes() // size
    taps, left, beyond = tables.taps_of(last, lanes)
    steps = -(-last.large // last.window.stride)
    chunk = min(MOST_STEPS, -(-steps // (4 * lanes)) * 4 * lanes)
    pieces, pitch = -(-steps // chunk), -(-(chunk + beyond) // lanes) * lanes * size
    rows, reach, kinds = tables.rows_of(work.axes[:-1])
    bands = tables.bands_of(reach, PANEL_BYTES // (channels * pitch), work.batch * work.group * pieces)
    height = int((bands[:, 3] - bands[:, 2]).max())
    apart = [[work.maps * work.taps * size, height * pitch], [last.window.size * size, pitch], [size, size]]
    rows = tables.in_strips(rows, bands, max(1, STRIP_BYTES // (last.large * size)))
    lists = [tables.products_of(channels, kind, each, apart) for kind in kinds for each in taps]
    bounds = np.cumsum([0, *(len(each) for each in lists)])
    numbers = [
        work.group, channels, work.maps, pieces, chunk, pitch, height, last.small, last.large, last.window.stride,
        left, beyond, work.small, work.taps * size, ending.is_active,
    ]  # fmt: skip
    outputs = work.batch * work.group * work.maps * work.large
    return Launch(
        _kernel(work.dtype), work.batch * work.group * len(bands) * pieces, outputs * (1 + bounds[-1] // len(lists)),
        np.array(numbers), np.array(ending.bounds, work.dtype), bands,
        rows * [last.large * size, pitch, 8 * last.window.stride], bounds,
        np.concatenate([*lists, np.zeros((KEPT_TERMS[last.window.stride], 2), np.int64)]),
    )  # fmt: skip


@cache
def _kernel(dtype: np.dtype[Any]):
    return _make(getattr(types, dtype.name), vector_bytes() // dtype.itemsize, dtype.itemsize, source_digest())


def _make(element, lanes, size, digest):
    number = np.dtype(str(element)).type

    @compiled()
    def grow_directly(x, w, b, y, numbers, ends, bands, rows, bounds, terms, first, stop):
        """Memory order: batch and group, band of rows, piece along the lanes; then output channel, row, vectors of
        positions, phase; then channel, input row and tap in registers.

        Args:
            x: a handle, as the next three.
            w: as described for `prepare`.
            b: likewise.
            y: likewise.
            numbers: what `prepare` lists: sizes in elements, `pitch` and `window` in bytes.
            ends: slope below 0, lower and upper bound.
            bands: first and last output row, first and last input row.
            rows: for every output row where it begins in y and in the panel, and what precedes its bounds, in bytes.
            bounds: where lists begin.
            terms: bytes in the window, bytes in the panel.
            first: job.
            stop: job.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        groups, channels, maps, pieces, chunk = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
        pitch, height, small, large, stride = numbers[5], numbers[6], numbers[7], numbers[8], numbers[9]
        left, beyond, plane, window = numbers[10], numbers[11], numbers[12], numbers[13]
        low, top, zero = splat(ends[1], lanes), splat(ends[2], lanes), splat(number(0), lanes)
        ending = numbers[14] != 0, zero, splat(ends[0], lanes), low, top
        tiles, rows_out = bands.shape[0] * pieces, rows.shape[0]
        memory = np.empty(channels * height * pitch // size + 64, number)
        for job in range(first, stop):
            panel, outer, tile = -(-address_of(memory) // 64) * 64, job // tiles, job % tiles
            band, at = tile // pieces, tile % pieces * chunk
            begin, length = bands[band, 2], min(chunk * stride, large - at * stride)
            start, end = max(0, at - left), min(small, at - left + chunk + beyond)
            if job == first or pieces > 1:
                clear(panel, channels * height * pitch)
            for channel in range(channels):
                source = address_of(x) + ((outer * channels + channel) * plane + begin * small + start) * size
                target = panel + channel * height * pitch + (start - at + left) * size
                for _row in range(begin, bands[band, 3]):
                    lay_row(target, source, end - start, zero, lanes, size)
                    source += small * size
                    target += pitch
            for out_map in range(maps):
                bias = splat_rows(address_of(b) + (outer % groups * maps + out_map) * size, element, lanes, 1)
                weight = address_of(w) + (outer % groups * channels * maps + out_map) * window
                out = address_of(y) + ((outer * maps + out_map) * rows_out * large + at * stride) * size
                table = address_of(terms), address_of(bounds), address_of(rows) + bands[band, 0] * 24
                places = out, panel - begin * pitch, weight
                count = bands[band, 1] - bands[band, 0]
                if stride == 1:
                    grow_rows(places, count, length, table, bias, ending, lanes, size, 1)
                elif stride == 2:
                    grow_rows(places, count, length, table, bias, ending, lanes, size, 2)
                elif stride == 4:
                    grow_rows(places, count, length, table, bias, ending, lanes, size, 4)
                else:
                    grow_rows(places, count, length, table, bias, ending, lanes, size, 8)

    return grow_directly


def lay_row(target, source, count, zero, lanes, size):
    """`count` elements, and zeros to the end of their last vector; exists in compiled code only."""


@overload(lay_row, prefer_literal=True)
def _lay_row(target, source, count, zero, lanes, size):
    def lay(target, source, count, zero, lanes, size):
        for place in range(0, count - lanes + 1, lanes):
            store(target + place * size, load_like(source + place * size, zero))
        rest = count % lanes
        if rest > 0 and count > 0:
            place = (count - rest) * size
            store(target + place, load_masked(source + place, first_lanes(rest, zero), zero))

    return lay


def grow_rows(places, count, length, table, bias, ending, lanes, size, step):
    """`length` neighbours in each of `count` rows of y; exists in compiled code only."""


@overload(grow_rows, prefer_literal=True)
def _grow_rows(places, count, length, table, bias, ending, lanes, size, step):
    narrow, wide, kept, few = (
        NARROW,
        WIDE[step.literal_value],
        KEPT_TERMS[step.literal_value],
        step.literal_value * NARROW,
    )

    def grow(places, count, length, table, bias, ending, lanes, size, step):
        terms, bounds, rows = table
        y, panel, weight = places
        lists = bounds + int64_at(rows + 16)
        near = keep_terms(bias, terms, lists, weight, step, kept)
        for row in range(rows, rows + count * 24, 24):
            out, source, left = y + int64_at(row), panel + int64_at(row + 8), length
            if bounds + int64_at(row + 16) != lists:
                lists = bounds + int64_at(row + 16)
                near = keep_terms(bias, terms, lists, weight, step, kept)
            sums = terms, lists, weight
            while left > few * lanes:
                done = grow_some(out, left, source, near, sums, bias, ending, lanes, size, step, wide)
                out, source, left = out + done * step * size, source + done * size, left - done * step
            if left > 0:
                grow_some(out, left, source, near, sums, bias, ending, lanes, size, step, narrow)

    return grow


def grow_some(out, left, source, near, sums, bias, ending, lanes, size, step, wide):
    """At most `left` neighbours, `wide` vectors of positions; how many positions; exists in compiled code only."""


@overload(grow_some, prefer_literal=True, jit_options={"forceinline": True})
def _grow_some(out, left, source, near, sums, bias, ending, lanes, size, step, wide):
    many = wide.literal_value * step.literal_value

    def grow(out, left, source, near, sums, bias, ending, lanes, size, step, wide):
        terms, lists, weight = sums
        total = tile_alternate(tile_sum_terms(ending[1], near, terms, lists, weight, source, wide), step)
        total = tile_add(total, bias)
        if ending[0]:
            total = tile_activate(total, ending[1], ending[2], ending[3], ending[4])
        if left >= many * lanes:
            tile_store(total, out, lanes * size, many, 1)
        else:
            tile_store_first(total, out, left)
        return wide * lanes

    return grow
