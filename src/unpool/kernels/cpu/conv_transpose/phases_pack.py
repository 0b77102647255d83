"""The weights of a transposed convolution by phases, in the order in which tiles read them.

    packed: group, chunk of output channels, class of phases, part of the sum, tile, tap, channel, row

A row of a tile is a phase and an output channel; zeros fill the last tile. Compiled code packs many weights, tile by
tile of all classes, whose taps share memory. NumPy packs few weights in less time than loading that code takes.
"""

import math
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.conv_transpose import phases_plan
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.plan import KernelStep, Operand, PlanMemory
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.tuning import PACKING


class PhasesPackParams(NamedTuple):
    """Arguments of a call."""

    channels: int  # of x, in a group
    maps: int  # output channels of a group
    taps: int  # of a window
    rows: int  # of a tile
    whole: int  # packed weights of a group


_TILE_FIELDS = ("begin", "first", "map", "maps", "rows", "list", "taps", "deep", "most", "apart")
TILE = np.dtype([(name, np.int64) for name in _TILE_FIELDS])
"""A tile of one group: where the packed weights of its class begin; its first row; the first output channel of its
chunk and their number; rows of the class; where its taps are listed, phase by phase, and how many there are of each;
channels and taps of a part of the sum; rows of all tiles of the class."""


def pack(w: Any, cut: phases_plan.Blocking, group: int, threads: int | None = 1, *, is_cached: bool = True) -> Any:
    """The packed weights, flat, of (C, M/group, k1..kk), C-contiguous; `is_cached` if they are packed once."""
    if w.size < (PACKING.weights_once if is_cached else PACKING.weights):
        return _pack_by_numpy(w, cut, group)
    params = _tables(cut, len(w) // group, w.shape[1], w[0, 0].size)[0][0]
    packed = np.empty(group * int(params["whole"]), w.dtype)
    fill(packed, w, cut, group, threads)
    return packed


def fill(packed: Any, w: Any, cut: phases_plan.Blocking, group: int, threads: int | None) -> None:
    """Write the packed weights in compiled code; the arguments are those of `pack`."""
    launch, tables = _call(w.shape, w.dtype, cut, group)
    launch.run((w, packed), threads, *tables)


def pack_step(w: Operand, cut: phases_plan.Blocking, group: int, memory: PlanMemory) -> tuple[Operand, KernelStep]:
    """The packed weights, and the step that packs them."""
    launch, tables = _call(w.shape, w.dtype, cut, group)
    packed = memory.scratch((group * int(tables[0]["whole"][0]),), w.dtype)
    return packed, KernelStep(launch, (w, packed), tables)


def _call(shape: tuple[int, ...], dtype: np.dtype[Any], cut: phases_plan.Blocking, group: int):
    """The call on (w, packed), and what follows these."""
    tables = _tables(cut, shape[0] // group, shape[1], math.prod(shape[2:]))
    params = tables[0][0]
    jobs = group * -(-int(params["channels"]) // PACKING.channels)
    return _launch(dtype, phases_plan.tile_shapes()[cut.tile][0], jobs, group * int(params["whole"])), tables


@lru_cache(maxsize=64)
def _launch(dtype: np.dtype[Any], rows: int, jobs: int, work: int) -> Launch:
    return Launch(_make_kernel(dtype, rows), jobs, work, parts=1)


@lru_cache(maxsize=64)
def _tables(cut: phases_plan.Blocking, channels: int, maps: int, taps: int):
    """The record, the tiles of a group in the order of their output channels, and the taps of all classes."""
    rows, tiles, listed, begin = phases_plan.tile_shapes()[cut.tile][0], [], [], 0
    starts = np.cumsum([0, *(len(kind.phases) * len(kind.offsets) for kind in cut.plan.classes)])
    for kind in cut.plan.classes:
        listed += [tap for phase in kind.taps for tap in phase]
    for first in range(0, maps, cut.chunk):
        chunk, entries = min(cut.chunk, maps - first), []
        for kind, start in zip(cut.plan.classes, starts[:-1], strict=True):
            size, many = len(kind.phases) * chunk, len(kind.offsets)
            parts = phases_plan.channels_together(channels, many), phases_plan.products_together(channels * many)
            apart = -(-size // rows) * rows
            entries += [
                (row % chunk, (begin, row, first, chunk, size, start, many, *parts, apart))
                for row in range(0, size, rows)
            ]
            begin += apart * many * channels
        tiles += [tile for _, tile in sorted(entries, key=itemgetter(0))]
    params = PhasesPackParams(channels=channels, maps=maps, taps=taps, rows=rows, whole=begin)
    return record(params), np.array(tiles, TILE), np.array(listed, np.int64)


@specialize
def _make_kernel(dtype: np.dtype[Any], rows: int):
    element, width = getattr(types, dtype.name), dtype.itemsize

    @jit()
    def pack_channels(w, packed, args, tiles, taps, first, stop):
        """A job packs some channels of all groups: it reads their rows from begin to end, and writes cache lines.

        for every tile, for every part of the sum, for every tap
            say where the rows come from
            for every channel, for every row
        """
        params = args[0]
        channels, maps, size = params.channels, params.maps, params.taps
        blocks, step = -(-channels // PACKING.channels), maps * size * width
        sources, zeros = np.zeros(rows, np.int64), vec.splat(element(0), rows)
        for job in range(first, stop):
            group, begin = job // blocks, job % blocks * PACKING.channels
            end = min(begin + PACKING.channels, channels)
            for number in range(tiles.size):
                tile = tiles[number]
                deep, most, count = tile.deep, tile.most, tile.taps
                used = min(rows, tile.rows - tile.first)
                for start in range(begin // deep * deep, end, deep):
                    low, together = max(begin, start), min(deep, channels - start)
                    origin = vec.address_of(w) + (group * channels + low) * step + tile.map * size * width
                    for tap in range(count):
                        phase, out_map = tile.first // tile.maps, tile.first % tile.maps
                        for row in range(used):
                            sources[row] = (out_map * size + taps[tile.list + phase * count + tap]) * width
                            out_map += 1
                            if out_map == tile.maps:
                                phase, out_map = phase + 1, 0
                        part = tap // most * most
                        place = (start * count + part * together) * tile.apart + (low - start) * rows
                        place += (tile.first * min(most, count - part) + (tap - part) * rows) * together
                        target = vec.address_of(packed) + (group * params.whole + tile.begin + place) * width
                        places = vec.load(vec.address_of(sources), types.int64, rows)
                        is_used = vec.first_lanes(used, zeros)
                        for channel in range(min(end, start + deep) - low):
                            line = vec.gather_at(origin + channel * step, places, is_used, zeros)
                            vec.store(target + channel * rows * width, line)

    return pack_channels


def _pack_by_numpy(w: Any, cut: phases_plan.Blocking, group: int) -> Any:
    channels, maps = w.shape[0] // group, w.shape[1]
    flat, rows = w.reshape(group, channels, maps, -1), phases_plan.tile_shapes()[cut.tile][0]
    parts: list[Any] = []
    for first in range(0, maps, cut.chunk):
        part = flat[:, :, first : first + cut.chunk]
        parts.extend(_pack_class(part, kind, rows) for kind in cut.plan.classes)
    return np.concatenate(parts, axis=1).reshape(-1)


def _pack_class(part: Any, kind: phases_plan.PhaseClass, rows: int) -> Any:
    """(group, channels, maps, taps) as group, then part, tile, tap, channel, row; zeros fill the last tile."""
    group, channels, maps = part.shape[:3]
    taps = np.array(kind.taps, np.int64).reshape(len(kind.phases), len(kind.offsets))
    count = len(kind.phases) * maps
    chosen = part[..., taps].transpose(0, 4, 1, 3, 2).reshape(group, len(kind.offsets), channels, count)
    tiles = -(-count // rows)
    padded = np.zeros((*chosen.shape[:3], tiles * rows), part.dtype)
    padded[..., :count] = chosen
    ordered = padded.reshape(*chosen.shape[:3], tiles, rows).transpose(0, 3, 1, 2, 4)
    deep = phases_plan.channels_together(channels, len(kind.offsets))
    most = phases_plan.products_together(channels * len(kind.offsets))
    parts = [
        ordered[:, :, tap : tap + most, first : first + deep]
        for first in range(0, channels, deep)
        for tap in range(0, max(1, len(kind.offsets)), most)
    ]
    return np.concatenate([each.reshape(group, -1) for each in parts], axis=1)
