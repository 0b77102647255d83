"""Folds any number of leading axes into one list of rows.

A kernel walks the last axis of its arrays, its lanes, with compiled loops. All axes before it are folded: each
position of the leading axes becomes a row, and the rows of the other array that it is tied to are listed on the fly.
"""

from collections.abc import Sequence

import numpy as np

from unpool.geometry import Walk
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.vector.registration import jit_inline


def row_plan(walks: Sequence[Walk], other_weights: Sequence[int], labels, label_weights: Sequence[int]):
    """The walks of all leading axes as the two int64 arrays that `list_rows` reads, and their width.

    `other_weights` are the elements between neighbouring positions of each axis in the other array. `labels` give each
    row a second number, such as its place or its tap: per axis the summand of the first pair of every position, and the
    step to every next pair, times `label_weights`.

    steps   (axes, 4) size, other step, label step, first row in `table`
    table   (sum of sizes, 3) other offset, label and count of every position
    width   maximum number of rows that one position lists
    """
    steps = np.empty((len(walks), 4), np.int64)
    table = np.empty((sum(len(walk.count) for walk in walks), 3), np.int64)
    first, width = 0, 1
    for number, walk in enumerate(walks):
        (label, label_step), weights = labels[number], (other_weights[number], label_weights[number])
        width *= add_walk(steps, table, (number, first), walk, label, label_step, weights)
        first += len(walk.count)
    return steps, table, width


@jit_inline
def add_walk(steps, table, at, walk, label, label_step, weights):
    """Write an axis to the arrays of `row_plan`; the maximum number of pairs of one position, 1 or more."""
    (number, first), (other, weight), rows = at, weights, walk.count.size
    steps[number, 0] = rows
    steps[number, 1] = walk.other_step * other
    steps[number, 2] = label_step * weight
    steps[number, 3] = first
    table[first : first + rows, 0] = walk.other * other
    table[first : first + rows, 1] = label * weight
    table[first : first + rows, 2] = walk.count
    most = 1
    if rows > 0:
        most = max(most, int(walk.count.max()))
    return most


def padded_rows(padded: Sequence[int], begins: Sequence[int], sizes: Sequence[int], weights: Sequence[int]):
    """For every position of the padded leading axes, the first element of its row, or -1 in the padding.

    >>> padded_rows([4], [1], [2], [10]).tolist()
    [-1, 0, 10, -1]
    """
    starts = np.zeros(1, np.int64)
    for extent, begin, size, weight in zip(padded, begins, sizes, weights, strict=True):
        position = np.arange(extent) - begin
        is_data = (starts[:, None] >= 0) & (position >= 0) & (position < size)
        starts = np.where(is_data, starts[:, None] + position * weight, -1).reshape(-1)
    return starts


def readonly(x):
    """A flat, read-only view: one type for the compiler, with any flags of the caller's array."""
    flat = x.reshape(-1)
    flat.flags.writeable = False
    return flat


@jit()
def list_rows(steps, table, row, others, labels):
    """Write the offsets of the rows that belong to leading position `row`, and their labels; return their number.

    The last leading axis varies fastest, so that rows come in row-major order of the window.
    """
    if steps.shape[0] == 1:
        pairs = table[row, 2]
        for pair in range(pairs):
            others[pair] = table[row, 0] + pair * steps[0, 1]
            labels[pair] = table[row, 1] + pair * steps[0, 2]
        return pairs
    others[0] = 0
    labels[0] = 0
    count = 1
    divisor = 1
    for axis in range(steps.shape[0]):
        divisor *= steps[axis, 0]
    for axis in range(steps.shape[0]):
        divisor //= steps[axis, 0]
        place = steps[axis, 3] + row // divisor % steps[axis, 0]
        pairs = table[place, 2]
        for old in range(count - 1, -1, -1):
            other, label = others[old] + table[place, 0], labels[old] + table[place, 1]
            for pair in range(pairs - 1, -1, -1):
                others[old * pairs + pair] = other + pair * steps[axis, 1]
                labels[old * pairs + pair] = label + pair * steps[axis, 2]
        count *= pairs
        if count == 0:
            break
    return count
