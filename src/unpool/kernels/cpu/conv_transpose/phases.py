"""Transposed convolution as small dense products, one per phase of the output (`phases_plan.py` has the formula).

The rows (phase, output channel) of a class of phases are tiles of a register-blocked product, which reads packed
weights and the flat line of the input, and nothing else. Padding is multiplied, so weights must be finite. Channels are
summed in pieces: the input of one piece stays in the first cache, every weight is read once, and errors stay small.

Parts of the kernel follow it: `fill_line` lays out a line, `store_plane` and `store_channels` write y. Addresses and
distances are in bytes, and results are followed by a vector of slack. `static` has `element` and `lanes` of the sums,
and `stored`, the type of x and y.

    line[row, column] = x[row - begin, column - begin], zero in the padding
    y[row * stride + phase, column * stride + phase] = results[phase, row, column] + b
"""

import math
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.conv_transpose import phases_pack, phases_plan, rows
from unpool.kernels.cpu.conv_transpose.algorithm import Algorithm, CallContext, PackRequest, Steps, finite, is_narrow
from unpool.kernels.cpu.conv_transpose.phases_params import PhasesParams, PhasesTables, blocks_of, params_of, tables_of
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, group_shape, is_empty, window_taps
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.plan import KernelStep, Operand, PlanMemory
from unpool.kernels.cpu.machine.threads import Launch, Launches
from unpool.kernels.cpu.tuning import PHASES_COSTS, PHASES_SIZES
from unpool.kernels.cpu.vector import BITS
from unpool.kernels.cpu.vector.registration import LazyModule, jit_inline, overload_by_type

phase_lanes = LazyModule("unpool.kernels.cpu.conv_transpose.phase_lanes")


def launch(problem: ConvTransposeProblem, storage: np.dtype[Any], epilogue: Epilogue = PLAIN) -> Launches:
    """The call on C-contiguous (x, packed, b, y): x and y of type `storage`, `packed` from `phases_pack.pack`."""

    def for_threads(threads: int) -> Launch:
        channels, maps = problem.channels // problem.group, problem.maps
        cut, parts = phases_plan.blocking_for_threads(phases_plan.blocking_of(problem), problem, threads)
        plan, lanes = cut.plan, vector_bytes() // problem.dtype.itemsize
        blocks = blocks_of(problem, plan, cut.block, cut.chunk, lanes)._replace(tile=cut.tile)
        params = params_of(problem, epilogue, plan, blocks)
        return Launch(
            _make_kernel(problem.dtype, BITS.get(storage.name, storage)),
            problem.batch * problem.group * blocks.blocks * blocks.chunks, problem.split_cost,
            record(params, activation=vec.activation_dtype(problem.dtype)),
            tables_of(problem, plan, blocks.line, _chunk_sizes(cut, channels, maps)), parts=parts,
        )  # fmt: skip

    return Launches(problem.split_cost, for_threads)


def _chunk_sizes(cut: phases_plan.Blocking, channels: int, maps: int):
    """The weights before each chunk of output channels, and their number."""
    rows, sizes = phases_plan.tile_shapes()[cut.tile][0], []
    for first in range(0, maps, cut.chunk):
        chunk = min(cut.chunk, maps - first)
        tiles = [len(kind.offsets) * -(-len(kind.phases) * chunk // rows) for kind in cut.plan.classes]
        sizes.append(sum(tiles) * channels * rows)
    return np.cumsum([0, *sizes])


class SumPart(NamedTuple):
    """Some channels and taps of the sums of a class."""

    panel: int  # address of the first of the channels
    channels: int  # number of channels
    is_more: bool  # whether their sums are added to what is there


@specialize
def _make_kernel(compute: np.dtype[Any], storage: np.dtype[Any]):
    """The compiled kernel that forms sums in one type and stores them in another; 16-bit floats as their bits."""
    element, size, stored_size = getattr(types, compute.name), compute.itemsize, storage.itemsize
    lanes = vector_bytes() // size
    static = vec.StaticArgs(element=element, stored=getattr(types, storage.name), lanes=lanes)
    first_tile, second_tile, third_tile, fourth_tile = (
        static.replace(rows=rows, vectors=wide) for rows, wide in phases_plan.tile_shapes()
    )
    heights = tuple(rows for rows, _ in phases_plan.tile_shapes())

    @jit()
    def conv_transpose_phases(x, packed, b, y, args, tables, first, stop):
        """Write some chunks of output channels at some blocks of positions.

            for every element of the batch and group, for every block of positions, for every chunk of output channels
                for every class, for every tile of rows, for every tile of positions
                    for every tap and channel, in registers

        Results of a block are interleaved into y when all are there.
        """
        params, kinds, slots, sizes = args[0], tables.kinds, tables.slots, tables.sizes
        channels, maps, blocks, chunks = params.channels, params.maps, params.blocks.blocks, params.blocks.chunks
        block, chunk, pitch, tile = params.blocks.block, params.blocks.chunk, params.blocks.pitch, params.blocks.tile
        activation, rows = vec.splat_activation(params.activation, lanes), heights[tile]
        panel = np.empty(channels * pitch + 16, element)
        results = np.empty((slots.size * chunk + rows) * block + lanes, element)
        stage = np.empty(min(params.lanes.large, block * params.lanes.stride) + 8 * lanes, element)
        places = np.empty(slots.size + lanes, np.int64)
        fills = np.empty((most_fills(params, tables, lanes), 4), np.int64)
        filled = -1
        for job in range(first, stop):
            part, piece = job // chunks, job % chunks
            outer, at = part // blocks, part % blocks * block
            batch, group, first_map = outer // params.group, outer % params.group, piece * chunk
            count, used = min(chunk, maps - first_map), min(block, params.blocks.length - at)
            panel_start = -(-vec.address_of(panel) // 64) * 64  # for every job: Numba frees what no later line names
            if part != filled:
                vectors = fills[: list_fills(fills, at, params, tables, lanes)]
                for channel in range(channels):
                    source = batch * params.x.batch + (group * channels + channel) * params.x.channel
                    source = vec.address_of(x) + source * stored_size
                    target = panel_start + channel * pitch * size
                    fill_line(target, source, params.x.lane * stored_size, vectors, static)
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
            out = vec.address_of(y) + (batch * params.y.batch + out_map * params.y.channel) * stored_size
            block_results = BlockResults(vec.address_of(results), vec.address_of(places), at, used)
            if params.y.lane != 1:
                bias = vec.address_of(b) + out_map * size
                store_channels(out, block_results, tables.targets, bias, count, params, activation, static)
            else:
                for number in range(count):
                    bias = vec.splat_rows(vec.address_of(b) + (out_map + number) * size, element, lanes, 1)
                    source = vec.address_of(results) + number * block * size
                    ready = BlockResults(source, vec.address_of(places), at, used)
                    to = out + number * params.y.channel * stored_size
                    store_plane(to, ready, tables.targets, bias, vec.address_of(stage), params, activation, static)

    return conv_transpose_phases


@overload_by_type()
def sum_line(weights, part, taps, target, used, params, static):
    """Sums of one tile of rows at all positions; where the weights of the next one are."""
    element, lanes, rows, vectors = static.element, static.lanes, static.rows, static.vectors
    size, wide, registers = element.bitwidth // 8, lanes * vectors, rows * vectors

    def sum_up(weights, part, taps, target, used, params, static):
        line, apart, channels = params.blocks.pitch * size, params.blocks.block * size, part.channels
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


class BlockResults(NamedTuple):
    """The results of a block of positions."""

    source: int  # address of those of one output channel, at the first position
    places: int  # address of the int64 distances of its phases from there
    at: int  # the first position
    used: int  # how many positions there are


@jit_inline
def most_fills(params: PhasesParams, tables: PhasesTables, lanes: int) -> int:
    """The largest number of vectors that `list_fills` writes for a block."""
    reach = params.blocks.block + params.blocks.margin
    return tables.copies.size * (reach // lanes + 2 * (reach // params.lanes.padded + 2) + 1)


@jit_inline
def list_fills(fills: Any, at: int, params: PhasesParams, tables: PhasesTables, lanes: int) -> int:
    """Write the vectors that lay out the lines of a block which begins at a position; their number.

    A vector has its place in the block's lines, the element of x in its first lane, and the range of lanes that come
    from x: the others are zero. It may write beyond its row, where the next one begins.
    """
    blocks, padded, small = params.blocks, params.lanes.padded, params.lanes.small
    end, count = at + blocks.block + blocks.margin, 0
    for number in range(tables.copies.size):
        line, begin = number * blocks.line - at, tables.copies[number]
        for row in range(at // padded, -(-end // padded)):
            start = -1
            if row < tables.starts.size:
                start = tables.starts[row]
            for first in range(max(row * padded, at), min((row + 1) * padded, end), lanes):
                column = first - row * padded - begin
                fills[count, 0], fills[count, 1] = line + first, start + column
                fills[count, 2] = min(max(-column, 0), lanes)
                fills[count, 3] = 0 if start < 0 else min(max(small - column, 0), lanes)
                count += 1
        fills[count, 0], fills[count, 1], fills[count, 2], fills[count, 3] = line + end, 0, 0, 0
        count += 1
    return count


@overload_by_type()
def fill_line(target, source, apart, fills, static):
    """Lays out one channel's line, a vector for each of `fills`; neighbours are `apart` in x, and may be gathered."""
    lanes, stored = static.lanes, static.stored
    size, stored_size = static.element.bitwidth // 8, stored.bitwidth // 8

    def fill(target, source, apart, fills, static):
        blank = vec.splat(stored(0), lanes)
        for number in range(fills.shape[0]):
            to, place = target + fills[number, 0] * size, source + fills[number, 1] * apart
            skip, stop = fills[number, 2], fills[number, 3]
            if apart != stored_size:
                mask = vec.first_lanes(stop, blank) & ~vec.first_lanes(skip, blank)
                vec.store(to, vec.widen(vec.gather(place, apart, mask, blank)))
            elif skip <= 0 and stop >= lanes:
                vec.store(to, vec.widen(vec.load_like(place, blank)))
            else:
                mask = vec.first_lanes(stop, blank) & ~vec.first_lanes(skip, blank)
                vec.store(to, vec.widen(vec.load_masked(place, mask, blank)))

    return fill


@overload_by_type()
def store_plane(y, results, targets, bias, stage, params, activation, static):
    """Writes the results of one output channel, interleaving its phases; neighbouring rows of y follow each other.

    `targets`, (phases of the leading axes, rows of the line), has where they go in the plane `y`, -1 for nowhere.
    `stage` has room for a row of y, for results that are rounded or activated.
    """
    lanes, size, stored, step = static.lanes, static.element.bitwidth // 8, static.stored, static.stored.bitwidth // 8
    is_rounded = static.element != stored

    def write(y, results, targets, bias, stage, params, activation, static):
        along = params.lanes
        padded, large, stride, phases = along.padded, along.large, along.stride, along.phases
        row, column, done, used = results.at // padded, results.at % padded, 0, results.used
        blank, is_staged = vec.splat(stored(0), lanes), activation.is_active or is_rounded
        while done < used:
            until = min(used, done + padded - column)
            elements = min((until - done) * stride, large - column * stride)
            if elements > 0 and row < targets.shape[1]:
                for phase in range(targets.shape[0]):
                    if targets[phase, row] >= 0:
                        out = y + (targets[phase, row] + column * stride) * step
                        source, places = results.source + done * size, results.places + phase * phases * 8
                        store_row(stage if is_staged else out, source, places, elements, bias, params, static)
                        if is_staged:
                            for first in range(0, elements, lanes):
                                value = vec.activate_sums(vec.load_like(stage + first * size, bias), activation)
                                mask = vec.first_lanes(elements - first, blank)
                                vec.store_masked(out + first * step, vec.narrow(value, blank), mask)
            done = until
            row += 1
            column = 0

    return write


@overload_by_type()
def store_channels(y, results, targets, bias, count, params, activation, static):
    """As `store_plane`, channels last: the results of `count` output channels, neighbours in y, are gathered."""
    lanes, size, element = static.lanes, static.element.bitwidth // 8, static.element
    stored, step = static.stored, static.stored.bitwidth // 8

    def write(y, results, targets, bias, count, params, activation, static):
        along, block = params.lanes, params.blocks.block
        padded, large, stride, phases = along.padded, along.large, along.stride, along.phases
        apart, between = params.y.lane * step, block * size
        row, column = results.at // padded, results.at % padded
        zero, blank = vec.splat(element(0), lanes), vec.splat(stored(0), lanes)
        for done in range(results.used):
            for member in range(targets.shape[0] * phases):
                place = column * stride + member % phases
                target = targets[member // phases, row] if row < targets.shape[1] else -1
                if target >= 0 and place < large:
                    source = results.source + vec.int64_at(results.places + member * 8) + done * size
                    out = y + (target + place) * apart
                    for first in range(0, count, lanes):
                        mask = vec.first_lanes(count - first, zero)
                        value = vec.gather(source + first * between, between, mask, zero)
                        value = vec.activate_sums(value + vec.load_masked(bias + first * size, mask, zero), activation)
                        vec.store_masked(out + first * step, vec.narrow(value, blank), mask)
            column += 1
            if column == padded:
                row, column = row + 1, 0

    return write


@overload_by_type()
def store_row(out, source, places, elements, bias, params, static):
    """Writes `elements` neighbours, of all phases."""
    by_one, by_two, by_four, by_eight = (static.replace(step=step) for step in (1, 2, 4, 8))

    def write(out, source, places, elements, bias, params, static):
        stride, phases = params.lanes.stride, params.lanes.phases
        if phases != stride:
            scatter(out, source, places, elements, bias, params, static)
        elif stride == 1:
            store_interleaved(out, source, places, elements, bias, by_one)
        elif stride == 2:
            store_interleaved(out, source, places, elements, bias, by_two)
        elif stride == 4:
            store_interleaved(out, source, places, elements, bias, by_four)
        elif stride == 8:
            store_interleaved(out, source, places, elements, bias, by_eight)
        else:
            scatter(out, source, places, elements, bias, params, static)

    return write


@overload_by_type()
def store_interleaved(out, source, places, elements, bias, static):
    """Writes vectors of `static.step` phases, interleaved in registers."""
    step, lanes, size = static.step, static.lanes, static.element.bitwidth // 8

    def write(out, source, places, elements, bias, static):
        left = elements
        while left >= lanes * step:
            for part in range(step):
                vec.prefetch(out + PHASES_SIZES.prefetch_distance + part * lanes * size)
            total = vec.tile_add(phase_lanes.tile_interleave(source, places, bias, step), bias)
            vec.tile_store(total, out, lanes * size, step, 1)
            out += lanes * step * size
            source += lanes * size
            left -= lanes * step
        if left > 0:
            vec.tile_store_first(vec.tile_add(phase_lanes.tile_interleave(source, places, bias, step), bias), out, left)

    return write


@overload_by_type()
def scatter(out, source, places, elements, bias, params, static):
    """Any stride: the phases of one position are gathered, which makes them neighbours."""
    lanes, size = static.lanes, static.element.bitwidth // 8

    def write(out, source, places, elements, bias, params, static):
        stride, phases = params.lanes.stride, params.lanes.phases
        for first in range(0, elements, stride):
            count = min(phases, elements - first)
            for phase in range(0, count, lanes):
                mask = vec.first_lanes(count - phase, bias)
                value = vec.gather_at(source, vec.load(places + phase * 8, types.int64, lanes), mask, bias)
                vec.store_masked(out + (first + phase) * size, value + bias, mask)
            source += size

    return write


@jit_inline
def cost(problem: ConvTransposeProblem) -> float:
    """The time in multiply-adds of a filled tile; infinity where tables or memory would be too large."""
    if not phases_plan.is_listed(problem):
        return math.inf
    return problem.group * problem.batch * phases_plan.blocking_of(problem).cost


@jit_inline
def supports(problem: ConvTransposeProblem) -> bool:
    """As `Algorithm.supports`."""
    return not is_empty(problem) and cost(problem) < math.inf


@jit_inline
def is_faster(problem: ConvTransposeProblem, _: Any) -> bool:
    """True if the phases, and packing in every call, cost less than the rows."""
    channels, maps, _size = group_shape(problem)
    packing = PHASES_COSTS.packing * channels * maps * window_taps(problem.axes)
    packing += 0 if problem.is_cached else PHASES_COSTS.pack_call
    return phases_plan.blocking_of(problem).cost + packing / problem.batch < rows.cost(problem)


def _pack(w: Any, request: PackRequest) -> Any:
    problem, wide = request.problem, finite(w, request.problem.dtype)
    if wide is None:
        return None
    cut = phases_plan.blocking_of(problem)
    return phases_pack.pack(wide, cut, problem.group, request.threads, is_cached=request.is_cached)


def pack_step(w: Operand, problem: ConvTransposeProblem, memory: PlanMemory) -> tuple[Operand, KernelStep]:
    """The packed weights, and the step that packs them."""
    return phases_pack.pack_step(w, phases_plan.blocking_of(problem), problem.group, memory)


def _steps(context: CallContext, x: Operand, b: Operand, y: Operand) -> Steps | None:
    packed, before = context.packed_weights(ALGORITHM)
    if packed is None:
        return None
    return (*before, KernelStep(launch(context.problem, context.storage, context.epilogue), (x, packed, b, y)))


ALGORITHM = Algorithm(
    "phases",
    supports=supports,
    is_faster=is_faster,
    steps=_steps,
    fits=lambda problem, epilogue: epilogue.is_simple and not is_narrow(problem, epilogue),
    pack=_pack,
    pack_step=pack_step,
    packs_in_steps=True,
    cost=cost,
)
