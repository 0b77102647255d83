"""Max pooling of windows that share most of their elements, in time that grows with their logarithm.

    best of 2 * n taps from element i on = max(best of n from i, best of n from i + n * dilation)

Windows of any number of taps are two such runs that overlap. Axis after axis is pooled so, positions that meet the same
elements once. The key of an element is one number, its rank above and its place below, so that of two elements the
larger has the larger key, and of equals the first.

It is NumPy code, for windows that share elements in ways that no compiled kernel uses, where a kernel would visit every
element more than MOST_VISITS times. It needs about 64 bytes for each element of a few planes.
"""

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, pooling_walk
from unpool.kernels.cpu.max_pool.pool import PoolProblem

MOST_VISITS = 1 << 10  # visits of an element, on average, up to which windows are walked one by one
MOST_PLACES = 1 << 32  # places of a plane that fit the lower half of a number
_CHUNK = 1 << 20  # elements and results of planes that are pooled at a time
_HALF, _LOWER = np.uint64(32), np.uint64(MOST_PLACES - 1)
_NAN = np.uint32(2**32 - 1)
_FLOAT16 = 0x7C00  # infinity of float16; that of bfloat16 is another

Keys = npt.NDArray[np.uint64]


def is_worthwhile(pool: PoolProblem) -> bool:
    """True if a walk of every window visits elements too often."""
    plane = pool.plane
    leading = math.prod(min(axis.window.size, -(-axis.large // axis.window.dilation)) for axis in plane.leading)
    visits = plane.small * leading * plane.lanes.window.size
    return visits > MOST_VISITS * (plane.large + plane.small) and plane.large < MOST_PLACES


def launch(pool: PoolProblem, first: int, stop: int) -> Callable[..., None]:
    """The call on C-contiguous (x, y, indices, threads) that writes all planes of the rows `first` up to `stop`."""
    axes, channels, element, mode = pool.plane.spatial, pool.plane.unit, pool.elements, pool.mode
    small, large = math.prod(axis.small for axis in axes), math.prod(axis.large for axis in axes)
    together, planes = max(1, _CHUNK // ((small + large) * channels)), -(-stop // pool.plane.rows)

    def double(x, y, indices, threads) -> None:
        source = x.view(element.bits).reshape(pool.outer, large, channels)
        target = y.view(element.bits).reshape(pool.outer, small, channels)
        for begin in range(first // pool.plane.rows, planes, together):
            part = slice(begin, min(begin + together, planes))
            keys = _pooled(_keys(_ranks(source[part], element.infinity), mode.nan_last), axes)
            lower, is_empty = keys & _LOWER, keys == 0
            places = np.where(keys >> _HALF == _NAN, lower, _LOWER - lower) if mode.nan_last else _LOWER - lower
            places = np.where(is_empty, 0, places).astype(np.int64)
            if large:
                values = np.take_along_axis(source[part], places, axis=1)
                target[part] = _spread(np.where(is_empty, source.dtype.type(element.lowest), values), axes)
            else:
                target[part] = element.lowest
            if pool.has_indices:
                outer = np.arange(part.start, part.stop)[:, None, None] * channels + np.arange(channels)
                places += 0 if mode.per_plane else outer * large
                places[is_empty] = -1
                indices.reshape(target.shape)[part] = _spread(places, axes)

    return double


def _ranks(bits, infinity: int):
    """Numbers from 1 on in the order of the elements, equal for equal ones; NaN is the largest."""
    if not infinity:
        return (bits.astype(np.int32) + 129).astype(np.uint32)
    if bits.dtype.itemsize == 2:
        values = bits.view(np.float16 if infinity == _FLOAT16 else ml_dtypes.bfloat16).astype(np.float32)
    else:
        values = bits.view(f"f{bits.dtype.itemsize}")
    is_nan = np.isnan(values)
    if values.dtype == np.float64:
        order = np.unique(values, return_inverse=True)[1].reshape(values.shape).astype(np.uint32) + np.uint32(1)
    else:
        signed = (values + np.float32(0)).view(np.int32)  # -0 + 0 is 0
        order = np.where(signed < 0, ~signed, signed ^ np.int32(-(2**31))).view(np.uint32)
    return np.where(is_nan, _NAN, order)


def _keys(ranks, nan_last: bool) -> Keys:
    """(outer, places, channels): every element's rank, and below it a number that decreases with its place.

    With `nan_last` that of a NaN increases.
    """
    places = np.arange(ranks.shape[1], dtype=np.uint64)[:, None]
    lower = np.where(ranks == _NAN, places, _LOWER - places) if nan_last else _LOWER - places
    keys: Keys = ranks.astype(np.uint64) << _HALF | lower
    return keys


def _pooled(keys: Keys, axes: tuple[Axis, ...]) -> Keys:
    """(outer, places, channels) of distinct results, 0 where a window has no data.

    Axes that lose most are pooled first, so that no intermediate array is larger than input and output.
    """
    outer, _, channels = keys.shape
    keys = keys.reshape(outer, *(axis.large for axis in axes), channels)
    distinct = [_distinct(axis) for axis in axes]
    for number in sorted(range(len(axes)), key=lambda each: len(distinct[each][0]) / max(1, axes[each].large)):
        first, count, _ = distinct[number]
        moved = np.moveaxis(keys, number + 1, 0)
        keys = np.moveaxis(_pool_axis(moved, first, count, axes[number].window.dilation), 0, number + 1)
    return np.ascontiguousarray(keys).reshape(outer, -1, channels)


def _distinct(axis: Axis):
    """Per distinct window of an axis its first element on data, and their number; the window of each position."""
    walk = pooling_walk(axis)
    pairs = np.where(walk.count > 0, walk.other, 0).astype(np.uint64) << _HALF | walk.count.astype(np.uint64)
    found, inverse = np.unique(pairs, return_inverse=True)
    return (found >> _HALF).astype(np.int64), (found & _LOWER).astype(np.int64), inverse.reshape(-1)


def _pool_axis(keys: Keys, first, count, dilation: int) -> Keys:
    """The largest of `count` keys from each of `first` on, `dilation` apart, along the first axis."""
    result, taps = np.zeros((len(first), *keys.shape[1:]), np.uint64), 1
    while taps <= count.max(initial=0):
        chosen = (taps <= count) & (count < 2 * taps)
        second = first + (count - taps) * dilation
        result[chosen] = np.maximum(keys[first[chosen]], keys[second[chosen]])
        if 2 * taps <= count.max():
            keys = np.maximum(keys[: -taps * dilation], keys[taps * dilation :])
        taps *= 2
    return result


def _spread(distinct, axes: tuple[Axis, ...]):
    """(outer, places, channels) of all positions from those of distinct windows."""
    inverses = [_distinct(axis)[2] for axis in axes]
    outer, _, channels = distinct.shape
    full = distinct.reshape(outer, *(int(inverse.max()) + 1 for inverse in inverses), channels)
    for number, inverse in enumerate(inverses):
        if not np.array_equal(inverse, np.arange(full.shape[number + 1])):
            full = full.take(inverse, axis=number + 1)
    return full.reshape(outer, -1, channels)
