"""Transposed convolution: routes a call to one of three ways.

| inputs | way | why |
|---|---|---|
| one element per channel, no dilation | one matrix product | nothing overlaps |
| enough output channels and positions to fill tiles | phases | sums stay in registers, inputs are read once per tile |
| the rest: depthwise, tiny maps, weights with NaN or infinity | rows | padding is never multiplied |
"""

import math
import weakref
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu import conv_transpose_phases as phases
from unpool.kernels.cpu import conv_transpose_rows as rows

_ROWS_COST = 5  # a product of the rows kernel costs as much as so many of a tile
_PACK_COST = 4  # and laying out one element of the input or of the weights as much as so many

Packed = np.ndarray | None
_packed: dict[int, tuple[weakref.ref[np.ndarray], dict[tuple[tuple[Axis, ...], int], Packed]]] = {}


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
    if _is_tiled(axes, x.shape[0], x.shape[1] // group, w.shape[1], x.itemsize):
        packed = _packed_weights(w, x.dtype, axes, group)
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
    cut = phases.blocking(axes, channels, maps, size)
    tiled, plan = cut.cost / channels, cut.plan
    line = plan.length
    packed = (line + plan.margin) + maps * math.prod(axis.window.size for axis in axes) / batch
    real = maps * math.prod(axis.small * axis.window.size for axis in axes)
    return bool(tiled + _PACK_COST * packed < _ROWS_COST * real)


def _packed_weights(w, dtype, axes: tuple[Axis, ...], group: int) -> Packed:
    """The weights in tile order; None if they are not all finite."""
    if w.flags.writeable or isinstance(w.base, np.ndarray):
        return _pack(w, dtype, axes, group)
    entry = _packed.get(id(w))
    if entry is None or entry[0]() is not w:
        key = id(w)
        entry = (weakref.ref(w, lambda _: _packed.pop(key, None)), {})
        _packed[key] = entry
    known = entry[1]
    if (axes, group) not in known:
        known[axes, group] = _pack(w, dtype, axes, group)
    return known[axes, group]


def _pack(w, dtype, axes: tuple[Axis, ...], group: int) -> Packed:
    w = w.astype(dtype, copy=False)
    if not np.isfinite(w).all():
        return None
    packed: Packed = phases.pack(w, phases.blocking(axes, w.shape[0] // group, w.shape[1], w.itemsize), group)
    return packed
