"""Transposed convolution of few channels per group, each output vector summed in registers from the rows that reach it.

    y[row, u * stride + phase] = b + sum over rows and taps that reach it: x[other row, u - shift(tap)] * w[tap]

The phases of an output row are computed side by side and interleaved in registers, so whole vectors of neighbours are
stored. What is read is a copy of some rows of x with zeros at both ends, so no vector needs a mask to be loaded. These
zeros are multiplied, so weights must be finite; rows outside x are left out.
"""

import math
from functools import lru_cache

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.activation import PLAIN, Ending
from unpool.kernels.cpu.conv_transpose import direct_tables as tables
from unpool.kernels.cpu.conv_transpose.direct_kernel import KEPT_TERMS, NARROW, STRIDES, About, Tables, kernel
from unpool.kernels.cpu.conv_transpose.work import Work
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jobs import enough
from unpool.kernels.cpu.machine.threads import VECTORISED, Launch, Launches
from unpool.kernels.cpu.vector import Activation, activation_type
from unpool.kernels.cpu.vector.named import record

PANEL_BYTES = 1 << 16
"""Rows of x that are laid out at once: they stay in the second cache."""

STRIP_BYTES = 1 << 10
"""Rows of y that are written kind by kind, so that short ones seldom load the terms of their kind. Beyond that rows are
written in order: memory takes up to five times as long where its lines do not follow one another.
"""

MOST_STEPS = 2048
"""Positions along the lanes that are laid out at once."""

MOST_TERMS = 1 << 14
"""Products that all kinds of output rows list together."""

MOST_ROWS = 1 << 20
"""Output rows of a plane, which a table lists."""

MOST_PANEL_BYTES = 1 << 23
"""Where all rows between the first and the last that one output row needs are more, this way is not taken."""

MOST_PRODUCTS = 16
"""Per output, those in unused lanes counted: with more of them it is worth laying out tiles for a dense product."""

MOST_PRODUCTS_OF_FEW = 10
"""The same for groups of less than FEW_MAPS output channels: what is laid out for a tile of few rows is less."""

FEW_MAPS = 4

MOST_PRODUCTS_ALONE = 25
"""The same for groups of one output channel, which fill no tile."""

FAR = 8
"""With more products than so many times these, this way takes twice the time of the others or more."""


def pays(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> bool:
    """Whether this way is the fastest: for input and output channels of a group, and elements of so many bytes."""
    return _excess(axes, channels, maps, size) <= 1 and fits(axes, channels, size)


def may_pay(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> bool:
    """Whether this way may be the fastest on some machine: arguments as of `pays`."""
    return _excess(axes, channels, maps, size) <= FAR and fits(axes, channels, size)


@lru_cache(maxsize=1024)
def _excess(axes: tuple[Axis, ...], channels: int, maps: int, size: int) -> float:
    """How many times as many products there are for an output as this way is the fastest for."""
    if not channels or not all(axis.small and axis.large for axis in axes):
        return math.inf
    lanes, steps = NARROW * vector_bytes() // size, -(-axes[-1].large // axes[-1].window.stride)
    filled = -(-steps // lanes) * lanes / steps
    products = channels * math.prod(axis.window.size / axis.window.stride for axis in axes) * filled
    most = MOST_PRODUCTS_ALONE if maps == 1 else MOST_PRODUCTS_OF_FEW if maps < FEW_MAPS else MOST_PRODUCTS
    return products / most


def fits(axes: tuple[Axis, ...], channels: int, size: int) -> bool:
    """Whether this way knows the stride along the lanes, and its tables and its panel are small, for so many channels.

    Args:
        axes: one per spatial axis, none of them empty.
        channels: of the input, in one group.
        size: bytes of an element.
    """
    *leading, last = axes
    if last.window.stride not in STRIDES or math.prod(axis.large for axis in leading) > MOST_ROWS:
        return False
    rows = math.prod(axis.small for axis in leading)
    if len(leading) == 1:
        rows = min(rows, leading[0].window.reach // leading[0].window.stride + 1)
    width = min(MOST_STEPS, last.large // last.window.stride) + last.window.reach + 8 * vector_bytes() // size
    kinds = math.prod(len(tables.kinds_of(axis)[0]) * axis.window.size / axis.window.stride for axis in leading)
    is_small = channels * rows * width * size <= MOST_PANEL_BYTES
    return is_small and channels * kinds * last.window.size <= MOST_TERMS


def launch(work: Work, ending: Ending = PLAIN) -> Launches:
    """The call that writes a transposed convolution which this way `fits`.

    It takes (x, w, b, y), all C-contiguous and of one type: (N, C, d1..dk); (C, M/group, k1..kk), finite; (M,);
    (N, M, D1..Dk).

    Args:
        work: what is to be computed.
        ending: the activation of the sums.
    """
    outputs = work.batch * work.group * work.maps * work.large
    cost = (outputs + work.batch * work.channels * work.maps * work.small * work.taps) // VECTORISED
    return Launches(cost, lambda threads: _launch(work, ending, cost, threads))


def _launch(work: Work, ending: Ending, cost: int, threads: int) -> Launch:
    """The same in bands for so many threads."""
    last, channels, size = work.axes[-1], work.channels // work.group, work.dtype.itemsize
    lanes = vector_bytes() // size
    taps, left, beyond = tables.taps_of(last, lanes)
    steps = -(-last.large // last.window.stride)
    stretch = min(MOST_STEPS, -(-steps // (4 * lanes)) * 4 * lanes)
    stretches, pitch = -(-steps // stretch), -(-(stretch + beyond) // lanes) * lanes * size
    rows, reach, kinds = tables.rows_of(work.axes[:-1])
    outer = work.batch * work.group * stretches
    bands = tables.bands_of(reach, PANEL_BYTES // (channels * pitch), -(-enough(threads) // outer))
    height = int((bands[:, 3] - bands[:, 2]).max())
    apart = [[work.maps * work.taps * size, height * pitch], [last.window.size * size, pitch], [size, size]]
    rows = tables.in_strips(rows, bands, max(1, STRIP_BYTES // (last.large * size)))
    lists = [tables.products_of(channels, kind, each, apart) for kind in kinds for each in taps]
    bounds = np.cumsum([0, *(len(each) for each in lists)])
    about = About(
        group=work.group, channels=channels, maps=work.maps, stretches=stretches, stretch=stretch,
        pitch=pitch, height=height, small=last.small, large=last.large, stride=last.window.stride,
        left=left, beyond=beyond, plane=work.small, window=work.taps * size,
        activation=Activation(ending.is_active, *ending.bounds),
    )  # fmt: skip
    read = Tables(
        bands, rows * [last.large * size, pitch, 8 * last.window.stride], bounds,
        np.concatenate([*lists, np.zeros((KEPT_TERMS[last.window.stride], 2), np.int64)]),
    )  # fmt: skip
    given, count = record(about, activation=activation_type(work.dtype)), outer * len(bands)
    return Launch(kernel(work.dtype), count, cost, given, read)
