"""Transposed convolution of bfloat16 as products of tiles by AMX: the phases of `phases.py`, other sums.

    16 (phase, output channel) x 16 positions
        += packed weights, 16 (phase, output channel) x 32 channels, times panel, 32 channels x 16 positions

The panel holds the flat line of two neighbouring channels as pairs, so a tap is an offset into it, as in `phases.py`.

AMX takes subnormal factors and sums as zero, which Rule 8.1 of docs/semantics.md does not allow. So it is used only
where there are none. A number of exponent e, with 8 significant bits, is a multiple of 2**(e - 7). If e and f are the
least exponents of x and w, then all products, their sums, and float32's roundings of these are multiples of
2**(e + f - 14). None of them is subnormal if e + f >= -112. The kernel tests x while it lays out the panel, and stops
at a number that is too small: then the call fails, and another algorithm computes it.

A tile forms two sums of 16 products, adds them to each other, and then to the sum of earlier tiles: a sum of n tiles
has an error of at most n + 17 roundings. Longer sums are formed in runs of `AMX_SIZES.run` tiles at most, which are
added to each other: n is the length of a run then, and every run but the first adds a rounding.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.conv_transpose import phases, phases_plan
from unpool.kernels.cpu.conv_transpose.algorithm import Algorithm, CallContext, PackRequest, Steps, packing
from unpool.kernels.cpu.conv_transpose.phases import BlockResults, list_fills, most_fills, store_channels, store_plane
from unpool.kernels.cpu.conv_transpose.phases_params import blocks_of, params_of, tables_of
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import has_amx
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.plan import NOT_MET, Condition, KernelStep, Operand
from unpool.kernels.cpu.machine.threads import Launch, Launches, max_threads
from unpool.kernels.cpu.tuning import AMX_COSTS, AMX_SIZES, PHASES_SIZES
from unpool.kernels.cpu.vector.registration import LazyModule, jit_inline, overload_by_type

instructions = LazyModule("unpool.kernels.cpu.conv_transpose.amx_instructions")

ROWS, DEPTH, LANES = 16, 32, 16  # of a tile: rows of weights, channels, positions
STEP = 2 * LANES  # positions of two tiles, which are computed together, as are two tiles of rows
HEAD = 64  # bytes before packed weights
BIAS = 127  # of exponents as they are stored
LEAST_EXPONENTS = 2 * BIAS - 112  # least sum of the exponents of x and w
LEAST_WEIGHT = BIAS - 66  # least exponent of a weight: x may then hold numbers down to 2**-46


class AmxPlan(NamedTuple):
    """The blocking of a call."""

    grid: phases_plan.PhaseGrid  # the line
    depth: int  # tiles of channels
    block: int  # positions of a block, whole steps
    chunk: int  # output channels of a chunk


@lru_cache(maxsize=256)
def plan_of(problem: ConvTransposeProblem) -> AmxPlan | None:
    """The blocking; None for sums of too many products, or where memory of a thread would not do."""
    grid, channels, maps = phases_plan.phase_grid(problem.axes), problem.channels // problem.group, problem.maps
    depth, phases = -(-channels // DEPTH), math.prod(grid.phases)
    runs = [_runs(len(each.offsets), depth) for each in grid.classes]
    if max(steps + count - 1 for steps, count in runs) > AMX_SIZES.steps:
        return None
    chunk = maps if phases * maps * 4 * 4 * STEP <= AMX_SIZES.results else 2 * ROWS * max(1, maps // (4 * ROWS))
    tiles = -(-grid.length // STEP)
    by_panel = (AMX_SIZES.panel // (2 * DEPTH * depth) - grid.margin) // STEP
    by_result = AMX_SIZES.results // (4 * phases * chunk * STEP)
    others = problem.batch * problem.group * -(-maps // chunk)
    by_threads = tiles * others // (AMX_SIZES.jobs_per_thread * max_threads())
    least = max(2, -(-grid.margin // STEP))
    most = max(1, min(by_result, max(by_panel, least), max(by_threads, least)))
    block = -(-tiles // -(-tiles // most)) * STEP
    jobs = -(-tiles * STEP // block) * others
    if jobs < AMX_SIZES.jobs * max_threads():
        chunk = -(-chunk // (-(-AMX_SIZES.jobs * max_threads() // jobs) * 2 * ROWS)) * 2 * ROWS
    results = 1 + any(count > 1 for _, count in runs)
    workspace = 2 * DEPTH * depth * (block + grid.margin) + results * 4 * (phases * chunk + 2 * ROWS) * block
    return AmxPlan(grid, depth, block, chunk) if workspace <= PHASES_SIZES.workspace else None


def cost(problem: ConvTransposeProblem) -> float:
    """The time in multiply-adds of float32, as `phases_plan` counts it; infinity where there is no blocking."""
    plan = plan_of(problem)
    if plan is None:
        return math.inf
    each = 0
    for kind in plan.grid.classes:
        rows, steps = len(kind.phases) * problem.maps, len(kind.offsets) * plan.depth + AMX_COSTS.setup
        pairs = -(-rows // (2 * ROWS))
        is_half = rows <= 2 * ROWS * pairs - ROWS  # the last pair has one tile
        each += steps * (pairs * AMX_COSTS.pair - (AMX_COSTS.pair - AMX_COSTS.single if is_half else 0))
    return problem.batch * problem.group * -(-plan.grid.length // STEP) * each


def _pack(w: Any, request: PackRequest) -> Any:
    """Weights (C, M/group, k1..kk) in the order of tiles.

    HEAD begins with an int64, the bits of the smallest float32 above 0 that x may hold. Then follow
    group, chunk of output channels, class of phases, part of the sum, pair of tiles of rows, tap, tile of
    channels, row, channel

    None for weights that are very small, infinite or NaN.
    """
    problem = request.problem
    plan = plan_of(problem)
    bits = w.view(np.uint16) if w.dtype.name == "bfloat16" else None
    if plan is None or bits is None:
        return None
    exponents = (bits[bits & 0x7FFF != 0] >> 7) & 0xFF
    lowest, highest = int(exponents.min(initial=0xFE)), int(exponents.max(initial=1))
    if lowest < LEAST_WEIGHT or highest == 0xFF:
        return None
    least = max(1, LEAST_EXPONENTS - lowest) << 23
    channels, maps = problem.channels // problem.group, problem.maps
    flat = np.zeros((problem.group, plan.depth * DEPTH, maps, problem.taps), np.uint16)
    flat[:, :channels] = bits.reshape(problem.group, channels, maps, problem.taps)
    parts = [
        _pack_class(flat[:, :, first : first + plan.chunk], each, plan.depth)
        for first in range(0, maps, plan.chunk)
        for each in plan.grid.classes
    ]
    head = np.zeros(HEAD // 2, np.uint16)
    head[:4] = np.array([least], np.int64).view(np.uint16)
    return np.concatenate([head, np.concatenate(parts, axis=1).reshape(-1)])


def _pack_class(part: Any, kind: phases_plan.PhaseClass, depth: int) -> Any:
    group, _, maps = part.shape[:3]
    taps, count = len(kind.offsets), len(kind.phases) * maps
    chosen = part[..., np.array(kind.taps, np.int64).reshape(len(kind.phases), taps)]
    rows = -(-count // (2 * ROWS)) * 2 * ROWS
    padded = np.zeros((group, rows, taps, depth * DEPTH), np.uint16)
    padded[:, :count] = chosen.transpose(0, 3, 2, 4, 1).reshape(group, count, taps, depth * DEPTH)
    ordered = padded.reshape(group, rows // (2 * ROWS), 2 * ROWS, taps, depth, DEPTH).transpose(0, 1, 3, 4, 2, 5)
    deep = _steps_together(taps)
    parts = [ordered[:, :, :, first : first + deep].reshape(group, -1) for first in range(0, depth, deep)]
    return np.concatenate(parts, axis=1)


def _steps_together(taps: int) -> int:
    """Tiles of channels in a part of the sum."""
    return max(1, AMX_SIZES.together // max(1, taps))


def _runs(taps: int, depth: int) -> tuple[int, int]:
    """The maximum number of tiles of a run, for a class of phases, and the number of runs."""
    deep = _steps_together(taps)
    parts = parts_in_run(taps, depth, deep)
    return taps * min(depth, parts * deep), -(-depth // (parts * deep))


@jit_inline
def parts_in_run(taps, depth, deep):
    """The number of parts of a run, each of `deep` tiles of channels, in a sum of `depth` tiles."""
    return -(-depth // deep) if taps * depth <= AMX_SIZES.steps else max(1, AMX_SIZES.run // (taps * deep))


def launch(problem: ConvTransposeProblem, epilogue: Epilogue = PLAIN) -> Launches:
    """The call on C-contiguous (x, packed, b, y), which gives False where x holds a number that is too small."""
    plan = plan_of(problem)
    assert plan is not None
    assert has_amx()

    def for_threads(_: int) -> Launch:
        grid = plan.grid
        blocks = blocks_of(problem, grid, plan.block, plan.chunk, LANES)._replace(depth=plan.depth)
        params = params_of(problem, epilogue, grid, blocks)
        tables = tables_of(problem, grid, blocks.line, _chunk_sizes(plan, problem.maps))
        tables.kinds["channels_together"] = [_steps_together(len(each.offsets)) for each in grid.classes]
        return Launch(
            _make_kernel(np.dtype(np.float32)), problem.batch * problem.group * blocks.blocks * blocks.chunks,
            problem.split_cost, record(params, activation=vec.activation_dtype(np.dtype(np.float32))),
            tables, parts=1,
        )  # fmt: skip

    return Launches(problem.split_cost, for_threads)


def _chunk_sizes(plan: AmxPlan, maps: int):
    """The weights before each chunk of output channels, and their number."""
    sizes = []
    for first in range(0, maps, plan.chunk):
        chunk = min(plan.chunk, maps - first)
        pairs = [len(kind.offsets) * -(-len(kind.phases) * chunk // (2 * ROWS)) for kind in plan.grid.classes]
        sizes.append(sum(pairs) * plan.depth * DEPTH * 2 * ROWS)
    return np.cumsum([0, *sizes])


@specialize
def _make_kernel(compute: np.dtype[Any]):
    """The compiled kernel; `compute` is float32."""
    element = getattr(types, compute.name)
    static = vec.StaticArgs(element=element, stored=types.uint16, lanes=LANES)
    two_tiles, one_tile = static.replace(tiles=2), static.replace(tiles=1)

    @jit()
    def conv_transpose_amx(x, packed, b, y, args, tables, first, stop):
        """Write some chunks of output channels at some blocks of positions; the loops are those of `phases.py`."""
        params, kinds, slots, sizes = args[0], tables.kinds, tables.slots, tables.sizes
        channels, maps, blocks, chunks = params.channels, params.maps, params.blocks.blocks, params.blocks.chunks
        block, chunk, pitch, depth = params.blocks.block, params.blocks.chunk, params.blocks.pitch, params.blocks.depth
        activation = vec.splat_activation(params.activation, LANES)
        limit = vec.int64_at(vec.address_of(packed))
        panel = np.empty(depth * (DEPTH // 2) * pitch + 16, types.int32)
        results = np.empty((slots.size * chunk + 2 * ROWS) * block + LANES, element)
        has_runs = False
        for number in range(kinds.shape[0]):
            has_runs |= kinds[number].taps * depth > AMX_SIZES.steps
        run_sums = np.empty(results.size if has_runs else LANES, element)
        stage = np.empty(min(params.lanes.large, block * params.lanes.stride) + 8 * LANES, element)
        places = np.empty(slots.size + LANES, np.int64)
        fills = np.empty((most_fills(params, tables, LANES), 4), np.int64)
        filled = -1
        for job in range(first, stop):
            part, piece = job // chunks, job % chunks
            outer, at = part // blocks, part % blocks * block
            batch, group, first_map = outer // params.group, outer % params.group, piece * chunk
            count, used = min(chunk, maps - first_map), min(block, params.blocks.length - at)
            panel_start = -(-vec.address_of(panel) // 64) * 64  # for every job: Numba frees what no later line names
            if part != filled:
                vectors = fills[: list_fills(fills, at, params, tables, LANES)]
                for pair in range(depth * (DEPTH // 2)):
                    source = batch * params.x.batch + (group * channels + 2 * pair) * params.x.channel
                    source = vec.address_of(x) + source * 2
                    target = panel_start + pair * pitch * 4
                    together = min(2, channels - 2 * pair)
                    if not fill_pairs(
                        target, source, together, params.x.channel * 2, params.x.lane * 2, vectors, limit, static
                    ):
                        return False
                filled = part
            weight = vec.address_of(packed) + HEAD + (group * sizes[chunks] + sizes[piece]) * 2
            result = vec.address_of(results)
            instructions.amx_configure()
            for number in range(kinds.shape[0]):
                kind = kinds[number]
                height, deep = kind.phases * count, kind.channels_together
                taps = tables.offsets[kind.first_tap : kind.first_tap + kind.taps]
                run = deep * parts_in_run(kind.taps, depth, deep)
                for low in range(0, depth, deep):
                    some = AmxPart(panel_start + low * (DEPTH // 2) * pitch * 4, min(deep, depth - low), low % run > 0)
                    sums = result if low < run else vec.address_of(run_sums)
                    for row in range(0, height, 2 * ROWS):
                        to = sums + row * block * 4
                        if height - row > ROWS:
                            sum_tiles(weight, some, taps, to, used, params, two_tiles)
                        else:
                            sum_tiles(weight, some, taps, to, used, params, one_tile)
                        weight += taps.size * some.depth * (2 * ROWS * DEPTH * 2)
                    if low >= run and ((low + deep) % run == 0 or low + deep >= depth):
                        for place in range(0, height * block * 4, LANES * 4):
                            total = vec.load(result + place, element, LANES) + vec.load(sums + place, element, LANES)
                            vec.store(result + place, total)
                result += height * block * 4
            instructions.amx_release()
            for member in range(slots.size):
                places[member] = slots[member] * count * block * 4
            out_map = group * maps + first_map
            out = vec.address_of(y) + (batch * params.y.batch + out_map * params.y.channel) * 2
            block_results = BlockResults(vec.address_of(results), vec.address_of(places), at, used)
            if params.y.lane != 1:
                bias = vec.address_of(b) + out_map * 4
                store_channels(out, block_results, tables.targets, bias, count, params, activation, static)
            else:
                for number in range(count):
                    bias = vec.splat_rows(vec.address_of(b) + (out_map + number) * 4, element, LANES, 1)
                    source = vec.address_of(results) + number * block * 4
                    ready = BlockResults(source, vec.address_of(places), at, used)
                    to = out + number * params.y.channel * 2
                    store_plane(to, ready, tables.targets, bias, vec.address_of(stage), params, activation, static)
        return True

    return conv_transpose_amx


class AmxPart(NamedTuple):
    """Some channels of the sums of a class."""

    panel: int  # address of the first of the channels
    depth: int  # tiles of channels
    is_more: bool  # whether their sums are added to what is there


@overload_by_type()
def sum_tiles(weights, part, taps, target, used, params, static):
    """Sums of one or two tiles of rows at all positions."""
    is_pair = static.tiles == 2

    def sum_up(weights, part, taps, target, used, params, static):
        line, apart = params.blocks.pitch * 4, params.blocks.block * 4
        lower = target + ROWS * apart
        for position in range(0, used, STEP):
            place = position * 4
            if part.is_more:
                instructions.amx_load(0, target + place, apart)
                instructions.amx_load(1, target + place + 64, apart)
                if is_pair:
                    instructions.amx_load(2, lower + place, apart)
                    instructions.amx_load(3, lower + place + 64, apart)
            else:
                instructions.amx_zero(0)
                instructions.amx_zero(1)
                if is_pair:
                    instructions.amx_zero(2)
                    instructions.amx_zero(3)
            a = weights
            for tap in range(taps.size):
                source = part.panel + (position + taps[tap]) * 4
                for _tile in range(part.depth):
                    instructions.amx_load(4, source, line)
                    instructions.amx_load(6, a, 64)
                    instructions.amx_multiply(0, 6, 4)
                    instructions.amx_load(5, source + 64, line)
                    instructions.amx_multiply(1, 6, 5)
                    if is_pair:
                        instructions.amx_load(7, a + ROWS * 64, 64)
                        instructions.amx_multiply(2, 7, 4)
                        instructions.amx_multiply(3, 7, 5)
                    a += 2 * ROWS * 64
                    source += (DEPTH // 2) * line
            instructions.amx_store(0, target + place, apart)
            instructions.amx_store(1, target + place + 64, apart)
            if is_pair:
                instructions.amx_store(2, lower + place, apart)
                instructions.amx_store(3, lower + place + 64, apart)

    return sum_up


@overload_by_type()
def fill_pairs(target, source, count, between, apart, fills, limit, static):
    """Lays out the line of two channels as pairs, the second of 0 if `count` is 1; False at a number below `limit`.

    Channels are `between` bytes apart, neighbours `apart`.
    """
    lanes = static.lanes

    def fill(target, source, count, between, apart, fills, limit, static):
        zero = vec.splat(np.int32(0), lanes)
        least, size = vec.splat(np.int32(limit), lanes), vec.splat(np.int32(0x7FFFFFFF), lanes)
        small = zero > zero
        for number in range(fills.shape[0]):
            to, place = target + fills[number, 0] * 4, source + fills[number, 1] * apart
            skip, stop = fills[number, 2], fills[number, 3]
            even = load_upper(place, apart, skip, stop if count > 0 else 0, zero)
            odd = load_upper(place + between, apart, skip, stop if count > 1 else 0, zero)
            small = small | is_small(even & size, least, zero) | is_small(odd & size, least, zero)
            vec.store(to, odd | ((even >> vec.splat(np.int32(16), lanes)) & vec.splat(np.int32(0xFFFF), lanes)))
        return not vec.any_of(small)

    return fill


@overload_by_type(inline=True)
def is_small(magnitude, least, zero):
    """Lanes above zero and below a limit."""
    return lambda magnitude, least, zero: (magnitude > zero) & (magnitude < least)


@overload_by_type()
def load_upper(place, apart, skip, stop, zero):
    """Elements of x in the upper halves of int32, in the lanes from `skip` to `stop`; zero in the others."""
    lanes = zero.lanes

    def load(place, apart, skip, stop, zero):
        blank = vec.splat(types.uint16(0), lanes)
        if stop <= skip or stop <= 0:
            value = blank
        elif apart != 2:
            value = vec.gather(place, apart, vec.first_lanes(stop, blank) & ~vec.first_lanes(skip, blank), blank)
        elif skip <= 0 and stop >= lanes:
            value = vec.load_like(place, blank)
        else:
            value = vec.load_masked(place, vec.first_lanes(stop, blank) & ~vec.first_lanes(skip, blank), blank)
        return vec.reinterpret(vec.widen(value), types.int32)

    return load


def _supports(problem: ConvTransposeProblem) -> bool:
    is_possible = problem.storage.is_amx and problem.is_cached and not problem.is_empty
    return is_possible and phases_plan.is_listed(problem) and plan_of(problem) is not None


def _is_faster(problem: ConvTransposeProblem, other: Algorithm) -> bool:
    dense = other if other.name == "winograd" else phases.ALGORITHM
    return cost(problem) < AMX_COSTS.share * dense.cost(problem)


def _steps(context: CallContext, x: Operand, b: Operand, y: Operand) -> Steps | None:
    assert not isinstance(context.w, Operand), "weights of a run are not packed for AMX"
    packed = context.w.constant(packing(ALGORITHM, context.problem), (), np.dtype(np.uint16))
    if packed is None:
        return None
    call = launch(context.problem, context.epilogue)
    return (KernelStep(call, (x, packed, b, y), (), Condition.ALL_TRUE, (1, NOT_MET)),)


ALGORITHM = Algorithm(
    "amx",
    supports=_supports,
    is_faster=_is_faster,
    steps=_steps,
    fits=lambda problem, epilogue: problem.storage.is_amx and epilogue.is_simple,
    pack=_pack,
    cost=cost,
)
