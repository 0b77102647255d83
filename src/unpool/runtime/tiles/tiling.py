"""The tiles of one image: ints -> ints, from the cells along one axis to the slices that each tile reads and gives.

A tile begins at a multiple of the total stride, and ends a multiple of it before the end of the image. So the size of
every value in it is that of the whole value less a whole number of elements, and everything that depends on how a size
divides by a stride (ceil_mode, auto_pad, sizes that a stride cuts short) is the same in a tile and in the image.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil, lcm, prod
from typing import NamedTuple, TypeAlias

import numpy as np

from unpool.geometry import Span
from unpool.runtime.tiles.links import Edge, required_spans
from unpool.runtime.tiles.walk import Axes, Field, Shape, Trace

Slices: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class AxisGeometry:
    """One spatial axis of a graph: its size in the image, by value its size and step in elements of the image, edges in
    the order of the nodes, the inputs that are cut, and the requested outputs.
    """

    size: int
    sizes: Mapping[str, int]
    steps: Mapping[str, Fraction]
    edges: tuple[Edge, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def stride(self) -> int:
        """The total stride: the smallest shift of the image that shifts every value by whole elements."""
        return lcm(*(step.numerator for step in self.steps.values()))


@dataclass(frozen=True)
class Extent:
    """The receptive field of an element of an output along one axis, in elements of the image.

    Attributes:
        step: from one element of the output to the next.
        field: the receptive field: from the first to the last element that one element of the output depends on.
        before: the halo: the maximum by which that begins before the element's own position.
        after: the maximum by which it ends after it.
    """

    step: Fraction
    field: int
    before: int
    after: int


@dataclass(frozen=True)
class AxisCell:
    """A cell along one axis: the distances of its tile from both ends of the image, and the span of each output."""

    begin: int
    end: int
    output_spans: Mapping[str, Span]

    def span(self, axis: AxisGeometry, name: str) -> Span:
        """The elements of a value that the tile has, as the whole value counts them."""
        step = axis.steps[name]
        return Span(int(self.begin / step), axis.sizes[name] - int(self.end / step))


def extent(axis: AxisGeometry, output: str) -> Extent:
    """The receptive field of an output: the maximum over all its elements in one total stride."""
    step, extents = axis.steps[output], []
    for position in range(int(axis.stride / step)):
        spans = required_spans(axis.edges, {output: Span(position, position + 1)})
        ends = [(spans[name], axis.steps[name]) for name in axis.inputs if name in spans]
        low, high = (min(span.first * unit for span, unit in ends), max(span.stop * unit for span, unit in ends))
        extents.append((high - low, position * step - low, high - (position + 1) * step))
    return Extent(step, *(max(0, ceil(max(values))) for values in zip(*extents, strict=True)))


def axis_cells(axis: AxisGeometry, length: int) -> Iterator[AxisCell]:
    """The cells along one axis, each of `length` elements, a multiple of the total stride; the last has the rest."""
    stride = axis.stride
    for first in range(0, axis.size, length):
        is_last, spans = first + length >= axis.size, {}
        for name in axis.outputs:
            step, size = axis.steps[name], axis.sizes[name]
            stop = size if is_last else min(size, int((first + length) / step))
            spans[name] = Span(min(size, int(first / step)), stop)
        outputs = {name: span for name, span in spans.items() if span.first < span.stop}
        if not outputs:
            continue
        # the smallest tile with everything on which the cell depends, and in which no value is empty
        wanted = {name: outputs.get(name, Span(span.first - 1, span.first)) for name, span in spans.items()}
        read = required_spans(axis.edges, wanted, axis.sizes)
        begin = min(span.first * axis.steps[name] for name, span in read.items())
        end = min((axis.sizes[name] - span.stop) * axis.steps[name] for name, span in read.items())
        yield AxisCell(int(begin // stride) * stride, int(end // stride) * stride, outputs)


def equal_length_cells(cells: Sequence[AxisCell]) -> list[AxisCell]:
    """The cells in tiles of the length of the longest one; a tile discards the results for its extra elements.

    >>> cells = equal_length_cells([AxisCell(0, 40, {}), AxisCell(8, 16, {}), AxisCell(40, 0, {})])
    >>> [(cell.begin, cell.end) for cell in cells]
    [(0, 24), (8, 16), (24, 0)]
    """
    outside = min((cell.begin + cell.end for cell in cells), default=0)
    ends = [max(0, outside - cell.begin) for cell in cells]
    return [AxisCell(outside - end, end, cell.output_spans) for end, cell in zip(ends, cells, strict=True)]


def balance_length(size: int, length: int, stride: int) -> int:
    """The smallest length of a cell that gives the same number of cells.

    >>> balance_length(2000, 816, 8)
    672
    """
    count = -(-size // round_length(length, stride))
    return -(-size // (count * stride)) * stride


def per_axis(size: Sequence[int] | int, count: int) -> list[int]:
    """Sizes by spatial axis; one number is the size along all of them.

    >>> per_axis(256, 2), per_axis((64, 128), 2)
    ([256, 256], [64, 128])
    """
    return [int(size)] * count if isinstance(size, int | np.integer) else [int(length) for length in size]


def round_length(length: int, stride: int) -> int:
    """The length of a cell rounded down to a multiple of the total stride; one stride at least."""
    return max(stride, length // stride * stride)


class IndexShift(NamedTuple):
    """Shapes of an indexed tensor in the tile and in the image, and the shift of indices in the latter."""

    part: Shape
    whole: Shape
    shift: int


@dataclass(frozen=True)
class Tile:
    """One tile. It does not depend on other tiles: any process may run it, in any order.

    Attributes:
        number: of the tile, from 0 in row-major order.
        inputs: by input, the part that the tile reads.
        output_shapes: by output, its shape for the tile.
        crops: by output, the part of it that belongs to the image; outputs to which the tile gives nothing are missing.
        targets: by output, the place of that part in the output of the image.
        index_shifts: for outputs of indices, the way to indices in the image.
    """

    number: int
    inputs: Mapping[str, Slices]
    output_shapes: Mapping[str, Shape]
    crops: Mapping[str, Slices]
    targets: Mapping[str, Slices]
    index_shifts: Mapping[str, IndexShift]


@dataclass(frozen=True)
class Tiling:
    """All tiles of one image. `len` counts them; iterating gives them in row-major order, an index any one of them.

    Attributes:
        axes: by spatial axis, the geometry of the graph.
        cells: of the grid, by spatial axis.
        trace: of the graph for the whole image.
        inputs: names of the inputs that are cut.
        outputs: names of the outputs that are assembled from tiles.
        constant_outputs: names of the outputs that are equal for every tile.
    """

    axes: tuple[AxisGeometry, ...]
    cells: tuple[tuple[AxisCell, ...], ...]
    trace: Trace
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constant_outputs: tuple[str, ...]

    def __len__(self) -> int:
        return prod(map(len, self.cells))

    def __iter__(self) -> Iterator[Tile]:
        return (self._tile(number, cell) for number, cell in enumerate(product(*self.cells)))

    def __getitem__(self, number: int) -> Tile:
        if not 0 <= number < len(self):
            raise IndexError(f"tile: expected a number from 0 to {len(self) - 1}, got {number}.")
        cell, rest = [], number
        for along in reversed(self.cells):
            rest, place = divmod(rest, len(along))
            cell.append(along[place])
        return self._tile(number, tuple(reversed(cell)))

    def shape(self, name: str) -> Shape:
        """The shape of an output for the whole image."""
        return self.trace.fields[name].shape

    def distinct_cells(self) -> list[tuple[AxisCell, ...]]:
        """One cell of the grid for each distinct shape of tiles."""
        along = [{part.begin + part.end: part for part in parts}.values() for parts in self.cells]
        return list(product(*along))

    def max_input_shapes(self) -> dict[str, Shape]:
        """The shapes that a tile reads of the inputs that are cut, the maximum along each axis."""
        cell = [max(along, key=lambda part: -part.begin - part.end) for along in self.cells]
        return {name: _shape(self.trace.fields[name], self._spans(name, cell)) for name in self.inputs}

    def max_output_shape(self, name: str) -> Shape:
        """The shape of the part of an output that a tile gives, the maximum along each axis."""
        lengths = [
            max((span.stop - span.first for cell in cells if (span := cell.output_spans.get(name))), default=1)
            for cells in self.cells
        ]
        return self.trace.fields[name].shape_for(lengths)

    def _tile(self, number: int, cell: Sequence[AxisCell]) -> Tile:
        fields, indexed = self.trace.fields, self.trace.indexed_values
        inputs = {name: _slices(fields[name].axes, self._spans(name, cell)) for name in self.inputs}
        shapes, crops, targets, shifts = dict[str, Shape](), dict[str, Slices](), dict[str, Slices](), {}
        for name in self.outputs:
            if not all(name in part.output_spans for part in cell):
                continue
            field, spans, wanted = fields[name], self._spans(name, cell), [part.output_spans[name] for part in cell]
            pairs = zip(wanted, spans, strict=True)
            cropped = [Span(own.first - span.first, own.stop - span.first) for own, span in pairs]
            shapes[name] = _shape(field, spans)
            crops[name], targets[name] = _slices(field.axes, cropped), _slices(field.axes, wanted)
            if name in indexed:
                shifts[name] = _index_shift(fields[indexed[name]], self._spans(indexed[name], cell))
        return Tile(number, inputs, shapes, crops, targets, shifts)

    def _spans(self, name: str, cell: Sequence[AxisCell]) -> list[Span]:
        return [part.span(axis, name) for axis, part in zip(self.axes, cell, strict=True)]


def _slices(axes: Axes, spans: Sequence[Span]) -> Slices:
    return tuple(slice(None) if axis is None else slice(*spans[axis]) for axis in axes)


def _shape(field: Field, spans: Sequence[Span]) -> Shape:
    return field.shape_for([span.stop - span.first for span in spans])


def _index_shift(field: Field, spans: Sequence[Span]) -> IndexShift:
    shift = 0
    for size, axis in zip(field.shape, field.axes, strict=True):
        shift = shift * size + (0 if axis is None else spans[axis].first)
    return IndexShift(_shape(field, spans), field.shape, shift)
