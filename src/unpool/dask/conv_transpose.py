"""ConvTranspose on dask arrays."""

from collections.abc import Sequence
from typing import Any, cast

import dask.array as da
import numpy as np
from dask.delayed import delayed

from unpool import functional
from unpool.calls import spec_of
from unpool.dask import chunks
from unpool.dtypes import AnyArray
from unpool.execute.arrays import check_type
from unpool.geometry import Axis, Span, span_reaching, span_read
from unpool.operators import conv_transpose as operator
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import Shape, same_type


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
    """Transposed convolution of a dask array, as `unpool.conv_transpose` computes it.

    One task sums each element of y, from all channels and all windows that contribute to it. If all sums are exact,
    results have the bits of `unpool.conv_transpose`; otherwise they may be rounded differently.

    Args and options are those of `unpool.conv_transpose`. x is a dask array with any chunks; its channels become one
    chunk. w and b are NumPy or dask arrays, which every worker gets.

    Returns:
        y as a dask array whose chunks follow those of x.

    Raises:
        UnpoolError: as by `unpool.conv_transpose`, before anything is computed. A ShapeError if sizes of chunks are
            unknown.

    Source: ONNX ConvTranspose 1, 11, 22.

    >>> import dask.array as da
    >>> x = da.from_array(np.float32([[[1, 2, 3]]]), chunks=(1, 1, 2))
    >>> conv_transpose(x, np.float32([[[1, 10, 100]]]), strides=[2]).compute()
    array([[[  1.,  10., 102.,  20., 203.,  30., 300.]]], dtype=float32)
    """
    x = chunks.check_array(x, "ConvTranspose: X")
    arguments = {
        "kernel_shape": kernel_shape, "strides": strides, "pads": pads, "dilations": dilations, "group": group,
        "auto_pad": auto_pad, "output_padding": output_padding, "output_shape": output_shape, "activation": activation,
        "activation_params": activation_params, "opset": opset, "layout": layout, "compat": compat,
        "index_space": "auto",
    }  # fmt: skip
    spec = cast(ConvTransposeSpec, spec_of("ConvTranspose", arguments, (x,)))
    check_type(spec.version, spec.activation, x.dtype)
    for name, other in (("X and W", w), ("X and B", b)):
        if other is not None:
            same_type(spec.version, name, x.dtype, other.dtype)
    call = operator.call(spec, x.shape, w.shape, None if b is None else b.shape)
    x = chunks.channels_first(x, layout).rechunk({1: -1})
    maps = chunks.AxisChunks((Span(0, call.large.channels),), (Span(0, x.shape[1]),))
    plan = [chunks.pointwise_chunks(x.chunks[0]), maps, *map(chunks.upsampling_chunks, x.chunks[2:], call.axes)]
    y = chunks.map_chunks(
        conv_transpose_chunk,
        [chunks.read_chunks(x, plan), _for_all_tasks(w), _for_all_tasks(b)],
        [axis.sizes for axis in plan],
        x.dtype,
        plan=plan,
        axes=call.axes,
        options={"group": spec.group, "activation": activation, "activation_params": activation_params, "threads": 1},
    )
    return chunks.in_layout(y, layout)


def conv_transpose_chunk(
    x: AnyArray, w: AnyArray, b: Any, *, plan: chunks.Plan, axes: Sequence[Axis], options: Any, block_id: Shape
) -> AnyArray:
    """One chunk of the output."""
    output, source = chunks.chunk_spans(plan, block_id)
    data, covered, reached = [], [], []
    for span, axis in zip(output[2:], axes, strict=True):
        data.append(chunks.clip(span_reaching(span, axis.window, axis.begin), axis.small))
        covered.append(span_read(data[-1], axis.window, axis.begin))
        reached.append(Span(max(span.first, covered[-1].first), min(span.stop, covered[-1].stop)))
    if min(chunks.shape_of(data)) == 0 or min(chunks.shape_of(reached)) <= 0:
        return _only_bias(x, w, b, chunks.shape_of(output), options)
    cut = list(zip(reached, covered, strict=True))
    y = functional.conv_transpose(
        x[chunks.slices([*source[:2], *data], source)],
        w,
        b,
        strides=[axis.window.stride for axis in axes],
        dilations=[axis.window.dilation for axis in axes],
        pads=[*(inner.first - full.first for inner, full in cut), *(full.stop - inner.stop for inner, full in cut)],
        **options,
    )
    if reached == output[2:]:
        return cast(AnyArray, y)
    larger = _only_bias(x, w, b, chunks.shape_of(output), options)
    larger[chunks.slices(output[:2] + reached, output)] = y
    return larger


def _only_bias(
    x: AnyArray, w: AnyArray, b: AnyArray | None, shape: tuple[int, ...], options: dict[str, Any]
) -> AnyArray:
    no_x = np.empty((*x.shape[:2], *(0,) * (x.ndim - 2)), x.dtype)
    return cast(AnyArray, functional.conv_transpose(no_x, w, b, output_shape=shape[2:], **options))


def _for_all_tasks(array: Any) -> Any:
    """An array for every task, as a dask array without axes."""
    return da.from_delayed(delayed(array, pure=True), (), object, meta=np.empty((), object))
