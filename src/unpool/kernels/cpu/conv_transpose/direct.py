"""Transposed convolution of few channels per group, each output vector summed in registers from the rows that reach it.

    y[row, u * stride + phase] = b + sum over rows and taps that reach it: x[other row, u - shift(tap)] * w[tap]

The phases of an output row are computed side by side and interleaved in registers, so whole vectors of neighbours are
stored. What is read is a copy of some rows of x with zeros at both ends, so no vector needs a mask to be loaded. These
zeros are multiplied, so weights must be finite; rows outside x are left out.
"""

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from unpool.geometry import Axis
from unpool.kernels.cpu.activation import PLAIN, Ending
from unpool.kernels.cpu.conv_transpose import direct_tables as tables
from unpool.kernels.cpu.conv_transpose.work import Work
from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest, vector_bytes
from unpool.kernels.cpu.machine.jobs import enough
from unpool.kernels.cpu.machine.threads import VECTORISED, Launch, Launches
from unpool.kernels.cpu.vector import (
    Activation,
    activated,
    activation_in_lanes,
    activation_type,
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
from unpool.kernels.cpu.vector.named import Fixed, record

Table = npt.NDArray[np.int64]

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

MOST_PRODUCTS = 16
"""Per output, those in unused lanes counted: with more of them it is worth laying out tiles for a dense product."""

MOST_PRODUCTS_OF_FEW = 10
"""The same for groups of less than FEW_MAPS output channels: what is laid out for a tile of few rows is less."""

FEW_MAPS = 4

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
    most = MOST_PRODUCTS_ALONE if maps == 1 else MOST_PRODUCTS_OF_FEW if maps < FEW_MAPS else MOST_PRODUCTS
    return products <= most and fits(axes, channels, size)


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


def launch(work: Work, ending: Ending = PLAIN) -> Launches:
    """The call that writes a transposed convolution which this way `fits`.

    It takes (x, w, b, y), all C-contiguous and of one type: (N, C, d1..dk); (C, M/group, k1..kk), finite; (M,);
    (N, M, D1..Dk).

    Args:
        work: what is to be computed.
        ending: the activation of the sums.
    """
    outputs = work.batch * work.group * work.maps * work.large
    cost = (outputs + work.batch * work.channels * work.maps * work.small * work.taps) // VECTORISED
    return Launches(cost, lambda threads: _launch(work, ending, cost, threads))


def _launch(work: Work, ending: Ending, cost: int, threads: int) -> Launch:
    """The same in bands for so many threads."""
    last, channels, size = work.axes[-1], work.channels // work.group, work.dtype.itemsize
    lanes = vector_bytes() // size
    taps, left, beyond = tables.taps_of(last, lanes)
    steps = -(-last.large // last.window.stride)
    stretch = min(MOST_STEPS, -(-steps // (4 * lanes)) * 4 * lanes)
    stretches, pitch = -(-steps // stretch), -(-(stretch + beyond) // lanes) * lanes * size
    rows, reach, kinds = tables.rows_of(work.axes[:-1])
    outer = work.batch * work.group * stretches
    bands = tables.bands_of(reach, PANEL_BYTES // (channels * pitch), -(-enough(threads) // outer))
    height = int((bands[:, 3] - bands[:, 2]).max())
    apart = [[work.maps * work.taps * size, height * pitch], [last.window.size * size, pitch], [size, size]]
    rows = tables.in_strips(rows, bands, max(1, STRIP_BYTES // (last.large * size)))
    lists = [tables.products_of(channels, kind, each, apart) for kind in kinds for each in taps]
    bounds = np.cumsum([0, *(len(each) for each in lists)])
    about = About(
        group=work.group, channels=channels, maps=work.maps, stretches=stretches, stretch=stretch,
        pitch=pitch, height=height, small=last.small, large=last.large, stride=last.window.stride,
        left=left, beyond=beyond, plane=work.small, window=work.taps * size,
        activation=Activation(ending.is_active, *ending.bounds),
    )  # fmt: skip
    read = Tables(
        bands, rows * [last.large * size, pitch, 8 * last.window.stride], bounds,
        np.concatenate([*lists, np.zeros((KEPT_TERMS[last.window.stride], 2), np.int64)]),
    )  # fmt: skip
    given, count = record(about, activation=activation_type(work.dtype)), outer * len(bands)
    return Launch(_kernel(work.dtype), count, cost, given, read)


@cache
def _kernel(dtype: np.dtype[Any]):
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
