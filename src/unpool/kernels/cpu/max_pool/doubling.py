"""Max pooling of windows that share most of their elements, in time that grows with their logarithm.

    best of 2 * n taps from element i on = better of (best of n from i, best of n from i + n * dilation)

Windows of any number of taps are two such runs that overlap. Axis after axis is pooled so, positions that meet the same
elements once. Elements are compared as int64 keys, and equal ones by their places: the first is better, but of NaN the
last one where the mode says so.

It is for windows that share elements in ways that no other kernel uses, where one would visit every element more than
MOST_VISITS times. It needs about 32 bytes for each element of a plane.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, pooling_walk
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool.direct import is_flagged
from unpool.kernels.cpu.max_pool.pool import UNFLAGGED, FlaggedBands, PoolProblem
from unpool.kernels.cpu.vector.registration import jit_inline

MOST_VISITS = 1 << 10  # visits of an element, on average, up to which windows are walked one by one
MOST_PLACES = 1 << 32  # places of a plane: more are not worth their memory
_NAN = 2**63 - 1  # key
_WORK = 4  # of a comparison, in elements that are visited


class DoublingParams(NamedTuple):
    """Arguments of a call. Sizes are those of a plane."""

    large: int  # elements of x
    small: int  # elements of y
    channels: int  # of one outer, the last axis; 1 where planes are outer
    plane_places: int  # from one plane to the next
    most: int  # the largest intermediate result
    longest: int  # the longest line
    rows: int  # of y in one outer
    flagged: FlaggedBands  # rows that have flags
    nan_last: bool
    infinity: int  # bits of +infinity; 0 for integers
    lowest: int  # bits of the output of a window without data


class DoublingAxis(NamedTuple):
    """An axis, in the order in which axes are pooled."""

    number: int
    large: int
    distinct: int  # windows
    small: int
    dilation: int
    window: int  # place of its first distinct window in the tables
    position: int  # place of its first position


class DoublingTables(NamedTuple):
    """Arrays of int64."""

    axes: Any  # DoublingAxis, in rows
    firsts: Any  # element on data of every distinct window
    counts: Any  # elements of it
    inverses: Any  # distinct window of every position


def is_worthwhile(pool: PoolProblem) -> bool:
    """True if a walk of every window visits elements too often."""
    plane = pool.plane
    leading = math.prod(min(axis.window.size, -(-axis.large // axis.window.dilation)) for axis in plane.leading)
    visits = plane.small * leading * plane.lanes.window.size
    return visits > MOST_VISITS * (plane.large + plane.small) and plane.large < MOST_PLACES


def launch(pool: PoolProblem, bands: FlaggedBands | None = None) -> Launch:
    """The call that writes all planes; with `bands` it takes flags after the indices, and writes those that have one.

    Axes that lose most are pooled first, so that no intermediate result is larger than x and y.
    """
    axes, channels = pool.plane.spatial, pool.plane.unit
    distinct = [_distinct(axis) for axis in axes]
    order = sorted(range(len(axes)), key=lambda each: len(distinct[each][0]) / max(1, axes[each].large))
    sizes, rows, work, windows, positions = [axis.large for axis in axes], [], 0, 0, 0
    most = math.prod(sizes)
    for number in order:
        first, count, inverse = distinct[number]
        work += math.prod(sizes) * int(count.max(initial=1)).bit_length()
        rows.append(
            DoublingAxis(
                number, axes[number].large, len(first), len(inverse), axes[number].window.dilation, windows, positions
            )
        )
        sizes[number], windows, positions = len(first), windows + len(first), positions + len(inverse)
        most = max(most, math.prod(sizes))
    elements, large = pool.elements, math.prod(axis.large for axis in axes)
    params = DoublingParams(
        large=large, small=math.prod(axis.small for axis in axes), channels=channels,
        plane_places=0 if pool.mode.per_plane else large, most=most, longest=max(axis.large for axis in axes),
        rows=pool.plane.rows, flagged=bands or UNFLAGGED, nan_last=pool.mode.nan_last, infinity=elements.infinity,
        lowest=elements.lowest,
    )  # fmt: skip
    first, count, inverse = (np.concatenate([distinct[number][part] for number in order]) for part in range(3))
    planes, flags = pool.outer * channels, (0,) if bands is None else ()
    args, tables = (
        record(params, flagged=record(UNFLAGGED).dtype),
        DoublingTables(np.array(rows), first, count, inverse),
    )
    kernel, work = _make_kernel(elements.bits, pool.has_indices), planes * _WORK * (work + params.small)
    return Launch(kernel, planes, work, *flags, args, tables)


def _distinct(axis: Axis):
    """Per distinct window of an axis its first element on data, and their number; the window of each position."""
    walk = pooling_walk(axis)
    pairs = np.stack([np.where(walk.count > 0, walk.other, 0), walk.count]).astype(np.int64)
    found, inverse = np.unique(pairs, axis=1, return_inverse=True)
    return found[0], found[1], inverse.reshape(-1).astype(np.int64)


@jit_inline
def _better(keys, one, other, nan_last):
    """The place of the better of two elements; -1 is no element."""
    if one < 0 or other < 0:
        return max(one, other)
    first, second = keys[one], keys[other]
    if first != second:
        return one if first > second else other
    return max(one, other) if nan_last and first == _NAN else min(one, other)


@specialize
def _make_kernel(bits: np.dtype[Any], has_indices: bool):
    """The kernel for elements that are viewed as integers of a type."""
    element, size, stores_indices = getattr(types, bits.name), bits.itemsize, int(has_indices)
    magnitude = int(np.iinfo(bits).max)

    @jit()
    def double_planes(x, y, indices, flags, args, tables, first, stop):
        """Write some planes.

        for every plane: for every axis, for every line along it, for every number of taps that is a power of 2
        """
        params, axes, rank = args[0], tables.axes, tables.axes.shape[0]
        firsts, counts, inverses = tables.firsts, tables.counts, tables.inverses
        channels, nan_last, apart = params.channels, params.nan_last, params.channels * size
        for job in range(first, stop):
            outer, channel = job // channels, job % channels
            is_used = flags == 0
            for row in range(outer * params.rows * (flags != 0), (outer + 1) * params.rows * (flags != 0)):
                is_used |= is_flagged(flags, params.flagged, row)
            if not is_used:
                continue
            source = vec.address_of(x) + (outer * params.large * channels + channel) * size
            keys, sizes = np.empty(params.large, np.int64), np.empty(rank, np.int64)
            best, pooled = np.empty(params.most, np.int64), np.empty(params.most, np.int64)
            line = np.empty(params.longest, np.int64)
            for place in range(params.large):
                key = np.int64(vec.element_at(source + place * apart, element))
                if params.infinity != 0:
                    absolute = key & magnitude
                    key = _NAN if absolute > params.infinity else absolute if key >= 0 else -absolute
                keys[place] = key
                best[place] = place
            for number in range(rank):
                sizes[axes[number, 0]] = axes[number, 1]
            for number in range(rank):
                axis, length, distinct, dilation, window = (
                    axes[number, 0], axes[number, 1], axes[number, 2], axes[number, 4], axes[number, 5],
                )  # fmt: skip
                before, after, longest = 1, 1, 0
                for each in range(axis):
                    before *= sizes[each]
                for each in range(axis + 1, rank):
                    after *= sizes[each]
                for each in range(window, window + distinct):
                    longest = max(longest, counts[each])
                for row in range(before * after):
                    start = row // after * length * after + row % after
                    target = row // after * distinct * after + row % after
                    for each in range(length):
                        line[each] = best[start + each * after]
                    for each in range(distinct):
                        pooled[target + each * after] = -1
                    taps = 1
                    while taps <= longest:
                        for each in range(distinct):
                            count = counts[window + each]
                            if taps <= count < 2 * taps:
                                begin = firsts[window + each]
                                end = begin + (count - taps) * dilation
                                pooled[target + each * after] = _better(keys, line[begin], line[end], nan_last)
                        if 2 * taps <= longest:
                            for each in range(length - taps * dilation):
                                line[each] = _better(keys, line[each], line[each + taps * dilation], nan_last)
                        taps *= 2
                sizes[axis] = distinct
                best, pooled = pooled, best
            for position in range(params.small):
                rest, found, weight = position, 0, 1
                for axis in range(rank - 1, -1, -1):
                    number = 0
                    while axes[number, 0] != axis:
                        number += 1
                    small = axes[number, 3]
                    found += inverses[axes[number, 6] + rest % small] * weight
                    rest, weight = rest // small, weight * axes[number, 2]
                place, target = best[found], (outer * params.small + position) * channels + channel
                value = element(params.lowest)
                if place >= 0:
                    value = vec.element_at(source + place * apart, element)
                    place += job * params.plane_places
                vec.set_element(vec.address_of(y) + target * size, value)
                if stores_indices:
                    vec.set_element(vec.address_of(indices) + target * 8, place)

    return double_planes
