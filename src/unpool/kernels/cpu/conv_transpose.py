"""Transposed convolution: routes a call to one of three ways.

| inputs | way | why |
|---|---|---|
| one element per channel, no dilation | matmul | nothing overlaps |
| almost everything else | phases | sums stay in registers, inputs are read once per tile |
| large windows on tiny maps, weights with NaN or infinity | rows | padding is never multiplied |
"""

import math
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu import conv_transpose_phases as phases
from unpool.kernels.cpu import conv_transpose_rows as rows
from unpool.kernels.cpu.activation import PLAIN, Ending, activate
from unpool.kernels.cpu.conv_transpose_costs import MOST_TAPS, NARROW_STORE, PACKING, ROW_CALL, ROWS
from unpool.kernels.cpu.float16 import BITS

KEPT_SHAPES = 4
"""So many input shapes find the packed weights of an array again; the oldest one goes first."""

Packed = np.ndarray | None
Way = Literal["matmul", "phases", "rows"]
_packed: dict[int, tuple[weakref.ref[np.ndarray], dict[tuple[tuple[Axis, ...], int], Packed]]] = {}


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
    axes = tuple(axes)
    if y.size == 0:
        return
    chosen = way(axes, x.shape[0], group, w.shape[0], w.shape[1], b.itemsize)
    packed = _packed_weights(w, b.dtype, axes, group) if chosen == "phases" else None
    is_narrow = ending.is_channels_last and w.shape[1] < NARROW_STORE
    if packed is not None and ending.is_simple and not is_narrow:
        bits = BITS.get(x.dtype.name, x.dtype)
        phases.conv_transpose(x.view(bits), packed, b, axes, group, y.view(bits), threads, ending)
        return
    is_plain = y.dtype == b.dtype and not ending.is_channels_last
    first = np.moveaxis(x, -1, 1) if ending.is_channels_last else x
    wide = np.ascontiguousarray(first, b.dtype)
    work = y if is_plain else np.empty((x.shape[0], b.size, *(axis.large for axis in axes)), b.dtype)
    if packed is not None:
        phases.conv_transpose(wide, packed, b, axes, group, work, threads)
    elif chosen == "matmul":
        _grow_points(wide, w.astype(b.dtype, copy=False), b, axes, work)
    else:
        rows.conv_transpose(wide, w.astype(b.dtype, copy=False), b, axes, group, work, threads)
    _deliver(work, y, ending)


def way(axes: tuple[Axis, ...], batch: int, group: int, channels: int, maps: int, size: int) -> Way:
    """How a call with finite weights is computed.

    Args:
        axes: one per spatial axis.
        batch: size of the batch.
        group: number of groups.
        channels: of x.
        maps: of each group of y.
        size: bytes of an element in which sums are formed.
    """
    if group == 1 and batch * channels and _is_matmul(axes):
        return "matmul"
    return "phases" if _is_tiled(axes, batch, channels // group, maps, size) else "rows"


def _deliver(work, y, ending: Ending):
    """Activate sums, round them once, and put them where they belong."""
    values = work if ending.name is None else activate(work, ending.name, ending.params)
    if values is not y:
        with np.errstate(over="ignore"):
            y[...] = np.moveaxis(values, 1, -1) if ending.is_channels_last else values


def _is_matmul(axes: tuple[Axis, ...]) -> bool:
    return all(axis.small == 1 and axis.window.dilation == 1 for axis in axes)


def _grow_points(x, w, b, axes: tuple[Axis, ...], y) -> None:
    """One element per channel: the output is the weights' windows, weighted and cut."""
    flat, weights = x.reshape(x.shape[:2]), w.reshape(w.shape[0], -1)
    biases = b.reshape(-1, *[1] * len(axes))
    if all(axis.begin == 0 and axis.large == axis.window.size for axis in axes):
        with np.errstate(all="ignore"):
            np.matmul(flat, weights, out=y.reshape(x.shape[0], -1))
            np.add(y, biases, out=y)
        return
    with np.errstate(all="ignore"):
        windows = flat @ weights
    windows = windows.reshape(x.shape[0], *w.shape[1:])
    source, target = [slice(None)] * 2, [slice(None)] * 2
    for axis in axes:
        stop = min(axis.window.size, axis.begin + axis.large)
        source.append(slice(axis.begin, max(axis.begin, stop)))
        target.append(slice(0, max(0, stop - axis.begin)))
    y[...] = biases
    with np.errstate(all="ignore"):
        y[tuple(target)] += windows[tuple(source)]


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


def prepare(w, dtype, axes: Sequence[Axis], batch: int, group: int) -> None:
    """Derive from weights that cannot change what calls with these axes need.

    Args:
        w: C-contiguous (C, M/group, k1..kk).
        dtype: in which sums are formed.
        axes: one per spatial axis.
        batch: size of the batch.
        group: number of groups.
    """
    axes = tuple(axes)
    if way(axes, batch, group, w.shape[0], w.shape[1], dtype.itemsize) == "phases":
        _packed_weights(w, dtype, axes, group)


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
        while len(known) >= KEPT_SHAPES:
            known.pop(next(iter(known)), None)
        known[axes, group] = _pack(w, dtype, axes, group)
    return known[axes, group]


def _pack(w, dtype, axes: tuple[Axis, ...], group: int) -> Packed:
    w = w.astype(dtype, copy=False)
    if not np.isfinite(w).all():
        return None
    packed: Packed = phases.pack(w, phases.blocking(axes, w.shape[0] // group, w.shape[1], w.itemsize), group)
    return packed
