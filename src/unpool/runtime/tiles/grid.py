"""The grid of tiles: ints -> ints, one axis at a time.

A tile begins at a multiple of the total stride, and ends a multiple of it before the end of the image. So the size of
every value in it is that of the whole value less a whole number of elements, and everything that depends on how a size
divides by a stride (ceil_mode, auto_pad, sizes that a stride cuts short) is the same in a tile and in the image.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

from unpool.geometry import Span
from unpool.runtime.tiles.links import Edge, receptive_spans, required_spans


@dataclass(frozen=True)
class AxisGeometry:
    """One spatial axis of a graph.

    Attributes:
        size: of the image, in elements.
        sizes: of every value, in its elements.
        steps: elements of the image per element of every value.
        edges: in the order in which the values are made.
        inputs: the tiled inputs.
        outputs: the requested outputs.
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
    """One cell of the grid along one axis.

    Attributes:
        begin: where the tile begins in the image, in its elements.
        end: the distance of its end from the end of the image, in elements.
        output_spans: by output, the elements that the tile gives, as the whole output counts them.
    """

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
        spans = receptive_spans(axis.edges, output, Span(position, position + 1))
        ends = [(spans[name], axis.steps[name]) for name in axis.inputs if name in spans]
        low, high = (min(span.first * unit for span, unit in ends), max(span.stop * unit for span, unit in ends))
        extents.append((high - low, position * step - low, high - (position + 1) * step))
    return Extent(step, *(max(0, ceil(max(values))) for values in zip(*extents, strict=True)))


def axis_cells(axis: AxisGeometry, length: int) -> Iterator[AxisCell]:
    """The cells along one axis, each of `length` elements of the image, a multiple of the total stride."""
    for first in range(0, axis.size, length):
        is_last = first + length >= axis.size
        spans = {name: _output_span(axis, name, Span(first, first + length), is_last) for name in axis.outputs}
        if any(span.first < span.stop for span in spans.values()):
            yield _cell(axis, spans)


def _output_span(axis: AxisGeometry, name: str, cell: Span, is_last: bool) -> Span:
    """The elements of an output in a cell; the last cell has all that remain."""
    step, size = axis.steps[name], axis.sizes[name]
    return Span(min(size, int(cell.first / step)), size if is_last else min(size, int(cell.stop / step)))


def _cell(axis: AxisGeometry, spans: Mapping[str, Span]) -> AxisCell:
    """The smallest tile with everything on which the elements of a cell depend, in which no value is empty."""
    outputs = {name: span for name, span in spans.items() if span.first < span.stop}
    wanted = {name: span if name in outputs else Span(span.first - 1, span.first) for name, span in spans.items()}
    read = required_spans(axis.edges, axis.sizes, wanted)
    begin = min(span.first * axis.steps[name] for name, span in read.items())
    end = min((axis.sizes[name] - span.stop) * axis.steps[name] for name, span in read.items())
    stride = axis.stride
    return AxisCell(int(begin // stride) * stride, int(end // stride) * stride, outputs)


def equal_length_cells(cells: Sequence[AxisCell]) -> list[AxisCell]:
    """The cells in tiles of the length of the longest one; a tile discards the results for its extra elements.

    >>> cells = equal_length_cells([AxisCell(0, 40, {}), AxisCell(8, 16, {}), AxisCell(40, 0, {})])
    >>> [(cell.begin, cell.end) for cell in cells]
    [(0, 24), (8, 16), (24, 0)]
    """
    outside = min((cell.begin + cell.end for cell in cells), default=0)
    equal = []
    for cell in cells:
        end = max(0, cell.end - (cell.begin + cell.end - outside))
        equal.append(AxisCell(outside - end, end, cell.output_spans))
    return equal


def balance_length(size: int, length: int, stride: int) -> int:
    """The smallest length of a cell that gives the same number of cells.

    >>> balance_length(2000, 816, 8)
    672
    """
    count = -(-size // round_length(length, stride))
    return -(-size // (count * stride)) * stride


def round_length(length: int, stride: int) -> int:
    """The length of a cell rounded down to a multiple of the total stride; one stride at least.

    >>> round_length(500, 32), round_length(5, 32)
    (480, 32)
    """
    return max(stride, length // stride * stride)
