"""Computes inaccurate tiles of Winograd again, as small images, by another algorithm.

image[p] = x[start + p], 0 <= p < 4, start = first + outputs * tile
y[start * stride + q] = window over the image at q: the same taps, the same offset
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.conv_transpose.winograd_tiling import FLAT, DepthAxis, WinogradAxis, add_depth, tiling_of

TOGETHER = 8
"""Images in a call."""

Compute = Callable[[Any, Any, Any, Any, int | None], bool]


@dataclass(frozen=True)
class FallbackAxis:
    """One axis of the tiles, and the outputs that a tile owns, relative to start * stride and in its image."""

    side: WinogradAxis
    axis: Axis
    own: Any
    image: Axis

    @classmethod
    def of(cls, axis: Axis, side: WinogradAxis, outputs: int) -> "FallbackAxis":
        """The record of an axis."""
        stride, steps = axis.window.stride, np.arange(outputs)
        own = np.concatenate([(steps - origin) * stride + phase for phase, origin in enumerate(side.origins)])
        low, high = int(own.min()), int(own.max())
        return cls(side, axis, own, Axis(high - low + 1, 4, axis.window, axis.begin + low))


class WinogradFallback:
    """The tiles of one set of shapes."""

    def __init__(
        self, problem: ConvTransposeProblem, start: Callable[[ConvTransposeProblem], Compute], depth: DepthAxis = FLAT
    ) -> None:
        """`start` returns the function that computes images; `depth` is the axis before the two of the flat problem."""
        tiling = tiling_of(problem.axes)
        self._depth = depth
        self._outputs, self._tiles = tiling.outputs, tiling.tiles
        rows, columns = (
            FallbackAxis.of(axis, side, tiling.outputs) for axis, side in zip(problem.axes, tiling.sides, strict=True)
        )  # fmt: skip
        self._lines = rows, columns
        self._compute = start(replace(problem, axes=(rows.image, columns.image), batch=TOGETHER))

    def recompute(self, numbers: Any, x: Any, w: Any, b: Any, y: Any, threads: int | None) -> bool:
        """Write the outputs of these tiles, with flat weights; False if the algorithm for them does not write."""
        x, y = add_depth(x), add_depth(y)
        for first in range(0, len(numbers), TOGETHER):
            some = numbers[first : first + TOGETHER]
            slices, places = np.divmod(some, self._tiles[0] * self._tiles[1])
            starts = [
                line.side.first + self._outputs * place
                for line, place in zip(self._lines, np.divmod(places, self._tiles[1]), strict=True)
            ]
            images = np.zeros((TOGETHER, x.shape[1] * self._depth.taps, 4, 4), x.dtype)
            self._take(images, x, slices, starts)
            computed = np.empty((TOGETHER, y.shape[1], *(line.image.large for line in self._lines)), y.dtype)
            if not self._compute(images, w, b, computed, threads):
                return False
            self._put(y, computed, slices, starts)
        return True

    def _take(self, images: Any, x: Any, slices: Any, starts: Any) -> None:
        """Copy the positions of tiles that lie in x, of every slice that they read."""
        places = [start[:, None] + np.arange(4) for start in starts]
        inside = [(0 <= each) & (each < size) for each, size in zip(places, x.shape[3:], strict=True)]
        batch, numbers = np.divmod(slices, self._depth.large)
        for tap in range(self._depth.taps):
            met = numbers + self._depth.begin - tap * self._depth.step
            is_there = (0 <= met) & (met < self._depth.small)
            tile, row, column = np.nonzero(is_there[:, None, None] & inside[0][:, :, None] & inside[1][:, None, :])
            values = x[batch[tile], :, met[tile], places[0][tile, row], places[1][tile, column]]
            images[tile, tap :: self._depth.taps, row, column] = values

    def _put(self, y: Any, computed: Any, slices: Any, starts: Any) -> None:
        """Copy the outputs that the tiles own to y."""
        targets = [
            start[:, None] * line.axis.window.stride + line.own
            for line, start in zip(self._lines, starts, strict=True)
        ]  # fmt: skip
        inside = [(0 <= each) & (each < line.axis.large) for each, line in zip(targets, self._lines, strict=True)]
        tile, row, column = np.nonzero(inside[0][:, :, None] & inside[1][:, None, :])
        rows, columns = (line.own - line.own.min() for line in self._lines)
        batch, numbers = np.divmod(slices[tile], self._depth.large)
        down, across = targets[0][tile, row], targets[1][tile, column]
        y[batch, :, numbers, down, across] = computed[tile, :, rows[row], columns[column]]
