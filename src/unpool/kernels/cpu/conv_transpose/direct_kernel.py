"""The compiled part of direct transposed convolution: rows of x are laid out, outputs are summed in registers."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest, vector_bytes
from unpool.kernels.cpu.vector import (
    Activation,
    activated,
    activation_in_lanes,
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
    tile_add,
    tile_alternate,
    tile_store,
    tile_store_first,
    tile_sum_terms,
)
from unpool.kernels.cpu.vector.by_type import by_type
from unpool.kernels.cpu.vector.named import Fixed

Table = npt.NDArray[np.int64]

STRIDES = (1, 2, 4, 8)
"""Along the lanes: what is interleaved in registers."""

NARROW = 2
"""Vectors of positions that are summed together at the end of a row: with their phases enough not to wait."""

WIDE = {1: 4, 2: 4, 4: 2, 8: 2}
"""The same before that, per stride: more share a weight that is loaded, and fewer fit into registers with it."""

KEPT_TERMS = {1: 8, 2: 4, 4: 4, 8: 0}
"""Per stride: how many terms of each sum stay in registers while a row is written. The others are loaded each time."""


class About(NamedTuple):
    """What the kernel reads of a call. Sizes are in elements, but for `pitch` and `window`.

    Attributes:
        group: number of groups.
        channels: of x, in a group.
        maps: of y, in a group.
        stretches: into how many parts the lanes are cut.
        stretch: positions along the lanes in one of them.
        pitch: bytes between the rows of the panel.
        height: rows of the panel for each channel.
        small: lanes of x.
        large: lanes of y.
        stride: along the lanes.
        left: of a row of the panel, those before the first position.
        beyond: those that are read behind the last one.
        plane: of x.
        window: bytes of it.
        activation: of the sums.
    """

    group: int
    channels: int
    maps: int
    stretches: int
    stretch: int
    pitch: int
    height: int
    small: int
    large: int
    stride: int
    left: int
    beyond: int
    plane: int
    window: int
    activation: Activation


class Tables(NamedTuple):
    """All tables that the kernel takes.

    Attributes:
        bands: first and last output row, first and last input row.
        rows: for every output row where it begins in y and in the panel, and what precedes its bounds, in bytes.
        bounds: where lists of terms begin.
        terms: bytes in the window, bytes in the panel.
    """

    bands: Table
    rows: Table
    bounds: Table
    terms: Table


@cache
def kernel(dtype: np.dtype[Any]):
    """The kernel for a type of x, w, b and y."""
    lanes = vector_bytes() // dtype.itemsize
    return _make(Fixed(element=getattr(types, dtype.name), lanes=lanes), source_digest())


class Places(NamedTuple):
    """Addresses of what a band of rows is made of, for one output channel.

    Attributes:
        y: where its part of the plane begins.
        panel: where row 0 of x would be.
        window: its weights.
    """

    y: int
    panel: int
    window: int


class Lists(NamedTuple):
    """Addresses of the terms of all sums.

    Attributes:
        terms: of all of them.
        bounds: per list, of the numbers of its first term and of the next list's.
    """

    terms: int
    bounds: int


class Rows(NamedTuple):
    """Some rows of y.

    Attributes:
        table: address of what is said of the first.
        total: how many they are.
        length: neighbours to write in each.
    """

    table: int
    total: int
    length: int


class Sums(NamedTuple):
    """What is added up for one row.

    Attributes:
        near: terms that `keep_terms` holds in registers.
        lists: where all of them are.
        window: address of the weights.
        bias: in all lanes.
    """

    near: Any
    lists: Lists
    window: int
    bias: Any


def _make(fixed, digest):
    element, lanes, size = fixed.element, fixed.lanes, fixed.element.bitwidth // 8
    number = np.dtype(str(element)).type
    by_one, by_two, by_four, by_eight = (fixed.but(step=step) for step in STRIDES)

    @compiled()
    def grow_directly(x, w, b, y, given, tables, first, stop):
        """Write some bands of rows, in the memory order of y.

        for every element of the batch and group, for every band of rows, for every stretch of the lanes
            for every output channel, for every row, for every vector of positions, for every phase
                for every channel, input row and tap, in registers
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        about, bands = given[0], tables.bands
        channels, maps, stretches, stretch = about.channels, about.maps, about.stretches, about.stretch
        pitch, height, small, large, stride = about.pitch, about.height, about.small, about.large, about.stride
        left, window = about.left, about.window
        zero, activation = splat(number(0), lanes), activation_in_lanes(about.activation, lanes)
        parts, rows_out = bands.shape[0] * stretches, tables.rows.shape[0]
        memory = np.empty(channels * height * pitch // size + 64, number)
        for job in range(first, stop):
            panel, outer, part = -(-address_of(memory) // 64) * 64, job // parts, job % parts
            band, at = part // stretches, part % stretches * stretch
            begin, length = bands[band, 2], min(stretch * stride, large - at * stride)
            start, end = max(0, at - left), min(small, at - left + stretch + about.beyond)
            if job == first or stretches > 1:
                clear(panel, channels * height * pitch)
            for channel in range(channels):
                source = address_of(x) + ((outer * channels + channel) * about.plane + begin * small + start) * size
                target = panel + channel * height * pitch + (start - at + left) * size
                for _row in range(begin, bands[band, 3]):
                    lay_row(target, source, end - start, zero)
                    source += small * size
                    target += pitch
            lists = Lists(address_of(tables.terms), address_of(tables.bounds))
            rows = Rows(address_of(tables.rows) + bands[band, 0] * 24, bands[band, 1] - bands[band, 0], length)
            for out_map in range(maps):
                group_map = outer % about.group * maps + out_map
                bias = splat_rows(address_of(b) + group_map * size, element, lanes, 1)
                places = Places(
                    y=address_of(y) + ((outer * maps + out_map) * rows_out * large + at * stride) * size,
                    panel=panel - begin * pitch,
                    window=address_of(w) + (outer % about.group * channels * maps + out_map) * window,
                )
                if stride == 1:
                    grow_rows(places, rows, lists, bias, activation, by_one)
                elif stride == 2:
                    grow_rows(places, rows, lists, bias, activation, by_two)
                elif stride == 4:
                    grow_rows(places, rows, lists, bias, activation, by_four)
                else:
                    grow_rows(places, rows, lists, bias, activation, by_eight)

    return grow_directly


@by_type()
def lay_row(target, source, count, zero):
    """Writes `count` elements, and zeros to the end of their last vector."""
    lanes, size = zero.lanes, zero.element.bitwidth // 8

    def lay(target, source, count, zero):
        for place in range(0, count - lanes + 1, lanes):
            store(target + place * size, load_like(source + place * size, zero))
        rest = count % lanes
        if rest > 0 and count > 0:
            place = (count - rest) * size
            store(target + place, load_masked(source + place, first_lanes(rest, zero), zero))

    return lay


@by_type()
def grow_rows(places, rows, lists, bias, activation, fixed):
    """Writes rows of y, for a stride along the lanes that is fixed as `step`."""
    step, lanes, size = fixed.step, fixed.lanes, fixed.element.bitwidth // 8
    kept, few = KEPT_TERMS[step], step * NARROW
    wide, narrow = fixed.but(vectors=WIDE[step]), fixed.but(vectors=NARROW)

    def grow(places, rows, lists, bias, activation, fixed):
        terms, window, length = lists.terms, places.window, rows.length
        current = lists.bounds + int64_at(rows.table + 16)
        near = keep_terms(bias, terms, current, window, step, kept)
        for row in range(rows.table, rows.table + rows.total * 24, 24):
            out, source, left = places.y + int64_at(row), places.panel + int64_at(row + 8), length
            if lists.bounds + int64_at(row + 16) != current:
                current = lists.bounds + int64_at(row + 16)
                near = keep_terms(bias, terms, current, window, step, kept)
            sums = Sums(near, Lists(terms, current), window, bias)
            while left > few * lanes:
                done = grow_some(out, left, source, sums, activation, wide)
                out, source, left = out + done * step * size, source + done * size, left - done * step
            if left > 0:
                grow_some(out, left, source, sums, activation, narrow)

    return grow


@by_type(inline=True)
def grow_some(out, left, source, sums, activation, fixed):
    """Writes at most `left` neighbours, from so many vectors of positions as are fixed; how many positions."""
    lanes, step, vectors = fixed.lanes, fixed.step, fixed.vectors
    many, positions, size = vectors * step, vectors * lanes, fixed.element.bitwidth // 8
    number = np.dtype(str(fixed.element)).type

    def grow(out, left, source, sums, activation, fixed):
        start = splat(number(0), lanes)
        total = tile_sum_terms(start, sums.near, sums.lists.terms, sums.lists.bounds, sums.window, source, vectors)
        total = activated(tile_add(tile_alternate(total, step), sums.bias), activation)
        if left >= many * lanes:
            tile_store(total, out, lanes * size, many, 1)
        else:
            tile_store_first(total, out, left)
        return positions

    return grow
