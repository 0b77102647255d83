"""The weights of a transposed convolution in the type of sums and in the order of an algorithm.

Packings of `own_weights` are kept with them.
"""

from typing import Any

import numpy as np

from unpool.kernels.cpu.conv_transpose import amx, gemm_1x1, phases_plan, winograd, winograd_accuracy
from unpool.kernels.cpu.conv_transpose.phases_pack import pack as pack_phases
from unpool.kernels.cpu.conv_transpose.problem import Algorithm, ConvTransposeProblem
from unpool.kernels.cpu.conv_transpose.winograd_tiling import flatten_weights
from unpool.kernels.cpu.weights import own_weights, packings_of

Packed = Any  # weights in the order of an algorithm


def to_compute_type(w: Any, dtype: np.dtype[Any]) -> Any:
    """Weights in the type of sums; a copy of `own_weights` is kept."""
    packings = packings_of(w)
    if w.dtype == dtype or packings is None:
        return np.asarray(w, dtype)
    return packings.find(f"as {dtype.name}", lambda: np.asarray(w, dtype))


def flat_weights(w: Any) -> Any:
    """Weights of the call by slices, see `winograd_tiling.py`; those of `own_weights` are kept."""
    packings = packings_of(w)
    if w.ndim == 4 or packings is None:
        return flatten_weights(w)
    return packings.find("flat", lambda: own_weights(flatten_weights(np.asarray(w))))


class Packing:
    """Packs weights for an algorithm, and keeps the result with `own_weights`."""

    def __init__(self, algorithm: Algorithm, problem: ConvTransposeProblem) -> None:
        layout: tuple[object, ...] = () if algorithm == "direct" else problem.axes
        if algorithm == "winograd":
            layout = winograd.packing_key(problem.axes[-2:])
        self._key = repr((algorithm, problem.group, problem.dtype.name, layout))
        self._algorithm, self._problem = algorithm, problem

    def pack(self, w: Any, threads: int | None) -> Packed:
        """The packed weights; None if the algorithm can't take them."""
        packings = packings_of(w)
        if packings is None:
            return _pack(w, self._algorithm, self._problem, threads, is_cached=False)
        return packings.find(self._key, lambda: _pack(w, self._algorithm, self._problem, threads, is_cached=True))


def _pack(w, algorithm: Algorithm, problem: ConvTransposeProblem, threads: int | None, *, is_cached: bool) -> Packed:
    if algorithm == "gemm_1x1":
        return np.array(w[..., *gemm_1x1.met_taps(problem)], problem.dtype, order="C")
    if algorithm == "amx":
        return amx.pack(w, problem)
    wide = np.asarray(w, problem.dtype)
    if not np.isfinite(wide).all():
        return None
    if algorithm == "direct":
        packed: Packed = wide.copy()
    elif algorithm == "winograd":
        flat, axes = flatten_weights(wide), problem.axes[-2:]
        thresholds = winograd_accuracy.accuracy_thresholds(flat, axes, problem.group)
        packed = None if thresholds is None else (winograd.pack(flat, axes, problem.group, threads), thresholds)
    else:
        channels = problem.channels // problem.group
        cut = phases_plan.blocking(problem.axes, channels, problem.maps, wide.itemsize)
        packed = pack_phases(wide, cut, problem.group, threads, is_cached=is_cached)
    return packed
