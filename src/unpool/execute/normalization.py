"""Instance normalization, between arrays and the kernel."""

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
from unpool.operators.normalization import NormalizationSpec, check_shapes
from unpool.operators.tensors import same_type, value_type


class PreparedNormalization:
    """InstanceNormalization for one set of shapes; scale and shift may differ between calls."""

    def __init__(self, spec: NormalizationSpec, inputs: InputTypes, _: CallOptions) -> None:
        self.version = version = spec.version
        (shape, dtype), scale, shift = map(require, inputs)
        storage = value_type(version, "X", dtype)
        for name, other in (("scale", scale), ("B", shift)):
            same_type(version, f"X and {name}", dtype, other[1])
        check_shapes(spec, shape, scale[0], shift[0])
        self._epsilon = spec.epsilon
        self.outputs = (Output(version, "Y", shape, storage.dtype),)
        self.nbytes, self.kernel = 0, "normalization"

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """Y; in float64, which no kernel has, by NumPy: reports compare with it."""
        from unpool.kernels.cpu.normalization import normalize

        x, scale, shift = (contiguous(require(array), self.version) for array in inputs)
        results = allocate_all(self.outputs, out, (x,))
        y, rows = results[0][1], (*x.shape[:2], prod(x.shape[2:]))
        if x.size and x.dtype == np.float64:
            wide = x.reshape(rows)
            with np.errstate(invalid="ignore", over="ignore"):
                deviation = np.sqrt(wide.var(axis=2, keepdims=True) + self._epsilon)
                normal = (wide - wide.mean(axis=2, keepdims=True)) / deviation
                y[...] = (normal * scale[:, None] + shift[:, None]).reshape(x.shape)
        elif x.size:
            normalize(x.reshape(rows), y.reshape(rows), scale, shift, self._epsilon, threads=threads)
        return copy_all(results)

    def steps(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand]) -> tuple[PlanStep, ...] | None:
        """The step of a plan, None for float64 or arrays without elements."""
        from unpool.kernels.cpu.normalization import steps

        x, scale, shift = inputs
        if x is None or scale is None or shift is None or x.dtype != np.float32 or not x.size:
            return None
        return steps(x, outputs[0], scale, shift, self._epsilon)
