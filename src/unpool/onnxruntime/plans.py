"""Plans as bytes, for `plan.c`, which has the layout: a head, records of int64, and tables."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpool.execute.plans import Kind, Operand, OperandView, PlanStep, c_symbol, source_digest, type_names

ABI = 1
MAGIC = b"UNPOOLPL"
DIGEST_BYTES, SYMBOL_BYTES, ALIGNMENT, CHOICES = 64, 64, 64, 3
_HEAD_BYTES = len(MAGIC) + 2 * 8 + DIGEST_BYTES + SYMBOL_BYTES + 12 * 8
_NUMBER, _TABLE, _HANDLES = -1, -2, 1 << 16  # tags of words
_DONE = -1  # what follows a step; then NOT_MET and OUT_OF_RANGE


class NodePlan(NamedTuple):
    """The steps of one operator for one set of shapes."""

    label: str  # of the operator, for messages
    inputs: int  # number of them, which the node has
    outputs: tuple[Operand, ...]
    steps: tuple[PlanStep, ...]


class PlanBytes(NamedTuple):
    """A plan as bytes, and what it refers to."""

    blob: bytes
    kernels: tuple[PlanStep, ...]  # a step for every kernel
    constants: tuple[Any, ...]  # arrays


class _PlanWriter:
    """Bytes that begin at an offset."""

    def __init__(self, start: int) -> None:
        self.content = bytearray(start)
        self._tables: dict[bytes, int] = {}

    def add_table(self, data: bytes) -> int:
        """The offset of a table, which several steps may have."""
        if data not in self._tables:
            self._tables[data] = self.add(data, ALIGNMENT)
        return self._tables[data]

    def add(self, data: bytes, alignment: int = 8) -> int:
        """Append bytes; their offset."""
        self.content += bytes(-len(self.content) % alignment)
        at = len(self.content)
        self.content += data
        return at

    def add_words(self, words: Sequence[int]) -> int:
        return self.add(np.array(words, np.int64).tobytes())


def encode(plan: NodePlan, key: Sequence[int], library: str = "") -> PlanBytes:
    """The plan for inputs that are described by a key; `library` is the file of the kernels, if they are shipped."""
    writer = _PlanWriter(_HEAD_BYTES)
    operands: dict[tuple[Kind, int], Operand] = {(each.kind, each.number): each for each in plan.outputs}
    for step in plan.steps:
        operands |= {(each.kind, each.number): each for each in step.operands()}
    numbers = {name: number for number, name in enumerate(operands)}
    names_of_steps = [f"{step.kernel.name}({type_names(step.sample())})" for step in plan.steps]
    kernels: dict[str, PlanStep] = {}
    for name, step in zip(names_of_steps, plan.steps, strict=True):
        kernels.setdefault(name, step)
    names_of_kernels = list(kernels)
    steps: list[int] = []
    for number, step in enumerate(plan.steps):
        words = [word for arg in step.args for word in _words(arg, numbers, writer)]
        at = writer.add_words([part for word in words for part in word])
        then = [_absolute(number, each, len(plan.steps)) for each in (*step.then, *[0] * CHOICES)[:CHOICES]]
        indices = -1 if step.indices is None else numbers[step.indices.kind, step.indices.number]
        which = names_of_kernels.index(names_of_steps[number])
        steps += [which, at, len(words), step.jobs, step.parts, step.outcome, *then, step.limit, indices]
    constants = sorted(number for kind, number in operands if kind is Kind.CONSTANT)
    records = []
    for each in operands.values():
        number = constants.index(each.number) if each.kind is Kind.CONSTANT else each.number
        at = writer.add_words(each.shape)
        records += [each.kind, number, each.size * each.dtype.itemsize, len(each.shape), at]
    names_in_library = (c_symbol(step.kernel.name, step.sample()) for step in kernels.values())
    symbols = b"".join(name.encode().ljust(SYMBOL_BYTES, b"\0") for name in names_in_library)
    places = [
        *(writer.add_words(key), len(key), writer.add_words(records), len(operands)),
        *(writer.add_words(steps), len(plan.steps), writer.add(symbols), len(kernels)),
    ]
    label = writer.add(plan.label.encode() + b"\0")
    writer.add(b"")
    counts = [*places, plan.inputs, len(plan.outputs), len(constants), label]
    names = source_digest(".py").encode().ljust(DIGEST_BYTES, b"\0") + library.encode().ljust(SYMBOL_BYTES, b"\0")
    sizes = np.array([ABI, len(writer.content)], np.int64)
    writer.content[:_HEAD_BYTES] = MAGIC + sizes.tobytes() + names + np.array(counts, np.int64).tobytes()
    values = tuple(operands[Kind.CONSTANT, number].value for number in constants)
    return PlanBytes(bytes(writer.content), tuple(kernels.values()), values)


def _absolute(number: int, then: int, count: int) -> int:
    """What follows a step, as C counts it."""
    if then < 0:
        return _DONE + then
    return _DONE if then == 0 or number + then >= count else number + then


def _words(arg: Any, numbers: dict[tuple[Kind, int], int], writer: _PlanWriter) -> list[tuple[int, int]]:
    """The words of an argument, as tags and values; see `make_c_entry`."""
    if isinstance(arg, Operand):
        return [(_HANDLES + numbers[arg.kind, arg.number], 0)]
    if isinstance(arg, OperandView):
        size = arg.dtype.itemsize
        address = numbers[arg.operand.kind, arg.operand.number], arg.first * size
        return _array_words((arg.size,), (size,), size, address)
    if isinstance(arg, np.ndarray):
        table = np.ascontiguousarray(arg)
        address = _TABLE, writer.add_table(table.tobytes())
        sizes = [max(1, size) for size in arg.shape]  # NumPy's own steps of an empty array are 0 or more
        strides = tuple(arg.itemsize * math.prod(sizes[axis:]) for axis in range(1, arg.ndim + 1))
        return _array_words(arg.shape, strides, arg.itemsize, address)
    if isinstance(arg, tuple):
        return [word for each in arg for word in _words(each, numbers, writer)]
    if isinstance(arg, float):
        return [(_NUMBER, int(np.float64(arg).view(np.int64)))]
    return [(_NUMBER, int(arg))]


def _array_words(
    shape: tuple[int, ...], strides: tuple[int, ...], size: int, address: tuple[int, int]
) -> list[tuple[int, int]]:
    """An array without an owner: two words of 0, elements, bytes of one, address, sizes and steps in bytes."""
    numbers = [0, 0, math.prod(shape), size]
    return [*((_NUMBER, each) for each in numbers), address, *((_NUMBER, each) for each in (*shape, *strides))]
