"""Whether windows are pooled one axis after the other, or directly: compares what either reads and writes."""

import math
from dataclasses import dataclass

from unpool.geometry import Axis
from unpool.kernels.cpu import max_pool_separable as separable
from unpool.kernels.cpu.max_pool_separable_plan import chain, padded_size

_LINE_ELEMENTS = 1 << 22  # the most that may be laid out at a time
_MOST_PADDING = 16  # times the elements and results of a plane, with which padding is laid out
_WORTH_LAYING_OUT = 1 << 13  # taps of all windows below which nothing is laid out: one kernel less to compile or load
_TAP = 2  # a tap of the direct kernel, in elements that the separable one moves
_SHORT = 2  # so many times more, if a row fills one block only
_RAGGED = 6  # if it does not fill it
_LONG_LINE = 2  # a line that is the whole plane leaves the first cache
_FAR = 1.5  # what the separable kernel moves is not hidden behind memory as well as taps are


@dataclass(frozen=True, slots=True)
class Plane:
    """The axes of one plane as kernels walk them: leading axes as rows, then lanes.

    Attributes:
        leading: the axes before the lanes.
        lanes: the last spatial axis, or the channels.
        unit: elements between neighbours of the last leading axis that are one place of an index: C, or 1.
    """

    leading: tuple[Axis, ...]
    lanes: Axis
    unit: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All of them."""
        return (*self.leading, self.lanes)

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """Those that windows slide along."""
        return self.leading if self.unit > 1 else self.axes


def is_separable_possible(plane: Plane, dtype: str, plane_size: int) -> bool:
    """Whether places fit their type, channels fill a register, and what is laid out, at once and in all, is short."""
    padded = [padded_size(axis) * plane.unit ** (axis is plane.spatial[-1]) for axis in plane.spatial]
    if math.prod(padded) > _MOST_PADDING * (plane_size + math.prod(axis.small for axis in plane.axes)):
        return False
    window = plane.spatial[0].window.reach if len(padded) > 1 else 1
    longest = max(padded[-1], window * math.prod(padded[1:]))
    return 0 < plane_size < 2**31 and longest <= _LINE_ELEMENTS and not 1 < plane.unit < separable.lanes_of(dtype)


def is_separable_cheaper(plane: Plane, dtype: str, outer: int, is_far: bool) -> bool:
    """Compare the taps of all windows of a plane with what the separable kernel reads and writes in its caches.

    Args:
        plane: the axes.
        dtype: the kernels' name of the elements.
        outer: how many planes there are.
        is_far: whether indices are wanted, and arrays do not stay in a cache.
    """
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
    lanes = separable.lanes_of(dtype)
    if plane.unit == 1 and plane.lanes.small < 2 * lanes:
        taps *= _SHORT if plane.lanes.small >= lanes else _RAGGED
    return outer * visits * plane.unit >= _WORTH_LAYING_OUT and moved * (_FAR if is_far else 1) < taps
