"""Instructions of the separable pool: some rows as one wide vector, and neighbours split into even and odd ones."""

from numba import types

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.type import Vector, concatenate, lane_numbers, operation, vector_of


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
def repeat(x, times):
    """The lanes of x, repeated `times` times, a power of two."""
    count = times.literal_value
    return Vector(x.element, x.lanes * count), lambda builder, x, _: concatenate(builder, [x] * count)


@operation
def every_second(x, y, first):
    """Lanes `first`, `first` + 2, ... of x and then of y; `first` is 0 or 1."""
    lanes = lane_numbers(range(first.literal_value, 2 * x.lanes, 2))
    return x, lambda builder, x, y, _: builder.shuffle_vector(x, y, lanes)
