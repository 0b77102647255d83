"""Transposed convolution of inputs with one element per channel: nothing overlaps, so it is a product of matrices.

    y[n, column] = b[column // taps] + sum over channels c: x[n, c] * w[c, column]

The columns are the taps of all output channels. The kernel reads unpacked weights, a tile of columns at a time, once
for several images. For one image, reading them takes all the time: a thread reads its columns of `GEMM.channels` rows
side by side, in memory order, and keeps its sums in the first cache. BLAS would use threads of its own, which then
spin for milliseconds on cores that other threads need. Where y does not consist of whole windows, a second step copies
what is inside y.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu import copy_rows
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.axes import axis_at
from unpool.kernels.cpu.conv_transpose.algorithm import (
    Algorithm,
    CallContext,
    Steps,
)
from unpool.kernels.cpu.conv_transpose.problem import (
    ConvTransposeProblem,
    element_size,
    window_taps,
)
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes, vector_registers
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.jobs import PARTS_PER_THREAD
from unpool.kernels.cpu.machine.plan import KernelStep, Operand, PlanMemory
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.tuning import GEMM, GEMM_TILES, SUMS
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline, overload_by_type


class GemmParams(NamedTuple):
    """Arguments of a call."""

    batch: int  # number of images
    channels: int  # of x
    columns: int  # of w: taps of all output channels
    taps: int  # of a window
    activation: vec.ActivationParams  # of the sums


@jit_inline
def activates(problem: ConvTransposeProblem) -> bool:
    """True if the call can activate: if y consists of whole windows, and of many."""
    return is_whole(problem.axes) and not is_narrow(problem)


def steps(
    problem: ConvTransposeProblem,
    epilogue: Epilogue,
    memory: PlanMemory,
    x: Operand,
    w: Operand,
    b: Operand,
    y: Operand,
) -> tuple[KernelStep, ...]:
    """The steps that write y, from arrays of one type, activated only where `activates` allows it."""
    if is_whole(problem.axes):
        return (_multiply(problem, epilogue, x, w, b, y),)
    sizes, larges = [axis.window.size for axis in problem.axes], [axis.large for axis in problem.axes]
    starts, stops = zip(*(used_span(axis) for axis in problem.axes), strict=True)
    used = [stop - start for start, stop in zip(starts, stops, strict=True)]
    windows = memory.scratch((problem.batch, problem.maps, *sizes), y.dtype)
    rows = copy_rows.box_rows((sizes, larges), (starts, [0] * len(sizes)), used)
    sides = (problem.taps, problem.large, used[-1])
    place = copy_rows.launch(problem.batch * problem.maps, sides, rows, problem.maps)
    placed = KernelStep(place, (), (windows.flat(), y.flat(is_writable=True), b.flat()))
    return (_multiply(problem, PLAIN, x, w, b, windows), placed) if math.prod(used) else (placed,)


@jit_inline
def is_whole(axes: Any) -> bool:
    """True if y consists of whole windows."""
    for number in range(len(axes)):
        axis = axis_at(axes, number)
        if axis.begin != 0 or axis.large != axis.window.size:
            return False
    return True


@jit_inline
def used_span(axis: Axis) -> tuple[int, int]:
    """The taps that reach an output: the first one, and their end."""
    return axis.begin, max(axis.begin, min(axis.window.size, axis.begin + axis.large))


def _multiply(
    problem: ConvTransposeProblem, epilogue: Epilogue, x: Operand, w: Operand, b: Operand, windows: Operand
) -> KernelStep:
    """The step that writes all windows."""
    columns = problem.maps * problem.taps
    if is_narrow(problem):
        launch = Launch(multiply_maps, problem.maps, problem.batch * problem.channels * columns, problem.batch)
        return KernelStep(launch, (), (x.flat(), w.flat(), b.flat(), windows.flat(is_writable=True)))
    activation = vec.ActivationParams(epilogue.is_active, *epilogue.bounds)
    params = GemmParams(problem.batch, problem.channels, columns, problem.taps, activation)
    args = record(params, activation=vec.activation_dtype(problem.dtype))
    kernel = _make_kernel_of_one(problem.dtype) if problem.batch == 1 else _make_kernel(problem.dtype)
    parts = 1 if problem.batch == 1 else PARTS_PER_THREAD
    launch = Launch(kernel, -(-columns // width(problem)), problem.split_cost, args, parts=parts)
    return KernelStep(launch, (x, w, b, windows))


def _vectors() -> int:
    """Vectors of columns in a tile for several images."""
    return GEMM_TILES[vector_registers()][1]


@compile_as(_vectors)
def _compiled_vectors() -> Callable[..., Any]:
    vectors = _vectors()
    return lambda: vectors


@jit_inline
def width(problem: ConvTransposeProblem) -> int:
    """Columns of a tile."""
    return (GEMM.tile_of_one[1] if problem.batch == 1 else _vectors()) * (vector_bytes() // element_size(problem))


@jit_inline
def is_narrow(problem: ConvTransposeProblem) -> bool:
    """True if all columns are fewer than those of a tile."""
    return problem.maps * window_taps(problem.axes) < width(problem)


@jit(fastmath={"contract"})
def multiply_maps(x, w, b, y, batch, first, stop):
    """Write some output channels of all images.

    for every image, for every part of the input channels, for every channel of it
        for all columns of these output channels, which stay in the cache
    """
    channels, columns = x.size // batch, y.size // batch
    window = columns // b.size
    part = np.empty((stop - first) * window, y.dtype)
    together = max(SUMS.together, int(np.sqrt(channels)))
    for image in range(batch):
        total = y[image * columns + first * window : image * columns + stop * window]
        total[:] = 0
        for begin in range(0, channels, together):
            part[:] = 0
            for channel in range(begin, min(channels, begin + together)):
                row, factor = w[channel * columns + first * window :], x[image * channels + channel]
                for column in range(part.size):
                    part[column] += factor * row[column]
            for column in range(part.size):
                total[column] += part[column]
        for out_map in range(stop - first):
            bias = b[first + out_map]
            for column in range(out_map * window, (out_map + 1) * window):
                total[column] += bias


@specialize
def _make_kernel_of_one(dtype: np.dtype[Any]):
    (rows, vectors), element, size = GEMM.tile_of_one, getattr(types, dtype.name), dtype.itemsize
    lanes = vector_bytes() // size
    wide = vectors * lanes

    @jit()
    def conv_transpose_gemm_of_one(x, w, b, y, args, first, stop):
        """Write some tiles of columns for one image. The last one ends with w.

        for every part of the channels, for every few of them, for every tile of columns
            for every of these channels, in registers
        """
        params = args[0]
        channels, columns, taps = params.channels, params.columns, params.taps
        activation = vec.splat_activation(params.activation, lanes)
        begin, end, tiles = first * wide, min(stop * wide, columns), stop - first
        part, total = np.empty(tiles * wide, element), np.empty(tiles * wide, element)
        together, row_bytes = max(SUMS.together, int(np.sqrt(channels))), columns * size
        for low in range(0, channels, together):
            high = min(channels, low + together)
            for channel in range(low, high, GEMM.channels):
                for number in range(tiles):
                    weights = vec.address_of(w) + channel * row_bytes + min(begin + number * wide, end - wide) * size
                    place = vec.address_of(part) + number * wide * size
                    sums = vec.tile_load(place, lanes * size, element, lanes, vectors)
                    if channel == low:
                        sums = vec.tile_zero(element, lanes, vectors)
                    for other in range(channel, min(channel + GEMM.channels, high)):
                        value = vec.address_of(x) + other * size
                        sums = vec.tile_add_product(sums, value, weights, element, lanes, rows, vectors)
                        weights += row_bytes
                    vec.tile_store(sums, place, wide * size, rows, vectors)
            for at in range(0, tiles * wide * size, lanes * size):
                value = vec.load(vec.address_of(part) + at, element, lanes)
                if low > 0:
                    value = value + vec.load(vec.address_of(total) + at, element, lanes)
                vec.store(vec.address_of(total) + at, value)
        for number in range(tiles):
            at = min(begin + number * wide, end - wide)
            out_map, left = at // taps, taps - at % taps
            for column in range(wide):  # the bias of each column, in the place of the sums that are in `total`
                bias = vec.load(vec.address_of(b) + out_map * size, element, 1)
                vec.store(vec.address_of(part) + column * size, bias)
                left -= 1
                if left == 0:
                    out_map, left = out_map + 1, taps
            for column in range(0, wide * size, lanes * size):
                value = vec.load(vec.address_of(total) + number * wide * size + column, element, lanes)
                value = value + vec.load(vec.address_of(part) + column, element, lanes)
                vec.store(vec.address_of(y) + at * size + column, vec.activate_sums(value, activation))

    return conv_transpose_gemm_of_one


@specialize
def _make_kernel(dtype: np.dtype[Any]):
    (rows, vectors), element, size = GEMM_TILES[vector_registers()], getattr(types, dtype.name), dtype.itemsize
    lanes = vector_bytes() // size
    static, wide = vec.StaticArgs(element=element, lanes=lanes, rows=rows, vectors=vectors), vectors * lanes

    @jit()
    def conv_transpose_gemm(x, w, b, y, args, first, stop):
        """Write some tiles of columns. The last one ends with w.

        for every tile of columns, for every tile of images
            for every channel, in registers
        """
        params = args[0]
        batch, channels, columns, taps = params.batch, params.channels, params.columns, params.taps
        activation = vec.splat_activation(params.activation, lanes)
        packed_images = np.empty(-(-batch // rows) * rows * channels, element)
        results, line = np.empty(rows * wide, element), np.empty(wide, element)
        for image in range(-(-batch // rows) * rows):
            source = vec.address_of(x) + min(image, batch - 1) * channels * size
            tile = vec.address_of(packed_images) + (image // rows * channels * rows + image % rows) * size
            for channel in range(channels):
                vec.store(tile + channel * rows * size, vec.load(source + channel * size, element, 1))
        for job in range(first, stop):
            at = min(job * wide, columns - wide)
            number, left = at // taps, taps - at % taps
            for column in range(wide):
                vec.store(vec.address_of(line) + column * size, vec.load(vec.address_of(b) + number * size, element, 1))
                left -= 1
                if left == 0:
                    number, left = number + 1, taps
            for image in range(0, batch, rows):
                images, target = vec.address_of(packed_images) + image * channels * size, vec.address_of(results)
                sum_tile(images, vec.address_of(w) + at * size, target, params, static)
                for row in range(min(rows, batch - image)):
                    out = vec.address_of(y) + ((image + row) * columns + at) * size
                    for part in range(0, wide, lanes):
                        value = vec.load(target + (row * wide + part) * size, element, lanes)
                        value = value + vec.load(vec.address_of(line) + part * size, element, lanes)
                        vec.store(out + part * size, vec.activate_sums(value, activation))

    return conv_transpose_gemm


@overload_by_type()
def sum_tile(images, weights, target, params, static):
    """Writes one tile, summed over parts of the channels: errors grow with the length of a sum."""
    element, lanes, rows, vectors, most = static.element, static.lanes, static.rows, static.vectors, SUMS.together
    size, wide, registers = element.bitwidth // 8, lanes * vectors, rows * vectors

    def sum_up(images, weights, target, params, static):
        channels, apart = params.channels, params.columns * size
        together = max(most, int(np.sqrt(channels)))
        for first in range(0, channels, together):
            total = vec.tile_zero(element, lanes, registers)
            for _channel in range(min(together, channels - first)):
                total = vec.tile_add_product(total, images, weights, element, lanes, rows, vectors)
                images += rows * size
                weights += apart
            if first == 0:
                vec.tile_store(total, target, wide * size, rows, vectors)
            else:
                vec.tile_add_to(total, target, wide * size, rows, vectors)

    return sum_up


@jit_inline
def is_possible(problem: ConvTransposeProblem) -> bool:
    """True if all windows are of one element of x, without dilation: then nothing overlaps."""
    if problem.group != 1 or problem.batch * problem.channels == 0:
        return False
    for number in range(len(problem.axes)):
        axis = axis_at(problem.axes, number)
        if axis.small != 1 or axis.window.dilation != 1:
            return False
    return True


def _steps(context: CallContext, x: Operand, b: Operand, y: Operand) -> Steps:
    w, before = context.wide_weights()
    return (*before, *steps(context.problem, context.epilogue, context.memory, x, w, b, y))


ALGORITHM = Algorithm(
    "gemm_1x1",
    supports=lambda problem: is_possible(problem),  # found when it is called: benchmarks replace it
    is_faster=lambda *_: True,
    steps=_steps,
    fits=lambda problem, epilogue: problem.storage.is_plain and epilogue.is_simple and activates(problem),
    packs_in_steps=True,
)
