"""The steps of transposed convolutions: every algorithm, with the conversions that it needs around it.

Weights from `own_weights` are packed before a run, others by steps. An algorithm that cannot take values of a run, such
as weights with NaN, ends its steps as not met, and those of the next algorithm follow.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unpool.kernels.cpu import activation, convert, copy_rows
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.conv_transpose import (
    amx,
    direct,
    gemm_1x1,
    phases,
    phases_pack,
    phases_plan,
    rows,
    winograd,
    winograd_accuracy,
    winograd_steps,
)
from unpool.kernels.cpu.conv_transpose.packing import Packing, flat_weights, to_compute_type
from unpool.kernels.cpu.conv_transpose.problem import Algorithm, ConvTransposeProblem
from unpool.kernels.cpu.conv_transpose.winograd_tiling import (
    DepthAxis,
    depth_axis,
    flatten_depth,
    tiling_of,
)
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, specialize
from unpool.kernels.cpu.machine.plan import NOT_MET, Condition, KernelStep, Operand, PlanMemory, connect
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch

MAX_INACCURATE = 1 / 32  # of Winograd's tiles: with more of them, the next algorithm takes less time for all tiles
NARROW_STORE = 8  # least output channels of a group that are stored directly, channels last: fewer one by one
CHECKED = 1 << 12  # weights that one job checks

Steps = tuple[KernelStep, ...]
NO_STEPS: Steps = ()
Pack = Callable[[Any, int | None], Any]  # of weights and a maximum number of threads


def fits(algorithm: Algorithm, problem: ConvTransposeProblem, epilogue: Epilogue) -> bool:
    """True if an algorithm has the layout, the types and the activation of the call."""
    is_narrow = epilogue.is_channels_last and problem.maps < NARROW_STORE
    has = {
        "amx": problem.is_amx, "phases": not is_narrow, "winograd": not epilogue.is_channels_last,
        "direct": problem.is_plain, "gemm_1x1": problem.is_plain and gemm_1x1.activates(problem),
    }  # fmt: skip
    return has.get(algorithm, False) and epilogue.is_simple


def flattened(problem: ConvTransposeProblem) -> tuple[ConvTransposeProblem, DepthAxis]:
    """The call by slices, for Winograd's algorithm, and the axis before the others."""
    flat, depth = flatten_depth(problem), depth_axis(problem.axes)
    assert flat is not None
    assert depth is not None
    return flat, depth


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


class StepMaker:
    """Makes the steps of a call; `storage` is the type of x and y."""

    def __init__(
        self, problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue, w: KeptWeights | Operand,
        memory: PlanMemory,
    ) -> None:  # fmt: skip
        """`w` are an operand if every run passes them, of any float type."""
        self._problem, self._storage, self._epilogue, self._memory, self._w = problem, storage, epilogue, memory, w

    def steps(self, algorithms: tuple[Algorithm, ...], x: Operand, b: Operand, y: Operand) -> Steps:
        """The steps of all algorithms, each the fallback of the one before."""
        problem, before = self._problem, NO_STEPS
        if b.dtype != problem.dtype:
            wide = self._memory.scratch(b.shape, problem.dtype)
            before, b = _convert(b, wide, 1, b.size), wide
        result = NO_STEPS
        for algorithm in algorithms:
            steps = self.steps_of(algorithm, x, b, y)
            if steps is None:
                continue
            result = connect(result, steps, NOT_MET) if result else steps
            if not any(NOT_MET in step.then for step in steps):
                break
        return connect(before, result)

    def steps_of(self, algorithm: Algorithm, x: Operand, b: Operand, y: Operand) -> Steps | None:
        """The steps of an algorithm, with conversions; None if it cannot take the weights."""
        problem, epilogue, memory = self._problem, self._epilogue, self._memory
        make = _MAKERS[algorithm]
        if fits(algorithm, problem, epilogue):
            return make(self, self._storage, epilogue, x, b, y)
        batch, channels, maps = problem.batch, problem.channels, problem.maps * problem.group
        before, after, first, sums = NO_STEPS, NO_STEPS, x, y
        if not problem.is_plain:
            first = memory.scratch((batch, channels, *(axis.small for axis in problem.axes)), problem.dtype)
            sums = memory.scratch((batch, maps, *(axis.large for axis in problem.axes)), problem.dtype)
            before, after = _convert(x, first, 1, x.size), _convert(sums, y, 1, y.size)
            if epilogue.is_channels_last:
                before = _convert(x, first, batch, problem.small, channels)
                after = _convert(sums, y, batch, maps, problem.large)
        if epilogue.name is not None:
            activated = activation.launch(sums.size, sums.dtype, epilogue.name, epilogue.params)
            after = (KernelStep(activated, (sums,)), *after)
        steps = make(self, problem.dtype, PLAIN, first, b, sums)
        return None if steps is None else connect(connect(before, steps), after)

    def _wide(self) -> tuple[Operand, Steps]:
        """The weights in the type of sums."""
        problem, w, dtype = self._problem, self._w, self._problem.dtype
        shape = (problem.channels, problem.maps, *(axis.window.size for axis in problem.axes))
        if isinstance(w, KeptWeights):
            constant = w.constant(lambda w, _: to_compute_type(w, dtype), shape, dtype)
            assert constant is not None
            return constant, ()
        if w.dtype == dtype:
            return w, ()
        wide = self._memory.scratch(shape, dtype)
        return wide, _convert(w, wide, 1, w.size)

    def _finite(self) -> tuple[Operand, Steps]:
        """The weights of a run in the type of sums; not met if one is NaN or infinite."""
        wide, steps = self._wide()
        check = Launch(_finite_check(wide.dtype), -(-wide.size // CHECKED), wide.size // VECTOR_SPEEDUP, wide.size)
        return wide, (*steps, KernelStep(check, (wide,), (), Condition.ALL_TRUE, (1, NOT_MET)))

    def _phases(self, storage: np.dtype[Any], epilogue: Epilogue, x: Operand, b: Operand, y: Operand) -> Steps | None:
        problem, before = self._problem, NO_STEPS
        if isinstance(self._w, KeptWeights):
            packed = self._w.constant(Packing("phases", problem).pack, (), problem.dtype)
        else:
            wide, finite = self._finite()
            packed, step = phases_pack.pack_step(wide, _blocking(problem), problem.group, self._memory)
            before = (*finite, step)
        launch = phases.launch(problem, storage, epilogue)
        return None if packed is None else (*before, KernelStep(launch, (x, packed, b, y)))

    def _direct(self, _: np.dtype[Any], epilogue: Epilogue, x: Operand, b: Operand, y: Operand) -> Steps | None:
        problem, before = self._problem, NO_STEPS
        if isinstance(self._w, KeptWeights):
            packed = self._w.constant(Packing("direct", problem).pack, (), problem.dtype)
        else:
            packed, before = self._finite()
        return None if packed is None else (*before, KernelStep(direct.launch(problem, epilogue), (x, packed, b, y)))

    def _amx(self, _: np.dtype[Any], epilogue: Epilogue, x: Operand, b: Operand, y: Operand) -> Steps | None:
        assert isinstance(self._w, KeptWeights), "weights of a run are not packed for AMX"
        packed = self._w.constant(Packing("amx", self._problem).pack, (), np.dtype(np.uint16))
        if packed is None:
            return None
        return (
            KernelStep(amx.launch(self._problem, epilogue), (x, packed, b, y), (), Condition.ALL_TRUE, (1, NOT_MET)),
        )

    def _gemm_1x1(self, _: np.dtype[Any], epilogue: Epilogue, x: Operand, b: Operand, y: Operand) -> Steps:
        problem, met = self._problem, gemm_1x1.crop_to_met_taps(self._problem)
        if isinstance(self._w, KeptWeights) and met.taps < problem.taps:
            shape = (met.channels, met.maps, *(axis.window.size for axis in met.axes))
            w = self._w.constant(Packing("gemm_1x1", problem).pack, shape, problem.dtype)
            assert w is not None
            return gemm_1x1.steps(met, epilogue, self._memory, x, w, b, y)
        w, before = self._wide()
        return (*before, *gemm_1x1.steps(problem, epilogue, self._memory, x, w, b, y))

    def _rows(self, _: np.dtype[Any], __: Epilogue, x: Operand, b: Operand, y: Operand) -> Steps:
        w, before = self._wide()
        return (*before, rows.step(self._problem, x, w, b, y))

    def _winograd(self, storage: np.dtype[Any], epilogue: Epilogue, x: Operand, b: Operand, y: Operand) -> Steps | None:
        memory, (flat, depth) = self._memory, flattened(self._problem)
        most = int(MAX_INACCURATE * flat.batch * math.prod(tiling_of(flat.axes).tiles) + 1)
        few = winograd_steps.image_problem(flat, most)
        before, pack_again = NO_STEPS, NO_STEPS
        if isinstance(self._w, KeptWeights):
            pack, pack_few = Packing("winograd", self._problem).pack, Packing("phases", few).pack
            packed = self._w.constant(lambda w, threads: _item(pack(w, threads), 0), (), flat.dtype)
            bounds = winograd_accuracy.thresholds_dtype(flat.dtype)
            thresholds = self._w.constant(lambda w, threads: _item(pack(w, threads), 1), (1,), bounds)
            if packed is None or thresholds is None:
                return None
            again = self._w.constant(lambda w, threads: pack_few(flat_weights(w), threads), (), flat.dtype)
            assert again is not None, "these weights are finite"
        else:
            wide, finite = self._finite()
            w, moved = self._flat(wide)
            thresholds, measured = winograd_accuracy.threshold_steps(w, flat.axes, flat.group, memory)
            packed, pack_all = winograd.pack_step(w, flat.axes, flat.group, memory)
            again, pack_step = phases_pack.pack_step(w, _blocking(few), few.group, memory)
            before, pack_again = (*finite, *moved, *measured, pack_all), (pack_step,)
        images = memory.scratch((few.batch, few.channels, 4, 4), x.dtype)
        computed = memory.scratch((few.batch, few.maps * few.group, *(axis.large for axis in few.axes)), y.dtype)
        compute = KernelStep(phases.launch(few, storage, epilogue), (images, again, b, computed))
        tiles = winograd_steps.TileImages(most, images, computed, (*pack_again, compute))
        all_tiles = KernelStep(winograd.launch(flat, storage, epilogue, depth), (x, packed, b, y))
        return (*before, *winograd_steps.steps(flat, depth, x, y, thresholds, all_tiles, tiles, memory))

    def _flat(self, w: Operand) -> tuple[Operand, Steps]:
        """The weights of the call by slices."""
        if len(w.shape) == 4:
            return w, ()
        channels, maps, taps, *window = w.shape
        length = math.prod(window)
        moved = self._memory.scratch((channels * taps, maps, *window), w.dtype)
        places = np.arange(maps * taps).reshape(maps, taps)
        table = np.stack([places.T, np.arange(maps * taps).reshape(taps, maps)], axis=-1).reshape(-1, 2) * length
        launch = copy_rows.launch(channels, (maps * taps * length, maps * taps * length, length), table)
        return moved, (KernelStep(launch, (), (w.flat(), moved.flat(is_writable=True), w.flat())),)


_MAKERS: dict[Algorithm, Callable[..., Steps | None]] = {
    "gemm_1x1": StepMaker._gemm_1x1, "direct": StepMaker._direct, "amx": StepMaker._amx,
    "winograd": StepMaker._winograd, "phases": StepMaker._phases, "rows": StepMaker._rows,
}  # fmt: skip


def _convert(source: Operand, target: Operand, images: int, rows: int, columns: int = 1) -> Steps:
    """The step that writes another type, or another order of axes, as `convert` says; none without elements."""
    if source.size == 0:
        return ()
    return (KernelStep(convert.launch(source.dtype, target.dtype, images, rows, columns), (source, target)),)


def _item(pair: Any, number: int) -> Any:
    return None if pair is None else pair[number]


def _blocking(problem: ConvTransposeProblem) -> phases_plan.Blocking:
    return phases_plan.blocking(problem.axes, problem.channels // problem.group, problem.maps, problem.dtype.itemsize)


@specialize
def _finite_check(dtype: np.dtype[Any]):
    """The compiled kernel for float32 or float64."""
    element, width, number = getattr(types, dtype.name), dtype.itemsize, dtype.type
    lanes = vector_bytes() // width

    @jit()
    def are_finite(values, size, first, stop):
        """True if no number of some parts is NaN or infinite: then all differences from themselves are 0."""
        zero = vec.splat(number(0), lanes)
        total, end = zero, min(stop * CHECKED, size)
        for place in range(first * CHECKED, end, lanes):
            address = vec.address_of(values) + place * width
            if place + lanes <= end:
                value = vec.load(address, element, lanes)
            else:
                value = vec.load_masked(address, vec.first_lanes(end - place, zero), zero)
            total = total + (value - value)
        return not vec.any_of(vec.unordered(total, total))

    return are_finite
