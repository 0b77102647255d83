"""A sum of two arrays and an activation of it between arrays and the kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.memory import allocate
from unpool.operators.attributes import Activation


@dataclass(frozen=True, eq=False)
class Snake:
    """The activation x + magnitude * sin(frequency * x)^2, by channel.

    Source: Ziyin, Hartwig and Ueda, "Neural Networks Fail to Learn Periodic Functions and How to Fix It" (2020).
    """

    factors: AnyArray  # (2, C), float32: the frequency and the magnitude


@dataclass(frozen=True, eq=False)
class Elementwise:
    """An activation of one array, or of the sum of two.

    Attributes:
        activation: a Snake, or an activation of slope and bounds; the latter only of a sum.
        has_total: whether the sum is the second output.
    """

    reason: ClassVar[str] = "one pass over memory in place of several"
    activation: Snake | Activation
    has_total: bool = False

    def compute(
        self, inputs: Sequence[AnyArray], outs: Sequence[AnyArray | None], threads: int | None
    ) -> list[AnyArray]:
        """The activated array and maybe the sum, of one or two arrays (N, C, ...) in float32; in `outs` if these fit.

        Raises:
            UnpoolError: an array has another type, another shape than the first, or another number of channels.
        """
        from unpool.kernels.cpu.activation import Epilogue
        from unpool.kernels.cpu.elementwise import add, snake

        x, last = inputs[0], self.activation
        channels = last.factors.shape[1] if isinstance(last, Snake) else None
        for array in inputs:
            is_known = array.ndim > 1 and channels in (None, array.shape[1])
            if array.dtype != np.float32 or array.shape != x.shape or not is_known:
                expected = f"(N, {'C' if channels is None else channels}, ...)"
                raise UnpoolError(f"expected float32 of shape {expected}, got {array.dtype.name} of {array.shape}.")
        results = [_target(out, x) for out in outs[: 1 + self.has_total]]
        if x.size:
            source, *rest = (_folded(np.ascontiguousarray(array)) for array in inputs)
            residual = rest[0] if rest else None
            y, total, *_ = (*map(_folded, results), None)
            if not isinstance(last, Snake):
                assert residual is not None, "an activation alone is part of another step"
                epilogue = Epilogue(name=last.name, params=last.params)
                add(source, y, residual, epilogue=epilogue, total=total, threads=threads)
            elif not snake(source, y, last.factors, residual=residual, total=total, threads=threads):
                _write_large(last, source if residual is None else source + residual, y)
        return results


def _target(out: AnyArray | None, x: AnyArray) -> AnyArray:
    """`out` if it has the shape and type of x, in row-major order; otherwise a new array."""
    if out is not None and out.shape == x.shape and out.dtype == x.dtype and out.flags.c_contiguous:
        return out
    return allocate(x.shape, x.dtype, "Add")


def _folded(x: AnyArray) -> AnyArray:
    return x.reshape(*x.shape[:2], prod(x.shape[2:]))


def _write_large(snake: Snake, x: AnyArray, y: AnyArray) -> None:
    """Write y with the sines of NumPy, which are right for all arguments."""
    frequency, magnitude = snake.factors[..., None]
    with np.errstate(invalid="ignore", over="ignore"):
        y[...] = x + magnitude * np.square(np.sin(frequency * x))
