"""The activation Snake of an array or of a sum of two, between arrays and the kernel."""

from collections.abc import Sequence
from math import prod

import numpy as np

from unpool.dtypes import AnyArray
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
from unpool.operators.snake import SnakeSpec, check_shapes
from unpool.operators.tensors import same_type, value_type


class PreparedSnake:
    """Snake for one set of shapes; each call may pass other factors.

    By channel, y = x + magnitude * sin(frequency * x)^2. Source: Ziyin, Hartwig and Ueda, "Neural Networks Fail to
    Learn Periodic Functions and How to Fix It" (2020).
    """

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
        self.nbytes, self.kernel = 0, "snake"

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """Y, and with two outputs the sum of the inputs."""
        x, factors, *residuals = inputs
        arrays = [contiguous(require(array), self.version) for array in (x, *residuals) if array is not None]
        results = allocate_all(self.outputs, out, tuple(arrays))
        buffers = [buffer for _, buffer in results]
        if arrays[0].dtype == np.float64:
            _write_wide(arrays, require(factors), buffers)
        else:
            write_narrow(arrays, contiguous(require(factors), self.version), buffers, threads)
        return copy_all(results)

    def steps(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> tuple[PlanStep, ...] | None:
        """The step of a plan, None for float64 or arrays without elements."""
        from unpool.kernels.cpu.snake import steps

        x, factors, residual, *_ = (*inputs, None)
        if x is None or factors is None or x.dtype != np.float32 or not x.size:
            return None
        return steps(x, outputs[0], factors, residual=residual, total=outputs[1] if len(outputs) == 2 else None)


def write_narrow(
    arrays: Sequence[AnyArray], factors: AnyArray, buffers: Sequence[AnyArray], threads: int | None
) -> None:
    """Write Snake of the sum of one or two arrays in float32, and maybe the sum, all contiguous of shape (N, C, ...).

    `buffers` share no memory with `arrays`, which are read again where an argument of the sine is large. `factors` of
    shape (2, C) are the frequency and the magnitude.
    """
    from unpool.kernels.cpu.snake import snake

    if not arrays[0].size:
        return
    x, *others = map(_folded, arrays)
    y, *sums = map(_folded, buffers)
    residual, total = next(iter(others), None), next(iter(sums), None)
    if not snake(x, y, factors, residual=residual, total=total, threads=threads):
        _write_with_numpy(x if residual is None else x + residual, factors[..., None], y)


def _write_wide(arrays: Sequence[AnyArray], factors: AnyArray, buffers: Sequence[AnyArray]) -> None:
    """Write the outputs in float64, which no kernel has: reports compare with it."""
    total = arrays[0] if len(arrays) == 1 else arrays[0] + arrays[1]
    _write_with_numpy(total, factors.reshape(2, -1, *[1] * (total.ndim - 2)), buffers[0])
    for buffer in buffers[1:]:
        buffer[...] = total


def _write_with_numpy(x: AnyArray, factors: AnyArray, y: AnyArray) -> None:
    """Write Snake with the sines of NumPy, which are right for all arguments."""
    frequency, magnitude = factors
    with np.errstate(invalid="ignore", over="ignore"):
        y[...] = x + magnitude * np.square(np.sin(frequency * x))


def _folded(x: AnyArray) -> AnyArray:
    return x.reshape(*x.shape[:2], prod(x.shape[2:]))
