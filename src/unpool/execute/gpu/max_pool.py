"""MaxPool between tensors and its kernel."""

from collections.abc import Sequence

import numpy as np
import torch

from unpool.execute.gpu.tensors import named, place, storage_of
from unpool.kernels.gpu.max_pool import Pool, launch
from unpool.operators import max_pool
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.tensors import Shape


class GpuMaxPool:
    """MaxPool for one shape and type of X."""

    def __init__(
        self, spec: MaxPoolSpec, shape: Shape, dtype: torch.dtype, has_indices: bool, nan_last: bool, per_plane: bool
    ) -> None:
        self.row, self._has_indices = spec.row, has_indices
        storage = storage_of(spec.row, spec.activation, dtype)
        self._call = call = max_pool.call(spec, shape)
        pool = Pool(
            call.axes, call.small.batch, call.small.channels, storage.name,
            int(np.array(storage.lowest, storage.dtype).view(storage.bits)), spec.row.is_channels_last,
            spec.is_column_major, nan_last, per_plane, **named(spec.activation),
        )  # fmt: skip
        self._launch = launch(pool, has_indices)

    def run(
        self, given: Sequence[torch.Tensor | None], targets: Sequence[torch.Tensor | None], _: str
    ) -> tuple[torch.Tensor, ...]:
        """Y, and the indices if they are wanted, (N, C, d1..dk), of (X,)."""
        x = given[0]
        assert x is not None, "X is required"
        y, work = place(self.row, "Y", targets[0], self._call.small.in_layout(self.row), (x.dtype, (x,)))
        if not self._has_indices:
            self._launch(x.contiguous(), work, None)
            return (_put(work, y),)
        if not self.row.is_channels_last:
            shape = self._call.small.in_onnx_order()
            found, places = place(self.row, "Indices", targets[1], shape, (torch.int64, (x, y)))
            self._launch(x.contiguous(), work, places)
            return _put(work, y), _put(places, found)
        return self._run_channels_last(x, (work, y), targets[1])

    def _run_channels_last(
        self, x: torch.Tensor, outputs: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        """As `run`, where the kernel writes indices in the order of y, and the caller sees them as (N, C, d1..dk)."""
        work, y = outputs
        places = torch.empty(work.shape, dtype=torch.int64, device=x.device)
        found = view = places.movedim(-1, 1)
        if target is not None:
            shape = self._call.small.in_onnx_order()
            found = place(self.row, "Indices", target, shape, (torch.int64, (x, y)))[0]
        self._launch(x.contiguous(), work, places)
        return _put(work, y), _put(view, found)


def _put(work: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What a kernel wrote, where the caller wants it."""
    return y if work is y else y.copy_(work)
