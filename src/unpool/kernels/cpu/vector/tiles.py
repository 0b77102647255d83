"""Tiles: tuples of vectors, row after row, that stay in registers while products are added to them.

A tile takes the factors of the products from rows of memory.
"""

from llvmlite import ir
from numba import types

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.type import I64, emit_multiply_add, operation, tile_of, vector_of


@operation
def tile_zero(element, lanes, count):
    """`count` vectors of zeros."""
    vector = vector_of(element, lanes)
    return tile_of(vector, count), lambda builder, *_: [vector.constant(0.0)] * count.literal_value


@operation
def tile_add(total, value):
    """The vector `value` added to every vector of a tile."""
    return total, lambda builder, total, value: [builder.fadd(each, value) for each in total]


@operation
def tile_add_product(total, a, b, element, lanes, rows, vectors):
    """total[r, v] += a[r] * b[v]: one step of a product of `rows` times `vectors` vectors; a and b are addresses."""
    vector, width = total.dtype, vectors.literal_value

    def emit(builder, sums, a, b, *_):
        right, results = llvm.emit_load_parts(builder, b, vector, width), []
        for row in range(rows.literal_value):
            left = llvm.emit_load_scalar(builder, builder.add(a, I64(row * vector.itemsize)), vector)
            results += [
                emit_multiply_add(builder, vector, left, factor, old)
                for factor, old in zip(right, sums[row * width : (row + 1) * width], strict=True)
            ]
        return results

    return total, emit


@operation
def tile_load(address, bytes_between, element, lanes, count):
    """`count` whole vectors, `bytes_between` apart."""
    vector = vector_of(element, lanes)

    def emit(builder, address, bytes_between, *_):
        places = (llvm.row_address(builder, address, bytes_between, row) for row in range(count.literal_value))
        return [llvm.emit_load(builder, place, vector) for place in places]

    return tile_of(vector, count), emit


@operation
def tile_store(total, address, bytes_between, rows, vectors):
    """The rows of a tile, `bytes_between` apart."""
    return types.void, _emit_tile_store(total, vectors, lambda builder, place, value: value)


@operation
def tile_add_to(total, address, bytes_between, rows, vectors):
    """As `tile_store`, but added to what is there."""
    vector = total.dtype
    return types.void, _emit_tile_store(
        total, vectors, lambda builder, place, value: builder.fadd(llvm.emit_load(builder, place, vector), value)
    )


def _emit_tile_store(total, vectors, combine):
    """The emitter that stores a tile, `vectors` to a row, each vector changed by `combine(builder, place, vector)`."""
    vector = total.dtype

    def emit(builder, values, address, bytes_between, *_):
        for number, value in enumerate(values):
            row, part = divmod(number, vectors.literal_value)
            start = llvm.row_address(builder, address, bytes_between, row)
            place = builder.add(start, I64(part * vector.nbytes))
            llvm.emit_store(builder, combine(builder, place, value), place, vector)

    return emit


@operation
def tile_store_first(total, address, count):
    """The first `count` elements of a tile, vector after vector; other memory is not touched.

    Only the last, incomplete vector takes a mask: without AVX-512 or SVE a masked store is many instructions.
    """
    vector = total.dtype

    def emit(builder, values, address, count):
        numbers = ir.Constant(ir.VectorType(I64, vector.lanes), list(range(vector.lanes)))
        for part, value in enumerate(values):
            rest = builder.sub(count, I64(part * vector.lanes))
            place = builder.add(address, I64(part * vector.nbytes))
            with builder.if_else(builder.icmp_signed(">=", rest, I64(vector.lanes))) as (is_whole, is_short):
                with is_whole:
                    llvm.emit_store(builder, value, place, vector)
                with is_short, builder.if_then(builder.icmp_signed(">", rest, I64(0))):
                    mask = builder.icmp_signed("<", numbers, llvm.emit_splat(builder, rest, vector.lanes))
                    llvm.emit_store_masked(builder, value, place, mask, vector)

    return types.void, emit
