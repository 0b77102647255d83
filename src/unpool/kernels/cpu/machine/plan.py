"""Calls of kernels as data: the steps that compute an operator for one set of shapes, without Python.

`unpool/onnxruntime/plans.py` writes them as bytes, and `unpool/onnxruntime/plan.c` runs these.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np


class Kind(IntEnum):
    """What an operand is."""

    INPUT = 0
    OUTPUT = 1
    CONSTANT = 2
    SCRATCH = 3  # memory of a run, which begins as zeros


@dataclass(frozen=True, eq=False)
class Operand:
    """A C-contiguous array of a plan, which has its memory only when the plan runs. As an argument: its handle."""

    kind: Kind
    number: int  # among its kind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: Any = None  # of a constant

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def flat(self, first: int = 0, size: int | None = None, *, is_writable: bool = False) -> "OperandView":
        """The argument that is a flat array of some of its elements."""
        return OperandView(self, first, self.size - first if size is None else size, self.dtype, is_writable)

    def view(self, dtype: Any) -> "Operand":
        """The same memory with elements of another type of this size."""
        return Operand(self.kind, self.number, self.shape, np.dtype(dtype), self.value)


class OperandView(NamedTuple):
    """A flat array in an operand."""

    operand: Operand
    first: int
    size: int
    dtype: np.dtype[Any]
    is_writable: bool

    def sample(self) -> Any:
        """An array of its type."""
        array = np.empty(0, self.dtype)
        array.flags.writeable = self.is_writable
        return array


class Condition(IntEnum):
    """How the results of all parts of a step choose what follows, by its place in `then`."""

    ALWAYS = 0  # the first
    ALL_TRUE = 1  # the first if all are true, else the second
    ALL_FALSE = 2  # the first if none is true, else the second
    IN_RANGE = 3  # the first if all are -1, the second if some are -2, the third if some are positions of wrong indices
    NUMBER = 4  # the one with the number that the only part returns


DONE = 0
NOT_MET = -1  # the plan can't compute these values
OUT_OF_RANGE = -2  # an index is wrong
"""What may follow a step beside a later one, which is given as its distance: 1 is the next."""


class PlanStep(NamedTuple):
    """A kernel with its arguments, `first` and `stop` left out."""

    kernel: Any
    args: tuple[Any, ...]  # numbers, arrays, operands, views, and tuples of these
    jobs: int
    parts: int  # that threads may compute
    outcome: Condition = Condition.ALWAYS
    then: tuple[int, ...] = (1,)
    indices: Operand | None = None  # of IN_RANGE
    limit: int = 0  # numbers below it are indices

    def sample(self) -> tuple[Any, ...]:
        """Arguments of the same types."""
        return (*(_sample(arg) for arg in self.args), 0, 1)

    def operands(self) -> Iterator[Operand]:
        """All operands in its arguments."""
        yield from _operands(self.args)


def _sample(arg: Any) -> Any:
    if isinstance(arg, Operand):
        return 0
    if isinstance(arg, OperandView):
        return arg.sample()
    if isinstance(arg, tuple):
        items = map(_sample, arg)
        return type(arg)(*items) if hasattr(arg, "_fields") else tuple(items)
    return arg


def _operands(arg: Any) -> Iterator[Operand]:
    if isinstance(arg, Operand):
        yield arg
    elif isinstance(arg, OperandView):
        yield arg.operand
    elif isinstance(arg, tuple):
        for each in arg:
            yield from _operands(each)
