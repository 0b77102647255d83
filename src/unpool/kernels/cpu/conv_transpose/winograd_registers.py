"""Instructions of Winograd's transforms: sums along an axis of a tile, and vectors whose elements take turns."""

from numba import types

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.type import I64, operation


@operation
def tile_combine(total, terms, after, pattern):
    """Sums and differences along the middle axis of a tile of shape (any, `terms`, `after`).

    A pattern such as "0-2 1+2" lists the results: the first is element 0 of that axis less element 2.
    """
    step, words = after.literal_value, pattern.literal_value.split()
    rows = [[("+" + word)[at : at + 2] for at in range(0, len(word) + 1, 2)] for word in words]
    blocks = range(0, total.count, terms.literal_value * step)

    def combine(builder, row, values):
        result = values[int(row[0][1])]
        for sign, digit in row[1:]:
            result = (builder.fadd if sign == "+" else builder.fsub)(result, values[int(digit)])
        return result

    def emit(builder, values, *_):
        return [
            combine(builder, row, values[block + place :: step])
            for block in blocks
            for row in rows
            for place in range(step)
        ]

    return types.UniTuple(total.dtype, len(blocks) * len(rows) * step), emit


@operation
def tile_store_every(total, address, bytes_between, step):
    """The inverse of `load_taps` for every `step` vectors of a tile, whose elements are `bytes_between` apart."""
    vector, apart = total.dtype, step.literal_value

    def emit(builder, values, address, bytes_between, _):
        for row in range(total.count // apart):
            start = llvm.row_address(builder, address, bytes_between, row)
            for part in range(apart):
                order = [divmod(part * vector.lanes + lane, apart)[::-1] for lane in range(vector.lanes)]
                mixed = llvm.pick(builder, values[row * apart : (row + 1) * apart], order)
                llvm.emit_store(builder, mixed, builder.add(start, I64(part * vector.nbytes)), vector)

    return types.void, emit
