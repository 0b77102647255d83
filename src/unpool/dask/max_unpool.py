"""MaxUnpool on dask arrays.

The chunk that reads an element writes it, if its index is in the window of the element. All other elements, normally
none, are collected from all chunks, and sorted by the chunk of the output that they belong to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import dask.array as da
import numpy as np
from dask.core import flatten

from unpool import functional
from unpool.calls import spec_of
from unpool.dask import chunks
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError, UnpoolError
from unpool.execute import shape_value
from unpool.execute.arrays import check_type
from unpool.geometry import Axis, Span, corners
from unpool.indices import Indices, out_of_range, rebase
from unpool.operators import max_unpool as operator
from unpool.operators.attributes import plain, shape_tensor
from unpool.operators.tensors import index_type


@dataclass(frozen=True)
class UnpoolGeometry:
    """A MaxUnpool of the whole arrays; shapes are (N, C, ...), and indices count in `counted`."""

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
        return cls(chunks.whole_indices(np.flatnonzero(mask), source, geometry.small), targets, values)

    @classmethod
    def concatenate(cls, parts: Sequence["StrayElements"]) -> "StrayElements":
        """All elements of several parts."""
        names = ("positions", "targets", "values")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def select(self, mask: Any) -> "StrayElements":
        """The elements of a mask or of an order."""
        return StrayElements(self.positions[mask], self.targets[mask], self.values[mask])


def max_unpool(  # noqa: PLR0913  keyword-only public options, one per ONNX attribute
    x: Any,
    indices: Any,
    output_shape: Any = None,
    *,
    kernel_shape: Sequence[int] | int,
    strides: Sequence[int] | int | None = None,
    pads: Sequence[int] | int | None = None,
    index_space: str = "auto",
    local: bool = False,
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    opset: int | None = None,
    compat: str = "spec",
) -> Any:
    """Dask array of zeros with every element of x at its index, with the bits of `unpool.max_unpool`.

    Elements whose index is in their own window are written chunk by chunk. All other elements are first collected from
    all chunks of x, so no chunk of the output is ready before all of x is computed. The indices of the matching pool
    are always in their windows. `local=True` promises that, and needs only the memory of a few chunks.

    Args and options are those of `unpool.max_unpool`, with these differences:

    - x and indices are dask arrays with any chunks; indices refer to the whole tensor.
    - output_shape is a sequence or a NumPy array.
    - index_space may be "auto" only if output_shape is the inferred shape, because no chunk has all indices.
    - local promises that every index is in the window of its own element, which is checked.

    Returns:
        a dask array whose chunks follow those of x. Computing it raises IndicesError if an index is outside the tensor,
        or with `local` outside its window.

    Raises:
        UnpoolError: as by `unpool.max_unpool`, before anything is computed; also if index_space is ambiguous. A
            ShapeError if sizes of chunks are unknown.

    Source: ONNX MaxUnpool 9, 11, 22.

    >>> import dask.array as da
    >>> x, indices = da.from_array(np.float32([[[7, 9]]]), chunks=1), da.from_array(np.array([[[1, 2]]]), chunks=1)
    >>> max_unpool(x, indices, kernel_shape=[2], strides=[2]).compute()
    array([[[0., 7., 9., 0.]]], dtype=float32)
    """
    x, indices = chunks.check_array(x, "MaxUnpool: X"), chunks.check_array(indices, "MaxUnpool: I")
    arguments = {
        "kernel_shape": kernel_shape, "strides": strides, "pads": pads, "activation": activation,
        "activation_params": activation_params, "opset": opset, "layout": layout, "compat": compat,
        "index_space": index_space,
    }  # fmt: skip
    spec = cast(operator.MaxUnpoolSpec, spec_of("MaxUnpool", arguments, (x,)))
    check_type(spec.version, spec.activation, x.dtype)
    index_type(spec.version.label, "I", indices.dtype)
    sizes = plain(output_shape)
    if isinstance(sizes, (list, tuple)):
        sizes = shape_tensor(spec.version, sizes)
    if not isinstance(sizes, np.ndarray | None):
        raise UnpoolError(
            f"{spec.version.label}: output_shape: expected a sequence or NumPy array, got {type(sizes).__name__}. "
            "Compute it first."
        )
    call = operator.call(spec, x.shape, indices.shape, shape_value(spec.version, sizes))
    x = chunks.channels_first(x, layout)
    indices = indices.rechunk(x.chunks)
    plan = [
        *map(chunks.pointwise_chunks, x.chunks[:2]),
        *(chunks.upsampling_chunks(*each, covers_input=True) for each in zip(x.chunks[2:], call.axes, strict=True)),
    ]
    if call.index_space == "auto":
        raise UnpoolError(
            f"{spec.version.label}: index_space: expected 'output' or 'inferred', because output_shape "
            f"{list(call.large.spatial)} is not the inferred shape {list(call.inferred)} and no chunk has all "
            "indices; got 'auto'. Pass the one that the indices count in."
        )
    small, large = call.small.in_onnx_order(), call.large.in_onnx_order()
    counted = (*small[:2], *call.inferred) if call.index_space == "inferred" else large
    geometry = UnpoolGeometry(spec.version.label, call.axes, small, large, counted)
    arrays = [chunks.read_chunks(x, plan), chunks.read_chunks(indices, plan)]
    if not local:
        arrays.append(_stray_elements(x, indices, plan, geometry))
    y = chunks.map_chunks(
        max_unpool_chunk,
        arrays,
        [axis.sizes for axis in plan],
        x.dtype,
        plan=plan,
        geometry=geometry,
        activation_options={"activation": activation, "activation_params": activation_params},
    )
    return chunks.in_layout(y, layout)


def max_unpool_chunk(
    x: AnyArray,
    indices: AnyArray,
    moved: Mapping[tuple[int, ...], StrayElements] | None = None,
    *,
    plan: chunks.Plan,
    geometry: UnpoolGeometry,
    activation_options: Mapping[str, Any],
    block_id: tuple[int, ...],
) -> AnyArray:
    """One chunk of the output; `moved` are the elements outside their windows, by chunk of the output."""
    output, source = chunks.chunk_spans(plan, block_id)
    places, in_window = _locate(indices, source, geometry)
    if moved is None and not in_window.all():
        _refuse_stray(in_window, indices, source, geometry)
    in_chunk = in_window
    for place, span in zip(places[2:], output[2:], strict=True):
        in_chunk = in_chunk & (place >= span.first) & (place < span.stop)
    shape = chunks.shape_of(output)
    targets = chunks.flat_index((place - span.first for place, span in zip(places, output, strict=True)), shape)
    arriving = None if moved is None else moved.get(block_id)
    options: dict[str, Any] = {"index_space": "output", "threads": 1, **activation_options}
    if arriving is None and in_chunk.all():
        pads = []  # that keep the alignment of the windows
        for axis, span, part in zip(geometry.axes, output[2:], source[2:], strict=True):
            begin = int(corners(part, axis.window, axis.begin)[0]) if part.first < part.stop else span.first
            pads.append(max(0, span.first - begin))
        options["kernel_shape"] = [axis.window.size for axis in geometry.axes]
        options["strides"] = [axis.window.stride for axis in geometry.axes]
        return cast(AnyArray, functional.max_unpool(x, targets, shape, pads=pads + [0] * len(pads), **options))
    elements = StrayElements.from_chunk(in_chunk, source, geometry, targets[in_chunk], x[in_chunk])
    if arriving is not None:
        elements = StrayElements.concatenate([elements, arriving])
        elements = elements.select(np.argsort(elements.positions))  # the last one in X for a target wins
    values, flat_targets = elements.values[None, None], elements.targets[None, None]
    y = functional.max_unpool(values, flat_targets, (1, 1, prod(shape)), kernel_shape=1, **options)
    return cast(AnyArray, y.reshape(shape))


def _locate(indices: Indices, source: Sequence[Span], geometry: UnpoolGeometry) -> tuple[list[Indices], AnyArray]:
    """Coordinates of the indices of a part of X, by axis, and the mask of those in the window of their element."""
    places = _coordinates(indices, geometry.counted)
    in_window = np.full(indices.shape, prod(geometry.counted) > 0)
    for number, (place, span) in enumerate(zip(places, source, strict=True)):
        first, size = np.arange(span.first, span.stop), 1
        if number > 1:
            axis = geometry.axes[number - 2]
            first, size = corners(span, axis.window, axis.begin), axis.window.size
        first = first.reshape(-1, *(1,) * (indices.ndim - number - 1))
        in_window &= (place >= first) & (place < first + size)
    return places, in_window


def _refuse_stray(in_window: AnyArray, indices: Indices, source: Sequence[Span], geometry: UnpoolGeometry) -> None:
    _check_range(~in_window, indices, source, geometry)
    position = int(np.flatnonzero(~in_window)[0])
    at = [int(each) + span.first for each, span in zip(np.unravel_index(position, indices.shape), source, strict=True)]
    raise IndicesError(
        f"{geometry.label}: local=True: expected indices in the windows of their own elements, got "
        f"{int(indices.flat[position])} at {at}. Pass the attributes of the pool, or leave local out."
    )


def _stray_elements(x: Any, indices: Any, plan: chunks.Plan, geometry: UnpoolGeometry) -> Any:
    """Elements with indices outside their windows, by number of the chunk of the output, in an array without axes."""
    own = [chunks.pointwise_chunks(sizes) for sizes in x.chunks]
    numbered = [[1] * len(sizes) for sizes in x.chunks]
    parts = chunks.map_chunks(max_unpool_collect, [x, indices], numbered, object, plan=own, geometry=geometry)
    options = {"concatenate": False, "dtype": object, "meta": np.empty((), object), "plan": plan, "geometry": geometry}
    return da.blockwise(max_unpool_sort, (), parts, tuple(range(x.ndim)), **options)


def max_unpool_collect(
    x: AnyArray, indices: Indices, *, plan: chunks.Plan, geometry: UnpoolGeometry, block_id: tuple[int, ...]
) -> StrayElements:
    """The elements of one chunk whose indices are outside their windows; one outside the tensor is refused."""
    _, source = chunks.chunk_spans(plan, block_id)
    outside = ~_locate(indices, source, geometry)[1]
    _check_range(outside, indices, source, geometry)
    targets = rebase(indices[outside], geometry.counted, geometry.large)
    return StrayElements.from_chunk(outside, source, geometry, targets, x[outside])


def max_unpool_sort(
    parts: Iterable[Any], *, plan: chunks.Plan, geometry: UnpoolGeometry
) -> dict[tuple[int, ...], StrayElements]:
    """The elements of all chunks by their chunk of the output, with targets that count in that chunk."""
    elements = StrayElements.concatenate(list(flatten(parts)))
    local, owner = np.zeros_like(elements.targets), np.zeros_like(elements.targets)
    for place, axis_chunks in zip(_coordinates(elements.targets, geometry.large), plan, strict=True):
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


def _coordinates(flat: Indices, shape: Sequence[int]) -> list[Indices]:
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
