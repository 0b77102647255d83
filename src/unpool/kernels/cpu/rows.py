"""Folds any number of leading axes into one list of rows.

A kernel walks the last axis of its arrays, its lanes, with compiled loops. All axes before it are folded: each
position of the leading axes becomes a row, and the rows of the other array that it is tied to are listed on the fly.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from unpool.geometry import Walk


def row_plan(walks: Sequence[Walk], other_weights: Sequence[int], tap_weights: Sequence[int]):
    """The walks of all leading axes as the two int64 arrays that `list_rows` reads.

    Args:
        walks: one per leading axis.
        other_weights: elements between neighbouring positions of each axis in the other array.
        tap_weights: elements between neighbouring taps of each axis in the window.

    Returns:
        steps: (axes, 4) size, other step, tap step, first row in `table`.
        table: (sum of sizes, 3) other offset, tap offset and count of every position.
        width: the most rows that one position can list.
    """
    steps = np.empty((len(walks), 4), np.int64)
    parts = [np.empty((0, 3), np.int64)]
    first, width = 0, 1
    for number, (walk, other, tap) in enumerate(zip(walks, other_weights, tap_weights, strict=True)):
        steps[number] = len(walk.count), walk.other_step * other, walk.tap_step * tap, first
        parts.append(np.stack([walk.other * other, walk.tap * tap, walk.count], axis=1))
        first += len(walk.count)
        width *= max(1, int(walk.count.max(initial=0)))
    return steps, np.concatenate(parts), width


def readonly(x):
    """A flat view that cannot be written: one type for the compiler, whatever the caller's flags."""
    flat = x.reshape(-1)
    flat.flags.writeable = False
    return flat


@njit(cache=True, nogil=True, error_model="numpy")
def list_rows(steps, table, row, others, taps):
    """Fill `others` and `taps` with the offsets that leading position `row` is tied to; how many there are.

    The last leading axis varies fastest, so that rows come in row-major order of the window.
    """
    others[0] = 0
    taps[0] = 0
    count = 1
    divisor = 1
    for axis in range(steps.shape[0]):
        divisor *= steps[axis, 0]
    for axis in range(steps.shape[0]):
        divisor //= steps[axis, 0]
        place = steps[axis, 3] + row // divisor % steps[axis, 0]
        pairs = table[place, 2]
        for old in range(count - 1, -1, -1):
            other, tap = others[old] + table[place, 0], taps[old] + table[place, 1]
            for pair in range(pairs - 1, -1, -1):
                others[old * pairs + pair] = other + pair * steps[axis, 1]
                taps[old * pairs + pair] = tap + pair * steps[axis, 2]
        count *= pairs
        if count == 0:
            break
    return count
