"""Elements of a MaxUnpool whose index lies outside the window of the element, and so maybe outside the chunk.

The chunk that reads an element writes it, if its index is in its window. The other elements, normally none, are
collected from all chunks, and sorted by the chunk of the output that they belong to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import dask.array as da
import numpy as np
from dask.core import flatten

from unpool.dask.chunks import AxisChunks, chunk_spans, flat_offset, map_chunks, pointwise_chunks, shape_of
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError
from unpool.geometry import Axis, Span, corners
from unpool.indices import Indices, from_part, out_of_range, rebase


@dataclass(frozen=True)
class UnpoolGeometry:
    """A MaxUnpool of the whole arrays; shapes are (N, C, ...), and `counted` is that in which indices count."""

    label: str
    axes: tuple[Axis, ...]
    small: tuple[int, ...]
    large: tuple[int, ...]
    counted: tuple[int, ...]


@dataclass(frozen=True)
class StrayElements:
    """Elements of X by their flat position in the whole of X, flat target in the output, and value; each (count,)."""

    positions: Indices
    targets: Indices
    values: AnyArray

    @classmethod
    def from_chunk(
        cls, mask: AnyArray, source: Sequence[Span], geometry: UnpoolGeometry, targets: Indices, values: AnyArray
    ) -> "StrayElements":
        """The elements in `mask` of the part of X that a chunk reads."""
        places = from_part(np.flatnonzero(mask), shape_of(source), geometry.small, flat_offset(source, geometry.small))
        return cls(places, targets, values)

    def select(self, mask: Any) -> "StrayElements":
        """The elements of a mask or of an order."""
        return StrayElements(self.positions[mask], self.targets[mask], self.values[mask])


def concatenate(parts: Sequence[StrayElements]) -> StrayElements:
    """All elements of several parts."""
    names = ("positions", "targets", "values")
    return StrayElements(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def locate(indices: Indices, source: Sequence[Span], geometry: UnpoolGeometry) -> tuple[list[Indices], AnyArray]:
    """Coordinates of the indices of a part of X, by axis, and the mask of those in the window of their element."""
    places = coordinates(indices, geometry.counted)
    in_window = np.full(indices.shape, prod(geometry.counted) > 0)
    for number, (place, span) in enumerate(zip(places, source, strict=True)):
        first, size = np.arange(span.first, span.stop), 1
        if number > 1:
            axis = geometry.axes[number - 2]
            first, size = corners(span, axis.window, axis.begin), axis.window.size
        first = first.reshape(-1, *(1,) * (indices.ndim - number - 1))
        in_window &= (place >= first) & (place < first + size)
    return places, in_window


def check_local(in_window: AnyArray, indices: Indices, source: Sequence[Span], geometry: UnpoolGeometry) -> None:
    """Refuse an index outside the window of its element."""
    if in_window.all():
        return
    _check_range(~in_window, indices, source, geometry)
    position = int(np.flatnonzero(~in_window)[0])
    at = [int(each) + span.first for each, span in zip(np.unravel_index(position, indices.shape), source, strict=True)]
    raise IndicesError(
        f"{geometry.label}: local=True: expected indices in the windows of their own elements, got "
        f"{int(indices.flat[position])} at {at}. Pass the attributes of the pool, or leave local out."
    )


def out_of_chunk_elements(x: Any, indices: Any, plan: Sequence[AxisChunks], geometry: UnpoolGeometry) -> Any:
    """Elements with indices outside their windows, by number of the chunk of the output, in an array without axes.

    x is (N, C, d1..dk), and indices have its chunks.
    """
    own = [pointwise_chunks(sizes) for sizes in x.chunks]
    numbered = [[1] * len(sizes) for sizes in x.chunks]
    parts = map_chunks(max_unpool_collect, [x, indices], numbered, object, plan=own, geometry=geometry)
    axes = tuple(range(x.ndim))
    meta = np.empty((), object)
    return da.blockwise(
        max_unpool_sort, (), parts, axes, concatenate=False, dtype=object, meta=meta, plan=plan, geometry=geometry
    )


def max_unpool_collect(
    x: AnyArray, indices: Indices, *, plan: Sequence[AxisChunks], geometry: UnpoolGeometry, block_id: tuple[int, ...]
) -> StrayElements:
    """The elements of one chunk whose indices are outside their windows; one outside the tensor is refused."""
    _, source = chunk_spans(plan, block_id)
    outside = ~locate(indices, source, geometry)[1]
    _check_range(outside, indices, source, geometry)
    targets = rebase(indices[outside], geometry.counted, geometry.large)
    return StrayElements.from_chunk(outside, source, geometry, targets, x[outside])


def max_unpool_sort(
    parts: Iterable[Any], *, plan: Sequence[AxisChunks], geometry: UnpoolGeometry
) -> dict[tuple[int, ...], StrayElements]:
    """The elements of all chunks by their chunk of the output, with targets that count in that chunk."""
    elements = concatenate(list(flatten(parts)))
    local, owner = np.zeros_like(elements.targets), np.zeros_like(elements.targets)
    for place, axis_chunks in zip(coordinates(elements.targets, geometry.large), plan, strict=True):
        number = np.searchsorted([span.stop for span in axis_chunks.output], place, side="right")
        first = np.array([span.first for span in axis_chunks.output])[number]
        local = local * np.array(axis_chunks.sizes)[number] + place - first
        owner = owner * len(axis_chunks.output) + number
    elements = StrayElements(elements.positions, local, elements.values)
    shape = tuple(len(axis_chunks.output) for axis_chunks in plan)
    return {
        tuple(int(number) for number in np.unravel_index(chunk, shape)): elements.select(owner == chunk)
        for chunk in np.unique(owner)
    }


def coordinates(flat: Indices, shape: Sequence[int]) -> list[Indices]:
    """Coordinates of flat indices, by axis; for an index outside the shape the first one is out of its range."""
    rest, places = flat, []
    for size in reversed(shape[1:]):
        rest, place = np.divmod(rest, max(1, size))
        places.append(place)
    return [rest, *reversed(places)]


def _check_range(outside: AnyArray, indices: Indices, source: Sequence[Span], geometry: UnpoolGeometry) -> None:
    limit = prod(geometry.counted)
    wrong = np.flatnonzero(outside & ((indices < 0) | (indices >= limit)))
    if wrong.size:
        raise out_of_range(indices, int(wrong[0]), limit, geometry.label, tuple(span.first for span in source))
