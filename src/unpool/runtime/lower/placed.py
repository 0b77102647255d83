"""Writes values to where the windows of a MaxPool found their largest, without a scatter.

The large axes are cut into blocks of one stride. The cell at `phase` of a block is covered by the windows that start 0,
1, .. blocks before it; each covers it with one tap, the same in every block. So, with taps and values repeated over the
cells of their blocks:

    large = 0
    for shift in the shifts, from the last to the first:
        large = Where(Equal(repeat(taps of the window that far before), tap of the phase), repeat(its values), large)

Where windows overlap, the last one in row-major order wins, as in MaxUnpool. Nothing is computed, values are copied.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from unpool.dtypes import AnyArray
from unpool.geometry import taps_by_shift
from unpool.runtime.lower.chosen import NO_TAP
from unpool.runtime.lower.pooling import Pooling
from unpool.runtime.lower.writer import TO_THE_END, Writer

NEVER = -2
"""The tap with which a window covers a cell that it does not cover: no window has chosen it."""


def placed(writer: Writer, pooling: Pooling, taps: str, values: str, output: str, *, doubles: bool) -> None:
    """Write the values into the cells that the taps say, and +0 into all others.

    Args:
        writer: of the nodes.
        pooling: whose choice is followed.
        taps: as `chosen_taps` writes them.
        values: (N, C, d1..dk), of the type of x.
        output: name of the result, (N, C, D1..Dk).
        doubles: whether elements are repeated over their blocks by broadcasting along axes of their own, which doubles
            the number of spatial axes; if not, by Resize and Tile.
    """
    layers = list(_layers(writer, pooling, taps, values))
    repeat = _broadcast if doubles else _resized
    _fitted(writer, pooling, repeat(writer, pooling, layers), output)


Layer: TypeAlias = tuple[str, str, AnyArray]
"""For one shift the taps, the values, and the tap of each phase."""


def _layers(writer: Writer, pooling: Pooling, taps: str, values: str) -> Iterator[Layer]:
    """What each shift puts into the blocks; where several have a value for a cell, the last of them wins."""
    tables = [taps_by_shift(window) for window in pooling.windows]
    around = [len(table) - 1 for table in tables]
    padded_taps = writer.padded(taps, around, around, NO_TAP, pooling.dtype)
    padded_values = writer.padded(values, around, around, 0, pooling.dtype)
    for shifts in reversed(list(product(*(range(len(table)) for table in tables)))):
        patterns = [table[shift] for table, shift in zip(tables, shifts, strict=True)]
        starts = [most - shift for most, shift in zip(around, shifts, strict=True)]
        ends = [-shift or TO_THE_END for shift in shifts]
        both = [writer.cut(one, starts, ends) if any(around) else one for one in (padded_taps, padded_values)]
        yield both[0], both[1], _numbered(pooling, patterns)


def _numbered(pooling: Pooling, patterns: Sequence[AnyArray]) -> AnyArray:
    """The row-major number of the tap at every phase, of shape `strides`; NEVER where an axis has none."""
    grid = np.meshgrid(*patterns, indexing="ij")
    number = np.ravel_multi_index(
        tuple(np.maximum(axis, 0) for axis in grid), [window.size for window in pooling.windows]
    )
    is_covered = np.logical_and.reduce([axis >= 0 for axis in grid])
    return np.where(is_covered, number, NEVER).astype(pooling.dtype)


def _broadcast(writer: Writer, pooling: Pooling, layers: Sequence[Layer]) -> str:
    large = writer.constant(0, "zero", pooling.dtype)
    inner = writer.constant([3 + 2 * axis for axis in range(pooling.rank)], "phases")
    for taps, values, phases in layers:
        shape = [size for stride in pooling.strides for size in (stride, 1)][:-1]
        tap = writer.constant(phases.reshape(shape), "tap_of_phase", pooling.dtype)
        wide = [writer.node("Unsqueeze", [one, inner], "blocks") for one in (taps, values)]
        found = writer.node("Equal", [wide[0], tap], "is_chosen")
        large = writer.node("Where", [found, wide[1], large], "cells")
    return writer.node("Reshape", [large, _block_sizes(writer, pooling, layers[-1][1])], "large")


def _block_sizes(writer: Writer, pooling: Pooling, values: str) -> str:
    """The shape of the large value: that of the values of one layer, each spatial size times its stride."""
    around = [len(taps_by_shift(window)) - 1 for window in pooling.windows]
    if pooling.small is not None:
        sizes = zip(pooling.small, around, pooling.strides, strict=True)
        return writer.constant([0, 0, *((size + more) * stride for size, more, stride in sizes)], "large_shape")
    strides = writer.constant([1, 1, *pooling.strides], "strides")
    return writer.node("Mul", [writer.node("Shape", [values], "shape"), strides], "large_shape")


def _resized(writer: Writer, pooling: Pooling, layers: Sequence[Layer]) -> str:
    large = writer.constant(0, "zero", pooling.dtype)
    tiles = _tiles(writer, pooling, layers[-1][1])
    for taps, values, phases in layers:
        tap = writer.node("Tile", [writer.constant(phases[None, None], "tap_of_phase", pooling.dtype), tiles], "tap")
        wide = [_enlarged(writer, pooling, one) for one in (taps, values)]
        found = writer.node("Equal", [wide[0], tap], "is_chosen")
        large = writer.node("Where", [found, wide[1], large], "cells")
    return large


def _tiles(writer: Writer, pooling: Pooling, values: str) -> str:
    """How often the pattern of one block is repeated along every axis."""
    around = [len(taps_by_shift(window)) - 1 for window in pooling.windows]
    if pooling.small is not None:
        counts = [size + more for size, more in zip(pooling.small, around, strict=True)]
        return writer.constant([1, 1, *counts], "tiles")
    ones = writer.constant([1, 1], "ones")
    return writer.node("Concat", [ones, writer.spatial_sizes(values, pooling.rank)], "tiles", axis=0)


def _enlarged(writer: Writer, pooling: Pooling, value: str) -> str:
    if all(stride == 1 for stride in pooling.strides):
        return value
    scales = writer.constant([1, 1, *pooling.strides], "scales", np.float32)
    return writer.node(
        "Resize",
        [value, "", scales],
        "repeated",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _fitted(writer: Writer, pooling: Pooling, blocks: str, output: str) -> None:
    """Cut the cells of x out of whole blocks, with zeros where no window reaches."""
    begins, none = list(pooling.begins), [0] * pooling.rank
    shifts = [len(taps_by_shift(window)) for window in pooling.windows]
    if pooling.large is not None and pooling.small is not None:
        sizes = zip(pooling.small, shifts, pooling.strides, strict=True)
        have = [(size + count - 1) * stride for size, count, stride in sizes]
        ends = [begin + large for begin, large in zip(begins, pooling.large, strict=True)]
        missing = [max(0, end - size) for end, size in zip(ends, have, strict=True)]
        long = writer.padded(blocks, none, missing, 0, pooling.dtype)
        is_fit = not any(begins) and all(size <= end for size, end in zip(have, ends, strict=True))
        if is_fit:
            writer.rename(long, output)
        else:
            writer.cut(long, begins, ends, output=output)
        return
    longest = zip(pooling.windows, shifts, pooling.ends, strict=True)
    most = [max(0, window.reach - 1 - (count - 1) * window.stride - end) for window, count, end in longest]
    long = writer.padded(blocks, none, most, 0, pooling.dtype)
    sizes_of_x = writer.spatial_sizes(pooling.x, pooling.rank)
    if any(begins):
        sizes_of_x = writer.node("Add", [sizes_of_x, writer.constant(begins, "begins")], "ends")
    writer.cut(long, begins, sizes_of_x, output=output)
