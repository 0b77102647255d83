"""Flat indices in another order, and counted in another shape.

    target[n, c, p] = sum over axes of coordinate * weight,  where index = source[n, c, p] or source[n, p, c]

Coordinates are those of the index in row-major order. An index that is not in the shape becomes -1. Each is read once:
the caller may change indices during the call.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.axes import times
from unpool.kernels.cpu.machine.jit import jit, record
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.tuning import BLOCKS, ELEMENT_COSTS
from unpool.kernels.cpu.vector.registration import jit_inline


class RecountParams(NamedTuple):
    """Arguments of a call."""

    limit: int  # elements of the shape that indices count in
    channels: int  # neighbouring indices at one place of the source
    places: int  # of one outer
    block: int  # places of a job


def column_major(planes: int, spatial: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Sizes and weights that renumber indices so that the first spatial axis varies fastest.

    >>> column_major(6, (4, 5))
    ((6, 20), (4, 1), (5, 4))
    """
    weights = [math.prod(spatial), *(math.prod(spatial[:number]) for number in range(len(spatial)))]
    return tuple(zip((planes, *spatial), weights, strict=True))


def rebased(planes: int, source: tuple[int, ...], target: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Sizes and weights that turn indices in planes of one spatial shape into indices in another shape.

    >>> rebased(6, (4, 5), (7, 8))
    ((6, 56), (4, 8), (5, 1))
    """
    weights = [math.prod(target[number:]) for number in range(len(target) + 1)]
    return tuple(zip((planes, *source), weights, strict=True))


class RecountPlan(NamedTuple):
    """A call."""

    params: RecountParams
    axes: Any  # int64, sizes and weights
    jobs: int
    work: int


@lru_cache(maxsize=64)
def launch(axes: tuple[tuple[int, int], ...], outer: int, channels: int, places: int) -> Launch:
    """A call on flat (source, target), which may be one array, of `outer` times `channels` times `places` indices.

    If there are several channels, they are the last axis of the source. The first axis counts the planes.
    """
    made = plan(np.array(axes, np.int64), outer, channels, places)
    return Launch(recount, made.jobs, made.work, made.axes, record(made.params))


@jit_inline
def plan(axes: Any, outer: int, channels: int, places: int) -> RecountPlan:
    """As `launch`."""
    is_needed = axes[:, 0] > 1
    is_needed[0] = True
    needed, limit = axes[is_needed], 1
    for number in range(axes.shape[0]):
        limit *= int(axes[number, 0])
    block = max(1, BLOCKS.indices // channels)
    work = times(outer * channels * places, ELEMENT_COSTS.recount * needed.shape[0])
    params = RecountParams(limit, channels, places, block)
    return RecountPlan(params, needed, outer * -(-places // block), work)


@jit()
def recount(source, target, axes, args, first, stop):
    """For every outer, for every block of places: for every channel, for every place of the block."""
    params = args[0]
    channels, places, block = params.channels, params.places, params.block
    blocks = -(-places // block)
    for job in range(first, stop):
        outer, begin = job // blocks, job % blocks * block
        end = min(begin + block, places)
        for channel in range(channels):
            for place in range(begin, end):
                at = (outer * places + place) * channels + channel
                index, number = vec.load_once(vec.address_of(source) + at * 8), np.int64(-1)
                if 0 <= index < params.limit:
                    rest, number = np.uint64(index), np.int64(0)
                    for axis in range(axes.shape[0] - 1, 0, -1):
                        size = np.uint64(axes[axis, 0])
                        quotient = rest // size
                        number += np.int64(rest - quotient * size) * axes[axis, 1]
                        rest = quotient
                    number += np.int64(rest) * axes[0, 1]
                target[(outer * channels + channel) * places + place] = number
