"""Max pooling of large windows that overlap, in time that grows with the logarithm of their size.

    best of 2 * n taps from element i on = better of (best of n from i, best of n from i + n * dilation)

A window of any number of taps is two such runs that overlap. One axis is pooled after the other, and windows of the
same elements are pooled once. Elements are compared by their ranks, and equal ones by their places: the first is
better, but the last NaN where the mode says so.

It takes windows that overlap so much that another kernel would visit each element more than `DOUBLING_POOL.visits`
times. It needs about 32 bytes for each element of a plane.
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, pooling_walk
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import axis_at, large_sizes, small_sizes, sorted_unique, times
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool.direct import is_flagged
from unpool.kernels.cpu.max_pool.elements import better_rank, rank_of
from unpool.kernels.cpu.max_pool.pool import (
    UNFLAGGED,
    FlaggedBands,
    PoolProblem,
    plane_large,
    plane_rows,
    plane_small,
    spatial_axes,
)
from unpool.kernels.cpu.max_pool.pool_kernel import PoolKernel
from unpool.kernels.cpu.tuning import DOUBLING_POOL
from unpool.kernels.cpu.vector.registration import jit_inline

_COLUMNS = 7  # of DoublingAxis


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
    distinct: int  # number of windows with different elements
    small: int
    dilation: int
    window: int  # number of its first distinct window in the tables
    position: int  # number of its first position in the tables


class DoublingTables(NamedTuple):
    """Arrays of int64."""

    axes: Any  # DoublingAxis, in rows
    firsts: Any  # element on data of every distinct window
    counts: Any  # number of elements on data, of every distinct window
    inverses: Any  # distinct window of every position


@jit_inline
def is_worthwhile(pool: PoolProblem) -> bool:
    """True if a walk of every window visits elements too often."""
    plane, large, small = pool.plane, plane_large(pool.plane), plane_small(pool.plane)
    visits = times(small, plane.lanes.window.size)
    for number in range(len(plane.leading)):
        axis = axis_at(plane.leading, number)
        visits = times(visits, min(axis.window.size, -(-axis.large // axis.window.dilation)))
    return visits > DOUBLING_POOL.visits * (large + small) and large < DOUBLING_POOL.places


def launch(pool: PoolProblem, bands: FlaggedBands | None = None) -> Launch:
    """The call that writes all planes; with `bands`, those that have one of the flags after the indices."""
    made, flags = plan(pool, bands or UNFLAGGED), (0,) if bands is None else ()
    args = record(made.params)
    kernel = _make_kernel(pool.elements.bits, pool.has_indices)
    return Launch(kernel, made.jobs, made.work, *flags, args, made.tables)


class DoublingPlan(NamedTuple):
    """A call."""

    params: DoublingParams
    tables: DoublingTables
    jobs: int
    work: int


@jit_inline
def plan(pool: PoolProblem, bands: FlaggedBands) -> DoublingPlan:
    """The call that writes all planes. The axis that shrinks most is pooled first, so no intermediate result is larger
    than x and y.
    """
    axes, channels = spatial_axes(pool.plane), pool.plane.unit
    count, total, longest = len(axes), 0, 0
    for number in range(count):
        axis = axis_at(axes, number)
        total += axis.small
        longest = max(longest, axis.large)
    rows = np.empty((count, _COLUMNS), np.int64)
    distinct, inverse = np.empty((2, total), np.int64), np.empty(total, np.int64)
    first, last = np.empty((2, total), np.int64), np.empty(total, np.int64)
    begins, kinds, shares = np.zeros(count, np.int64), np.zeros(count, np.int64), np.empty(count, np.float64)
    begin = 0
    for number in range(count):
        axis = axis_at(axes, number)
        begins[number] = begin
        kinds[number] = _distinct(axis, first[:, begin:], last[begin:])
        shares[number] = kinds[number] / max(1, axis.large)
        begin += axis.small
    order = np.argsort(shares, kind="mergesort")
    large = large_sizes(axes, 0)
    sizes, most, work, windows, positions = np.empty(count, np.int64), large, 0, 0, 0
    for number in range(count):
        sizes[number] = axis_at(axes, number).large
    for place in range(count):
        number = int(order[place])
        axis, start, kind = axis_at(axes, number), begins[number], int(kinds[number])
        distinct[:, windows : windows + kind] = first[:, start : start + kind]
        inverse[positions : positions + axis.small] = last[start : start + axis.small]
        longest_run, bits = 1, 0
        for window in range(kind):
            longest_run = max(longest_run, int(first[1, start + window]))
        while longest_run > 0:
            longest_run, bits = longest_run >> 1, bits + 1
        work += int(sizes.prod()) * bits
        rows[place, 0] = number
        rows[place, 1] = axis.large
        rows[place, 2] = kind
        rows[place, 3] = axis.small
        rows[place, 4] = axis.window.dilation
        rows[place, 5] = windows
        rows[place, 6] = positions
        sizes[number], windows, positions = kind, windows + kind, positions + axis.small
        most = max(most, int(sizes.prod()))
    small = small_sizes(axes, 0)
    params = DoublingParams(
        large, small, channels, 0 if pool.mode.per_plane else large, most, longest, plane_rows(pool.plane), bands,
        pool.mode.nan_last, pool.elements.infinity, pool.elements.lowest,
    )  # fmt: skip
    tables = DoublingTables(rows, distinct[0, :windows].copy(), distinct[1, :windows].copy(), inverse)
    planes = pool.outer * channels
    return DoublingPlan(params, tables, planes, times(planes * DOUBLING_POOL.comparison, work + small))


@jit_inline
def _distinct(axis: Axis, found: Any, inverse: Any) -> int:
    """Per distinct window of an axis its first element on data, and their number; the window of each position.

    The result is the number of distinct windows.
    """
    walk = pooling_walk(axis)
    first = walk.other * (walk.count > 0)
    firsts, counts = sorted_unique(first), sorted_unique(walk.count)
    keys = np.searchsorted(firsts, first) * counts.size + np.searchsorted(counts, walk.count)
    kinds = sorted_unique(keys)
    for number in range(kinds.size):
        found[0, number] = firsts[kinds[number] // counts.size]
        found[1, number] = counts[kinds[number] % counts.size]
    inverse[: keys.size] = np.searchsorted(kinds, keys)
    return int(kinds.size)


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
            ranks, sizes = np.empty(params.large, np.int64), np.empty(rank, np.int64)
            best, pooled = np.empty(params.most, np.int64), np.empty(params.most, np.int64)
            line = np.empty(params.longest, np.int64)
            for place in range(params.large):
                bits = np.int64(vec.element_at(source + place * apart, element))
                ranks[place] = rank_of(bits, params.infinity, magnitude)
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
                                pooled[target + each * after] = better_rank(ranks, line[begin], line[end], nan_last)
                        if 2 * taps <= longest:
                            for each in range(length - taps * dilation):
                                line[each] = better_rank(ranks, line[each], line[each + taps * dilation], nan_last)
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


KERNEL = PoolKernel("doubling", lambda pool: is_worthwhile(pool), lambda *_: True, lambda pool: launch(pool))
