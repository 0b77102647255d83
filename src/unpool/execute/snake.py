"""The activation Snake of an array or of a sum of two, between arrays and the kernel."""

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
from unpool.operators.snake import SnakeSpec, check_shapes
from unpool.operators.tensors import same_type, value_type


@dataclass(frozen=True, eq=False)
class Snake:
    """Adds the square of a sine: y = x + magnitude * sin(frequency * x)^2, by channel.

    Source: Ziyin, Hartwig and Ueda, "Neural Networks Fail to Learn Periodic Functions and How to Fix It" (2020).

    Attributes:
        factors: (2, C), float32: the frequency and the magnitude.
        has_total: whether the sum of the inputs is the second output.
    """

    reason: ClassVar[str] = "one pass over memory in place of several"
    factors: AnyArray
    has_total: bool = False

    def compute(
        self, inputs: Sequence[AnyArray], outs: Sequence[AnyArray | None], threads: int | None
    ) -> list[AnyArray]:
        """Snake of the sum of one or two arrays (N, C, ...) in float32, and maybe the sum; in `outs` if these fit.

        `outs` share no memory with the inputs, which are read again where an argument of the sine is large.

        Raises:
            UnpoolError: an array has another type, another shape than the first, or another number of channels.
        """
        from unpool.kernels.cpu.snake import snake

        x, channels = inputs[0], self.factors.shape[1]
        for array in inputs:
            if array.dtype != np.float32 or array.shape != x.shape or x.ndim < 2 or x.shape[1] != channels:
                raise UnpoolError(
                    f"expected float32 of shape (N, {channels}, ...), got {array.dtype.name} of {array.shape}."
                )
        results = [_target(out, x) for out in outs[: 1 + self.has_total]]
        if x.size:
            source, *others = (_folded(np.ascontiguousarray(array)) for array in inputs)
            y, *sums = map(_folded, results)
            residual, total = next(iter(others), None), next(iter(sums), None)
            if not snake(source, y, self.factors, residual=residual, total=total, threads=threads):
                self._write_large(source if residual is None else source + residual, y)
        return results

    def _write_large(self, x: AnyArray, y: AnyArray) -> None:
        """Write y with the sines of NumPy, which are right for all arguments."""
        frequency, magnitude = self.factors[..., None]
        with np.errstate(invalid="ignore", over="ignore"):
            y[...] = x + magnitude * np.square(np.sin(frequency * x))


class PreparedSnake:
    """Snake for one set of shapes; each call may pass other factors."""

    def __init__(self, spec: SnakeSpec, inputs: InputTypes, options: CallOptions) -> None:
        self.version = version = spec.version
        x, second, residual = (*inputs, None)[:3]
        (shape, dtype), factors = require(x), require(second)
        storage = value_type(version, "X", dtype)
        same_type(version, "X and factors", dtype, factors[1])
        if residual is not None:
            same_type(version, "X and residual", dtype, residual[1])
        check_shapes(shape, factors[0], None if residual is None else residual[0])
        self.outputs = tuple(Output(version, name, shape, storage.dtype) for name in version.outputs[: options.outputs])
        self.nbytes = 0

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """Y, and with two outputs the sum of the inputs."""
        x, factors, *residuals = inputs
        arrays = [contiguous(require(array), self.version) for array in (x, *residuals) if array is not None]
        results = allocate_all(self.outputs, out, tuple(arrays))
        buffers = [buffer for _, buffer in results]
        if arrays[0].dtype == np.float64:
            _write_wide(arrays, require(factors), buffers)
        else:
            Snake(contiguous(require(factors), self.version), len(buffers) == 2).compute(arrays, buffers, threads)
        return copy_all(results)

    def steps(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> tuple[PlanStep, ...] | None:
        """The step of a plan, None for float64 or arrays without elements."""
        from unpool.kernels.cpu.snake import steps

        x, factors, residual, *_ = (*inputs, None)
        if x is None or factors is None or x.dtype != np.float32 or not x.size:
            return None
        return steps(x, outputs[0], factors, residual=residual, total=outputs[1] if len(outputs) == 2 else None)


def _write_wide(arrays: Sequence[AnyArray], factors: AnyArray, buffers: Sequence[AnyArray]) -> None:
    """Write the outputs in float64, which no kernel has: reports compare with it."""
    total = arrays[0] if len(arrays) == 1 else arrays[0] + arrays[1]
    frequency, magnitude = factors.reshape(2, -1, *[1] * (total.ndim - 2))
    with np.errstate(invalid="ignore", over="ignore"):
        buffers[0][...] = total + magnitude * np.square(np.sin(frequency * total))
    for buffer in buffers[1:]:
        buffer[...] = total


def _target(out: AnyArray | None, x: AnyArray) -> AnyArray:
    """`out` if it has the shape and type of x, in row-major order; otherwise a new array."""
    if out is not None and out.shape == x.shape and out.dtype == x.dtype and out.flags.c_contiguous:
        return out
    return allocate(x.shape, x.dtype, "Snake")


def _folded(x: AnyArray) -> AnyArray:
    return x.reshape(*x.shape[:2], prod(x.shape[2:]))
