"""Max pooling of overlapping windows: a maximum over 1, 2, 4, ... neighbours, axis by axis.

A plane is laid out with its padding as one flat line of (key, payload) pairs. Combining every pair with the one
`offset` further doubles the window along an axis; a last, overlapping step reaches its exact size. Whatever the rank,
the kernel is a list of offsets walked over one line:

    line[i] = line[i + offset] if its key is larger, else line[i]

Axes go from last to first and the earlier pair wins ties, so the first maximum in row-major order is found. What is
combined across the end of an axis lands on positions that no window starts at.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numba import types

from unpool.geometry import Axis
from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.order import KEY_TYPES, beats, key_of
from unpool.kernels.cpu.vector import (
    address_of,
    convert,
    count_up,
    gather,
    gather_at,
    load,
    load_every,
    load_masked,
    select,
    splat,
    store,
    store_masked,
)

STRIP_BYTES = 1 << 18
"""A strip of a plane is cut so that its line stays in the second cache."""


def offsets(axes: Sequence[Axis], pitches: Sequence[int]) -> np.ndarray:
    """The offsets that grow every window of one element to its full size, last axis first.

    Args:
        axes: one per axis of the line.
        pitches: elements of the line between neighbours of each axis.

    >>> from unpool.geometry import Window
    >>> offsets([Axis(9, 7, Window(3)), Axis(20, 8, Window(13))], [20, 1]).tolist()
    [1, 2, 4, 5, 20, 20]
    """
    found = []
    for axis, pitch in reversed(list(zip(axes, pitches, strict=True))):
        covered = 1
        while covered < axis.window.size:
            step = min(covered, axis.window.size - covered)
            found.append(step * axis.window.dilation * pitch)
            covered += step
    return np.array(found, np.int64)


def padded_size(axis: Axis) -> int:
    """Elements of an axis with all the padding that a window touches."""
    return (axis.small - 1) * axis.window.stride + axis.window.reach


def output_rows(axes: Sequence[Axis]) -> np.ndarray:
    """For every output position of the leading axes the row of the line that its window starts in."""
    rows = np.zeros(1, np.int64)
    for number, axis in enumerate(axes):
        pitch = math.prod(padded_size(later) for later in axes[number + 1 :])
        rows = (rows[:, None] + np.arange(axis.small) * (axis.window.stride * pitch)).reshape(-1)
    return rows


@cache
def kernel(dtype: str, stride: int, has_indices: bool, is_wide: bool, nan_last: bool):
    """The compiled kernel for one element type.

    Args:
        dtype: NumPy name of the elements: float32, float64, int8, uint8; int16 means the bits of a 16-bit float.
        stride: of the lanes: 1 or 2; 0 for any.
        has_indices: whether indices are stored; the payload is then a place, otherwise the element itself.
        is_wide: whether a plane has 2**31 elements or more.
        nan_last: whether the last NaN of a window is found, rather than the first.
    """
    size, key = np.dtype(dtype).itemsize, KEY_TYPES[dtype]
    bits = types.uint8 if dtype == "uint8" else getattr(types, f"int{8 * size}")
    payload = (types.int64 if is_wide else types.int32) if has_indices else bits
    lanes = vector_bytes() // np.dtype(key).itemsize
    return _make(
        bits, getattr(types, key), payload, lanes, size, stride, int(has_indices), int(nan_last), source_digest()
    )


def _make(bits, key_type, payload_type, lanes, size, step, has_indices, nan_last, digest):
    key_size, payload_size = key_type.bitwidth // 8, payload_type.bitwidth // 8
    smallest = -(2 ** (key_type.bitwidth - 1))

    @compiled()
    def pool_strips(x, y, indices, shape, lane, strips, starts, rows_out, doublings, lowest, infinity, first, stop):
        """Memory order: outer, strip of the first axis, then the line three times: laid out row by row, combined once
        per offset, and read at the output positions. All loops over lanes are whole vectors, the last one masked.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        plane, outer_weight, lane_weight, unit = shape
        small, large, begin, padded, stride = lane
        count, out_height, in_height, out_rest, in_rest, line_rows = strips
        keys = np.empty(line_rows * padded + 4 * lanes, key_type)
        payloads = np.empty(line_rows * padded + 4 * lanes, payload_type)
        key_line, payload_line, source = address_of(keys), address_of(payloads), address_of(x)
        nothing, limit = splat(key_type(smallest), lanes), splat(infinity, lanes)
        empty, zero = splat(lowest, lanes), splat(0, lanes)
        ramp = count_up(types.int64, lanes, 1)
        for job in range(first, stop):
            outer, strip = job // count, job % count
            first_row, used = strip * in_height * in_rest, min(line_rows, starts.size - strip * in_height * in_rest)
            base = source + outer * plane * size
            for row in range(used):
                start = starts[first_row + row]
                width = large if start >= 0 else 0
                for block in range(0, padded, lanes):
                    where = ramp + splat(block - begin, lanes)
                    address = base + (start + block - begin) * size
                    if width > 0 and block >= begin and block - begin + lanes <= width:
                        value = load(address, bits, lanes)
                        key = key_of(value, limit)
                    else:
                        is_data = (where >= zero) & (where < splat(width, lanes))
                        value = load_masked(address, is_data, splat(bits(0), lanes))
                        key = select(is_data, key_of(value, limit), nothing)
                    at = row * padded + block
                    store(key_line + at * key_size, key)
                    if has_indices:
                        place = splat(start // unit, lanes) if unit > 1 else where + splat(start, lanes)
                        store(payload_line + at * payload_size, convert(place, payload_type))
                    else:
                        store(payload_line + at * payload_size, convert(value, payload_type))
            for number in range(doublings.size):
                offset = doublings[number]
                for at in range(0, used * padded - offset, lanes):
                    near = key_line + at * key_size
                    key, other = load(near, key_type, lanes), load(near + offset * key_size, key_type, lanes)
                    wins = beats(other, key, nan_last)
                    store(near, select(wins, other, key))
                    near = payload_line + at * payload_size
                    payload = load(near, payload_type, lanes)
                    other_payload = load(near + offset * payload_size, payload_type, lanes)
                    store(near, select(wins, other_payload, payload))
            out_first = strip * out_height * out_rest
            out_stop = min(out_first + out_height * out_rest, rows_out.size)
            is_output = ramp < splat(small, lanes)
            for row in range(out_first, out_stop):
                line = (rows_out[row] - first_row) * padded
                done = 0
                while done < small:
                    block = min(done, max(0, small - lanes))
                    done = block + lanes
                    at = line + block * stride
                    key_at, payload_at = key_line + at * key_size, payload_line + at * payload_size
                    if step:
                        key = load_every(key_at, key_type, lanes, step, 0)
                        payload = load_every(payload_at, payload_type, lanes, step, 0)
                    else:
                        key = gather(key_at, stride * key_size, is_output, nothing)
                        payload = gather(payload_at, stride * payload_size, is_output, splat(payload_type(0), lanes))
                    is_empty = key == nothing
                    target = (outer * rows_out.size + row) * small + block
                    if has_indices:
                        place = select(is_empty, zero, convert(payload, types.int64))
                        lane_number = ramp + splat(block, lanes)
                        element = place * splat(unit, lanes)
                        if unit > 1:
                            element = element + lane_number
                        result = gather_at(base, element * splat(size, lanes), ~is_empty & is_output, empty)
                        index = place + splat(outer * outer_weight, lanes) + lane_number * splat(lane_weight, lanes)
                        index = select(is_empty, splat(-1, lanes), index)
                        if small >= lanes:
                            store(address_of(indices) + target * 8, index)
                        else:
                            store_masked(address_of(indices) + target * 8, index, is_output)
                    else:
                        result = select(is_empty, empty, convert(payload, bits))
                    if small >= lanes:
                        store(address_of(y) + target * size, result)
                    else:
                        store_masked(address_of(y) + target * size, result, is_output)

    return pool_strips
