"""MaxUnpool between arrays and kernels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unpool import indices as flat_indices
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError
from unpool.execute.arrays import OptionalArrays, Output, check_type, contiguous, finish, require
from unpool.geometry import Axis, element_count
from unpool.kernels.cpu.machine.plan import DONE, Condition, Operand, PlanStep
from unpool.memory import MIN_RECYCLED_BYTES, RuntimeOutput, is_recycled
from unpool.operators import max_unpool
from unpool.operators.max_unpool import MaxUnpoolCall, MaxUnpoolSpec
from unpool.operators.tensors import Shape


class PreparedMaxUnpool:
    """MaxUnpool for one set of shapes, one type of X and one value of `output_shape`."""

    def __init__(
        self, spec: MaxUnpoolSpec, shape: Shape, dtype: np.dtype[Any], indices: Shape, output_shape: Shape | None
    ) -> None:
        from unpool.kernels.cpu.max_unpool import route

        self.row = spec.row
        self._storage = check_type(spec.row, spec.activation, dtype)
        self._call = call = max_unpool.call(spec, shape, indices, output_shape)
        self._y = Output(spec.row, "output", call.large.in_layout(spec.row), self._storage.dtype)
        self.outputs = (self._y,)
        self._planes = call.small.batch * call.small.channels
        options = {"channels_last": spec.row.is_channels_last, "counts_in_y": call.index_space != "inferred"}
        self._stream_new, self._stream_recycled = launches = [
            route(call.axes, self._planes, self._storage.dtype.itemsize, **options, is_recycled=recycled)
            for recycled in (False, True)
        ]
        self.nbytes = sum(getattr(launch, "nbytes", 0) for launch in launches)  # of tables

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """The output. New memory is written at once, the caller's only after all indices were checked."""
        x, indices = require(inputs[0]), require(inputs[1])
        y, buffer = self._y.allocate(out[0], (x, indices))
        elements, positions = contiguous(x, self.row), contiguous(indices, self.row)
        is_new = buffer is not out[0] or type(buffer) is RuntimeOutput
        if not (is_new and self._stream(elements, positions, buffer, threads)):
            positions, is_local = self._check_indices(positions, threads)
            if is_new or not self._stream(elements, positions, buffer, threads):
                self._scatter(elements, positions, buffer, is_local, threads)
        return (finish(buffer, y, self._call.spec.activation, self._storage),)

    def steps(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> tuple[PlanStep, ...] | None:
        """The steps of a plan: a stream, then a check and a scatter; None where indices count in another shape."""
        from unpool.kernels.cpu.max_unpool.scatter import steps

        call, (x, indices, *_), y = self._call, inputs, outputs[0]
        assert x is not None
        assert indices is not None
        is_other = call.inferred != call.large.spatial
        if call.spec.activation is not None or x.size * y.size == 0 or (call.index_space == "inferred" and is_other):
            return None
        stream = self._stream_recycled if self._y.size >= MIN_RECYCLED_BYTES else self._stream_new
        first = () if stream is None else stream.steps(
            (x, indices, y), None, outcome=Condition.ALL_TRUE, then=(DONE, 1)
        )  # fmt: skip
        inferred = _inferred_axes(call) if call.index_space == "auto" and is_other else None
        channels = call.small.channels if self.row.is_channels_last else 1
        operands = x.view(self._storage.bits), indices, y.view(self._storage.bits)
        return (*first, *steps(operands, call.axes, inferred, channels, self._planes))

    def _stream(self, x: AnyArray, positions: AnyArray, y: AnyArray, threads: int | None) -> bool:
        """Write y if every index lies in the window of its element, and return whether that is so."""
        has_recycled = y.nbytes >= MIN_RECYCLED_BYTES and is_recycled(y)
        stream = self._stream_recycled if has_recycled else self._stream_new
        return stream is not None and all(stream(x, positions, y, threads))

    def _check_indices(self, positions: AnyArray, threads: int | None) -> tuple[AnyArray, bool]:
        """The indices as counted in the output, and whether each lies in its own plane."""
        from unpool.kernels.cpu.max_unpool.scatter import check_range

        call, planes = self._call, self._planes
        counted = _index_space(call, positions, planes, threads)
        limit = element_count((planes, *counted), self.row.label)
        wrong, is_local = check_range(positions, limit, planes, threads)
        if wrong >= 0:
            raise flat_indices.out_of_range(positions, wrong, limit, self.row.label)
        if counted != call.large.spatial:
            outer = (call.small.batch, call.small.channels)
            positions = flat_indices.rebase(positions, outer + counted, outer + call.large.spatial)
        return positions, is_local

    def _scatter(self, x: AnyArray, positions: AnyArray, y: AnyArray, is_local: bool, threads: int | None) -> None:
        """Write y from indices that were checked; an index may have been changed since, to a wrong one."""
        from unpool.kernels.cpu.max_unpool.scatter import scatter

        channels = self._call.small.channels if self.row.is_channels_last else 1
        bits = self._storage.bits
        if not scatter(x.view(bits), positions, y.view(bits), channels, self._planes, is_local, threads):
            raise IndicesError(
                f"{self.row.label}: indices were changed during the call. Pass a copy, or do not write to them until "
                "the call returns."
            )


def _index_space(call: MaxUnpoolCall, positions: AnyArray, planes: int, threads: int | None) -> tuple[int, ...]:
    """The spatial shape in which the indices count; with "auto" the inferred one if they fit it and not the output."""
    from unpool.kernels.cpu.max_unpool.scatter import is_consistent

    if call.index_space == "output":
        return call.large.spatial
    if call.index_space == "inferred":
        return call.inferred
    if is_consistent(positions, call.axes, planes, threads):
        return call.large.spatial
    is_inferred = is_consistent(positions, _inferred_axes(call), planes, threads)
    return call.inferred if is_inferred else call.large.spatial


def _inferred_axes(call: MaxUnpoolCall) -> list[Axis]:
    return [
        Axis(size, axis.small, axis.window, axis.begin) for size, axis in zip(call.inferred, call.axes, strict=True)
    ]
