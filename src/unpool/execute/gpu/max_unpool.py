"""MaxUnpool between tensors and its kernels."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from unpool.errors import IndicesError
from unpool.execute.gpu.tensors import named, numpy_type, place, storage_of
from unpool.execute.gpu.verdicts import judge
from unpool.kernels.gpu.max_unpool import Unpool, launch
from unpool.kernels.gpu.max_unpool.judge import NOTHING
from unpool.operators import max_unpool
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.tensors import Shape, index_type


class GpuMaxUnpool:
    """MaxUnpool for one set of shapes, one type of X and one value of `output_shape`."""

    def __init__(
        self,
        spec: MaxUnpoolSpec,
        shape: Shape,
        dtype: torch.dtype,
        indices: Shape,
        index_dtype: torch.dtype,
        asked: Shape | None,
    ) -> None:
        self.row = row = spec.row
        storage = storage_of(row, spec.activation, dtype)
        index_type(row.label, "I", numpy_type(row.label, "I", index_dtype))
        self._call = call = max_unpool.call(spec, shape, indices, asked)
        outer = (call.small.batch, call.small.channels)
        unpool = Unpool(
            call.axes, call.inferred, *outer, storage.name, call.index_space, row.is_channels_last,
            **named(spec.activation),
        )  # fmt: skip
        self._is_inferred = call.index_space == "inferred"
        self._limit = math.prod((*outer, *unpool.spaces[self._is_inferred]))
        self._has_auto = call.index_space == "auto"
        self._launch = launch(unpool)

    def run(
        self, given: Sequence[torch.Tensor | None], targets: Sequence[torch.Tensor | None], check: str
    ) -> tuple[torch.Tensor, ...]:
        """The output of (X, I)."""
        x, indices = given
        assert x is not None, "X is required"
        assert indices is not None, "I is required"
        shape = self._call.large.in_layout(self.row)
        y, work = place(self.row, "output", targets[0], shape, (x.dtype, (x, indices)))
        if y is not work:
            work.copy_(y)
        verdict = self._launch(x.contiguous(), indices.contiguous(), work, targets[0] is not None)
        judge(verdict, check, partial(self._error, tuple(indices.shape)))
        return (y if y is work else y.copy_(work),)

    def _error(self, shape: Shape, verdict: list[int]) -> IndicesError | None:
        """What a verdict means: see `kernels/gpu/max_unpool/judge.py`."""
        outside, apart, outside_inferred, apart_inferred = verdict
        if self._has_auto and apart != NOTHING and apart_inferred == NOTHING:
            return None
        first = outside_inferred if self._is_inferred else outside
        if first == NOTHING:
            return None
        at = [int(each) for each in np.unravel_index(first, shape)]
        return IndicesError(
            f"{self.row.label}: indices need values from 0 to {self._limit - 1}, got another at {at}. "
            "Pass the indices of the pool that made X, and its input shape as output_shape."
        )
