"""What the direct kernel of transposed convolution reads beside its arrays: terms of its sums, rows of y in order."""

import numpy as np

from unpool.geometry import Axis, growing_walk, tap_spans


def products_of(channels: int, kind, taps, apart: list[list[int]]):
    """All terms of the phase of a kind of row: (bytes in the window, bytes in the panel)."""
    channel, row, tap = np.ix_(range(channels), range(len(kind)), range(len(taps)))
    parts = np.stack([channel, channel], -1) * apart[0] + kind[row] * apart[1] + taps[tap] * apart[2]
    return parts.reshape(-1, 2)


def taps_of(axis: Axis, lanes: int):
    """Per phase its taps, each with what it reads at step 0; padding; elements that are read beyond the steps."""
    spans = tap_spans(axis)
    shift, phase = np.divmod(spans[:, 3], axis.window.stride)
    left = -(-int(shift.max(initial=0)) // lanes) * lanes
    taps = np.stack([spans[:, 0], left - shift], 1)
    return [taps[phase == each] for each in range(axis.window.stride)], left, left - int(shift.min(initial=0))


def kinds_of(axis: Axis):
    """Kinds of positions of an axis, each the taps that reach it, first tap and how many; and the kind of each."""
    walk = growing_walk(axis)
    return np.unique(np.stack([np.where(walk.count, walk.tap, 0), walk.count], 1), axis=0, return_inverse=True)


def rows_of(leading: tuple[Axis, ...]):
    """What the rows of y are tied to.

    Returns:
        rows: (rows, 2) an input row, and the number of the kind of the row.
        reach: (rows, 2) the first and the last input row that are read.
        kinds: per kind its terms (row of the window, input row behind the one that is given).
    """
    rows, reach, kinds = np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64), [np.zeros((1, 2), np.int64)]
    for axis in leading:
        walk, (found, number), back = growing_walk(axis), kinds_of(axis), np.arange(axis.window.size)
        steps = [walk.tap_step, walk.other_step]
        one = [[first, 0] + back[:count, None] * steps for first, count in found]
        kinds = [(old[:, None] * [axis.window.size, axis.small] + new).reshape(-1, 2) for old in kinds for new in one]
        last = np.clip(walk.other, 0, axis.small - 1)
        edges = np.stack([last + np.maximum(0, walk.count - 1) * walk.other_step, last], 1)
        reach = (reach[:, None] * axis.small + edges).reshape(-1, 2)
        rows = (rows[:, None] * [axis.small, len(found)] + np.stack([last, number.reshape(-1)], 1)).reshape(-1, 2)
    return rows, reach, kinds


def bands_of(reach, most: int, fewest: int):
    """Equal parts of the output rows: (first, stop, low, high), the last two of the input rows that they read.

    So many that they read at most `most` rows each, and that there are `fewest`; but fewer if they would read
    everything more than twice.
    """
    count, bands = 1, _equal_bands(reach, 1)
    while count < len(reach) and ((bands[:, 3] - bands[:, 2]).max() > most or count < fewest):
        count = min(len(reach), 2 * count)
        finer = _equal_bands(reach, count)
        if (finer[:, 3] - finer[:, 2]).sum() > 2 * (reach[:, 1].max() + 1):
            break
        bands = finer
    return bands


def in_strips(rows, bands, strip: int):
    """(row of y, input row, kind) in bands, and there in strips of so many rows, kind by kind."""
    number, band = np.arange(len(rows)), np.repeat(np.arange(len(bands)), bands[:, 1] - bands[:, 0])
    return np.column_stack([number, rows])[np.lexsort((number, rows[:, 1], number // strip, band))]


def _equal_bands(reach, count: int):
    edges = np.arange(count + 1) * len(reach) // count
    low, high = np.minimum.reduceat(reach[:, 0], edges[:-1]), np.maximum.reduceat(reach[:, 1], edges[:-1]) + 1
    return np.stack([edges[:-1], edges[1:], low, high], 1)
