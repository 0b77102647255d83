"""Vectors from memory and back: whole, masked, strided, gathered, non-temporal, and windows of a row."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.type import I32, I64, Vector, operation, pointer_to, tile_of, vector_of


@intrinsic
def address_of(context, array):
    """Address of the first element of an array, or of the array with a handle, `id(array)`."""

    def emit(ctx, builder, signature, arguments):
        if isinstance(array, types.Integer):  # NumPy's C struct has the header of every object, then this address
            place = builder.add(arguments[0], I64(object.__basicsize__))
            return builder.load(pointer_to(builder, place, I64))
        return builder.ptrtoint(ctx.make_array(array)(ctx, builder, arguments[0]).data, I64)

    return types.int64(types.int64 if isinstance(array, types.Integer) else array), emit


@operation
def load_once(address):
    """Read the int64 at an address exactly once: LLVM may repeat a plain load, and another thread may write."""
    return types.int64, lambda builder, address: builder.load_atomic(pointer_to(builder, address, I64), "unordered", 8)


@operation
def element_at(address, element):
    """The element at an address."""
    result = Vector(element.dtype, 1)
    return element.dtype, lambda builder, address, _: builder.load(pointer_to(builder, address, result.llvm_element))


@operation
def set_element(address, value):
    """Write a number to an address."""
    return types.void, lambda builder, address, value: builder.store(value, pointer_to(builder, address, value.type))


@operation
def int64_at(address):
    """The int64 at an address."""
    return types.int64, lambda builder, address: emit_int64(builder, address, 0)


def emit_int64(builder, address, place):
    """The int64 at a place of an array of them."""
    place = I64(place) if isinstance(place, int) else place
    return builder.load(builder.gep(pointer_to(builder, address, I64), [place]))


@operation
def load(address, element, lanes):
    """`lanes` neighbouring elements, from any address."""
    result = vector_of(element, lanes)
    return result, lambda builder, address, *_: llvm.emit_load(builder, address, result)


@operation
def load_like(address, like):
    """Neighbouring elements from any address, of the number and type of `like`."""
    return like, lambda builder, address, _: llvm.emit_load(builder, address, like)


@operation
def load_every(address, element, lanes, step, bytes_between):
    """Every `step`-th element: for 1, 2 and 4 by whole loads, which read `lanes * step` elements, and shuffles.

    Step 0 gathers elements that are `bytes_between` apart, and reads nothing else.
    """
    result, count = vector_of(element, lanes), step.literal_value

    def emit(builder, address, element, lanes, step, bytes_between):
        if count == 0:
            fill = ir.Constant(result.llvm, ir.Undefined)
            return _gather(builder, address, bytes_between, result.mask.constant(1), fill, result)
        return llvm.deinterleave(builder, llvm.emit_load_parts(builder, address, result, count))[0]

    return result, emit


@operation
def gather(address, bytes_between, mask, fill):
    """Elements `bytes_between` apart where the mask is set, `fill` elsewhere; other memory is not touched."""
    return fill, lambda builder, *arguments: _gather(builder, *arguments, fill)


def _gather(builder, address, bytes_between, mask, fill, kind):
    lanes = ir.Constant(ir.VectorType(I64, kind.lanes), list(range(kind.lanes)))
    offsets = builder.mul(lanes, llvm.emit_splat(builder, bytes_between, kind.lanes))
    return _gather_at(builder, address, offsets, mask, fill, kind)


@operation
def gather_at(address, offsets, mask, fill):
    """Elements at `address` + `offsets`, a vector of int64 bytes, where the mask is set; `fill` elsewhere."""
    return fill, lambda builder, *arguments: _gather_at(builder, *arguments, fill)


def _gather_at(builder, address, offsets, mask, fill, kind):
    places = builder.add(llvm.emit_splat(builder, address, kind.lanes), offsets)
    pointers = builder.inttoptr(places, ir.VectorType(ir.PointerType(kind.llvm_element), kind.lanes))
    name = f"llvm.masked.gather.{kind.suffix}.v{kind.lanes}p0"
    return llvm.call_llvm(builder, name, kind.llvm, [pointers, I32(kind.itemsize), mask, fill])


@operation
def load_masked(address, mask, fill):
    """Lanes of `fill`, replaced by memory where the mask is set; other memory is not touched."""
    return fill, lambda builder, *arguments: llvm.emit_load_masked(builder, *arguments, fill)


@operation
def store(address, value):
    """All lanes to any address."""
    return types.void, lambda builder, address, lanes: llvm.emit_store(builder, lanes, address, value)


@operation
def store_masked(address, value, mask):
    """The lanes where the mask is set; other memory is not touched."""
    return types.void, lambda builder, address, lanes, mask: llvm.emit_store_masked(
        builder, lanes, address, mask, value
    )


@operation
def store_nontemporal(address, value):
    """A non-temporal store, to a multiple of the lanes' bytes or of 64; other threads see it after a `fence`."""

    def emit(builder, address, lanes):
        stored = builder.store(lanes, pointer_to(builder, address, value.llvm), align=min(64, value.nbytes))
        stored.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))

    return types.void, emit


@operation
def fence():
    """Memory barrier: other threads see all earlier writes before any later one."""
    return types.void, lambda builder: builder.fence("seq_cst")


@operation
def prefetch(address):
    """Prefetch a cache line that will be read."""

    def emit(builder, address):
        read, near, data = I32(0), I32(3), I32(1)
        llvm.call_llvm(
            builder, "llvm.prefetch.p0", ir.VoidType(), [llvm.byte_pointer(builder, address), read, near, data]
        )

    return types.void, emit


@operation
def clear(address, size):
    """Zero `size` bytes by plain stores, which go to the cache; memset of a C library may bypass it."""

    def emit(builder, address, size):
        block = ir.VectorType(ir.IntType(8), 64)
        whole = builder.lshr(size, I64(6))
        with cgutils.for_range(builder, whole, intp=I64) as loop:
            place = builder.add(address, builder.shl(loop.index, I64(6)))
            builder.store(ir.Constant(block, [0] * 64), pointer_to(builder, place, block), align=1)
        done = builder.shl(whole, I64(6))
        with cgutils.for_range(builder, builder.sub(size, done), intp=I64) as loop:
            place = builder.add(address, builder.add(done, loop.index))
            builder.store(ir.Constant(ir.IntType(8), 0), llvm.byte_pointer(builder, place))

    return types.void, emit


@operation
def load_rows(address, bytes_between, element, lanes, rows):
    """`rows` times `lanes` neighbouring elements as one vector; rows, a power of two, are `bytes_between` apart."""
    part, count = vector_of(element, lanes), rows.literal_value

    def emit(builder, address, bytes_between, *_):
        places = [llvm.row_address(builder, address, bytes_between, row) for row in range(count)]
        return llvm.concatenate(builder, [llvm.emit_load(builder, place, part) for place in places])

    return Vector(part.element, part.lanes * count), emit


@operation
def store_rows(address, bytes_between, value, rows):
    """The vector in `rows` equal parts, `bytes_between` apart, in order."""
    part = Vector(value.element, value.lanes // rows.literal_value)

    def emit(builder, address, bytes_between, lanes, _):
        for row in range(rows.literal_value):
            order = llvm.lane_numbers(range(row * part.lanes, (row + 1) * part.lanes))
            place = llvm.row_address(builder, address, bytes_between, row)
            llvm.emit_store(builder, builder.shuffle_vector(lanes, lanes, order), place, part)

    return types.void, emit


@operation
def splat_rows(address, element, lanes, rows):
    """`rows` neighbouring elements, a power of two, each in `lanes` lanes."""
    part, count = vector_of(element, lanes), rows.literal_value

    def emit(builder, address, *_):
        places = [builder.add(address, I64(row * part.itemsize)) for row in range(count)]
        return llvm.concatenate(builder, [llvm.emit_load_scalar(builder, place, part) for place in places])

    return Vector(part.element, part.lanes * count), emit


@operation
def load_taps(address, element, lanes, step):
    """A tuple of `step` vectors, step 1, 2 or 4: the t-th holds element t of each of `lanes` neighbouring tiles."""
    vector, count = vector_of(element, lanes), step.literal_value

    def emit(builder, address, *_):
        return llvm.deinterleave(builder, llvm.emit_load_parts(builder, address, vector, count))

    return tile_of(vector, step), emit


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
