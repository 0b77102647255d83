"""Vectors from memory and back: whole, masked, strided, gathered, non-temporal, and windows of a row.

Addresses are int64 bytes.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.vector.type import (
    BYTE_POINTER,
    I32,
    I64,
    Vector,
    bits_of,
    call_llvm,
    concatenated,
    emit_gather,
    emit_gather_at,
    emit_load,
    emit_splat,
    intrinsic,
    lane_numbers,
    llvm_element,
    row_address,
)


def _load_data_pointer(ctx, builder, signature, arguments):
    """NumPy's C struct of an array begins with the header of every object, then the address of the data."""
    place = builder.add(arguments[0], I64(object.__basicsize__))
    return builder.load(builder.inttoptr(place, ir.PointerType(I64)))


@intrinsic
def address_of(context, array):
    """Address of the first element of an array, or of the array with a handle, `id(array)`."""
    if isinstance(array, types.Integer):
        return types.int64(types.int64), _load_data_pointer

    def emit(ctx, builder, signature, arguments):
        data = ctx.make_array(signature.args[0])(ctx, builder, arguments[0]).data
        return builder.ptrtoint(data, I64)

    return types.int64(array), emit


@intrinsic
def load_once(context, address):
    """The int64 at an address, read exactly once, so that a checked value is used even if another thread writes there.

    The compiler may repeat a plain load to save a register.
    """

    def emit(ctx, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], ir.PointerType(I64)), "unordered", 8)

    return types.int64(types.int64), emit


@intrinsic
def load(context, address, element, lanes):
    """`lanes` neighbouring elements, from any address."""
    result = Vector(element.dtype, lanes.literal_value)

    def emit(ctx, builder, signature, arguments):
        return emit_load(builder, arguments[0], result)

    return result(address, element, lanes), emit


@intrinsic
def load_every(context, address, element, lanes, step, bytes_between):
    """Every `step`-th element: for 1, 2 and 4 by whole loads, which read `lanes * step` elements, and shuffles.

    Step 0 is any distance: elements `bytes_between` apart are gathered, and nothing else is read.
    """
    result = Vector(element.dtype, lanes.literal_value)
    size = bits_of(result.element) // 8 * result.lanes

    def emit(ctx, builder, signature, arguments):
        if step.literal_value == 0:
            mask = ir.Constant(result.of(types.boolean).llvm, [1] * result.lanes)
            return emit_gather(
                builder, arguments[0], arguments[4], mask, ir.Constant(result.llvm, ir.Undefined), result
            )
        places = (builder.add(arguments[0], I64(size * part)) for part in range(step.literal_value))
        parts = [emit_load(builder, place, result) for place in places]
        while len(parts) > 1:
            evens = lane_numbers(range(0, 2 * result.lanes, 2))
            parts = [builder.shuffle_vector(x, y, evens) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return result(address, element, lanes, step, bytes_between), emit


@intrinsic
def gather(context, address, bytes_between, mask, fill):
    """Elements `bytes_between` apart where the mask is set, `fill` elsewhere; other memory is not touched."""

    def emit(ctx, builder, signature, arguments):
        return emit_gather(builder, *arguments, fill)

    return fill(address, bytes_between, mask, fill), emit


@intrinsic
def gather_at(context, address, offsets, mask, fill):
    """Elements at `address` + `offsets`, a vector of int64 bytes, where the mask is set; `fill` elsewhere."""

    def emit(ctx, builder, signature, arguments):
        places = builder.add(emit_splat(builder, arguments[0], fill.lanes), arguments[1])
        return emit_gather_at(builder, places, arguments[2], arguments[3], fill)

    return fill(address, offsets, mask, fill), emit


@intrinsic
def load_masked(context, address, mask, fill):
    """Lanes of `fill`, replaced by memory where the mask is set; other memory is not touched."""

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], BYTE_POINTER)
        align = I32(bits_of(fill.element) // 8)
        return call_llvm(builder, f"llvm.masked.load.{fill.suffix}.p0", fill.llvm, [pointer, align, *arguments[1:]])

    return fill(address, mask, fill), emit


@intrinsic
def store(context, address, value):
    """All lanes to any address."""

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.PointerType(value.llvm))
        builder.store(arguments[1], pointer, align=bits_of(value.element) // 8)
        return ctx.get_dummy_value()

    return types.void(address, value), emit


@intrinsic
def store_masked(context, address, value, mask):
    """The lanes where the mask is set; other memory is not touched."""

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], BYTE_POINTER)
        align = I32(bits_of(value.element) // 8)
        ordered = [arguments[1], pointer, align, arguments[2]]
        call_llvm(builder, f"llvm.masked.store.{value.suffix}.p0", ir.VoidType(), ordered)
        return ctx.get_dummy_value()

    return types.void(address, value, mask), emit


@intrinsic
def load_rows(context, address, bytes_between, element, lanes, rows):
    """`rows` times `lanes` neighbouring elements as one vector; rows, a power of two, are `bytes_between` apart."""
    part, count = Vector(element.dtype, lanes.literal_value), rows.literal_value
    result = Vector(element.dtype, part.lanes * count)

    def emit(ctx, builder, signature, arguments):
        places = (row_address(builder, *arguments[:2], row) for row in range(count))
        return concatenated(builder, [emit_load(builder, place, part) for place in places])

    return result(address, bytes_between, element, lanes, rows), emit


@intrinsic
def store_rows(context, address, bytes_between, value, rows):
    """The vector in `rows` equal parts, `bytes_between` apart, in order."""
    count = rows.literal_value
    part = Vector(value.element, value.lanes // count)

    def emit(ctx, builder, signature, arguments):
        for row in range(count):
            pointer = builder.inttoptr(row_address(builder, *arguments[:2], row), ir.PointerType(part.llvm))
            lanes = lane_numbers(range(row * part.lanes, (row + 1) * part.lanes))
            piece = builder.shuffle_vector(arguments[2], arguments[2], lanes)
            builder.store(piece, pointer, align=max(1, bits_of(part.element) // 8))
        return ctx.get_dummy_value()

    return types.void(address, bytes_between, value, rows), emit


@intrinsic
def splat_rows(context, address, element, lanes, rows):
    """`rows` neighbouring elements, a power of two, each in `lanes` lanes."""
    part, count = Vector(element.dtype, lanes.literal_value), rows.literal_value
    result, size = Vector(element.dtype, part.lanes * count), bits_of(element.dtype) // 8

    def emit(ctx, builder, signature, arguments):
        pointers = (
            builder.inttoptr(
                builder.add(arguments[0], I64(row * size)),
                ir.PointerType(llvm_element(part.element)),
            )
            for row in range(count)
        )
        scalars = [builder.load(pointer, align=size) for pointer in pointers]
        return concatenated(builder, [emit_splat(builder, scalar, part.lanes) for scalar in scalars])

    return result(address, element, lanes, rows), emit


@intrinsic
def prefetch(context, address):
    """Prefetch a cache line that will be read."""

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], BYTE_POINTER)
        read, near, data = (I32(number) for number in (0, 3, 1))
        call_llvm(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, read, near, data])
        return ctx.get_dummy_value()

    return types.void(address), emit


@intrinsic
def load_like(context, address, like):
    """Neighbouring elements from any address, of the number and type of `like`."""
    return like(address, like), lambda ctx, builder, signature, arguments: emit_load(builder, arguments[0], like)


@intrinsic
def clear(context, address, size):
    """Zero `size` bytes by plain stores, which leave them in the cache; a library's memset may bypass it."""

    def emit(ctx, builder, signature, arguments):
        block = ir.VectorType(ir.IntType(8), 64)
        whole = builder.lshr(arguments[1], I64(6))
        with cgutils.for_range(builder, whole, intp=I64) as loop:
            place = builder.add(arguments[0], builder.shl(loop.index, I64(6)))
            builder.store(ir.Constant(block, [0] * 64), builder.inttoptr(place, ir.PointerType(block)), align=1)
        done = builder.shl(whole, I64(6))
        with cgutils.for_range(builder, builder.sub(arguments[1], done), intp=I64) as loop:
            place = builder.add(arguments[0], builder.add(done, loop.index))
            builder.store(ir.Constant(ir.IntType(8), 0), builder.inttoptr(place, BYTE_POINTER))
        return ctx.get_dummy_value()

    return types.void(address, size), emit


@intrinsic
def store_nontemporal(context, address, value):
    """A non-temporal store of all lanes, to a multiple of their bytes or of 64: cache lines are neither read nor kept.

    Other threads see it after a `fence`.
    """

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.PointerType(value.llvm))
        stored = builder.store(arguments[1], pointer, align=min(64, bits_of(value.element) // 8 * value.lanes))
        stored.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
        return ctx.get_dummy_value()

    return types.void(address, value), emit


@intrinsic
def fence(context):
    """Memory barrier: other threads see all earlier writes before any later one."""

    def emit(ctx, builder, signature, arguments):
        builder.fence("seq_cst")
        return ctx.get_dummy_value()

    return types.void(), emit


@intrinsic
def load_taps(context, address, element, lanes, step):
    """A tuple of `step` vectors, step 1, 2 or 4: the t-th holds element t of each of `lanes` neighbouring tiles."""
    vector = Vector(element.dtype, lanes.literal_value)
    size, count = bits_of(vector.element) // 8 * vector.lanes, step.literal_value

    def part(builder, parts):
        if len(parts) == 1:
            return parts
        halves = []
        for half in (0, 1):
            order = lane_numbers(range(half, 2 * vector.lanes, 2))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            halves.append(part(builder, [builder.shuffle_vector(x, y, order) for x, y in pairs]))
        return [each for both in zip(*halves, strict=True) for each in both]

    def emit(ctx, builder, signature, arguments):
        places = (builder.add(arguments[0], I64(size * number)) for number in range(count))
        taps = part(builder, [emit_load(builder, place, vector) for place in places])
        return ctx.make_tuple(builder, signature.return_type, taps)

    return types.UniTuple(vector, count)(address, element, lanes, step), emit


@intrinsic
def int64_at(context, address):
    """The int64 at an address."""
    return types.int64(address), lambda ctx, builder, signature, arguments: emit_int64(builder, arguments[0], 0)


def emit_int64(builder, address, place):
    """The int64 at a place of an array of them."""
    place = I64(place) if isinstance(place, int) else place
    return builder.load(builder.gep(builder.inttoptr(address, ir.PointerType(I64)), [place]))


def _part_of_row(builder, arguments, offset, fill, kind, is_whole):
    """Elements from `offset` on, in the type of `fill`; `arguments` are those of `load_window`."""
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

    The first window begins at `address`, position `start` of a row of `size` elements; elements outside the row come
    from `fill`, and their memory is not touched. With `is_whole` all windows are inside: for step 2 whole loads cover
    them. Elements shorter than those of `fill` become their upper bits.
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
    """A tuple of `count` vectors that follow each other in memory; other arguments as for `load_window`."""
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
