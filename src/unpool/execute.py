"""Where a resolved call meets a kernel: NumPy arrays in, NumPy arrays out.

Everything that can be wrong is found before the first write to a caller's array: types, ranks and shapes by
`operators`, destinations here, and MaxUnpool's indices by a kernel that only reads.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from unpool import indices as flat_indices
from unpool.dtypes import AnyArray, StorageType
from unpool.errors import ShapeError, UnpoolError
from unpool.geometry import Axis, element_count
from unpool.memory import allocate, was_written
from unpool.memory import check as check_memory
from unpool.operators import activation as activations
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.activation import Activation
from unpool.operators.contract import Row
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolCall, MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolCall, MaxUnpoolSpec
from unpool.operators.resolve import Spec
from unpool.operators.tensors import index_type, same_type, text, value_type

_OVERLAP_STEPS = 100_000  # of the exact test

_log = logging.getLogger("unpool")

Optional = Sequence[AnyArray | None]


def run(
    spec: Spec,
    inputs: Optional,
    *,
    outputs: int = 1,
    threads: int | None = None,
    out: Optional = (),
    nan_last: bool = False,
) -> tuple[AnyArray, ...]:
    """Run one resolved operator.

    Args:
        spec: from `unpool.operators.resolve.spec`.
        inputs: in ONNX order; None for an optional input that is left out.
        outputs: how many outputs are wanted.
        threads: at most so many threads; None for every core that this process may use.
        out: where to write each output; None, or missing, where one is to be allocated.
        nan_last: whether MaxPool finds the last NaN of a window, as PyTorch does, rather than the first.

    Returns:
        As many arrays as `outputs`.

    Raises:
        UnpoolError: types, ranks, shapes, indices or destinations do not fit; nothing has been written then.
    """
    row = spec.row
    given = _inputs(row, inputs)
    if not 1 <= outputs <= row.max_outputs:
        raise UnpoolError(f"{row.label}: has 1 to {row.max_outputs} outputs, got {outputs} wanted. Ask for fewer.")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise UnpoolError(f"{row.label}: threads is None or an int of 1 or more, got {threads!r}. Correct it.")
    targets = (*out, None, None)[:outputs]
    if isinstance(spec, MaxPoolSpec):
        return _max_pool(spec, given, targets, threads, nan_last)
    if isinstance(spec, MaxUnpoolSpec):
        return (_max_unpool(spec, given, targets[0], threads),)
    return (_conv_transpose(spec, given, targets[0], threads),)


def available_cores() -> int:
    """Cores that this process may use: what `threads=None` means."""
    from unpool.kernels.cpu.threads import available

    return available()


def _inputs(row: Row, inputs: Optional) -> list[AnyArray | None]:
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    if not row.min_inputs <= len(given) <= row.max_inputs:
        raise UnpoolError(
            f"{row.label}: takes {row.min_inputs} to {row.max_inputs} inputs, got {len(given)}. Connect them in order."
        )
    if any(value is None for value in given[: row.min_inputs]):
        raise UnpoolError(f"{row.label}: its first {row.min_inputs} inputs are required, got an empty one. Connect it.")
    return given + [None] * (row.max_inputs - len(given))


def _max_pool(
    spec: MaxPoolSpec, inputs: list[AnyArray | None], targets: Optional, threads: int | None, nan_last: bool
) -> tuple[AnyArray, ...]:
    from unpool.kernels.cpu import max_pool as kernel

    x = _present(inputs[0])
    storage = _value_type(spec.row, spec.activation, x)
    call = max_pool.call(spec, x.shape)
    y = _destination(spec.row, "Y", call.small.in_layout(spec.row), storage.dtype, targets[0], (x,))
    found, places = _index_destination(call, targets[1], (x, y)) if len(targets) == 2 else (None, None)
    work = _scratch(y)
    keep = spec.row.is_channels_last
    is_used = was_written(work) and (places is None or was_written(places))
    planes = (call.small.batch * call.small.channels,)
    small, large = ((), ()) if keep else (planes + call.small.spatial, planes + call.large.spatial)
    kernel.max_pool(
        _contiguous(x, spec.row).view(storage.bits).reshape(large or x.shape), call.axes, storage.infinity,
        work.view(storage.bits).reshape(small or y.shape),
        None if places is None else places.reshape(small or y.shape),
        int(np.array(storage.lowest, storage.dtype).view(storage.bits)), kernel.Mode(keep, nan_last, threads, is_used),
    )  # fmt: skip
    _deliver(work, y, spec.activation, storage)
    if found is None or places is None:
        return (y,)
    _deliver_indices(call, places, found)
    return y, found


def _index_destination(
    call: MaxPoolCall, target: AnyArray | None, others: tuple[AnyArray, ...]
) -> tuple[AnyArray, AnyArray]:
    """Where indices end up, (N, C, d1..dk), and the memory that a kernel writes, in the order of Y."""
    row, dtype = call.spec.row, np.dtype(np.int64)
    if not row.is_channels_last:
        found = _destination(row, "Indices", call.small.in_onnx_order(), dtype, target, others)
        return found, _scratch(found)
    places = allocate(call.small.in_layout(row), dtype, row.label)
    view = np.moveaxis(places, -1, 1)
    return _destination(row, "Indices", view.shape, dtype, target, others) if target is not None else view, places


def _deliver_indices(call: MaxPoolCall, places: AnyArray, found: AnyArray) -> None:
    """Put what a kernel wrote where the caller wants it, counted in the caller's storage order."""
    row_major = np.moveaxis(places, -1, 1) if call.spec.row.is_channels_last else places
    if call.spec.is_column_major:
        found[...] = flat_indices.to_column_major(row_major, call.large.spatial)
    elif not np.may_share_memory(found, places):
        found[...] = row_major


def _max_unpool(
    spec: MaxUnpoolSpec, inputs: list[AnyArray | None], target: AnyArray | None, threads: int | None
) -> AnyArray:
    from unpool.kernels.cpu import max_unpool as kernel
    from unpool.kernels.cpu.max_unpool_windows import unpool_windows

    row, x, indices = spec.row, _present(inputs[0]), _present(inputs[1])
    storage = _value_type(row, spec.activation, x)
    index_type(row.label, "I", indices.dtype)
    call = max_unpool.call(spec, x.shape, indices.shape, _shape_value(row, inputs[2]))
    y = _destination(row, "output", call.large.in_layout(row), storage.dtype, target, (x, indices))
    work = _scratch(y)
    bits, elements = work.view(storage.bits), _contiguous(x, row).view(storage.bits)
    positions = _contiguous(indices, row)
    planes = call.small.batch * call.small.channels
    may_stream = not row.is_channels_last and call.index_space != "inferred"
    is_ours = work is not target

    def stream() -> bool:
        return unpool_windows(elements, positions, bits, call.axes, planes, threads, was_written=was_written(work))

    if may_stream and is_ours and stream():
        return _deliver(work, y, spec.activation, storage)
    counted = _counted_spatial(call, positions, planes, threads)
    limit = element_count((planes, *counted), row.label)
    wrong, is_local = kernel.check_range(positions, limit, planes, threads)
    if wrong >= 0:
        raise flat_indices.out_of_range(positions, wrong, limit, row.label)
    if counted != call.large.spatial:
        outer = (call.small.batch, call.small.channels)
        positions = flat_indices.rebase(positions, outer + counted, outer + call.large.spatial)
    if is_ours or not (may_stream and stream()):
        channels = call.small.channels if row.is_channels_last else 1
        kernel.scatter(elements, positions, bits, channels, planes, is_local, threads)
    return _deliver(work, y, spec.activation, storage)


def _counted_spatial(call: MaxUnpoolCall, positions: AnyArray, planes: int, threads: int | None) -> tuple[int, ...]:
    """The spatial shape in which the indices count.

    Under "auto" it is the output's, unless they fit the inferred shape and not the output's.
    """
    from unpool.kernels.cpu.max_unpool import is_consistent

    if call.index_space == "output":
        return call.large.spatial
    if call.index_space == "inferred":
        return call.inferred
    if is_consistent(positions, call.axes, planes, threads):
        return call.large.spatial
    inferred = [
        Axis(size, axis.small, axis.window, axis.begin) for size, axis in zip(call.inferred, call.axes, strict=True)
    ]
    return call.inferred if is_consistent(positions, inferred, planes, threads) else call.large.spatial


def _conv_transpose(
    spec: ConvTransposeSpec, inputs: list[AnyArray | None], target: AnyArray | None, threads: int | None
) -> AnyArray:
    from unpool.kernels.cpu import conv_transpose as kernel

    row, x, w, b = spec.row, _present(inputs[0]), _present(inputs[1]), inputs[2]
    storage = _value_type(row, spec.activation, x)
    same_type(row, "X and W", x.dtype, w.dtype)
    if b is not None:
        same_type(row, "X and B", x.dtype, b.dtype)
    call = conv_transpose.call(spec, x.shape, w.shape, None if b is None else b.shape)
    present = (x, w) if b is None else (x, w, b)
    y = _destination(row, "Y", call.large.in_layout(row), storage.dtype, target, present)
    bias = np.zeros(call.large.channels, storage.compute) if b is None else b
    in_place = not row.is_channels_last and storage.dtype == storage.compute and y.flags.c_contiguous
    shape = call.large.in_onnx_order()
    work = y if in_place else allocate(shape, storage.compute, row.label)
    kernel.conv_transpose(
        _contiguous(np.moveaxis(x, -1, 1) if row.is_channels_last else x, row, storage.compute),
        _contiguous(w, row), _contiguous(bias, row, storage.compute),
        call.axes, spec.group, work, threads,
    )  # fmt: skip
    return _deliver(np.moveaxis(work, 1, -1) if row.is_channels_last else work, y, spec.activation, storage)


def _present(x: AnyArray | None) -> AnyArray:
    assert x is not None, "required inputs were checked"
    return x


def _value_type(row: Row, activation: Activation | None, x: AnyArray) -> StorageType:
    storage = value_type(row, "X", x.dtype)
    activations.check_type(row, activation, storage.name)
    return storage


def _shape_value(row: Row, output_shape: AnyArray | None) -> tuple[int, ...] | None:
    """The third input of MaxUnpool as Python ints."""
    if output_shape is None:
        return None
    index_type(row.label, "output_shape", output_shape.dtype)
    if output_shape.ndim != 1:
        raise ShapeError(
            f"{row.label}: output_shape needs rank 1, got shape {text(output_shape.shape)}. Give one size per axis."
        )
    return tuple(int(size) for size in output_shape)


def _contiguous(x: AnyArray, row: Row, dtype: np.dtype[Any] | None = None) -> AnyArray:
    """`x` in row-major order and in the type it is computed in; says so where that takes a copy."""
    dtype = dtype or x.dtype
    is_ready = x.flags.c_contiguous and x.flags.aligned and x.dtype == dtype
    if is_ready:
        return x
    check_memory(x.shape, dtype, row.label)
    ready = np.require(x, dtype, ["C", "A"])
    if not np.may_share_memory(ready, x):
        _log.info("%s: copied %s %s to row-major %s", row.label, text(x.shape), x.dtype.name, ready.dtype.name)
    return ready


def _destination(
    row: Row,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    target: AnyArray | None,
    others: tuple[AnyArray, ...],
) -> AnyArray:
    """A new array, or the caller's once it has the right shape and type and overlaps nothing."""
    if target is None:
        return allocate(shape, dtype, row.label)
    where = f"{row.label}: out for {name}"
    if target.shape != shape or target.dtype != dtype:
        raise UnpoolError(
            f"{where} needs shape {text(shape)} and type {dtype.name}, got {text(target.shape)} {target.dtype.name}."
        )
    if not target.flags.writeable:
        raise UnpoolError(f"{where} needs a writable array, got a read-only one. Pass a copy.")
    if any(_overlap(target, other) for other in others):
        raise UnpoolError(
            f"{where} needs memory of its own, got memory shared with another argument. Pass a new array."
        )
    return target


def _overlap(target: AnyArray, other: AnyArray) -> bool:
    """Whether two arrays share an element; also true where that is too laborious to tell."""
    try:
        return np.shares_memory(target, other, max_work=_OVERLAP_STEPS)  # type: ignore[arg-type]  # stub knows -1 and 0
    except np.exceptions.TooHardError:
        return True


def _scratch(y: AnyArray) -> AnyArray:
    """Memory that a kernel can write: `y` itself if it is contiguous."""
    return y if y.flags.c_contiguous and y.flags.aligned else np.empty(y.shape, y.dtype)


def _deliver(work: AnyArray, y: AnyArray, activation: Activation | None, storage: StorageType) -> AnyArray:
    """Activate what a kernel wrote, round it once to the type of `y`, and put it there."""
    from unpool.kernels.cpu.activation import activate

    if activation is not None:
        wide = work.astype(storage.compute, copy=False) if storage.is_float else work
        work = activate(wide, activation.name, activation.params)
    if work is not y:
        with np.errstate(over="ignore"):
            y[...] = work
    return y
