"""The tiles of one image: the part of the input that each reads, and the part of the output that it gives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from unpool.geometry import Span
from unpool.runtime.tiles.grid import AxisCell, AxisGeometry
from unpool.runtime.tiles.walk import Axes, Field, Shape, Trace

Slices: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class IndexShift:
    """The way from an index in a tile to one in the image.

    Attributes:
        part: shape of the indexed tensor in the tile.
        whole: its shape in the image.
        shift: the difference of indices in `whole`, between the same coordinates of the tile and of the image.
    """

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
        """One cell of the grid for every shape that a tile reads."""
        along = [{part.begin + part.end: part for part in parts}.values() for parts in self.cells]
        return list(product(*along))

    def max_input_shapes(self) -> dict[str, Shape]:
        """The shapes that a tile reads of the inputs that are cut, the maximum along each axis."""
        cell = [max(along, key=lambda part: -part.begin - part.end) for along in self.cells]
        return {name: _shape(self.trace.fields[name], self._spans(name, cell)) for name in self.inputs}

    def max_output_shape(self, name: str) -> Shape:
        """The shape of the part of an output that a tile gives, the maximum along each axis."""
        field = self.trace.fields[name]
        lengths = [
            max((span.stop - span.first for cell in cells if (span := cell.output_spans.get(name))), default=1)
            for cells in self.cells
        ]
        sizes = zip(field.shape, field.axes, strict=True)
        return tuple(size if axis is None else lengths[axis] for size, axis in sizes)

    def _tile(self, number: int, cell: Sequence[AxisCell]) -> Tile:
        fields = self.trace.fields
        spans = {name: self._spans(name, cell) for name in (*self.inputs, *self.outputs)}
        names = [name for name in self.outputs if all(name in part.output_spans for part in cell)]
        crops, targets = {}, {}
        for name in names:
            output_spans = [part.output_spans[name] for part in cell]
            targets[name] = _slices(fields[name].axes, output_spans)
            crops[name] = _slices(
                fields[name].axes, [_relative(*pair) for pair in zip(output_spans, spans[name], strict=True)]
            )
        inputs = {name: _slices(fields[name].axes, spans[name]) for name in self.inputs}
        indexed = {name: self.trace.indexed_values[name] for name in names if name in self.trace.indexed_values}
        index_shifts = {name: _index_shift(fields[large], self._spans(large, cell)) for name, large in indexed.items()}
        output_shapes = {name: _shape(fields[name], spans[name]) for name in names}
        return Tile(number, inputs, output_shapes, crops, targets, index_shifts)

    def _spans(self, name: str, cell: Sequence[AxisCell]) -> list[Span]:
        return [part.span(axis, name) for axis, part in zip(self.axes, cell, strict=True)]


def _slices(axes: Axes, spans: Sequence[Span]) -> Slices:
    return tuple(slice(None) if axis is None else slice(*spans[axis]) for axis in axes)


def _relative(span: Span, around: Span) -> Span:
    return Span(span.first - around.first, span.stop - around.first)


def _shape(field: Field, spans: Sequence[Span]) -> Shape:
    """The shape of the part of a field that a tile has."""
    sizes = [span.stop - span.first for span in spans]
    pairs = zip(field.shape, field.axes, strict=True)
    return tuple(size if axis is None else sizes[axis] for size, axis in pairs)


def _index_shift(field: Field, spans: Sequence[Span]) -> IndexShift:
    """The way from indices in these spans of a field to indices in the whole field."""
    shift = 0
    for size, axis in zip(field.shape, field.axes, strict=True):
        shift = shift * size + (0 if axis is None else spans[axis].first)
    return IndexShift(_shape(field, spans), field.shape, shift)
