"""Transposed convolutions for one chosen kernel, longer than its blocks, and a fast reference for them."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from ml_dtypes import bfloat16

from tests.cases.kernel_pools import CANARY, eager_threads, given, placed
from unpool import execute
from unpool.geometry import Axis
from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.conv_transpose import dispatch as kernels
from unpool.kernels.cpu.conv_transpose import named, phases_plan, winograd, winograd_accuracy, winograd_steps
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, Storage
from unpool.kernels.cpu.conv_transpose.winograd_tiling import FLAT, DepthAxis, depth_axis, find_tiling, tiling_of
from unpool.kernels.cpu.machine.plan import KernelPlan, KernelStep, Kind, Operand, PlanMemory
from unpool.kernels.cpu.tuning import PHASES_SIZES, WINOGRAD, WINOGRAD_COSTS
from unpool.operators import resolve

TYPES = (np.float32, np.float64, np.float16, bfloat16)
WINOGRAD_TYPES = (np.float32, np.float64, bfloat16)
ACTIVATIONS = ({}, {"activation": "Relu"}, {"activation": "LeakyRelu", "activation_params": [0.25]})


@dataclass(frozen=True, eq=False)
class GrowthCase:
    """One call; all numbers are small integers, so that every order of sums is exact."""

    name: str  # the whole call in one line
    tiled: bool  # whether the kernel of phases computes it, or that of rows
    inputs: tuple[np.ndarray, np.ndarray, np.ndarray]  # X, W and B
    attributes: dict[str, Any]  # of ConvTranspose
    ending: dict[str, Any]  # layout and activation
    panel_bytes: int  # of the input that the kernel of phases, or Winograd's, lays out at once
    result_bytes: int  # of results that it keeps before it stores them
    gap: int  # elements in front of x and y in their memory
    line: int = -1  # number of the line, and of the tiles, that the kernel of phases takes; -1 for its own choice
    by_winograd: bool = False  # whether Winograd's kernel computes it
    apart: float = 0  # share of its tiles that are computed apart

    def algorithms(self, work: ConvTransposeProblem) -> tuple[str, ...]:
        """The algorithms that are tried; not Winograd's where it has no tiles for the axes."""
        is_flat = self.by_winograd and depth_axis(work.axes) is not None
        first = ("winograd",) if is_flat and find_tiling(work.axes[-2:]) is not None else ()
        return first + (("phases", "rows") if self.tiled else ("rows",))

    def check(
        self, x: Operand, _: Operand, axes: tuple[Axis, ...], __: int, depth: DepthAxis, memory: PlanMemory
    ) -> tuple[Operand, KernelStep]:
        """As `check_step`, but marks some of Winograd's tiles, whatever they hold."""
        flags = memory.scratch((x.shape[0] * depth.large * math.prod(tiling_of(axes).tiles),), np.dtype(np.uint8))
        return flags, KernelStep(Marks(self.apart), (), (flags.flat(is_writable=True),))

    def cut(self, *call: Any) -> phases_plan.Blocking:
        """As `blocking`, but with the line and the tiles of this case."""
        found = phases_plan.blockings(*call, cores=2)
        return found[self.line % len(found)] if self.line >= 0 else min(found, key=lambda each: each.cost)


def drawn_axes(rng: np.random.Generator, widest: tuple[int, int, int], most: int) -> tuple[list[Any], list[int]]:
    """Window, stride and dilation of one to three axes, and their sizes; the last one is long."""
    rank = int(rng.choice((1, 2, 3), p=(0.3, 0.5, 0.2)))
    window = rng.integers(1, widest[rank - 1], rank).tolist()
    stride, dilation = (rng.integers(1, top, rank).tolist() for top in (most, 4))
    sizes = rng.integers(1, widest[rank - 1], rank).tolist()
    sizes[-1] = int(rng.integers(2, 201 if rank == 1 else 67))
    return list(zip(window, stride, dilation, strict=True)), sizes


def integer_call(
    rng: np.random.Generator, kind: Any, axes: list[Any], sizes: list[int], groups: tuple[int, ...], most: list[int]
) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Attributes and inputs; images, channels and maps of a group are fewer than `most`."""
    window, stride, dilation = (list(each) for each in zip(*axes, strict=True))
    reach = [(size - 1) * each + 1 for size, each in zip(window, dilation, strict=True)]
    full = [(size - 1) * each + more for size, each, more in zip(sizes, stride, reach, strict=True)]
    cuts = [int(rng.integers(0, min(more, (size + 1) // 2))) for size, more in zip(full * 2, reach * 2, strict=True)]
    group, channels, maps = int(rng.choice(groups)), *(int(rng.integers(1, count)) for count in most[1:])
    shapes = (
        (int(rng.integers(1, most[0])), channels * group, *sizes),
        (channels * group, maps, *window),
        (maps * group,),
    )
    x, w, b = (rng.integers(-3, 4, shape).astype(kind) for shape in shapes)
    return {"strides": stride, "dilations": dilation, "pads": cuts, "group": group}, (x, w, b)


def conv_transpose_case(number: int) -> GrowthCase:
    """A case for both kernels and all types in turn; the number seeds the rest."""
    rng = np.random.default_rng(number)
    tiled, kind = number % 2 == 1, TYPES[number // 2 % 4]
    attributes, inputs = integer_call(rng, kind, *drawn_axes(rng, (8, 6, 4), 6), (1, 1, 2), [3, 6, 20])
    ending = {"layout": "NHWC"} | ACTIVATIONS[number // 3 % 3] if number % 3 == 0 else {}
    shapes = [list(each.shape) for each in inputs[:2]]
    name = f"{number}: tiled={tiled} {np.dtype(kind).name} {shapes} {attributes} {ending}"
    panel_bytes, result_bytes = (int(rng.choice((1, 1 << 12, whole))) for whole in (1 << 19, 1 << 18))
    gap, line = int(rng.integers(0, 64)), number // 2 % 16 - 1
    return GrowthCase(name, tiled, inputs, attributes, ending, panel_bytes, result_bytes, gap, line)


WINDOWS = (
    ((4, 2, 1), (4, 2, 1)), ((3, 1, 1), (3, 1, 1)), ((3, 2, 1), (3, 2, 1)), ((2, 1, 1), (2, 1, 1)),
    ((5, 2, 1), (5, 2, 1)), ((6, 2, 1), (6, 2, 1)), ((8, 4, 1), (8, 4, 1)), ((4, 3, 1), (4, 2, 1)),
    ((5, 3, 1), (3, 2, 1)), ((2, 1, 2), (3, 1, 1)), ((4, 2, 1), (2, 2, 2)), ((3, 2, 2), (5, 2, 1)),
)  # fmt: skip
"""Window, stride and dilation per axis: phases of 2 x 2 and of 3 x 3 taps, some of them missing or zero."""

DEPTHS = ((1, 1, 1), (3, 1, 1), (2, 1, 2), (4, 1, 1))  # the same of an axis before the others


def winograd_case(number: int) -> GrowthCase:
    """A case for Winograd's kernel, of three types and all windows in turn, one in three with slices; seeded."""
    rng = np.random.default_rng([number, 1])
    kind, axes = WINOGRAD_TYPES[number // len(WINDOWS) % 3], WINDOWS[number % len(WINDOWS)]
    sizes = [int(rng.integers(1, 9)), int(rng.integers(1, 67))]
    if number % 3 == 2:
        axes, sizes = (DEPTHS[number // 3 % len(DEPTHS)], *axes), [int(rng.integers(1, 6)), *sizes]
    attributes, inputs = integer_call(rng, kind, axes, sizes, (1, 1, 2), [4, 12, 40])
    name = f"winograd {number}: {np.dtype(kind).name} {[list(each.shape) for each in inputs[:2]]} {attributes}"
    panel_bytes, result_bytes = (int(rng.choice((1, 1 << 16, whole))) for whole in (1 << 22, 1 << 19))
    memory = panel_bytes, result_bytes, int(rng.integers(0, 64))
    how = {"by_winograd": True, "apart": number % 2 / 3}
    return GrowthCase(name, True, inputs, attributes, ACTIVATIONS[number % 3], *memory, **how)


def reference(case: GrowthCase) -> np.ndarray:
    """Every tap's products placed a stride apart, the padding cut off, the bias added; channels first."""
    x, w, b = (each.astype(np.float64) for each in case.inputs)
    stride, dilation, cuts, group = case.attributes.values()
    rank = len(stride)
    sizes = [
        (n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], stride, w.shape[2:], dilation, strict=True)
    ]
    parts = []
    for xs, ws in zip(np.split(x, group, axis=1), np.split(w, group), strict=True):
        full = np.zeros((x.shape[0], w.shape[1], *sizes), x.dtype)
        for tap in np.ndindex(*w.shape[2:]):
            products = np.einsum("nc...,cm->nm...", xs, ws[(..., *tap)])
            places = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, dilation, x.shape[2:], stride, strict=True)
            )
            full[(..., *places)] += products
        parts.append(full)
    cut = tuple(slice(cuts[axis], sizes[axis] - cuts[rank + axis]) for axis in range(rank))
    sums = np.concatenate(parts, axis=1)[(..., *cut)] + b.reshape(-1, *[1] * rank)
    if "activation" in case.ending:
        (slope,) = case.ending.get("activation_params", [0])
        sums = np.where(sums < 0, slope * sums, sums)
    return sums.astype(np.float32).astype(case.inputs[0].dtype) if case.inputs[0].itemsize < 8 else sums


def problem_of(x: np.ndarray, w: np.ndarray, axes: tuple[Axis, ...], group: int) -> ConvTransposeProblem:
    """What x and w, channels first and of one type, ask for."""
    compute = np.dtype(np.float32) if x.itemsize == 2 else x.dtype
    return ConvTransposeProblem(
        axes, x.shape[0], group, x.shape[1], w.shape[1], compute, Storage(is_plain=x.itemsize > 2), is_cached=False
    )


class Marks(NamedTuple):
    """A launch that sets flags of tiles at random."""

    share: float

    def run(self, _: tuple[Any, ...], __: int | None, flags: np.ndarray) -> list[Any]:
        """As `Launch.run`."""
        flags[np.random.default_rng(flags.size).random(flags.size) < self.share] = 1
        return [None]


def without_thresholds(
    w: Operand, _: tuple[Axis, ...], __: int, memory: PlanMemory
) -> tuple[Operand, tuple[KernelStep, ...]]:
    """As `threshold_steps`, for any weights."""
    return memory.scratch((1,), winograd_accuracy.thresholds_dtype(w.dtype)), ()


def inaccurate_tiles(
    x: np.ndarray, thresholds: np.ndarray, axes: tuple[Axis, ...], group: int, threads: int, depth: DepthAxis = FLAT
) -> np.ndarray:
    """The numbers of Winograd's tiles that the check finds inaccurate."""
    operands = [Operand(Kind.INPUT, n, each.shape, each.dtype) for n, each in enumerate((x, thresholds))]
    flags, step = winograd_accuracy.check_step(*operands, axes, group, depth, PlanMemory())
    found = np.zeros(flags.shape, flags.dtype)
    KernelPlan((step,), (*operands, flags)).run((x, thresholds, found), threads)
    return np.flatnonzero(found)


@contextmanager
def forced(case: GrowthCase) -> Iterator[None]:
    """Compute with the case's kernel, and split the work over threads, whatever the sizes."""
    phases = PHASES_SIZES._replace(panel=case.panel_bytes, results=case.result_bytes)
    with (
        patch.object(conv_transpose, "algorithms", lambda work: tuple(map(named, case.algorithms(work)))),
        patch.object(phases_plan, "PHASES_SIZES", phases),
        patch.object(phases_plan, "blocking", lambda *call: case.cut(*call)),
        patch.object(winograd, "WINOGRAD", WINOGRAD._replace(panel=case.panel_bytes, products=case.result_bytes)),
        patch.object(winograd_accuracy, "threshold_steps", without_thresholds),
        patch.object(winograd_steps, "check_step", case.check),
        patch.object(winograd_steps, "WINOGRAD_COSTS", WINOGRAD_COSTS._replace(inaccurate=1)),
        eager_threads(),
    ):
        execute.clear_cache()
        yield
    execute.clear_cache()


def chosen(*names: str) -> Any:
    """A context in which these algorithms compute every call, each the fallback of the one before."""
    return patch.object(conv_transpose, "algorithms", lambda _: tuple(map(named, names)))


def difference(case: GrowthCase, threads: int) -> str | None:
    """What is wrong with the case, run on misplaced arrays; None if nothing is."""
    right, x = reference(case), case.inputs[0]
    if "layout" in case.ending:
        right, x = (np.ascontiguousarray(np.moveaxis(each, 1, -1)) for each in (right, x))
    inputs = [given(each, case.gap) for each in (x, *case.inputs[1:])]
    out, memory = placed(np.zeros_like(right), case.gap)
    ending = {name: value for name, value in case.ending.items() if name != "layout"}
    domain = "com.ms.internal.nhwc" if "layout" in case.ending else ""
    spec = resolve.spec("ConvTranspose", case.attributes | ending, domain=domain)
    with forced(case):
        execute.run(spec, inputs, threads=threads, out=[out])
    if not np.array_equal(out, right):
        wrong = np.argwhere(out != right)
        at = tuple(wrong[0])
        return f"{case.name}\n{len(wrong)} of {right.size} differ, first at {at}: {out[at]}, not {right[at]}"
    start = case.gap * out.itemsize
    if np.any(memory[:start] != CANARY) or np.any(memory[start + out.nbytes :] != CANARY):
        return f"{case.name}\nwrote outside its memory"
    return None


def by_rows(x: np.ndarray, w: np.ndarray, b: np.ndarray, axes: tuple[Axis, ...], group: int, y: np.ndarray) -> None:
    """Write a transposed convolution to y by its rows, which takes any weights: the reference of the others."""
    kernels.make_run(named("rows"), problem_of(x, w, tuple(axes), group), x.dtype)(x, w, b, y, 1)
