"""The steps of a plan with Winograd's algorithm: inaccurate tiles are computed again, by phases.

mark        flags of inaccurate tiles
list        none: only the first line follows; some: the second; too many, or any without fallbacks: NOT_MET
winograd
winograd, take, phases, put
"""

import math
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import copy_rows
from unpool.kernels.cpu.axes import axis_at
from unpool.kernels.cpu.conv_transpose import phases, winograd, winograd_accuracy
from unpool.kernels.cpu.conv_transpose.algorithm import (
    NO_STEPS,
    Algorithm,
    CallContext,
    KeptWeights,
    PackRequest,
    Steps,
    finite,
    packing,
)
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, group_shape, is_empty
from unpool.kernels.cpu.conv_transpose.winograd_accuracy import FallbackAxis, check_step
from unpool.kernels.cpu.conv_transpose.winograd_tiling import (
    DepthAxis,
    depth_axis,
    flatten_depth,
    flatten_weights,
    tiling_of,
)
from unpool.kernels.cpu.machine.jit import jit, record
from unpool.kernels.cpu.machine.plan import DONE, NOT_MET, Condition, KernelStep, Operand, PlanMemory
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.tuning import WINOGRAD_COSTS
from unpool.kernels.cpu.vector.registration import jit_inline


class OutputImage(NamedTuple):
    """The outputs of a tile."""

    stride_down: int  # of the window, along the first axis
    stride_across: int  # along the last axis
    height: int  # rows
    width: int  # columns


class TilesParams(NamedTuple):
    """Arguments of a call."""

    depth: DepthAxis  # the axis before the others
    channels: int  # of x, or of y
    height: int  # rows of a slice of x, or of y
    width: int  # its columns
    tiles: int  # of a slice
    tiles_across: int  # along the last axis
    outputs: int  # of a phase in a tile, along each axis
    top: int  # row of x where the first tile begins; it may be above
    left: int  # column of x where it begins; it may be to the left
    image: OutputImage


class OwnLines(NamedTuple):
    """The outputs of a tile along an axis: where in y, from its first position times the stride, and in its image."""

    rows: Any
    columns: Any


class TileImages(NamedTuple):
    """How inaccurate tiles are computed again: as small images."""

    most: int  # tiles
    images: Operand
    computed: Operand
    steps: tuple[KernelStep, ...]  # that compute them


def image_problem(flat: ConvTransposeProblem, most: int) -> ConvTransposeProblem:
    """The call that computes `most` inaccurate tiles as images."""
    axes = tuple(line.image for line in _lines(flat))
    return flat._replace(axes=axes, batch=most)


def _tile_steps(
    flat: ConvTransposeProblem, depth: DepthAxis, x: Operand, y: Operand, thresholds: Operand, compute: KernelStep,
    again: TileImages | None, memory: PlanMemory,
) -> tuple[KernelStep, ...]:  # fmt: skip
    """All steps, of a call by slices; `compute` computes all tiles. Without `again` all have to be accurate."""
    flags, marked = check_step(x, thresholds, flat.axes, flat.group, depth, memory)
    most = 0 if again is None else again.most
    numbers = memory.scratch((most + 1,), np.dtype(np.int64))
    listed = KernelStep(
        Launch(list_flagged, flags.size, 0, most), (), (flags.flat(), numbers.flat(is_writable=True)),
        Condition.NUMBER, (1, 2, NOT_MET),
    )  # fmt: skip
    computed = compute._replace(then=(DONE,))
    if again is None:
        return marked, listed, computed
    image = again.images
    tiling, lines = tiling_of(flat.axes), _lines(flat)
    bits, kind = {"depth": record(depth).dtype}, f"int{8 * x.dtype.itemsize}"
    params = TilesParams(
        depth=depth, channels=image.shape[1] // depth.taps, height=x.shape[-2], width=x.shape[-1],
        tiles=math.prod(tiling.tiles), tiles_across=tiling.tiles[1], outputs=tiling.outputs, top=lines[0].first,
        left=lines[1].first, image=OutputImage(lines[0].stride, lines[1].stride, *again.computed.shape[-2:]),
    )  # fmt: skip
    of_y = params._replace(channels=again.computed.shape[1], height=y.shape[-2], width=y.shape[-1])
    jobs, written = image.shape[0], image.view(kind).flat(is_writable=True)
    take = Launch(take_tiles, jobs, 0, record(params, **bits))
    taken = KernelStep(take, (), (x.view(kind).flat(), written, numbers.flat()))
    owned = OwnLines(*(np.stack([line.own, line.in_image], axis=1) for line in lines))
    read, to = again.computed.view(kind).flat(), y.view(kind).flat(is_writable=True)
    put = KernelStep(Launch(put_tiles, jobs, 0, record(of_y, **bits), owned), (), (to, read, numbers.flat()))
    return (marked, listed, computed, compute, taken, *again.steps, put)


def _lines(flat: ConvTransposeProblem) -> list[FallbackAxis]:
    tiling = tiling_of(flat.axes)
    return [FallbackAxis(*each, tiling.outputs) for each in zip(flat.axes, tiling.sides, strict=True)]


@jit()
def list_flagged(flags, numbers, most, first, stop):
    """Write the number of flags that are set, and which; 0 if none is, 1 if some are, 2 if more than `most` are."""
    count = 0
    for place in range(first, stop):
        if flags[place]:
            if count == most:
                return 2
            count += 1
            numbers[count] = place
    numbers[0] = count
    return 1 if count else 0


@jit()
def take_tiles(x, images, numbers, args, first, stop):
    """Copy the positions of some tiles that lie in x, of every slice that they read, to images that are zero.

    for every tile, for every channel, for every slice that it reads, for every position
    """
    params, depth = args[0], args[0].depth
    channels, height, width = params.channels, params.height, params.width
    for tile in range(first, min(stop, numbers[0])):
        piece, place = numbers[1 + tile] // params.tiles, numbers[1 + tile] % params.tiles
        top = params.top + params.outputs * (place // params.tiles_across)
        left = params.left + params.outputs * (place % params.tiles_across)
        batch, number = piece // depth.large, piece % depth.large
        for channel in range(channels):
            for tap in range(depth.taps):
                met = number + depth.begin - tap * depth.step
                if 0 <= met < depth.small:
                    source = ((batch * channels + channel) * depth.small + met) * height
                    target = ((tile * channels + channel) * depth.taps + tap) * 16
                    for row in range(max(0, -top), min(4, height - top)):
                        for column in range(max(0, -left), min(4, width - left)):
                            place_in_x = (source + top + row) * width + left + column
                            images[target + 4 * row + column] = x[place_in_x]


@jit()
def put_tiles(y, computed, numbers, args, lines, first, stop):
    """Copy the outputs that some tiles own from their images to y.

    for every tile, for every channel, for every row and column that it owns
    """
    params, depth, rows, columns = args[0], args[0].depth, lines.rows, lines.columns
    channels, height, width = params.channels, params.image.height, params.image.width
    for tile in range(first, min(stop, numbers[0])):
        piece, place = numbers[1 + tile] // params.tiles, numbers[1 + tile] % params.tiles
        top = (params.top + params.outputs * (place // params.tiles_across)) * params.image.stride_down
        left = (params.left + params.outputs * (place % params.tiles_across)) * params.image.stride_across
        batch, number = piece // depth.large, piece % depth.large
        for channel in range(channels):
            target = ((batch * channels + channel) * depth.large + number) * params.height
            source = (tile * channels + channel) * height
            for line in range(rows.shape[0]):
                row = top + rows[line, 0]
                if 0 <= row < params.height:
                    for cell in range(columns.shape[0]):
                        column = left + columns[cell, 0]
                        if 0 <= column < params.width:
                            value = computed[(source + rows[line, 1]) * width + columns[cell, 1]]
                            y[(target + row) * params.width + column] = value


def _flat(problem: ConvTransposeProblem) -> ConvTransposeProblem:
    """The call by slices."""
    flat = flatten_depth(problem)
    assert flat is not None
    return flat


@jit_inline
def _can_flatten(axes: Any) -> bool:
    """As `flatten_depth` is not None."""
    return len(axes) == 2 or (len(axes) == 3 and axis_at(axes, 0).window.stride == 1)


@jit_inline
def _flat_cost(problem: ConvTransposeProblem, is_cached: bool) -> float:
    """The cost of a group of the call by slices."""
    (channels, maps, size), (batch, taps) = group_shape(problem), _slices(problem)
    axes = problem.axes[len(problem.axes) - 2 :]
    return winograd.cost(axes, batch, channels * taps, maps, size, is_cached)


@jit_inline
def _slices(problem: ConvTransposeProblem) -> tuple[int, int]:
    """The batch of the call by slices, and the slices that each of y reads."""
    batch, taps = problem.batch, 1
    if len(problem.axes) == 3:
        first = axis_at(problem.axes, 0)
        batch, taps = batch * first.large, first.window.size
    return batch, taps


@jit_inline
def cost(problem: ConvTransposeProblem) -> float:
    """As `Algorithm.cost`."""
    return problem.group * _flat_cost(problem, problem.is_cached)


@jit_inline
def supports(problem: ConvTransposeProblem) -> bool:
    """As `Algorithm.supports`."""
    if problem.storage.is_channels_last or problem.is_exact or is_empty(problem) or not _can_flatten(problem.axes):
        return False
    return _flat_cost(problem, True) < math.inf


@jit_inline
def is_faster(problem: ConvTransposeProblem, _: Any) -> bool:
    """As `Algorithm.is_faster`."""
    (channels, maps, size), (batch, taps) = group_shape(problem), _slices(problem)
    axes = problem.axes[len(problem.axes) - 2 :]
    return winograd.is_cheapest(axes, batch, channels * taps, maps, size, problem.is_cached)


def _pack(w: Any, request: PackRequest) -> Any:
    """The transformed weights, and the thresholds of accuracy."""
    problem, wide = request.problem, finite(w, request.problem.dtype)
    if wide is None:
        return None
    flat, axes = flatten_weights(wide), problem.axes[-2:]
    thresholds = winograd_accuracy.accuracy_thresholds(flat, axes, problem.group)
    return None if thresholds is None else (winograd.pack(flat, axes, problem.group, request.threads), thresholds)


def _steps(context: CallContext, x: Operand, b: Operand, y: Operand) -> Steps | None:
    problem, memory, flat, depth = (
        context.problem,
        context.memory,
        _flat(context.problem),
        depth_axis(context.problem.axes),
    )
    assert depth is not None
    most = int(WINOGRAD_COSTS.inaccurate * flat.batch * math.prod(tiling_of(flat.axes).tiles) + 1)
    few = image_problem(flat, most)
    before, pack_again = NO_STEPS, NO_STEPS
    again: Operand | None = None
    if isinstance(context.w, KeptWeights):
        pack, pack_few = packing(ALGORITHM, problem), packing(phases.ALGORITHM, few, flatten_weights)
        packed = context.w.constant(lambda w, threads: _item(pack(w, threads), 0), (), flat.dtype)
        bounds = winograd_accuracy.thresholds_dtype(flat.dtype)
        thresholds = context.w.constant(lambda w, threads: _item(pack(w, threads), 1), (1,), bounds)
        if packed is None or thresholds is None:
            return None
        if context.fallbacks:
            again = context.w.constant(pack_few, (), flat.dtype)
            assert again is not None, "these weights are finite"
    else:
        wide, checked = context.finite_weights()
        w, moved = _move_depth(wide, memory)
        thresholds, measured = winograd_accuracy.threshold_steps(w, flat.axes, flat.group, memory)
        packed, pack_all = winograd.pack_step(w, flat.axes, flat.group, memory)
        again, pack_step = phases.pack_step(w, few, memory)
        before, pack_again = (*checked, *moved, *measured, pack_all), (pack_step,)
    tiles = None
    if again is not None:
        images = memory.scratch((few.batch, few.channels, 4, 4), x.dtype)
        computed = memory.scratch((few.batch, few.maps * few.group, *(axis.large for axis in few.axes)), y.dtype)
        compute = KernelStep(phases.launch(few, context.storage, context.epilogue), (images, again, b, computed))
        tiles = TileImages(most, images, computed, (*pack_again, compute))
    all_tiles = KernelStep(winograd.launch(flat, context.storage, context.epilogue, depth), (x, packed, b, y))
    return (*before, *_tile_steps(flat, depth, x, y, thresholds, all_tiles, tiles, memory))


def _move_depth(w: Operand, memory: PlanMemory) -> tuple[Operand, Steps]:
    """The weights of the call by slices."""
    if len(w.shape) == 4:
        return w, ()
    channels, maps, taps, *window = w.shape
    length = math.prod(window)
    moved = memory.scratch((channels * taps, maps, *window), w.dtype)
    places = np.arange(maps * taps).reshape(maps, taps)
    table = np.stack([places.T, np.arange(maps * taps).reshape(taps, maps)], axis=-1).reshape(-1, 2) * length
    launch = copy_rows.launch(channels, (maps * taps * length, maps * taps * length, length), table)
    return moved, (KernelStep(launch, (), (w.flat(), moved.flat(is_writable=True), w.flat())),)


def _item(pair: Any, number: int) -> Any:
    return None if pair is None else pair[number]


ALGORITHM = Algorithm(
    "winograd",
    supports=supports,
    is_faster=is_faster,
    steps=_steps,
    fits=lambda _, epilogue: epilogue.is_simple and not epilogue.is_channels_last,
    pack=_pack,
    packing_key=lambda problem: winograd.packing_key(problem.axes[-2:]),
    packs_in_steps=True,
    cost=cost,
)
