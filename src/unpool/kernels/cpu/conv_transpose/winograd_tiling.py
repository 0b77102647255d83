"""Which transposed convolutions Winograd's tiles fit, and where the tiles lie.

Along an axis the outputs of one phase are dense: windows over neighbouring inputs, one step apart.

    y[step * stride + phase] = sum over the phase's taps: w[tap] * x[origin of the phase + step + place of the tap]

Tile t holds the four inputs from first + outputs * t on: windows of at most 5 - outputs inputs, for all phases.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis

MOST_PHASES = 16

WEIGHTS = {
    2: ((1, 0), (0.5, 0.5), (0.5, -0.5), (0, 1)),
    3: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
}
"""By the number of taps, their transform to the points 0, 1, -1 and infinity: G."""


@dataclass(frozen=True)
class Side:
    """One axis.

    Attributes:
        span: taps of the longest phase, those between its first and its last that it lacks counted.
        first: input position where the first tile begins.
        windows: steps from the first window that some phase needs to the last one.
        origins: per phase the input position where the window of its first output begins.
        taps: per phase its taps, each with its place in the window.
    """

    span: int
    first: int
    windows: int
    origins: tuple[int, ...]
    taps: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class WinogradTiling:
    """How a call is cut into tiles.

    Attributes:
        sides: one per axis.
        outputs: of a phase in a tile, along each axis.
        tiles: of an image, along each axis.
        entries: (point, phase) pairs whose transformed weights are not all zero.
    """

    sides: tuple[Side, Side]
    outputs: int
    tiles: tuple[int, int]
    entries: tuple[tuple[int, int], ...]

    @property
    def phases(self) -> int:
        """Of both axes together."""
        return math.prod(len(side.origins) for side in self.sides)


@lru_cache(maxsize=64)
def find_tiling(axes: tuple[Axis, ...]) -> WinogradTiling | None:
    """How a call is cut into tiles; None where they do not fit."""
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
    return WinogradTiling(
        (rows, columns), outputs, (-(-rows.windows // outputs), -(-columns.windows // outputs)), entries
    )


def tiling_of(axes: tuple[Axis, ...]) -> WinogradTiling:
    """The tiling of axes that have one."""
    found = find_tiling(axes)
    assert found is not None
    return found


def _side(axis: Axis) -> Side:
    window, found = axis.window, []
    for phase in range(min(window.stride, axis.large)):
        places = [phase + axis.begin - tap * window.dilation for tap in range(window.size)]
        found.append([(tap, place // window.stride) for tap, place in enumerate(places) if place % window.stride == 0])
    spans = [max(shifts) - min(shifts) + 1 if (shifts := [shift for _, shift in each]) else 0 for each in found]
    span = max(spans)
    lowest = min((shift for each in found for _, shift in each), default=0)
    origins = [
        max(min((shift for _, shift in each), default=lowest) - (span - short), lowest)
        for each, short in zip(found, spans, strict=True)
    ]
    steps = [-(-(axis.large - phase) // window.stride) for phase in range(len(found))]
    last = max(origin + step for origin, step in zip(origins, steps, strict=True))
    taps = tuple(
        tuple((tap, shift - origin) for tap, shift in each) for each, origin in zip(found, origins, strict=True)
    )
    return Side(span, min(origins), last - min(origins), tuple(origins), taps)


def transform_of(sides: tuple[Side, Side], sizes: Sequence[int]):
    """What turns the taps of a window, of so many per axis, into its values at the points: (16, phases, taps)."""
    lines = []
    for side, size in zip(sides, sizes, strict=True):
        line = np.zeros((len(side.taps), 4, size))
        for phase, taps in enumerate(side.taps):
            for tap, place in taps:
                line[phase, :, tap] = np.array(WEIGHTS[side.span])[:, place]
        lines.append(line)
    both = np.einsum("aik,bjl->ijabkl", *lines)
    return both.reshape(16, len(lines[0]) * len(lines[1]), -1)
