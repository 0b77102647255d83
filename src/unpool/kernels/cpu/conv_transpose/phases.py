"""Transposed convolution as small dense products, one per phase of the output (`phases_plan.py` has the formula).

The rows (phase, output channel) of a class of phases are tiles of a register-blocked product, which reads packed
weights and the flat line of the input, and nothing else. Padding is multiplied, so weights must be finite. Channels are
summed in pieces: the input of one piece stays in the first cache, every weight is read once, and errors stay small.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.conv_transpose import phases_plan
from unpool.kernels.cpu.conv_transpose.phase_line import BlockResults, fill_line, store_channels, store_plane
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.threads import Launch, Launches
from unpool.kernels.cpu.vector import BITS
from unpool.kernels.cpu.vector.specialize import StaticArgs, overload_by_type, record


def launch(problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue = PLAIN) -> Launches:
    """The call on C-contiguous (x, packed, b, y): x and y of type `storage`, `packed` from `phases_pack.pack`."""

    def for_threads(threads: int) -> Launch:
        channels, maps, last = problem.channels // problem.group, problem.maps, problem.axes[-1]
        whole = phases_plan.blocking(problem.axes, channels, maps, problem.dtype.itemsize)
        cut, parts = phases_plan.blocking_for_threads(whole, problem, threads)
        plan, y_maps, lanes = cut.plan, maps * problem.group, vector_bytes() // problem.dtype.itemsize
        line, pitch = phases_plan.line_pitch(plan, cut.block, lanes)
        x_batch, x_channel, x_lane = _steps(problem.channels, problem.small, epilogue)
        y_batch, y_map, y_lane = _steps(y_maps, problem.large, epilogue)
        params = PhasesParams(
            group=problem.group, channels=channels, maps=maps, blocks=-(-plan.length // cut.block),
            chunks=-(-maps // cut.chunk), block=cut.block, chunk=cut.chunk, length=plan.length, pitch=pitch,
            tile=cut.tile, x_batch=x_batch, x_channel=x_channel, x_lane=x_lane, y_batch=y_batch, y_map=y_map,
            y_lane=y_lane, padded=plan.padded[-1], large=last.large, stride=last.window.stride, phases=plan.phases[-1],
            activation=vec.ActivationParams(epilogue.is_active, *epilogue.bounds),
        )  # fmt: skip
        edges, fills = phases_plan.line_fills(problem.axes, plan, cut.block, lanes)
        kinds, offsets, slots = _class_tables(plan, channels, line)
        targets, sizes = phases_plan.row_targets(problem.axes, plan), _chunk_sizes(cut, channels, maps)
        return Launch(
            _make_kernel(problem.dtype, BITS.get(storage.name, storage)),
            problem.batch * problem.group * params.blocks * params.chunks, problem.split_cost,
            record(params, activation=vec.activation_dtype(problem.dtype)),
            PhasesTables(edges, fills, targets, kinds, offsets, slots, sizes), parts=parts,
        )  # fmt: skip

    return Launches(problem.split_cost, for_threads)


def _steps(channels: int, plane: int, epilogue: Epilogue) -> tuple[int, int, int]:
    """Elements between neighbours along the batch, the channels and the lanes."""
    whole = channels * plane
    return (whole, 1, channels) if epilogue.is_channels_last else (whole, plane, 1)


def _class_tables(plan: phases_plan.PhaseGrid, channels: int, line: int):
    """The kinds, the offsets of their taps, and the slots of phases, as in `PhasesTables`."""
    kinds: list[PhaseKind] = []
    offsets: list[int] = []
    slots = np.empty(math.prod(plan.phases), np.int64)
    done = 0
    for each in plan.classes:
        taps, phases = len(each.offsets), len(each.phases)
        together = phases_plan.products_together(channels * taps), phases_plan.channels_together(channels, taps)
        kinds.append(PhaseKind(phases, len(offsets), taps, *together))
        offsets.extend(offset + copy * line for offset, copy in zip(each.offsets, each.copies, strict=True))
        slots[list(each.phases)] = range(done, done + phases)
        done += phases
    return np.array(kinds, KIND), np.array(offsets, np.int64), slots


def _chunk_sizes(cut: phases_plan.Blocking, channels: int, maps: int):
    """The weights before each chunk of output channels, and their number."""
    rows, sizes = phases_plan.TILES[cut.tile][0], []
    for first in range(0, maps, cut.chunk):
        chunk = min(cut.chunk, maps - first)
        tiles = [len(kind.offsets) * -(-len(kind.phases) * chunk // rows) for kind in cut.plan.classes]
        sizes.append(sum(tiles) * channels * rows)
    return np.cumsum([0, *sizes])


Table = npt.NDArray[np.int64]


class PhasesParams(NamedTuple):
    """Arguments of a call. Sizes and distances are in elements."""

    group: int  # number of groups
    channels: int  # of x, in a group
    maps: int  # of y, in a group
    blocks: int  # of positions
    chunks: int  # of output channels
    block: int  # positions in one of them
    chunk: int  # output channels in one of them
    length: int  # positions that can be outputs
    pitch: int  # between the lines of channels
    tile: int  # number of the shape of tiles
    x_batch: int  # between neighbours along the batch of x
    x_channel: int  # along its channels
    x_lane: int  # along its lanes
    y_batch: int  # along the batch of y
    y_map: int  # along its channels
    y_lane: int  # along its lanes
    padded: int  # lanes of the line
    large: int  # lanes of y
    stride: int  # along the lanes
    phases: int  # along the lanes
    activation: vec.ActivationParams  # of the sums


class PhaseKind(NamedTuple):
    """A class of phases, as the kernel reads it."""

    phases: int  # number of them
    first_tap: int  # number of its first tap in `offsets`
    taps: int  # number of taps
    taps_together: int  # that are summed at once
    channels_together: int  # that are summed at once


KIND = np.dtype([(name, np.int64) for name in PhaseKind._fields])


class PhasesTables(NamedTuple):
    """Tables of a call."""

    edges: Table  # per block of positions its first fill; and their number
    fills: Table  # how lines are laid out, see `line_fills`
    targets: Table  # where rows go in y, see `row_targets`
    kinds: npt.NDArray[np.void]  # a `PhaseKind` for every class
    offsets: Table  # of all taps of all classes, elements from a position of the line
    slots: Table  # per phase, the number of phases whose results come before
    sizes: Table  # per chunk of output channels, the weights before it; and their number


class SumPart(NamedTuple):
    """Some channels and taps of the sums of a class."""

    panel: int  # address of the first of the channels
    channels: int  # number of them
    is_more: bool  # whether their sums are added to what is there


@cache
def _make_kernel(compute: np.dtype[Any], storage: np.dtype[Any]):
    """The compiled kernel that forms sums in one type and stores them in another; 16-bit floats as their bits."""
    element, size, stored_size = getattr(types, compute.name), compute.itemsize, storage.itemsize
    lanes = vector_bytes() // size
    static = StaticArgs(element=element, stored=getattr(types, storage.name), lanes=lanes)
    first_tile, second_tile, third_tile, fourth_tile = (
        static.replace(rows=rows, vectors=wide) for rows, wide in phases_plan.TILES
    )
    heights = tuple(rows for rows, _ in phases_plan.TILES)

    @jit()
    def conv_transpose_phases(x, packed, b, y, args, tables, first, stop):
        """Write some chunks of output channels at some blocks of positions.

            for every element of the batch and group, for every block of positions, for every chunk of output channels
                for every class, for every tile of rows, for every tile of positions
                    for every tap and channel, in registers

        Results of a block are interleaved into y when all are there.
        """
        params, kinds, slots, sizes = args[0], tables.kinds, tables.slots, tables.sizes
        channels, maps, blocks, chunks = params.channels, params.maps, params.blocks, params.chunks
        block, chunk, pitch, tile = params.block, params.chunk, params.pitch, params.tile
        activation, rows = vec.splat_activation(params.activation, lanes), heights[tile]
        panel = np.empty(channels * pitch + 16, element)
        results = np.empty((slots.size * chunk + rows) * block + lanes, element)
        stage = np.empty(min(params.large, block * params.stride) + 8 * lanes, element)
        places = np.empty(slots.size + lanes, np.int64)
        filled = -1
        for job in range(first, stop):
            part, piece = job // chunks, job % chunks
            outer, at = part // blocks, part % blocks * block
            batch, group, first_map = outer // params.group, outer % params.group, piece * chunk
            count, used = min(chunk, maps - first_map), min(block, params.length - at)
            panel_start = -(-vec.address_of(panel) // 64) * 64  # for every job: Numba frees what no later line names
            if part != filled:
                vectors = tables.fills[tables.edges[part % blocks] : tables.edges[part % blocks + 1]]
                for channel in range(channels):
                    source = batch * params.x_batch + (group * channels + channel) * params.x_channel
                    source = vec.address_of(x) + source * stored_size
                    target = panel_start + channel * pitch * size
                    fill_line(target, source, params.x_lane * stored_size, vectors, static)
                filled = part
            weight = vec.address_of(packed) + (group * sizes[chunks] + sizes[piece]) * size
            result = vec.address_of(results)
            for number in range(kinds.shape[0]):
                kind = kinds[number]
                height, most, deep = kind.phases * count, kind.taps_together, kind.channels_together
                runs = max(1, -(-kind.taps // most))
                for share in range(-(-channels // deep) * runs):
                    lowest, tap = share // runs * deep, share % runs * most
                    taps = tables.offsets[kind.first_tap + tap : kind.first_tap + min(tap + most, kind.taps)]
                    some = SumPart(panel_start + lowest * pitch * size, min(deep, channels - lowest), share > 0)
                    for row in range(0, height, rows):
                        to = result + row * block * size
                        if tile == 0:
                            weight = sum_line(weight, some, taps, to, used, params, first_tile)
                        elif tile == 1:
                            weight = sum_line(weight, some, taps, to, used, params, second_tile)
                        elif tile == 2:
                            weight = sum_line(weight, some, taps, to, used, params, third_tile)
                        else:
                            weight = sum_line(weight, some, taps, to, used, params, fourth_tile)
                result += height * block * size
            for member in range(slots.size):
                places[member] = slots[member] * count * block * size
            out_map = group * maps + first_map
            out = vec.address_of(y) + (batch * params.y_batch + out_map * params.y_map) * stored_size
            block_results = BlockResults(vec.address_of(results), vec.address_of(places), at, used)
            if params.y_lane != 1:
                bias = vec.address_of(b) + out_map * size
                store_channels(out, block_results, tables.targets, bias, count, params, activation, static)
            else:
                for number in range(count):
                    bias = vec.splat_rows(vec.address_of(b) + (out_map + number) * size, element, lanes, 1)
                    source = vec.address_of(results) + number * block * size
                    ready = BlockResults(source, vec.address_of(places), at, used)
                    to = out + number * params.y_map * stored_size
                    store_plane(to, ready, tables.targets, bias, vec.address_of(stage), params, activation, static)

    return conv_transpose_phases


@overload_by_type()
def sum_line(weights, part, taps, target, used, params, static):
    """Sums of one tile of rows at all positions; where the weights of the next one are."""
    element, lanes, rows, vectors = static.element, static.lanes, static.rows, static.vectors
    size, wide, registers = element.bitwidth // 8, lanes * vectors, rows * vectors

    def sum_up(weights, part, taps, target, used, params, static):
        line, apart, channels = params.pitch * size, params.block * size, part.channels
        whole = taps.size * channels * rows * size
        each = rows * size * wide // max(used, wide) + 1
        for position in range(0, used, wide):
            total = vec.tile_zero(element, lanes, registers)
            a = weights
            soon = weights + (used + position) * whole // used
            for tap in range(taps.size):
                source = part.panel + (position + taps[tap]) * size
                for _channel in range(channels):
                    total = vec.tile_add_product(total, a, source, element, lanes, rows, vectors)
                    vec.prefetch(soon)
                    soon += each
                    a += rows * size
                    source += line
            if part.is_more:
                vec.tile_add_to(total, target + position * size, apart, rows, vectors)
            else:
                vec.tile_store(total, target + position * size, apart, rows, vectors)
        return weights + whole

    return sum_up
