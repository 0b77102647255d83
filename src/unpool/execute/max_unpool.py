"""MaxUnpool between arrays and kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np

from unpool import indices as flat_indices
from unpool.dtypes import AnyArray
from unpool.errors import IndicesError
from unpool.execute.arrays import Optional, Output, checked_type, contiguous, deliver, present
from unpool.geometry import Axis, element_count
from unpool.memory import MIN_RECYCLED_BYTES, is_recycled
from unpool.operators import max_unpool
from unpool.operators.max_unpool import MaxUnpoolCall, MaxUnpoolSpec
from unpool.operators.tensors import Shape


class PreparedMaxUnpool:
    """MaxUnpool for one set of shapes, one type of X and one value of `output_shape`."""

    def __init__(
        self, spec: MaxUnpoolSpec, shape: Shape, dtype: np.dtype[Any], indices: Shape, asked: Shape | None
    ) -> None:
        self.row = spec.row
        self._storage = checked_type(spec.row, spec.activation, dtype)
        self._call = call = max_unpool.call(spec, shape, indices, asked)
        self._y = Output(spec.row, "output", call.large.in_layout(spec.row), self._storage.dtype)
        self._planes = call.small.batch * call.small.channels
        self._stream_fresh, self._stream_used = (self._streaming(was_written) for was_written in (False, True))
        self.nbytes = sum(getattr(each, "nbytes", 0) for each in (self._stream_fresh, self._stream_used))  # of tables

    def _streaming(self, was_written: bool) -> Callable[..., list[bool]] | None:
        from unpool.kernels.cpu.max_unpool import route

        return route(
            self._call.axes, self._planes, self._storage.dtype.itemsize, channels_last=self.row.is_channels_last,
            counts_in_y=self._call.index_space != "inferred", was_written=was_written,
        )  # fmt: skip

    def run(self, inputs: Optional, targets: Optional, threads: int | None) -> tuple[AnyArray, ...]:
        """The output. Memory of our own is written at once, a caller's once every index is known to be right."""
        x, indices = present(inputs[0]), present(inputs[1])
        y, work = self._y.place(targets[0], (x, indices))
        elements, positions, is_ours = contiguous(x, self.row), contiguous(indices, self.row), work is not targets[0]
        if not (is_ours and self._stream(elements, positions, work, threads)):
            positions, is_local = self._checked(positions, threads)
            if is_ours or not self._stream(elements, positions, work, threads):
                self._scatter(elements, positions, work, is_local, threads)
        return (deliver(work, y, self._call.spec.activation, self._storage),)

    def _stream(self, x: AnyArray, positions: AnyArray, y: AnyArray, threads: int | None) -> bool:
        """Whether y is written: where every index lies in the window of its element."""
        is_used = y.nbytes >= MIN_RECYCLED_BYTES and is_recycled(y)
        stream = self._stream_used if is_used else self._stream_fresh
        return stream is not None and all(stream(x, positions, y, threads))

    def _checked(self, positions: AnyArray, threads: int | None) -> tuple[AnyArray, bool]:
        """The indices counted in the output, and whether each lies in its own plane.

        Raises:
            IndicesError: one lies outside the tensor that it counts in.
        """
        from unpool.kernels.cpu.max_unpool import check

        call, planes = self._call, self._planes
        counted = _counted_spatial(call, positions, planes, threads)
        limit = element_count((planes, *counted), self.row.label)
        wrong, is_local = check.check_range(positions, limit, planes, threads)
        if wrong >= 0:
            raise flat_indices.out_of_range(positions, wrong, limit, self.row.label)
        if counted != call.large.spatial:
            outer = (call.small.batch, call.small.channels)
            positions = flat_indices.rebase(positions, outer + counted, outer + call.large.spatial)
        return positions, is_local

    def _scatter(self, x: AnyArray, positions: AnyArray, y: AnyArray, is_local: bool, threads: int | None) -> None:
        """Write y from indices that were right when they were checked.

        Raises:
            IndicesError: one has been changed since, and is not.
        """
        from unpool.kernels.cpu.max_unpool.scatter import scatter

        channels = self._call.small.channels if self.row.is_channels_last else 1
        bits = self._storage.bits
        if not scatter(x.view(bits), positions, y.view(bits), channels, self._planes, is_local, threads):
            raise IndicesError(
                f"{self.row.label}: indices that stay as they are expected, got some that were changed during the "
                "call. Pass a copy, or leave them alone until the call returns."
            )


def _counted_spatial(call: MaxUnpoolCall, positions: AnyArray, planes: int, threads: int | None) -> tuple[int, ...]:
    """The spatial shape in which the indices count.

    Under "auto" it is the output's, unless they fit the inferred shape and not the output's.
    """
    from unpool.kernels.cpu.max_unpool.check import is_consistent

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
