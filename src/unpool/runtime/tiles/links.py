"""Dependences between the elements of values along one axis: ints -> ints, no arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from unpool.geometry import Span, Window, span_reaching, span_read

ONE = Window(1)


@dataclass(frozen=True, slots=True)
class Link:
    """The relation of a node's output to an input along one axis: windows, from large to small or back.

    A negative `begin` skips elements of the large axis. `is_upsampling` where the input is the small axis, as for
    ConvTranspose. `least` is the minimum number of elements of the input for the node to act in a tile as in the image,
    such as those that padding with mode "reflect" repeats.
    """

    window: Window = ONE
    begin: int = 0
    is_upsampling: bool = False
    least: int = 1

    @property
    def rate(self) -> Fraction:
        """Elements of the input per element of the output."""
        return Fraction(1, self.window.stride) if self.is_upsampling else Fraction(self.window.stride)

    def reach(self, output: Span) -> Span:
        """The elements of the input on which elements of the output depend, on an unbounded axis."""
        span = (span_reaching if self.is_upsampling else span_read)(output, self.window, self.begin)
        return Span(span.first, max(span.stop, span.first + 1))

    def reads(self, output: Span, size: int) -> Span:
        """`reach` on an axis of `size` elements; elements that depend on padding depend on the padded end."""
        span = self.reach(output)
        first = max(0, span.first)
        stop = max(span.stop, first + self.least)
        return Span(first, stop) if stop <= size else Span(max(0, min(first, size - self.least)), size)


@dataclass(frozen=True, slots=True)
class Edge:
    """The link of a value to one that it is computed from, along one axis, with the node as messages name it."""

    value: str
    source: str
    link: Link
    node: str


def required_spans(
    edges: tuple[Edge, ...], outputs: Mapping[str, Span], sizes: Mapping[str, int] | None = None
) -> dict[str, Span]:
    """The elements of every value on which elements of some outputs depend, along one axis; unbounded without sizes.

    >>> edges = (Edge("y", "x", Link(Window(3), 1), "Conv"), Edge("z", "y", Link(Window(2, 2)), "MaxPool"))
    >>> required_spans(edges, {"z": Span(3, 5)}, {"x": 20, "y": 20, "z": 10})["x"]
    Span(first=5, stop=11)
    """
    spans = dict(outputs)
    for edge in reversed(edges):
        if edge.value in spans:
            span = spans[edge.value]
            read = edge.link.reach(span) if sizes is None else edge.link.reads(span, sizes[edge.source])
            known = spans.get(edge.source, read)
            spans[edge.source] = Span(min(read.first, known.first), max(read.stop, known.stop))
    return spans


class Strides:
    """Strides of values relative to each other; a node that joins two values joins their systems of strides.

    >>> strides = Strides()
    >>> strides.tie("pooled", "image", Fraction(2)), strides.tie("pooled", "mask", Fraction(1))
    (True, True)
    >>> strides.between("mask", "image"), strides.between("image", "other")
    (Fraction(2, 1), None)
    """

    def __init__(self) -> None:
        self._parents: dict[str, tuple[str, Fraction]] = {}

    def tie(self, value: str, source: str, rate: Fraction) -> bool:
        """Record that one element of `value` is as long as `rate` elements of `source`; False on a contradiction."""
        (top, stride), (other, base) = self._top(value), self._top(source)
        if top == other:
            return stride == rate * base
        self._parents[top] = other, rate * base / stride
        return True

    def between(self, name: str, unit: str) -> Fraction | None:
        """The length of one element of `name` in elements of `unit`; None where no node joins them."""
        (top, stride), (other, base) = self._top(name), self._top(unit)
        return stride / base if top == other else None

    def _top(self, name: str) -> tuple[str, Fraction]:
        """The unit of the system of `name`, and the stride of `name` in its elements."""
        stride = Fraction(1)
        while name in self._parents:
            name, rate = self._parents[name]
            stride *= rate
        return name, stride
