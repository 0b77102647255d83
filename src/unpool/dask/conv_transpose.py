"""ConvTranspose on dask arrays."""

from collections.abc import Sequence
from typing import Any, cast

import dask.array as da
import numpy as np
from dask.delayed import delayed

from unpool import functional
from unpool.calls import spec_of
from unpool.dask.arrays import by_block, channels_first, in_layout, known, sizes
from unpool.dask.cuts import Cut, block, extents, growing_cut, kept_cut, overlapping, part_of, slices
from unpool.dtypes import AnyArray
from unpool.execute.arrays import checked_type
from unpool.geometry import Axis, Span, span_reaching, span_read
from unpool.operators import conv_transpose as operator
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import same_type


def conv_transpose(  # noqa: PLR0913  keyword-only public options, one per ONNX attribute
    x: Any,
    w: Any,
    b: Any = None,
    *,
    kernel_shape: Sequence[int] | int | None = None,
    strides: Sequence[int] | int | None = None,
    pads: Sequence[int] | int | None = None,
    dilations: Sequence[int] | int | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_padding: Sequence[int] | int | None = None,
    output_shape: Sequence[int] | int | None = None,
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    opset: int | None = None,
    compat: str = "spec",
) -> Any:
    """`unpool.conv_transpose` of a dask array: every element of x spread over a window of y by w, and summed.

    An element of y is computed in one task, from all channels and all windows that reach it. Results are those of the
    whole, bit for bit where sums are exact; otherwise they differ as two orders of the same sum do.

    Args:
        x: dask array (N, C, d1..dk), or (N, d1..dk, C) with layout="NHWC", of any chunking; channels become one chunk.
        w: (C, M/group, k1..kk), NumPy or dask array; every worker gets all of it.
        b: (M,), NumPy or dask array; zeros by default.
        kernel_shape: window size per spatial axis, in elements.
        strides: step between windows per spatial axis; 1 by default.
        pads: all begins, then all ends; 0 by default.
        dilations: step between the taps of a window per spatial axis; 1 by default.
        group: channels are split into so many groups that do not see each other.
        auto_pad: "NOTSET", "SAME_UPPER", "SAME_LOWER" or "VALID"; excludes `pads`.
        output_padding: elements added at the end of every spatial axis.
        output_shape: spatial sizes of y; the pads then follow from it.
        layout: "NCHW" or "NHWC".
        activation: as for `unpool.max_pool`.
        activation_params: what the activation takes.
        opset: obey the version that this opset selects; None for the newest.
        compat: "spec" follows the standard's text, "ort" ONNX Runtime where the two differ.

    Returns:
        y as a dask array, a chunk for every chunk of x of which anything is left.

    Raises:
        ShapeError: ranks, channels or sizes do not fit, or sizes of chunks are not known.
        UnsupportedError: the type or attribute belongs to another version.
        UnpoolError: no dask array, or another wrong argument. All before anything is computed.

    Source: ONNX ConvTranspose 1, 11, 22.

    >>> import dask.array as da
    >>> x = da.from_array(np.float32([[[1, 2, 3]]]), chunks=(1, 1, 2))
    >>> conv_transpose(x, np.float32([[[1, 10, 100]]]), strides=[2]).compute()
    array([[[  1.,  10., 102.,  20., 203.,  30., 300.]]], dtype=float32)
    """
    x = known(x, "ConvTranspose: X")
    values = (
        opset, kernel_shape, strides, pads, dilations, group, auto_pad, output_padding, output_shape, activation,
        activation_params,
    )  # fmt: skip
    spec = cast(ConvTransposeSpec, spec_of(("ConvTranspose", layout, compat, "auto", 1), values, (x,)))
    checked_type(spec.row, spec.activation, x.dtype)
    for name, other in (("X and W", w), ("X and B", b)):
        if other is not None:
            same_type(spec.row, name, x.dtype, other.dtype)
    call = operator.call(spec, x.shape, w.shape, None if b is None else b.shape)
    x = channels_first(x, layout).rechunk({1: -1})
    maps = Cut((Span(0, call.large.channels),), (Span(0, x.shape[1]),))
    cuts = [kept_cut(x.chunks[0]), maps, *map(growing_cut, x.chunks[2:], call.axes)]
    y = by_block(
        conv_transpose_chunk,
        [overlapping(x, cuts), _everywhere(w), _everywhere(b)],
        sizes(cuts),
        x.dtype,
        cuts=cuts,
        axes=call.axes,
        how={"group": spec.group, "activation": activation, "activation_params": activation_params, "threads": 1},
    )
    return in_layout(y, layout)


def conv_transpose_chunk(
    x: AnyArray,
    w: AnyArray,
    b: AnyArray | None,
    *,
    cuts: Sequence[Cut],
    axes: Sequence[Axis],
    how: dict[str, Any],
    block_id: tuple[int, ...],
) -> AnyArray:
    """One chunk of the output."""
    made, read = block(cuts, block_id)
    pairs = list(zip(made[2:], axes, strict=True))
    data = [part_of(span_reaching(span, axis.window, axis.begin), axis.small) for span, axis in pairs]
    covered = [span_read(span, axis.window, axis.begin) for span, axis in zip(data, axes, strict=True)]
    reached = [Span(max(a.first, b.first), min(a.stop, b.stop)) for a, b in zip(made[2:], covered, strict=True)]
    if min(extents(data)) == 0 or min(extents(reached)) <= 0:
        return _bias_alone(x, w, b, extents(made), how)
    y = functional.conv_transpose(
        x[slices([*read[:2], *data], read)],
        w,
        b,
        strides=[axis.window.stride for axis in axes],
        dilations=[axis.window.dilation for axis in axes],
        pads=[inner.first - full.first for inner, full in zip(reached, covered, strict=True)]
        + [full.stop - inner.stop for inner, full in zip(reached, covered, strict=True)],
        **how,
    )
    if reached == made[2:]:
        return cast(AnyArray, y)
    larger = _bias_alone(x, w, b, extents(made), how)
    larger[slices(made[:2] + reached, made)] = y
    return larger


def _bias_alone(x: AnyArray, w: AnyArray, b: AnyArray | None, shape: tuple[int, ...], how: dict[str, Any]) -> AnyArray:
    """A part of the output that nothing of x reaches."""
    nothing = np.empty((*x.shape[:2], *(0,) * (x.ndim - 2)), x.dtype)
    return cast(AnyArray, functional.conv_transpose(nothing, w, b, output_shape=shape[2:], **how))


def _everywhere(array: Any) -> Any:
    """What every task gets whole, as a dask array without axes."""
    return da.from_delayed(delayed(array, pure=True), (), object, meta=np.empty((), object))
