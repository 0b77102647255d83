"""Max pooling of windows that share most of their elements, in time that grows with their logarithm.

    best of 2 * n taps from element i on = max(best of n from i, best of n from i + n * dilation)

Windows of any number of taps are two such runs that overlap. Axis after axis is pooled so, positions that meet the same
elements once. Every element is one number, its rank above and its place below, so that the larger of two numbers is the
larger element, and of equals the first.

NumPy alone: this is for windows that no compiled kernel knows how to share, where one would visit every element more
than MOST_VISITS times. It takes about 64 bytes for an element of a few planes.
"""

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, shrinking_walk
from unpool.kernels.cpu.max_pool_choice import Plane

MOST_VISITS = 1 << 10
"""Of an element on average, up to which windows are walked one by one."""

MOST_PLACES = 1 << 32
"""Of a plane: so many fit the lower half of a number."""

_CHUNK = 1 << 20  # elements and results of planes that are pooled at a time
_HALF, _LOWER = np.uint64(32), np.uint64(MOST_PLACES - 1)
_NAN = np.uint32(2**32 - 1)
_FLOAT16 = 0x7C00  # infinity of float16; that of bfloat16 is another

Codes = npt.NDArray[np.uint64]


def is_worthwhile(plane: Plane, large: int, small: int) -> bool:
    """Whether a walk of every window visits elements too often, in planes of so many elements and results."""
    leading = math.prod(min(axis.window.size, -(-axis.large // axis.window.dilation)) for axis in plane.leading)
    return small * leading * plane.lanes.window.size > MOST_VISITS * (large + small) and large < MOST_PLACES


def prepare(
    x, plane: Plane, infinity: int, y, indices, lowest: int, mode, first: int, stop: int
) -> Callable[..., None]:
    """The call that writes the rows of outputs from `first` up to `stop`, and the rest of their planes.

    It takes (x, y, indices, threads), C-contiguous.

    Args:
        x: integer view of the elements: (outer, D1..Dk), or (N, D1..Dk, C).
        plane: its axes.
        infinity: bits of +infinity; 0 for integer elements.
        y: same layout and type as x, pooled sizes.
        indices: None where they are not wanted.
        lowest: what a window without data gives, as bits.
        mode: which NaN is found, and what indices count in.
        first: row of outputs.
        stop: row of outputs.
    """
    channels, rows = plane.unit, y.size // y.shape[0] // plane.lanes.small
    small, large = (
        math.prod(sizes) for sizes in zip(*((axis.small, axis.large) for axis in plane.spatial), strict=True)
    )
    step = max(1, _CHUNK // ((small + large) * channels))

    def pool(elements, results, found, threads) -> None:
        source = elements.view(x.dtype).reshape(x.shape[0], large, channels)
        target = results.view(x.dtype).reshape(x.shape[0], small, channels)
        for begin in range(first // rows, -(-stop // rows), step):
            part = slice(begin, min(begin + step, -(-stop // rows)))
            ranks = _ranks(source[part], infinity)
            codes = _pooled(_coded(ranks, mode.nan_last), plane.spatial)
            places, is_empty = _places(codes, mode.nan_last), codes == 0
            if large:
                values = np.take_along_axis(source[part], places, axis=1)
                target[part] = _spread(np.where(is_empty, source.dtype.type(lowest), values), plane.spatial)
            else:
                target[part] = lowest
            if indices is not None:
                outer = np.arange(part.start, part.stop)[:, None, None] * channels + np.arange(channels)
                places += 0 if mode.per_plane else outer * large
                places[is_empty] = -1
                found.reshape(target.shape)[part] = _spread(places, plane.spatial)

    return pool


def _ranks(bits, infinity: int):
    """Numbers from 1 on that are ordered, and equal, as elements are; of every NaN the largest one."""
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


def _coded(ranks, nan_last: bool):
    """(outer, places, channels): every element's rank, and below it a number that decreases with its place.

    That of a NaN of which the last is wanted increases.
    """
    places = np.arange(ranks.shape[1], dtype=np.uint64)[:, None]
    lower = np.where(ranks == _NAN, places, _LOWER - places) if nan_last else _LOWER - places
    return ranks.astype(np.uint64) << _HALF | lower


def _places(codes: Codes, nan_last: bool):
    """Where the elements of some numbers are; 0 for those that stand for no element."""
    lower = codes & _LOWER
    places = np.where(codes >> _HALF == _NAN, lower, _LOWER - lower) if nan_last else _LOWER - lower
    return np.where(codes == 0, 0, places).astype(np.int64)


def _pooled(codes: Codes, axes: tuple[Axis, ...]) -> Codes:
    """(outer, places, channels) of distinct results, 0 where a window has no data.

    Axes that lose most are pooled first, so that nothing in between is larger than what is given or wanted.
    """
    outer, _, channels = codes.shape
    codes = codes.reshape(outer, *(axis.large for axis in axes), channels)
    distinct = [_distinct(axis) for axis in axes]
    for number in sorted(range(len(axes)), key=lambda each: len(distinct[each][0]) / max(1, axes[each].large)):
        first, count, _ = distinct[number]
        moved = np.moveaxis(codes, number + 1, 0)
        codes = np.moveaxis(_pool_axis(moved, first, count, axes[number].window.dilation), 0, number + 1)
    return np.ascontiguousarray(codes).reshape(outer, -1, channels)


def _distinct(axis: Axis):
    """Per distinct window of an axis its first element on data, and how many it has; the window of each position."""
    walk = shrinking_walk(axis)
    pairs = np.where(walk.count > 0, walk.other, 0).astype(np.uint64) << _HALF | walk.count.astype(np.uint64)
    found, inverse = np.unique(pairs, return_inverse=True)
    return (found >> _HALF).astype(np.int64), (found & _LOWER).astype(np.int64), inverse.reshape(-1)


def _pool_axis(codes: Codes, first, count, dilation: int) -> Codes:
    """The largest of `count` numbers from each of `first` on, so far apart, along the first axis."""
    result, taps = np.zeros((len(first), *codes.shape[1:]), np.uint64), 1
    while taps <= count.max(initial=0):
        chosen = (taps <= count) & (count < 2 * taps)
        second = first + (count - taps) * dilation
        result[chosen] = np.maximum(codes[first[chosen]], codes[second[chosen]])
        if 2 * taps <= count.max():
            codes = np.maximum(codes[: -taps * dilation], codes[taps * dilation :])
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
