"""Whether windows are pooled one axis after the other, or directly: compares what either reads and writes."""

import math

from unpool.kernels.cpu.max_pool.elements import compared_lanes
from unpool.kernels.cpu.max_pool.pool import Pool
from unpool.kernels.cpu.max_pool.strips import chain, padded_size

_LINE_ELEMENTS = 1 << 22  # the most that may be laid out at a time
_MOST_PADDING = 16  # times the elements and results of a plane, with which padding is laid out
_WORTH_LAYING_OUT = 1 << 13  # taps of all windows below which nothing is laid out: one kernel less to compile or load
_TAP = 2  # a tap of the direct kernel, in elements that the separable one moves
_SHORT = 2  # so many times more, if a row fills one block only
_RAGGED = 6  # if it does not fill it
_LONG_LINE = 2  # a line that is the whole plane leaves the first cache
_FAR = 1.5  # what the separable kernel moves is not hidden behind memory as well as taps are


def is_separable_possible(pool: Pool) -> bool:
    """Whether places fit their type, channels fill a register, and what is laid out, at once and in all, is short."""
    plane, size = pool.plane, pool.plane.large
    padded = [padded_size(axis) * plane.unit ** (axis is plane.spatial[-1]) for axis in plane.spatial]
    if math.prod(padded) > _MOST_PADDING * (size + plane.small):
        return False
    window = plane.spatial[0].window.reach if len(padded) > 1 else 1
    longest = max(padded[-1], window * math.prod(padded[1:]))
    return 0 < size < 2**31 and longest <= _LINE_ELEMENTS and not 1 < plane.unit < compared_lanes(pool.elements.name)


def is_separable_cheaper(pool: Pool) -> bool:
    """Compare the taps of all windows of a plane with what the separable kernel reads and writes in its caches."""
    plane, far = pool.plane, _FAR if pool.has_indices and pool.is_far else 1
    spatial = plane.spatial
    now = math.prod(padded_size(axis) for axis in spatial)
    moved = now
    for axis in reversed(spatial):
        *steps, final = chain(axis.window)
        moved += now * sum(len(step) + 1 for step in steps)
        now = now // max(1, padded_size(axis)) * axis.small
        moved += now * (len(final) + 1)
    if len(spatial) == 1:
        moved = (moved + 2 * now) * _LONG_LINE
    visits = now * math.prod(axis.window.size for axis in spatial)
    taps = visits * _TAP
    lanes = compared_lanes(pool.elements.name)
    if plane.unit == 1 and plane.lanes.small < 2 * lanes:
        taps *= _SHORT if plane.lanes.small >= lanes else _RAGGED
    return pool.outer * visits * plane.unit >= _WORTH_LAYING_OUT and moved * far < taps
