"""The tiles of Winograd's transposed convolution, for two axes, or three of which the first has stride 1.

Along an axis the outputs of one phase are dense: windows over neighbouring inputs, one step apart.

    y[step * stride + phase] = sum over the phase's taps: w[tap] * x[origin of the phase + step + place of the tap]

Tile t holds the four inputs from first + outputs * t on: windows of at most 5 - outputs inputs, for all phases.

Three axes become two: every slice of y is an image, and each slice of x that it reads gives it as many channels as x
has. Channel c * taps + t of the flat call is channel c of the slice of tap t, or zeros where x has no such slice. x is
not copied; the kernels find its slices.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.axes import axis_at, large_sizes
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, phase_count
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline

MOST_PHASES = 16

WEIGHTS = {  # by the number of taps, their transform to the points 0, 1, -1 and infinity: G
    2: ((1, 0), (0.5, 0.5), (0.5, -0.5), (0, 1)),
    3: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
}


class WinogradAxis(NamedTuple):
    """One axis."""

    span: int  # taps of the longest phase, those between its first and its last that it lacks counted
    first: int  # input position where the first tile begins
    windows: int  # steps from the first window that some phase needs to the last one
    origins: tuple[int, ...]  # per phase the input position where the window of its first output begins
    taps: tuple[tuple[tuple[int, int], ...], ...]  # per phase its taps, each with its place in the window


class WinogradTiling(NamedTuple):
    """The tiles of a call."""

    sides: tuple[WinogradAxis, WinogradAxis]  # one per axis
    outputs: int  # of a phase in a tile, along each axis
    tiles: tuple[int, int]  # of an image, along each axis
    entries: tuple[tuple[int, int], ...]  # (point, phase) pairs whose transformed weights are not all zero

    @property
    def phases(self) -> int:
        """Of both axes together."""
        return math.prod(len(side.origins) for side in self.sides)


@lru_cache(maxsize=64)
def find_tiling(axes: tuple[Axis, ...]) -> WinogradTiling | None:
    """The tiles of a call; None where they do not fit."""
    if len(axes) != 2 or any(axis.large == 0 for axis in axes):
        return None
    if math.prod(min(axis.window.stride, axis.large) for axis in axes) > MOST_PHASES:
        return None
    rows, columns = (_side(axis) for axis in axes)
    if rows.span != columns.span or rows.span not in WEIGHTS:
        return None
    outputs = 5 - rows.span
    used = np.argwhere(transform_of((rows, columns), [axis.window.size for axis in axes]).any(axis=2))
    entries = tuple((int(point), int(phase)) for point, phase in used)
    tiles = -(-rows.windows // outputs), -(-columns.windows // outputs)
    return WinogradTiling((rows, columns), outputs, tiles, entries)


def tiling_of(axes: tuple[Axis, ...]) -> WinogradTiling:
    """The tiling of axes that have one."""
    found = find_tiling(axes)
    assert found is not None
    return found


class TilingSize(NamedTuple):
    """The size of a tiling, all 0 where there is none."""

    tiles: int  # of an image
    entries: int
    phases: int  # of both axes together


def tiling_size(axes: tuple[Axis, ...]) -> TilingSize:
    """The size of the tiling of a call."""
    tiling = find_tiling(axes)
    return (
        TilingSize(0, 0, 0)
        if tiling is None
        else TilingSize(math.prod(tiling.tiles), len(tiling.entries), tiling.phases)
    )


@compile_as(tiling_size)
def _tiling_size(axes: Any) -> Callable[..., Any]:
    def compiled(axes):
        if len(axes) != 2 or large_sizes(axes, 0) == 0 or phase_count(axes) > MOST_PHASES:
            return TilingSize(0, 0, 0)
        down, across = _side_size(axis_at(axes, 0)), _side_size(axis_at(axes, 1))
        if down.span != across.span or not 2 <= down.span <= 3:
            return TilingSize(0, 0, 0)
        outputs = 5 - down.span
        tiles = -(-down.windows // outputs) * -(-across.windows // outputs)
        return TilingSize(tiles, down.points * across.points, phase_count(axes))

    return compiled


class SideSize(NamedTuple):
    """One axis: as in `WinogradAxis`, and the points of all phases where some weight counts."""

    span: int
    windows: int
    points: int


@jit_inline
def _side_size(axis: Axis) -> SideSize:
    window, phases = axis.window, min(axis.window.stride, axis.large)
    bounds, span, lowest = np.empty((phases, 2), np.int64), 0, 0
    for phase in range(phases):
        low, high = 1, 0
        for tap in range(window.size):
            place = phase + axis.begin - tap * window.dilation
            if place % window.stride == 0:
                shift = place // window.stride
                low, high = (shift, shift) if low > high else (min(low, shift), max(high, shift))
        bounds[phase, 0], bounds[phase, 1] = low, high
        if low <= high:
            lowest = low if span == 0 else min(lowest, low)
            span = max(span, high - low + 1)
    first, last, points = 0, 0, 0
    for phase in range(phases):
        low, high = bounds[phase, 0], bounds[phase, 1]
        origin = max((low if low <= high else lowest) - (span - (high - low + 1)), lowest)
        end = origin - (-(axis.large - phase) // window.stride)
        first, last = (origin, end) if phase == 0 else (min(first, origin), max(last, end))
        places = 0
        for tap in range(window.size):
            place = phase + axis.begin - tap * window.dilation
            if place % window.stride == 0:
                places |= 1 << (place // window.stride - origin)
        # the points 0 and infinity have the first and the last weight, 1 and -1 have all
        points += (places & 1) + (2 if places > 0 else 0) + (places >> (span - 1) & 1 if span > 0 else 0)
    return SideSize(span, last - first, points)


def _side(axis: Axis) -> WinogradAxis:
    window, phases = axis.window, []
    for phase in range(min(window.stride, axis.large)):
        places = [phase + axis.begin - tap * window.dilation for tap in range(window.size)]
        phases.append([(tap, place // window.stride) for tap, place in enumerate(places) if place % window.stride == 0])
    spans = [max(shifts) - min(shifts) + 1 if (shifts := [shift for _, shift in each]) else 0 for each in phases]
    span = max(spans)
    lowest = min((shift for each in phases for _, shift in each), default=0)
    origins = [
        max(min((shift for _, shift in each), default=lowest) - (span - short), lowest)
        for each, short in zip(phases, spans, strict=True)
    ]
    steps = [-(-(axis.large - phase) // window.stride) for phase in range(len(phases))]
    last = max(origin + step for origin, step in zip(origins, steps, strict=True))
    taps = tuple(
        tuple((tap, shift - origin) for tap, shift in each) for each, origin in zip(phases, origins, strict=True)
    )
    return WinogradAxis(span, min(origins), last - min(origins), tuple(origins), taps)


def transform_of(sides: tuple[WinogradAxis, WinogradAxis], sizes: Sequence[int]):
    """The matrices from the taps of a window, `sizes` per axis, to its values at the points: (16, phases, taps)."""
    lines = []
    for side, size in zip(sides, sizes, strict=True):
        line = np.zeros((len(side.taps), 4, size))
        for phase, taps in enumerate(side.taps):
            for tap, place in taps:
                line[phase, :, tap] = np.array(WEIGHTS[side.span])[:, place]
        lines.append(line)
    both = np.einsum("aik,bjl->ijabkl", *lines)
    return both.reshape(16, len(lines[0]) * len(lines[1]), -1)


class DepthAxis(NamedTuple):
    """The first of three axes."""

    small: int  # slices of x
    large: int  # slices of y
    taps: int  # of the window
    begin: int  # slice of x that the first tap of the first slice of y reads
    step: int  # slices of x from a tap back to the previous tap


FLAT = DepthAxis(small=1, large=1, taps=1, begin=0, step=1)  # stands for the missing axis where there are two


def depth_axis(axes: tuple[Axis, ...]) -> DepthAxis | None:
    """The first of three axes, or FLAT for two; None for other calls."""
    if len(axes) == 2:
        return FLAT
    if len(axes) != 3 or axes[0].window.stride != 1:
        return None
    first = axes[0]
    return DepthAxis(first.small, first.large, first.window.size, first.begin, first.window.dilation)


def flatten_depth(problem: ConvTransposeProblem) -> ConvTransposeProblem | None:
    """The call over the last two axes; None if it has no such form."""
    depth = depth_axis(problem.axes)
    if depth is None:
        return None
    batch, channels = problem.batch * depth.large, problem.channels * depth.taps
    return problem._replace(axes=problem.axes[-2:], batch=batch, channels=channels)


def flatten_weights(w: Any) -> Any:
    """Weights (C, M/group, [k1,] k2, k3) for the flat call."""
    if w.ndim == 4:
        return w
    channels, maps, taps, *window = w.shape
    return np.ascontiguousarray(np.moveaxis(w, 2, 1)).reshape(channels * taps, maps, *window)
