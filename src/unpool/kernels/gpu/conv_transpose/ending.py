"""How programs of transposed convolution share the work, and what becomes of their sums."""

import triton
import triton.language as tl

from unpool.kernels.gpu.activation import activate
from unpool.kernels.gpu.conv_transpose.phases import phase_of, positions_of, target_of
from unpool.kernels.gpu.elements import narrow


@triton.jit
def share(number, call, how: tl.constexpr):
    """What program `number` computes: where its positions are, and its block of them and of maps.

    Returns (coordinates, images, phase), as `phases.py` has them, and (group, which positions are there, numbers of
    maps). Programs that read the same positions are neighbours: they are alike in all but maps and phase.
    """
    POSITIONS: tl.constexpr = how.positions
    MAPS: tl.constexpr = how.maps
    sizes = call.sizes
    if how.is_wide:
        number = number.to(tl.int64)
    columns = tl.cdiv(sizes.maps, MAPS)
    rows = tl.cdiv(sizes.positions, POSITIONS)
    maps = number % columns * MAPS + tl.arange(0, MAPS)
    number = number // columns
    phase = phase_of(number % sizes.phases, call.lines)
    number = number // sizes.phases
    positions = number % rows * POSITIONS + tl.arange(0, POSITIONS)
    at, batch = positions_of(positions, call.lines)
    return (at, batch, phase), (number // rows, positions < sizes.positions, maps)


@triton.jit
def write(total, tensors, spot, block, call, how: tl.constexpr):
    """Add the bias to sums, activate them, round them once, and put them where they belong.

    `tensors` are the bias and y; `spot` and `block` are what `share` returned.
    """
    kind: tl.constexpr = how.kind
    activation: tl.constexpr = how.activation
    params: tl.constexpr = how.params
    sizes = call.sizes
    columns = block[0] * sizes.maps + block[2]
    is_map = block[2] < sizes.maps
    if how.has_bias:
        total += tl.load(tensors[0] + columns, mask=is_map, other=0).to(total.dtype)[None, :]
    bits = narrow(activate(total, activation, params), kind)
    place, is_there = target_of(spot[0], spot[2], call.lines)
    is_there = is_there & block[1]
    rows = spot[1] * call.y.batch + place * call.y.place
    columns = columns * call.y.channel
    tl.store(tensors[1] + rows[:, None] + columns[None, :], bits, mask=is_there[:, None] & is_map[None, :])
