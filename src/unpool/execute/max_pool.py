"""MaxPool between arrays and kernel."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unpool import indices as flat_indices
from unpool.dtypes import AnyArray
from unpool.execute.arrays import OptionalArrays, Output, check_type, contiguous, finish, require
from unpool.kernels.cpu.machine.plan import Operand, PlanStep
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
        from unpool.kernels.cpu.max_pool.pool import ElementType, PoolMode, PoolProblem

        self.row = row = spec.row
        self._storage = storage = check_type(row, spec.activation, dtype)
        self._call = call = max_pool.call(spec, shape)
        self._y = Output(row, "Y", call.small.in_layout(row), storage.dtype)
        self._indices = Output(row, "Indices", call.small.in_onnx_order(), NO_INDICES.dtype) if has_indices else None
        self.outputs = (self._y,) if self._indices is None else (self._y, self._indices)
        check_bytes(self._y.size + (self._indices.size if self._indices else 0), "Y and Indices", row.label)
        self._is_in_place = not row.is_channels_last and not spec.is_column_major
        self._is_plain = spec.activation is None and self._y.is_small and self._is_in_place
        planes = (call.small.batch * call.small.channels, *call.large.spatial)
        lowest = int(np.array(storage.lowest, storage.dtype).view(storage.bits))
        elements = ElementType(np.dtype(storage.bits), storage.infinity, lowest)
        self._launch_new, self._launch_recycled = launches = [
            route(PoolProblem.of(shape if row.is_channels_last else planes, call.axes, elements, has_indices, mode))
            for mode in (PoolMode(row.is_channels_last, nan_last, per_plane, recycled) for recycled in (False, True))
        ]
        self.nbytes = sum(getattr(launch, "nbytes", 0) for launch in launches)  # of tables

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """Y, and with `has_indices` the indices."""
        if self._is_plain and out[0] is out[-1] is None:
            return self._run_plain(inputs[0], threads)
        x, activation = require(inputs[0]), self._call.spec.activation
        y, buffer = self._y.allocate(out[0], (x,))
        if self._indices is None:
            self._launch(contiguous(x, self.row), buffer, NO_INDICES, threads)
            return (finish(buffer, y, activation, self._storage),)
        indices, places = self._allocate_indices(self._indices, out[1], (x, y))
        self._launch(contiguous(x, self.row), buffer, places, threads)
        finish(buffer, y, activation, self._storage)
        if not (self._is_in_place and indices is places):
            _copy_indices(self._call, places, indices)
        return y, indices

    def steps(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> tuple[PlanStep, ...] | None:
        """The steps of a plan, None where the outputs of a kernel are not yet the final ones."""
        is_large = self._y.size >= MIN_RECYCLED_BYTES
        launch = self._launch_recycled if is_large else self._launch_new
        is_in_place = self._is_in_place or (self._indices is None and not self._call.spec.is_column_major)
        if not is_in_place or self._call.spec.activation is not None or not hasattr(launch, "steps"):
            return None
        steps: tuple[PlanStep, ...] = launch.steps((inputs[0], outputs[0], outputs[-1]), None)
        return steps

    def _run_plain(self, x: Any, threads: int | None) -> tuple[AnyArray, ...]:
        """As `run`, for new outputs, not recycled, that the kernel writes in their final form."""
        if not x.flags.carray:
            x = contiguous(x, self.row)
        y = self._y.new()
        if self._indices is None:
            self._launch_new(x, y, NO_INDICES, threads)
            return (y,)
        indices = self._indices.new()
        self._launch_new(x, y, indices, threads)
        return y, indices

    def _launch(self, x: AnyArray, y: AnyArray, indices: AnyArray, threads: int | None) -> None:
        is_large = y.nbytes >= MIN_RECYCLED_BYTES
        if is_large and is_recycled(y) and (self._indices is None or is_recycled(indices)):
            self._launch_recycled(x, y, indices, threads)
        else:
            self._launch_new(x, y, indices, threads)

    def _allocate_indices(
        self, output: Output, target: AnyArray | None, others: tuple[AnyArray, ...]
    ) -> tuple[AnyArray, AnyArray]:
        """The array of the indices, (N, C, d1..dk), and the memory that a kernel writes, in the order of Y."""
        if not self.row.is_channels_last:
            return output.allocate(target, others)
        places = allocate(self._call.small.in_layout(self.row), NO_INDICES.dtype, self.row.label)
        view = np.moveaxis(places, -1, 1)
        return view if target is None else output.check(target, others), places


def _copy_indices(call: MaxPoolCall, places: AnyArray, indices: AnyArray) -> None:
    """Copy the places that a kernel wrote to the indices, counted in the caller's storage order."""
    row_major = np.moveaxis(places, -1, 1) if call.spec.row.is_channels_last else places
    if call.spec.is_column_major:
        indices[...] = flat_indices.to_column_major(row_major, call.large.spatial)
    elif not np.may_share_memory(indices, places):
        indices[...] = row_major
