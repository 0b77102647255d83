"""Runs the algorithms that were chosen for a transposed convolution, one after the other until one writes y.

A plan consists of the steps of all of them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from unpool.kernels.cpu import activation, conv_transpose
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.conv_transpose.algorithm import (
    NO_STEPS,
    Algorithm,
    CallContext,
    KeptWeights,
    Pack,
    Steps,
    convert_steps,
    is_narrow,
)
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.machine.host import has_amx
from unpool.kernels.cpu.machine.plan import (
    ALL_FALLBACKS,
    NOT_MET,
    KernelPlan,
    KernelStep,
    Kind,
    Operand,
    PlanMemory,
    connect,
)
from unpool.kernels.cpu.weights import packings_of
from unpool.shape_cache import count_bytes, nbytes_of

Run = Callable[[Any, Any, Any, Any, int | None], bool]  # runs an algorithm on (x, w, b, y, threads); True if it wrote y


class ConvTransposeDispatcher:
    """The transposed convolutions of one set of shapes and types; `storage` is the type of x and y."""

    def __init__(self, problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue = PLAIN) -> None:
        is_amx = storage.name == "bfloat16" and epilogue.is_simple and not is_narrow(problem, epilogue) and has_amx()
        problem = problem._replace(storage=problem.storage._replace(is_amx=is_amx))
        self._problem, self._storage, self._epilogue = problem, storage, epilogue
        self.is_empty = problem.batch * problem.maps * problem.group * problem.large == 0
        self._algorithms: dict[bool, tuple[Algorithm, ...]] = {}  # by `is_cached`, which follows from weights of calls
        self._runs: dict[tuple[str, bool], Run] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of all algorithms that calls used."""
        return sum(map(nbytes_of, self._runs.copy().values()))

    def __call__(self, x: Any, w: Any, b: Any, y: Any, threads: int | None) -> None:
        """Write the transposed convolution of x and w, plus b, activated, to `y`, on a maximum number of threads.

        All are C-contiguous: x and y (N, C, d1..dk) and (N, M, D1..Dk), or channels last, w (C, M/group, k1..kk) of the
        type of x, b (M,) in the type of sums: that of x, but float32 for 16-bit types.
        """
        if self.is_empty:
            return
        is_cached = packings_of(w) is not None
        for algorithm in self.algorithms(is_cached=is_cached):
            run = self._runs.get((algorithm.name, is_cached)) or self._prepare(algorithm, is_cached)
            if run(x, w, b, y, threads):
                return

    def algorithms(self, *, is_cached: bool) -> tuple[Algorithm, ...]:
        """The algorithms, the best first, for weights whose packing is kept, or others."""
        chosen = self._algorithms.get(is_cached)
        if chosen is None:
            chosen = self._algorithms[is_cached] = conv_transpose.algorithms(
                self._problem._replace(is_cached=is_cached)
            )
        return chosen

    @property
    def supported_algorithms(self) -> tuple[Algorithm, ...]:
        """All algorithms for finite weights."""
        return conv_transpose.supported_algorithms(self._problem)

    def steps(self, x: Operand, w: Operand, b: Operand, y: Operand, fallbacks: int = ALL_FALLBACKS) -> Steps:
        """The steps of a plan; `w` is a constant from `own_weights`, or an input, `b` of the type of x or of sums.

        With fewer `fallbacks` it may end as not met where it would compute y with all of them.
        """
        if self.is_empty:
            return ()
        memory, is_cached = PlanMemory(), w.value is not None
        weights = KeptWeights(memory, w.value) if is_cached else w
        if b.value is not None:
            b = memory.constant((), b.dtype, b.value)
        before, result = NO_STEPS, NO_STEPS
        if b.dtype != self._problem.dtype:
            wide = memory.scratch(b.shape, self._problem.dtype)
            before, b = convert_steps(b, wide, 1, b.size), wide
        fallbacks = fallbacks if is_cached else ALL_FALLBACKS
        context = CallContext(self._problem, self._storage, self._epilogue, weights, memory, fallbacks)
        for algorithm in self.algorithms(is_cached=is_cached):
            steps = _steps_of(algorithm, context, x, b, y)
            if steps is None:
                continue
            result = connect(result, steps, NOT_MET) if result else steps
            if fallbacks < ALL_FALLBACKS or not any(NOT_MET in step.then for step in steps):
                break
        return connect(before, result)

    def _prepare(self, algorithm: Algorithm, is_cached: bool) -> Run:
        """The function that runs one algorithm."""
        run = make_run(algorithm, self._problem, self._storage, self._epilogue, is_cached=is_cached)
        self._runs[algorithm.name, is_cached] = run
        count_bytes(nbytes_of(run))
        return run


def make_run(
    algorithm: Algorithm, problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue = PLAIN, *,
    is_cached: bool = False,
) -> Run:  # fmt: skip
    """The function that runs the steps of an algorithm; with `is_cached` its weights are from `own_weights`."""
    memory = PlanMemory()
    x, w, b, y = operands(problem, storage, epilogue)
    weights = w if not is_cached and algorithm.packs_in_steps else KeptWeights(memory)
    steps = _steps_of(algorithm, CallContext(problem, storage, epilogue, weights, memory), x, b, y)
    assert steps is not None, "the weights are not known yet"
    if isinstance(weights, Operand):
        plan = KernelPlan(steps, (x, w, b, y))
        return lambda x, w, b, y, threads: plan.run((x, w, b, y), threads) is None
    constants = [each for each, _ in weights.constants]
    if len(steps) == len(constants) == 1 and steps[0] == KernelStep(steps[0].launch, (x, *constants, b, y)):
        return _single(steps[0].launch, weights.constants[0][1])
    plan, pack = KernelPlan(steps, (x, b, y, *constants)), weights.pack

    def run(x, w, b, y, threads):
        packed = pack(w, threads)
        return packed is not None and plan.run((x, b, y, *packed), threads) is None

    return run


def _steps_of(algorithm: Algorithm, context: CallContext, x: Operand, b: Operand, y: Operand) -> Steps | None:
    """The steps of an algorithm, with conversions around them; None if it cannot take the weights."""
    problem, epilogue, memory = context.problem, context.epilogue, context.memory
    if algorithm.fits(problem, epilogue):
        return algorithm.steps(context, x, b, y)
    batch, channels, maps = problem.batch, problem.channels, problem.maps * problem.group
    before, after, first, sums = NO_STEPS, NO_STEPS, x, y
    if not problem.storage.is_plain:
        first = memory.scratch((batch, channels, *(axis.small for axis in problem.axes)), problem.dtype)
        sums = memory.scratch((batch, maps, *(axis.large for axis in problem.axes)), problem.dtype)
        before, after = convert_steps(x, first, 1, x.size), convert_steps(sums, y, 1, y.size)
        if epilogue.is_channels_last:
            before = convert_steps(x, first, batch, problem.small, channels)
            after = convert_steps(sums, y, batch, maps, problem.large)
    if epilogue.name is not None:
        activated = activation.launch(sums.size, sums.dtype, epilogue.name, epilogue.params)
        after = (KernelStep(activated, (sums,)), *after)
    steps = algorithm.steps(context.plain(), first, b, sums)
    return None if steps is None else connect(connect(before, steps), after)


def _single(launch: Any, pack: Pack) -> Run:
    """As a plan of one step, but faster."""

    def run(x, w, b, y, threads):
        packed = pack(w, threads)
        if packed is None:
            return False
        launch.run((x, packed, b, y), threads)
        return True

    return run


def operands(
    problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue
) -> tuple[Operand, Operand, Operand, Operand]:
    """X, w, b and y of a call, b in the type of sums."""
    channels, maps = problem.channels, problem.maps * problem.group
    smalls, larges = (tuple(getattr(axis, name) for axis in problem.axes) for name in ("small", "large"))
    first, last = (problem.batch, channels, *smalls), (problem.batch, maps, *larges)
    if epilogue.is_channels_last:
        first, last = (problem.batch, *smalls, channels), (problem.batch, *larges, maps)
    window = tuple(axis.window.size for axis in problem.axes)
    return (
        Operand(Kind.INPUT, 0, first, storage),
        Operand(Kind.INPUT, 1, (channels, problem.maps, *window), storage),
        Operand(Kind.INPUT, 2, (maps,), problem.dtype),
        Operand(Kind.OUTPUT, 0, last, storage),
    )
