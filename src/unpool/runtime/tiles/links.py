"""How the elements of one value on one axis depend on those of another: ints -> ints, and no arrays."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from unpool.geometry import Span, Window, span_reaching, span_read

ONE = Window(1)


@dataclass(frozen=True, slots=True)
class Link:
    """What a node makes of one axis of an input: a walk over windows, from large to small or back.

    Attributes:
        window: what slides along the axis.
        begin: padding before the first element of the large axis; below 0, so many elements of it are left out.
        grows: whether the input is the small axis, as for ConvTranspose.
        least: elements of the input that the node needs to do in a tile what it does in the image, such as those that
            padding with mode "reflect" repeats.
    """

    window: Window = ONE
    begin: int = 0
    grows: bool = False
    least: int = 1

    @property
    def rate(self) -> Fraction:
        """Elements of the input per element that the node makes."""
        return Fraction(1, self.window.stride) if self.grows else Fraction(self.window.stride)

    def reach(self, made: Span) -> Span:
        """The elements of the input on which some elements that the node makes depend, on an axis without ends.

        >>> Link(Window(3, 2), 1).reach(Span(4, 6)), Link(Window(2, 2), grows=True).reach(Span(4, 7))
        (Span(first=7, stop=12), Span(first=2, stop=4))
        """
        span = (span_reaching if self.grows else span_read)(made, self.window, self.begin)
        return Span(span.first, max(span.stop, span.first + 1))

    def reads(self, made: Span, size: int) -> Span:
        """The same on an axis of `size` elements; what depends on padding depends on the end that is padded.

        >>> Link(Window(3), 1).reads(Span(0, 4), 8), Link(Window(1), 2, least=3).reads(Span(0, 1), 8)
        (Span(first=0, stop=5), Span(first=0, stop=3))
        """
        span = self.reach(made)
        first = max(0, span.first)
        stop = max(span.stop, first + self.least)
        return Span(first, stop) if stop <= size else Span(max(0, min(first, size - self.least)), size)


@dataclass(frozen=True, slots=True)
class Edge:
    """One axis of a value, the value that it is made of, how, and the node that does it, as messages name it."""

    made: str
    source: str
    link: Link
    node: str


def needs(edges: tuple[Edge, ...], sizes: Mapping[str, int], wanted: Mapping[str, Span]) -> dict[str, Span]:
    """The elements of every value that the wanted elements depend on, along one axis.

    Args:
        edges: in the order in which the values are made.
        sizes: of the axis, in elements, by value.
        wanted: elements by value.

    >>> edges = (Edge("y", "x", Link(Window(3), 1), "Conv"), Edge("z", "y", Link(Window(2, 2)), "MaxPool"))
    >>> needs(edges, {"x": 20, "y": 20, "z": 10}, {"z": Span(3, 5)})["x"]
    Span(first=5, stop=11)
    """
    found = dict(wanted)
    for edge in reversed(edges):
        if edge.made in found:
            read = edge.link.reads(found[edge.made], sizes[edge.source])
            found[edge.source] = hull([read, found.get(edge.source, read)])
    return found


def reached(edges: tuple[Edge, ...], output: str, wanted: Span) -> dict[str, Span]:
    """The same for one output, on axes without ends."""
    found = {output: wanted}
    for edge in reversed(edges):
        if edge.made in found:
            read = edge.link.reach(found[edge.made])
            found[edge.source] = hull([read, found.get(edge.source, read)])
    return found


def hull(spans: Iterable[Span]) -> Span:
    """The shortest span around all of them.

    >>> hull([Span(2, 4), Span(7, 9)])
    Span(first=2, stop=9)
    """
    firsts, stops = zip(*spans, strict=True)
    return Span(min(firsts), max(stops))


class Strides:
    """Strides that are known relative to each other, and become one system where a node joins two of them.

    >>> strides = Strides()
    >>> strides.tie("pooled", "image", Fraction(2)), strides.tie("pooled", "mask", Fraction(1))
    (True, True)
    >>> strides.between("mask", "image"), strides.between("image", "other")
    (Fraction(2, 1), None)
    """

    def __init__(self) -> None:
        self._above: dict[str, tuple[str, Fraction]] = {}

    def tie(self, made: str, source: str, rate: Fraction) -> bool:
        """Note that one element of `made` is as long as `rate` elements of `source`; False if it is known otherwise."""
        (top, stride), (other, base) = self._top(made), self._top(source)
        if top == other:
            return stride == rate * base
        self._above[top] = other, rate * base / stride
        return True

    def between(self, name: str, unit: str) -> Fraction | None:
        """How many elements of `unit` one element of `name` is long; None where no node joins them."""
        (top, stride), (other, base) = self._top(name), self._top(unit)
        return stride / base if top == other else None

    def _top(self, name: str) -> tuple[str, Fraction]:
        """The value that a system is measured in, and the stride of `name` in its elements."""
        stride = Fraction(1)
        while name in self._above:
            name, rate = self._above[name]
            stride *= rate
        return name, stride
