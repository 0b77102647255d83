"""Where a resolved call meets a kernel: NumPy arrays in, NumPy arrays out.

What follows from attributes, shapes and types alone is worked out once, by `prepare`, and kept; a prepared call only
takes memory and starts kernels. Everything that can be wrong is found before the first write to a caller's array:
types, ranks and shapes while preparing, destinations in `outputs`, and MaxUnpool's indices by a kernel that only reads.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unpool import indices as flat_indices
from unpool.dtypes import AnyArray, StorageType, storage_type
from unpool.errors import ShapeError, UnpoolError
from unpool.geometry import Axis, element_count
from unpool.memory import RECYCLED_FROM, allocate, was_written
from unpool.memory import check as check_memory
from unpool.operators import activation as activations
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.activation import Activation
from unpool.operators.contract import Row
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolCall, MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolCall, MaxUnpoolSpec
from unpool.operators.resolve import Spec
from unpool.operators.tensors import Shape, index_type, same_type, text, value_type
from unpool.outputs import Output

if TYPE_CHECKING:
    from unpool.kernels.cpu.conv_transpose import Work

KEPT = 1024
"""Prepared calls that are kept per operator; the least recently used ones go."""

_NO_INDICES = np.empty(0, np.int64)

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
    per_plane: bool = False,
) -> tuple[AnyArray, ...]:
    """Run one resolved operator.

    Args:
        spec: from `unpool.operators.resolve.spec`.
        inputs: in ONNX order; None for an optional input that is left out.
        outputs: how many outputs are wanted.
        threads: at most so many threads; None for every core that this process may use.
        out: where to write each output; None, or missing, where one is to be allocated.
        nan_last: whether MaxPool finds the last NaN of a window, as PyTorch does, rather than the first.
        per_plane: whether MaxPool's indices count inside their own plane, as PyTorch's do.

    Returns:
        As many arrays as `outputs`.

    Raises:
        UnpoolError: types, ranks, shapes, indices or destinations do not fit; nothing has been written then.
    """
    row = spec.row
    check_threads(row, threads)
    return prepare(spec, inputs, outputs, nan_last, per_plane).run(inputs, (*out, None, None)[:outputs], threads)


def prepare(
    spec: Spec, inputs: Optional, outputs: int = 1, nan_last: bool = False, per_plane: bool = False
) -> "Prepared":
    """The call for inputs of these shapes and types, and for this value of MaxUnpool's `output_shape`.

    Raises:
        UnpoolError: types, ranks or shapes do not fit.
    """
    row = spec.row
    given = _inputs(row, inputs)
    if not 1 <= outputs <= row.max_outputs:
        raise UnpoolError(f"{row.label}: has 1 to {row.max_outputs} outputs, got {outputs} wanted. Ask for fewer.")
    x = _present(given[0])
    if isinstance(spec, MaxPoolSpec):
        return _max_pool(spec, x.shape, x.dtype, outputs == 2, nan_last, per_plane)
    second, third = _present(given[1]), given[2]
    if isinstance(spec, MaxUnpoolSpec):
        _value_type(row, spec.activation, x.dtype)
        index_type(row.label, "I", second.dtype)
        return _max_unpool(spec, x.shape, x.dtype, second.shape, _shape_value(row, third))
    b = None if third is None else (third.shape, third.dtype)
    return _conv_transpose(spec, x.shape, x.dtype, (second.shape, second.dtype), b)


def check_threads(row: Row, threads: int | None) -> None:
    """A number of threads is None or an int of 1 or more.

    Raises:
        UnpoolError: it is not.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise UnpoolError(f"{row.label}: threads is None or an int of 1 or more, got {threads!r}. Correct it.")


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


class PreparedMaxPool:
    """MaxPool for one shape and type of X."""

    def __init__(
        self, spec: MaxPoolSpec, shape: Shape, dtype: np.dtype[Any], has_indices: bool, nan_last: bool, per_plane: bool
    ) -> None:
        from unpool.kernels.cpu import max_pool as kernel

        self.row = row = spec.row
        self._storage = storage = _value_type(row, spec.activation, dtype)
        self._call = call = max_pool.call(spec, shape)
        self._y = Output(row, "Y", call.small.in_layout(row), storage.dtype)
        self._indices = Output(row, "Indices", call.small.in_onnx_order(), _NO_INDICES.dtype) if has_indices else None
        self._is_in_place = not row.is_channels_last and not spec.is_column_major
        planes = (call.small.batch * call.small.channels,)
        keep = row.is_channels_last
        small, large = planes + call.small.spatial, planes + call.large.spatial
        arguments = (
            _like(shape if keep else large, storage.bits), call.axes, storage.infinity,
            _like(call.small.in_layout(row) if keep else small, storage.bits), _NO_INDICES if has_indices else None,
            int(np.array(storage.lowest, storage.dtype).view(storage.bits)),
        )  # fmt: skip
        fresh, used = (kernel.Mode(keep, nan_last, per_plane, was_written) for was_written in (False, True))
        self._launch_fresh, self._launch_used = (kernel.prepare(*arguments, mode) for mode in (fresh, used))

    def run(self, inputs: Optional, targets: Optional, threads: int | None) -> tuple[AnyArray, ...]:
        """Y, and the indices if they are wanted."""
        x, activation = _present(inputs[0]), self._call.spec.activation
        y, work = self._y.place(targets[0], (x,))
        if self._indices is None:
            self._launch(_contiguous(x, self.row), work, _NO_INDICES, threads)
            return (_deliver(work, y, activation, self._storage),)
        found, places = self._index_place(self._indices, targets[1], (x, y))
        self._launch(_contiguous(x, self.row), work, places, threads)
        _deliver(work, y, activation, self._storage)
        if not (self._is_in_place and found is places):
            _deliver_indices(self._call, places, found)
        return y, found

    def _launch(self, x: AnyArray, y: AnyArray, indices: AnyArray, threads: int | None) -> None:
        is_used = y.nbytes >= RECYCLED_FROM and was_written(y) and (self._indices is None or was_written(indices))
        (self._launch_used if is_used else self._launch_fresh)(x, y, indices, threads)

    def _index_place(
        self, output: Output, target: AnyArray | None, others: tuple[AnyArray, ...]
    ) -> tuple[AnyArray, AnyArray]:
        """Where indices end up, (N, C, d1..dk), and the memory that a kernel writes, in the order of Y."""
        if not self.row.is_channels_last:
            return output.place(target, others)
        places = allocate(self._call.small.in_layout(self.row), _NO_INDICES.dtype, self.row.label)
        view = np.moveaxis(places, -1, 1)
        return view if target is None else output.check(target, others), places


def _deliver_indices(call: MaxPoolCall, places: AnyArray, found: AnyArray) -> None:
    """Put what a kernel wrote where the caller wants it, counted in the caller's storage order."""
    row_major = np.moveaxis(places, -1, 1) if call.spec.row.is_channels_last else places
    if call.spec.is_column_major:
        found[...] = flat_indices.to_column_major(row_major, call.large.spatial)
    elif not np.may_share_memory(found, places):
        found[...] = row_major


class PreparedMaxUnpool:
    """MaxUnpool for one set of shapes, one type of X and one value of `output_shape`."""

    def __init__(
        self, spec: MaxUnpoolSpec, shape: Shape, dtype: np.dtype[Any], indices: Shape, asked: Shape | None
    ) -> None:
        self.row = spec.row
        self._storage = _value_type(spec.row, spec.activation, dtype)
        self._call = call = max_unpool.call(spec, shape, indices, asked)
        self._y = Output(spec.row, "output", call.large.in_layout(spec.row), self._storage.dtype)
        self._planes = call.small.batch * call.small.channels
        self._may_stream = not spec.row.is_channels_last and call.index_space != "inferred"

    def run(self, inputs: Optional, targets: Optional, threads: int | None) -> tuple[AnyArray, ...]:
        """The output. Memory of our own is written at once, a caller's once every index is known to be right."""
        x, indices = _present(inputs[0]), _present(inputs[1])
        y, work = self._y.place(targets[0], (x, indices))
        elements = _contiguous(x, self.row).view(self._storage.bits)
        positions, is_ours = _contiguous(indices, self.row), work is not targets[0]
        if not (is_ours and self._stream(elements, positions, work, threads)):
            positions, is_local = self._checked(positions, threads)
            if is_ours or not self._stream(elements, positions, work, threads):
                self._scatter(elements, positions, work, is_local, threads)
        return (_deliver(work, y, self._call.spec.activation, self._storage),)

    def _stream(self, x: AnyArray, positions: AnyArray, y: AnyArray, threads: int | None) -> bool:
        """Whether y is written: where every index lies in the window of its element."""
        from unpool.kernels.cpu.max_unpool_windows import unpool_windows

        bits, axes, is_used = y.view(self._storage.bits), self._call.axes, was_written(y)
        return self._may_stream and unpool_windows(x, positions, bits, axes, self._planes, threads, was_written=is_used)

    def _checked(self, positions: AnyArray, threads: int | None) -> tuple[AnyArray, bool]:
        """The indices counted in the output, and whether each lies in its own plane.

        Raises:
            IndicesError: one lies outside the tensor that it counts in.
        """
        from unpool.kernels.cpu import max_unpool as kernel

        call, planes = self._call, self._planes
        counted = _counted_spatial(call, positions, planes, threads)
        limit = element_count((planes, *counted), self.row.label)
        wrong, is_local = kernel.check_range(positions, limit, planes, threads)
        if wrong >= 0:
            raise flat_indices.out_of_range(positions, wrong, limit, self.row.label)
        if counted != call.large.spatial:
            outer = (call.small.batch, call.small.channels)
            positions = flat_indices.rebase(positions, outer + counted, outer + call.large.spatial)
        return positions, is_local

    def _scatter(self, x: AnyArray, positions: AnyArray, y: AnyArray, is_local: bool, threads: int | None) -> None:
        from unpool.kernels.cpu import max_unpool as kernel

        channels = self._call.small.channels if self.row.is_channels_last else 1
        kernel.scatter(x, positions, y.view(self._storage.bits), channels, self._planes, is_local, threads)


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


class PreparedConvTranspose:
    """ConvTranspose for one set of shapes and types."""

    def __init__(
        self,
        spec: ConvTransposeSpec,
        shape: Shape,
        dtype: np.dtype[Any],
        w: tuple[Shape, np.dtype[Any]],
        b: tuple[Shape, np.dtype[Any]] | None,
    ) -> None:
        from unpool.kernels.cpu.activation import Ending

        self.row = row = spec.row
        self._storage = _value_type(row, spec.activation, dtype)
        same_type(row, "X and W", dtype, w[1])
        if b is not None:
            same_type(row, "X and B", dtype, b[1])
        self._call = call = conv_transpose.call(spec, shape, w[0], None if b is None else b[0])
        self._y = Output(row, "Y", call.large.in_layout(row), self._storage.dtype)
        self._zeros = np.zeros(call.large.channels, self._storage.compute)
        name, params = (None, ()) if spec.activation is None else (spec.activation.name, spec.activation.params)
        self._ending = Ending(row.is_channels_last, name, params)

    def run(self, inputs: Optional, targets: Optional, threads: int | None) -> tuple[AnyArray, ...]:
        """Y."""
        from unpool.kernels.cpu import conv_transpose as kernel

        x, w, b = _present(inputs[0]), _present(inputs[1]), inputs[2] if len(inputs) > 2 else None
        row, call, storage = self.row, self._call, self._storage
        y, work = self._y.place(targets[0], (x, w) if b is None else (x, w, b))
        bias = self._zeros if b is None else _contiguous(b, row, storage.compute)
        kernel.conv_transpose(
            _contiguous(x, row), _contiguous(w, row), bias, call.axes, call.spec.group, work, threads, self._ending
        )
        if work is not y:
            y[...] = work
        return (y,)


Prepared: TypeAlias = PreparedMaxPool | PreparedMaxUnpool | PreparedConvTranspose
_max_pool = lru_cache(KEPT)(PreparedMaxPool)
_max_unpool = lru_cache(KEPT)(PreparedMaxUnpool)
_conv_transpose = lru_cache(KEPT)(PreparedConvTranspose)


def forget() -> None:
    """Drop all prepared calls: what they were prepared for has changed."""
    for prepared in (_max_pool, _max_unpool, _conv_transpose):
        prepared.cache_clear()


def way(spec: ConvTransposeSpec, x_shape: Shape, w_shape: Shape, dtype: np.dtype[Any]) -> str:
    """How the kernels compute a ConvTranspose whose weights are finite and constant, such as "phases" or "matmul".

    Raises:
        UnpoolError: the shapes do not fit, or the type is none of ours.
    """
    from unpool.kernels.cpu import conv_transpose as kernel

    return kernel.ways(_work(spec, x_shape, w_shape, dtype))[0]


def pack(spec: ConvTransposeSpec, x_shape: Shape, w: AnyArray) -> None:
    """Derive from constant weights what calls on inputs of this shape need, so that the first one finds it ready.

    Raises:
        UnpoolError: the shapes do not fit, or the type is none of ours.
    """
    from unpool.kernels.cpu import conv_transpose as kernel

    kernel.prepare(_contiguous(w, spec.row), _work(spec, x_shape, w.shape, w.dtype))


def _work(spec: ConvTransposeSpec, x_shape: Shape, w_shape: Shape, dtype: np.dtype[Any]) -> "Work":
    from unpool.kernels.cpu.conv_transpose import Work

    call, storage = conv_transpose.call(spec, x_shape, w_shape, None), storage_type(dtype, spec.row.label)
    is_plain = storage.dtype == storage.compute and not spec.row.is_channels_last
    return Work(call.axes, x_shape[0], spec.group, w_shape[0], w_shape[1], storage.compute, is_plain, is_kept=True)


def _like(shape: Shape, dtype: np.dtype[Any]) -> AnyArray:
    """An array of a shape and type without memory of its own."""
    return np.broadcast_to(np.empty((), dtype), shape)


def _present(x: AnyArray | None) -> AnyArray:
    assert x is not None, "required inputs were checked"
    return x


def _value_type(row: Row, activation: Activation | None, dtype: np.dtype[Any]) -> StorageType:
    storage = value_type(row, "X", dtype)
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
    flags = x.flags
    if flags.c_contiguous and flags.aligned and (dtype is None or x.dtype == dtype):
        return x
    dtype = dtype or x.dtype
    check_memory(x.shape, dtype, row.label)
    ready = np.require(x, dtype, ["C", "A"])
    if not np.may_share_memory(ready, x):
        _log.info("%s: copied %s %s to row-major %s", row.label, text(x.shape), x.dtype.name, ready.dtype.name)
    return ready


def _deliver(work: AnyArray, y: AnyArray, activation: Activation | None, storage: StorageType) -> AnyArray:
    """Activate what a kernel wrote, round it once to the type of `y`, and put it there."""
    if activation is not None:
        from unpool.kernels.cpu.activation import activate

        wide = work.astype(storage.compute, copy=False) if storage.is_float else work
        work = activate(wide, activation.name, activation.params)
    if work is not y:
        with np.errstate(over="ignore"):
            y[...] = work
    return y
