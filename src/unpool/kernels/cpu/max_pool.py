"""Max pooling over rows and lanes, on the bits of the elements.

Floats are compared as integers of equal width: sign-magnitude becomes two's complement, both zeros become 0 and every
NaN becomes the largest key, so that one strict comparison propagates NaN and keeps the first of equals.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numba import njit, types
from numba.extending import overload

from unpool.geometry import Axis, Window, shrinking_walk, tap_spans
from unpool.kernels.cpu.rows import list_rows, readonly, row_plan
from unpool.kernels.cpu.threads import split

_INTEGERS = (types.int8, types.uint8)
_POINT = Window(1)
_NO_INDICES = np.empty(0, np.int64)


def max_pool(x, axes: Sequence[Axis], infinity: int, y, indices, lowest, channels_last: bool, threads: int | None):
    """Write the largest element of every window to `y` and where it was found to `indices`.

    Args:
        x: C-contiguous integer view of the elements: (outer, D1..Dk) with outer = N * C, or (N, D1..Dk, C).
        axes: one per spatial axis.
        infinity: bits of +infinity; 0 for integer elements.
        y: C-contiguous, same layout and type as x, pooled sizes.
        indices: None, or C-contiguous int64 (outer, d1..dk) or (N, C, d1..dk): whole-tensor, row-major, -1 where a
            window holds no data.
        lowest: what such a window gives, as bits.
        channels_last: whether the lanes of x are channels.
        threads: at most so many; None for all cores.
    """
    if y.size == 0:
        return
    leading, lanes = (axes, Axis(x.shape[-1], x.shape[-1], _POINT)) if channels_last else (axes[:-1], axes[-1])
    steps, table, width, spans = _tables(tuple(leading), lanes)
    rows = y.size // (y.shape[0] * lanes.small)
    found = _NO_INDICES if indices is None else indices.reshape(-1)
    work = y.size * max(1, width * len(spans))
    plane = x.size // x.shape[0]
    split(
        _pool_rows, y.shape[0] * rows, work, threads,
        readonly(x), y.reshape(-1), found, plane, rows, lanes.small, lanes.window.stride, steps, table, width, spans,
        x.dtype.type(infinity), x.dtype.type(lowest), x.shape[-1] if channels_last else 0,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _tables(leading: tuple[Axis, ...], lanes: Axis):
    """What the kernel reads of the axes: the rows under every window, and the lanes under every tap."""
    sizes = [axis.large for axis in leading] + [lanes.large]
    weights = [math.prod(sizes[number + 1 :]) for number in range(len(leading))]
    plan = row_plan([shrinking_walk(axis) for axis in leading], weights, [0] * len(leading))
    return *plan, tap_spans(lanes)


@njit(cache=True, nogil=True, error_model="numpy")
def _pool_rows(
    x,
    y,
    indices,
    plane,
    rows,
    small,
    stride,
    steps,
    table,
    width,
    spans,
    infinity,
    lowest,
    channels,
    first,
    stop,
):
    """Memory order: outer, leading position, lane. Each output row visits the input rows under its window in
    row-major order, then the taps along the lanes, then the lanes themselves: the innermost loop is a vector loop.
    """
    others = np.empty(width, np.int64)
    taps = np.empty(width, np.int64)
    smallest = _smallest_keys(x, small)
    best = np.empty_like(smallest)
    at = np.empty(small, np.int64)
    for job in range(first, stop):
        outer, row = job // rows, job % rows
        best[:] = smallest
        at[:] = -1
        base = outer * plane
        for place in range(list_rows(steps, table, row, others, taps)):
            for span in range(spans.shape[0]):
                low, high = spans[span, 1], spans[span, 2]
                start = others[place] + spans[span, 3] + low * stride
                if low < high:
                    _raise_row(x[base + start : base + plane], best[low:high], at[low:high], start, stride, infinity)
        for lane in range(small):
            y[job * small + lane] = lowest if at[lane] < 0 else x[base + at[lane]]
        if indices.size:
            if channels:
                _store_by_channel(indices, at, outer, row, rows, plane, channels)
            else:
                for lane in range(small):
                    indices[job * small + lane] = -1 if at[lane] < 0 else base + at[lane]


@njit(cache=True, nogil=True, error_model="numpy")
def _raise_row(x, best, at, start, stride, infinity):
    """Take x[lane * stride] wherever it beats the best key so far; constant strides make vector loops."""
    if stride == 1:
        _raise_lanes(x, best, at, start, 1, infinity)
    elif stride == 2:
        _raise_lanes(x, best, at, start, 2, infinity)
    else:
        _raise_lanes(x, best, at, start, stride, infinity)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _raise_lanes(x, best, at, start, stride, infinity):
    for lane in range(best.size):
        key = _key(x[lane * stride], infinity)
        wins = key > best[lane]
        best[lane] = key if wins else best[lane]
        at[lane] = start + lane * stride if wins else at[lane]


@njit(cache=True, nogil=True, error_model="numpy")
def _store_by_channel(indices, at, outer, row, rows, plane, channels):
    """Indices stay (N, C, d1..dk) and count in (N, C, D1..Dk): element q * C + c of a batch is c * P + q."""
    for lane in range(channels):
        place = (outer * channels + lane) * rows + row
        index = outer * plane + lane * (plane // channels) + (at[lane] - lane) // channels
        indices[place] = -1 if at[lane] < 0 else index


def _key(value, infinity):
    """The integer that orders an element; exists in compiled code only."""


@overload(_key)
def _key_of(value, infinity):
    dtype = _key_dtype(value)
    if value in _INTEGERS:
        return lambda value, infinity: dtype(value)
    smallest, largest = dtype(np.iinfo(dtype).min), dtype(np.iinfo(dtype).max)

    def key(value, infinity):
        magnitude = dtype(value & largest)
        signed = value if value >= 0 else dtype(smallest - value)
        return largest if magnitude > infinity else signed

    return key


def _smallest_keys(x, size):
    """One row of keys, each below that of every element; exists in compiled code only."""


@overload(_smallest_keys)
def _smallest_keys_of(x, size):
    dtype = _key_dtype(x.dtype)
    smallest = dtype(np.iinfo(dtype).min)
    return lambda x, size: np.full(size, smallest, dtype)


def _key_dtype(kind):
    return np.int16 if kind in _INTEGERS else np.dtype(str(kind)).type
