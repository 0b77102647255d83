"""Instructions of the rolling pool: windows of a row as vectors, and the columns where they begin."""

from numba import types

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.type import I32, I64, Vector, operation, tile_of


def _part_of_row(builder, arguments, offset, fill, kind, is_whole):
    """Elements from `offset` on, in the type of `fill`; `arguments` are those of `load_window`."""
    base, first, row, other = arguments[:4]
    shift = fill.bits - kind.bits

    def widen(value):
        if not shift:
            return value
        bits = fill.integers
        upper = builder.shl(builder.zext(value, bits.llvm), bits.constant(shift))
        return builder.bitcast(upper, fill.llvm)

    place = builder.add(base, I64(offset * kind.itemsize))
    if is_whole:
        return widen(llvm.emit_load(builder, place, kind))
    position = builder.add(builder.trunc(first, I32), I32(offset))
    inside = builder.icmp_unsigned(
        "<",
        builder.add(llvm.lane_numbers(range(fill.lanes)), llvm.emit_splat(builder, position, fill.lanes)),
        llvm.emit_splat(builder, builder.trunc(row, I32), fill.lanes),
    )
    if not shift:
        return llvm.emit_load_masked(builder, place, inside, other, kind)
    value = llvm.emit_load_masked(builder, place, inside, kind.constant(0), kind)
    return builder.select(inside, widen(value), other)


@operation
def load_window(address, start, size, fill, element, taps, step, is_whole):
    """A tuple of `taps` vectors of neighbouring windows, `step` 1 or 2 elements apart: the t-th holds tap t of each.

    The first window begins at `address`, position `start` of a row of `size` elements; elements outside the row come
    from `fill`, and their memory is not touched. With `is_whole` all windows are inside: for step 2 whole loads cover
    them. Elements shorter than those of `fill` become their upper bits.
    """
    count, lanes, kind = taps.literal_value, fill.lanes, fill.of(element.dtype)

    def emit(builder, *arguments):
        def part(offset):
            return _part_of_row(builder, arguments, offset, fill, kind, is_whole.literal_value)

        if step.literal_value == 1:
            return [part(tap) for tap in range(count)]
        parts = [part(offset) for offset in range(0, count - 1 + (lanes - 1) * 2 + 1, lanes)]
        parts += parts[-1:] * (len(parts) % 2)
        halves = [
            [builder.shuffle_vector(x, y, llvm.lane_numbers(range(odd, 2 * lanes, 2))) for odd in (0, 1)]
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
        windows = halves[0][:count]
        for tap in range(2, count):
            number, lane = divmod(tap // 2, lanes)
            near, far = halves[number][tap % 2], halves[min(number + 1, len(halves) - 1)][tap % 2]
            windows.append(builder.shuffle_vector(near, far, llvm.lane_numbers(range(lane, lane + lanes))))
        return windows

    return tile_of(fill, taps), emit


@operation
def load_parts(address, start, size, fill, element, count, is_whole):
    """A tuple of `count` vectors that follow each other in memory; other arguments as for `load_window`."""
    kind, offsets = fill.of(element.dtype), range(0, count.literal_value * fill.lanes, fill.lanes)
    return tile_of(fill, count), lambda builder, *arguments: [
        _part_of_row(builder, arguments, offset, fill, kind, is_whole.literal_value) for offset in offsets
    ]


@operation
def tile_columns(start, lanes, count, step, apart):
    """A tuple of `count` int32 vectors: lane i of the v-th is start + v * apart + i * step, or 0 where that is less."""
    vector = Vector(types.int32, lanes.literal_value)
    begins = [number * apart.literal_value for number in range(count.literal_value)]

    def emit(builder, start, *_):
        zero, columns = vector.constant(0), []
        first = llvm.emit_splat(builder, builder.trunc(start, I32), vector.lanes)
        for begin in begins:
            ramp = llvm.lane_numbers([begin + lane * step.literal_value for lane in range(vector.lanes)])
            column = builder.add(first, ramp)
            columns.append(builder.select(builder.icmp_signed(">", column, zero), column, zero))
        return columns

    return tile_of(vector, count), emit
