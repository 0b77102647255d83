"""Where results are written: new memory, or the caller's once it fits and overlaps no input."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.geometry import element_count
from unpool.memory import RECYCLED_FROM, allocate
from unpool.operators.contract import Row
from unpool.operators.tensors import Shape, text

_OVERLAP_STEPS = 100_000  # of the exact test


class Output:
    """One output of a prepared call.

    Attributes:
        is_small: whether its memory never comes from a block that was in use before.
        new: makes uninitialised memory of its own, or raises ShapeError where this machine has not as much.
    """

    def __init__(self, row: Row, name: str, shape: Shape, dtype: np.dtype[Any]) -> None:
        self._row = row
        self._name = name
        self._shape = shape
        self._dtype = dtype
        self.is_small = element_count((*shape, dtype.itemsize), row.label) < RECYCLED_FROM
        self.new: Callable[[], AnyArray] = (
            partial(np.empty, shape, dtype) if self.is_small else partial(allocate, shape, dtype, row.label)
        )

    def place(self, target: AnyArray | None, others: tuple[AnyArray, ...]) -> tuple[AnyArray, AnyArray]:
        """Where the result ends up, and the contiguous memory that a kernel writes: mostly one and the same.

        Args:
            target: the caller's array; None for a new one.
            others: arrays that it must not overlap.

        Raises:
            UnpoolError: the caller's array does not fit.
        """
        if target is None:
            y = self.new()
            return y, y
        y = self.check(target, others)
        return y, y if y.flags.c_contiguous and y.flags.aligned else np.empty(self._shape, self._dtype)

    def check(self, target: AnyArray, others: tuple[AnyArray, ...]) -> AnyArray:
        """The caller's array, once it has the right shape and type and overlaps nothing."""
        where = f"{self._row.label}: out for {self._name}"
        if target.shape != self._shape or target.dtype != self._dtype:
            raise UnpoolError(
                f"{where} needs shape {text(self._shape)} and type {self._dtype.name}, "
                f"got {text(target.shape)} {target.dtype.name}."
            )
        if not target.flags.writeable:
            raise UnpoolError(f"{where} needs a writable array, got a read-only one. Pass a copy.")
        if any(_overlap(target, other) for other in others):
            raise UnpoolError(
                f"{where} needs memory of its own, got memory shared with another argument. Pass a new array."
            )
        return target


def _overlap(target: AnyArray, other: AnyArray) -> bool:
    """Whether two arrays share an element; also true where that is too laborious to tell."""
    try:
        return np.shares_memory(target, other, max_work=_OVERLAP_STEPS)  # type: ignore[arg-type]  # stub knows -1 and 0
    except np.exceptions.TooHardError:
        return True
