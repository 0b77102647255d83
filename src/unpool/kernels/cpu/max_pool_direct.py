"""Max pooling in registers: each block of neighbouring outputs walks its windows once.

    best[lane], at[lane] = largest of x[row + (lane * stride + tap * dilation)], and the index it has

Any rank, stride, dilation and padding; lanes are positions of the last axis, or channels.
"""

from functools import cache

import numpy as np
from numba import types

from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.order import beats, follow, is_amiss, order
from unpool.kernels.cpu.rows import list_rows
from unpool.kernels.cpu.vector import (
    address_of,
    convert,
    count_set,
    count_up,
    gather,
    load_every,
    prefetch,
    select,
    splat,
    store,
    store_masked,
    total_of,
)

AHEAD = 4096  # bytes between what is read and what is asked for, where planes outgrow the second cache


def lanes_of(size: int) -> int:
    """Outputs in one register, for elements of so many bytes."""
    return vector_bytes() // size


def place_type(dtype: str, *, is_wide: bool):
    """The Numba integer that counts places from the first tap of a window on."""
    return types.int64 if is_wide else getattr(types, f"int{place_bits(np.dtype(dtype).itemsize)}")


def place_bits(size: int) -> int:
    """Bits of places beside elements of so many bytes, unless they are wide: as many fit a register of 16-bit ones."""
    return 16 if size == 2 else 32


def registers_of(size: int, small: int) -> int:
    """Registers in one block: two independent ones of 32-bit elements hide each other's waiting."""
    return 2 if size == 4 and small >= 2 * lanes_of(size) else 1


@cache
def kernel(dtype: str, stride: int, has_indices: bool, is_wide: bool, registers: int):
    """The compiled kernel for one element type.

    Args:
        dtype: NumPy name of the elements as they are compared: float32, float64, int8, uint8; int16 means the bits of
            a 16-bit float.
        stride: of the lanes: 1 or 2; 0 for any.
        has_indices: whether indices are stored.
        is_wide: whether places have 64 bits.
        registers: how many hold the outputs of one block.
    """
    return _make(
        getattr(types, dtype),
        place_type(dtype, is_wide=is_wide),
        lanes_of(np.dtype(dtype).itemsize) * registers,
        np.dtype(dtype).itemsize,
        stride,
        int(has_indices),
        source_digest(),
    )


def _make(element, place_type, lanes, size, step, has_indices, digest):
    offset_type = getattr(types, f"u{place_type}")

    @compiled()
    def pool_rows(x, y, indices, numbers, steps, table, lowest, infinity, first, stop):
        """Memory order: outer, leading position, block of lanes. Blocks whose taps all fall on data load whole
        vectors, and compare without regard to NaN; one in which NaN was noticed, and the next one after it, compare in
        full. The other blocks mask too. A last block moves back over its neighbour rather than ending short.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        elements, plane, rows, outer_weight, lane_weight = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
        small, large, begin = numbers[5], numbers[6], numbers[7]
        window, stride, dilation = numbers[8], numbers[9], numbers[10]
        width, ahead, start_job = numbers[11], numbers[12], numbers[13]
        others, codes = np.empty(width, np.int64), np.empty(width, np.int64)
        source, end = address_of(x), address_of(x) + elements * size
        nothing, limit = splat(element(lowest), lanes), splat(element(infinity), lanes)
        lowest_key, nowhere = order(nothing, limit), splat(place_type(-1), lanes)
        ramp = count_up(types.int64, lanes, 1)
        weights = ramp * splat(np.int64(stride * lane_weight), lanes)
        lane_starts = convert(ramp * splat(stride, lanes), place_type)
        row_end = convert(splat(place_type(large), lanes), offset_type)
        span = (window - 1) * dilation
        is_last, has_nan = numbers[14] != 0, False
        for job in range(start_job + first, start_job + stop):
            outer, row = job // rows, job % rows
            count = list_rows(steps, table, row, others, codes)
            done = 0
            while done < small:
                block = min(done, max(0, small - lanes))
                done = block + lanes
                start = block * stride - begin
                base = source + (outer * plane + start) * size
                last = base + (others[max(count, 1) - 1] + span + lanes * step) * size
                is_safe = step > 0 and count > 0 and base + others[0] * size >= source and last <= end
                is_whole = start >= 0 and start + span + (lanes - 1) * stride < large and small >= lanes and count > 0
                is_whole = is_whole and last <= end
                best, key, at = nothing, lowest_key, splat(place_type(0), lanes)
                if is_whole and not has_nan:
                    total = splat(element(0), lanes)
                    for place in range(count):
                        address, code = base + others[place] * size, codes[place] - codes[0]
                        if ahead:
                            for line in range(0, lanes * max(step, 1) * size, 64):
                                prefetch(address + ahead + line)
                        for _tap in range(window):
                            value = load_every(address, element, lanes, step, stride * size)
                            total = total_of(total, value)
                            rank = order(value, limit)
                            wins = rank > key
                            key = select(wins, rank, key)
                            best = follow(wins, value, best, key)
                            at = select(wins, splat(place_type(code), lanes), at)
                            address += dilation * size
                            code += dilation * lane_weight
                    has_nan = count_set(is_amiss(total, key, is_last)) > 0
                if has_nan or not is_whole:
                    best, key, at = nothing, lowest_key, nowhere
                    for place in range(count):
                        address, code = base + others[place] * size, codes[place] - codes[0]
                        position = lane_starts + splat(place_type(start), lanes)
                        for _tap in range(window):
                            is_data = convert(position, offset_type) < row_end
                            if is_safe:
                                value = load_every(address, element, lanes, step, stride * size)
                            else:
                                value = gather(address, stride * size, is_data, nothing)
                            rank = order(value, limit)
                            wins = is_data & (beats(rank, key, is_last) | (at == nowhere))
                            key = select(wins, rank, key)
                            best = follow(wins, value, best, key)
                            at = select(wins, splat(place_type(code), lanes), at)
                            address += dilation * size
                            code += dilation * lane_weight
                            position = position + splat(place_type(dilation), lanes)
                    has_nan = is_whole and count_set(is_amiss(key, key, is_last)) > 0
                target = job * small + block
                base_index = splat(np.int64(outer * outer_weight + codes[0] + start * lane_weight), lanes)
                index = convert(at, types.int64) + base_index + weights
                if not is_whole:
                    index = select(at == nowhere, splat(np.int64(-1), lanes), index)
                if small >= lanes:
                    store(address_of(y) + target * size, best)
                    if has_indices:
                        store(address_of(indices) + target * 8, index)
                else:
                    is_output = ramp < splat(small, lanes)
                    store_masked(address_of(y) + target * size, best, is_output)
                    if has_indices:
                        store_masked(address_of(indices) + target * 8, index, is_output)

    return pool_rows
