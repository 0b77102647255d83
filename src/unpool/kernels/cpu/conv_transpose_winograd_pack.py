"""The weights of Winograd's transposed convolution, transformed: one product of small matrices per pair of channels.

    packed[tile, entry, channel, row] = sum over taps t: factor[entry, t] * w[channel, tile * rows + row, t]

The factors are few and mostly zero, so a tile's terms are listed. NumPy's product would hand such work to threads of
its own, which go on watching for more on cores that ours, PyTorch's or onnxruntime's want next.
"""

import numpy as np

from unpool.kernels.cpu.compiled import compiled


@compiled(fastmath={"contract"})
def pack_tiles(w, packed, starts, taps, factors, size, maps, tiles, first, stop):
    """Jobs are tiles of all groups; sums are formed in float64 and rounded once.

    Args:
        w: (C, M / group, taps), flat.
        packed: (group * tiles, entries, C / group, rows).
        starts: where the terms of every entry start in `taps` and `factors`; the last one is where they end.
        taps: of every term.
        factors: of every term, float64.
        size: of a window, in taps.
        maps: M / group.
        tiles: of one group.
        first: job to start with.
        stop: job to stop before.
    """
    entries, channels, rows = packed.shape[1:]
    lines = np.zeros((size, rows))
    line = np.empty(rows)
    for job in range(first, stop):
        group, begin = job // tiles, job % tiles * rows
        used = min(rows, maps - begin)
        lines[:, used:] = 0
        for channel in range(channels):
            for row in range(used):
                for tap in range(size):
                    lines[tap, row] = w[((group * channels + channel) * maps + begin + row) * size + tap]
            for entry in range(entries):
                line[:] = 0
                for term in range(starts[entry], starts[entry + 1]):
                    factor, tap = factors[term], taps[term]
                    for row in range(rows):
                        line[row] += factor * lines[tap, row]
                for row in range(rows):
                    packed[job, entry, channel, row] = line[row]
