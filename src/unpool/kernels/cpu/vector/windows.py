"""Windows of a row as vectors: the t-th holds tap t of neighbouring windows."""

from llvmlite import ir
from numba import types

from unpool.kernels.cpu.vector.type import (
    BYTE_POINTER,
    I32,
    I64,
    Vector,
    bits_of,
    call_llvm,
    emit_load,
    emit_splat,
    intrinsic,
    lane_numbers,
)


def _part_of_row(builder, arguments, offset, fill, kind, is_whole):
    """Elements from so many behind the first on, in the type of `fill`; `arguments` are those of `load_window`."""
    base, first, row, other = arguments[:4]
    width, shift = bits_of(kind.element) // 8, bits_of(fill.element) - bits_of(kind.element)

    def widened(value):
        if not shift:
            return value
        bits = fill.of(getattr(types, f"int{bits_of(fill.element)}")).llvm
        upper = builder.shl(builder.zext(value, bits), ir.Constant(bits, [shift] * fill.lanes))
        return builder.bitcast(upper, fill.llvm)

    place = builder.add(base, I64(offset * width))
    if is_whole:
        return widened(emit_load(builder, place, kind))
    position = builder.add(builder.trunc(first, I32), I32(offset))
    inside = builder.icmp_unsigned(
        "<",
        builder.add(lane_numbers(range(fill.lanes)), emit_splat(builder, position, fill.lanes)),
        emit_splat(builder, builder.trunc(row, I32), fill.lanes),
    )
    pointer, align = builder.inttoptr(place, BYTE_POINTER), I32(width)
    unread = ir.Constant(kind.llvm, [0] * kind.lanes) if shift else other
    value = call_llvm(builder, f"llvm.masked.load.{kind.suffix}.p0", kind.llvm, [pointer, align, inside, unread])
    return builder.select(inside, widened(value), other) if shift else value


@intrinsic
def load_window(context, address, start, size, fill, element, taps, step, is_whole):
    """A tuple of `taps` vectors of neighbouring windows, `step` 1 or 2 elements apart: the t-th holds tap t of each.

    The first window begins at `address`, which is position `start` of a row of `size` elements; what is beside the row
    is taken from `fill`, and not touched. With `is_whole` all windows are inside: for step 2 as many
    whole loads are made as hold them, one after the other. Elements shorter than those of `fill` are their upper bits.
    """
    result, apart, kind = types.UniTuple(fill, taps.literal_value), step.literal_value, fill.of(element.dtype)

    def emit(ctx, builder, signature, arguments):
        def part(offset):
            return _part_of_row(builder, arguments, offset, fill, kind, is_whole.literal_value)

        if apart == 1:
            return ctx.make_tuple(builder, result, [part(tap) for tap in range(result.count)])
        parts = [part(offset) for offset in range(0, result.count - 1 + (fill.lanes - 1) * 2 + 1, fill.lanes)]
        parts += parts[-1:] * (len(parts) % 2)
        every = [
            [builder.shuffle_vector(x, y, lane_numbers(range(odd, 2 * fill.lanes, 2))) for odd in (0, 1)]
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
        found = every[0][: result.count]
        for tap in range(2, result.count):
            number, lane = divmod(tap // 2, fill.lanes)
            near, far = every[number][tap % 2], every[min(number + 1, len(every) - 1)][tap % 2]
            found.append(builder.shuffle_vector(near, far, lane_numbers(range(lane, lane + fill.lanes))))
        return ctx.make_tuple(builder, result, found)

    return result(address, start, size, fill, element, taps, step, is_whole), emit


@intrinsic
def load_parts(context, address, start, size, fill, element, count, is_whole):
    """A tuple of `count` vectors, one behind the other in memory; all else is as for `load_window`."""
    result, kind = types.UniTuple(fill, count.literal_value), fill.of(element.dtype)

    def emit(ctx, builder, signature, arguments):
        offsets = range(0, result.count * fill.lanes, fill.lanes)
        parts = [_part_of_row(builder, arguments, at, fill, kind, is_whole.literal_value) for at in offsets]
        return ctx.make_tuple(builder, result, parts)

    return result(address, start, size, fill, element, count, is_whole), emit


@intrinsic
def tile_columns(context, start, lanes, count, step, apart):
    """A tuple of `count` int32 vectors: lane i of the v-th is start + v * apart + i * step, or 0 where that is less."""
    vector = Vector(types.int32, lanes.literal_value)
    result = types.UniTuple(vector, count.literal_value)

    def emit(ctx, builder, signature, arguments):
        zero = ir.Constant(vector.llvm, [0] * vector.lanes)
        first = emit_splat(builder, builder.trunc(arguments[0], I32), vector.lanes)
        columns = []
        for number in range(result.count):
            begin = number * apart.literal_value
            column = builder.add(
                first, lane_numbers([begin + lane * step.literal_value for lane in range(vector.lanes)])
            )
            columns.append(builder.select(builder.icmp_signed(">", column, zero), column, zero))
        return ctx.make_tuple(builder, result, columns)

    return result(types.int64, lanes, count, step, apart), emit
