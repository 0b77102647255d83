"""The two kernels of transposed convolution: dense products of blocks, and sums of single products.

A program computes a block of positions of one phase, and of maps. Sums are float32, or float64 for float64. The
epilogue adds the bias, activates the sums, rounds them once and stores them.

- `add_products` is an implicit GEMM: for each tap of the phase, and each block of channels, it multiplies a block of x,
  whose places follow from the tap, by a block of weights. x and y are channels-last: a program reads and writes
  neighbours. Where a tap has no input, weights are multiplied by zero, so they have to be finite.
- `add_sums` takes a channel and a tap at a time, and multiplies only where a tap has an input: weights may be infinite.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from unpool.kernels.gpu.conv_transpose import phases
from unpool.kernels.gpu.conv_transpose.problem import BlockShape, ConvSizes
from unpool.kernels.gpu.elements import IS_INTERPRETED, activate, narrow
from unpool.kernels.gpu.launch import power_of_two

_FEW_MAPS = 32
_MANY_MAPS = 256
_DENSE_BLOCKS = {  # the largest, by (is float32, has few maps): the fastest of several on an H200
    (True, False): BlockShape(64, 64, 32, warps=4, stages=3),
    (True, True): BlockShape(128, 32, 16, warps=4, stages=3),
    (False, False): BlockShape(128, 128, 32, warps=4, stages=4),
    (False, True): BlockShape(128, 32, 32, warps=4, stages=4),
}
_WIDE_BLOCK = BlockShape(128, 256, 64, warps=8, stages=3)  # of many maps in 16-bit floats
_SCATTERED_BLOCK = BlockShape(64, 64, 64, warps=4, stages=4)  # of 16-bit floats that are stored one by one
_SUM_ELEMENTS = 1024
_SUM_MAPS = 16


@dataclass(frozen=True)
class ConvMeta:
    """Constants of the compiled kernels; blocks are of positions, maps and channels."""

    positions: int
    maps: int
    channels: int
    kind: str
    is_wide: bool
    has_bias: bool
    may_skip: bool
    is_subpixel: bool
    precision: str
    activation: str
    params: tuple[float, ...]


def is_scattered(sizes: ConvSizes) -> bool:
    """True if the maps of a sub-pixel convolution are stored one by one: each needs an address in registers."""
    return sizes.y_maps < sizes.maps and sizes.y_maps % 16 > 0


def block_shape(sizes: ConvSizes, kind: str, rank: int, *, is_dense: bool, is_tight: bool) -> BlockShape:
    """The blocks of `add_products`, or of `add_sums`; `is_tight` if sums share registers: half the positions."""
    if is_dense:
        most = _DENSE_BLOCKS[kind == "float32", sizes.maps <= _FEW_MAPS]
        if kind != "float32" and sizes.maps > _FEW_MAPS:
            if is_scattered(sizes):
                most = _SCATTERED_BLOCK
            elif sizes.maps >= _MANY_MAPS and rank <= 2 and not is_tight:
                most = _WIDE_BLOCK
        if is_tight:
            most = most._replace(positions=most.positions // 2, warps=2 * most.warps)
        return dense_block(most, sizes.positions, sizes.maps, sizes.channels)
    maps = power_of_two(sizes.maps, _SUM_MAPS)
    elements = _SUM_ELEMENTS // (2 if is_tight or kind == "float64" else 1)
    return BlockShape(power_of_two(sizes.positions, elements // maps), maps, 1)


def dense_block(most: BlockShape, *sizes: int) -> BlockShape:
    """A block for positions, maps and channels: no larger than `most`, and at least 16 of each, for matrix units."""
    positions, maps, channels = (max(16, power_of_two(*each)) for each in zip(sizes, most[:3], strict=True))
    return most._replace(positions=positions, maps=maps, channels=channels)


@triton.jit
def add_products(x, w, b, y, check, args, meta: tl.constexpr):
    """One block of y, as bits; nothing if weights are not finite. w is (groups, taps, channels, maps)."""
    if _is_finite(check):
        _add_block(x, w, b, y, tl.program_id(0), True, args, meta)


@triton.jit
def add_sums(x, w, b, y, check, args, meta: tl.constexpr):
    """Blocks of y, as bits; none if `add_products` runs. w is (groups, taps, channels, maps)."""
    sizes = args.sizes
    blocks = sizes.phases * sizes.groups * tl.cdiv(sizes.positions, meta.positions) * tl.cdiv(sizes.maps, meta.maps)
    if meta.may_skip:
        if _is_finite(check):
            blocks = 0
    for number in range(tl.program_id(0), blocks, tl.num_programs(0)):
        _add_block(x, w, b, y, number, False, args, meta)


@triton.jit
def _add_block(x, w, b, y, number, is_dense: tl.constexpr, args, meta: tl.constexpr):
    """Block `number` of y: every step adds a tap of a block of channels, or of the one channel of a sum."""
    POSITIONS: tl.constexpr = meta.positions
    MAPS: tl.constexpr = meta.maps
    CHANNELS: tl.constexpr = meta.channels
    precision: tl.constexpr = meta.precision
    wide: tl.constexpr = tl.float64 if meta.kind == "float64" else tl.float32
    sizes = args.sizes
    origin, block = _block_of(number, args, meta)
    coords, batch, phase = origin
    group, is_position, maps = block
    x += group * sizes.channels * args.x.channel
    w += group * sizes.taps * sizes.channels * sizes.maps
    columns = tl.cdiv(sizes.channels, CHANNELS) if is_dense else sizes.channels
    total = tl.zeros([POSITIONS, MAPS], wide)
    step = phases.first_step(phase)
    for _ in range(phases.count_taps(phase) * columns):
        tap, place, mask = phases.source_of(step, coords, phase, args.dims)
        mask = mask & is_position
        rows = batch * args.x.batch + place * args.x.place
        if is_dense:
            channels = step[len(phase)] * CHANNELS + tl.arange(0, CHANNELS)
            is_channel = channels < sizes.channels
            inputs = x + (rows[:, None] + (channels * args.x.channel)[None, :])
            left = tl.load(inputs, mask=mask[:, None] & is_channel[None, :], other=0)
            w_rows = (tap * sizes.channels + channels) * sizes.maps
            weights = w + (w_rows[:, None] + maps[None, :])
            right = tl.load(weights, mask=is_channel[:, None] & (maps < sizes.maps)[None, :], other=0)
            if IS_INTERPRETED:  # see elements.INTERPRETED
                left = left.to(tl.float32)
                right = right.to(tl.float32)
            total = tl.dot(left, right, total, input_precision=precision)
        else:
            channel = step[len(phase)]
            left = tl.load(x + (rows + channel * args.x.channel), mask=mask, other=0).to(wide)
            w_row = (tap * sizes.channels + channel) * sizes.maps
            right = tl.load(w + w_row + maps, mask=maps < sizes.maps, other=0).to(wide)
            total = tl.where(mask[:, None], total + left[:, None] * right[None, :], total)
        step = phases.next_step(step, phase, columns)
    _epilogue(total, (b, y), origin, block, args, meta)


@triton.jit
def _is_finite(check):
    """True if all weights are finite: their sum is, then. A sum too large for float32 counts as infinite."""
    total = tl.load(check)
    return total - total == 0


@triton.jit
def _block_of(number, args, meta: tl.constexpr):
    """Block `number`: origin (coordinates, images, phase), and (group, mask, numbers of maps); maps vary fastest."""
    POSITIONS: tl.constexpr = meta.positions
    MAPS: tl.constexpr = meta.maps
    sizes = args.sizes
    if meta.is_wide:
        number = number.to(tl.int64)
    columns = tl.cdiv(sizes.maps, MAPS)
    rows = tl.cdiv(sizes.positions, POSITIONS)
    maps = number % columns * MAPS + tl.arange(0, MAPS)
    number = number // columns
    phase = phases.phase_of(number % sizes.phases, args.dims)
    number = number // sizes.phases
    positions = number % rows * POSITIONS + tl.arange(0, POSITIONS)
    coords, batch = phases.positions_of(positions, args.dims)
    return (coords, batch, phase), (number // rows, positions < sizes.positions, maps)


@triton.jit
def _epilogue(total, tensors, origin, block, args, meta: tl.constexpr):
    """Add the bias to the sums of a block of `_block_of`, activate them, round them once, and store them in y."""
    kind: tl.constexpr = meta.kind
    sizes = args.sizes
    is_map = block[2] < sizes.maps
    columns = block[0] * sizes.y_maps + (block[2] % sizes.y_maps if meta.is_subpixel else block[2])
    if meta.has_bias:
        total += tl.load(tensors[0] + columns, mask=is_map, other=0).to(total.dtype)[None, :]
    bits = narrow(activate(total, meta), kind)
    columns = columns * args.y.channel
    if meta.is_subpixel:
        rows, more, mask = phases.shuffled_of(origin[0], block[2] // sizes.y_maps, args.shuffle)
        columns += more * args.y.place
        mask = mask & block[1][:, None]
    else:
        rows, is_inside = phases.target_of(origin[0], origin[2], args.dims)
        mask = (is_inside & block[1])[:, None]
    rows = origin[1] * args.y.batch + rows * args.y.place
    tl.store(tensors[1] + rows[:, None] + columns[None, :], bits, mask=mask & is_map[None, :])
