"""Tiles that Winograd must not compute, computed as small pictures of their own by another way.

picture[p] = x[start + p], 0 <= p < 4, start = first + outputs * tile
y[start * stride + q] = window over the picture at q: the same taps, the same offset
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.conv_transpose.winograd_tiling import FLAT, DepthAxis, WinogradAxis, add_depth, tiling_of

TOGETHER = 8
"""Pictures in a call."""

Compute = Callable[[Any, Any, Any, Any, int | None], bool]


@dataclass(frozen=True)
class FallbackAxis:
    """One axis of the tiles: of the output what each of them owns, relative to start * stride, and in its picture."""

    side: WinogradAxis
    axis: Axis
    own: Any
    picture: Axis

    @classmethod
    def of(cls, axis: Axis, side: WinogradAxis, outputs: int) -> "FallbackAxis":
        """What follows from an axis."""
        stride, steps = axis.window.stride, np.arange(outputs)
        own = np.concatenate([(steps - origin) * stride + phase for phase, origin in enumerate(side.origins)])
        low, high = int(own.min()), int(own.max())
        return cls(side, axis, own, Axis(high - low + 1, 4, axis.window, axis.begin + low))


class WinogradFallback:
    """The tiles of one set of shapes."""

    def __init__(
        self, problem: ConvTransposeProblem, start: Callable[[ConvTransposeProblem], Compute], depth: DepthAxis = FLAT
    ) -> None:
        """`start` gives what computes pictures; `depth` is the axis before the two of the flat work."""
        tiling = tiling_of(problem.axes)
        self._depth = depth
        self._outputs, self._tiles = tiling.outputs, tiling.tiles
        rows, columns = (
            FallbackAxis.of(axis, side, tiling.outputs) for axis, side in zip(problem.axes, tiling.sides, strict=True)
        )  # fmt: skip
        self._lines = rows, columns
        self._compute = start(replace(problem, axes=(rows.picture, columns.picture), batch=TOGETHER))

    def recompute(self, numbers: Any, x: Any, w: Any, b: Any, y: Any, threads: int | None) -> bool:
        """Write the outputs of these tiles, with flat weights; False if the way that computes them gives up."""
        x, y = add_depth(x), add_depth(y)
        for first in range(0, len(numbers), TOGETHER):
            some = numbers[first : first + TOGETHER]
            slices, places = np.divmod(some, self._tiles[0] * self._tiles[1])
            starts = [
                line.side.first + self._outputs * place
                for line, place in zip(self._lines, np.divmod(places, self._tiles[1]), strict=True)
            ]
            pictures = np.zeros((TOGETHER, x.shape[1] * self._depth.taps, 4, 4), x.dtype)
            self._take(pictures, x, slices, starts)
            computed = np.empty((TOGETHER, y.shape[1], *(line.picture.large for line in self._lines)), y.dtype)
            if not self._compute(pictures, w, b, computed, threads):
                return False
            self._put(y, computed, slices, starts)
        return True

    def _take(self, pictures: Any, x: Any, slices: Any, starts: Any) -> None:
        """Copy the positions of tiles that lie in x, of every slice that they meet."""
        places = [start[:, None] + np.arange(4) for start in starts]
        inside = [(0 <= each) & (each < size) for each, size in zip(places, x.shape[3:], strict=True)]
        images, numbers = np.divmod(slices, self._depth.large)
        for tap in range(self._depth.taps):
            met = numbers + self._depth.begin - tap * self._depth.step
            is_there = (0 <= met) & (met < self._depth.small)
            tile, row, column = np.nonzero(is_there[:, None, None] & inside[0][:, :, None] & inside[1][:, None, :])
            values = x[images[tile], :, met[tile], places[0][tile, row], places[1][tile, column]]
            pictures[tile, tap :: self._depth.taps, row, column] = values

    def _put(self, y: Any, computed: Any, slices: Any, starts: Any) -> None:
        """Copy what the tiles own to the output, as far as it reaches."""
        targets = [
            start[:, None] * line.axis.window.stride + line.own
            for line, start in zip(self._lines, starts, strict=True)
        ]  # fmt: skip
        inside = [(0 <= each) & (each < line.axis.large) for each, line in zip(targets, self._lines, strict=True)]
        tile, row, column = np.nonzero(inside[0][:, :, None] & inside[1][:, None, :])
        rows, columns = (line.own - line.own.min() for line in self._lines)
        images, numbers = np.divmod(slices[tile], self._depth.large)
        down, across = targets[0][tile, row], targets[1][tile, column]
        y[images, :, numbers, down, across] = computed[tile, :, rows[row], columns[column]]
