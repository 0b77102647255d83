"""Transposed convolution as small dense products, one per phase of the output.

    y[u * stride + phase] = b + sum over taps t of that phase, channels c: w[c, m, t] * x[c, u + shift(phase, t)]

The rows (phase, output channel) of a class of phases are tiles of a register-blocked product, which reads packed
weights and the flat line of the input, and nothing else. Padding is multiplied, so weights must be finite. Channels are
summed in pieces: the input of one piece stays in the first cache, every weight is read once, and errors stay small.
"""

import math
from typing import Any

import numpy as np

from unpool.kernels.cpu.activation import PLAIN, Ending
from unpool.kernels.cpu.conv_transpose import phases_blocking
from unpool.kernels.cpu.conv_transpose.grid import Grid, line_fills, line_pitch, row_targets
from unpool.kernels.cpu.conv_transpose.phases_blocking import (
    TILES,
    Blocking,
    channels_together,
    products_together,
)
from unpool.kernels.cpu.conv_transpose.phases_kernel import KIND, About, Kind, Tables, kernel_of
from unpool.kernels.cpu.conv_transpose.work import Work
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.threads import Launch, Launches
from unpool.kernels.cpu.vector import Activation, activation_type
from unpool.kernels.cpu.vector.float16 import BITS
from unpool.kernels.cpu.vector.named import record


def launch(work: Work, storage: np.dtype[Any], ending: Ending = PLAIN) -> Launches:
    """The call that writes a transposed convolution.

    It takes (x, packed, b, y), all C-contiguous: (N, C, d1..dk), or channels last, of type `storage`; what
    `phases_pack.pack` made; (M,) of the type that sums are formed in; (N, M, D1..Dk), or channels last, of type
    `storage`.

    Args:
        work: what is to be computed.
        storage: type of x and y: float32, float64, float16 or bfloat16.
        ending: the layout of x and y, and what is done to sums before they are stored.
    """
    return Launches(work.split_work, lambda threads: _launch(work, storage, ending, threads))


def _launch(work: Work, storage: np.dtype[Any], ending: Ending, threads: int) -> Launch:
    """The same in blocks for so many threads."""
    channels, maps, last = work.channels // work.group, work.maps, work.axes[-1]
    whole = phases_blocking.blocking(work.axes, channels, maps, work.dtype.itemsize)
    cut, pieces = phases_blocking.shared(whole, work, threads)
    plan, y_maps, lanes = cut.plan, maps * work.group, vector_bytes() // work.dtype.itemsize
    line, pitch = line_pitch(plan, cut.block, lanes)
    x_batch, x_channel, x_lane = _steps(work.channels, work.small, ending)
    y_batch, y_map, y_lane = _steps(y_maps, work.large, ending)
    about = About(
        group=work.group, channels=channels, maps=maps, blocks=-(-plan.length // cut.block),
        chunks=-(-maps // cut.chunk), block=cut.block, chunk=cut.chunk, length=plan.length, pitch=pitch, tile=cut.tile,
        x_batch=x_batch, x_channel=x_channel, x_lane=x_lane, y_batch=y_batch, y_map=y_map, y_lane=y_lane,
        padded=plan.padded[-1], large=last.large, stride=last.window.stride, phases=plan.phases[-1],
        activation=Activation(ending.is_active, *ending.bounds),
    )  # fmt: skip
    edges, fills = line_fills(work.axes, plan, cut.block, lanes)
    kinds, offsets, slots = _class_tables(plan, channels, line)
    targets, sizes = row_targets(work.axes, plan), _chunk_sizes(cut, channels, maps)
    read = Tables(
        edges=edges, fills=fills, targets=targets, kinds=kinds, offsets=offsets, slots=slots, sizes=sizes
    )  # fmt: skip
    return Launch(
        kernel_of(work.dtype, BITS.get(storage.name, storage)),
        work.batch * work.group * about.blocks * about.chunks, work.split_work,
        record(about, activation=activation_type(work.dtype)), read, pieces=pieces,
    )  # fmt: skip


def _steps(channels: int, plane: int, ending: Ending) -> tuple[int, int, int]:
    """Elements between neighbours along the batch, the channels and the lanes."""
    whole = channels * plane
    return (whole, 1, channels) if ending.is_channels_last else (whole, plane, 1)


def _class_tables(plan: Grid, channels: int, line: int):
    """The kinds, the offsets of their taps, and the slots of phases, as in `Tables`."""
    kinds: list[Kind] = []
    offsets: list[int] = []
    slots = np.empty(math.prod(plan.phases), np.int64)
    done = 0
    for each in plan.classes:
        taps, phases = len(each.offsets), len(each.phases)
        kinds.append(
            Kind(phases, len(offsets), taps, products_together(channels * taps), channels_together(channels, taps))
        )
        offsets.extend(offset + copy * line for offset, copy in zip(each.offsets, each.copies, strict=True))
        slots[list(each.phases)] = range(done, done + phases)
        done += phases
    return np.array(kinds, KIND), np.array(offsets, np.int64), slots


def _chunk_sizes(cut: Blocking, channels: int, maps: int):
    """The weights before each chunk of output channels, and their number."""
    rows, sizes = TILES[cut.tile][0], []
    for first in range(0, maps, cut.chunk):
        chunk = min(cut.chunk, maps - first)
        tiles = [len(kind.offsets) * -(-len(kind.phases) * chunk // rows) for kind in cut.plan.classes]
        sizes.append(sum(tiles) * channels * rows)
    return np.cumsum([0, *sizes])
