"""Calls of kernels as data: the steps that compute an operator for one set of shapes.

A `KernelPlan` runs them in Python. `unpool/onnxruntime/plans.py` writes them as bytes, for a number of threads, and
`unpool/onnxruntime/plan.c` runs these without Python.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np


class Kind(IntEnum):
    """What an operand is."""

    INPUT = 0
    OUTPUT = 1
    CONSTANT = 2
    SCRATCH = 3  # memory of a run, zeroed before it


@dataclass(frozen=True, eq=False)
class Operand:
    """A C-contiguous array of a plan, which has memory only while the plan runs. An argument is its handle."""

    kind: Kind
    number: int  # index among the operands of its kind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: Any = None  # the array of a constant

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def flat(self, first: int = 0, size: int | None = None, *, is_writable: bool = False) -> "OperandView":
        """The argument for a kernel that takes a flat array of some of its elements."""
        return OperandView(self, first, self.size - first if size is None else size, self.dtype, is_writable)

    def view(self, dtype: Any) -> "Operand":
        """The same memory with elements of another type of this size."""
        return Operand(self.kind, self.number, self.shape, np.dtype(dtype), self.value)


class PlanMemory:
    """Numbers the scratch and the constants of a plan."""

    def __init__(self) -> None:
        self._counts = {Kind.CONSTANT: 0, Kind.SCRATCH: 0}

    def scratch(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Operand:
        """New memory of a run."""
        return self._new(Kind.SCRATCH, shape, dtype)

    def constant(self, shape: tuple[int, ...], dtype: np.dtype[Any], value: Any = None) -> Operand:
        """A new array of the plan, whose shape and type are those of its value if it has one."""
        if value is not None:
            shape, dtype = value.shape, value.dtype
        return self._new(Kind.CONSTANT, shape, dtype, value)

    def _new(self, kind: Kind, shape: tuple[int, ...], dtype: np.dtype[Any], value: Any = None) -> Operand:
        self._counts[kind] += 1
        return Operand(kind, self._counts[kind] - 1, shape, np.dtype(dtype), value)


class OperandView(NamedTuple):
    """A flat array in an operand."""

    operand: Operand
    first: int
    size: int
    dtype: np.dtype[Any]
    is_writable: bool

    def taker(self) -> Callable[[Any], Any]:
        """The function that takes the flat array from the array of its operand."""
        first, stop, dtype, is_writable = self.first, self.first + self.size, self.dtype, self.is_writable
        is_whole = (first, stop) == (0, self.operand.size)

        def take(array: Any) -> Any:
            flat = array.reshape(-1)
            if flat.dtype is not dtype:
                flat = flat.view(dtype)
            if not is_whole:
                flat = flat[first:stop]
            if not is_writable:
                flat.flags.writeable = False
            return flat

        return take

    def sample(self) -> Any:
        """An array of its type."""
        array = np.empty(0, self.dtype)
        array.flags.writeable = self.is_writable
        return array


class Condition(IntEnum):
    """How the results of the parts of a step choose the entry of `then` that says what follows."""

    ALWAYS = 0  # the first entry
    ALL_TRUE = 1  # the first if all are true, else the second
    ALL_FALSE = 2  # the first if none is true, else the second
    IN_RANGE = 3  # the first if all are -1, the second if some are -2, the third if some are positions of wrong indices
    NUMBER = 4  # the entry whose index the only part returns


DONE = 0
NOT_MET = -1  # the plan cannot compute these values
OUT_OF_RANGE = -2  # an index is wrong
"""Entries of `then` that end the plan; any other entry is the distance to a later step, 1 to the next."""

ALL_FALLBACKS = 2
"""A plan may have two fallbacks for values that its algorithm cannot take: 1. it computes a few outputs in another way,
2. other algorithms follow. Each has packed weights of its own. A plan that lacks a fallback ends as not met."""


class KernelStep(NamedTuple):
    """A `Launch` or `Launches` with its operands, and what follows."""

    launch: Any
    arrays: tuple[Operand, ...]  # the kernel takes their handles
    more: tuple[Any, ...] = ()  # further arguments: views, arrays and numbers
    outcome: Condition = Condition.ALWAYS
    then: tuple[int, ...] = (1,)
    indices: Operand | None = None  # for IN_RANGE, the indices that the caller passed
    limit: int = 0  # indices are smaller
    threads: int | None = None  # maximum number of threads; None for the maximum of the call

    def resolve(self) -> "PlanStep":
        """The step for the cores of this machine."""
        (step,) = self.launch.steps(self.arrays, self.threads, *self.more, outcome=self.outcome, then=self.then)
        resolved: PlanStep = step._replace(indices=self.indices, limit=self.limit)
        return resolved


class PlanStep(NamedTuple):
    """A kernel with its arguments, `first` and `stop` left out."""

    kernel: Any
    args: tuple[Any, ...]  # numbers, arrays, operands, views, and tuples of these
    jobs: int
    parts: int  # number of parts, which threads share
    outcome: Condition = Condition.ALWAYS
    then: tuple[int, ...] = (1,)
    indices: Operand | None = None  # for IN_RANGE
    limit: int = 0  # indices are smaller

    def sample(self) -> tuple[Any, ...]:
        """Arguments of the same types."""
        return (*(_sample(arg) for arg in self.args), 0, 1)

    def operands(self) -> Iterator[Operand]:
        """All operands in its arguments."""
        yield from _operands(self.args)


def connect(first: tuple[KernelStep, ...], second: tuple[KernelStep, ...], end: int = DONE) -> tuple[KernelStep, ...]:
    """The steps of both: where `first` would end with `end`, such as NOT_MET, `second` follows."""
    if not second:
        return first
    connected = []
    for number, step in enumerate(first):
        rest = len(first) - number
        ends = (DONE if each >= rest else each for each in step.then)
        connected.append(step._replace(then=tuple(rest if each == end else each for each in ends)))
    return (*connected, *second)


class End(NamedTuple):
    """How a plan ended that did not compute the outputs."""

    code: int  # NOT_MET or OUT_OF_RANGE
    step: KernelStep
    position: int  # flat position of the first wrong index


class _BoundStep(NamedTuple):
    """A step, and where a plan has its operands."""

    call: Callable[[Any, int | None], list[Any]]  # computes it, from all arrays and a maximum of threads
    choose: Callable[[list[Any]], int]
    then: tuple[int, ...]
    step: KernelStep


class KernelPlan:
    """Runs steps."""

    def __init__(self, steps: tuple[KernelStep, ...], operands: tuple[Operand, ...]) -> None:
        """`operands` are those whose arrays `run` gets."""
        slots = {(each.kind, each.number): slot for slot, each in enumerate(operands)}
        self._others: list[Any] = []  # constants, and None for scratch
        for operand in _operands(tuple((step.arrays, step.more) for step in steps)):
            if (operand.kind, operand.number) not in slots:
                slots[operand.kind, operand.number] = len(operands) + len(self._others)
                self._others.append(operand.value)
        self._steps = [_BoundStep(_bind(each, slots), _CHOICES[each.outcome], each.then, each) for each in steps]

    def run(self, arrays: tuple[Any, ...], threads: int | None) -> End | None:
        """Run the steps on C-contiguous arrays, on a maximum number of threads; None if outputs are computed."""
        everything: Any = [*arrays, *self._others] if self._others else arrays
        number, count = 0, len(self._steps)
        while number < count:
            call, choose, then, step = self._steps[number]
            results = call(everything, threads)
            follows = then[choose(results)]
            if follows == DONE:
                return None
            if follows < DONE:
                position = next((each for each in results if each >= 0), 0) if follows == OUT_OF_RANGE else 0
                return End(follows, step, position)
            number += follows
        return None


def _bind(step: KernelStep, slots: dict[tuple[Kind, int], int]) -> Callable[[Any, int | None], list[Any]]:
    """The function that computes a step."""
    launch, most, places = step.launch, step.threads, [slots[each.kind, each.number] for each in step.arrays]
    scratch = [
        (slots[each.kind, each.number], each)
        for each in _operands((step.arrays, step.more))
        if each.kind is Kind.SCRATCH
    ]
    if len(places) == 3 and callable(launch) and not (step.more or scratch) and most is None:
        first, second, third = places
        return lambda arrays, threads: launch(arrays[first], arrays[second], arrays[third], threads)
    views = [each for each in step.more if isinstance(each, OperandView)]
    takers = [(each.taker(), slots[each.operand.kind, each.operand.number]) for each in views]
    others = step.more[len(views) :]  # views come first

    def call(arrays: Any, threads: int | None) -> list[Any]:
        for slot, operand in scratch:
            if arrays[slot] is None:
                arrays[slot] = np.zeros(operand.shape, operand.dtype)
        handles = tuple([arrays[place] for place in places])
        flat = [take(arrays[slot]) for take, slot in takers]
        results: list[Any] = launch.run(handles, most if most is not None else threads, *flat, *others)
        return results

    return call


def _in_range(results: list[Any]) -> int:
    return 2 if any(each >= 0 for each in results) else int(-2 in results)


_CHOICES: dict[Condition, Callable[[list[Any]], int]] = {
    Condition.ALWAYS: lambda _: 0,
    Condition.ALL_TRUE: lambda results: 0 if all(results) else 1,
    Condition.ALL_FALSE: lambda results: 1 if any(results) else 0,
    Condition.IN_RANGE: _in_range,
    Condition.NUMBER: lambda results: int(results[0]),
}


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
