"""MaxPool on dask arrays."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from unpool import functional
from unpool.calls import spec_of
from unpool.dask.arrays import by_block, channels_first, in_layout, known, sizes
from unpool.dask.cuts import Cut, block, extents, flat_first, kept_cut, overlapping, part_of, shrinking_cut, slices
from unpool.dtypes import AnyArray
from unpool.execute import check_outputs
from unpool.execute.arrays import checked_type
from unpool.geometry import Axis, Span, span_read
from unpool.indices import from_part, to_column_major
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
    """`unpool.max_pool` of a dask array, bit for bit: largest elements and, if asked for, where they were found.

    Args:
        x: dask array (N, C, D1..Dk), or (N, D1..Dk, C) with layout="NHWC", of any chunking.
        kernel_shape: window size per spatial axis, in elements.
        strides: step between windows per spatial axis; 1 by default.
        pads: all begins, then all ends; 0 by default.
        dilations: step between the taps of a window per spatial axis; 1 by default.
        auto_pad: "NOTSET", "SAME_UPPER", "SAME_LOWER" or "VALID"; excludes `pads`.
        ceil_mode: 1 keeps a last window that reaches beyond the padding at the end.
        storage_order: 0 counts indices with the last spatial axis fastest, 1 with the first.
        return_indices: whether to return the indices too.
        layout: "NCHW" or "NHWC".
        activation: as for `unpool.max_pool`.
        activation_params: what the activation takes.
        opset: obey the version that this opset selects; None for the newest.
        compat: "spec" follows the standard's text, "ort" ONNX Runtime where the two differ.

    Returns:
        y as a dask array, a chunk for every chunk of x in which windows begin; with return_indices a pair
        (y, indices), whose indices count in the whole of x, as those of `unpool.max_pool` do.

    Raises:
        ShapeError: ranks or sizes do not fit, or sizes of chunks are not known.
        UnsupportedError: the type or attribute belongs to another version.
        UnpoolError: no dask array, or another wrong argument. All before anything is computed.

    Source: ONNX MaxPool 1-22.

    >>> import dask.array as da
    >>> x = da.from_array(np.float32([[[1, 5, 2, 4, 3, 9]]]), chunks=(1, 1, 4))
    >>> y, indices = max_pool(x, kernel_shape=[3], strides=[2], pads=[1, 1], return_indices=True)
    >>> y.compute().tolist(), indices.compute().tolist()
    ([[[5.0, 5.0, 9.0]]], [[[1, 1, 5]]])
    """
    x = known(x, "MaxPool: X")
    values = (
        opset, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode, storage_order, activation, activation_params
    )  # fmt: skip
    spec = cast(MaxPoolSpec, spec_of(("MaxPool", layout, compat, "auto", 1), values, (x,)))
    check_outputs(spec.row, 1 + bool(return_indices))
    checked_type(spec.row, spec.activation, x.dtype)
    call = operator.call(spec, x.shape)
    x = channels_first(x, layout)
    cuts = [*map(kept_cut, x.chunks[:2]), *map(shrinking_cut, x.chunks[2:], call.axes)]
    pooled = by_block(
        max_pool_chunk,
        [overlapping(x, cuts)],
        sizes(cuts),
        object if return_indices else x.dtype,
        cuts=cuts,
        axes=call.axes,
        whole=x.shape if return_indices else None,
        is_column_major=spec.is_column_major,
        ending={"activation": activation, "activation_params": activation_params},
    )
    if not return_indices:
        return in_layout(pooled, layout)
    y = by_block(values_of, [pooled], pooled.chunks, x.dtype)
    return in_layout(y, layout), by_block(indices_of, [pooled], pooled.chunks, np.int64)


def max_pool_chunk(
    x: AnyArray,
    *,
    cuts: Sequence[Cut],
    axes: Sequence[Axis],
    whole: tuple[int, ...] | None,
    is_column_major: bool,
    ending: dict[str, Any],
    block_id: tuple[int, ...],
) -> Any:
    """One chunk of the output; with its indices where `whole`, the shape of all of x, is given."""
    made, read = block(cuts, block_id)
    if 0 in extents(made):
        return _empty(extents(made), x.dtype, has_indices=whole is not None)
    covered = [span_read(span, axis.window, axis.begin) for span, axis in zip(made[2:], axes, strict=True)]
    data = [*read[:2], *(part_of(span, axis.large) for span, axis in zip(covered, axes, strict=True))]
    pooled = functional.max_pool(
        x[slices(data, read)],
        kernel_shape=[axis.window.size for axis in axes],
        strides=[axis.window.stride for axis in axes],
        dilations=[axis.window.dilation for axis in axes],
        pads=_pads(covered, data[2:]),
        return_indices=whole is not None,
        threads=1,
        **ending,
    )
    if whole is None:
        return pooled
    y, indices = pooled
    indices = from_part(indices, extents(data), whole, flat_first(data, whole))
    return y, to_column_major(indices, whole[2:]) if is_column_major else indices


def values_of(pooled: tuple[AnyArray, AnyArray]) -> AnyArray:
    """The values of a chunk that has both."""
    return pooled[0]


def indices_of(pooled: tuple[AnyArray, AnyArray]) -> AnyArray:
    """The indices of a chunk that has both."""
    return pooled[1]


def _pads(covered: Sequence[Span], data: Sequence[Span]) -> list[int]:
    """The padding between what windows cover and the data among it: all begins, then all ends."""
    begins, ends = [], []
    for window, span in zip(covered, data, strict=True):
        missing = (window.stop - window.first) - (span.stop - span.first)
        begins.append(min(max(0, span.first - window.first), missing))
        ends.append(missing - begins[-1])
    return begins + ends


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], *, has_indices: bool) -> Any:
    y = np.empty(shape, dtype)
    return (y, np.empty(shape, np.int64)) if has_indices else y
