"""ConvTranspose between arrays and kernels, and its cost."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray, storage_type
from unpool.execute.arrays import CallOptions, InputTypes, OptionalArrays, Output, check_type, contiguous, require
from unpool.geometry import Axis
from unpool.kernels.cpu.machine import libraries
from unpool.kernels.cpu.machine.host import available_cores
from unpool.kernels.cpu.machine.plan import ALL_FALLBACKS, Kind, Operand, PlanStep
from unpool.operators import conv_transpose
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import Shape, same_type

_MOST_WORD = 1 << 62


class PreparedConvTranspose:
    """ConvTranspose for one set of shapes and types."""

    def __init__(self, spec: ConvTransposeSpec, inputs: InputTypes, _: CallOptions | None = None) -> None:
        from unpool.kernels.cpu.activation import Epilogue
        from unpool.kernels.cpu.conv_transpose.dispatch import ConvTransposeDispatcher
        from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, Storage

        self.version = version = spec.version
        x, w, b = (*inputs, None)[:3]
        (shape, dtype), (w_shape, w_dtype) = require(x), require(w)
        self._storage = check_type(version, spec.activation, dtype)
        same_type(version, "X and W", dtype, w_dtype)
        if b is not None:
            same_type(version, "X and B", dtype, b[1])
        call = conv_transpose.call(spec, shape, w_shape, None if b is None else b[0])
        self._y = Output(version, "Y", call.large.in_layout(version), self._storage.dtype)
        self.outputs = (self._y,)
        self._zeros = np.zeros(call.large.channels, self._storage.compute)
        name, params = (None, ()) if spec.activation is None else (spec.activation.name, spec.activation.params)
        is_plain = self._storage.dtype == self._storage.compute and not version.is_channels_last
        channels, maps = w_shape[:2]
        storage = Storage(is_plain, version.is_channels_last)
        problem = ConvTransposeProblem(
            call.axes, shape[0], spec.group, channels, maps, self._storage.compute, storage, is_cached=True,
            is_exact=spec.is_exact, algorithm=spec.algorithm,
        )  # fmt: skip
        self._dispatcher = ConvTransposeDispatcher(problem, dtype, Epilogue(version.is_channels_last, name, params))

    def run(self, inputs: OptionalArrays, out: OptionalArrays, threads: int | None) -> tuple[AnyArray, ...]:
        """Y."""
        x, w, b = require(inputs[0]), require(inputs[1]), inputs[2] if len(inputs) > 2 else None
        version = self.version
        y, buffer = self._y.allocate(out[0], (x, w) if b is None else (x, w, b))
        bias = self._zeros if b is None else contiguous(b, version, self._storage.compute)
        self._dispatcher(contiguous(x, version), contiguous(w, version), bias, buffer, threads)
        if buffer is not y:
            y[...] = buffer
        return (y,)

    def steps(
        self, inputs: Sequence[Operand | None], outputs: Sequence[Operand], fallbacks: int = ALL_FALLBACKS
    ) -> tuple[PlanStep, ...]:
        """The steps of a plan with so many fallbacks; constant weights are from `own_weights`."""
        x, w, *rest = inputs
        assert x is not None, "required inputs were checked"
        assert w is not None, "required inputs were checked"
        b = rest[0] if rest else None
        if b is None or b.value is not None:
            value = self._zeros if b is None else contiguous(b.value, self.version, self._storage.compute)
            b = Operand(Kind.CONSTANT, 0, value.shape, value.dtype, value)
        return tuple(step.resolve() for step in self._dispatcher.steps(x, w, b, outputs[0], fallbacks))

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of calls so far."""
        return self._dispatcher.nbytes

    @property
    def kernel(self) -> str:
        """The algorithm for weights that are finite and constant, such as "phases" or "gemm_1x1"."""
        return self._dispatcher.algorithms(is_cached=True)[0].name

    @property
    def algorithms(self) -> tuple[str, ...]:
        """All algorithms for such weights, without hopeless ones."""
        return tuple(each.name for each in self._dispatcher.supported_algorithms)


@lru_cache(maxsize=4096)
def cost(spec: ConvTransposeSpec, x_shape: Shape, w_shape: Shape, dtype: np.dtype[Any]) -> float:
    """The time of a call with constant weights, in multiply-adds at the processor's peak; infinity where unknown."""
    axes, storage = conv_transpose.call(spec, x_shape, w_shape, None).axes, storage_type(dtype, spec.version.label)
    is_last = spec.version.is_channels_last
    is_plain = storage.dtype == storage.compute and not is_last
    shipped = _shipped_cost(axes, x_shape[0], spec.group, w_shape, storage.compute) if is_plain else None
    if shipped is not None:
        return shipped
    from unpool.kernels.cpu import conv_transpose as kernel
    from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, Storage

    problem = ConvTransposeProblem(
        axes, x_shape[0], spec.group, w_shape[0], w_shape[1], storage.compute, Storage(is_plain, is_last),
        is_cached=True,
    )  # fmt: skip
    return kernel.algorithms(problem)[0].cost(problem)


def _shipped_cost(axes: tuple[Axis, ...], batch: int, group: int, w_shape: Shape, dtype: np.dtype[Any]) -> float | None:
    """The same by the library of kernels, without an import of theirs; None where it does not know."""
    words = [dtype.itemsize, available_cores(), batch, group, *w_shape[:2]]
    words += [word for axis in axes for word in (axis.large, axis.small, *axis.window, axis.begin)]
    if max(words) >= _MOST_WORD:
        return None
    args = np.array(words, np.int64), np.empty(1), 0, 1
    kernel = libraries.find_shipped("unpool.kernels.cpu.planner.conv_transpose.cost_conv_transpose", args)
    return float(args[1][0]) if kernel is not None and kernel(*args) == 0 else None


def round_up_to_vectors(count: int, dtype: np.dtype[Any]) -> int:
    """`count` elements, rounded up to whole vectors of this processor."""
    from unpool.kernels.cpu.machine.host import vector_bytes

    lanes = vector_bytes() // dtype.itemsize
    return -(-count // lanes) * lanes
