"""The arguments of the kernel of phases (`phases.py`), and of that of AMX: records, and tables of classes of phases."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import Epilogue
from unpool.kernels.cpu.conv_transpose import phases_plan
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem

Table = npt.NDArray[np.int64]


class PhaseBlocks(NamedTuple):
    """Blocks of positions, and chunks of output channels."""

    blocks: int  # number of blocks
    chunks: int  # number of chunks
    block: int  # positions in a block
    chunk: int  # output channels in a chunk
    length: int  # positions that can be outputs
    margin: int  # elements that the last output reads beyond its position
    line: int  # between two lines of a channel
    pitch: int  # between the lines of two channels, or of two pairs of channels
    tile: int  # number of the shape of tiles in registers
    depth: int  # tiles of channels, with AMX


class ArrayStrides(NamedTuple):
    """Distances between neighbours in an array."""

    batch: int
    channel: int
    lane: int


class LanePhases(NamedTuple):
    """The lanes of x, of the line and of y."""

    small: int  # lanes of x
    padded: int  # lanes of the line
    large: int  # lanes of y
    stride: int  # of the window
    phases: int  # number of phases


class PhasesParams(NamedTuple):
    """Arguments of a call. Sizes and distances are in elements."""

    group: int  # number of groups
    channels: int  # of x, in a group
    maps: int  # of y, in a group
    blocks: PhaseBlocks
    x: ArrayStrides
    y: ArrayStrides
    lanes: LanePhases
    activation: vec.ActivationParams  # of the sums


class PhaseKind(NamedTuple):
    """A class of phases, as the kernel reads it."""

    phases: int  # number of phases
    first_tap: int  # number of its first tap in `offsets`
    taps: int  # number of taps
    taps_together: int  # that are summed at once
    channels_together: int  # that are summed at once


KIND = np.dtype([(name, np.int64) for name in PhaseKind._fields])


class PhasesTables(NamedTuple):
    """Tables of a call."""

    starts: Table  # where rows of the line start in x, see `row_starts`
    copies: Table  # per line of a channel, the padding before its first element
    targets: Table  # where rows go in y, see `row_targets`
    kinds: npt.NDArray[np.void]  # a `PhaseKind` for every class
    offsets: Table  # of all taps of all classes, elements from a position of the line
    slots: Table  # per phase, the number of phases whose results come before
    sizes: Table  # per chunk of output channels, the weights before it; and their number


def blocks_of(
    problem: ConvTransposeProblem, plan: phases_plan.PhaseGrid, block: int, chunk: int, lanes: int
) -> PhaseBlocks:
    """Blocks of `block` positions, and chunks of `chunk` output channels, with `tile` and `depth` 0."""
    blocks, chunks = -(-plan.length // block), -(-problem.maps // chunk)
    line, pitch = phases_plan.line_pitch(plan, block, lanes)
    return PhaseBlocks(blocks, chunks, block, chunk, plan.length, plan.margin, line, pitch, 0, 0)


def params_of(
    problem: ConvTransposeProblem, epilogue: Epilogue, plan: phases_plan.PhaseGrid, blocks: PhaseBlocks
) -> PhasesParams:
    """The arguments of a call."""
    last, maps = problem.axes[-1], problem.maps
    return PhasesParams(
        group=problem.group, channels=problem.channels // problem.group, maps=maps, blocks=blocks,
        x=ArrayStrides(*_steps_of(problem.channels, problem.small, epilogue)),
        y=ArrayStrides(*_steps_of(maps * problem.group, problem.large, epilogue)),
        lanes=LanePhases(last.small, plan.padded[-1], last.large, last.window.stride, plan.phases[-1]),
        activation=vec.ActivationParams(epilogue.is_active, *epilogue.bounds),
    )  # fmt: skip


def _steps_of(channels: int, plane: int, epilogue: Epilogue) -> tuple[int, int, int]:
    """Elements between neighbours along the batch, the channels and the lanes."""
    whole = channels * plane
    return (whole, 1, channels) if epilogue.is_channels_last else (whole, plane, 1)


def tables_of(problem: ConvTransposeProblem, plan: phases_plan.PhaseGrid, line: int, sizes: Table) -> PhasesTables:
    """The tables of a call; `sizes` are those of its chunks."""
    starts, copies = phases_plan.row_starts(problem.axes, plan), np.array(plan.copies, np.int64)
    kinds, offsets, slots = class_tables(plan, problem.channels // problem.group, line)
    targets = phases_plan.row_targets(problem.axes, plan)
    return PhasesTables(starts, copies, targets, kinds, offsets, slots, sizes)


def class_tables(plan: phases_plan.PhaseGrid, channels: int, line: int):
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
