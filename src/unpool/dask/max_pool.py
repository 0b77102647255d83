"""MaxPool on dask arrays."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from unpool import functional
from unpool.calls import spec_of
from unpool.dask import chunks
from unpool.dtypes import AnyArray
from unpool.execute.arrays import check_type
from unpool.geometry import Axis, span_read
from unpool.indices import to_column_major
from unpool.operators import max_pool as operator
from unpool.operators.max_pool import MaxPoolSpec


def max_pool(  # noqa: PLR0913  keyword-only public options, one per ONNX attribute
    x: Any,
    *,
    kernel_shape: Sequence[int] | int,
    strides: Sequence[int] | int | None = None,
    pads: Sequence[int] | int | None = None,
    dilations: Sequence[int] | int | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
    return_indices: bool = False,
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    opset: int | None = None,
    compat: str = "spec",
) -> Any:
    """Largest element of every window of a dask array and, with `return_indices`, its index, as in `unpool.max_pool`.

    Args and options are those of `unpool.max_pool`. x is a dask array with any chunks.

    Returns:
        y as a dask array with a chunk for every chunk of x in which windows begin; with return_indices a pair
        (y, indices). indices refer to the whole of x, and all results have the bits of `unpool.max_pool`.

    Raises:
        UnpoolError: as by `unpool.max_pool`, before anything is computed. A ShapeError if sizes of chunks are unknown.

    Source: ONNX MaxPool 1-22.

    >>> import dask.array as da
    >>> x = da.from_array(np.float32([[[1, 5, 2, 4, 3, 9]]]), chunks=(1, 1, 4))
    >>> y, indices = max_pool(x, kernel_shape=[3], strides=[2], pads=[1, 1], return_indices=True)
    >>> y.compute().tolist(), indices.compute().tolist()
    ([[[5.0, 5.0, 9.0]]], [[[1, 1, 5]]])
    """
    x = chunks.check_array(x, "MaxPool: X")
    arguments = {
        "kernel_shape": kernel_shape, "strides": strides, "pads": pads, "dilations": dilations, "auto_pad": auto_pad,
        "ceil_mode": ceil_mode, "storage_order": storage_order, "activation": activation,
        "activation_params": activation_params, "opset": opset, "layout": layout, "compat": compat,
        "index_space": "auto",
    }  # fmt: skip
    spec = cast(MaxPoolSpec, spec_of("MaxPool", arguments, (x,)))
    spec.version.check_outputs(1 + bool(return_indices))
    check_type(spec.version, spec.activation, x.dtype)
    call = operator.call(spec, x.shape)
    x = chunks.channels_first(x, layout)
    plan = [*map(chunks.pointwise_chunks, x.chunks[:2]), *map(chunks.pooling_chunks, x.chunks[2:], call.axes)]
    pooled = chunks.map_chunks(
        max_pool_chunk,
        [chunks.read_chunks(x, plan)],
        [axis.sizes for axis in plan],
        object if return_indices else x.dtype,
        plan=plan,
        axes=call.axes,
        indexed_shape=x.shape if return_indices else None,
        is_column_major=spec.is_column_major,
        activation_options={"activation": activation, "activation_params": activation_params},
    )
    if not return_indices:
        return chunks.in_layout(pooled, layout)
    y = chunks.map_chunks(values_of, [pooled], pooled.chunks, x.dtype)
    return chunks.in_layout(y, layout), chunks.map_chunks(indices_of, [pooled], pooled.chunks, np.int64)


def max_pool_chunk(
    x: AnyArray,
    *,
    plan: chunks.Plan,
    axes: Sequence[Axis],
    indexed_shape: tuple[int, ...] | None,
    is_column_major: bool,
    activation_options: dict[str, Any],
    block_id: tuple[int, ...],
) -> Any:
    """One chunk of the output; with its indices if `indexed_shape`, the shape of all of x, is given."""
    output, source = chunks.chunk_spans(plan, block_id)
    shape = chunks.shape_of(output)
    if 0 in shape:
        y = np.empty(shape, x.dtype)
        return y if indexed_shape is None else (y, np.empty(shape, np.int64))
    covered = [span_read(span, axis.window, axis.begin) for span, axis in zip(output[2:], axes, strict=True)]
    data = [*source[:2], *(chunks.clip(span, axis.large) for span, axis in zip(covered, axes, strict=True))]
    begins, ends = [], []
    for window, span in zip(covered, data[2:], strict=True):
        missing = (window.stop - window.first) - (span.stop - span.first)
        begins.append(min(max(0, span.first - window.first), missing))
        ends.append(missing - begins[-1])
    pooled = functional.max_pool(
        x[chunks.slices(data, source)],
        kernel_shape=[axis.window.size for axis in axes],
        strides=[axis.window.stride for axis in axes],
        dilations=[axis.window.dilation for axis in axes],
        pads=begins + ends,
        return_indices=indexed_shape is not None,
        threads=1,
        **activation_options,
    )
    if indexed_shape is None:
        return pooled
    y, indices = pooled
    indices = chunks.whole_indices(indices, data, indexed_shape)
    return y, to_column_major(indices, indexed_shape[2:]) if is_column_major else indices


def values_of(pooled: tuple[AnyArray, AnyArray]) -> AnyArray:
    """The values of a chunk of (values, indices)."""
    return pooled[0]


def indices_of(pooled: tuple[AnyArray, AnyArray]) -> AnyArray:
    """The indices of a chunk of (values, indices)."""
    return pooled[1]
