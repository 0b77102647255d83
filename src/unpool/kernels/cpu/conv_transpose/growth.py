"""Goes the ways to a transposed convolution that were chosen for a call, one after the other until one writes y.

Each way has a function `_by_...(work, storage, ending)`, which works out once what follows from shapes and types. What
it returns takes (x, w, b, y, threads), all C-contiguous, and says whether y is written; if not, the next way does it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from unpool.kernels.cpu.activation import PLAIN, Ending, activate
from unpool.kernels.cpu.conv_transpose import (
    direct,
    in_question,
    phases,
    phases_blocking,
    phases_pack,
    points,
    possible,
    rows,
    ways,
    winograd,
    winograd_even,
)
from unpool.kernels.cpu.conv_transpose.costs import NARROW_STORE
from unpool.kernels.cpu.conv_transpose.winograd_depth import depth_of, flat_weights, flattened
from unpool.kernels.cpu.conv_transpose.winograd_mend import Mender
from unpool.kernels.cpu.conv_transpose.winograd_tiling import tiling_of
from unpool.kernels.cpu.conv_transpose.work import Way, Work
from unpool.kernels.cpu.weights import own_weights, packings_of
from unpool.shape_cache import count_bytes, nbytes_of

MOST_UNEVEN = 1 / 32
"""Of Winograd's tiles: where more are not even, all are computed in the next way, which takes less time."""

Packed = Any
"""Weights in the order of a way."""

Run = Callable[[Any, Any, Any, Any, int | None], bool]
"""Goes one way for (x, w, b, y, threads): whether y is written."""


class Growth:
    """The transposed convolutions of one set of shapes and types."""

    def __init__(self, work: Work, storage: np.dtype[Any], ending: Ending = PLAIN) -> None:
        """The ways are chosen when they are needed.

        Args:
            work: what is to be computed; `is_kept` is found out for the weights of every call.
            storage: type of x and y.
            ending: the layout of x and y, and the activation.
        """
        self._work = work
        self._storage = storage
        self._ending = ending
        self._is_empty = work.batch * work.maps * work.group * work.large == 0
        self._ways: dict[bool, tuple[Way, ...]] = {}
        self._runs: dict[Way, Run] = {}

    @property
    def nbytes(self) -> int:
        """Of the tables of all ways that calls went."""
        return sum(map(nbytes_of, self._runs.copy().values()))

    def __call__(self, x: Any, w: Any, b: Any, y: Any, threads: int | None) -> None:
        """Write the transposed convolution of x and w, plus b, activated, to `y`.

        Args:
            x: C-contiguous (N, C, d1..dk), or channels last: any float type.
            w: C-contiguous (C, M/group, k1..kk), type of x. What is derived from it is kept if it is unpool's own.
            b: C-contiguous (M,), in the type that sums are formed in: that of x, but float32 for 16-bit types.
            y: C-contiguous (N, M, D1..Dk), or channels last, type of x.
            threads: at most so many; None for all cores.
        """
        if self._is_empty:
            return
        for way in self.ways(is_kept=packings_of(w) is not None):
            if self._run(way)(x, w, b, y, threads):
                return

    def ways(self, *, is_kept: bool) -> tuple[Way, ...]:
        """As `ways`, for weights that can be kept, or others."""
        found = self._ways.get(is_kept)
        if found is None:
            found = self._ways[is_kept] = ways(replace(self._work, is_kept=is_kept))
        return found

    @property
    def possible(self) -> tuple[Way, ...]:
        """As `possible`."""
        return possible(self._work)

    @property
    def in_question(self) -> tuple[Way, ...]:
        """As `in_question`, for weights that are kept."""
        return in_question(replace(self._work, is_kept=True))

    def pack(self, w: Any) -> None:
        """Derive from weights that are unpool's own what calls need."""
        way = self.ways(is_kept=True)[0]
        if self._is_empty:
            return
        is_cut = way == "points" and points.of_met_taps(self._work).taps < self._work.taps
        if is_cut or way in ("direct", "winograd", "phases"):
            _Packing(way, self._work).of(w, None)
        else:
            _wide(w, self._work.dtype)

    def _run(self, way: Way) -> Run:
        run = self._runs.get(way)
        if run is None:
            run = self._runs[way] = _start(way, self._work, self._storage, self._ending)
            count_bytes(nbytes_of(run))
        return run


def _start(way: Way, work: Work, storage: np.dtype[Any], ending: Ending) -> Run:
    """What computes in one way: in the layout and type of x and y where it can, else as `_widened`."""
    is_narrow = ending.is_channels_last and work.maps < NARROW_STORE
    fits = {
        "phases": not is_narrow, "winograd": not ending.is_channels_last, "direct": work.is_plain,
        "points": work.is_plain and points.activates(work),
    }  # fmt: skip
    if fits.get(way, False) and ending.is_simple:
        return _STARTERS[way](work, storage, ending)
    run = _STARTERS[way](work, work.dtype, PLAIN)
    return run if work.is_plain and ending.name is None else _widened(run, work, ending)


def _widened(run: Run, work: Work, ending: Ending) -> Run:
    """For ways that know channels first, no activation, and the type that sums are formed in: the rest is done here."""
    shape = (work.batch, work.maps * work.group, *(axis.large for axis in work.axes))

    def widened(x, w, b, y, threads):
        first = np.moveaxis(x, -1, 1) if ending.is_channels_last else x
        sums = y if work.is_plain else np.empty(shape, b.dtype)
        if not run(np.ascontiguousarray(first, b.dtype), w, b, sums, threads):
            return False
        values = sums if ending.name is None else activate(sums, ending.name, ending.params)
        if values is not y:
            with np.errstate(over="ignore"):
                y[...] = np.moveaxis(values, 1, -1) if ending.is_channels_last else values
        return True

    return widened


def _by_phases(work: Work, storage: np.dtype[Any], ending: Ending) -> Run:
    packing, launch = _Packing("phases", work), phases.launch(work, storage, ending)

    def run(x, w, b, y, threads):
        packed = packing.of(w, threads)
        if packed is None:
            return False
        launch.on((x, packed, b, y), threads)
        return True

    return run


def _by_winograd(work: Work, storage: np.dtype[Any], ending: Ending) -> Run:
    flat, depth = flattened(work), depth_of(work.axes)
    assert flat is not None
    assert depth is not None
    packing, tiles = _Packing("winograd", work), flat.batch * math.prod(tiling_of(flat.axes).tiles)
    launch = winograd.launch(flat, storage, ending, depth)
    mender = cache(lambda: Mender(flat, lambda pictures: _by_phases(pictures, storage, ending), depth))

    def run(x, w, b, y, threads):
        packed = packing.of(w, threads)
        if packed is None:
            return False
        values, thresholds = packed
        uneven = winograd_even.find_uneven(x, thresholds, flat.axes, flat.group, threads, depth)
        if uneven.size > MOST_UNEVEN * tiles + 1:
            return False
        launch.on((x, values, b, y), threads)
        return not uneven.size or mender().mend(uneven, x, _flat(w), b, y, threads)

    return run


def _flat(w: Any) -> Any:
    """Flat weights, kept with those that are unpool's own."""
    packings = packings_of(w)
    if w.ndim == 4 or packings is None:
        return flat_weights(w)
    return packings.find("flat", lambda: own_weights(flat_weights(np.asarray(w))))


def _by_direct(work: Work, _: np.dtype[Any], ending: Ending) -> Run:
    packing, launch = _Packing("direct", work), direct.launch(work, ending)

    def run(x, w, b, y, threads):
        packed = packing.of(w, threads)
        if packed is not None:
            launch.on((x, packed, b, y), threads)
        return packed is not None

    return run


def _by_rows(work: Work, *_: Any) -> Run:
    return _always(rows.writer(work))


def _by_points(work: Work, _: np.dtype[Any], ending: Ending) -> Run:
    met = points.of_met_taps(work)
    if met.taps == work.taps:
        return _always(points.writer(work, ending))
    write, write_met, packing = points.writer(work), points.writer(met), _Packing("points", work)

    def run(x, w, b, y, threads):
        if packings_of(w) is None:
            write(x, np.asarray(w, b.dtype), b, y, threads)
        else:
            write_met(x, packing.of(w, threads), b, y, threads)
        return True

    return run


def _always(write: Callable[..., object]) -> Run:
    """A way that takes any weights, in the type that sums are formed in."""

    def run(x, w, b, y, threads):
        write(x, _wide(w, b.dtype), b, y, threads)
        return True

    return run


def _wide(w: Any, dtype: np.dtype[Any]) -> Any:
    """Weights in the type that sums are formed in; a copy is kept with those that are unpool's own."""
    packings = packings_of(w)
    if w.dtype == dtype or packings is None:
        return np.asarray(w, dtype)
    return packings.find(f"as {dtype.name}", lambda: np.asarray(w, dtype))


_STARTERS: dict[Way, Callable[[Work, np.dtype[Any], Ending], Run]] = {
    "points": _by_points, "direct": _by_direct, "winograd": _by_winograd, "phases": _by_phases, "rows": _by_rows
}  # fmt: skip


class _Packing:
    """The weights in the order of a way, kept with those that are unpool's own; of points, those that outputs meet."""

    def __init__(self, way: Way, work: Work) -> None:
        layout = () if way == "direct" else winograd.packing_key(work.axes[-2:]) if way == "winograd" else work.axes
        self._key = repr((way, work.group, work.dtype.name, layout))
        self._way = way
        self._work = work

    def of(self, w: Any, threads: int | None) -> Packed:
        """The packed weights; None if this way can't take them."""
        packings = packings_of(w)
        if packings is None:
            return _pack(w, self._way, self._work, threads, is_kept=False)
        return packings.find(self._key, lambda: _pack(w, self._way, self._work, threads, is_kept=True))


def _pack(w, way: Way, work: Work, threads: int | None, *, is_kept: bool) -> Packed:
    if way == "points":
        return np.array(w[..., *points.met_taps(work)], work.dtype, order="C")
    wide = np.asarray(w, work.dtype)
    if not np.isfinite(wide).all():
        return None
    if way == "direct":
        packed: Packed = wide.copy()
    elif way == "winograd":
        flat, axes = flat_weights(wide), work.axes[-2:]
        thresholds = winograd_even.thresholds_of(flat, axes, work.group)
        packed = None if thresholds is None else (winograd.pack(flat, axes, work.group, threads), thresholds)
    else:
        cut = phases_blocking.blocking(work.axes, work.channels // work.group, work.maps, wide.itemsize)
        packed = phases_pack.pack(wide, cut, work.group, threads, is_kept=is_kept)
    return packed
