"""Gradient of max unpooling: every element that was placed reads the gradient of its place.

y[n, c, p] = grad[n, c, indices[n, c, p]]
"""

import numpy as np

from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import split

_BLOCK = 64  # lanes that one job keeps, so that a batch of one still makes several jobs


def collect(grad, indices, y, lanes: int, threads: int | None) -> int:
    """Write to element p of `y` what `grad` holds at indices[p] of its own plane.

    Args:
        grad: C-contiguous (outer, large places, lanes), float32 or float64.
        indices: C-contiguous int64, as many as y; a place of the plane in grad, or -1, which gives 0.
        y: C-contiguous, type of grad: (outer, places, lanes); every element is written.
        lanes: C for channels-last arrays; otherwise 1, and the planes are `outer`.
        threads: at most so many; None for all cores.

    Returns:
        The flat position of an index outside its plane, or -1.
    """
    outer, small = y.shape[:2]
    blocks = -(-lanes // _BLOCK)
    parts = split(
        _collect_planes, outer * blocks, y.size, threads,
        readonly(grad), readonly(indices), y.reshape(-1), (small, grad.shape[1], lanes, blocks),
    )  # fmt: skip
    return int(max(parts))


@compiled()
def _collect_planes(grad, indices, y, sizes, first, stop):
    """Memory order: outer, place, lane; one pass over indices and y."""
    small, large, lanes, blocks = sizes
    wrong = np.int64(-1)
    for job in range(first, stop):
        outer, begin = job // blocks, job % blocks * _BLOCK
        end = min(lanes, begin + _BLOCK)
        for place in range(outer * small, (outer + 1) * small):
            for lane in range(begin, end):
                position = place * lanes + lane
                index = indices[position]
                if 0 <= index < large:
                    y[position] = grad[(outer * large + index) * lanes + lane]
                else:
                    y[position] = 0
                    if index != -1:
                        wrong = position
    return wrong
