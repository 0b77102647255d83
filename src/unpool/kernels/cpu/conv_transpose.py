"""Transposed convolution: routes a call to one of four ways.

| inputs | way | why |
|---|---|---|
| one element per channel, no dilation | one matrix product | nothing overlaps |
| phases of 2x2 or 3x3 taps; channels and positions enough | Winograd | fewer products; not for infinity and NaN |
| enough output channels and positions to fill tiles | phases | sums stay in registers, inputs are read once per tile |
| the rest: depthwise, tiny maps, weights with NaN or infinity | rows | padding is never multiplied |
"""

import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu import conv_transpose_phases as phases
from unpool.kernels.cpu import conv_transpose_rows as rows
from unpool.kernels.cpu import conv_transpose_winograd as winograd

_ROWS_COST = 5  # a product of the rows kernel costs as much as so many of a tile
_PACK_COST = 4  # and laying out one element of the input or of the weights as much as so many

Packed = np.ndarray | None
_packed: dict[int, tuple[weakref.ref[np.ndarray], dict[Hashable, Packed]]] = {}


def conv_transpose(x, w, b, axes: Sequence[Axis], group: int, y, threads: int | None):
    """Write the transposed convolution of x and w, plus b, to `y`.

    Args:
        x: C-contiguous (N, C, d1..dk), float32 or float64.
        w: C-contiguous (C, M/group, k1..kk), any float type; it is widened to the type of x. What is derived from it is
            kept while the array lives if it cannot change: read-only, and not a view of another array.
        b: C-contiguous (M,), type of x.
        axes: one per spatial axis.
        group: number of independent groups of channels.
        y: C-contiguous (N, M, D1..Dk), type of x.
        threads: at most so many; None for all cores.
    """
    axes = tuple(axes)
    if y.size == 0:
        return
    if group == 1 and _is_matmul(axes) and x.size:
        _grow_points(x, w.astype(x.dtype, copy=False), b, axes, y)
        return
    if winograd.pays(axes, x.shape[0], x.shape[1] // group, w.shape[1], x.itemsize, is_kept=_is_fixed(w)):
        key = (x.dtype, group, winograd.layout(axes))
        packed = _packed_weights(w, x.dtype, key, lambda wide: winograd.pack(wide, axes, group))
        if packed is not None and winograd.conv_transpose(x, packed, b, axes, group, y, threads):
            return
    if _is_tiled(axes, x.shape[0], x.shape[1] // group, w.shape[1], x.itemsize):
        packed = _packed_weights(w, x.dtype, (axes, group), lambda wide: _pack_phases(wide, axes, group))
        if packed is not None:
            phases.conv_transpose(x, packed, b, axes, group, y, threads)
            return
    rows.conv_transpose(x, w.astype(x.dtype, copy=False), b, axes, group, y, threads)


def _is_matmul(axes: tuple[Axis, ...]) -> bool:
    return all(axis.small == 1 and axis.window.dilation == 1 for axis in axes)


def _grow_points(x, w, b, axes: tuple[Axis, ...], y) -> None:
    """One element per channel: the output is the weights' windows, weighted and cut."""
    with np.errstate(all="ignore"):
        windows = x.reshape(x.shape[:2]) @ w.reshape(w.shape[0], -1)
    windows = windows.reshape(x.shape[0], *w.shape[1:])
    source, target = [slice(None)] * 2, [slice(None)] * 2
    for axis in axes:
        stop = min(axis.window.size, axis.begin + axis.large)
        source.append(slice(axis.begin, max(axis.begin, stop)))
        target.append(slice(0, max(0, stop - axis.begin)))
    y[...] = b.reshape(-1, *[1] * len(axes))
    with np.errstate(all="ignore"):
        y[tuple(target)] += windows[tuple(source)]


@lru_cache(maxsize=1024)
def _is_tiled(axes: tuple[Axis, ...], batch: int, channels: int, maps: int, size: int) -> bool:
    """Compare multiply-adds, those of unfilled tiles and of padding counted."""
    if channels == 0 or maps == 0 or any(axis.small == 0 for axis in axes):
        return False
    plan = phases.grid(axes)
    tile = phases.tile_rows()
    cut = phases.blocking(plan, channels, maps, size)
    line = -(-plan.length // cut.block) * cut.block
    tiled = sum(len(each.offsets) * -(-len(each.phases) * maps // tile) * tile for each in plan.classes) * line
    packed = (line + plan.margin) + maps * math.prod(axis.window.size for axis in axes) / batch
    real = maps * math.prod(axis.small * axis.window.size for axis in axes)
    return bool(tiled + _PACK_COST * packed < _ROWS_COST * real)


def _is_fixed(w) -> bool:
    """Whether an array cannot change while it lives."""
    return not (w.flags.writeable or isinstance(w.base, np.ndarray))


def _packed_weights(w, dtype, key: Hashable, pack: Callable[..., Packed]) -> Packed:
    """What `pack` makes of the weights in their wider type, kept under a key; None if they are not all finite."""
    if not _is_fixed(w):
        return _pack(w, dtype, pack)
    entry = _packed.get(id(w))
    if entry is None or entry[0]() is not w:
        number = id(w)
        entry = (weakref.ref(w, lambda _: _packed.pop(number, None)), {})
        _packed[number] = entry
    known = entry[1]
    if key not in known:
        known[key] = _pack(w, dtype, pack)
    return known[key]


def _pack(w, dtype, pack: Callable[..., Packed]) -> Packed:
    w = w.astype(dtype, copy=False)
    if not np.isfinite(w).all():
        return None
    return pack(w)


def _pack_phases(w, axes: tuple[Axis, ...], group: int) -> Packed:
    plan = phases.grid(axes)
    packed: Packed = phases.pack(w, plan, phases.blocking(plan, w.shape[0] // group, w.shape[1], w.itemsize), group)
    return packed
