"""Transposed convolution of one element per channel: every output is a weighted sum of the channels.

    y[n, m, k] = b[m] + sum over channels c: x[n, c] * w[c, m, k]

One image is a sum over rows of weights, bound by reading those. BLAS would split it over threads of its own, which then
watch for more work for milliseconds and keep the cores from everybody else. More images are a matrix product.
"""

import numpy as np

from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import split

ROWS = 8
"""So many rows of weights are added in one pass over the outputs: more would be more streams than are prefetched."""


def weigh(x, w, b, y, threads: int | None) -> None:
    """Write all windows, uncut, to `y`.

    Args:
        x: C-contiguous (N, C, 1..1), float32 or float64.
        w: C-contiguous (C, M, k1..kk), type of x.
        b: C-contiguous (M,), type of x.
        y: C-contiguous (N, M, k1..kk), type of x.
        threads: at most so many for one image, None for all cores; those of more images are BLAS's own.
    """
    if len(x) == 1:
        split(_weigh_one, b.size, w.size, threads, readonly(x), readonly(w), readonly(b), y.reshape(-1))
        return
    flat, weights = x.reshape(x.shape[:2]), w.reshape(w.shape[0], -1)
    with np.errstate(all="ignore"):
        np.matmul(flat, weights, out=y.reshape(len(x), -1))
        np.add(y, b.reshape(-1, *[1] * (y.ndim - 2)), out=y)


@compiled()
def _weigh_one(x, w, b, y, first, stop):
    """Memory order: ROWS channels, then the outputs of all maps from `first` to `stop`, which stay in the cache."""
    window = y.size // b.size
    low, high = first * window, stop * window
    for out_map in range(first, stop):
        y[out_map * window : (out_map + 1) * window] = b[out_map]
    part, last = y[low:high], x.size // ROWS * ROWS
    for channel in range(0, last, ROWS):
        _add_rows(part, w[channel * y.size + low :], y.size, x[channel : channel + ROWS])
    for channel in range(last, x.size):
        _add_row(part, w[channel * y.size + low :], x[channel])


@compiled(fastmath={"contract"})
def _add_rows(y, w, step, x):
    """ROWS channels in one pass; their weights are `step` apart."""
    a, b, c, d = w[:step], w[step:], w[2 * step :], w[3 * step :]
    e, f, g, h = w[4 * step :], w[5 * step :], w[6 * step :], w[7 * step :]
    for k in range(y.size):
        total = y[k] + x[0] * a[k] + x[1] * b[k] + x[2] * c[k] + x[3] * d[k]
        y[k] = total + x[4] * e[k] + x[5] * f[k] + x[6] * g[k] + x[7] * h[k]


@compiled(fastmath={"contract"})
def _add_row(y, w, x):
    """One channel."""
    for k in range(y.size):
        y[k] += x * w[k]
