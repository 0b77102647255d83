"""Transposed convolution of few channels per group, each output vector summed in registers from the rows that reach it.

    y[row, u * stride + phase] = b + sum over rows and taps that reach it: x[other row, u - shift(tap)] * w[tap]

The phases of an output row are computed side by side and interleaved in registers, so whole vectors of neighbours are
stored. The kernel reads a copy of some rows of x with zeros at both ends, so loads of vectors need no mask. These zeros
are multiplied, so weights must be finite; rows outside x are left out.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unpool.geometry import Axis, reach, tap_spans, upsampling_walk
from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.activation import PLAIN, Epilogue
from unpool.kernels.cpu.axes import axis_at, large_sizes, small_sizes
from unpool.kernels.cpu.conv_transpose.algorithm import Algorithm, CallContext, PackRequest, Steps, finite
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, group_shape, is_empty
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.jobs import even_job_count
from unpool.kernels.cpu.machine.plan import KernelStep, Operand
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch, Launches
from unpool.kernels.cpu.tuning import DIRECT_CONV, DIRECT_COSTS, DIRECT_TILES
from unpool.kernels.cpu.vector.registration import LazyModule, compile_as, jit_inline, overload_by_type

phase_lanes = LazyModule("unpool.kernels.cpu.conv_transpose.phase_lanes")
sparse_dot = LazyModule("unpool.kernels.cpu.conv_transpose.sparse_dot")


Table = npt.NDArray[np.int64]


class LaneParts(NamedTuple):
    """The lanes, in parts, and the rows of the panel."""

    stretches: int  # number of parts
    stretch: int  # positions in one of them
    pitch: int  # bytes between the rows of the panel
    height: int  # rows of the panel for each channel
    small: int  # lanes of x
    large: int  # lanes of y
    stride: int  # of the window
    left: int  # elements of a row of the panel before the first position
    beyond: int  # elements that are read after the last position


class DirectParams(NamedTuple):
    """Arguments of a call. Sizes are in elements, except `lanes.pitch` and `window`."""

    group: int  # number of groups
    channels: int  # of x, in a group
    maps: int  # of y, in a group
    lanes: LaneParts
    plane: int  # of x
    window: int  # bytes of it
    activation: vec.ActivationParams  # of the sums


class DirectTables(NamedTuple):
    """All tables that the kernel takes."""

    bands: Table  # begin and end of output rows, begin and end of input rows
    rows: Table  # for every output row its begin in y, in the panel and in `bounds`, in bytes
    bounds: Table  # where lists of terms begin
    terms: Table  # bytes in the window, bytes in the panel


class BandRows(NamedTuple):
    """Some rows of y, of one output channel. All but the last two fields are addresses."""

    y: int  # of the first element to write
    panel: int  # of row 0 of x, which may lie before the panel
    window: int  # of the weights of this output channel
    terms: int  # of the terms of all sums
    bounds: int  # of the table that says where lists of terms begin
    table: int  # of the entry of the first row
    total: int  # number of rows
    length: int  # neighbours to write in each


class RowTerms(NamedTuple):
    """The sums of one row; see `BandRows`."""

    near: Any  # terms that `load_terms` holds in registers
    terms: int
    bounds: int
    window: int
    bias: Any  # in all lanes


@jit_inline
def is_cheapest(axes: Any, channels: int, maps: int, size: int) -> bool:
    """True if this algorithm is the fastest, for channels and maps of a group, and elements of `size` bytes."""
    return _relative_products(axes, channels, maps, size) <= 1 and fits(axes, channels, size)


@jit_inline
def _relative_products(axes: Any, channels: int, maps: int, size: int) -> float:
    """Products for an output, over the maximum with which this algorithm is the fastest."""
    if channels == 0 or large_sizes(axes, 0) == 0 or small_sizes(axes, 0) == 0:
        return math.inf
    last = axis_at(axes, len(axes) - 1)
    lanes, steps, share = DIRECT_TILES.narrow * vector_bytes() // size, -(-last.large // last.window.stride), 1.0
    filled = -(-steps // lanes) * lanes / steps
    for number in range(len(axes)):
        window = axis_at(axes, number).window
        share *= window.size / window.stride
    most = DIRECT_COSTS.products
    if maps < DIRECT_COSTS.few_maps:
        most = DIRECT_COSTS.products_alone if maps == 1 else DIRECT_COSTS.products_of_few
    return channels * share * filled / most


@jit_inline
def fits(axes: Any, channels: int, size: int) -> bool:
    """True if the stride along the lanes is supported, and tables and panel are small; no axis is empty."""
    last, leading = axis_at(axes, len(axes) - 1), axes[: len(axes) - 1]
    if last.window.stride not in DIRECT_TILES.strides or large_sizes(leading, 0) > DIRECT_CONV.rows:
        return False
    rows = small_sizes(leading, 0)
    if len(leading) == 1:
        window = axis_at(leading, 0).window
        rows = min(rows, reach(window) // window.stride + 1)
    width = min(DIRECT_CONV.steps, last.large // last.window.stride) + reach(last.window) + 8 * vector_bytes() // size
    if channels * rows * width * size > DIRECT_CONV.window_rows:
        return False
    kinds = 1.0
    for number in range(len(leading)):
        axis = axis_at(leading, number)
        kinds = kinds * (len(kinds_of(axis)[0]) * axis.window.size / axis.window.stride)
    return channels * kinds * last.window.size <= DIRECT_CONV.terms


def launch(problem: ConvTransposeProblem, epilogue: Epilogue = PLAIN) -> Launches:
    """The call on C-contiguous (x, w, b, y) of one type, w finite, for a transposed convolution that `fits`."""
    outputs = problem.batch * problem.group * problem.maps * problem.large
    cost = (outputs + problem.batch * problem.channels * problem.maps * problem.small * problem.taps) // VECTOR_SPEEDUP

    def for_threads(threads: int) -> Launch:
        last, channels, size = problem.axes[-1], problem.channels // problem.group, problem.dtype.itemsize
        lanes = vector_bytes() // size
        taps, left, beyond = taps_of(last, lanes)
        steps = -(-last.large // last.window.stride)
        stretch = min(DIRECT_CONV.steps, -(-steps // (4 * lanes)) * 4 * lanes)
        stretches, pitch = -(-steps // stretch), -(-(stretch + beyond) // lanes) * lanes * size
        rows, reach, kinds = rows_of(problem.axes[:-1])
        outer = problem.batch * problem.group * stretches
        bands = bands_of(reach, DIRECT_CONV.panel // (channels * pitch), -(-even_job_count(threads) // outer))
        height = int((bands[:, 3] - bands[:, 2]).max())
        apart = [[problem.maps * problem.taps * size, height * pitch], [last.window.size * size, pitch], [size, size]]
        rows = in_strips(rows, bands, max(1, DIRECT_CONV.strip // (last.large * size)))
        lists = [products_of(channels, kind, each, apart) for kind in kinds for each in taps]
        parts = LaneParts(
            stretches, stretch, pitch, height, last.small, last.large, last.window.stride, left, beyond
        )  # fmt: skip
        params = DirectParams(
            group=problem.group, channels=channels, maps=problem.maps, lanes=parts, plane=problem.small,
            window=problem.taps * size,
            activation=vec.ActivationParams(epilogue.is_active, *epilogue.bounds),
        )  # fmt: skip
        tables = DirectTables(
            bands, rows * [last.large * size, pitch, 8 * last.window.stride], np.cumsum([0, *map(len, lists)]),
            np.concatenate([*lists, np.zeros((loaded_terms(last.window.stride), 2), np.int64)]),
        )  # fmt: skip
        args, count = record(params, activation=vec.activation_dtype(problem.dtype)), outer * len(bands)
        return Launch(_make_kernel(problem.dtype), count, cost, args, tables)

    return Launches(cost, for_threads)


def loaded_terms(stride: int) -> int:
    """The terms of each sum that registers hold, for a stride along the lanes."""
    return DIRECT_TILES.loaded_terms[DIRECT_TILES.strides.index(stride)]


def products_of(channels: int, kind, taps, apart: list[list[int]]):
    """All terms of the phase of a kind of row: (bytes in the window, bytes in the panel)."""
    channel, row, tap = np.ix_(range(channels), range(len(kind)), range(len(taps)))
    parts = np.stack([channel, channel], -1) * apart[0] + kind[row] * apart[1] + taps[tap] * apart[2]
    return parts.reshape(-1, 2)


def taps_of(axis: Axis, lanes: int):
    """Per phase its taps, each with the element it reads at step 0; padding; elements read beyond the steps."""
    spans = tap_spans(axis)
    shift, phase = np.divmod(spans[:, 3], axis.window.stride)
    left = -(-int(shift.max(initial=0)) // lanes) * lanes
    taps = np.stack([spans[:, 0], left - shift], 1)
    return [taps[phase == each] for each in range(axis.window.stride)], left, left - int(shift.min(initial=0))


def kinds_of(axis: Axis):
    """Kinds of positions of an axis, by the first tap that reaches it and the number of taps; and each one's kind."""
    walk = upsampling_walk(axis)
    return np.unique(np.stack([np.where(walk.count, walk.tap, 0), walk.count], 1), axis=0, return_inverse=True)


@compile_as(kinds_of)
def _kinds_of(axis: Any) -> Callable[..., Any]:
    def compiled(axis):
        walk, count = upsampling_walk(axis), 0
        kinds, number = np.empty((axis.window.size * (axis.window.size + 1) + 1, 2), np.int64), walk.count.copy()
        for place in range(number.size):
            first, taps, at = walk.tap[place] if walk.count[place] else 0, walk.count[place], 0
            while at < count and (kinds[at, 0], kinds[at, 1]) < (first, taps):
                at += 1
            if at == count or kinds[at, 0] != first or kinds[at, 1] != taps:
                for other in range(count, at, -1):
                    kinds[other, 0], kinds[other, 1] = kinds[other - 1, 0], kinds[other - 1, 1]
                kinds[at, 0], kinds[at, 1], count = first, taps, count + 1
        for place in range(number.size):
            first, taps, at = walk.tap[place] if walk.count[place] else 0, walk.count[place], 0
            while kinds[at, 0] != first or kinds[at, 1] != taps:
                at += 1
            number[place] = at
        return kinds[:count], number

    return compiled


def rows_of(leading: tuple[Axis, ...]):
    """The rows of x and of the window that each row of y reads: three arrays.

    rows    (rows, 2) an input row, and the number of the kind of the row
    reach   (rows, 2) the first and the last input row that are read
    kinds   per kind its terms (row of the window, input row counted from the one in `rows`)
    """
    rows, reach, kinds = np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64), [np.zeros((1, 2), np.int64)]
    for axis in leading:
        walk, (distinct, number), back = upsampling_walk(axis), kinds_of(axis), np.arange(axis.window.size)
        steps = [walk.tap_step, walk.other_step]
        windows = [[first, 0] + back[:count, None] * steps for first, count in distinct]
        kinds = [
            (old[:, None] * [axis.window.size, axis.small] + new).reshape(-1, 2) for old in kinds for new in windows
        ]
        last = np.clip(walk.other, 0, axis.small - 1)
        edges = np.stack([last + np.maximum(0, walk.count - 1) * walk.other_step, last], 1)
        reach = (reach[:, None] * axis.small + edges).reshape(-1, 2)
        rows = (rows[:, None] * [axis.small, len(distinct)] + np.stack([last, number.reshape(-1)], 1)).reshape(-1, 2)
    return rows, reach, kinds


def bands_of(reach, most: int, fewest: int):
    """Equal parts of the output rows: (first, stop, low, high), the last two of the input rows that they read.

    A band reads at most `most` rows. At least `fewest` bands, unless they would read all rows more than twice.
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
    """(row of y, input row, kind) in bands, and there in strips of `strip` rows, kind by kind."""
    number, band = np.arange(len(rows)), np.repeat(np.arange(len(bands)), bands[:, 1] - bands[:, 0])
    return np.column_stack([number, rows])[np.lexsort((number, rows[:, 1], number // strip, band))]


def _equal_bands(reach, count: int):
    edges = np.arange(count + 1) * len(reach) // count
    low, high = np.minimum.reduceat(reach[:, 0], edges[:-1]), np.maximum.reduceat(reach[:, 1], edges[:-1]) + 1
    return np.stack([edges[:-1], edges[1:], low, high], 1)


@specialize
def _make_kernel(dtype: np.dtype[Any]):
    """The compiled kernel for a type of x, w, b and y."""
    element, size, number = getattr(types, dtype.name), dtype.itemsize, dtype.type
    lanes = vector_bytes() // size
    static = vec.StaticArgs(element=element, lanes=lanes)
    by_one, by_two, by_four, by_eight = (static.replace(step=step) for step in DIRECT_TILES.strides)

    @jit()
    def conv_transpose_direct(x, w, b, y, args, tables, first, stop):
        """Write some bands of rows, in the memory order of y.

        for every element of the batch and group, for every band of rows, for every stretch of the lanes
            for every output channel, for every row, for every vector of positions, for every phase
                for every channel, input row and tap, in registers
        """
        params, along, bands = args[0], args[0].lanes, tables.bands
        channels, maps, stretches, stretch = params.channels, params.maps, along.stretches, along.stretch
        pitch, height, small, large, stride = along.pitch, along.height, along.small, along.large, along.stride
        left, window = along.left, params.window
        zero, activation = vec.splat(number(0), lanes), vec.splat_activation(params.activation, lanes)
        parts, rows_out = bands.shape[0] * stretches, tables.rows.shape[0]
        memory = np.empty(channels * height * pitch // size + 64, number)
        for job in range(first, stop):
            panel, outer, part = -(-vec.address_of(memory) // 64) * 64, job // parts, job % parts
            band, at = part // stretches, part % stretches * stretch
            begin, length = bands[band, 2], min(stretch * stride, large - at * stride)
            start, end = max(0, at - left), min(small, at - left + stretch + along.beyond)
            if job == first or stretches > 1:
                vec.clear(panel, channels * height * pitch)
            for channel in range(channels):
                source = (outer * channels + channel) * params.plane + begin * small + start
                source = vec.address_of(x) + source * size
                target = panel + channel * height * pitch + (start - at + left) * size
                for _row in range(begin, bands[band, 3]):
                    lay_row(target, source, end - start, zero)
                    source += small * size
                    target += pitch
            for out_map in range(maps):
                group_map = outer % params.group * maps + out_map
                bias = vec.splat_rows(vec.address_of(b) + group_map * size, element, lanes, 1)
                rows = BandRows(
                    y=vec.address_of(y) + ((outer * maps + out_map) * rows_out * large + at * stride) * size,
                    panel=panel - begin * pitch,
                    window=vec.address_of(w) + (outer % params.group * channels * maps + out_map) * window,
                    terms=vec.address_of(tables.terms), bounds=vec.address_of(tables.bounds),
                    table=vec.address_of(tables.rows) + bands[band, 0] * 24, total=bands[band, 1] - bands[band, 0],
                    length=length,
                )  # fmt: skip
                if stride == 1:
                    write_rows(rows, bias, activation, by_one)
                elif stride == 2:
                    write_rows(rows, bias, activation, by_two)
                elif stride == 4:
                    write_rows(rows, bias, activation, by_four)
                else:
                    write_rows(rows, bias, activation, by_eight)

    return conv_transpose_direct


@overload_by_type()
def lay_row(target, source, count, zero):
    """Writes `count` elements, and zeros to the end of their last vector."""
    lanes, size = zero.lanes, zero.element.bitwidth // 8

    def lay(target, source, count, zero):
        for place in range(0, count - lanes + 1, lanes):
            vec.store(target + place * size, vec.load_like(source + place * size, zero))
        rest = count % lanes
        if rest > 0 and count > 0:
            place = (count - rest) * size
            vec.store(target + place, vec.load_masked(source + place, vec.first_lanes(rest, zero), zero))

    return lay


@overload_by_type()
def write_rows(rows, bias, activation, static):
    """Writes rows of y, for the stride `static.step` along the lanes."""
    step, lanes, size = static.step, static.lanes, static.element.bitwidth // 8
    loaded, few = loaded_terms(step), step * DIRECT_TILES.narrow
    vectors = DIRECT_TILES.wide[DIRECT_TILES.strides.index(step)]
    wide, narrow = static.replace(vectors=vectors), static.replace(vectors=DIRECT_TILES.narrow)

    def write(rows, bias, activation, static):
        terms, window = rows.terms, rows.window
        current = rows.bounds + vec.int64_at(rows.table + 16)
        near = sparse_dot.load_terms(bias, terms, current, window, step, loaded)
        for row in range(rows.table, rows.table + rows.total * 24, 24):
            out, source, left = rows.y + vec.int64_at(row), rows.panel + vec.int64_at(row + 8), rows.length
            if rows.bounds + vec.int64_at(row + 16) != current:
                current = rows.bounds + vec.int64_at(row + 16)
                near = sparse_dot.load_terms(bias, terms, current, window, step, loaded)
            sums = RowTerms(near, terms, current, window, bias)
            while left > few * lanes:
                done = write_block(out, left, source, sums, activation, wide)
                out, source, left = out + done * step * size, source + done * size, left - done * step
            if left > 0:
                write_block(out, left, source, sums, activation, narrow)

    return write


@overload_by_type(inline=True)
def write_block(out, left, source, sums, activation, static):
    """Writes at most `left` neighbours, from `static.vectors` vectors of positions; the number of positions."""
    lanes, step, vectors = static.lanes, static.step, static.vectors
    many, positions, size = vectors * step, vectors * lanes, static.element.bitwidth // 8
    number = np.dtype(str(static.element)).type

    def write(out, left, source, sums, activation, static):
        start = vec.splat(number(0), lanes)
        total = sparse_dot.tile_sparse_dot(start, sums.near, sums.terms, sums.bounds, sums.window, source, vectors)
        total = vec.activate_sums(vec.tile_add(phase_lanes.tile_alternate(total, step), sums.bias), activation)
        if left >= many * lanes:
            vec.tile_store(total, out, lanes * size, many, 1)
        else:
            vec.tile_store_first(total, out, left)
        return positions

    return write


@jit_inline
def supports(problem: ConvTransposeProblem) -> bool:
    """As `Algorithm.supports`."""
    channels, _, size = group_shape(problem)
    return problem.storage.is_plain and not is_empty(problem) and fits(problem.axes, channels, size)


@jit_inline
def is_faster(problem: ConvTransposeProblem, _: Any) -> bool:
    """As `Algorithm.is_faster`."""
    channels, maps, size = group_shape(problem)
    return is_cheapest(problem.axes, channels, maps, size)


def _pack(w: Any, request: PackRequest) -> Any:
    wide = finite(w, request.problem.dtype)
    return None if wide is None else wide.copy()


def _steps(context: CallContext, x: Operand, b: Operand, y: Operand) -> Steps | None:
    packed, before = context.packed_weights(ALGORITHM)
    if packed is None:
        return None
    return (*before, KernelStep(launch(context.problem, context.epilogue), (x, packed, b, y)))


ALGORITHM = Algorithm(
    "direct",
    supports=supports,
    is_faster=is_faster,
    steps=_steps,
    fits=lambda problem, epilogue: problem.storage.is_plain and epilogue.is_simple,
    pack=_pack,
    packing_key=lambda _: (),
)
