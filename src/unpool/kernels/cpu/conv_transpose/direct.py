"""Transposed convolution of few channels per group, each output vector summed in registers from the rows that reach it.

    y[row, u * stride + phase] = b + sum over rows and taps that reach it: x[other row, u - shift(tap)] * w[tap]

The phases of an output row are computed side by side and interleaved in registers, so whole vectors of neighbours are
stored. What is read is a copy of some rows of x with zeros at both ends, so no vector needs a mask to be loaded. These
zeros are multiplied, so weights must be finite; rows outside x are left out.
"""

import math
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis, tap_spans, upsampling_walk
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.conv_transpose.direct_kernel import (
    LOADED_TERMS,
    NARROW,
    STRIDES,
    DirectParams,
    DirectTables,
    make_kernel,
)
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jobs import even_job_count
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch, Launches
from unpool.kernels.cpu.vector import ActivationParams, activation_dtype
from unpool.kernels.cpu.vector.specialize import record

PANEL_BYTES = 1 << 16  # rows of x that are laid out at once: they stay in the second cache

STRIP_BYTES = 1 << 10
"""Rows of y that are written kind by kind, so that short ones seldom load the terms of their kind. Beyond that rows are
written in order: memory takes up to five times as long where its lines do not follow one another.
"""

MOST_STEPS = 2048  # positions along the lanes that are laid out at once
MOST_TERMS = 1 << 14  # products that all kinds of output rows list together
MOST_ROWS = 1 << 20  # output rows of a plane, which a table lists
MOST_PANEL_BYTES = 1 << 23  # maximum size of all rows between the first and the last that one output row needs

MOST_PRODUCTS = 16
"""Per output, those in unused lanes included: with more of them a dense product is worth laying out tiles."""

MOST_PRODUCTS_OF_FEW = 10
"""The same for groups of less than FEW_MAPS output channels: what is laid out for a tile of few rows is less."""

FEW_MAPS = 4

MOST_PRODUCTS_ALONE = 25  # the same for groups of one output channel, which fill no tile
FAR = 8  # with this many times these products, other algorithms take half the time or less


def is_cheapest(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> bool:
    """True if this algorithm is the fastest, for channels and maps of a group, and elements of `size` bytes."""
    return _relative_products(axes, channels, maps, size) <= 1 and fits(axes, channels, size)


def may_be_cheapest(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> bool:
    """True if this algorithm may be the fastest on some machine; arguments are those of `is_cheapest`."""
    return _relative_products(axes, channels, maps, size) <= FAR and fits(axes, channels, size)


@lru_cache(maxsize=1024)
def _relative_products(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> float:
    """Products for an output, over the maximum with which this algorithm is the fastest."""
    if not channels or not all(axis.small and axis.large for axis in axes):
        return math.inf
    lanes, steps = NARROW * vector_bytes() // size, -(-axes[-1].large // axes[-1].window.stride)
    filled = -(-steps // lanes) * lanes / steps
    products = channels * math.prod(axis.window.size / axis.window.stride for axis in axes) * filled
    most = MOST_PRODUCTS_ALONE if maps == 1 else MOST_PRODUCTS_OF_FEW if maps < FEW_MAPS else MOST_PRODUCTS
    return products / most


def fits(axes: tuple[Axis, ...], channels: int, size: int) -> bool:
    """True if the stride along the lanes is supported, and tables and panel are small; no axis is empty."""
    *leading, last = axes
    if last.window.stride not in STRIDES or math.prod(axis.large for axis in leading) > MOST_ROWS:
        return False
    rows = math.prod(axis.small for axis in leading)
    if len(leading) == 1:
        rows = min(rows, leading[0].window.reach // leading[0].window.stride + 1)
    width = min(MOST_STEPS, last.large // last.window.stride) + last.window.reach + 8 * vector_bytes() // size
    kinds = math.prod(len(kinds_of(axis)[0]) * axis.window.size / axis.window.stride for axis in leading)
    is_small = channels * rows * width * size <= MOST_PANEL_BYTES
    return is_small and channels * kinds * last.window.size <= MOST_TERMS


def launch(problem: ConvTransposeProblem, epilogue: Epilogue = PLAIN) -> Launches:
    """The call that writes a transposed convolution that `fits`.

    It takes (x, w, b, y), all C-contiguous and of one type: (N, C, d1..dk); (C, M/group, k1..kk), finite; (M,);
    (N, M, D1..Dk).
    """
    outputs = problem.batch * problem.group * problem.maps * problem.large
    cost = (outputs + problem.batch * problem.channels * problem.maps * problem.small * problem.taps) // VECTOR_SPEEDUP
    return Launches(cost, lambda threads: _launch(problem, epilogue, cost, threads))


def _launch(problem: ConvTransposeProblem, epilogue: Epilogue, cost: int, threads: int) -> Launch:
    last, channels, size = problem.axes[-1], problem.channels // problem.group, problem.dtype.itemsize
    lanes = vector_bytes() // size
    taps, left, beyond = taps_of(last, lanes)
    steps = -(-last.large // last.window.stride)
    stretch = min(MOST_STEPS, -(-steps // (4 * lanes)) * 4 * lanes)
    stretches, pitch = -(-steps // stretch), -(-(stretch + beyond) // lanes) * lanes * size
    rows, reach, kinds = rows_of(problem.axes[:-1])
    outer = problem.batch * problem.group * stretches
    bands = bands_of(reach, PANEL_BYTES // (channels * pitch), -(-even_job_count(threads) // outer))
    height = int((bands[:, 3] - bands[:, 2]).max())
    apart = [[problem.maps * problem.taps * size, height * pitch], [last.window.size * size, pitch], [size, size]]
    rows = in_strips(rows, bands, max(1, STRIP_BYTES // (last.large * size)))
    lists = [products_of(channels, kind, each, apart) for kind in kinds for each in taps]
    bounds = np.cumsum([0, *(len(each) for each in lists)])
    params = DirectParams(
        group=problem.group, channels=channels, maps=problem.maps, stretches=stretches, stretch=stretch,
        pitch=pitch, height=height, small=last.small, large=last.large, stride=last.window.stride,
        left=left, beyond=beyond, plane=problem.small, window=problem.taps * size,
        activation=ActivationParams(epilogue.is_active, *epilogue.bounds),
    )  # fmt: skip
    tables = DirectTables(
        bands, rows * [last.large * size, pitch, 8 * last.window.stride], bounds,
        np.concatenate([*lists, np.zeros((LOADED_TERMS[last.window.stride], 2), np.int64)]),
    )  # fmt: skip
    args, count = record(params, activation=activation_dtype(problem.dtype)), outer * len(bands)
    return Launch(make_kernel(problem.dtype), count, cost, args, tables)


def products_of(channels: int, kind, taps, apart: list[list[int]]):
    """All terms of the phase of a kind of row: (bytes in the window, bytes in the panel)."""
    channel, row, tap = np.ix_(range(channels), range(len(kind)), range(len(taps)))
    parts = np.stack([channel, channel], -1) * apart[0] + kind[row] * apart[1] + taps[tap] * apart[2]
    return parts.reshape(-1, 2)


def taps_of(axis: Axis, lanes: int):
    """Per phase its taps, each with the element it reads at step 0; padding; elements read beyond the steps."""
    spans = tap_spans(axis)
    shift, phase = np.divmod(spans[:, 3], axis.window.stride)
    left = -(-int(shift.max(initial=0)) // lanes) * lanes
    taps = np.stack([spans[:, 0], left - shift], 1)
    return [taps[phase == each] for each in range(axis.window.stride)], left, left - int(shift.min(initial=0))


def kinds_of(axis: Axis):
    """Kinds of positions of an axis, by the first tap that reaches it and the number of taps; and each one's kind."""
    walk = upsampling_walk(axis)
    return np.unique(np.stack([np.where(walk.count, walk.tap, 0), walk.count], 1), axis=0, return_inverse=True)


def rows_of(leading: tuple[Axis, ...]):
    """The rows of x and of the window that each row of y reads: three arrays.

    rows    (rows, 2) an input row, and the number of the kind of the row
    reach   (rows, 2) the first and the last input row that are read
    kinds   per kind its terms (row of the window, input row counted from the one in `rows`)
    """
    rows, reach, kinds = np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64), [np.zeros((1, 2), np.int64)]
    for axis in leading:
        walk, (found, number), back = upsampling_walk(axis), kinds_of(axis), np.arange(axis.window.size)
        steps = [walk.tap_step, walk.other_step]
        one = [[first, 0] + back[:count, None] * steps for first, count in found]
        kinds = [(old[:, None] * [axis.window.size, axis.small] + new).reshape(-1, 2) for old in kinds for new in one]
        last = np.clip(walk.other, 0, axis.small - 1)
        edges = np.stack([last + np.maximum(0, walk.count - 1) * walk.other_step, last], 1)
        reach = (reach[:, None] * axis.small + edges).reshape(-1, 2)
        rows = (rows[:, None] * [axis.small, len(found)] + np.stack([last, number.reshape(-1)], 1)).reshape(-1, 2)
    return rows, reach, kinds


def bands_of(reach, most: int, fewest: int):
    """Equal parts of the output rows: (first, stop, low, high), the last two of the input rows that they read.

    Each band reads at most `most` rows, and there are `fewest` bands or more, but fewer if they would read all rows
    more than twice.
    """
    count, bands = 1, _equal_bands(reach, 1)
    while count < len(reach) and ((bands[:, 3] - bands[:, 2]).max() > most or count < fewest):
        count = min(len(reach), 2 * count)
        finer = _equal_bands(reach, count)
        if (finer[:, 3] - finer[:, 2]).sum() > 2 * (reach[:, 1].max() + 1):
            break
        bands = finer
    return bands


def in_strips(rows, bands, strip: int):
    """(row of y, input row, kind) in bands, and there in strips of `strip` rows, kind by kind."""
    number, band = np.arange(len(rows)), np.repeat(np.arange(len(bands)), bands[:, 1] - bands[:, 0])
    return np.column_stack([number, rows])[np.lexsort((number, rows[:, 1], number // strip, band))]


def _equal_bands(reach, count: int):
    edges = np.arange(count + 1) * len(reach) // count
    low, high = np.minimum.reduceat(reach[:, 0], edges[:-1]), np.maximum.reduceat(reach[:, 1], edges[:-1]) + 1
    return np.stack([edges[:-1], edges[1:], low, high], 1)
