"""Transposed convolution: routes a call to one of five ways.

| inputs | way | why |
|---|---|---|
| one element per channel, no dilation | points | nothing overlaps |
| few products for each output, stride 1, 2, 4 or 8 | direct | inputs and sums stay in registers, nothing else moves |
| phases of 2x2 or 3x3 taps, in slices; channels and positions enough | winograd | fewer products; even tiles only |
| almost everything else | phases | sums stay in registers, inputs are read once per tile |
| large windows on tiny maps, weights with NaN or infinity | rows | padding is never multiplied |

Here the way is chosen; `growth.py` goes it. A new way gets a file of its own beside these, a line in the table, a
condition in `ways`, and a function in `growth.py` that prepares it.
"""

import math
from functools import lru_cache

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose import direct, phases_blocking, winograd
from unpool.kernels.cpu.conv_transpose.costs import FAR, MOST_TAPS, PACK_CALL, PACKING, ROW_CALL, ROWS, UNCERTAIN
from unpool.kernels.cpu.conv_transpose.winograd_depth import flattened
from unpool.kernels.cpu.conv_transpose.work import Way, Work


@lru_cache(maxsize=1024)
def ways(work: Work) -> tuple[Way, ...]:
    """The ways to compute a call, the best one first; the next ones are for weights or results that are not finite."""
    if _is_points(work):
        return ("points",)
    shape = (work.batch, work.channels // work.group, work.maps, work.dtype.itemsize)
    found: list[Way] = ["rows"]
    can = possible(work)
    if "phases" in can and _is_tiled(work.axes, *shape, is_kept=work.is_kept):
        found.insert(0, "phases")
    if "winograd" in can and winograd.pays(*_flat_shape(work), is_kept=work.is_kept):
        found.insert(0, "winograd")
    if "direct" in can and direct.pays(work.axes, *shape[1:]):
        found.insert(0, "direct")
    asked: list[Way] = [way for way in can if way == work.way]
    return (*asked, *(way for way in found if way not in asked))


@lru_cache(maxsize=1024)
def possible(work: Work) -> tuple[Way, ...]:
    """All ways that a call can take with finite weights; rows only where they may be the fastest."""
    if _is_points(work):
        return ("points",)
    shape = (work.channels // work.group, work.maps, work.dtype.itemsize)
    if work.batch * math.prod(shape) == 0 or any(axis.small == 0 or axis.large == 0 for axis in work.axes):
        return ("rows",)
    found: list[Way] = ["rows"]
    dense = phases_blocking.blocking(work.axes, *shape).cost if _is_listed(work.axes) else math.inf
    if dense < math.inf:
        found = ["phases", "rows"] if _cost_of_rows(work.axes, *shape[:2]) < FAR * dense else ["phases"]
    is_winograd = not (work.is_channels_last or work.is_exact) and flattened(work) is not None
    if is_winograd and winograd.cost(*_flat_shape(work), is_kept=True) < math.inf:
        found.insert(0, "winograd")
    if work.is_plain and direct.fits(work.axes, shape[0], shape[2]):
        found.insert(0, "direct")
    return tuple(found)


@lru_cache(maxsize=1024)
def in_question(work: Work) -> tuple[Way, ...]:
    """Those of the possible ways that may be the fastest on some machine, as far as costs tell."""
    shape, can = (work.channels // work.group, work.maps, work.dtype.itemsize), possible(work)
    slow = set() if direct.may_pay(work.axes, *shape) else {"direct"}
    if "winograd" in can:
        share = winograd.share(*_flat_shape(work), is_kept=work.is_kept)
        slow |= {"winograd"} if share > UNCERTAIN else {"phases", "rows"} if share * UNCERTAIN < 1 else set()
    return tuple(way for way in can if way not in slow or way == ways(work)[0])


def _flat_shape(work: Work) -> tuple[tuple[Axis, ...], int, int, int, int]:
    """What Winograd's tiles depend on, of a call that can be flattened."""
    flat = flattened(work)
    assert flat is not None
    return flat.axes, flat.batch, flat.channels // flat.group, flat.maps, flat.dtype.itemsize


def _is_points(work: Work) -> bool:
    is_alone = work.group == 1 and work.batch * work.channels > 0
    return is_alone and all(axis.small == 1 and axis.window.dilation == 1 for axis in work.axes)


def _is_listed(axes: tuple[Axis, ...]) -> bool:
    """Whether phases and taps are few enough for tables."""
    taps = math.prod(axis.window.size for axis in axes)
    return max(taps, math.prod(min(axis.window.stride, axis.large) for axis in axes)) <= MOST_TAPS


@lru_cache(maxsize=1024)
def _is_tiled(axes: tuple[Axis, ...], batch: int, channels: int, maps: int, size: int, *, is_kept: bool) -> bool:
    """Compare costs, those of unfilled tiles and of padding counted."""
    taps = math.prod(axis.window.size for axis in axes)
    packing = (PACKING * channels * maps * taps + (0 if is_kept else PACK_CALL)) / batch
    return phases_blocking.blocking(axes, channels, maps, size).cost + packing < _cost_of_rows(axes, channels, maps)


def _cost_of_rows(axes: tuple[Axis, ...], channels: int, maps: int) -> float:
    real = channels * maps * math.prod(axis.window.size * axis.small for axis in axes)
    return real * (ROWS + ROW_CALL / axes[-1].small)
