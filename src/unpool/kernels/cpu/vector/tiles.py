"""Tiles: tuples of vectors that stay in registers, row after row, while products are added to them."""

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
    emit_load,
    emit_splat,
    intrinsic,
    lane_numbers,
    llvm_element,
)


@intrinsic
def tile_zero(context, element, lanes, count):
    """`count` vectors of zeros, as a tuple that stays in registers."""
    vector = Vector(element.dtype, lanes.literal_value)
    result = types.UniTuple(vector, count.literal_value)

    def emit(ctx, builder, signature, arguments):
        zero = ir.Constant(vector.llvm, [0.0] * vector.lanes)
        return ctx.make_tuple(builder, result, [zero] * result.count)

    return result(element, lanes, count), emit


@intrinsic
def tile_add_product(context, total, a, b, element, lanes, rows, vectors):
    """total[r, v] += a[r] * b[v]: one step of a matrix product whose result is `rows` times `vectors` vectors.

    `a` and `b` are the addresses of `rows` elements and of `vectors` whole vectors.
    """
    vector, size = total.dtype, bits_of(element.dtype) // 8
    count_rows, count_vectors = rows.literal_value, vectors.literal_value

    def emit(ctx, builder, signature, arguments):
        def at(address, offset):
            return builder.add(address, I64(offset))

        right = [
            emit_load(builder, at(arguments[2], part * size * vector.lanes), vector) for part in range(count_vectors)
        ]
        sums = cgutils.unpack_tuple(builder, arguments[0], count_rows * count_vectors)
        results = []
        for row in range(count_rows):
            pointer = builder.inttoptr(at(arguments[1], row * size), ir.PointerType(llvm_element(vector.element)))
            left = emit_splat(builder, builder.load(pointer, align=size), vector.lanes)
            for part in range(count_vectors):
                old = sums[row * count_vectors + part]
                results.append(
                    call_llvm(builder, f"llvm.fmuladd.{vector.suffix}", vector.llvm, [left, right[part], old])
                )
        return ctx.make_tuple(builder, total, results)

    return total(total, a, b, element, lanes, rows, vectors), emit


@intrinsic
def tile_store(context, total, address, bytes_between, rows, vectors):
    """The rows of a tile, `bytes_between` apart."""
    emit = _tile_storing(total, vectors, lambda builder, place, value: value)
    return types.void(total, address, bytes_between, rows, vectors), emit


@intrinsic
def tile_add_to(context, total, address, bytes_between, rows, vectors):
    """As `tile_store`, but added to what is there."""
    emit = _tile_storing(
        total, vectors, lambda builder, place, value: builder.fadd(emit_load(builder, place, total.dtype), value)
    )
    return types.void(total, address, bytes_between, rows, vectors), emit


def _tile_storing(total, vectors, combined):
    """The emitter that stores a tile, `vectors` to a row, each vector changed by `combined(builder, place, vector)`."""
    vector = total.dtype
    align = bits_of(vector.element) // 8

    def emit(ctx, builder, signature, arguments):
        for number, value in enumerate(cgutils.unpack_tuple(builder, arguments[0], total.count)):
            row, part = divmod(number, vectors.literal_value)
            start = builder.add(arguments[1], builder.mul(arguments[2], I64(row)))
            place = builder.add(start, I64(part * align * vector.lanes))
            pointer = builder.inttoptr(place, ir.PointerType(vector.llvm))
            builder.store(combined(builder, place, value), pointer, align=align)
        return ctx.get_dummy_value()

    return emit


@intrinsic
def tile_interleave(context, address, places, like, step):
    """`step` vectors (1, 2, 4 or 8) whose lanes alternate: element e is lane e // step of vector e % step.

    Vector v, typed as `like`, lies `places[v]` bytes after `address`; `places` is the address of int64 numbers.
    """
    result = types.UniTuple(like, step.literal_value)

    def emit(ctx, builder, signature, arguments):
        table = builder.inttoptr(arguments[1], ir.PointerType(I64))
        offsets = [builder.load(builder.gep(table, [I32(part)])) for part in range(result.count)]
        vectors = [emit_load(builder, builder.add(arguments[0], offset), like) for offset in offsets]
        return ctx.make_tuple(builder, result, _alternated(builder, vectors))

    return result(address, places, like, step), emit


def _alternated(builder, vectors):
    """The same number of vectors, a power of two, whose lanes alternate."""
    groups = [vectors]
    while len(groups[0]) > 1:
        half = len(groups[0]) // 2
        groups = [
            [
                _interleave_half(builder, *pair, pair[0].type.count, high)
                for pair in zip(each[:half], each[half:], strict=True)
            ]
            for each in groups
            for high in (0, 1)
        ]
    return [each[0] for each in groups]


@intrinsic
def tile_alternate(context, total, step):
    """Vectors of `step` rows of a tile, one of each at a time, as vectors whose lanes alternate: 1, 2, 4 or 8 rows."""
    rows = step.literal_value
    wide = total.count // rows

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        mixed = [each for column in range(wide) for each in _alternated(builder, values[column::wide])]
        return ctx.make_tuple(builder, total, mixed)

    return total(total, step), emit


def _interleave_half(builder, x, y, lanes, high):
    """Lanes of x and y in turn, the first or the second half of them all."""
    places = range(high * lanes, (high + 1) * lanes)
    return builder.shuffle_vector(x, y, lane_numbers([place % 2 * lanes + place // 2 for place in places]))


@intrinsic
def tile_add(context, total, value):
    """The vector `value` added to every vector of a tile."""

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        return ctx.make_tuple(builder, total, [builder.fadd(each, arguments[1]) for each in values])

    return total(total, value), emit


@intrinsic
def tile_store_first(context, total, address, count):
    """The first `count` elements of a tile, vector after vector; other memory is not touched.

    Only the last vector, which ends short, takes a mask: without AVX-512 or SVE a masked store is many instructions.
    """
    vector = total.dtype
    size = bits_of(vector.element) // 8 * vector.lanes

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        align = I32(bits_of(vector.element) // 8)
        lanes = ir.Constant(ir.VectorType(I64, vector.lanes), list(range(vector.lanes)))
        for part, value in enumerate(values):
            left = builder.sub(arguments[2], I64(part * vector.lanes))
            place = builder.add(arguments[1], I64(part * size))
            pointer = builder.inttoptr(place, BYTE_POINTER)
            with builder.if_else(builder.icmp_signed(">=", left, I64(vector.lanes))) as (is_whole, is_short):
                with is_whole:
                    builder.store(value, builder.inttoptr(place, ir.PointerType(vector.llvm)), align=align.constant)
                with is_short, builder.if_then(builder.icmp_signed(">", left, I64(0))):
                    mask = builder.icmp_signed("<", lanes, emit_splat(builder, left, vector.lanes))
                    given = [value, pointer, align, mask]
                    call_llvm(builder, f"llvm.masked.store.{vector.suffix}.p0", ir.VoidType(), given)
        return ctx.get_dummy_value()

    return types.void(total, address, count), emit


@intrinsic
def tile_load(context, address, bytes_between, element, lanes, count):
    """`count` whole vectors, `bytes_between` apart."""
    vector = Vector(element.dtype, lanes.literal_value)
    result = types.UniTuple(vector, count.literal_value)

    def emit(ctx, builder, signature, arguments):
        steps = (builder.mul(arguments[1], I64(part)) for part in range(result.count))
        return ctx.make_tuple(
            builder, result, [emit_load(builder, builder.add(arguments[0], at), vector) for at in steps]
        )

    return result(address, bytes_between, element, lanes, count), emit


@intrinsic
def tile_combine(context, total, terms, after, pattern):
    """Sums and differences along the middle axis of a tile of shape (any, `terms`, `after`).

    A pattern such as "0-2 1+2" lists the results: the first is element 0 of that axis less element 2.
    """
    vector, step = total.dtype, after.literal_value
    rows = [[("+" + row)[at : at + 2] for at in range(0, len(row) + 1, 2)] for row in pattern.literal_value.split()]
    blocks = range(0, total.count, terms.literal_value * step)
    result = types.UniTuple(vector, len(blocks) * len(rows) * step)

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        sums = [
            _signed_sum(builder, row, values[block + place :: step])
            for block in blocks
            for row in rows
            for place in range(step)
        ]
        return ctx.make_tuple(builder, result, sums)

    return result(total, terms, after, pattern), emit


def _signed_sum(builder, row, values):
    result = values[int(row[0][1])]
    for sign, digit in row[1:]:
        result = (builder.fadd if sign == "+" else builder.fsub)(result, values[int(digit)])
    return result


@intrinsic
def tile_load_every(context, address, element, lanes, step):
    """`step` vectors, 2 or 3: the k-th holds every `step`-th element from the k-th on. Reads all of them, no more."""
    vector = Vector(element.dtype, lanes.literal_value)
    result = types.UniTuple(vector, step.literal_value)
    count, size = vector.lanes, bits_of(vector.element) // 8 * vector.lanes

    def emit(ctx, builder, signature, arguments):
        places = (builder.add(arguments[0], I64(size * part)) for part in range(result.count))
        parts = [emit_load(builder, place, vector) for place in places]
        starts = range(result.count)
        sources = [[divmod(lane * result.count + start, count) for lane in range(count)] for start in starts]
        return ctx.make_tuple(builder, result, [_pick(builder, parts, each) for each in sources])

    return result(address, element, lanes, step), emit


@intrinsic
def tile_store_every(context, total, address, bytes_between, step):
    """The inverse of `tile_load_every` for every `step` vectors of a tile: their lanes alternate in memory.

    The elements of `step` vectors are `bytes_between` apart from the next.
    """
    vector, apart = total.dtype, step.literal_value
    count, size = vector.lanes, bits_of(vector.element) // 8 * vector.lanes

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        for row in range(total.count // apart):
            start = builder.add(arguments[1], builder.mul(arguments[2], I64(row)))
            for part in range(apart):
                sources = [divmod(part * count + lane, apart)[::-1] for lane in range(count)]
                mixed = _pick(builder, values[row * apart : (row + 1) * apart], sources)
                place = builder.add(start, I64(part * size))
                pointer = builder.inttoptr(place, ir.PointerType(vector.llvm))
                builder.store(mixed, pointer, align=bits_of(vector.element) // 8)
        return ctx.get_dummy_value()

    return types.void(total, address, bytes_between, step), emit


def _pick(builder, vectors, sources):
    """The vector whose lanes are the (vector, lane) pairs of `sources`; two vectors at least."""
    lanes = len(sources)
    first = [min(which, 1) * lanes + lane for which, lane in sources]
    result = builder.shuffle_vector(vectors[0], vectors[1], lane_numbers(first))
    for number in range(2, len(vectors)):
        indices = [lanes + lane if which == number else at for at, (which, lane) in enumerate(sources)]
        result = builder.shuffle_vector(result, vectors[number], lane_numbers(indices))
    return result


@intrinsic
def tile_repeat(context, value, count):
    """A tuple of `count` times the same vector."""
    result = types.UniTuple(value, count.literal_value)
    return result(value, count), lambda ctx, builder, signature, arguments: ctx.make_tuple(
        builder, result, [arguments[0]] * result.count
    )
