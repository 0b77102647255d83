"""The weights of Winograd's transposed convolution, transformed: one product of small matrices per pair of channels.

    packed[tile, entry, channel, row] = sum over taps t: factor[entry, t] * w[channel, tile * rows + row, t]

The factors are few and mostly zero, so the summands of each entry are listed. NumPy's product would hand such work to
threads of its own, which go on watching for more on cores that ours, PyTorch's or onnxruntime's want next.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from unpool.kernels.cpu.conv_transpose.winograd_tiling import WinogradTiling, transform_of
from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.vector.named import record


class Weights(NamedTuple):
    """What the kernel reads of weights.

    Attributes:
        maps: output channels of a group.
        tiles: of these, the last one perhaps with fewer rows.
        taps: of a window.
    """

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


@compiled(fastmath={"contract"})
def pack_tiles(w, packed, given, starts, summands, first, stop):
    """Jobs are tiles of all groups; sums are formed in float64 and rounded once.

    for every tile, for every channel
        for every row, for every tap: lay the weight out, taps first
        for every entry, for every summand, for every row: add

    Args:
        w: (C, M / group, taps), flat.
        packed: (group * tiles, entries, C / group, rows).
        given: what is read of the weights, a record.
        starts: from `list_summands`.
        summands: likewise.
        first: job to start with.
        stop: job to stop before.
    """
    about = given[0]
    maps, tiles, taps = about.maps, about.tiles, about.taps
    entries, channels, rows = packed.shape[1:]
    lines = np.zeros((taps, rows))
    line = np.empty(rows)
    for job in range(first, stop):
        group, begin = job // tiles, job % tiles * rows
        used = min(rows, maps - begin)
        lines[:, used:] = 0
        for channel in range(channels):
            for row in range(used):
                for tap in range(taps):
                    lines[tap, row] = w[((group * channels + channel) * maps + begin + row) * taps + tap]
            for entry in range(entries):
                line[:] = 0
                for number in range(starts[entry], starts[entry + 1]):
                    factor, tap = summands[number].factor, summands[number].tap
                    for row in range(rows):
                        line[row] += factor * lines[tap, row]
                for row in range(rows):
                    packed[job, entry, channel, row] = line[row]
