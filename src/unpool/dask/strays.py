"""Where the indices of a MaxUnpool lead: home, into the window of their own element, or anywhere else.

Elements that stay at home meet the chunk that reads them. The others, normally none, are collected from all chunks,
and sorted into buckets by the chunk of the output that they belong to.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import dask.array as da
import numpy as np

from unpool.dask.arrays import by_block
from unpool.dask.cuts import Cut, block, extents, flat_first, kept_cut
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError
from unpool.geometry import Axis, Span, corners
from unpool.indices import Indices, from_part, out_of_range, rebase


@dataclass(frozen=True)
class Unpooling:
    """A MaxUnpool as all its chunks see it: the name for messages, spatial axes, and shapes (N, C, ...) of the whole.

    Attributes:
        label: for messages.
        axes: by spatial axis.
        small: shape of X.
        large: shape of the output.
        counted: shape of the tensor in which the indices count.
    """

    label: str
    axes: tuple[Axis, ...]
    small: tuple[int, ...]
    large: tuple[int, ...]
    counted: tuple[int, ...]


@dataclass(frozen=True)
class Elements:
    """Elements of X: where each is in the whole of X, where in the output it goes, and its value; each (count,)."""

    positions: Indices
    targets: Indices
    values: AnyArray

    @classmethod
    def of(
        cls, chosen: AnyArray, read: Sequence[Span], whole: Unpooling, targets: Indices, values: AnyArray
    ) -> "Elements":
        """Some elements of the part of X that is read."""
        places = from_part(np.flatnonzero(chosen), extents(read), whole.small, flat_first(read, whole.small))
        return cls(places, targets, values)

    def some(self, chosen: Any) -> "Elements":
        """Those that are chosen."""
        return Elements(self.positions[chosen], self.targets[chosen], self.values[chosen])

    def in_order(self) -> "Elements":
        """In the order of X, in which the last of several for one place wins."""
        return self.some(np.argsort(self.positions))


def joined(parts: Sequence[Elements]) -> Elements:
    """All elements of several parts."""
    names = ("positions", "targets", "values")
    return Elements(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def located(indices: Indices, read: Sequence[Span], whole: Unpooling) -> tuple[list[Indices], AnyArray]:
    """The coordinates that indices of a part of X name, by axis, and whether each lies in the window of its element."""
    places = coordinates(indices, whole.counted)
    is_home = np.full(indices.shape, prod(whole.counted) > 0)
    for number, (place, span) in enumerate(zip(places, read, strict=True)):
        first, size = np.arange(span.first, span.stop), 1
        if number > 1:
            axis = whole.axes[number - 2]
            first, size = corners(span, axis.window, axis.begin), axis.window.size
        first = first.reshape(-1, *(1,) * (indices.ndim - number - 1))
        is_home &= (place >= first) & (place < first + size)
    return places, is_home


def require_home(is_home: AnyArray, indices: Indices, read: Sequence[Span], whole: Unpooling) -> None:
    """Refuse indices that leave the windows of their elements.

    Raises:
        IndicesError: some do.
    """
    if is_home.all():
        return
    _require_in_range(~is_home, indices, read, whole)
    position = int(np.flatnonzero(~is_home)[0])
    place = [int(here) + span.first for here, span in zip(np.unravel_index(position, indices.shape), read, strict=True)]
    raise IndicesError(
        f"{whole.label}: local=True: indices in the windows of their own elements expected, got "
        f"{int(indices.flat[position])} at {place}. Give the attributes of the pool, or leave local out."
    )


def far_elements(x: Any, indices: Any, cuts: Sequence[Cut], whole: Unpooling) -> Any:
    """The elements whose indices leave their windows, by number of the chunk of the output; an array without axes.

    Args:
        x: (N, C, d1..dk).
        indices: with the chunks of x.
        cuts: of the output.
        whole: what all chunks share.
    """
    own = [kept_cut(sizes) for sizes in x.chunks]
    numbered = [[1] * len(sizes) for sizes in x.chunks]
    parts = by_block(max_unpool_strays, [x, indices], numbered, object, cuts=own, whole=whole)
    axes = tuple(range(x.ndim))
    meta = np.empty((), object)
    return da.blockwise(
        max_unpool_buckets, (), parts, axes, concatenate=False, dtype=object, meta=meta, cuts=cuts, whole=whole
    )


def max_unpool_strays(
    x: AnyArray, indices: Indices, *, cuts: Sequence[Cut], whole: Unpooling, block_id: tuple[int, ...]
) -> Elements:
    """The elements of one chunk whose indices leave their windows.

    Raises:
        IndicesError: an index is outside the tensor.
    """
    _, read = block(cuts, block_id)
    away = ~located(indices, read, whole)[1]
    _require_in_range(away, indices, read, whole)
    return Elements.of(away, read, whole, rebase(indices[away], whole.counted, whole.large), x[away])


def max_unpool_buckets(
    parts: Iterable[Any], *, cuts: Sequence[Cut], whole: Unpooling
) -> dict[tuple[int, ...], Elements]:
    """The elements of all chunks by the chunk of the output they belong to, with targets that count in it."""
    found = joined(list(_leaves(parts)))
    local, owner = np.zeros_like(found.targets), np.zeros_like(found.targets)
    for place, cut in zip(coordinates(found.targets, whole.large), cuts, strict=True):
        number = np.searchsorted([span.stop for span in cut.made], place, side="right")
        local = local * np.array(cut.sizes)[number] + place - np.array([span.first for span in cut.made])[number]
        owner = owner * len(cut.made) + number
    found = Elements(found.positions, local, found.values)
    shape = tuple(len(cut.made) for cut in cuts)
    return {
        tuple(int(number) for number in np.unravel_index(chunk, shape)): found.some(owner == chunk)
        for chunk in np.unique(owner)
    }


def coordinates(flat: Indices, shape: Sequence[int]) -> list[Indices]:
    """The coordinates of elements, by axis; that of the first is out of its range for what is no element."""
    rest, places = flat, []
    for size in reversed(shape[1:]):
        rest, place = np.divmod(rest, max(1, size))
        places.append(place)
    return [rest, *reversed(places)]


def _leaves(parts: Any) -> Iterator[Elements]:
    if isinstance(parts, Elements):
        yield parts
    else:
        for part in parts:
            yield from _leaves(part)


def _require_in_range(away: AnyArray, indices: Indices, read: Sequence[Span], whole: Unpooling) -> None:
    limit = prod(whole.counted)
    wrong = np.flatnonzero(away & ((indices < 0) | (indices >= limit)))
    if wrong.size:
        raise out_of_range(indices, int(wrong[0]), limit, whole.label, tuple(span.first for span in read))
