"""What an algorithm for transposed convolutions is, and what its steps are made from.

Weights from `own_weights` are packed before a run, others by steps. An algorithm that cannot take values of a run, such
as weights with NaN, ends its steps with NOT_MET, and those of the next algorithm follow.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import convert
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, specialize
from unpool.kernels.cpu.machine.plan import ALL_FALLBACKS, NOT_MET, Condition, KernelStep, Operand, PlanMemory
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch
from unpool.kernels.cpu.tuning import PACKING, SUMS
from unpool.kernels.cpu.weights import packings_of

Steps = tuple[KernelStep, ...]
NO_STEPS: Steps = ()
Pack = Callable[[Any, int | None], Any]  # of weights and a maximum number of threads


class PackRequest(NamedTuple):
    """How weights are packed."""

    problem: ConvTransposeProblem
    threads: int | None  # maximum number
    is_cached: bool  # whether the result is kept


class Algorithm(NamedTuple):
    """An algorithm; `conv_transpose/__init__.py` has the tuple of all, from which it chooses."""

    name: str

    supports: Callable[[ConvTransposeProblem], bool]
    """True if it computes the call, with finite weights, and may be the fastest."""

    is_faster: Callable[[ConvTransposeProblem, "Algorithm"], bool]
    """True if it is faster than another one, which is the best of those that follow in the tuple."""

    steps: Callable[["CallContext", Operand, Operand, Operand], Steps | None]
    """The steps that write y of (x, b); None if it cannot take the weights."""

    fits: Callable[[ConvTransposeProblem, Epilogue], bool] = lambda _, __: False
    """True if it has the layout, the types and the activation of the call, which else need steps of their own."""

    pack: Callable[[Any, PackRequest], Any] | None = None
    """The weights in its order; None as a result if it cannot take them. Without, they stay in theirs."""

    packing_key: Callable[[ConvTransposeProblem], object] = lambda problem: problem.axes
    """Beside groups and type, what the order of packed weights depends on."""

    pack_step: Callable[[Operand, ConvTransposeProblem, PlanMemory], tuple[Operand, KernelStep]] | None = None
    """The packed weights, and the step that packs finite ones of a run; without, they stay in their order."""

    packs_in_steps: bool = False
    """True if weights that are not kept are packed by steps: of others, NumPy takes less time."""

    cost: Callable[[ConvTransposeProblem], float] = lambda _: math.inf
    """The time in multiply-adds of a filled tile of the phases' product; infinity where it is not modelled."""


def is_narrow(problem: ConvTransposeProblem, epilogue: Epilogue) -> bool:
    """True for few output channels, channels last."""
    return epilogue.is_channels_last and problem.maps < SUMS.narrow_store


def finite(w: Any, dtype: np.dtype[Any]) -> Any:
    """Weights in the type of sums; None if one is NaN or infinite."""
    wide = np.asarray(w, dtype)
    return wide if np.isfinite(wide).all() else None


def to_compute_type(w: Any, dtype: np.dtype[Any]) -> Any:
    """Weights in the type of sums; a copy of `own_weights` is kept."""
    packings = packings_of(w)
    if w.dtype == dtype or packings is None:
        return np.asarray(w, dtype)
    return packings.find(f"as {dtype.name}", lambda: np.asarray(w, dtype))


def packing(algorithm: Algorithm, problem: ConvTransposeProblem, arrange: Callable[[Any], Any] = lambda w: w) -> Pack:
    """The function that packs weights, arranged for a call; the result for `own_weights` is kept with them."""
    pack = algorithm.pack
    assert pack is not None, "the weights of this algorithm stay in their order"
    key = repr((algorithm.name, problem.group, problem.dtype.name, algorithm.packing_key(problem)))

    def find(w: Any, threads: int | None) -> Any:
        packings = packings_of(w)
        if packings is None:
            return pack(arrange(w), PackRequest(problem, threads, is_cached=False))
        return packings.find(key, lambda: pack(arrange(w), PackRequest(problem, threads, is_cached=True)))

    return find


class KeptWeights:
    """Weights from `own_weights`, whose packings are constants of the steps."""

    def __init__(self, memory: PlanMemory, value: Any = None) -> None:
        """Without a value the constants have none: `pack` finds them for the weights of a run."""
        self._memory, self._value = memory, value
        self.constants: list[tuple[Operand, Pack]] = []

    def constant(self, pack: Pack, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Operand | None:
        """What `pack(w, threads)` gives for the weights, of a shape where steps need it; None if it gives None."""
        value = None if self._value is None else pack(self._value, None)
        if value is None and self._value is not None:
            return None
        operand = self._memory.constant(shape, dtype, value)
        self.constants.append((operand, pack))
        return operand

    def pack(self, w: Any, threads: int | None) -> list[Any] | None:
        """The constants for weights; None if an algorithm cannot take them."""
        values = []
        for _, pack in self.constants:
            value = pack(w, threads)
            if value is None:
                return None
            values.append(value)
        return values


class CallContext(NamedTuple):
    """What the steps of an algorithm are made from, beside x, b and y."""

    problem: ConvTransposeProblem
    storage: np.dtype[Any]  # the type of x and y
    epilogue: Epilogue
    w: KeptWeights | Operand  # an operand if every run passes the weights, of any float type
    memory: PlanMemory
    fallbacks: int = ALL_FALLBACKS  # that the plan has

    def plain(self) -> "CallContext":
        """The same, for x and y in the type of sums, channels first, without an activation."""
        return self._replace(storage=self.problem.dtype, epilogue=PLAIN)

    def wide_weights(self) -> tuple[Operand, Steps]:
        """The weights in the type of sums, and the steps that convert them."""
        problem, w, dtype = self.problem, self.w, self.problem.dtype
        shape = (problem.channels, problem.maps, *(axis.window.size for axis in problem.axes))
        if isinstance(w, KeptWeights):
            constant = w.constant(lambda w, _: to_compute_type(w, dtype), shape, dtype)
            assert constant is not None
            return constant, ()
        if w.dtype == dtype:
            return w, ()
        wide = self.memory.scratch(shape, dtype)
        return wide, convert_steps(w, wide, 1, w.size)

    def packed_weights(self, algorithm: Algorithm) -> tuple[Operand | None, Steps]:
        """The weights in the order of an algorithm, None if it cannot take them, and the steps that pack them."""
        if isinstance(self.w, KeptWeights):
            return self.w.constant(packing(algorithm, self.problem), (), self.problem.dtype), ()
        wide, before = self.finite_weights()
        if algorithm.pack_step is None:
            return wide, before
        packed, step = algorithm.pack_step(wide, self.problem, self.memory)
        return packed, (*before, step)

    def finite_weights(self) -> tuple[Operand, Steps]:
        """The weights of a run in the type of sums; the plan ends with NOT_MET if one is NaN or infinite."""
        wide, steps = self.wide_weights()
        jobs = -(-wide.size // PACKING.checked)
        check = Launch(_finite_check(wide.dtype), jobs, wide.size // VECTOR_SPEEDUP, wide.size)
        return wide, (*steps, KernelStep(check, (wide,), (), Condition.ALL_TRUE, (1, NOT_MET)))


def convert_steps(source: Operand, target: Operand, images: int, rows: int, columns: int = 1) -> Steps:
    """The step that writes another type, or another order of axes, as `convert` says; none without elements."""
    if source.size == 0:
        return ()
    return (KernelStep(convert.launch(source.dtype, target.dtype, images, rows, columns), (source, target)),)


@specialize
def _finite_check(dtype: np.dtype[Any]):
    """The compiled kernel for float32 or float64."""
    element, width, number = getattr(types, dtype.name), dtype.itemsize, dtype.type
    lanes = vector_bytes() // width

    @jit()
    def are_finite(values, size, first, stop):
        """True if no number of some parts is NaN or infinite: then all differences from themselves are 0."""
        zero = vec.splat(number(0), lanes)
        total, end = zero, min(stop * PACKING.checked, size)
        for place in range(first * PACKING.checked, end, lanes):
            address = vec.address_of(values) + place * width
            if place + lanes <= end:
                value = vec.load(address, element, lanes)
            else:
                value = vec.load_masked(address, vec.first_lanes(end - place, zero), zero)
            total = total + (value - value)
        return not vec.any_of(vec.unordered(total, total))

    return are_finite
