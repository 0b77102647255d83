"""Max pooling of overlapping windows, one axis after the other, the last one first.

    pooled[r, i] = max over taps t of row[r, i * stride + t * dilation]        for every row of the padded plane
    y[j, i]      = max over taps t of pooled[j * stride + t * dilation, i]     for every other axis

A strict comparison keeps the leftmost of a row, and then the topmost row: the first in row-major order. A wide window
is a chain of small ones, which the plan lists: a maximum of 4 neighbours, then of 4 of those results, reaches 16.

Elements are compared in their own order as float32, float64 or int32; padding is `fill`. NaN is noticed while rows are
laid out, and only what comes from these is compared in full. A maximum that is `fill` may be padding: then the job's
flag is set, and its outputs are for the caller to find in another way.
"""

from functools import cache

import numpy as np
from numba import types

from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest, vector_bytes
from unpool.kernels.cpu.max_pool_lines import lay_out
from unpool.kernels.cpu.max_pool_moves import AT_TAPS, CARRIED, NOWHERE, aligned, combine, deliver
from unpool.kernels.cpu.vector import IGNORED, address_of

COMPARED = {"float32": "float32", "float64": "float64", "int16": "float32", "int8": "int32", "uint8": "int32"}
"""By the kernels' name of an element type, what elements are compared as; int16 holds the bits of 16-bit floats."""


def lanes_of(dtype: str) -> int:
    """Elements in one register while they are compared."""
    return vector_bytes() // np.dtype(COMPARED[dtype]).itemsize


@cache
def kernel(dtype: str, stride: int, has_indices: bool):
    """The compiled kernel for one element type.

    Args:
        dtype: NumPy name of the elements: float32, float64, int8, uint8; int16 means the bits of a 16-bit float.
        stride: of the last axis: 1; 2 if its windows are pooled in one move; 0 for any.
        has_indices: whether indices are stored.
    """
    compared = getattr(types, COMPARED[dtype])
    place = types.int64 if compared.bitwidth == 64 else types.int32
    return _make(
        getattr(types, dtype), compared, place, lanes_of(dtype), min(stride, 1), max(stride, 1), int(has_indices),
        source_digest(),
    )  # fmt: skip


def _make(element, compared, place_type, lanes, step, phases, has_indices, digest):
    at_taps, carried = (AT_TAPS, CARRIED) if has_indices else (NOWHERE, NOWHERE)
    size, width = element.bitwidth // 8, compared.bitwidth // 8

    @compiled()
    def pool_strips(
        x, y, indices, flags, strips, row, line, used, starts, codes, row_codes, tap_bytes, tap_codes, line_moves,
        plane_moves, fill, infinity, ahead, nan, first, stop,
    ):  # fmt: skip
        """Memory order: outer, strip, a few rows at a time as lines in the first cache, then the strip's results.

        Returns whether a flag was set.
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        plane, count, strip_rows, strip_elements, strip_outputs, outputs, counted = strips
        line_rows, line_size, plane_size, shift, pitch, has_channels = line
        lines, line_places = np.empty(2 * line_size, compared), np.empty(line_size * has_indices, place_type)
        pooled, places = np.empty(2 * plane_size, compared), np.empty(2 * plane_size * has_indices, place_type)
        lines[:] = fill
        found = False
        zero, last_line, last_plane = place_type(0), line_moves.size - 1, plane_moves.shape[1] - 1
        out = line_moves[last_line]
        for job in range(first, stop):
            outer, strip = job // count, job % count
            part = 1 if strip == count - 1 else 0
            begin = outer * plane + strip * strip_elements
            # Addresses are taken here, for every job: Numba frees an array behind the last line that names it.
            laid, pooled_at = aligned(lines) + shift * width, aligned(places) - aligned(pooled)
            chained, chained_at = laid + line_size * width, aligned(line_places) - laid - line_size * width
            near, far, met = aligned(pooled), aligned(pooled) + plane_size * width, False
            for done in range(0, used[part], line_rows):
                rows, now = min(line_rows, used[part] - done), strip * strip_rows + done
                has_nan = lay_out(address_of(x) + begin * size, laid, starts, now, rows, row, fill, infinity, ahead,
                                  element, compared, phases, lanes)  # fmt: skip
                met |= has_nan
                taps = tap_bytes, tap_codes, nan if has_nan else IGNORED
                to, base, each = near + done * pitch * width, np.int64(0), address_of(codes) + now * width
                if has_channels:
                    base, each, rows = np.int64(codes[now]), address_of(row_codes), out.rows
                if last_line == 0:
                    combine(laid, 0, to, pooled_at, out, rows, each, base, taps, fill, zero, step, at_taps, lanes)
                else:
                    move = line_moves[0]
                    many = move.rows if has_channels else rows
                    combine(laid, 0, chained, chained_at, move, many, each, base, taps, fill, zero, 1, at_taps, lanes)
                    for number in range(1, last_line):
                        move = line_moves[number]
                        combine(chained, chained_at, chained, chained_at, move, move.rows, 0, 0, taps, fill, zero, 1,
                                carried, lanes)  # fmt: skip
                    combine(chained, chained_at, to, pooled_at, out, rows, 0, 0, taps, fill, zero, step, carried, lanes)
            taps = tap_bytes, tap_codes, nan if met else IGNORED
            for number in range(last_plane):
                move = plane_moves[part, number]
                to = near if move.in_place else far
                combine(near, pooled_at, to, pooled_at, move, move.rows, 0, 0, taps, fill, zero, 1, carried, lanes)
                if not move.in_place:
                    near, far = far, near
            target = outer * outputs + strip * strip_outputs
            flags[job] = deliver(
                near, pooled_at, address_of(y) + target * size, address_of(indices) + target * 8,
                plane_moves[part, last_plane], begin * counted, taps, fill, zero, element, carried, lanes,
            )  # fmt: skip
            found |= flags[job]
        return found

    return pool_strips
