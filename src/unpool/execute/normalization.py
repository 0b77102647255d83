"""Instance and group normalization with a sum and an activation, between arrays and the kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.memory import allocate
from unpool.operators.attributes import Activation

SIMPLE_ACTIVATIONS = ("Relu", "LeakyRelu", "Clip")


@dataclass(frozen=True, eq=False)
class Normalization:
    """Makes the mean of every group of channels of an image 0 and its variance 1, then scales, adds and activates.

    y = activation((x - mean) / sqrt(variance + epsilon) * scale + shift + residual), with the biased variance. Source:
    ONNX InstanceNormalization, with a group for each channel, and GroupNormalization.
    """

    reason: ClassVar[str] = "one pass for mean and variance, one for the rest"
    groups: int  # of neighbouring channels of an image
    epsilon: float
    scale: AnyArray  # (C,), float32
    shift: AnyArray  # (C,), float32
    activation: Activation | None = None  # one of SIMPLE_ACTIVATIONS

    def compute(
        self, inputs: Sequence[AnyArray], outs: Sequence[AnyArray | None], threads: int | None
    ) -> list[AnyArray]:
        """The result of `run` for x and maybe a residual."""
        x, residual, *_ = (*inputs, None)
        assert x is not None
        return [self.run(x, residual, outs[0], threads)]

    def run(self, x: AnyArray, residual: AnyArray | None, out: AnyArray | None, threads: int | None) -> AnyArray:
        """The array that is made of `x`, (N, C, ...) in float32; `out` if that has its shape, in row-major order.

        Raises:
            UnpoolError: x has another type or another number of channels, or the residual is not like it.
        """
        from unpool.kernels.cpu.activation import PLAIN, Epilogue
        from unpool.kernels.cpu.normalization import normalize

        for array in (x,) if residual is None else (x, residual):
            if array.dtype != np.float32 or array.shape != x.shape or x.ndim < 2 or x.shape[1] != self.scale.size:
                raise UnpoolError(
                    f"expected float32 of shape (N, {self.scale.size}, ...), got {array.dtype.name} of {array.shape}."
                )
        is_target = out is not None and out.shape == x.shape and out.dtype == x.dtype and out.flags.c_contiguous
        y = out if out is not None and is_target else allocate(x.shape, x.dtype, "InstanceNormalization")
        if x.size:
            last = self.activation
            normalize(
                self._folded(x), self._folded(y), self.scale, self.shift, self.groups, self.epsilon,
                residual=None if residual is None else self._folded(residual),
                epilogue=PLAIN if last is None else Epilogue(name=last.name, params=last.params), threads=threads,
            )  # fmt: skip
        return y

    @staticmethod
    def _folded(x: AnyArray) -> AnyArray:
        return np.ascontiguousarray(x).reshape(*x.shape[:2], prod(x.shape[2:]))
