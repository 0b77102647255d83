"""Chunks of dask arrays: elements of the output that a chunk computes, and elements of the input that it reads."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import dask.array as da
import numpy as np

from unpool.errors import ShapeError, UnpoolError
from unpool.geometry import Axis, Span, span_reaching, span_read
from unpool.indices import Indices, from_part


@dataclass(frozen=True)
class AxisChunks:
    """The chunks of one axis: the output in each, and the input that it reads, which is only empty if the input is."""

    output: tuple[Span, ...]
    input: tuple[Span, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of the output in each chunk."""
        return shape_of(self.output)


Plan: TypeAlias = Sequence[AxisChunks]
"""The chunks of all axes of an array."""


def spans_of(sizes: Sequence[int]) -> tuple[Span, ...]:
    """Chunks of these sizes as spans."""
    return tuple(Span(*pair) for pair in pairwise(accumulate(sizes, initial=0)))


def pointwise_chunks(sizes: Sequence[int]) -> AxisChunks:
    """An axis whose output has the chunks of the input."""
    return AxisChunks(spans_of(sizes), spans_of(sizes))


def pooling_chunks(sizes: Sequence[int], axis: Axis) -> AxisChunks:
    """An axis that is pooled: a chunk computes the windows that begin in one chunk of the large axis."""
    stops = [span_reaching(Span(0, chunk.stop), axis.window, axis.begin).stop for chunk in spans_of(sizes)]
    output = _spans_between([0, *(_clamp(stop, axis.small) for stop in stops[:-1]), axis.small])
    covered = (span_read(span, axis.window, axis.begin) for span in output)
    return AxisChunks(output, tuple(clip_nonempty(span, axis.large) for span in covered))


def upsampling_chunks(sizes: Sequence[int], axis: Axis, *, covers_input: bool = False) -> AxisChunks:
    """An axis that is upsampled: a chunk computes the span between the first windows of two chunks of the small axis.

    With `covers_input`, the chunks read every element of the small axis, even one whose window is cut off.
    """
    starts = [chunk.first for chunk in spans_of(sizes)][1:]
    begins = [_clamp(span_read(Span(start, start + 1), axis.window, axis.begin).first, axis.large) for start in starts]
    output = _spans_between([0, *begins, axis.large])
    inputs = [clip_nonempty(span_reaching(span, axis.window, axis.begin), axis.small) for span in output]
    if covers_input:
        start_of = dict(zip(begins, starts, strict=True))
        own = map(Span._make, pairwise([0, *(start_of[span.first] for span in output[1:]), axis.small]))
        inputs = [Span(min(a.first, b.first), max(a.stop, b.stop)) for a, b in zip(inputs, own, strict=True)]
    return AxisChunks(output, tuple(inputs))


def clip(span: Span, size: int) -> Span:
    """The part of a span that lies inside an axis; it may be empty."""
    first = _clamp(span.first, size)
    return Span(first, max(first, min(span.stop, size)))


def clip_nonempty(span: Span, size: int) -> Span:
    """As `clip`, but the nearest element of the axis instead of an empty span."""
    first, stop = clip(span, size)
    return Span(first, stop) if first < stop or not size else Span(min(first, size - 1), min(first, size - 1) + 1)


def _spans_between(edges: Sequence[int]) -> tuple[Span, ...]:
    """From edge to edge, without empty spans; a single empty one if all are."""
    return tuple(Span(*pair) for pair in pairwise(edges) if pair[0] < pair[1]) or (Span(0, 0),)


def _clamp(position: int, size: int) -> int:
    return min(max(0, position), size)


def shape_of(spans: Sequence[Span]) -> tuple[int, ...]:
    """The sizes of spans."""
    return tuple(span.stop - span.first for span in spans)


def flat_index(places: Iterable[Any], shape: Sequence[int]) -> Any:
    """The flat int64 indices of coordinates by axis."""
    flat: Any = np.int64(0)
    for place, size in zip(places, shape, strict=True):
        flat = flat * size + place
    return flat


def whole_indices(indices: Indices, spans: Sequence[Span], shape: tuple[int, ...]) -> Indices:
    """Flat indices in a part of an array as those in the whole of this shape."""
    return from_part(indices, shape_of(spans), shape, int(flat_index([span.first for span in spans], shape)))


def slices(spans: Sequence[Span], origins: Sequence[Span]) -> tuple[slice, ...]:
    """Spans as slices of the part of an array that begins at `origins`."""
    pairs = zip(spans, origins, strict=True)
    return tuple(slice(span.first - origin.first, span.stop - origin.first) for span, origin in pairs)


def chunk_spans(plan: Plan, block_id: Sequence[int]) -> tuple[list[Span], list[Span]]:
    """The output and the input of one chunk, by axis."""
    pairs = list(zip(plan, block_id, strict=True))
    return [axis.output[number] for axis, number in pairs], [axis.input[number] for axis, number in pairs]


def read_chunks(x: Any, plan: Plan) -> Any:
    """A dask array whose chunks are the inputs of the chunks of the output; only slices of chunks are moved."""
    for axis, each in enumerate(plan):
        if each.input == spans_of(x.chunks[axis]):
            continue
        before = (slice(None),) * axis
        parts = [x[(*before, slice(*span))] for span in each.input]
        x = da.concatenate(parts, axis=axis).rechunk({axis: shape_of(each.input)})
    return x


def map_chunks(
    function: Callable[..., Any], arrays: Sequence[Any], sizes: Sequence[Sequence[int]], dtype: Any, **options: Any
) -> Any:
    """An array whose chunks, of these sizes, are the results of a function of the chunks with the same number.

    Arrays without axes go to every call, as do `options`. Results that are no arrays have the dtype `object`, and must
    be unpacked before users see them.
    """
    return da.map_blocks(
        function,
        *arrays,
        chunks=tuple(map(tuple, sizes)),
        dtype=dtype,
        meta=np.empty((0,) * len(sizes), dtype),
        token=f"unpool.{function.__name__}",
        **options,
    )


def check_array(x: Any, name: str) -> Any:
    """The array, which must be a dask array whose chunks have known sizes."""
    if not isinstance(x, da.Array):
        raise UnpoolError(f"{name}: expected a dask array, got {type(x).__name__}. Use dask.array.from_array(...).")
    if math.isnan(math.prod(x.shape)):
        raise ShapeError(
            f"{name}: expected chunks of known sizes, got shape {x.shape}. Call its compute_chunk_sizes() first."
        )
    return x


def channels_first(x: Any, layout: str) -> Any:
    """(N, C, D1..Dk) of an array in the caller's layout."""
    return da.moveaxis(x, -1, 1) if layout == "NHWC" else x


def in_layout(y: Any, layout: str) -> Any:
    """(N, C, D1..Dk) in the caller's layout."""
    return da.moveaxis(y, 1, -1) if layout == "NHWC" else y
