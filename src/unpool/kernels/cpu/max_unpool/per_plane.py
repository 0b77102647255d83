"""Max unpooling and the gradients of max pooling and max unpooling, on indices that count inside their own plane.

    spread:   y[n, c, i] = sum, or last, of x[n, c, p] over the positions p with indices[n, c, p] = i; 0 elsewhere
    collect:  y[n, c, p] = x[n, c, indices[n, c, p]]

Unpooling spreads, and its gradient collects; the gradient of pooling spreads, and the gradient of that collects.
Positions are unsigned, because Numba tests each signed one for counting from the end. An index is read once, so that
the checked index is used even if another thread writes to the indices.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.tuning import UNPOOL

# writes y of (x, indices, y, threads), and returns the flat position of the first index outside its plane, or -1
Write: TypeAlias = Callable[[Any, Any, Any, int | None], int]


def spread(outer: int, lanes: int, work: int, sums: bool) -> Write:
    """The function that writes zeros to y, and element p of x at indices[p] of its own plane.

    All are C-contiguous: x and indices (outer, places, lanes), y (outer, large places, lanes). `lanes` is C for
    channels-last arrays, otherwise 1, and `work` the elements of x and y. With `sums` elements of one index are added,
    in the order of x, and index -1 leaves one out; otherwise the last one stays.
    """
    return _writer(spread_planes, outer, lanes, work, sums)


def collect(outer: int, lanes: int, work: int) -> Write:
    """The function that writes to element p of y the element of x at indices[p] of its own plane, 0 for index -1.

    x is (outer, large places, lanes), indices and y (outer, places, lanes); arguments are those of `spread`.
    """
    return _writer(collect_planes, outer, lanes, work)


def _writer(kernel: Callable[..., Any], outer: int, lanes: int, work: int, *modes: Any) -> Write:
    launch = Launch(kernel, outer * -(-lanes // UNPOOL.lanes), work, outer, lanes, *modes)

    def write(x, indices, y, threads):
        parts = launch.run((), threads, readonly(x), readonly(indices), y.reshape(-1))
        return parts[0] if len(parts) == 1 else next((part for part in parts if part >= 0), -1)

    return write


@jit()
def spread_planes(x, indices, y, planes, lanes, sums, first, stop):
    """Write some planes, or blocks of their lanes; the flat position of the first index outside its plane, or -1.

        for every outer, for every block of lanes, for every place, for every lane of the block

    A plane is cleared just before it is written, while it is in the cache.
    """
    small, large, blocks = indices.size // (planes * lanes), y.size // (planes * lanes), -(-lanes // UNPOOL.lanes)
    size, wrong = y.itemsize, np.int64(-1)
    for job in range(first, stop):
        outer, begin = job // blocks, job % blocks * UNPOOL.lanes
        width = min(lanes - begin, UNPOOL.lanes)
        if width == lanes:
            vec.clear(vec.address_of(y) + outer * large * lanes * size, large * lanes * size)
        else:
            for place in range(outer * large, (outer + 1) * large):
                vec.clear(vec.address_of(y) + (place * lanes + begin) * size, width * size)
        rows, row, step = (1, small, 0) if lanes == 1 else (small, width, 1)
        plane = np.uint64(outer * large * lanes + begin)
        for number in range(rows):
            start = np.uint64((outer * small + number) * lanes + begin)
            for lane in range(np.uint64(row)):
                position = start + lane
                index = np.uint64(vec.load_once(vec.address_of(indices) + np.int64(position) * 8))
                if index < np.uint64(large):
                    place = plane + index * np.uint64(lanes) + lane * np.uint64(step)
                    y[place] = y[place] + x[position] if sums else x[position]
                elif wrong < 0 and not (sums and np.int64(index) == -1):
                    wrong = np.int64(position)
    return wrong


@jit()
def collect_planes(x, indices, y, planes, lanes, first, stop):
    """Write some planes, or blocks of their lanes; the flat position of the first index outside its plane, or -1.

    for every outer, for every block of lanes, for every place, for every lane of the block
    """
    small, large, blocks = indices.size // (planes * lanes), x.size // (planes * lanes), -(-lanes // UNPOOL.lanes)
    prefetch_distance, size, wrong = vec.address_of(x) + UNPOOL.prefetch_distance, x.itemsize, np.int64(-1)
    for job in range(first, stop):
        outer, begin = job // blocks, job % blocks * UNPOOL.lanes
        rows, row, step = (1, small, 0) if lanes == 1 else (small, min(lanes - begin, UNPOOL.lanes), 1)
        plane = np.uint64(outer * large * lanes + begin)
        for number in range(rows):
            start = np.uint64((outer * small + number) * lanes + begin)
            for lane in range(np.uint64(row)):
                position = start + lane
                index = np.uint64(vec.load_once(vec.address_of(indices) + np.int64(position) * 8))
                if index < np.uint64(large):
                    place = plane + index * np.uint64(lanes) + lane * np.uint64(step)
                    if lanes == 1:
                        vec.prefetch(prefetch_distance + np.int64(place) * size)
                    y[position] = x[place]
                else:
                    y[position] = 0
                    if wrong < 0 and np.int64(index) != -1:
                        wrong = np.int64(position)
    return wrong
