"""MaxUnpool on dask arrays."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from unpool import functional
from unpool.calls import spec_of
from unpool.dask.chunks import (
    AxisChunks,
    channels_first,
    check_array,
    chunk_spans,
    in_layout,
    map_chunks,
    pointwise_chunks,
    read_chunks,
    shape_of,
    upsampling_chunks,
)
from unpool.dask.out_of_chunk_indices import (
    StrayElements,
    UnpoolGeometry,
    check_local,
    concatenate,
    locate,
    out_of_chunk_elements,
)
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.execute import shape_value
from unpool.execute.arrays import check_type
from unpool.geometry import Span, corners
from unpool.operators import max_unpool as operator
from unpool.operators.arguments import plain
from unpool.operators.attributes import shape_tensor
from unpool.operators.max_unpool import MaxUnpoolCall, MaxUnpoolSpec
from unpool.operators.tensors import index_type


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
    """`unpool.max_unpool` of dask arrays, bit for bit: zeros, with every element of x where its index says.

    Elements whose index lies in their own window are written chunk by chunk. Elements with other indices are first
    collected from all chunks of x: no chunk of the output is ready before all of x. Indices of the pool that
    is undone are always local; `local=True` states that, and needs the memory of a few chunks only.

    Args and options are those of `unpool.max_unpool`, with these differences:

    - x and indices are dask arrays of any chunking; indices count in the whole tensor.
    - output_shape is a sequence or a NumPy array.
    - index_space may be "auto" only if output_shape is the inferred shape: no chunk has all indices.
    - local states that every index lies in the window of its own element, which is checked.

    Returns:
        a dask array, a chunk for every chunk of x whose windows reach it. Computing it raises IndicesError for an index
        outside the tensor, or with `local` outside its window.

    Raises:
        UnpoolError: as `unpool.max_unpool`, all before computing; also if index_space is ambiguous, and a ShapeError if
            sizes of chunks are unknown.

    Source: ONNX MaxUnpool 9, 11, 22.

    >>> import dask.array as da
    >>> x, indices = da.from_array(np.float32([[[7, 9]]]), chunks=1), da.from_array(np.array([[[1, 2]]]), chunks=1)
    >>> max_unpool(x, indices, kernel_shape=[2], strides=[2]).compute()
    array([[[0., 7., 9., 0.]]], dtype=float32)
    """
    x, indices = check_array(x, "MaxUnpool: X"), check_array(indices, "MaxUnpool: I")
    values = (opset, kernel_shape, strides, pads, activation, activation_params, None)
    spec = cast(MaxUnpoolSpec, spec_of(("MaxUnpool", layout, compat, index_space, 1), values, (x,)))
    check_type(spec.row, spec.activation, x.dtype)
    index_type(spec.row.label, "I", indices.dtype)
    call = operator.call(spec, x.shape, indices.shape, _sizes_of(spec, output_shape))
    x = channels_first(x, layout)
    indices = indices.rechunk(x.chunks)
    plan = [
        *map(pointwise_chunks, x.chunks[:2]),
        *(upsampling_chunks(*each, covers_input=True) for each in zip(x.chunks[2:], call.axes, strict=True)),
    ]
    geometry = _geometry(call)
    arrays = [read_chunks(x, plan), read_chunks(indices, plan)]
    if not local:
        arrays.append(out_of_chunk_elements(x, indices, plan, geometry))
    y = map_chunks(
        max_unpool_chunk,
        arrays,
        [axis.sizes for axis in plan],
        x.dtype,
        plan=plan,
        geometry=geometry,
        activation_options={"activation": activation, "activation_params": activation_params},
    )
    return in_layout(y, layout)


def max_unpool_chunk(
    x: AnyArray,
    indices: AnyArray,
    moved: Mapping[tuple[int, ...], StrayElements] | None = None,
    *,
    plan: Sequence[AxisChunks],
    geometry: UnpoolGeometry,
    activation_options: Mapping[str, Any],
    block_id: tuple[int, ...],
) -> AnyArray:
    """One chunk of the output; `moved` has the elements outside their windows, by chunk of the output."""
    output, source = chunk_spans(plan, block_id)
    places, in_window = locate(indices, source, geometry)
    if moved is None:
        check_local(in_window, indices, source, geometry)
    in_chunk = in_window
    for place, span in zip(places[2:], output[2:], strict=True):
        in_chunk = in_chunk & (place >= span.first) & (place < span.stop)
    targets = _flat(places, output)
    arriving = None if moved is None else moved.get(block_id)
    options: dict[str, Any] = {"index_space": "output", "threads": 1, **activation_options}
    if arriving is None and in_chunk.all():
        return cast(
            AnyArray,
            functional.max_unpool(x, targets, shape_of(output), **_windows(geometry, output, source), **options),
        )
    elements = StrayElements.from_chunk(in_chunk, source, geometry, targets[in_chunk], x[in_chunk])
    if arriving is not None:
        elements = concatenate([elements, arriving]).sort_by_position()
    flat = functional.max_unpool(
        elements.values[None, None],
        elements.targets[None, None],
        (1, 1, prod(shape_of(output))),
        kernel_shape=1,
        **options,
    )
    return cast(AnyArray, flat.reshape(shape_of(output)))


def _sizes_of(spec: MaxUnpoolSpec, output_shape: Any) -> tuple[int, ...] | None:
    """The argument output_shape as ints."""
    sizes = plain(output_shape)
    if isinstance(sizes, (list, tuple)):
        sizes = shape_tensor(spec.row, sizes)
    if not isinstance(sizes, np.ndarray | None):
        raise UnpoolError(
            f"{spec.row.label}: output_shape: expected a sequence or NumPy array, got {type(sizes).__name__}. "
            "Compute it first."
        )
    return shape_value(spec.row, sizes)


def _geometry(call: MaxUnpoolCall) -> UnpoolGeometry:
    if call.index_space == "auto":
        raise UnpoolError(
            f"{call.spec.row.label}: index_space: expected 'output' or 'inferred', for output_shape "
            f"{list(call.large.spatial)} is not the inferred shape {list(call.inferred)}, and no chunk sees all "
            "indices; got 'auto'. Name it."
        )
    counted = call.inferred if call.index_space == "inferred" else call.large.spatial
    outer = (call.small.batch, call.small.channels)
    return UnpoolGeometry(
        call.spec.row.label, call.axes, call.small.in_onnx_order(), call.large.in_onnx_order(), outer + counted
    )


def _windows(geometry: UnpoolGeometry, output: Sequence[Span], source: Sequence[Span]) -> dict[str, Any]:
    """The windows of a chunk as attributes, with pads that keep their alignment."""
    begins = [
        span.first - int(corners(part, axis.window, axis.begin)[0]) if part.first < part.stop else 0
        for axis, span, part in zip(geometry.axes, output[2:], source[2:], strict=True)
    ]
    return {
        "kernel_shape": [axis.window.size for axis in geometry.axes],
        "strides": [axis.window.stride for axis in geometry.axes],
        "pads": [max(0, begin) for begin in begins] + [0] * len(begins),
    }


def _flat(places: Sequence[AnyArray], output: Sequence[Span]) -> AnyArray:
    """Coordinates as flat indices of a chunk; any number for those outside it."""
    flat = np.zeros((), np.int64)
    for place, span in zip(places, output, strict=True):
        flat = flat * (span.stop - span.first) + (place - span.first)
    return flat
