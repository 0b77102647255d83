"""Copies rows between planes: cuts a box out of a plane, or puts one into a plane with a background.

target[plane, to : to + length] = source[plane, start : start + length]
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.kernels.cpu.machine.jit import jit, record
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch


class CopyParams(NamedTuple):
    """Arguments of a call. Sizes are in elements."""

    source_plane: int
    target_plane: int
    length: int  # of a row
    maps: int  # planes of one image that have a background each; 0 without backgrounds


def launch(planes: int, sizes: tuple[int, int, int], rows: npt.NDArray[np.int64], maps: int = 0) -> Launch:
    """A call on flat (source, target, backgrounds) of one type; pass the source again if there are no backgrounds.

    `sizes` are the elements of a source plane, of a target plane and of a row; `rows` has a (source, target) pair of
    places for each row.
    """
    work = planes * (len(rows) * sizes[2] + (sizes[1] if maps else 0)) // VECTOR_SPEEDUP
    return Launch(copy_rows, planes, work, record(CopyParams(*sizes, maps)), rows)


def box_rows(
    sizes: tuple[Sequence[int], Sequence[int]], starts: tuple[Sequence[int], Sequence[int]], box: Sequence[int]
) -> npt.NDArray[np.int64]:
    """The (source, target) places of the rows of a box, which begins at these coordinates in arrays of these sizes.

    >>> box_rows(((4, 5), (2, 2)), ((1, 2), (0, 0)), (2, 2)).tolist()
    [[7, 0], [12, 2]]
    """
    if math.prod(box) == 0:
        return np.zeros((0, 2), np.int64)
    places = []
    for size, start in zip(sizes, starts, strict=True):
        firsts = [range(at, at + count) for at, count in zip(start, (*box[:-1], 1), strict=True)]
        places.append(np.ravel_multi_index(np.meshgrid(*firsts, indexing="ij"), tuple(size)).reshape(-1))
    return np.stack(places, axis=1).astype(np.int64)


@jit()
def copy_rows(source, target, backgrounds, args, rows, first, stop):
    """Write some planes: first the background, if there is one, then the rows."""
    params = args[0]
    length = params.length
    for plane in range(first, stop):
        begin, end = plane * params.target_plane, (plane + 1) * params.target_plane
        if params.maps > 0:
            background = backgrounds[plane % params.maps]
            for place in range(begin, end):
                target[place] = background
        for number in range(rows.shape[0]):
            start, to = plane * params.source_plane + rows[number, 0], begin + rows[number, 1]
            for place in range(length):
                target[to + place] = source[start + place]
