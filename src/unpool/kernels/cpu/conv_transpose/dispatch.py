"""Runs the algorithms that were chosen for a transposed convolution, one after the other until one writes y.

Each algorithm has a function of its name here, which prepares all that follows from shapes and types. The function that
it returns takes (x, w, b, y, threads), all C-contiguous, and returns whether y is written; if not, the next one runs.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.activation import PLAIN, Epilogue, activate
from unpool.kernels.cpu.conv_transpose import (
    algorithms,
    amx,
    direct,
    gemm_1x1,
    phases,
    rows,
    winograd,
    winograd_accuracy,
)
from unpool.kernels.cpu.conv_transpose import winograd_steps as winograd_steps_of
from unpool.kernels.cpu.conv_transpose.phases_pack import pack as pack_phases
from unpool.kernels.cpu.conv_transpose.problem import Algorithm, ConvTransposeProblem
from unpool.kernels.cpu.conv_transpose.winograd_tiling import (
    DepthAxis,
    depth_axis,
    flatten_depth,
    flatten_weights,
    tiling_of,
)
from unpool.kernels.cpu.machine.host import has_amx
from unpool.kernels.cpu.machine.plan import DONE, NOT_MET, Condition, Kind, Operand, PlanStep
from unpool.kernels.cpu.machine.threads import Launches
from unpool.kernels.cpu.weights import own_weights, packings_of
from unpool.shape_cache import count_bytes, nbytes_of

MAX_INACCURATE = 1 / 32  # of Winograd's tiles: with more of them, the next algorithm takes less time for all tiles
NARROW_STORE = 8  # least output channels of a group that are stored directly, channels last: fewer one by one

Packed = Any  # weights in the order of an algorithm
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
        self._runs: dict[Algorithm, Run] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of all algorithms that calls used."""
        return sum(map(nbytes_of, self._runs.copy().values()))

    def __call__(self, x: Any, w: Any, b: Any, y: Any, threads: int | None) -> None:
        """Write the transposed convolution of x and w, plus b, activated, to `y`, on a maximum number of threads.

        All are C-contiguous: x and y (N, C, d1..dk) and (N, M, D1..Dk), or channels last, w (C, M/group, k1..kk) of any
        float type, b (M,) in the type of sums: that of x, but float32 for 16-bit types.
        """
        if self.is_empty:
            return
        for algorithm in self.algorithms(is_cached=packings_of(w) is not None):
            run = self._runs.get(algorithm) or self._prepare(algorithm)
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
            _Packing(algorithm, self._problem).pack(w, None)
        else:
            _to_compute_type(w, self._problem.dtype)

    def steps(self, x: Operand, w: Any, b: Operand, y: Operand) -> tuple[PlanStep, ...] | None:
        """The steps of a plan, for weights from `own_weights`; None where Python has to run the first algorithm."""
        problem, epilogue = self._problem, self._epilogue
        for algorithm in self.algorithms(is_cached=True):
            if algorithm not in _PLANNERS or not self._fits(algorithm):
                return None
            steps = _PLANNERS[algorithm](problem, self._storage, epilogue, x, w, b, y)
            if algorithm == "winograd" and steps:
                return self._winograd_steps(steps, x, w, b, y)
            if steps:
                return steps
        return None

    def _winograd_steps(
        self, winograd_steps: tuple[PlanStep, ...], x: Operand, w: Any, b: Operand, y: Operand
    ) -> tuple[PlanStep, ...]:
        """With what has to follow if tiles are inaccurate."""
        problem, storage, epilogue = self._problem, self._storage, self._epilogue
        flat, depth = _flattened(problem)
        _, thresholds = _Packing("winograd", problem).pack(w, None)
        most = int(MAX_INACCURATE * flat.batch * math.prod(tiling_of(flat.axes).tiles) + 1)
        few = winograd_steps_of.image_problem(flat, most)
        images = Operand(Kind.SCRATCH, 2, (few.batch, few.channels, 4, 4), x.dtype)
        sizes = (axis.large for axis in few.axes)
        computed = Operand(Kind.SCRATCH, 3, (few.batch, few.maps * few.group, *sizes), y.dtype)
        steps = _phases_steps(few, storage, epilogue, images, _flat(w), b, computed, 2)
        rest = self.algorithms(is_cached=True)
        after = rest[rest.index("winograd") + 1]
        can_follow = after in _PLANNERS and self._fits(after)
        otherwise = _PLANNERS[after](problem, storage, epilogue, x, w, b, y, 3) if can_follow else ()
        call = winograd_steps_of.WinogradCall(flat, depth, thresholds, most)
        again = winograd_steps_of.TileImages(images, computed, steps)
        return winograd_steps_of.steps(call, x, y, winograd_steps, again, otherwise or ())

    def _prepare(self, algorithm: Algorithm) -> Run:
        """The function that runs one algorithm, with conversions where it lacks a layout, type or activation."""
        problem, epilogue = self._problem, self._epilogue
        if self._fits(algorithm):
            run = _BUILDERS[algorithm](problem, self._storage, epilogue)
        else:
            run = _BUILDERS[algorithm](problem, problem.dtype, PLAIN)
            if not problem.is_plain or epilogue.name is not None:
                run = _with_conversions(run, problem, epilogue)
        self._runs[algorithm] = run
        count_bytes(nbytes_of(run))
        return run

    def _fits(self, algorithm: Algorithm) -> bool:
        """True if an algorithm has the layout, the types and the activation of the call."""
        problem, epilogue = self._problem, self._epilogue
        is_narrow = epilogue.is_channels_last and problem.maps < NARROW_STORE
        fits = {
            "amx": problem.is_amx, "phases": not is_narrow, "winograd": not epilogue.is_channels_last,
            "direct": problem.is_plain, "gemm_1x1": problem.is_plain and gemm_1x1.activates(problem),
        }  # fmt: skip
        return fits.get(algorithm, False) and epilogue.is_simple


def _with_conversions(run: Run, problem: ConvTransposeProblem, epilogue: Epilogue) -> Run:
    """Converts layout and type, and activates, around algorithms that take channels first and the type of sums only."""
    shape = (problem.batch, problem.maps * problem.group, *(axis.large for axis in problem.axes))

    def run_converted(x, w, b, y, threads):
        first = np.moveaxis(x, -1, 1) if epilogue.is_channels_last else x
        sums = y if problem.is_plain else np.empty(shape, b.dtype)
        if not run(np.ascontiguousarray(first, b.dtype), w, b, sums, threads):
            return False
        values = sums if epilogue.name is None else activate(sums, epilogue.name, epilogue.params, threads)
        if values is not y:
            with np.errstate(over="ignore"):
                y[...] = np.moveaxis(values, 1, -1) if epilogue.is_channels_last else values
        return True

    return run_converted


def _phases(problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue) -> Run:
    return _with_packing(_Packing("phases", problem), phases.launch(problem, storage, epilogue))


def _amx(problem: ConvTransposeProblem, _: np.dtype[Any], epilogue: Epilogue) -> Run:
    packing, launch = _Packing("amx", problem), amx.launch(problem, epilogue)

    def run(x, w, b, y, threads):
        packed = packing.pack(w, threads)
        return packed is not None and all(launch.run((x, packed, b, y), threads))

    return run


def _direct(problem: ConvTransposeProblem, _: np.dtype[Any], epilogue: Epilogue) -> Run:
    return _with_packing(_Packing("direct", problem), direct.launch(problem, epilogue))


def _with_packing(packing: "_Packing", launch: Launches) -> Run:
    def run(x, w, b, y, threads):
        packed = packing.pack(w, threads)
        if packed is not None:
            launch.run((x, packed, b, y), threads)
        return packed is not None

    return run


def _winograd(problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue) -> Run:
    flat, depth = _flattened(problem)
    packing, tiles = _Packing("winograd", problem), flat.batch * math.prod(tiling_of(flat.axes).tiles)
    launch = winograd.launch(flat, storage, epilogue, depth)
    fallback = cache(lambda: winograd_accuracy.WinogradFallback(flat, _phases, (storage, epilogue), depth))

    def run(x, w, b, y, threads):
        packed = packing.pack(w, threads)
        if packed is None:
            return False
        values, thresholds = packed
        inaccurate = winograd_accuracy.inaccurate_tiles(x, thresholds, flat.axes, flat.group, threads, depth)
        if inaccurate.size > MAX_INACCURATE * tiles + 1:
            return False
        launch.run((x, values, b, y), threads)
        return not inaccurate.size or fallback().recompute(inaccurate, x, _flat(w), b, y, threads)

    return run


def _flat(w: Any) -> Any:
    """Flat weights; those of `own_weights` are kept."""
    packings = packings_of(w)
    if w.ndim == 4 or packings is None:
        return flatten_weights(w)
    return packings.find("flat", lambda: own_weights(flatten_weights(np.asarray(w))))


def _gemm_1x1(problem: ConvTransposeProblem, _: np.dtype[Any], epilogue: Epilogue) -> Run:
    met = gemm_1x1.crop_to_met_taps(problem)
    if met.taps == problem.taps:
        return _with_any_weights(gemm_1x1.writer(problem, epilogue))
    write, write_met, packing = gemm_1x1.writer(problem), gemm_1x1.writer(met), _Packing("gemm_1x1", problem)

    def run(x, w, b, y, threads):
        if packings_of(w) is None:
            write(x, np.asarray(w, b.dtype), b, y, threads)
        else:
            write_met(x, packing.pack(w, threads), b, y, threads)
        return True

    return run


def _with_any_weights(write: Callable[..., object]) -> Run:
    def run(x, w, b, y, threads):
        write(x, _to_compute_type(w, b.dtype), b, y, threads)
        return True

    return run


def _to_compute_type(w: Any, dtype: np.dtype[Any]) -> Any:
    """Weights in the type of sums; a copy of `own_weights` is kept."""
    packings = packings_of(w)
    if w.dtype == dtype or packings is None:
        return np.asarray(w, dtype)
    return packings.find(f"as {dtype.name}", lambda: np.asarray(w, dtype))


_BUILDERS: dict[Algorithm, Callable[[ConvTransposeProblem, np.dtype[Any], Epilogue], Run]] = {
    "gemm_1x1": _gemm_1x1, "direct": _direct, "amx": _amx, "winograd": _winograd, "phases": _phases,
    "rows": lambda problem, *_: _with_any_weights(rows.writer(problem)),
}  # fmt: skip


def _packed_step(launch: Launches, packed: Any, x: Operand, b: Operand, y: Operand, number: int, **outcome: Any):
    return launch.steps((x, _constant(number, packed), b, y), None, **outcome)


def _flattened(problem: ConvTransposeProblem) -> tuple[ConvTransposeProblem, DepthAxis]:
    """The call by slices, for Winograd's algorithm, and the axis before the others."""
    flat, depth = flatten_depth(problem), depth_axis(problem.axes)
    assert flat is not None
    assert depth is not None
    return flat, depth


def _constant(number: int, value: Any) -> Operand:
    return Operand(Kind.CONSTANT, number, value.shape, value.dtype, value)


def _phases_steps(problem, storage, epilogue, x, w, b, y, number=1):
    packed = _Packing("phases", problem).pack(w, None)
    return () if packed is None else _packed_step(phases.launch(problem, storage, epilogue), packed, x, b, y, number)


def _direct_steps(problem, storage, epilogue, x, w, b, y, number=1):
    packed = _Packing("direct", problem).pack(w, None)
    return () if packed is None else _packed_step(direct.launch(problem, epilogue), packed, x, b, y, number)


def _amx_steps(problem, storage, epilogue, x, w, b, y, number=1):
    packed = _Packing("amx", problem).pack(w, None)
    if packed is None:
        return ()
    launch = amx.launch(problem, epilogue)
    return _packed_step(launch, packed, x, b, y, number, outcome=Condition.ALL_TRUE, then=(DONE, NOT_MET))


def _winograd_steps(problem, storage, epilogue, x, w, b, y, number=1):
    packed, (flat, depth) = _Packing("winograd", problem).pack(w, None), _flattened(problem)
    launch = winograd.launch(flat, storage, epilogue, depth)
    return () if packed is None else _packed_step(launch, packed[0], x, b, y, number)


def _gemm_1x1_steps(problem, storage, epilogue, x, w, b, y, number=1):
    return gemm_1x1.steps(problem, epilogue, x, _constant(number, _to_compute_type(w, problem.dtype)), b, y)


# of (problem, storage, epilogue, x, w, b, y, number): the steps of an algorithm, with the packed weights as constant
# `number`; () if it can't take the weights
_PLANNERS: dict[Algorithm, Callable[..., tuple[PlanStep, ...] | None]] = {
    "gemm_1x1": _gemm_1x1_steps, "direct": _direct_steps, "amx": _amx_steps, "winograd": _winograd_steps,
    "phases": _phases_steps,
}  # fmt: skip


class _Packing:
    """Packs weights for an algorithm, and keeps the result with `own_weights`."""

    def __init__(self, algorithm: Algorithm, problem: ConvTransposeProblem) -> None:
        layout: tuple[object, ...] = () if algorithm == "direct" else problem.axes
        if algorithm == "winograd":
            layout = winograd.packing_key(problem.axes[-2:])
        self._key = repr((algorithm, problem.group, problem.dtype.name, layout))
        self._algorithm, self._problem = algorithm, problem

    def pack(self, w: Any, threads: int | None) -> Packed:
        """The packed weights; None if the algorithm can't take them."""
        packings = packings_of(w)
        if packings is None:
            return _pack(w, self._algorithm, self._problem, threads, is_cached=False)
        return packings.find(self._key, lambda: _pack(w, self._algorithm, self._problem, threads, is_cached=True))


def _pack(w, algorithm: Algorithm, problem: ConvTransposeProblem, threads: int | None, *, is_cached: bool) -> Packed:
    if algorithm == "gemm_1x1":
        return np.array(w[..., *gemm_1x1.met_taps(problem)], problem.dtype, order="C")
    if algorithm == "amx":
        return amx.pack(w, problem)
    wide = np.asarray(w, problem.dtype)
    if not np.isfinite(wide).all():
        return None
    if algorithm == "direct":
        packed: Packed = wide.copy()
    elif algorithm == "winograd":
        flat, axes = flatten_weights(wide), problem.axes[-2:]
        thresholds = winograd_accuracy.accuracy_thresholds(flat, axes, problem.group)
        packed = None if thresholds is None else (winograd.pack(flat, axes, problem.group, threads), thresholds)
    else:
        channels, plan = problem.channels // problem.group, conv_transpose.phases_plan
        cut = plan.blocking(problem.axes, channels, problem.maps, wide.itemsize)
        packed = pack_phases(wide, cut, problem.group, threads, is_cached=is_cached)
    return packed
