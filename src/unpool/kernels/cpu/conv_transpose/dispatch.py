"""Runs the algorithms that were chosen for a transposed convolution, one after the other until one writes y.

`steps.py` makes the steps of each algorithm, once for a set of shapes and types. A plan consists of the steps of all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.conv_transpose import algorithms, gemm_1x1
from unpool.kernels.cpu.conv_transpose.packing import Packing, to_compute_type
from unpool.kernels.cpu.conv_transpose.problem import Algorithm, ConvTransposeProblem
from unpool.kernels.cpu.conv_transpose.steps import (
    NARROW_STORE,
    KeptWeights,
    Pack,
    StepMaker,
    Steps,
)
from unpool.kernels.cpu.machine.host import has_amx
from unpool.kernels.cpu.machine.plan import KernelPlan, KernelStep, Kind, Operand, PlanMemory
from unpool.kernels.cpu.weights import packings_of
from unpool.shape_cache import count_bytes, nbytes_of

PACKED_BY_STEPS = ("gemm_1x1", "winograd", "phases")  # weights that are not kept: NumPy takes less time for others
Run = Callable[[Any, Any, Any, Any, int | None], bool]  # runs an algorithm on (x, w, b, y, threads); True if it wrote y


class ConvTransposeDispatcher:
    """The transposed convolutions of one set of shapes and types; `storage` is the type of x and y."""

    def __init__(self, problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue = PLAIN) -> None:
        is_narrow = epilogue.is_channels_last and problem.maps < NARROW_STORE
        is_amx = storage.name == "bfloat16" and epilogue.is_simple and not is_narrow and has_amx()
        problem = problem._replace(is_amx=is_amx)
        self._problem, self._storage, self._epilogue = problem, storage, epilogue
        self.is_empty = problem.batch * problem.maps * problem.group * problem.large == 0
        self._algorithms: dict[bool, tuple[Algorithm, ...]] = {}  # by `is_cached`, which follows from weights of calls
        self._runs: dict[tuple[Algorithm, bool], Run] = {}

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
            run = self._runs.get((algorithm, is_cached)) or self._prepare(algorithm, is_cached)
            if run(x, w, b, y, threads):
                return

    def algorithms(self, *, is_cached: bool) -> tuple[Algorithm, ...]:
        """The algorithms, the best first, for weights whose packing is kept, or others."""
        chosen = self._algorithms.get(is_cached)
        if chosen is None:
            chosen = self._algorithms[is_cached] = algorithms(self._problem._replace(is_cached=is_cached))
        return chosen

    @property
    def supported_algorithms(self) -> tuple[Algorithm, ...]:
        """All algorithms for finite weights."""
        return conv_transpose.supported_algorithms(self._problem)

    @property
    def candidate_algorithms(self) -> tuple[Algorithm, ...]:
        """Those that may be the fastest on some machine, for weights whose packing is kept."""
        return conv_transpose.candidate_algorithms(self._problem._replace(is_cached=True))

    def pack(self, w: Any) -> None:
        """Pack weights from `own_weights`, so that calls find them ready."""
        algorithm = self.algorithms(is_cached=True)[0]
        if self.is_empty:
            return
        is_cut = algorithm == "gemm_1x1" and gemm_1x1.crop_to_met_taps(self._problem).taps < self._problem.taps
        if is_cut or algorithm in ("direct", "amx", "winograd", "phases"):
            Packing(algorithm, self._problem).pack(w, None)
        else:
            to_compute_type(w, self._problem.dtype)

    def steps(self, x: Operand, w: Operand, b: Operand, y: Operand) -> Steps:
        """The steps of a plan; `w` is a constant from `own_weights`, or an input, `b` of the type of x or of sums."""
        if self.is_empty:
            return ()
        memory, is_cached = PlanMemory(), w.value is not None
        weights = KeptWeights(memory, w.value) if is_cached else w
        if b.value is not None:
            b = memory.constant((), b.dtype, b.value)
        maker = StepMaker(self._problem, self._storage, self._epilogue, weights, memory)
        return maker.steps(self.algorithms(is_cached=is_cached), x, b, y)

    def _prepare(self, algorithm: Algorithm, is_cached: bool) -> Run:
        """The function that runs one algorithm."""
        run = make_run(algorithm, self._problem, self._storage, self._epilogue, is_cached=is_cached)
        self._runs[algorithm, is_cached] = run
        count_bytes(nbytes_of(run))
        return run


def make_run(
    algorithm: Algorithm, problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue = PLAIN, *,
    is_cached: bool = False,
) -> Run:  # fmt: skip
    """The function that runs the steps of an algorithm; with `is_cached` its weights are from `own_weights`."""
    memory = PlanMemory()
    x, w, b, y = operands(problem, storage, epilogue)
    weights = w if not is_cached and algorithm in PACKED_BY_STEPS else KeptWeights(memory)
    steps = StepMaker(problem, storage, epilogue, weights, memory).steps_of(algorithm, x, b, y)
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
