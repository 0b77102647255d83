"""MaxUnpool on dask arrays."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from unpool import functional
from unpool.calls import spec_of
from unpool.dask.arrays import by_block, channels_first, in_layout, known, sizes
from unpool.dask.cuts import Cut, block, extents, growing_cut, kept_cut, overlapping
from unpool.dask.strays import Elements, Unpooling, far_elements, joined, located, require_home
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.execute import shape_value
from unpool.execute.arrays import checked_type
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

    Elements whose index lies in their own window are put there chunk by chunk. An index may also name any other place
    of the output: such elements are collected from all chunks of x first, so that no chunk of the output is done before
    all of x is computed. Indices of the pool that is undone never do that; `local=True` says so, and needs no more
    memory than a few chunks.

    Args:
        x: dask array (N, C, d1..dk), or (N, d1..dk, C) with layout="NHWC", of any chunking.
        indices: int64 dask array (N, C, d1..dk) in either layout, of any chunking, counting in a whole tensor.
        output_shape: (N, C, D1..Dk) as a sequence or NumPy array; by default inferred from the attributes.
        kernel_shape: window size of the pool per spatial axis, in elements.
        strides: step between windows per spatial axis; 1 by default.
        pads: padding of the pool, all begins, then all ends; 0 by default. Never moves an element.
        index_space: "output" or "inferred"; "auto" only where output_shape is the inferred shape, for no chunk can see
            all indices.
        local: whether every index lies in the window of its own element, which is checked.
        layout: "NCHW" or "NHWC".
        activation: as for `unpool.max_pool`.
        activation_params: what the activation takes.
        opset: obey the version that this opset selects; None for the newest.
        compat: "spec" follows the standard's text, "ort" ONNX Runtime where the two differ.

    Returns:
        a dask array, a chunk for every chunk of x of whose windows anything is left. Computing it raises IndicesError
        for an index outside the tensor, or with `local` outside its window.

    Raises:
        ShapeError: ranks or sizes do not fit, or sizes of chunks are not known.
        UnsupportedError: the type or attribute belongs to another version.
        UnpoolError: no dask array, index_space is open, or another wrong argument. All before anything is computed.

    Source: ONNX MaxUnpool 9, 11, 22.

    >>> import dask.array as da
    >>> x, indices = da.from_array(np.float32([[[7, 9]]]), chunks=1), da.from_array(np.array([[[1, 2]]]), chunks=1)
    >>> max_unpool(x, indices, kernel_shape=[2], strides=[2]).compute()
    array([[[0., 7., 9., 0.]]], dtype=float32)
    """
    x, indices = known(x, "MaxUnpool: X"), known(indices, "MaxUnpool: I")
    values = (opset, kernel_shape, strides, pads, activation, activation_params, None)
    spec = cast(MaxUnpoolSpec, spec_of(("MaxUnpool", layout, compat, index_space, 1), values, (x,)))
    checked_type(spec.row, spec.activation, x.dtype)
    index_type(spec.row.label, "I", indices.dtype)
    call = operator.call(spec, x.shape, indices.shape, _asked(spec, output_shape))
    x = channels_first(x, layout)
    indices = indices.rechunk(x.chunks)
    cuts = [
        *map(kept_cut, x.chunks[:2]),
        *(growing_cut(*one, own=True) for one in zip(x.chunks[2:], call.axes, strict=True)),
    ]
    whole = _unpooling(call)
    arrays = [overlapping(x, cuts), overlapping(indices, cuts)]
    if not local:
        arrays.append(far_elements(x, indices, cuts, whole))
    ending = {"activation": activation, "activation_params": activation_params}
    return in_layout(
        by_block(max_unpool_chunk, arrays, sizes(cuts), x.dtype, cuts=cuts, whole=whole, ending=ending), layout
    )


def max_unpool_chunk(
    x: AnyArray,
    indices: AnyArray,
    far: Mapping[tuple[int, ...], Elements] | None = None,
    *,
    cuts: Sequence[Cut],
    whole: Unpooling,
    ending: Mapping[str, Any],
    block_id: tuple[int, ...],
) -> AnyArray:
    """One chunk of the output; `far` has the elements that are not in their windows, by chunk of the output."""
    made, read = block(cuts, block_id)
    places, is_home = located(indices, read, whole)
    if far is None:
        require_home(is_home, indices, read, whole)
    near = is_home
    for place, span in zip(places[2:], made[2:], strict=True):
        near = near & (place >= span.first) & (place < span.stop)
    targets = _flat(places, made)
    coming = None if far is None else far.get(block_id)
    words: dict[str, Any] = {"index_space": "output", "threads": 1, **ending}
    if coming is None and near.all():
        return cast(AnyArray, functional.max_unpool(x, targets, extents(made), **_windows(whole, made, read), **words))
    elements = Elements.of(near, read, whole, targets[near], x[near])
    if coming is not None:
        elements = joined([elements, coming]).in_order()
    line = functional.max_unpool(
        elements.values[None, None], elements.targets[None, None], (1, 1, prod(extents(made))), kernel_shape=1, **words
    )
    return cast(AnyArray, line.reshape(extents(made)))


def _asked(spec: MaxUnpoolSpec, output_shape: Any) -> tuple[int, ...] | None:
    """The shape that is asked for, as ints."""
    sizes = plain(output_shape)
    if isinstance(sizes, (list, tuple)):
        sizes = shape_tensor(spec.row, sizes)
    if not isinstance(sizes, np.ndarray | None):
        raise UnpoolError(
            f"{spec.row.label}: output_shape: expected a sequence or NumPy array, got {type(sizes).__name__}. "
            "Compute it first."
        )
    return shape_value(spec.row, sizes)


def _unpooling(call: MaxUnpoolCall) -> Unpooling:
    if call.index_space == "auto":
        raise UnpoolError(
            f"{call.spec.row.label}: index_space: expected 'output' or 'inferred', for output_shape "
            f"{list(call.large.spatial)} is not the inferred shape {list(call.inferred)}, and no chunk sees all "
            "indices; got 'auto'. Name it."
        )
    counted = call.inferred if call.index_space == "inferred" else call.large.spatial
    outer = (call.small.batch, call.small.channels)
    return Unpooling(
        call.spec.row.label, call.axes, call.small.in_onnx_order(), call.large.in_onnx_order(), outer + counted
    )


def _windows(whole: Unpooling, made: Sequence[Span], read: Sequence[Span]) -> dict[str, Any]:
    """The windows of a chunk as attributes, so that what is read begins where it does in the whole."""
    begins = [
        span.first - int(corners(part, axis.window, axis.begin)[0]) if part.first < part.stop else 0
        for axis, span, part in zip(whole.axes, made[2:], read[2:], strict=True)
    ]
    return {
        "kernel_shape": [axis.window.size for axis in whole.axes],
        "strides": [axis.window.stride for axis in whole.axes],
        "pads": [max(0, begin) for begin in begins] + [0] * len(begins),
    }


def _flat(places: Sequence[AnyArray], made: Sequence[Span]) -> AnyArray:
    """Coordinates as flat indices of a chunk; of those outside it any number."""
    flat = np.zeros((), np.int64)
    for place, span in zip(places, made, strict=True):
        flat = flat * (span.stop - span.first) + (place - span.first)
    return flat
