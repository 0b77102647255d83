"""Which of Winograd's tiles are even enough: an output must owe its error to what its own window holds.

A tile's error is in proportion to all that the tile holds, T, the root of the sum of squares over its 4 x 4 positions
and all channels; an output's own measure is |w| * |x|, summed over its window alone. For a window that holds the sum S
of |x|, and the root Q of the sum of its squares, and weights whose mean magnitude is m times their root mean square r,

    |w| * |x|  is about  m * r * S, give or take some sqrt(1 - m * m) * r * Q

as for weights that know nothing of x. A tile is even if for every window the lower end of that, DEVIATIONS away, is
above TILE_ERROR * r * T and, where weights have one sign, above ALIGNED_ERROR * r times the sum of |x| over the tile,
because such sums grow faster, and so do their errors. That is measured: errors are seldom a tenth of what the bound of
64 times the machine's precision allows. Tiles are not even where x is zero throughout a window, where a number is far
larger than its neighbours or is none, and where there are few channels.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled, inlined
from unpool.kernels.cpu.rows import readonly
from unpool.kernels.cpu.threads import VECTORISED, split

DEVIATIONS = 4
TILE_ERROR = 0.16
ALIGNED_ERROR = 0.06
LEAST_MEAN = 0.3
"""Mean magnitude of the weights of an output channel and phase, relative to their root mean square: 0.8 where they are
normally distributed, less where they are sparse."""

LEAST_TAP = 0.25
"""Root mean square of the weights of one tap, relative to that of all taps of its phase."""

RANGE = 2.0**40
"""Root mean squares of weights lie between its inverse and this, so that no product overflows or loses digits."""

SQUARES = 2.0**100
"""The same for T * T."""

BAND = 8
"""Rows of tiles that one job looks at."""

PIECE = 2048
"""Positions whose sums over all channels stay in the first cache."""

Taps = Sequence[Sequence[tuple[int, int]]]
"""Per phase its taps, each with its place in the window."""


def limits_of(w, taps: tuple[Taps, Taps], group: int):
    """What even tiles have to keep to with these weights: factors of Q * Q, of T and of sums; None if no tile could.

    Args:
        w: (C, M/group, k1, k2), finite.
        taps: of both axes.
        group: number of groups.
    """
    channels, phases = w.shape[0] // group, _phases_of(taps, w.shape[2:])
    used, numbers = np.flatnonzero(phases >= 0), phases[phases >= 0]
    flat = w.reshape(group, channels, w.shape[1], -1)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.abs(flat).sum(axis=1), np.abs(flat.sum(axis=1)), np.einsum("gcmt,gcmt->gmt", flat, flat)
    member = np.equal.outer(numbers, np.unique(numbers))
    share = member / (channels * member.sum(axis=0))
    sizes, signed, squares = (np.einsum("gmt,tp->gmp", each[..., used], share) for each in sums)
    tap_squares = sums[2][..., used] / channels
    is_fine = (squares >= RANGE**-2) & (squares <= RANGE**2)
    is_live = sizes > 0
    is_close = tap_squares >= LEAST_TAP**2 * np.einsum("gmp,tp->gmt", squares, member)
    if not (is_fine[is_live].all() and is_close.all()):
        return None
    roots = np.sqrt(squares[is_live])
    least = float((sizes[is_live] / roots).min(initial=1))
    aligned = float((signed[is_live] / roots).max(initial=0))
    if not least >= LEAST_MEAN:
        return None
    error = TILE_ERROR * max(1, math.sqrt(channels / 64)) / least
    return np.array([DEVIATIONS**2 * (1 - least**2) / least**2, error, ALIGNED_ERROR * aligned**2], w.dtype)


def _phases_of(taps: tuple[Taps, Taps], sizes: Sequence[int]):
    """The number of the phase of every tap of a window; -1 for those that no output meets."""
    lines = [np.full(size, -1) for size in sizes]
    for line, phases in zip(lines, taps, strict=True):
        for number, each in enumerate(phases):
            line[[tap for tap, _ in each]] = number
    down, across = lines[0][:, None], lines[1][None, :]
    return np.where((down < 0) | (across < 0), -1, down * len(taps[1]) + across).reshape(-1)


def windows_of(axis: Axis, taps: Taps, lows: Sequence[int], first: int, positions: int):
    """The windows of all outputs along an axis, which start where a tile gives them a number.

    Args:
        axis: of the call.
        taps: per phase.
        lows: per phase the input position that its first output starts at.
        first: input position where the first tile starts.
        positions: outputs of one phase in all tiles.

    Returns:
        shapes: (shapes, 3) whether a window of this shape holds the position where it starts, and those behind it.
        needed: (shapes, positions) whether an output has this window.
    """
    found: dict[tuple[int, ...], Any] = {}
    for phase, each in enumerate(taps):
        if each:
            shape = tuple(int(any(place == one for _, place in each)) for one in range(3))
            steps = first + np.arange(positions) - lows[phase]
            is_there = (steps >= 0) & (steps * axis.window.stride + phase < axis.large)
            found[shape] = found.get(shape, False) | is_there
    return np.array(list(found), np.int64).reshape(-1, 3), np.array(list(found.values()), np.int64).reshape(
        -1, positions
    )


@lru_cache(maxsize=64)
def _bands(batch: int, tiles: int) -> int:
    """Parts of each image, so that there are some for every thread."""
    return min(tiles, max(-(-tiles // BAND), -(-4 // batch)))


def find_uneven(x, limits, windows, grid: Sequence[int], group: int, threads: int | None):
    """The numbers of the tiles that are not even, counted image by image, row by row.

    Args:
        x: C-contiguous (N, C, d1, d2), float32 or float64.
        limits: from `limits_of`.
        windows: from `windows_of`, of both axes.
        grid: tiles along both axes, the first input row and column, and the outputs of a tile.
        group: number of groups.
        threads: at most so many; None for all cores.
    """
    bands = _bands(len(x), grid[0])
    verdict = np.zeros(len(x) * grid[0] * grid[1], np.uint8)
    sizes = (group, x.shape[1] // group, *x.shape[2:], bands, *grid)
    (downs, downs_needed), (acrosses, acrosses_needed) = windows
    split(
        judge, len(x) * bands, x.size // VECTORISED, threads,
        readonly(x), verdict, limits, downs, downs_needed, acrosses, acrosses_needed, sizes,
    )  # fmt: skip
    return np.flatnonzero(verdict)


@compiled(fastmath={"contract"})
def judge(x, verdict, limits, downs, downs_needed, acrosses, acrosses_needed, sizes, first, stop):
    """Memory order: image, band of rows of tiles, group; then channel and positions; then row of tiles, shape of the
    window, and the windows of a row, whatever tile they are of.
    """
    groups, channels, high, wide, bands, rows, columns, top, left, outputs = sizes
    tallest = (-(-rows // bands) - 1) * outputs + 4
    sums, squares = np.empty(tallest * wide, x.dtype), np.empty(tallest * wide, x.dtype)
    length = outputs * columns
    size, square = np.zeros(length + 4, x.dtype), np.zeros(length + 4, x.dtype)
    error, flags = np.empty(length, x.dtype), np.empty(length, x.dtype)
    for job in range(first, stop):
        image, band = job // bands, job % bands
        begin, end = band * rows // bands, (band + 1) * rows // bands
        low, last = max(0, top + outputs * begin), min(high, top + outputs * (end - 1) + 4)
        count = max(0, last - low) * wide
        for group in range(groups):
            plane = ((image * groups + group) * channels * high + low) * wide
            _add_up(x, plane, high * wide, channels, sums[:count], squares[:count])
            for row in range(begin, end):
                start = top + outputs * row
                rows_left = low, last, wide, left
                for place in range(start, start + 4):
                    _add_row(size, sums, place, place == start, rows_left)
                    _add_row(square, squares, place, place == start, rows_left)
                _list_errors(error, size, square, limits, outputs)
                flags[:] = 0
                for number in range(outputs):
                    for shape in range(downs.shape[0]):
                        if downs_needed[shape, outputs * row + number]:
                            size[:] = 0
                            square[:] = 0
                            for place in range(3):
                                if downs[shape, place]:
                                    _add_row(size, sums, start + number + place, False, rows_left)
                                    _add_row(square, squares, start + number + place, False, rows_left)
                            for other in range(acrosses.shape[0]):
                                _flag(flags, size, square, error, acrosses[other], acrosses_needed[other], limits[0])
                for column in range(columns):
                    for number in range(outputs):
                        if flags[column * outputs + number] != 0:
                            verdict[(image * rows + row) * columns + column] = 1


@inlined
def _add_up(x, plane, apart, channels, sums, squares):
    """Magnitudes and squares of all channels at every position, in pieces that stay in the first cache."""
    for begin in range(0, sums.size, PIECE):
        total, square = sums[begin : begin + PIECE], squares[begin : begin + PIECE]
        total[:] = 0
        square[:] = 0
        for channel in range(0, channels - 1, 2):
            one = x[plane + channel * apart + begin :][: total.size]
            two = x[plane + (channel + 1) * apart + begin :][: total.size]
            for place in range(total.size):
                total[place] += abs(one[place]) + abs(two[place])
                square[place] += one[place] * one[place] + two[place] * two[place]
        if channels % 2:
            one = x[plane + (channels - 1) * apart + begin :][: total.size]
            for place in range(total.size):
                total[place] += abs(one[place])
                square[place] += one[place] * one[place]


@inlined
def _add_row(line, field, row, is_first, where):
    """Add a row of the field to the line, which starts at another column; `is_first` clears it."""
    low, last, wide, left = where
    if is_first:
        line[:] = 0
    if low <= row < last:
        begin, end = max(0, left), min(wide, left + line.size)
        source, target = field[(row - low) * wide + begin : (row - low) * wide + end], line[begin - left :]
        for place in range(source.size):
            target[place] += source[place]


@inlined
def _list_errors(error, size, square, limits, outputs):
    """What the windows of every tile have to exceed, from four rows; infinity where squares are not in range."""
    for at in range(0, error.size, outputs):
        total = size[at] + size[at + 1] + size[at + 2] + size[at + 3]
        whole = square[at] + square[at + 1] + square[at + 2] + square[at + 3]
        value = limits[1] * np.sqrt(whole) + limits[2] * total
        if not (total == 0 or 1 / SQUARES <= whole <= SQUARES):
            value = np.inf
        for number in range(outputs):
            error[at + number] = value


@inlined
def _flag(flags, size, square, error, shape, needed, factor):
    """Count the windows that fall short; a comparison with NaN is false."""
    one, two, three = square.dtype.type(shape[0]), square.dtype.type(shape[1]), square.dtype.type(shape[2])
    for at in range(flags.size):
        whole = one * size[at] + two * size[at + 1] + three * size[at + 2] - error[at]
        part = one * square[at] + two * square[at + 1] + three * square[at + 2]
        is_even = (whole >= 0) & (whole * whole >= factor * part)
        flags[at] += 0 if is_even else needed[at]
