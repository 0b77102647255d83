"""Products of bfloat16 tiles by AMX. A tile is a register of 16 rows of 64 bytes; its number, 0 to 7, is a literal.

    amx_configure()                   before the first use in a function
    amx_multiply(0, 6, 4)             tile 0, 16x16 float32, += tile 6, 16 rows of 32 bfloat16, times tile 4
    amx_release()                     before the function returns

Row k of the second factor has 16 columns of two numbers, which are multiplied by the numbers 2k and 2k + 1 of a row of
the first. Subnormal factors and sums count as zero. A thread has its own configuration, and calls of other functions in
between must not change it. `host.has_amx` tells whether a process may use these instructions.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.vector.type import I64, byte_pointer, call_llvm, operation

I8 = ir.IntType(8)
CONFIGURATION = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])
"""Palette 1; the bytes in a row of each tile, from byte 16 on; the rows of each tile, from byte 48 on."""


def _emit(builder, name, *arguments):
    return call_llvm(builder, f"llvm.x86.{name}", ir.VoidType(), arguments)


@operation
def amx_configure():
    """Make all tiles 16 rows of 64 bytes."""

    def emit(builder):
        place = cgutils.global_constant(builder, "amx_configuration", cgutils.make_bytearray(CONFIGURATION))
        _emit(builder, "ldtilecfg", builder.bitcast(place, I8.as_pointer()))

    return types.void, emit


@operation
def amx_release():
    """Return all tiles to their initial state."""
    return types.void, lambda builder: _emit(builder, "tilerelease")


@operation
def amx_zero(tile):
    """Zero a tile."""
    return types.void, lambda builder, _: _emit(builder, "tilezero", I8(tile.literal_value))


@operation
def amx_load(tile, address, bytes_between):
    """Load a tile; its rows are `bytes_between` apart."""

    def emit(builder, _, address, apart):
        _emit(builder, "tileloadd64", I8(tile.literal_value), byte_pointer(builder, address), _long(builder, apart))

    return types.void, emit


@operation
def amx_store(tile, address, bytes_between):
    """Store a tile; its rows are `bytes_between` apart."""

    def emit(builder, _, address, apart):
        _emit(builder, "tilestored64", I8(tile.literal_value), byte_pointer(builder, address), _long(builder, apart))

    return types.void, emit


@operation
def amx_multiply(total, rows, columns):
    """Add the product of two tiles to a third."""
    tiles = [I8(each.literal_value) for each in (total, rows, columns)]
    return types.void, lambda builder, *_: _emit(builder, "tdpbf16ps", *tiles)


def _long(builder, number):
    return number if number.type == I64 else builder.sext(number, I64)
