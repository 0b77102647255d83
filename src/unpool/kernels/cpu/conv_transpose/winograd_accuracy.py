"""Finds tiles for which Winograd is inaccurate, and computes them again by another algorithm.

Rounding errors must come from the output's own window.

The error of a tile is proportional to T, the root of the sum of squares over its 4 x 4 positions and all channels. The
measure of an output is |w| * |x|, summed over its window only. If a window has the sum S of |x| and the root Q of the
sum of squares, and the mean magnitude of the weights is m times their root mean square r, then for independent weights

    |w| * |x|  is about  m * r * S, with a deviation of sqrt(1 - m * m) * r * Q

A tile is accurate if for every window the lower end of that, DEVIATIONS away, is above TILE_ERROR * r * T and, where
weights have one sign, above ALIGNED_ERROR * r times the sum of |x| over the tile, because such sums and their errors
grow faster. The constants were measured: errors are seldom a tenth of the bound, 64 times the machine's precision.
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
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.conv_transpose.winograd_tiling import FLAT, DepthAxis, WinogradTiling, add_depth, tiling_of
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.jit import jit, record
from unpool.kernels.cpu.machine.jobs import JobSplit, choose_split, even_sizes
from unpool.kernels.cpu.machine.plan import Kind, Operand, PlanStep
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch, thread_count
from unpool.kernels.cpu.vector import BITS
from unpool.kernels.cpu.vector.registration import jit_inline, overload_by_type

DEVIATIONS = 3
TILE_ERROR = 0.16
ALIGNED_ERROR = 0.06
# least mean magnitude of the weights of an output channel and phase, relative to their root mean square: 0.8 for a
# normal distribution, less for sparse weights
LEAST_MEAN = 0.3
LEAST_TAP = 0.25  # least root mean square of the weights of one tap, relative to that of all taps of its phase
RANGE = 2.0**40  # root mean squares of weights lie between its inverse and this: no product overflows or loses digits
SQUARES = 2.0**100  # the same for T * T
BAND = 8  # rows of tiles that one job checks
FITTING_POSITIONS = 2048  # positions whose sums over all channels stay in the first cache
IMAGES = 8  # inaccurate tiles that are computed again in one call


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
    left: int  # column likewise
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
    channels, (used, member) = w.shape[0] // group, _met_taps(axes)
    flat = w.reshape(group, channels, w.shape[1], -1)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.abs(flat).sum(axis=1), np.abs(flat.sum(axis=1)), np.einsum("gcmt,gcmt->gmt", flat, flat)
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
    spread = DEVIATIONS**2 * (1 - least**2) / least**2
    return thresholds_record(AccuracyThresholds(spread, error, ALIGNED_ERROR * aligned**2), w.dtype)


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


def inaccurate_tiles(x, thresholds, axes: tuple[Axis, ...], group: int, threads: int | None, depth: DepthAxis = FLAT):
    """The numbers of inaccurate tiles of C-contiguous x (N, C, [slices,] d1, d2), by image, by slice, by row."""
    count = thread_count(x.size * depth.taps // VECTOR_SPEEDUP, threads)
    bits = x if x.dtype.itemsize > 2 else x.view(BITS[x.dtype.name])
    launch, tiles, *tables = _check(axes, add_depth(bits).shape, bits.dtype, group, count, depth)
    flags = np.zeros(tiles, np.uint8)
    launch.run((), count, readonly(bits), flags, thresholds, *tables)
    return flags.nonzero()[0]


def check_steps(
    x: Operand, thresholds, axes: tuple[Axis, ...], group: int, depth: DepthAxis
) -> tuple[Operand, tuple[PlanStep, ...]]:
    """The flags of all tiles, and the steps of a plan that set them."""
    count = thread_count(x.size * depth.taps // VECTOR_SPEEDUP, None)
    bits = x if x.dtype.itemsize > 2 else x.view(BITS[x.dtype.name])
    shape = x.shape if len(x.shape) == 5 else (*x.shape[:2], 1, *x.shape[2:])
    launch, tiles, *tables = _check(axes, shape, bits.dtype, group, count, depth)
    flags = Operand(Kind.SCRATCH, 0, (tiles,), np.dtype(np.uint8))
    return flags, launch.steps((), count, bits.flat(), flags.flat(is_writable=True), thresholds, *tables)


@lru_cache(maxsize=64)
def _check(axes: tuple[Axis, ...], shape: tuple[int, ...], _, group: int, threads: int, depth: DepthAxis = FLAT):
    """The launch of the check for a number of threads, the number of tiles, and the arguments of a call."""
    tiling, (images, channels), (height, width) = tiling_of(axes), shape[:2], shape[-2:]
    batch, (down, across) = images * depth.large, tiling.tiles
    splits = [_bands(height, tiling, batch) for height in even_sizes(down, BAND)]
    bands = choose_split(splits, threads).jobs // batch
    params = AccuracyParams(
        depth=depth, groups=group, channels=channels // group, height=height, width=width, bands=bands,
        tiles_down=down, tiles_across=across, top=tiling.sides[0].first, left=tiling.sides[1].first,
        outputs=tiling.outputs,
    )  # fmt: skip
    launch = Launch(mark_inaccurate, batch * bands, math.prod(shape) * depth.taps // VECTOR_SPEEDUP, parts=1)
    return launch, batch * down * across, record(params, depth=record(depth).dtype), *windows_of(axes, tiling)


def _bands(height: int, tiling: WinogradTiling, batch: int) -> JobSplit:
    """Cost of bands of `height` rows of tiles, in rows of x: rows that two bands share are read for each."""
    down, outputs = tiling.tiles[0], tiling.outputs
    bands, shared = -(-down // height), 4 - outputs
    return JobSplit(batch * bands, height * outputs + shared, batch * (down * outputs + bands * shared))


@jit(fastmath={"contract"})
def mark_inaccurate(x, flags, thresholds, args, shapes, needed, first, stop):
    """Mark inaccurate tiles in flat flags (N, slices, tiles down, tiles across), from flat x (N, C, slices, d1, d2).

    for every slice of every image, for every band of rows of tiles, for every group
        for every slice that it meets, for every channel and position of the band: its magnitude and its square
        for every row of tiles, for every shape of a window: all windows of the row, whatever tile they are of
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
    for begin in range(0, sums.size, FITTING_POSITIONS):
        total, square = sums[begin : begin + FITTING_POSITIONS], squares[begin : begin + FITTING_POSITIONS]
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


class WinogradFallback:
    """The tiles of one set of shapes, computed by `build(problem, *args)`; `depth` is the axis before the two."""

    def __init__(self, problem: ConvTransposeProblem, build: Any, args: Any, depth: DepthAxis = FLAT) -> None:
        tiling = tiling_of(problem.axes)
        self._depth, self._outputs, self._tiles = depth, tiling.outputs, tiling.tiles
        self._lines = [FallbackAxis(*each, tiling.outputs) for each in zip(problem.axes, tiling.sides, strict=True)]
        axes = tuple(line.image for line in self._lines)
        self._compute = build(problem._replace(axes=axes, batch=IMAGES), *args)

    def recompute(self, numbers: Any, x: Any, w: Any, b: Any, y: Any, threads: int | None) -> bool:
        """Write the outputs of these tiles, with flat weights; False if the algorithm for them does not write."""
        x, y = add_depth(x), add_depth(y)
        for first in range(0, len(numbers), IMAGES):
            slices, places = np.divmod(numbers[first : first + IMAGES], self._tiles[0] * self._tiles[1])
            starts = [
                line.first + self._outputs * place
                for line, place in zip(self._lines, np.divmod(places, self._tiles[1]), strict=True)
            ]
            images = np.zeros((IMAGES, x.shape[1] * self._depth.taps, 4, 4), x.dtype)
            self._take(images, x, slices, starts)
            computed = np.empty((IMAGES, y.shape[1], *(line.image.large for line in self._lines)), y.dtype)
            if not self._compute(images, w, b, computed, threads):
                return False
            self._put(y, computed, slices, starts)
        return True

    def _take(self, images: Any, x: Any, slices: Any, starts: Any) -> None:
        """Copy the positions of tiles that lie in x, of every slice that they read."""
        places = [start[:, None] + np.arange(4) for start in starts]
        inside = [(0 <= each) & (each < size) for each, size in zip(places, x.shape[3:], strict=True)]
        batch, numbers = np.divmod(slices, self._depth.large)
        for tap in range(self._depth.taps):
            met = numbers + self._depth.begin - tap * self._depth.step
            is_there = (0 <= met) & (met < self._depth.small)
            tile, row, column = np.nonzero(is_there[:, None, None] & inside[0][:, :, None] & inside[1][:, None, :])
            values = x[batch[tile], :, met[tile], places[0][tile, row], places[1][tile, column]]
            images[tile, tap :: self._depth.taps, row, column] = values

    def _put(self, y: Any, computed: Any, slices: Any, starts: Any) -> None:
        """Copy the outputs that the tiles own to y."""
        rows, columns = self._lines
        down, across = starts[0][:, None] * rows.stride + rows.own, starts[1][:, None] * columns.stride + columns.own
        is_row, is_column = (0 <= down) & (down < rows.large), (0 <= across) & (across < columns.large)
        tile, row, column = np.nonzero(is_row[:, :, None] & is_column[:, None, :])
        batch, numbers = np.divmod(slices[tile], self._depth.large)
        values = computed[tile, :, rows.in_image[row], columns.in_image[column]]
        y[batch, :, numbers, down[tile, row], across[tile, column]] = values
