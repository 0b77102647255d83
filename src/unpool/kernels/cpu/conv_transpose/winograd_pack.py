"""The weights of Winograd's transposed convolution, transformed: one product of small matrices per pair of channels.

    packed[tile, entry, channel, row] = sum over taps t: factor[entry, t] * w[channel, tile * rows + row, t]

The factors are few and mostly zero, so the summands of each entry are listed. NumPy's product would hand such work to
threads of its own, which go on watching for more on cores that ours, PyTorch's or onnxruntime's want next.
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64, types

from unpool.kernels.cpu.conv_transpose.winograd_tiling import WinogradTiling, transform_of
from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest
from unpool.kernels.cpu.vector import address_of, convert, first_lanes, gather, load, splat, store
from unpool.kernels.cpu.vector.named import Fixed, record

CHANNELS = 8
"""That are transformed together, so that whole lines of memory are written."""


class Weights(NamedTuple):
    """What the kernel reads of weights.

    Attributes:
        channels: of x, in a group.
        maps: output channels of a group.
        tiles: of these, the last one perhaps with fewer rows.
        taps: of a window.
    """

    channels: int
    maps: int
    tiles: int
    taps: int


class Summand(NamedTuple):
    """A factor that is not zero.

    Attributes:
        tap: that it multiplies.
        factor: float64.
    """

    tap: int
    factor: float


@lru_cache(maxsize=64)
def list_summands(tiling: WinogradTiling, sizes: tuple[int, ...]):
    """How transformed weights are summed from the taps of windows of these sizes.

    Returns:
        starts: for every entry the number of its first summand, and that of all.
        summands: of all entries.
    """
    points, phases = np.array(tiling.entries).T
    transform = transform_of(tiling.sides, sizes)[points, phases]
    entries, taps = np.nonzero(transform)
    starts = np.searchsorted(entries, np.arange(len(transform) + 1))
    summands = np.empty(len(taps), record(Summand(0, 0), factor=np.float64).dtype)
    summands["tap"], summands["factor"] = taps, transform[entries, taps]
    return starts, summands


@cache
def packing_kernel(dtype: np.dtype[Any], rows: int) -> Any:
    """The compiled kernel that packs weights of a type for tiles of so many rows."""
    return _make(Fixed(element=getattr(types, dtype.name), rows=rows), source_digest())


def _make(fixed: Any, digest: str) -> Any:
    element, rows, width = fixed.element, fixed.rows, fixed.element.bitwidth // 8
    wide = rows * np.dtype(np.float64).itemsize

    @compiled()
    def pack_tiles(w, packed, given, starts, summands, first, stop):
        """Jobs are tiles of all groups; sums are formed in float64 and rounded once.

        for every tile, for a few channels
            for every channel, for every tap: lay the rows out
            for every entry, for every channel: sum, all rows at once

        Args:
            w: (C, M / group, taps).
            packed: (group * tiles, entries, C / group, rows).
            given: what is read of the weights, a record.
            starts: from `list_summands`.
            summands: likewise.
            first: job to start with.
            stop: job to stop before.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        about = given[0]
        channels, maps, tiles, taps, entries = about.channels, about.maps, about.tiles, about.taps, starts.size - 1
        lines, zeros = np.empty((CHANNELS, taps, rows)), splat(element(0), rows)
        for job in range(first, stop):
            group, begin = job // tiles, job % tiles * rows
            is_used = first_lanes(min(rows, maps - begin), zeros)
            for start in range(0, channels, CHANNELS):
                together = min(CHANNELS, channels - start)
                for channel in range(together):
                    source = ((group * channels + start + channel) * maps + begin) * taps
                    for tap in range(taps):
                        line = gather(address_of(w) + (source + tap) * width, taps * width, is_used, zeros)
                        store(address_of(lines) + (channel * taps + tap) * wide, convert(line, float64))
                for entry in range(entries):
                    target = address_of(packed) + ((job * entries + entry) * channels + start) * rows * width
                    for channel in range(together):
                        total = splat(0.0, rows)
                        for number in range(starts[entry], starts[entry + 1]):
                            summand = summands[number]
                            line = load(address_of(lines) + (channel * taps + summand.tap) * wide, float64, rows)
                            total = total + line * splat(summand.factor, rows)
                        store(target + channel * rows * width, convert(total, element))

    return pack_tiles
