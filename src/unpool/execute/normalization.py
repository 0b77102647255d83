"""Instance and group normalization with an activation, between arrays and the kernel."""

from dataclasses import dataclass
from math import prod

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.memory import allocate
from unpool.operators.attributes import Activation

SIMPLE_ACTIVATIONS = ("Relu", "LeakyRelu", "Clip")


@dataclass(frozen=True, eq=False)
class Normalization:
    """Makes the mean of every group of channels of an image 0 and its variance 1, then scales, shifts and activates.

    y = activation((x - mean) / sqrt(variance + epsilon) * scale + shift), with the biased variance. Source: ONNX
    InstanceNormalization, with a group for each channel, and GroupNormalization.
    """

    groups: int  # of neighbouring channels of an image
    epsilon: float
    scale: AnyArray  # (C,), float32
    shift: AnyArray  # (C,), float32
    activation: Activation | None = None  # one of SIMPLE_ACTIVATIONS

    def run(self, x: AnyArray, out: AnyArray | None, threads: int | None) -> AnyArray:
        """The array that is made of `x`, (N, C, ...) in float32; `out` if that has its shape, in row-major order.

        Raises:
            UnpoolError: x has another type or another number of channels.
        """
        from unpool.kernels.cpu.activation import PLAIN, Epilogue
        from unpool.kernels.cpu.normalization import normalize

        if x.dtype != np.float32 or x.ndim < 2 or x.shape[1] != self.scale.size:
            raise UnpoolError(
                f"expected float32 of shape (N, {self.scale.size}, ...), got {x.dtype.name} of shape {x.shape}."
            )
        is_target = out is not None and out.shape == x.shape and out.dtype == x.dtype and out.flags.c_contiguous
        y = out if out is not None and is_target else allocate(x.shape, x.dtype, "InstanceNormalization")
        if x.size:
            shape = (*x.shape[:2], prod(x.shape[2:]))
            source, target = (np.ascontiguousarray(array).reshape(shape) for array in (x, y))
            end = (
                PLAIN if self.activation is None else Epilogue(name=self.activation.name, params=self.activation.params)
            )
            normalize(source, target, self.scale, self.shift, self.groups, self.epsilon, end, threads)
        return y
