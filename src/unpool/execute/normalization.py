"""Instance and group normalization with a sum and an activation, between arrays and the kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.execute.arrays import (
    CallOptions,
    InputTypes,
    OptionalArrays,
    Output,
    allocate_all,
    contiguous,
    copy_all,
    require,
)
from unpool.kernels.cpu.machine.plan import Operand, PlanStep
from unpool.memory import allocate
from unpool.operators.attributes import Activation
from unpool.operators.normalization import SIMPLE_ACTIVATIONS, NormalizationSpec, check_shapes
from unpool.operators.tensors import same_type, value_type

__all__ = ["SIMPLE_ACTIVATIONS", "Normalization", "PreparedNormalization"]


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


class PreparedNormalization:
    """InstanceNormalization or GroupNormalization for one set of shapes; scale and shift may differ between calls."""

    def __init__(self, spec: NormalizationSpec, inputs: InputTypes, _: CallOptions) -> None:
        self.version = version = spec.version
        x, second, third, residual = (*inputs, None)[:4]
        (shape, dtype), scale, shift = require(x), require(second), require(third)
        storage = value_type(version, "X", dtype)
        for name, other in (("scale", scale), ("B", shift), ("residual", residual)):
            if other is not None:
                same_type(version, f"X and {name}", dtype, other[1])
        self._spec = spec
        self._groups = check_shapes(spec, shape, scale[0], shift[0], None if residual is None else residual[0])
        self.outputs = (Output(version, "Y", shape, storage.dtype),)
        self.nbytes = 0

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """Y."""
        x, scale, shift, *others = [None if array is None else contiguous(array, self.version) for array in inputs]
        residual, spec = next(iter(others), None), self._spec
        results = allocate_all(self.outputs, out, tuple(array for array in (x, residual) if array is not None))
        factors, y = (require(scale), require(shift)), results[0][1]
        if require(x).dtype == np.float64:
            self._write_wide(require(x), *factors, residual, y)
        else:
            normalization = Normalization(self._groups, spec.epsilon, *factors, spec.activation)
            normalization.run(require(x), residual, y, threads)
        return copy_all(results)

    def _write_wide(
        self, x: AnyArray, scale: AnyArray, shift: AnyArray, residual: AnyArray | None, y: AnyArray
    ) -> None:
        """Write y in float64, which no kernel has: reports compare with it."""
        from unpool.kernels.cpu.activation import activate

        last, per_channel = self._spec.activation, (-1, *[1] * (x.ndim - 2))
        if not x.size:
            return
        groups = x.reshape(x.shape[0], self._groups, -1)
        with np.errstate(invalid="ignore", over="ignore"):
            deviation = np.sqrt(groups.var(axis=2, keepdims=True) + self._spec.epsilon)
            normalized = ((groups - groups.mean(axis=2, keepdims=True)) / deviation).reshape(x.shape)
            y[...] = normalized * scale.reshape(per_channel) + shift.reshape(per_channel)
            if residual is not None:
                y += residual
        if last is not None:
            y[...] = activate(y, last.name, last.params)

    def steps(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> tuple[PlanStep, ...] | None:
        """The step of a plan, None for float64 or arrays without elements."""
        from unpool.kernels.cpu.activation import PLAIN, Epilogue
        from unpool.kernels.cpu.normalization import steps

        (x, scale, shift, residual, *_), last = (*inputs, None), self._spec.activation
        if x is None or scale is None or shift is None or x.dtype != np.float32 or not x.size:
            return None
        epilogue = PLAIN if last is None else Epilogue(name=last.name, params=last.params)
        return steps(
            x, outputs[0], scale, shift, self._groups, self._spec.epsilon, residual=residual, epilogue=epilogue
        )
