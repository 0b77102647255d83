"""Finds tiles for which Winograd is inaccurate, and computes them again by another algorithm.

Rounding errors must come from the output's own window.

The error of a tile is proportional to T, the root of the sum of squares over its 4 x 4 positions and all channels. The
measure of an output is |w| * |x|, summed over its window only. If a window has the sum S of |x| and the root Q of the
sum of squares, and the mean magnitude of the weights is m times their root mean square r, then for independent weights

    |w| * |x|  is about  m * r * S, with a deviation of sqrt(1 - m * m) * r * Q

A tile is accurate if for every window the lower end of that, `deviations` away, is above `tile_error` * r * T and,
where weights have one sign, above `aligned_error` * r times the sum of |x| over the tile, because such sums and their
errors grow faster. The constants were measured: errors are seldom a tenth of the bound, 64 times the machine's
precision.
Tiles are inaccurate where x is zero throughout a window, where a value is NaN or far larger than its neighbours, and
where there are few channels. They are computed again as small images:

    image[p] = x[start + p], 0 <= p < 4, start = first + outputs * tile
    y[start * stride + q] = window over the image at q: the same taps, the same offset
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose.winograd_tiling import DepthAxis, WinogradTiling, tiling_of
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.jit import jit, record
from unpool.kernels.cpu.machine.jobs import JobSplit, choose_split, even_sizes
from unpool.kernels.cpu.machine.plan import NOT_MET, Condition, KernelStep, Operand, PlanMemory
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch, Launches
from unpool.kernels.cpu.tuning import WINOGRAD_ACCURACY
from unpool.kernels.cpu.vector import BITS
from unpool.kernels.cpu.vector.registration import jit_inline, overload_by_type

RANGE = 2.0**40  # root mean squares of weights lie between its inverse and this: no product overflows or loses digits
SQUARES = 2.0**100  # the same for T * T


class AccuracyThresholds(NamedTuple):
    """The condition: S >= tile * T + aligned * (sum of |x| over the tile) + sqrt(spread) * Q."""

    spread: float  # factor of Q * Q
    tile: float  # factor of T
    aligned: float  # factor of that sum


class AccuracyParams(NamedTuple):
    """Arguments of a call."""

    depth: DepthAxis  # the axis before the others
    groups: int  # of channels
    channels: int  # of x, in one group
    height: int  # rows of a slice of x
    width: int  # its columns
    bands: int  # parts of a slice, of whole rows of tiles
    tiles_down: int  # of a slice, along the first axis
    tiles_across: int  # along the last axis
    top: int  # row of x where the first tile begins; it may be above
    left: int  # column of x where it begins; it may be to the left
    outputs: int  # of a phase in a tile, along each axis


class RowSums(NamedTuple):
    """A number for every position of some rows of x."""

    values: Any  # of all positions
    first: int  # row
    stop: int  # the row after the last
    width: int  # of a row


def thresholds_record(thresholds: AccuracyThresholds, dtype: npt.DTypeLike) -> npt.NDArray[np.void]:
    """Thresholds as the kernel takes them, of the type of x."""
    return record(thresholds, **dict.fromkeys(AccuracyThresholds._fields, dtype))


def accuracy_thresholds(w, axes: tuple[Axis, ...], group: int) -> npt.NDArray[np.void] | None:
    """The thresholds for finite weights (C, M/group, k1, k2), a record; None if no tile can be accurate."""
    measure, combine = _measuring(axes, w.shape[0] // group, w.shape[1], group, w.dtype)
    measures, thresholds = np.empty(3 * group * w.shape[1]), np.empty(1, thresholds_dtype(w.dtype))
    measure.run((), None, readonly(w), measures)
    return thresholds if all(combine.run((), None, readonly(measures), thresholds)) else None


def threshold_steps(
    w: Operand, axes: tuple[Axis, ...], group: int, memory: PlanMemory
) -> tuple[Operand, tuple[KernelStep, ...]]:
    """The thresholds for finite weights, and the steps that compute them; NOT_MET if no tile can be accurate."""
    measure, combine = _measuring(axes, w.shape[0] // group, w.shape[1], group, w.dtype)
    measures = memory.scratch((3 * group * w.shape[1],), np.dtype(np.float64))
    thresholds = memory.scratch((1,), thresholds_dtype(w.dtype))
    measured = KernelStep(measure, (), (w.flat(), measures.flat(is_writable=True)))
    combined = KernelStep(
        combine, (), (measures.flat(), thresholds.flat(is_writable=True)), Condition.ALL_TRUE, (1, NOT_MET)
    )  # fmt: skip
    return thresholds, (measured, combined)


def thresholds_dtype(dtype: np.dtype[Any]) -> np.dtype[np.void]:
    """The type of thresholds for x of a type."""
    return thresholds_record(AccuracyThresholds(0, 0, 0), dtype).dtype


class MeasureParams(NamedTuple):
    """Arguments of measuring weights."""

    channels: int  # of x, in a group
    maps: int  # output channels of a group
    taps: int  # of a window


@lru_cache(maxsize=64)
def _measuring(axes: tuple[Axis, ...], channels: int, maps: int, group: int, _: np.dtype[Any]) -> tuple[Launch, Launch]:
    """The calls on (weights, measures) and (measures, thresholds)."""
    used, member = _met_taps(axes)
    share = member / (channels * member.sum(axis=0))
    params = record(MeasureParams(channels, maps, math.prod(axis.window.size for axis in axes)))
    work = group * maps * channels * len(used) // VECTOR_SPEEDUP
    measure = Launch(measure_weights, group * maps, work, params, used, share, member.astype(np.float64))
    return measure, Launch(combine_measures, group * maps, 0, channels)


@jit()
def measure_weights(w, measures, args, used, share, member, first, stop):
    """Write three numbers for some output channels, of w (C, M/group, taps) flat.

    They are the smallest mean magnitude of the weights of a phase, and the largest magnitude of their mean, both
    relative to their root mean square, and 1 if no weights are out of range, otherwise 0.

    for every output channel
        for every channel of the group, for every tap: sums of magnitudes, weights and squares
        for every phase: their means
    """
    params = args[0]
    channels, maps, taps = params.channels, params.maps, params.taps
    sizes, signed, squares = np.empty(used.size), np.empty(used.size), np.empty(used.size)
    means = np.empty(share.shape[1])
    for job in range(first, stop):
        group, out_map = job // maps, job % maps
        sizes[:] = 0
        signed[:] = 0
        squares[:] = 0
        for channel in range(channels):
            begin = ((group * channels + channel) * maps + out_map) * taps
            for number in range(used.size):
                weight = np.float64(w[begin + used[number]])
                sizes[number] += abs(weight)
                signed[number] += weight
                squares[number] += weight * weight
        least, largest, is_fine = 1.0, 0.0, True
        for phase in range(share.shape[1]):
            size, mean, square = 0.0, 0.0, 0.0
            for number in range(used.size):
                size += sizes[number] * share[number, phase]
                mean += abs(signed[number]) * share[number, phase]
                square += squares[number] * share[number, phase]
            means[phase] = square
            if size > 0:
                is_fine = is_fine and RANGE**-2 <= square <= RANGE**2
                least = min(least, size / np.sqrt(square))
                largest = max(largest, mean / np.sqrt(square))
        for number in range(used.size):
            whole = 0.0
            for phase in range(share.shape[1]):
                whole += means[phase] * member[number, phase]
            is_fine = is_fine and squares[number] / channels >= WINOGRAD_ACCURACY.tap**2 * whole
        measures[3 * job], measures[3 * job + 1], measures[3 * job + 2] = least, largest, is_fine


@jit()
def combine_measures(measures, thresholds, channels, first, stop):
    """Write the thresholds from the numbers of all output channels; False if no tile can be accurate."""
    least, largest = 1.0, 0.0
    for job in range(first, stop):
        if not (measures[3 * job + 2] > 0 and measures[3 * job] >= WINOGRAD_ACCURACY.mean):
            return False
        least, largest = min(least, measures[3 * job]), max(largest, measures[3 * job + 1])
    thresholds[0].spread = WINOGRAD_ACCURACY.deviations**2 * (1 - least**2) / least**2
    thresholds[0].tile = WINOGRAD_ACCURACY.tile_error * max(1.0, math.sqrt(channels / 64)) / least
    thresholds[0].aligned = WINOGRAD_ACCURACY.aligned_error * largest**2
    return True


@lru_cache(maxsize=64)
def _met_taps(axes: tuple[Axis, ...]):
    """The taps of a window that some output reads, and (taps, phases) whether a tap belongs to a phase with taps."""
    lines, sides = [np.full(axis.window.size, -1) for axis in axes], tiling_of(axes).sides
    for line, side in zip(lines, sides, strict=True):
        for number, taps in enumerate(side.taps):
            line[[tap for tap, _ in taps]] = number
    down, across = lines[0][:, None], lines[1][None, :]
    phases = np.where((down < 0) | (across < 0), -1, down * len(sides[1].taps) + across).reshape(-1)
    used, numbers = np.flatnonzero(phases >= 0), phases[phases >= 0]
    return used, np.equal.outer(numbers, sorted(set(numbers.tolist())))  # np.unique would import numpy.ma


def windows_of(axes: Sequence[Axis], tiling: WinogradTiling):
    """The windows of all outputs along both axes, by the positions where they start: two arrays.

    shapes   (shapes, 3) 1 where a window of this shape holds its first, second and third position
    needed   (shapes, positions down and across) 1 where an output of some phase there has this window
    """
    lines = [_windows_along(*each, tiling.outputs) for each in zip(axes, tiling.sides, tiling.tiles, strict=True)]
    shapes = sorted({shape for line in lines for shape in line})
    nowhere = [np.zeros(tiling.outputs * count, np.int64) for count in tiling.tiles]
    needed = [[line.get(shape, none) for line, none in zip(lines, nowhere, strict=True)] for shape in shapes]
    return np.array(shapes, np.int64).reshape(-1, 3), np.array([np.concatenate(each) for each in needed])


def _windows_along(axis: Axis, side, tiles: int, outputs: int) -> dict[tuple[int, ...], npt.NDArray[np.int64]]:
    """By the shape of a window, the positions of an axis whose outputs have it."""
    is_start: dict[tuple[int, ...], Any] = {}
    for phase, taps in enumerate(side.taps):
        if taps:
            shape = tuple(int(any(place == one for _, place in taps)) for one in range(3))
            steps = side.first + np.arange(outputs * tiles) - side.origins[phase]
            is_there = (steps >= 0) & (steps * axis.window.stride + phase < axis.large)
            is_start[shape] = is_start.get(shape, 0) | is_there.astype(np.int64)
    return is_start


def check_step(
    x: Operand, thresholds: Operand, axes: tuple[Axis, ...], group: int, depth: DepthAxis, memory: PlanMemory
) -> tuple[Operand, KernelStep]:
    """Flags of all tiles of x (N, C, [slices,] d1, d2), by image, slice and row, and the step that sets them."""
    bits = x if x.dtype.itemsize > 2 else x.view(BITS[x.dtype.name])
    shape = x.shape if len(x.shape) == 5 else (*x.shape[:2], 1, *x.shape[2:])
    tiles = shape[0] * depth.large * math.prod(tiling_of(axes).tiles)
    flags = memory.scratch((tiles,), np.dtype(np.uint8))
    views = bits.flat(), flags.flat(is_writable=True), thresholds.flat(is_writable=True)
    return flags, KernelStep(_check(axes, shape, bits.dtype, group, depth), (), views)


@lru_cache(maxsize=64)
def _check(axes: tuple[Axis, ...], shape: tuple[int, ...], _: np.dtype[Any], group: int, depth: DepthAxis) -> Launches:
    """The call on (x, flags, thresholds), x of a shape with slices."""
    tiling, (images, channels), (height, width) = tiling_of(axes), shape[:2], shape[-2:]
    batch, (down, across) = images * depth.large, tiling.tiles
    work, tables = math.prod(shape) * depth.taps // VECTOR_SPEEDUP, windows_of(axes, tiling)
    splits = [_bands(height, tiling, batch) for height in even_sizes(down, WINOGRAD_ACCURACY.band)]

    def for_threads(threads: int) -> Launch:
        bands = choose_split(splits, threads).jobs // batch
        params = AccuracyParams(
            depth=depth, groups=group, channels=channels // group, height=height, width=width, bands=bands,
            tiles_down=down, tiles_across=across, top=tiling.sides[0].first, left=tiling.sides[1].first,
            outputs=tiling.outputs,
        )  # fmt: skip
        args = record(params, depth=record(depth).dtype)
        return Launch(mark_inaccurate, batch * bands, work, args, *tables, parts=1)

    return Launches(work, for_threads)


def _bands(height: int, tiling: WinogradTiling, batch: int) -> JobSplit:
    """Cost of bands of `height` rows of tiles, in rows of x: rows that two bands share are read for each."""
    down, outputs = tiling.tiles[0], tiling.outputs
    bands, shared = -(-down // height), 4 - outputs
    return JobSplit(batch * bands, height * outputs + shared, batch * (down * outputs + bands * shared))


@jit(fastmath={"contract"})
def mark_inaccurate(x, flags, thresholds, args, shapes, needed, first, stop):
    """Mark inaccurate tiles in flat flags (N, slices, tiles down, tiles across), from flat x (N, C, slices, d1, d2).

    for every slice of every image, for every band of rows of tiles, for every group
        for every slice of x that it reads, for every channel and position of the band: its magnitude and its square
        for every row of tiles, for every shape of a window: all windows of the row, of any tile
    """
    params = args[0]
    groups, channels, height, width, bands = params.groups, params.channels, params.height, params.width, params.bands
    rows, columns, top, left, outputs = params.tiles_down, params.tiles_across, params.top, params.left, params.outputs
    tallest = (-(-rows // bands) - 1) * outputs + 4
    sums, squares = _zeros(x, tallest * width), _zeros(x, tallest * width)
    length = outputs * columns
    size, square, error, misses = _zeros(x, length + 4), _zeros(x, length + 4), _zeros(x, length), _zeros(x, length)
    whole, needed_down, needed_across = np.ones(4, np.int64), needed[:, : outputs * rows], needed[:, outputs * rows :]
    for job in range(first, stop):
        image, band = job // bands, job % bands
        begin, end = band * rows // bands, (band + 1) * rows // bands
        low, last = max(0, top + outputs * begin), min(height, top + outputs * (end - 1) + 4)
        count = max(0, last - low) * width
        for group in range(groups):
            sums[:count] = 0
            squares[:count] = 0
            for tap in range(params.depth.taps):
                met = image % params.depth.large + params.depth.begin - tap * params.depth.step
                if 0 <= met < params.depth.small:
                    first_channel = (image // params.depth.large * groups + group) * channels
                    plane = ((first_channel * params.depth.small + met) * height + low) * width
                    apart = params.depth.small * height * width
                    _add_channels(x, plane, apart, channels, sums[:count], squares[:count])
            sizes_there, squares_there = RowSums(sums, low, last, width), RowSums(squares, low, last, width)
            for row in range(begin, end):
                start = top + outputs * row
                _sum_rows(size, sizes_there, start, left, whole)
                _sum_rows(square, squares_there, start, left, whole)
                _list_errors(error, size, square, thresholds[0], outputs)
                misses[:] = 0
                for number in range(outputs):
                    for shape in range(shapes.shape[0]):
                        if needed_down[shape, outputs * row + number]:
                            _sum_rows(size, sizes_there, start + number, left, shapes[shape])
                            _sum_rows(square, squares_there, start + number, left, shapes[shape])
                            for other in range(shapes.shape[0]):
                                wanted, spread = needed_across[other], thresholds[0].spread
                                _count_short(misses, size, square, error, shapes[other], wanted, spread)
                for position in range(length):
                    if misses[position] != 0:
                        flags[(image * rows + row) * columns + position // outputs] = 1


@overload_by_type(inline=True)
def _magnitude(number):
    """|number|, or a NaN; of the bits of a 16-bit float as float32, in which NaN of float16 is infinity."""
    if isinstance(number, types.Float):
        return lambda number: abs(number)
    if number == types.uint16:
        return lambda number: np.uint32((number & 0x7FFF) << 16).view(np.float32)
    scale, infinity = np.float32(2.0**112), np.float32(np.inf)

    def of_float16(number):
        bits = np.uint32(number & 0x7FFF)
        return np.uint32(bits << 13).view(np.float32) * scale if bits < 0x7C00 else infinity

    return of_float16


@overload_by_type()
def _zeros(x, count):
    """`count` zeros, in the type of sums of x."""
    element = x.dtype if isinstance(x.dtype, types.Float) else types.float32
    return lambda x, count: np.zeros(count, element)


@jit_inline
def _add_channels(x, plane, apart, channels, sums, squares):
    """Add magnitudes and squares of all channels at every position, in parts that stay in the first cache."""
    for begin in range(0, sums.size, WINOGRAD_ACCURACY.positions):
        end = begin + WINOGRAD_ACCURACY.positions
        total, square = sums[begin:end], squares[begin:end]
        for channel in range(0, channels - 1, 2):
            one = x[plane + channel * apart + begin :][: total.size]
            two = x[plane + (channel + 1) * apart + begin :][: total.size]
            for place in range(total.size):
                first, second = _magnitude(one[place]), _magnitude(two[place])
                total[place] += first + second
                square[place] += first * first + second * second
        if channels % 2:
            one = x[plane + (channels - 1) * apart + begin :][: total.size]
            for place in range(total.size):
                last = _magnitude(one[place])
                total[place] += last
                square[place] += last * last


@jit_inline
def _sum_rows(line, rows, start, left, held):
    """Sum the held rows from `start` on, to a line that begins at column `left`."""
    line[:] = 0
    begin, end = max(0, left), min(rows.width, left + line.size)
    target = line[begin - left :]
    for place in range(held.size):
        row = start + place
        if held[place] and rows.first <= row < rows.stop:
            at = (row - rows.first) * rows.width
            source = rows.values[at + begin : at + end]
            for column in range(source.size):
                target[column] += source[column]


@jit_inline
def _list_errors(error, size, square, thresholds, outputs):
    """The threshold for the windows of every tile, from four rows; infinity where squares are not in range."""
    tile, aligned = thresholds.tile, thresholds.aligned
    for at in range(0, error.size, outputs):
        total = size[at] + size[at + 1] + size[at + 2] + size[at + 3]
        whole = square[at] + square[at + 1] + square[at + 2] + square[at + 3]
        value = tile * np.sqrt(whole) + aligned * total
        if not (total == 0 or 1 / SQUARES <= whole <= SQUARES):
            value = np.inf
        for number in range(outputs):
            error[at + number] = value


@jit_inline
def _count_short(misses, size, square, error, shape, needed, spread):
    """Count, for every position, the windows of a shape that fall short; a comparison with NaN is false."""
    one, two, three = square.dtype.type(shape[0]), square.dtype.type(shape[1]), square.dtype.type(shape[2])
    for at in range(misses.size):
        whole = one * size[at] + two * size[at + 1] + three * size[at + 2] - error[at]
        part = one * square[at] + two * square[at + 1] + three * square[at + 2]
        is_accurate = (whole >= 0) & (whole * whole >= spread * part)
        misses[at] += 0 if is_accurate else needed[at]


class FallbackAxis:
    """One axis of the tiles, and the outputs that a tile owns, relative to start * stride and in its image."""

    def __init__(self, axis: Axis, side, outputs: int) -> None:
        stride, steps = axis.window.stride, np.arange(outputs)
        own = np.concatenate([(steps - origin) * stride + phase for phase, origin in enumerate(side.origins)])
        low, high = int(own.min()), int(own.max())
        self.first, self.stride, self.large = side.first, stride, axis.large
        self.own, self.in_image = own, own - low
        self.image = Axis(high - low + 1, 4, axis.window, axis.begin + low)
