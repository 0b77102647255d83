"""MaxUnpool on dask arrays."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from unpool import functional
from unpool.calls import spec_of
from unpool.dask import chunks
from unpool.dask import out_of_chunk_indices as stray
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.execute import shape_value
from unpool.execute.arrays import check_type
from unpool.geometry import Span, corners
from unpool.operators import max_unpool as operator
from unpool.operators.attributes import plain, shape_tensor
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
    x, indices = chunks.check_array(x, "MaxUnpool: X"), chunks.check_array(indices, "MaxUnpool: I")
    values = (opset, kernel_shape, strides, pads, activation, activation_params, None)
    spec = cast(MaxUnpoolSpec, spec_of(("MaxUnpool", layout, compat, index_space, 1), values, (x,)))
    check_type(spec.row, spec.activation, x.dtype)
    index_type(spec.row.label, "I", indices.dtype)
    call = operator.call(spec, x.shape, indices.shape, _sizes_of(spec, output_shape))
    x = chunks.channels_first(x, layout)
    indices = indices.rechunk(x.chunks)
    plan = [
        *map(chunks.pointwise_chunks, x.chunks[:2]),
        *(chunks.upsampling_chunks(*each, covers_input=True) for each in zip(x.chunks[2:], call.axes, strict=True)),
    ]
    geometry = _geometry(call)
    arrays = [chunks.read_chunks(x, plan), chunks.read_chunks(indices, plan)]
    if not local:
        arrays.append(stray.out_of_chunk_elements(x, indices, plan, geometry))
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
    moved: Mapping[tuple[int, ...], stray.StrayElements] | None = None,
    *,
    plan: Sequence[chunks.AxisChunks],
    geometry: stray.UnpoolGeometry,
    activation_options: Mapping[str, Any],
    block_id: tuple[int, ...],
) -> AnyArray:
    """One chunk of the output; `moved` has the elements outside their windows, by chunk of the output."""
    output, source = chunks.chunk_spans(plan, block_id)
    places, in_window = stray.locate(indices, source, geometry)
    if moved is None:
        stray.check_local(in_window, indices, source, geometry)
    in_chunk = in_window
    for place, span in zip(places[2:], output[2:], strict=True):
        in_chunk = in_chunk & (place >= span.first) & (place < span.stop)
    shape = chunks.shape_of(output)
    targets = chunks.flat_index((place - span.first for place, span in zip(places, output, strict=True)), shape)
    arriving = None if moved is None else moved.get(block_id)
    options: dict[str, Any] = {"index_space": "output", "threads": 1, **activation_options}
    if arriving is None and in_chunk.all():
        y = functional.max_unpool(x, targets, shape, **_windows(geometry, output, source), **options)
        return cast(AnyArray, y)
    elements = stray.StrayElements.from_chunk(in_chunk, source, geometry, targets[in_chunk], x[in_chunk])
    if arriving is not None:
        elements = stray.concatenate([elements, arriving])
        elements = elements.select(np.argsort(elements.positions))  # the last one in X for a target wins
    values, flat_targets = elements.values[None, None], elements.targets[None, None]
    y = functional.max_unpool(values, flat_targets, (1, 1, prod(shape)), kernel_shape=1, **options)
    return cast(AnyArray, y.reshape(shape))


def _sizes_of(spec: MaxUnpoolSpec, output_shape: Any) -> tuple[int, ...] | None:
    sizes = plain(output_shape)
    if isinstance(sizes, (list, tuple)):
        sizes = shape_tensor(spec.row, sizes)
    if not isinstance(sizes, np.ndarray | None):
        raise UnpoolError(
            f"{spec.row.label}: output_shape: expected a sequence or NumPy array, got {type(sizes).__name__}. "
            "Compute it first."
        )
    return shape_value(spec.row, sizes)


def _geometry(call: MaxUnpoolCall) -> stray.UnpoolGeometry:
    if call.index_space == "auto":
        raise UnpoolError(
            f"{call.spec.row.label}: index_space: expected 'output' or 'inferred', because output_shape "
            f"{list(call.large.spatial)} is not the inferred shape {list(call.inferred)} and no chunk has all "
            "indices; got 'auto'. Pass the one that the indices count in."
        )
    counted = call.inferred if call.index_space == "inferred" else call.large.spatial
    outer = (call.small.batch, call.small.channels)
    return stray.UnpoolGeometry(
        call.spec.row.label, call.axes, call.small.in_onnx_order(), call.large.in_onnx_order(), outer + counted
    )


def _windows(geometry: stray.UnpoolGeometry, output: Sequence[Span], source: Sequence[Span]) -> dict[str, Any]:
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
