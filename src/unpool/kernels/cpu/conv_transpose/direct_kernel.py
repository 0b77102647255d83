"""The compiled part of direct transposed convolution: rows of x are laid out, outputs are summed in registers."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.vector.specialize import StaticArgs, overload_by_type

Table = npt.NDArray[np.int64]

STRIDES = (1, 2, 4, 8)  # strides along the lanes, for which phases are interleaved in registers

NARROW = 2
"""Vectors of positions that are summed together at the end of a row: with their phases enough to hide latency."""

WIDE = {1: 4, 2: 4, 4: 2, 8: 2}
"""The same before the end, per stride: more of them share a loaded weight, but fewer fit into registers."""

LOADED_TERMS = {1: 8, 2: 4, 4: 4, 8: 0}
"""Per stride, the terms of each sum that stay in registers while a row is written; the others are loaded each time."""


class DirectParams(NamedTuple):
    """Arguments of a call. Sizes are in elements, except `pitch` and `window`."""

    group: int  # number of groups
    channels: int  # of x, in a group
    maps: int  # of y, in a group
    stretches: int  # parts of the lanes
    stretch: int  # positions along the lanes in one of them
    pitch: int  # bytes between the rows of the panel
    height: int  # rows of the panel for each channel
    small: int  # lanes of x
    large: int  # lanes of y
    stride: int  # along the lanes
    left: int  # of a row of the panel, those before the first position
    beyond: int  # elements that are read after the last position
    plane: int  # of x
    window: int  # bytes of it
    activation: vec.ActivationParams  # of the sums


class DirectTables(NamedTuple):
    """All tables that the kernel takes."""

    bands: Table  # first and last output row, first and last input row
    rows: Table  # for every output row where it begins in y and in the panel, and what precedes its bounds, in bytes
    bounds: Table  # where lists of terms begin
    terms: Table  # bytes in the window, bytes in the panel


class BandAddresses(NamedTuple):
    """Addresses of the inputs and the output of a band of rows, for one output channel."""

    y: int  # of its part of the plane
    panel: int  # of row 0 of x, if it were there
    window: int  # of its weights


class TermLists(NamedTuple):
    """Addresses of the terms of all sums."""

    terms: int  # of all of them
    bounds: int  # per list, of the numbers of its first term and of the next list's


class RowRange(NamedTuple):
    """Some rows of y."""

    table: int  # address of the entry of the first
    total: int  # number of them
    length: int  # neighbours to write in each


class RowTerms(NamedTuple):
    """The sums of one row."""

    near: Any  # terms that `load_terms` holds in registers
    lists: TermLists  # all terms
    window: int  # address of the weights
    bias: Any  # in all lanes


@cache
def make_kernel(dtype: np.dtype[Any]):
    """The compiled kernel for a type of x, w, b and y."""
    element, size, number = getattr(types, dtype.name), dtype.itemsize, dtype.type
    lanes = vector_bytes() // size
    static = StaticArgs(element=element, lanes=lanes)
    by_one, by_two, by_four, by_eight = (static.replace(step=step) for step in STRIDES)

    @jit()
    def conv_transpose_direct(x, w, b, y, args, tables, first, stop):
        """Write some bands of rows, in the memory order of y.

        for every element of the batch and group, for every band of rows, for every stretch of the lanes
            for every output channel, for every row, for every vector of positions, for every phase
                for every channel, input row and tap, in registers
        """
        params, bands = args[0], tables.bands
        channels, maps, stretches, stretch = params.channels, params.maps, params.stretches, params.stretch
        pitch, height, small, large, stride = params.pitch, params.height, params.small, params.large, params.stride
        left, window = params.left, params.window
        zero, activation = vec.splat(number(0), lanes), vec.splat_activation(params.activation, lanes)
        parts, rows_out = bands.shape[0] * stretches, tables.rows.shape[0]
        memory = np.empty(channels * height * pitch // size + 64, number)
        for job in range(first, stop):
            panel, outer, part = -(-vec.address_of(memory) // 64) * 64, job // parts, job % parts
            band, at = part // stretches, part % stretches * stretch
            begin, length = bands[band, 2], min(stretch * stride, large - at * stride)
            start, end = max(0, at - left), min(small, at - left + stretch + params.beyond)
            if job == first or stretches > 1:
                vec.clear(panel, channels * height * pitch)
            for channel in range(channels):
                source = (
                    vec.address_of(x) + ((outer * channels + channel) * params.plane + begin * small + start) * size
                )
                target = panel + channel * height * pitch + (start - at + left) * size
                for _row in range(begin, bands[band, 3]):
                    lay_row(target, source, end - start, zero)
                    source += small * size
                    target += pitch
            lists = TermLists(vec.address_of(tables.terms), vec.address_of(tables.bounds))
            rows = RowRange(vec.address_of(tables.rows) + bands[band, 0] * 24, bands[band, 1] - bands[band, 0], length)
            for out_map in range(maps):
                group_map = outer % params.group * maps + out_map
                bias = vec.splat_rows(vec.address_of(b) + group_map * size, element, lanes, 1)
                places = BandAddresses(
                    y=vec.address_of(y) + ((outer * maps + out_map) * rows_out * large + at * stride) * size,
                    panel=panel - begin * pitch,
                    window=vec.address_of(w) + (outer % params.group * channels * maps + out_map) * window,
                )
                if stride == 1:
                    write_rows(places, rows, lists, bias, activation, by_one)
                elif stride == 2:
                    write_rows(places, rows, lists, bias, activation, by_two)
                elif stride == 4:
                    write_rows(places, rows, lists, bias, activation, by_four)
                else:
                    write_rows(places, rows, lists, bias, activation, by_eight)

    return conv_transpose_direct


@overload_by_type()
def lay_row(target, source, count, zero):
    """Writes `count` elements, and zeros to the end of their last vector."""
    lanes, size = zero.lanes, zero.element.bitwidth // 8

    def lay(target, source, count, zero):
        for place in range(0, count - lanes + 1, lanes):
            vec.store(target + place * size, vec.load_like(source + place * size, zero))
        rest = count % lanes
        if rest > 0 and count > 0:
            place = (count - rest) * size
            vec.store(target + place, vec.load_masked(source + place, vec.first_lanes(rest, zero), zero))

    return lay


@overload_by_type()
def write_rows(places, rows, lists, bias, activation, static):
    """Writes rows of y, for the stride `static.step` along the lanes."""
    step, lanes, size = static.step, static.lanes, static.element.bitwidth // 8
    loaded, few = LOADED_TERMS[step], step * NARROW
    wide, narrow = static.replace(vectors=WIDE[step]), static.replace(vectors=NARROW)

    def write(places, rows, lists, bias, activation, static):
        terms, window, length = lists.terms, places.window, rows.length
        current = lists.bounds + vec.int64_at(rows.table + 16)
        near = vec.load_terms(bias, terms, current, window, step, loaded)
        for row in range(rows.table, rows.table + rows.total * 24, 24):
            out, source, left = places.y + vec.int64_at(row), places.panel + vec.int64_at(row + 8), length
            if lists.bounds + vec.int64_at(row + 16) != current:
                current = lists.bounds + vec.int64_at(row + 16)
                near = vec.load_terms(bias, terms, current, window, step, loaded)
            sums = RowTerms(near, TermLists(terms, current), window, bias)
            while left > few * lanes:
                done = write_block(out, left, source, sums, activation, wide)
                out, source, left = out + done * step * size, source + done * size, left - done * step
            if left > 0:
                write_block(out, left, source, sums, activation, narrow)

    return write


@overload_by_type(inline=True)
def write_block(out, left, source, sums, activation, static):
    """Writes at most `left` neighbours, from `static.vectors` vectors of positions; the number of positions."""
    lanes, step, vectors = static.lanes, static.step, static.vectors
    many, positions, size = vectors * step, vectors * lanes, static.element.bitwidth // 8
    number = np.dtype(str(static.element)).type

    def write(out, left, source, sums, activation, static):
        start = vec.splat(number(0), lanes)
        total = vec.tile_sparse_dot(start, sums.near, sums.lists.terms, sums.lists.bounds, sums.window, source, vectors)
        total = vec.activate_sums(vec.tile_add(vec.tile_alternate(total, step), sums.bias), activation)
        if left >= many * lanes:
            vec.tile_store(total, out, lanes * size, many, 1)
        else:
            vec.tile_store_first(total, out, left)
        return positions

    return write
