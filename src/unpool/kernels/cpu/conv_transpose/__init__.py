"""Transposed convolution: routes a call to one of five ways.

| inputs | way | why |
|---|---|---|
| one element per channel, no dilation | points | nothing overlaps |
| few products for each output, stride 1, 2, 4 or 8 | direct | inputs and sums stay in registers, nothing else moves |
| phases of 2x2 or 3x3 taps; channels and positions enough | winograd | fewer products; even tiles only |
| almost everything else | phases | sums stay in registers, inputs are read once per tile |
| large windows on tiny maps, weights with NaN or infinity | rows | padding is never multiplied |

Here the way is chosen; `growth.py` goes it. A new way gets a file of its own beside these, a line in the table, a
condition in `ways`, and a function in `growth.py` that prepares it.
"""

import math
from functools import lru_cache
from typing import Literal

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose import direct, phases_blocking, winograd
from unpool.kernels.cpu.conv_transpose.costs import MOST_TAPS, PACK_CALL, PACKING, ROW_CALL, ROWS
from unpool.kernels.cpu.conv_transpose.work import Work

Way = Literal["points", "direct", "winograd", "phases", "rows"]


@lru_cache(maxsize=1024)
def ways(work: Work) -> tuple[Way, ...]:
    """The ways to compute a call, the best one first; the next ones are for weights or results that are not finite."""
    if work.group == 1 and work.batch * work.channels and _are_points(work.axes):
        return ("points",)
    found: list[Way] = ["rows"]
    shape = (work.batch, work.channels // work.group, work.maps, work.dtype.itemsize)
    if _is_tiled(work.axes, *shape, is_kept=work.is_kept):
        found.insert(0, "phases")
    if not (work.is_channels_last or work.is_exact) and winograd.pays(work.axes, *shape, is_kept=work.is_kept):
        found.insert(0, "winograd")
    if work.is_plain and direct.pays(work.axes, *shape[1:]):
        found.insert(0, "direct")
    return tuple(found)


def _are_points(axes: tuple[Axis, ...]) -> bool:
    return all(axis.small == 1 and axis.window.dilation == 1 for axis in axes)


@lru_cache(maxsize=1024)
def _is_tiled(axes: tuple[Axis, ...], batch: int, channels: int, maps: int, size: int, *, is_kept: bool) -> bool:
    """Compare costs, those of unfilled tiles and of padding counted; more phases or taps than sums are not listed."""
    if batch * channels * maps == 0 or any(axis.small == 0 or axis.large == 0 for axis in axes):
        return False
    taps = math.prod(axis.window.size for axis in axes)
    real = channels * maps * taps * math.prod(axis.small for axis in axes)
    if max(taps, math.prod(min(axis.window.stride, axis.large) for axis in axes)) > MOST_TAPS:
        return False
    packing = (PACKING * channels * maps * taps + (0 if is_kept else PACK_CALL)) / batch
    by_rows = real * (ROWS + ROW_CALL / axes[-1].small)
    return phases_blocking.blocking(axes, channels, maps, size).cost + packing < by_rows
