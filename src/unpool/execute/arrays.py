"""Arrays before and after a kernel: types and layout of inputs, and memory for outputs.

An output goes to new memory, or to the caller's array if that fits and overlaps no input.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import AnyArray, StorageType
from unpool.errors import UnpoolError
from unpool.kernels.cpu.machine.plan import KernelStep, Operand
from unpool.memory import MIN_RECYCLED_BYTES, allocate
from unpool.memory import check as check_memory
from unpool.operators.attributes import Activation, check_activation_type
from unpool.operators.contract import OperatorVersion
from unpool.operators.tensors import Shape, value_type

OptionalArrays = Sequence[AnyArray | None]
TypedShape = tuple[Shape, np.dtype[Any]]
InputTypes = tuple[TypedShape | None, ...]
_T = TypeVar("_T")


class CallOptions(NamedTuple):
    """What a prepared call depends on besides its spec and the shapes and types of its inputs."""

    outputs: int = 1
    nan_last: bool = False
    per_plane: bool = False
    output_shape: Shape | None = None
    """The value of MaxUnpool's third input."""


def require(x: _T | None) -> _T:
    """A required input; a check before has made sure that it is not None."""
    assert x is not None, "required inputs were checked"
    return x


def check_type(version: OperatorVersion, activation: Activation | None, dtype: np.dtype[Any]) -> StorageType:
    """The storage and compute type of X, which this version of the operator and the activation have to support."""
    storage = value_type(version, "X", dtype)
    check_activation_type(version, activation, storage.name)
    return storage


def contiguous(x: AnyArray, version: OperatorVersion, dtype: np.dtype[Any] | None = None) -> AnyArray:
    """`x` in row-major order, and in a type; logs a copy."""
    flags = x.flags
    if flags.c_contiguous and flags.aligned and (dtype is None or x.dtype == dtype):
        return x
    dtype = dtype or x.dtype
    check_memory(x.shape, dtype, version.label)
    copy = np.require(x, dtype, ["C", "A"])
    if not np.may_share_memory(copy, x):
        import logging  # most processes log nothing

        log = logging.getLogger("unpool")
        log.info(
            "%s: copied %s %s to row-major %s", version.label, format_shape(x.shape), x.dtype.name, copy.dtype.name
        )
    return copy


def activation_steps(y: Operand, activation: Activation | None) -> tuple[KernelStep, ...]:
    """The step that activates the output of a kernel in place; none without an activation, or without elements."""
    if activation is None or y.size == 0:
        return ()
    from unpool.kernels.cpu.activation import launch

    return (KernelStep(launch(y.size, y.dtype, activation.name, activation.params), (y,)),)


class Output:
    """One output of a prepared call: its `size` in bytes, and `new`, which allocates uninitialised memory.

    If `is_small`, its memory is never recycled. An output that exceeds the memory of this process is a ShapeError.
    """

    def __init__(self, version: OperatorVersion, name: str, shape: Shape, dtype: np.dtype[Any]) -> None:
        self._version, self._name, self.shape, self.dtype = version, name, shape, dtype
        self.size = check_memory(shape, dtype, version.label)
        self.is_small = self.size < MIN_RECYCLED_BYTES
        self.new: Callable[[], AnyArray] = (
            partial(np.empty, shape, dtype) if self.is_small else partial(allocate, shape, dtype, version.label)
        )

    def allocate(self, target: AnyArray | None, others: tuple[AnyArray, ...]) -> tuple[AnyArray, AnyArray]:
        """The caller's array or a new one, and the array that a kernel writes: the same, if it is contiguous."""
        if target is None:
            y = self.new()
            return y, y
        y = self.check(target, others)
        return y, y if y.flags.c_contiguous and y.flags.aligned else np.empty(self.shape, self.dtype)

    def check(self, target: AnyArray, others: tuple[AnyArray, ...]) -> AnyArray:
        """The caller's array, if it has the right shape and type, and overlaps no other."""
        where = f"{self._version.label}: out for {self._name}"
        if target.shape != self.shape or target.dtype != self.dtype:
            raise UnpoolError(
                f"{where} needs shape {format_shape(self.shape)} and type {self.dtype.name}, "
                f"got {format_shape(target.shape)} {target.dtype.name}."
            )
        if not target.flags.writeable:
            raise UnpoolError(f"{where} needs a writable array, got a read-only one. Pass a copy.")
        if _overlaps_itself(target):
            raise UnpoolError(
                f"{where} needs a place of its own for every element, got strides {target.strides} of bytes for shape "
                f"{format_shape(target.shape)}, by which elements share memory. Pass a new array."
            )
        if any(_may_overlap(target, other) for other in others):
            raise UnpoolError(
                f"{where} needs memory of its own, got memory shared with another argument. Pass a new array."
            )
        return target


def allocate_all(
    outputs: Sequence[Output], targets: OptionalArrays, others: tuple[AnyArray, ...]
) -> list[tuple[AnyArray, AnyArray]]:
    """The pairs of `Output.allocate` for all outputs, none of which overlaps another."""
    results: list[tuple[AnyArray, AnyArray]] = []
    for output, target in zip(outputs, targets, strict=False):
        results.append(output.allocate(target, (*others, *(y for y, _ in results))))
    return results


def copy_all(results: Sequence[tuple[AnyArray, AnyArray]]) -> tuple[AnyArray, ...]:
    """The outputs; where a kernel wrote to a buffer, it is copied first."""
    for y, buffer in results:
        if buffer is not y:
            y[...] = buffer
    return tuple(y for y, _ in results)


def _may_overlap(target: AnyArray, other: AnyArray) -> bool:
    try:
        return np.shares_memory(target, other, max_work=100_000)  # type: ignore[arg-type]  # stub knows -1 and 0
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(target: AnyArray) -> bool:
    """True if two elements of an array share a byte.

    None do if every step is at least as long as the reach of all shorter steps. Otherwise all addresses are compared.
    """
    if target.flags.c_contiguous or target.size < 2:
        return False
    steps = sorted((abs(step), size) for step, size in zip(target.strides, target.shape, strict=True) if size > 1)
    reach = target.itemsize
    for step, size in steps:
        if step < reach:
            break
        reach += step * (size - 1)
    else:
        return False
    if steps[0][0] < target.itemsize:
        return True
    places = np.zeros(1, np.int64)
    for step, size in steps:
        places = (places[:, None] + np.arange(size) * step).reshape(-1)
    places.sort()
    return bool((np.diff(places) < target.itemsize).any())
