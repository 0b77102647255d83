"""Max pooling of overlapping windows, one axis after the other, the last one first.

    pooled[r, i] = max over taps t of row[r, i * stride + t * dilation]        for every row of the padded plane
    y[j, i]      = max over taps t of pooled[j * stride + t * dilation, i]     for every other axis

A strict comparison keeps the leftmost of a row, and then the topmost row: the first in row-major order. A wide window
is a chain of small ones, which `strips.py` lists: a maximum of 4 neighbours, then of 4 of those results, reaches 16.

Elements are compared in their own order as float32, float64 or int32; padding is `fill`. NaN is noticed while rows are
laid out (`lines.py`), and only what comes from these is compared in full (`moves.py`). A maximum that is `fill` may be
padding: then the job's flag is set, and its outputs are pooled again by a kernel that walks whole windows.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types

from unpool.kernels.cpu.machine.compiled import compiled
from unpool.kernels.cpu.machine.host import source_digest
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool.direct import AHEAD
from unpool.kernels.cpu.max_pool.elements import COMPARED, compared_lanes
from unpool.kernels.cpu.max_pool.lines import lay_out
from unpool.kernels.cpu.max_pool.moves import (
    CARRIED,
    FROM_TAPS,
    NOWHERE,
    Outputs,
    RowPlaces,
    Taps,
    Where,
    aligned,
    combine,
    deliver,
)
from unpool.kernels.cpu.max_pool.pool import Elements, Pool
from unpool.kernels.cpu.max_pool.strips import About, cut, known_stride
from unpool.kernels.cpu.vector import IGNORED, address_of
from unpool.kernels.cpu.vector.named import Fixed, record


def launch(pool: Pool, again: Callable[[int, int], Callable[..., object]]) -> "Watched":
    """The call that pools all planes.

    Args:
        pool: what is asked for.
        again: the call that pools the rows of outputs from one up to another, by walking whole windows.
    """
    element, plane = pool.elements, pool.plane
    found = cut(plane, element.name, pool.has_indices, pool.outer, pool.mode.per_plane)
    about = found.about._replace(
        ahead=AHEAD if pool.is_asked_for else 0, nan=pool.mode.nan, infinity=element.infinity,
        fill=_fill(element, pool.has_indices),
    )  # fmt: skip
    jobs = pool.size // about.plane * about.strips
    call = Launch(
        _kernel(element.name, known_stride(plane.spatial[-1], plane.unit), pool.has_indices), jobs, pool.work,
        record(about, fill=COMPARED[element.name]), found.tables,
    )  # fmt: skip
    return Watched(call, jobs, about, plane.lanes.small, again)


class Watched:
    """Pools bands of planes, and again those that may have padding as a maximum."""

    def __init__(
        self, call: Launch, jobs: int, about: About, lanes: int, again: Callable[[int, int], Callable[..., object]]
    ) -> None:
        """As for `launch`; rows of outputs have so many lanes."""
        self._call = call
        self._jobs = jobs
        self._bands = about.strips, about.strip_outputs // lanes, about.outputs // lanes
        self._again = again
        self.nbytes = call.nbytes

    def __call__(self, x: Any, y: Any, indices: Any, threads: int | None) -> None:
        """As `Launch`."""
        flags = np.empty(self._jobs, np.bool_)
        if any(self._call(x, y, indices, threads, flags)):
            for first, stop in flagged_rows(flags, *self._bands):
                self._again(first, stop)(x, y, indices, threads)


def flagged_rows(flags, bands: int, height: int, rows: int) -> list[tuple[int, int]]:
    """The rows of outputs of all flagged bands, as ranges.

    Args:
        flags: of every band of every plane.
        bands: of a plane.
        height: rows of outputs of a band.
        rows: of outputs of a plane; the last band may have fewer.
    """
    job = np.flatnonzero(flags)
    outer, band = job // bands, job % bands
    first, stop = outer * rows + band * height, outer * rows + np.minimum((band + 1) * height, rows)
    is_start = np.append(True, first[1:] != stop[:-1])
    return list(zip(first[is_start].tolist(), stop[np.roll(is_start, -1)].tolist(), strict=True))


def _fill(element: Elements, has_indices: bool):
    """What padding holds, as elements are compared: less than every element, or `lowest` if indices are not wanted.

    Of the bits of 16-bit floats, minus infinity is `lowest` as the kernel sees it.
    """
    kind = np.dtype(COMPARED[element.name]).type
    if kind == np.int32:
        return kind(element.lowest - has_indices)
    if element.name == "int16" and not has_indices:
        return np.int32(element.lowest << 16).view(np.float32)
    return kind(-np.inf)


@cache
def _kernel(element: str, stride: int, has_indices: bool):
    """The compiled kernel for one element type.

    Args:
        element: as `Elements` names it.
        stride: of the last axis: 1; 2 if its windows are pooled in one move; 0 for any.
        has_indices: whether indices are stored.
    """
    compared = getattr(types, COMPARED[element])
    moves = Fixed(
        compared=compared, place=types.int64 if compared.bitwidth == 64 else types.int32, lanes=compared_lanes(element),
        step=min(stride, 1), origin=CARRIED if has_indices else NOWHERE,
    )  # fmt: skip
    rows = Fixed(element=getattr(types, element), compared=compared, lanes=moves.lanes, phases=max(stride, 1))
    return _make(rows, moves, int(has_indices), source_digest())


def _make(rows_fixed, final, has_indices, digest):
    """The kernel, for what is fixed about laying out rows, and about the last move along a row.

    That one alone may have another step than 1.
    """
    from_taps = FROM_TAPS if has_indices else NOWHERE
    only, first_of_many, carried = final.but(origin=from_taps), final.but(origin=from_taps, step=1), final.but(step=1)
    element, compared, place = rows_fixed.element, final.compared, final.place
    last, size, width = carried.but(element=element), element.bitwidth // 8, compared.bitwidth // 8

    @compiled()
    def pool_strips(x, y, indices, flags, given, tables, first, stop):
        """Write some strips, in the order of memory; whether a flag was set.

        for every plane, for every strip of it
            for a few padded rows at a time: as lines in the first cache, then pooled along the row
            for every other axis, from last to first: pooled in the second cache; the first one goes to y
        """
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        about, starts, row_places, lane_places = given[0], tables.starts, tables.row_places, tables.lane_places
        tap_bytes, tap_places = tables.tap_bytes, tables.tap_places
        line_moves, plane_moves = tables.line_moves, tables.plane_moves
        strips, line_rows, line_size, pooled_size = about.strips, about.line_rows, about.line_size, about.pooled_size
        lines, line_places = np.empty(2 * line_size, compared), np.empty(line_size * has_indices, place)
        pooled, places = np.empty(2 * pooled_size, compared), np.empty(2 * pooled_size * has_indices, place)
        lines[:] = about.fill
        found, last_line, last_plane, zero = False, line_moves.size - 1, plane_moves.shape[1] - 1, np.int64(0)
        out, nowhere = line_moves[last_line], RowPlaces(zero, zero)
        for job in range(first, stop):
            outer, strip = job // strips, job % strips
            part = 1 if strip == strips - 1 else 0
            used = about.last_used_rows if part else about.used_rows
            begin = outer * about.plane + strip * about.strip_elements
            # Addresses are taken here, for every job: Numba frees an array behind the last line that names it.
            laid, to_places = aligned(lines) + about.shift * width, aligned(places) - aligned(pooled)
            line = Where(laid, zero)
            chained = Where(laid + line_size * width, aligned(line_places) - laid - line_size * width)
            near, far, met = aligned(pooled), aligned(pooled) + pooled_size * width, False
            for done in range(0, used, line_rows):
                rows, now = min(line_rows, used - done), strip * about.strip_rows + done
                has_nan = lay_out(address_of(x) + begin * size, laid, starts, now, rows, about, rows_fixed)
                met |= has_nan
                taps = Taps(tap_bytes, tap_places, about.nan if has_nan else IGNORED)
                to = Where(near + done * about.pooled_pitch * width, to_places)
                named = RowPlaces(address_of(row_places) + now * width, zero)
                if about.has_channels:
                    named, rows = RowPlaces(address_of(lane_places), np.int64(row_places[now])), out.rows
                if last_line == 0:
                    combine(line, to, out, rows, named, taps, only)
                else:
                    move = line_moves[0]
                    combine(line, chained, move, move.rows if about.has_channels else rows, named, taps, first_of_many)
                    for number in range(1, last_line):
                        move = line_moves[number]
                        combine(chained, chained, move, move.rows, nowhere, taps, carried)
                    combine(chained, to, out, rows, nowhere, taps, final)
            taps = Taps(tap_bytes, tap_places, about.nan if met else IGNORED)
            for number in range(last_plane):
                move = plane_moves[part, number]
                to = Where(near if move.in_place else far, to_places)
                combine(Where(near, to_places), to, move, move.rows, nowhere, taps, carried)
                if not move.in_place:
                    near, far = far, near
            target, move = outer * about.outputs + strip * about.strip_outputs, plane_moves[part, last_plane]
            outputs = Outputs(
                y=address_of(y) + target * size, indices=address_of(indices) + target * 8, total=move.total,
                place=begin if about.counts_planes else 0, fill=about.fill,
            )  # fmt: skip
            flags[job] = deliver(Where(near, to_places), outputs, move, taps, last)
            found |= flags[job]
        return found

    return pool_strips
