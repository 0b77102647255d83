"""Transposed convolution: routes a call to one of four ways.

| inputs | way | why |
|---|---|---|
| one element per channel, no dilation | matmul | nothing overlaps |
| phases of 2x2 or 3x3 taps; channels and positions enough | winograd | fewer products; not for infinity and NaN |
| almost everything else | phases | sums stay in registers, inputs are read once per tile |
| large windows on tiny maps, weights with NaN or infinity | rows | padding is never multiplied |
"""

import math
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu import conv_transpose_phases as phases
from unpool.kernels.cpu import conv_transpose_points as points
from unpool.kernels.cpu import conv_transpose_rows as rows
from unpool.kernels.cpu import conv_transpose_winograd as winograd
from unpool.kernels.cpu.activation import PLAIN, Ending, activate
from unpool.kernels.cpu.conv_transpose_costs import MOST_TAPS, NARROW_STORE, PACKING, ROW_CALL, ROWS
from unpool.kernels.cpu.float16 import BITS

KEPT_SHAPES = 4
"""So many input shapes find the packed weights of an array again; the oldest one goes first."""

Packed = np.ndarray | None
Way = Literal["matmul", "winograd", "phases", "rows"]
_packed: dict[int, tuple[weakref.ref[np.ndarray], dict[Hashable, Packed]]] = {}


@dataclass(frozen=True, slots=True)
class Work:
    """What the choice of a way depends on.

    Attributes:
        axes: one per spatial axis.
        batch: size of the batch.
        group: number of groups.
        channels: of x.
        maps: of each group of y.
        dtype: in which sums are formed.
        is_plain: whether x and y are of that type, channels first.
        is_kept: whether what is derived from the weights can be kept.
    """

    axes: tuple[Axis, ...]
    batch: int
    group: int
    channels: int
    maps: int
    dtype: np.dtype[Any]
    is_plain: bool
    is_kept: bool


def conv_transpose(x, w, b, axes: Sequence[Axis], group: int, y, threads: int | None, ending: Ending = PLAIN):
    """Write the transposed convolution of x and w, plus b, activated, to `y`.

    Args:
        x: C-contiguous (N, C, d1..dk), or channels last: any float type.
        w: C-contiguous (C, M/group, k1..kk), type of x. What is derived from it is kept while the array lives if it
            cannot change: read-only, and not a view of another array.
        b: C-contiguous (M,), in the type that sums are formed in: that of x, but float32 for 16-bit types.
        axes: one per spatial axis.
        group: number of independent groups of channels.
        y: C-contiguous (N, M, D1..Dk), or channels last, type of x.
        threads: at most so many; None for all cores.
        ending: the layout of x and y, and the activation.
    """
    if y.size == 0:
        return
    is_plain = y.dtype == b.dtype and not ending.is_channels_last
    work = Work(tuple(axes), x.shape[0], group, w.shape[0], w.shape[1], b.dtype, is_plain, _is_fixed(w))
    is_narrow = ending.is_channels_last and w.shape[1] < NARROW_STORE
    for way in ways(work):
        if way == "phases" and ending.is_simple and not is_narrow:
            bits = BITS.get(x.dtype.name, x.dtype)
            is_done = _compute(way, work, x.view(bits), w, b, y.view(bits), threads, ending)
        else:
            is_done = _compute_wide(way, work, x, w, b, y, threads, ending)
        if is_done:
            return


@lru_cache(maxsize=1024)
def ways(work: Work) -> tuple[Way, ...]:
    """The ways to compute a call, the best one first; the next ones are for weights or results that are not finite."""
    if work.group == 1 and work.batch * work.channels and _is_matmul(work.axes):
        return ("matmul",)
    found: list[Way] = ["rows"]
    shape = (work.batch, work.channels // work.group, work.maps, work.dtype.itemsize)
    if _is_tiled(work.axes, *shape):
        found.insert(0, "phases")
    if work.is_plain and winograd.pays(work.axes, *shape, is_kept=work.is_kept):
        found.insert(0, "winograd")
    return tuple(found)


def prepare(w, work: Work) -> None:
    """Derive from weights that cannot change what calls of this work need.

    Args:
        w: C-contiguous (C, M/group, k1..kk).
        work: what is to be computed.
    """
    way = ways(work)[0]
    if way in ("winograd", "phases"):
        _packed_weights(w, way, work)


def _compute(way: Way, work: Work, x, w, b, y, threads: int | None, ending: Ending = PLAIN) -> bool:
    """Whether y is written: not with weights that are not finite where those are multiplied by padding."""
    if way == "matmul":
        _grow_points(x, w.astype(b.dtype, copy=False), b, work.axes, y, threads)
        return True
    if way == "rows":
        rows.conv_transpose(x, w.astype(b.dtype, copy=False), b, work.axes, work.group, y, threads)
        return True
    packed = _packed_weights(w, way, work)
    if packed is None:
        return False
    if way == "winograd":
        return winograd.conv_transpose(x, packed, b, work.axes, work.group, y, threads)
    phases.conv_transpose(x, packed, b, work.axes, work.group, y, threads, ending)
    return True


def _compute_wide(way: Way, work: Work, x, w, b, y, threads: int | None, ending: Ending) -> bool:
    """As `_compute`, for ways that know one layout and the type that sums are formed in: the rest is done here."""
    first = np.moveaxis(x, -1, 1) if ending.is_channels_last else x
    sums = y if work.is_plain else np.empty((x.shape[0], b.size, *(axis.large for axis in work.axes)), b.dtype)
    if not _compute(way, work, np.ascontiguousarray(first, b.dtype), w, b, sums, threads):
        return False
    values = sums if ending.name is None else activate(sums, ending.name, ending.params)
    if values is not y:
        with np.errstate(over="ignore"):
            y[...] = np.moveaxis(values, 1, -1) if ending.is_channels_last else values
    return True


def _is_matmul(axes: tuple[Axis, ...]) -> bool:
    return all(axis.small == 1 and axis.window.dilation == 1 for axis in axes)


def _grow_points(x, w, b, axes: tuple[Axis, ...], y, threads: int | None) -> None:
    """One element per channel: the output is the weights' windows, weighted and cut."""
    if all(axis.begin == 0 and axis.large == axis.window.size for axis in axes):
        points.weigh(x, w, b, y, threads)
        return
    windows = np.empty((x.shape[0], *w.shape[1:]), y.dtype)
    points.weigh(x, w, b, windows, threads)
    source, target = [slice(None)] * 2, [slice(None)] * 2
    for axis in axes:
        stop = min(axis.window.size, axis.begin + axis.large)
        source.append(slice(axis.begin, max(axis.begin, stop)))
        target.append(slice(0, max(0, stop - axis.begin)))
    y[...] = b.reshape(-1, *[1] * len(axes))
    y[tuple(target)] = windows[tuple(source)]


@lru_cache(maxsize=1024)
def _is_tiled(axes: tuple[Axis, ...], batch: int, channels: int, maps: int, size: int) -> bool:
    """Compare costs, those of unfilled tiles and of padding counted; more phases or taps than sums are not listed."""
    if batch * channels * maps == 0 or any(axis.small == 0 or axis.large == 0 for axis in axes):
        return False
    taps = math.prod(axis.window.size for axis in axes)
    real = channels * maps * taps * math.prod(axis.small for axis in axes)
    if max(taps, math.prod(min(axis.window.stride, axis.large) for axis in axes)) > MOST_TAPS:
        return False
    packing = PACKING * channels * maps * taps / batch
    by_rows = real * (ROWS + ROW_CALL / axes[-1].small)
    return phases.blocking(axes, channels, maps, size).cost + packing < by_rows


def _is_fixed(w) -> bool:
    """Whether an array cannot change while it lives."""
    return not (w.flags.writeable or isinstance(w.base, np.ndarray))


def _packed_weights(w, way: Way, work: Work) -> Packed:
    """The weights in the order of a way, kept where they cannot change; None if they are not all finite."""
    if not _is_fixed(w):
        return _pack(w, way, work)
    entry = _packed.get(id(w))
    if entry is None or entry[0]() is not w:
        number = id(w)
        entry = (weakref.ref(w, lambda _: _packed.pop(number, None)), {})
        _packed[number] = entry
    known = entry[1]
    key = (way, work.group, work.dtype, winograd.layout(work.axes) if way == "winograd" else work.axes)
    if key not in known:
        while len(known) >= KEPT_SHAPES:
            known.pop(next(iter(known)), None)
        known[key] = _pack(w, way, work)
    return known[key]


def _pack(w, way: Way, work: Work) -> Packed:
    wide = w.astype(work.dtype, copy=False)
    if not np.isfinite(wide).all():
        return None
    if way == "winograd":
        packed: Packed = winograd.pack(wide, work.axes, work.group)
    else:
        cut = phases.blocking(work.axes, work.channels // work.group, work.maps, wide.itemsize)
        packed = phases.pack(wide, cut, work.group)
    return packed
