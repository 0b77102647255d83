"""Gradient of max pooling: every element of a gradient goes back to where its maximum was found.

y[n, c, i] = sum of grad[n, c, p] over the positions p with indices[n, c, p] = i
"""

import numpy as np

from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import split

_BLOCK = 64  # lanes that one job keeps, so that a batch of one still makes several jobs


def spread(grad, indices, y, lanes: int, threads: int | None) -> int:
    """Write to `y` zeros, to which element p of `grad` is added at indices[p] of its own plane.

    Args:
        grad: C-contiguous (outer, places, lanes), float32 or float64.
        indices: C-contiguous int64, as many as grad; a place of the plane in y, or -1 to leave the element out.
        y: C-contiguous (outer, large places, lanes), type of grad; every element is written.
        lanes: C for channels-last arrays; otherwise 1, and the planes are `outer`.
        threads: at most so many; None for all cores. Sums are formed in the order of grad, whatever their number.

    Returns:
        The flat position of an index outside its plane, or -1.
    """
    outer, large = y.shape[:2]
    blocks = -(-lanes // _BLOCK)
    parts = split(
        _spread_planes, outer * blocks, grad.size + y.size, threads,
        readonly(grad), readonly(indices), y.reshape(-1), (grad.shape[1], large, lanes, blocks),
    )  # fmt: skip
    return int(max(parts))


@compiled()
def _spread_planes(grad, indices, y, sizes, first, stop):
    """Memory order: outer, place, lane. A plane is cleared just before it is added to, while it is in the cache."""
    small, large, lanes, blocks = sizes
    wrong = np.int64(-1)
    for job in range(first, stop):
        outer, begin = job // blocks, job % blocks * _BLOCK
        end = min(lanes, begin + _BLOCK)
        if lanes == 1:
            y[outer * large : (outer + 1) * large] = 0
        else:
            for place in range(outer * large, (outer + 1) * large):
                y[place * lanes + begin : place * lanes + end] = 0
        for place in range(outer * small, (outer + 1) * small):
            for lane in range(begin, end):
                position = place * lanes + lane
                index = indices[position]
                if 0 <= index < large:
                    y[(outer * large + index) * lanes + lane] += grad[position]
                elif index != -1:
                    wrong = position
    return wrong
