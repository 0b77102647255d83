"""How axes are cut into chunks: which elements of the output a chunk makes, and which of the input it reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from unpool.geometry import Axis, Span, span_reaching, span_read


@dataclass(frozen=True)
class Cut:
    """One axis, by chunk of the output.

    Attributes:
        made: the elements of the output that the chunk makes; one after the other, together all.
        read: the elements of the input that it reads; they may overlap. None is empty unless the input is.
    """

    made: tuple[Span, ...]
    read: tuple[Span, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of the chunks of the output."""
        return tuple(span.stop - span.first for span in self.made)


def spans_of(sizes: Sequence[int]) -> tuple[Span, ...]:
    """Chunks by their sizes as spans.

    >>> spans_of((3, 2))
    (Span(first=0, stop=3), Span(first=3, stop=5))
    """
    return tuple(Span(*pair) for pair in pairwise(accumulate(sizes, initial=0)))


def kept_cut(sizes: Sequence[int]) -> Cut:
    """An axis along which nothing is mixed."""
    return Cut(spans_of(sizes), spans_of(sizes))


def shrinking_cut(sizes: Sequence[int], axis: Axis) -> Cut:
    """An axis that is pooled: a chunk makes what windows give that begin in one chunk of the large axis.

    >>> from unpool.geometry import Window
    >>> shrinking_cut((3, 5), Axis(8, 4, Window(3, 2), 1)).read
    (Span(first=0, stop=4), Span(first=3, stop=8))
    """
    behind = [span_reaching(Span(0, chunk.stop), axis.window, axis.begin).stop for chunk in spans_of(sizes)]
    made = _between([0, *(_limited(stop, axis.small) for stop in behind[:-1]), axis.small])
    return Cut(made, tuple(some_of(span_read(span, axis.window, axis.begin), axis.large) for span in made))


def growing_cut(sizes: Sequence[int], axis: Axis, *, own: bool = False) -> Cut:
    """An axis that grows: a chunk makes what is between the beginnings of windows at two chunks of the small axis.

    Args:
        sizes: of the chunks of the small axis.
        axis: both axes.
        own: whether every element of the small axis is read by at least one chunk, even where its window is cut off.

    >>> from unpool.geometry import Window
    >>> growing_cut((3, 5), Axis(17, 8, Window(3, 2)))
    Cut(made=(Span(first=0, stop=6), Span(first=6, stop=17)), read=(Span(first=0, stop=3), Span(first=2, stop=8)))
    """
    starts = [chunk.first for chunk in spans_of(sizes)][1:]
    begins = [
        _limited(span_read(Span(start, start + 1), axis.window, axis.begin).first, axis.large) for start in starts
    ]
    made = _between([0, *begins, axis.large])
    read = [some_of(span_reaching(span, axis.window, axis.begin), axis.small) for span in made]
    if own:
        first = dict(zip(begins, starts, strict=True))
        owned = _between([0, *(first[span.first] for span in made[1:]), axis.small], drop=False)
        read = [_hull(*pair) for pair in zip(read, owned, strict=True)]
    return Cut(made, tuple(read))


def part_of(span: Span, size: int) -> Span:
    """What a span has of an axis, maybe nothing.

    >>> part_of(Span(-2, 3), 8), part_of(Span(9, 12), 8)
    (Span(first=0, stop=3), Span(first=8, stop=8))
    """
    first = _limited(span.first, size)
    return Span(first, max(first, min(span.stop, size)))


def some_of(span: Span, size: int) -> Span:
    """As `part_of`, but an element of the axis that is not in the span rather than nothing."""
    first, stop = part_of(span, size)
    return Span(first, stop) if first < stop or not size else Span(min(first, size - 1), min(first, size - 1) + 1)


def slices(spans: Sequence[Span], origins: Sequence[Span]) -> tuple[slice, ...]:
    """Spans as slices of the part of an array that begins where `origins` do."""
    return tuple(
        slice(span.first - origin.first, span.stop - origin.first) for span, origin in zip(spans, origins, strict=True)
    )


def block(cuts: Sequence[Cut], number: Sequence[int]) -> tuple[list[Span], list[Span]]:
    """What one chunk makes and what it reads, by axis."""
    pairs = list(zip(cuts, number, strict=True))
    return [cut.made[place] for cut, place in pairs], [cut.read[place] for cut, place in pairs]


def extents(spans: Sequence[Span]) -> tuple[int, ...]:
    """The shape of a part."""
    return tuple(span.stop - span.first for span in spans)


def flat_first(spans: Sequence[Span], shape: Sequence[int]) -> int:
    """The flat index of the first element of a part."""
    flat = 0
    for span, size in zip(spans, shape, strict=True):
        flat = flat * size + span.first
    return flat


def overlapping(x: Any, cuts: Sequence[Cut]) -> Any:
    """A dask array whose chunks are what the chunks of the output read of `x`; a slice of a chunk is all that moves."""
    import dask.array as da

    for number, cut in enumerate(cuts):
        if cut.read == spans_of(x.chunks[number]):
            continue
        before = (slice(None),) * number
        parts = [x[(*before, slice(*span))] for span in cut.read]
        x = da.concatenate(parts, axis=number).rechunk({number: extents(cut.read)})
    return x


def _between(edges: Sequence[int], *, drop: bool = True) -> tuple[Span, ...]:
    """From edge to edge, without what is empty; never nothing at all."""
    spans = tuple(Span(*pair) for pair in pairwise(edges))
    return tuple(span for span in spans if span.first < span.stop or not drop) or (Span(0, 0),)


def _limited(place: int, size: int) -> int:
    return min(max(0, place), size)


def _hull(one: Span, other: Span) -> Span:
    return Span(min(one.first, other.first), max(one.stop, other.stop))
