"""Which tiles: ints -> ints, one axis at a time.

A tile begins at a multiple of the total stride, and ends a multiple of it before the end of the image. So the size of
every value in it is that of the whole value less a whole number of elements, and everything that depends on how a size
divides by a stride (ceil_mode, auto_pad, sizes that a stride cuts short) is the same in a tile and in the image.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

from unpool.geometry import Span
from unpool.runtime.tiles.links import Edge, needs, reached


@dataclass(frozen=True)
class AxisGeometry:
    """One spatial axis of a graph.

    Attributes:
        size: of the image, in elements.
        sizes: of every value, in its elements.
        steps: elements of the image per element of every value.
        edges: in the order in which the values are made.
        inputs: the tiled inputs.
        outputs: the outputs that are wanted.
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
    """How far an element of an output sees along one axis, in elements of the image.

    Attributes:
        step: from one element of the output to the next.
        field: the receptive field: from the first to the last element that one element of the output depends on.
        before: the halo: by how much that begins before the element's own place, at most.
        after: by how much it ends behind it, at most.
    """

    step: Fraction
    field: int
    before: int
    after: int


@dataclass(frozen=True)
class AxisPart:
    """One cell of the grid along one axis.

    Attributes:
        begin: where the tile begins in the image, in its elements.
        end: how many elements before the end of the image it ends.
        kept: by output, the elements that the tile gives, as the whole output counts them.
    """

    begin: int
    end: int
    kept: Mapping[str, Span]

    def span(self, axis: AxisGeometry, name: str) -> Span:
        """The elements of a value that the tile has, as the whole value counts them."""
        step = axis.steps[name]
        return Span(int(self.begin / step), axis.sizes[name] - int(self.end / step))


def extent(axis: AxisGeometry, output: str) -> Extent:
    """How far an element of an output sees; the most that any of the elements of one total stride sees."""
    step, found = axis.steps[output], []
    for place in range(int(axis.stride / step)):
        spans = reached(axis.edges, output, Span(place, place + 1))
        ends = [(spans[name], axis.steps[name]) for name in axis.inputs if name in spans]
        low, high = (min(span.first * unit for span, unit in ends), max(span.stop * unit for span, unit in ends))
        found.append((high - low, place * step - low, high - (place + 1) * step))
    return Extent(step, *(max(0, ceil(max(part))) for part in zip(*found, strict=True)))


def parts(axis: AxisGeometry, length: int) -> Iterator[AxisPart]:
    """The cells along one axis, each `length` elements of the image, which is a multiple of the total stride."""
    for first in range(0, axis.size, length):
        is_last = first + length >= axis.size
        cells = {name: _cell(axis, name, Span(first, first + length), is_last) for name in axis.outputs}
        kept = {name: span for name, span in cells.items() if span.first < span.stop}
        if kept:
            yield _around(axis, cells, kept)


def _cell(axis: AxisGeometry, name: str, cell: Span, is_last: bool) -> Span:
    """The elements of an output in a cell; the last cell has all that are left."""
    step, size = axis.steps[name], axis.sizes[name]
    return Span(min(size, int(cell.first / step)), size if is_last else min(size, int(cell.stop / step)))


def _around(axis: AxisGeometry, cells: Mapping[str, Span], kept: Mapping[str, Span]) -> AxisPart:
    """The smallest tile that has all that the kept elements depend on, and so much that no value in it is empty."""
    wanted = {name: span if name in kept else Span(span.first - 1, span.first) for name, span in cells.items()}
    spans = needs(axis.edges, axis.sizes, wanted)
    begin = min(span.first * axis.steps[name] for name, span in spans.items())
    end = min((axis.sizes[name] - span.stop) * axis.steps[name] for name, span in spans.items())
    stride = axis.stride
    return AxisPart(int(begin // stride) * stride, int(end // stride) * stride, kept)


def alike(found: Sequence[AxisPart]) -> list[AxisPart]:
    """The same cells in tiles of one length, that of the longest: what a tile is longer by, it reads and leaves.

    >>> [(part.begin, part.end) for part in alike([AxisPart(0, 40, {}), AxisPart(8, 16, {}), AxisPart(40, 0, {})])]
    [(0, 24), (8, 16), (24, 0)]
    """
    least = min((part.begin + part.end for part in found), default=0)
    made = []
    for part in found:
        end = max(0, part.end - (part.begin + part.end - least))
        made.append(AxisPart(least - end, end, part.kept))
    return made


def balanced(size: int, length: int, stride: int) -> int:
    """The shortest cells of which there are as many as of cells of some length.

    >>> balanced(2000, 816, 8)
    672
    """
    count = -(-size // rounded(length, stride))
    return -(-size // (count * stride)) * stride


def rounded(length: int, stride: int) -> int:
    """The length of a cell as a multiple of the total stride, at least one.

    >>> rounded(500, 32), rounded(5, 32)
    (480, 32)
    """
    return max(stride, length // stride * stride)
