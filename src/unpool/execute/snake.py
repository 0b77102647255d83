"""The activation Snake between arrays and the kernel."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.memory import allocate


@dataclass(frozen=True, eq=False)
class Snake:
    """Adds the square of a sine to every element: y = x + magnitude * sin(frequency * x)^2, by channel.

    Source: Ziyin, Hartwig and Ueda, "Neural Networks Fail to Learn Periodic Functions and How to Fix It" (2020).
    """

    reason: ClassVar[str] = "one pass over memory for all of Snake"
    frequency: AnyArray  # (C,), float32
    magnitude: AnyArray  # (C,), float32

    def run(self, x: AnyArray, _: AnyArray | None, out: AnyArray | None, threads: int | None) -> AnyArray:
        """The array that is made of `x`, (N, C, ...) in float32; `out` if that has its shape, in row-major order.

        Raises:
            UnpoolError: x has another type or another number of channels.
        """
        from unpool.kernels.cpu.snake import snake

        if x.dtype != np.float32 or x.ndim < 2 or x.shape[1] != self.frequency.size:
            raise UnpoolError(
                f"expected float32 of shape (N, {self.frequency.size}, ...), got {x.dtype.name} of {x.shape}."
            )
        is_target = out is not None and out.shape == x.shape and out.dtype == x.dtype and out.flags.c_contiguous
        y = out if out is not None and is_target else allocate(x.shape, x.dtype, "Snake")
        if x.size:
            source, target = (each.reshape(*x.shape[:2], prod(x.shape[2:])) for each in (np.ascontiguousarray(x), y))
            if not snake(source, target, self.frequency, self.magnitude, threads=threads):
                self._run_large(source, target)
        return y

    def _run_large(self, x: AnyArray, y: AnyArray) -> None:
        """Write y with the sines of NumPy, which are right for all arguments."""
        with np.errstate(invalid="ignore", over="ignore"):
            y[...] = x + self.magnitude[:, None] * np.square(np.sin(self.frequency[:, None] * x))
