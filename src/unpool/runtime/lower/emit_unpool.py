"""The nodes that take the place of a MaxUnpool: comparisons with the maxima of its MaxPool, or a scatter.

The first form needs no indices. The tap of the maximum of each window is found again, as the first one with its value:

    taps = -1
    for tap in the taps of a window, from the last to the first:
        taps = Where(Equal(elements of x under the tap, y), tap, taps)

Padding is NaN, which equals nothing. Taps are counted row-major, in the type of x, which holds them exactly. Elements
of float16 and bfloat16 are compared in float32, and their pool runs in it: x and y come from the same Cast.

Then the large axes are cut into blocks of one stride. The cell at `phase` of a block is covered by the windows that
start 0, 1, .. blocks before it; each covers it with one tap, the same in every block. So, with taps and values repeated
over the cells of their blocks:

    large = 0
    for shift in the shifts, from the last to the first:
        large = Where(Equal(repeat(taps of the window that far before), tap of the phase), repeat(its values), large)

Where windows overlap, the last one in row-major order wins, as in MaxUnpool. Nothing is computed, values are copied.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import add, mul

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.dtypes import AnyArray
from unpool.geometry import Window, ceil_end, taps_by_shift, upsampled_size
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.passes.rewrite import TO_THE_END, GraphWriter

NO_TAP = -1  # the tap of a window without a maximum
NOT_COVERED = -2  # the tap with which a window covers a cell that it does not cover; no window has this maximum


@dataclass(frozen=True)
class Pooling:
    """A MaxPool with explicit pads, the axes in the order (N, C, D1..Dk); tuples have one item per spatial axis."""

    x: str  # its input
    y: str  # its maxima
    windows: tuple[Window, ...]
    begins: tuple[int, ...]  # padding before an axis, in elements
    ends: tuple[int, ...]  # padding after it
    ceil: bool  # the last window may hang over the end
    large: tuple[int, ...] | None  # sizes of x; None where one of them is not known
    small: tuple[int, ...] | None  # sizes of y; None likewise
    dtype: np.dtype[np.generic]  # element type of x

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.windows)

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        return tuple(window.stride for window in self.windows)

    @property
    def margins(self) -> tuple[int, ...]:
        """Blocks of one stride into which the last window reaches, in addition to its own."""
        return tuple(len(taps_by_shift(window)) - 1 for window in self.windows)

    @property
    def blocks(self) -> tuple[int, ...] | None:
        """Number of blocks of one stride that windows reach, if the sizes are known."""
        return self.small and tuple(map(add, self.small, self.margins))

    @property
    def excess(self) -> tuple[int, ...]:
        """Elements by which the windows reach beyond the end of x; the maximum where sizes are not known."""
        if self.large is None or self.small is None:
            return tuple(
                ceil_end(window, end) if self.ceil else min(window.reach - 1, end)
                for window, end in zip(self.windows, self.ends, strict=True)
            )
        sizes = zip(self.spans(self.small), self.begins, self.large, strict=True)
        return tuple(max(0, span - begin - large) for span, begin, large in sizes)

    def spans(self, small: Sequence[int]) -> tuple[int, ...]:
        """Elements from the first tap of the first window to the last tap of the last, for these sizes of y."""
        return tuple(map(upsampled_size, small, self.windows))


def emit_argmax_taps(writer: GraphWriter, pooling: Pooling) -> str:
    """Write the number of the tap of each window's maximum, (N, C, d1..dk) in the type of x; -1 where there is none."""
    padded = writer.pad(pooling.x, pooling.begins, pooling.excess, np.nan, pooling.dtype)
    covered = _slice_covered(writer, pooling, padded)
    taps = writer.constant(NO_TAP, "no_tap", pooling.dtype)
    coordinates = list(product(*(range(window.size) for window in pooling.windows)))
    for number, tap in reversed(list(enumerate(coordinates))):
        starts = [position * window.dilation for position, window in zip(tap, pooling.windows, strict=True)]
        ends = [start + 1 - window.reach for start, window in zip(starts, pooling.windows, strict=True)]
        elements = writer.slice(covered, starts, [end or TO_THE_END for end in ends], pooling.strides)
        is_largest = writer.node("Equal", [elements, pooling.y], "is_largest")
        taps = writer.node("Where", [is_largest, writer.constant(number, "tap", pooling.dtype), taps], "taps")
    return taps


def _slice_covered(writer: GraphWriter, pooling: Pooling, padded: str) -> str:
    """The elements from the first tap of the first window to the last tap of the last."""
    starts = [0] * pooling.rank
    if pooling.small is not None and pooling.large is not None:
        spans = pooling.spans(pooling.small)
        sizes = zip(pooling.begins, pooling.large, pooling.excess, strict=True)
        return padded if spans == tuple(map(sum, sizes)) else writer.slice(padded, starts, spans)
    strides = writer.constant(pooling.strides, "strides")
    rest = writer.constant([window.reach - window.stride for window in pooling.windows], "rest")
    steps = writer.node("Mul", [writer.spatial_sizes(pooling.y, pooling.rank), strides], "steps")
    return writer.slice(padded, starts, writer.node("Add", [steps, rest], "spans"))


def emit_where_unpool(
    writer: GraphWriter, pooling: Pooling, taps: str, values: str, output: str, *, broadcasts: bool
) -> None:
    """Write `values`, (N, C, d1..dk), into the cells of the taps of `emit_argmax_taps`, and +0 into all others.

    `broadcasts` repeats elements over their blocks by broadcasting along axes of their own, which doubles the number of
    spatial axes; else Resize and Tile repeat them.
    """
    layers = list(_layers(writer, pooling, taps, values))
    large = writer.constant(0, "zero", pooling.dtype)
    if broadcasts:
        inner = writer.constant([3 + 2 * axis for axis in range(pooling.rank)], "phases")
        shape = [size for stride in pooling.strides for size in (stride, 1)][:-1]
    else:
        tiles = _tile_counts(writer, pooling, layers[-1][1])
    for layer_taps, layer_values, phases in layers:
        if broadcasts:
            tap = writer.constant(phases.reshape(shape), "tap_of_phase", pooling.dtype)
            blocks = [writer.node("Unsqueeze", [value, inner], "blocks") for value in (layer_taps, layer_values)]
        else:
            phase_taps = writer.constant(phases[None, None], "tap_of_phase", pooling.dtype)
            tap = writer.node("Tile", [phase_taps, tiles], "tap")
            blocks = [_resize(writer, pooling, value) for value in (layer_taps, layer_values)]
        is_argmax = writer.node("Equal", [blocks[0], tap], "is_chosen")
        large = writer.node("Where", [is_argmax, blocks[1], large], "cells")
    if broadcasts:
        large = writer.node("Reshape", [large, _large_shape(writer, pooling, layers[-1][1])], "large")
    _fit(writer, pooling, large, output)


def _layers(writer: GraphWriter, pooling: Pooling, taps: str, values: str) -> Iterator[tuple[str, str, AnyArray]]:
    """For each shift the taps, the values, and the tap of each phase; of several values of a cell the last one wins."""
    tables, margins = [taps_by_shift(window) for window in pooling.windows], pooling.margins
    sizes = [window.size for window in pooling.windows]
    padded_taps = writer.pad(taps, margins, margins, NO_TAP, pooling.dtype)
    padded_values = writer.pad(values, margins, margins, 0, pooling.dtype)
    for shifts in reversed(list(product(*(range(len(table)) for table in tables)))):
        starts = [most - shift for most, shift in zip(margins, shifts, strict=True)]
        ends = [-shift or TO_THE_END for shift in shifts]
        taps, values = (
            writer.slice(value, starts, ends) if any(margins) else value for value in (padded_taps, padded_values)
        )
        # the row-major number of the tap at every phase, of shape `strides`
        grid = np.meshgrid(*(table[shift] for table, shift in zip(tables, shifts, strict=True)), indexing="ij")
        number = np.ravel_multi_index(tuple(np.maximum(axis, 0) for axis in grid), sizes)
        is_covered = np.logical_and.reduce([axis >= 0 for axis in grid])
        yield taps, values, np.where(is_covered, number, NOT_COVERED).astype(pooling.dtype)


def _large_shape(writer: GraphWriter, pooling: Pooling, values: str) -> str:
    """The shape of all blocks: that of the values of one layer, each spatial size times its stride."""
    if pooling.blocks is not None:
        return writer.constant([0, 0, *map(mul, pooling.blocks, pooling.strides)], "large_shape")
    strides = writer.constant([1, 1, *pooling.strides], "strides")
    return writer.node("Mul", [writer.node("Shape", [values], "shape"), strides], "large_shape")


def _tile_counts(writer: GraphWriter, pooling: Pooling, values: str) -> str:
    if pooling.blocks is not None:
        return writer.constant([1, 1, *pooling.blocks], "tiles")
    ones = writer.constant([1, 1], "ones")
    return writer.node("Concat", [ones, writer.spatial_sizes(values, pooling.rank)], "tiles", axis=0)


def _resize(writer: GraphWriter, pooling: Pooling, value: str) -> str:
    if all(stride == 1 for stride in pooling.strides):
        return value
    scales = writer.constant([1, 1, *pooling.strides], "scales", np.float32)
    mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return writer.node("Resize", [value, "", scales], "repeated", **mode)


def _fit(writer: GraphWriter, pooling: Pooling, blocks: str, output: str) -> None:
    """Cut the cells of x out of whole blocks, with zeros where no window reaches."""
    begins, zeros = list(pooling.begins), [0] * pooling.rank
    if pooling.large is not None and pooling.blocks is not None:
        sizes, ends = list(map(mul, pooling.blocks, pooling.strides)), list(map(add, begins, pooling.large))
        missing = [max(0, end - size) for end, size in zip(ends, sizes, strict=True)]
        padded = writer.pad(blocks, zeros, missing, 0, pooling.dtype)
        if any(begins) or any(size > end for size, end in zip(sizes, ends, strict=True)):
            writer.slice(padded, begins, ends, output=output)
        else:
            writer.rename(padded, output)
        return
    axes = zip(pooling.windows, pooling.margins, pooling.ends, strict=True)
    most = [max(0, window.reach - 1 - margin * window.stride - end) for window, margin, end in axes]
    padded = writer.pad(blocks, zeros, most, 0, pooling.dtype)
    x_sizes = writer.spatial_sizes(pooling.x, pooling.rank)
    if any(begins):
        x_sizes = writer.node("Add", [x_sizes, writer.constant(begins, "begins")], "ends")
    writer.slice(padded, begins, x_sizes, output=output)


def emit_scatter(writer: GraphWriter, node: onnx.NodeProto, shape: str, dtype: np.dtype[np.generic]) -> None:
    """Write a MaxUnpool, whose indices count in the shape that `shape` holds, as a scatter into zeros.

        large = Reshape(ScatterElements(Reshape(ConstantOfShape(S)), Reshape(I), Reshape(X)), S)

    ONNX leaves open what ScatterElements does with duplicate indices and with negative ones; MaxUnpool takes the last
    duplicate and refuses negative indices.
    """
    flat = writer.constant([-1], "flat")
    zero = numpy_helper.from_array(np.zeros(1, dtype), "zero")
    zeros = writer.node("ConstantOfShape", [shape], "zeros", value=zero)
    x, i, cells = (writer.node("Reshape", [name, flat], "flat") for name in (node.input[0], node.input[1], zeros))
    filled = writer.node("ScatterElements", [cells, i, x], "filled", axis=0)
    writer.node("Reshape", [filled, shape], output=node.output[0])


def emit_inferred_shape(writer: GraphWriter, spec: MaxUnpoolSpec, x: str, inferred: Sequence[int] | None) -> str:
    """Write the shape that the attributes of a MaxUnpool give, from its spatial part if that is known.

    The shape is (N, C, D1..Dk) with D = (d - 1) * stride + window - padding.
    """
    shape = writer.node("Shape", [x], "shape")
    outer = writer.node("Gather", [shape, writer.constant([0, 1], "outer")], "outer")
    if inferred is not None:
        return writer.node("Concat", [outer, writer.constant(inferred, "spatial")], "large_shape", axis=0)
    rank = len(spec.windows)
    strides = writer.constant([window.stride for window in spec.windows], "strides")
    rest = [window.size - window.stride - sum(pads) for window, pads in zip(spec.windows, spec.pads, strict=True)]
    steps = writer.node("Mul", [writer.spatial_sizes(x, rank), strides], "steps")
    spatial = writer.node("Add", [steps, writer.constant(rest, "rest")], "spatial")
    return writer.node("Concat", [outer, spatial], "large_shape", axis=0)
