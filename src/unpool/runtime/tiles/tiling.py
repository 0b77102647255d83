"""The tiles of one image: what each reads, what of its results is kept, and where that goes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from unpool.geometry import Span
from unpool.runtime.tiles.grid import AxisGeometry, AxisPart
from unpool.runtime.tiles.walk import Axes, Field, Shape, Trace

Slices: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class Counting:
    """How indices that count in a tile count in the image.

    Attributes:
        part: shape of the tensor in which they count in the tile.
        whole: its shape in the image.
        shift: what to add to an index that means the same coordinates in `whole`.
    """

    part: Shape
    whole: Shape
    shift: int


@dataclass(frozen=True)
class Tile:
    """One tile. It does not depend on other tiles: any process may run it, in any order.

    Attributes:
        number: of the tile, from 0 in row-major order.
        inputs: by input, what the tile reads of it.
        made: by output, the shape of what the model gives for the tile.
        kept: by output, which part of what the model gives for the tile belongs to the image; outputs of which the tile
            gives nothing are missing.
        filled: by output, where that part goes in the output of the image.
        counting: for outputs of indices, how they count.
    """

    number: int
    inputs: Mapping[str, Slices]
    made: Mapping[str, Shape]
    kept: Mapping[str, Slices]
    filled: Mapping[str, Slices]
    counting: Mapping[str, Counting]


@dataclass(frozen=True)
class Tiling:
    """All tiles of one image. `len` counts them; iterating gives them in row-major order, an index any one of them.

    Attributes:
        axes: by spatial axis, what the graph does along it.
        parts: by spatial axis, the cells along it.
        trace: of the graph for the whole image.
        inputs: names of the inputs that are cut.
        outputs: names of the outputs that are put together.
        fixed: the outputs that are the same for every tile.
    """

    axes: tuple[AxisGeometry, ...]
    parts: tuple[tuple[AxisPart, ...], ...]
    trace: Trace
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fixed: tuple[str, ...]

    def __len__(self) -> int:
        return prod(map(len, self.parts))

    def __iter__(self) -> Iterator[Tile]:
        return (self._tile(number, cell) for number, cell in enumerate(product(*self.parts)))

    def __getitem__(self, number: int) -> Tile:
        if not 0 <= number < len(self):
            raise IndexError(f"tile: expected a number from 0 to {len(self) - 1}, got {number}.")
        cell, rest = [], number
        for along in reversed(self.parts):
            rest, place = divmod(rest, len(along))
            cell.append(along[place])
        return self._tile(number, tuple(reversed(cell)))

    def shape(self, name: str) -> Shape:
        """The shape of an output for the whole image."""
        return self.trace.fields[name].shape

    def distinct(self) -> list[tuple[AxisPart, ...]]:
        """Cells of the grid of which no two read images of one shape; every shape that a tile reads is among them."""
        along = [{part.begin + part.end: part for part in parts}.values() for parts in self.parts]
        return list(product(*along))

    def largest(self) -> dict[str, Shape]:
        """The shapes that a tile reads of the inputs that are cut, at most along each axis."""
        cell = [max(along, key=lambda part: -part.begin - part.end) for along in self.parts]
        return {name: _shape(self.trace.fields[name], self._spans(name, cell)) for name in self.inputs}

    def _tile(self, number: int, cell: Sequence[AxisPart]) -> Tile:
        fields = self.trace.fields
        spans = {name: self._spans(name, cell) for name in (*self.inputs, *self.outputs)}
        given = [name for name in self.outputs if all(name in part.kept for part in cell)]
        kept, filled = {}, {}
        for name in given:
            wanted = [part.kept[name] for part in cell]
            filled[name] = _slices(fields[name].axes, wanted)
            kept[name] = _slices(fields[name].axes, [_within(*pair) for pair in zip(wanted, spans[name], strict=True)])
        inputs = {name: _slices(fields[name].axes, spans[name]) for name in self.inputs}
        counted = {name: self.trace.counted[name] for name in given if name in self.trace.counted}
        counting = {name: _counting(fields[large], self._spans(large, cell)) for name, large in counted.items()}
        made = {name: _shape(fields[name], spans[name]) for name in given}
        return Tile(number, inputs, made, kept, filled, counting)

    def _spans(self, name: str, cell: Sequence[AxisPart]) -> list[Span]:
        return [part.span(axis, name) for axis, part in zip(self.axes, cell, strict=True)]


def _slices(axes: Axes, spans: Sequence[Span]) -> Slices:
    return tuple(slice(None) if axis is None else slice(*spans[axis]) for axis in axes)


def _within(span: Span, around: Span) -> Span:
    return Span(span.first - around.first, span.stop - around.first)


def _shape(field: Field, spans: Sequence[Span]) -> Shape:
    """The shape of the part of a field that a tile has."""
    sizes = [span.stop - span.first for span in spans]
    pairs = zip(field.shape, field.axes, strict=True)
    return tuple(size if axis is None else sizes[axis] for size, axis in pairs)


def _counting(field: Field, spans: Sequence[Span]) -> Counting:
    """How indices count that count in a field, of which a tile has these spans."""
    shift = 0
    for size, axis in zip(field.shape, field.axes, strict=True):
        shift = shift * size + (0 if axis is None else spans[axis].first)
    return Counting(_shape(field, spans), field.shape, shift)
