"""MaxPool between arrays and kernel."""

from typing import Any

import numpy as np

from unpool import indices as flat_indices
from unpool.dtypes import AnyArray
from unpool.execute.arrays import Optional, Output, checked_type, contiguous, deliver, present
from unpool.memory import MIN_RECYCLED_BYTES, allocate, check_bytes, is_recycled
from unpool.operators import max_pool
from unpool.operators.max_pool import MaxPoolCall, MaxPoolSpec
from unpool.operators.tensors import Shape

NO_INDICES = np.empty(0, np.int64)


class PreparedMaxPool:
    """MaxPool for one shape and type of X."""

    def __init__(
        self, spec: MaxPoolSpec, shape: Shape, dtype: np.dtype[Any], has_indices: bool, nan_last: bool, per_plane: bool
    ) -> None:
        from unpool.kernels.cpu.max_pool import route
        from unpool.kernels.cpu.max_pool.pool import Elements, Mode, Pool

        self.row = row = spec.row
        self._storage = storage = checked_type(row, spec.activation, dtype)
        self._call = call = max_pool.call(spec, shape)
        self._y = Output(row, "Y", call.small.in_layout(row), storage.dtype)
        self._indices = Output(row, "Indices", call.small.in_onnx_order(), NO_INDICES.dtype) if has_indices else None
        check_bytes(self._y.size + (self._indices.size if self._indices else 0), "Y and Indices", row.label)
        self._is_in_place = not row.is_channels_last and not spec.is_column_major
        self._is_plain = spec.activation is None and self._y.is_small and self._is_in_place
        planes = (call.small.batch * call.small.channels, *call.large.spatial)
        lowest = int(np.array(storage.lowest, storage.dtype).view(storage.bits))
        elements = Elements(np.dtype(storage.bits), storage.infinity, lowest)
        fresh, used = (Mode(row.is_channels_last, nan_last, per_plane, was_written) for was_written in (False, True))
        self._launch_fresh, self._launch_used = (
            route(Pool.of(shape if row.is_channels_last else planes, call.axes, elements, has_indices, mode))
            for mode in (fresh, used)
        )
        self.nbytes = sum(getattr(each, "nbytes", 0) for each in (self._launch_fresh, self._launch_used))  # of tables

    def run(self, inputs: Optional, targets: Optional, threads: int | None) -> tuple[AnyArray, ...]:
        """Y, and the indices if they are wanted."""
        if self._is_plain and targets[0] is targets[-1] is None:
            return self._run_plain(inputs[0], threads)
        x, activation = present(inputs[0]), self._call.spec.activation
        y, work = self._y.place(targets[0], (x,))
        if self._indices is None:
            self._launch(contiguous(x, self.row), work, NO_INDICES, threads)
            return (deliver(work, y, activation, self._storage),)
        found, places = self._index_place(self._indices, targets[1], (x, y))
        self._launch(contiguous(x, self.row), work, places, threads)
        deliver(work, y, activation, self._storage)
        if not (self._is_in_place and found is places):
            _deliver_indices(self._call, places, found)
        return y, found

    def _run_plain(self, x: Any, threads: int | None) -> tuple[AnyArray, ...]:
        """As `run`, where new memory, which is in no block that is used again, is written and handed out as it is."""
        if not x.flags.carray:
            x = contiguous(x, self.row)
        y = self._y.new()
        if self._indices is None:
            self._launch_fresh(x, y, NO_INDICES, threads)
            return (y,)
        indices = self._indices.new()
        self._launch_fresh(x, y, indices, threads)
        return y, indices

    def _launch(self, x: AnyArray, y: AnyArray, indices: AnyArray, threads: int | None) -> None:
        is_used = y.nbytes >= MIN_RECYCLED_BYTES and is_recycled(y) and (self._indices is None or is_recycled(indices))
        (self._launch_used if is_used else self._launch_fresh)(x, y, indices, threads)

    def _index_place(
        self, output: Output, target: AnyArray | None, others: tuple[AnyArray, ...]
    ) -> tuple[AnyArray, AnyArray]:
        """Where indices end up, (N, C, d1..dk), and the memory that a kernel writes, in the order of Y."""
        if not self.row.is_channels_last:
            return output.place(target, others)
        places = allocate(self._call.small.in_layout(self.row), NO_INDICES.dtype, self.row.label)
        view = np.moveaxis(places, -1, 1)
        return view if target is None else output.check(target, others), places


def _deliver_indices(call: MaxPoolCall, places: AnyArray, found: AnyArray) -> None:
    """Put what a kernel wrote where the caller wants it, counted in the caller's storage order."""
    row_major = np.moveaxis(places, -1, 1) if call.spec.row.is_channels_last else places
    if call.spec.is_column_major:
        found[...] = flat_indices.to_column_major(row_major, call.large.spatial)
    elif not np.may_share_memory(found, places):
        found[...] = row_major
