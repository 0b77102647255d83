"""Plans run steps on the arrays of their operands, and results choose what follows."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from unpool.kernels.cpu.machine.jit import record
from unpool.kernels.cpu.machine.plan import (
    DONE,
    NOT_MET,
    Condition,
    KernelPlan,
    KernelStep,
    Kind,
    Operand,
    connect,
)

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int64)
X, Y = Operand(Kind.INPUT, 0, (2, 3), FLOAT), Operand(Kind.OUTPUT, 0, (2, 3), FLOAT)
KEPT = Operand(Kind.SCRATCH, 0, (4,), INT)
FACTOR = Operand(Kind.CONSTANT, 0, (), FLOAT, np.float32(2))


class FakeLaunch:
    """Computes by a function of arrays, and notes the calls."""

    def __init__(self, *results: int, compute: Any = None) -> None:
        self.results, self.compute, self.calls = list(results), compute, []

    def run(self, arrays: tuple[Any, ...], threads: int | None, *more: Any) -> list[int]:
        self.calls.append((arrays, threads, more))
        if self.compute:
            self.compute(*arrays, *more)
        return self.results


def test_every_operand_has_memory_of_its_own() -> None:
    """Scratch begins as zeros in every run, also where one array is passed for two operands; constants are there."""

    def compute(x, y, kept, factor):
        assert kept.tolist() == [0] * 4
        kept[:] = 7
        y[...] = x * factor

    launch = FakeLaunch(compute=compute)
    plan = KernelPlan((KernelStep(launch, (X, Y, KEPT, FACTOR)),), (X, Y, Y))
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    for _ in range(2):
        assert plan.run((x, y, y), None) is None
    assert (y == 2).all()


def test_views_are_flat_parts() -> None:
    """A view has its type, its place, and may be written to or not; the caller's array keeps its flags."""
    launch = FakeLaunch()
    plan = KernelPlan((KernelStep(launch, (), (X.view(np.int32).flat(), Y.flat(2, 3, is_writable=True))),), (X, Y))
    x, y = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    plan.run((x, y), 3)
    _, threads, (first, second) = launch.calls[0]
    assert (threads, first.dtype, first.shape, first.flags.writeable) == (3, np.int32, (6,), False)
    assert second.tolist() == [2, 3, 4]
    assert second.flags.writeable
    assert x.flags.writeable


@pytest.mark.parametrize(
    ("outcome", "results", "choice"),
    [
        (Condition.ALWAYS, [0], 0), (Condition.ALL_TRUE, [1, 1], 0), (Condition.ALL_TRUE, [1, 0], 1),
        (Condition.ALL_FALSE, [0, 0], 0), (Condition.ALL_FALSE, [0, 1], 1), (Condition.IN_RANGE, [-1, -1], 0),
        (Condition.IN_RANGE, [-1, -2], 1), (Condition.IN_RANGE, [-2, 5, 9], 2), (Condition.NUMBER, [2], 2),
    ],
)  # fmt: skip
def test_results_choose(outcome: Condition, results: list[int], choice: int) -> None:
    """The step that follows, by its distance; the others are left out."""
    steps = [KernelStep(FakeLaunch(0), (X,), then=(DONE,)) for _ in range(3)]
    first = KernelStep(FakeLaunch(*results), (X,), (), outcome, (1, 2, 3))
    assert KernelPlan((first, *steps), (X,)).run((np.zeros((2, 3)),), 1) is None
    assert [len(step.launch.calls) for step in steps] == [int(number == choice) for number in range(3)]


def test_connected_steps() -> None:
    """What follows an end follows it wherever it is, and past the last step; other ends stay."""
    step = KernelStep(FakeLaunch(), (X,))
    first = (step._replace(then=(DONE, 1)), step._replace(then=(1, NOT_MET)))
    assert [each.then for each in connect(first, (step,))] == [(2, 1), (1, NOT_MET), (1,)]
    assert [each.then for each in connect(first, (step,), NOT_MET)] == [(DONE, 1), (DONE, 1), (1,)]
    assert connect(first, ()) == first


def test_records_have_records() -> None:
    """The fields of a named tuple inside another one follow each other as if they were its own."""

    class Size(NamedTuple):
        height: int
        is_even: bool

    class Params(NamedTuple):
        size: Size
        scale: float

    args = record(Params(Size(4, True), 0.5), scale="float32")
    assert (args[0]["size"]["height"], args[0]["size"]["is_even"], args[0]["scale"]) == (4, True, 0.5)
    assert args.itemsize == 24


def test_records_have_no_bytes_of_the_process() -> None:
    """Bytes between the fields of a record, which compiled models hold, are zero."""

    class Params(NamedTuple):
        is_even: bool
        width: int

    for _ in range(50):
        np.full(16, 255, np.uint8)  # freed memory that a record may take
        assert not any(record(Params(True, 1)).tobytes()[1:8])
