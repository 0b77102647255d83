"""The runtime of a library: memory for arrays that kernels allocate, tables of kernels and of Python's functions, and
the digest of its sources.

Numba's compiled code counts references to such memory in its first word, and calls `NRT_MemInfo_call_dtor` after the
last one. It calls `numba_attempt_nocopy_reshape` for arrays that take another shape: here only contiguous ones do.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir
from numba.core import cgutils

from unpool.kernels.cpu.machine.checked_files import source_digest
from unpool.kernels.cpu.machine.libraries import CPU_LEVEL, KERNEL_TABLE, PYTHON_ENTRIES, PYTHON_TABLE, SOURCES
from unpool.kernels.cpu.planner.blob import ABI as PLAN_ABI

_I32, _WORD = ir.IntType(32), ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_FIELDS = 5  # references, destructor and its argument, address of the data, size


def make_runtime(kernels: dict[int, str], *, is_x86: bool) -> ir.Module:
    """The module that every library holds once; for x86 with the level of the processor.

    `kernels` are the names of C entries, by the numbers of their kernels.
    """
    module = ir.Module("runtime")
    words = [_WORD(PLAN_ABI), _WORD(len(kernels))]
    for number, name in sorted(kernels.items()):
        entry = ir.Function(module, ir.FunctionType(_WORD, [_WORD] * 3), name)
        words += [_WORD(number), ir.Constant.ptrtoint(entry, _WORD)]
    numbers = ir.GlobalVariable(module, ir.ArrayType(_WORD, len(words)), KERNEL_TABLE)
    numbers.initializer = ir.Constant(numbers.value_type, words)
    table = ir.GlobalVariable(module, ir.ArrayType(_WORD, len(PYTHON_ENTRIES)), PYTHON_TABLE)
    table.initializer = ir.Constant(table.value_type, None)
    digest = bytearray(f"{source_digest('.py')}\0", "ascii")
    sources = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(8), len(digest)), SOURCES)
    sources.initializer, sources.global_constant = ir.Constant(sources.value_type, digest), True
    malloc = ir.Function(module, ir.FunctionType(_POINTER, [_WORD]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER]), "free")

    allocate = ir.Function(module, ir.FunctionType(_POINTER, [_WORD, _I32]), "NRT_MemInfo_alloc_aligned")
    size, alignment = allocate.args
    builder = ir.IRBuilder(allocate.append_basic_block())
    mask = builder.sub(builder.zext(alignment, _WORD), _WORD(1))
    block = builder.call(malloc, [builder.add(builder.add(size, mask), _WORD(8 * _FIELDS))])
    with builder.if_then(builder.icmp_unsigned("==", block, _POINTER(None)), likely=False):
        builder.ret(block)
    end = builder.add(builder.ptrtoint(block, _WORD), _WORD(8 * _FIELDS))
    data = builder.and_(builder.add(end, mask), builder.not_(mask))
    words = builder.bitcast(block, _WORD.as_pointer())
    for number, value in enumerate((_WORD(1), _WORD(0), _WORD(0), data, size)):
        builder.store(value, builder.gep(words, [_I32(number)]))
    builder.ret(block)

    plain = ir.Function(module, malloc.function_type, "NRT_Allocate")
    builder = ir.IRBuilder(plain.append_basic_block())
    builder.ret(builder.call(malloc, plain.args))
    for name in ("NRT_MemInfo_call_dtor", "NRT_Free"):
        release = ir.Function(module, free.function_type, name)
        builder = ir.IRBuilder(release.append_basic_block())
        builder.call(free, release.args)
        builder.ret_void()
    _make_reshape(module)
    if is_x86:
        _make_cpu_level(module)
    return module


def _make_reshape(module: ir.Module) -> None:
    """Numba's function that writes the steps of an array in another shape; 0 if the elements are in another order."""
    words = _WORD.as_pointer()
    kind = ir.FunctionType(_I32, [_WORD, words, words, _WORD, words, words, _WORD, _I32])
    function = ir.Function(module, kind, "numba_attempt_nocopy_reshape")
    rank, shape, steps, new_rank, new_shape, new_steps, size, is_fortran = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    with builder.if_then(builder.icmp_unsigned("!=", is_fortran, _I32(0)), likely=False):
        builder.ret(_I32(0))
    step, is_packed = cgutils.alloca_once_value(builder, size), cgutils.alloca_once_value(builder, _I32(1))
    with _backwards(builder, rank) as axis:
        length, expected = builder.load(builder.gep(shape, [axis])), builder.load(step)
        is_same = builder.icmp_signed("==", builder.load(builder.gep(steps, [axis])), expected)
        is_fine = builder.or_(is_same, builder.icmp_signed("==", length, _WORD(1)))
        builder.store(builder.and_(builder.load(is_packed), builder.zext(is_fine, _I32)), is_packed)
        builder.store(builder.mul(expected, length), step)
    nbytes = builder.load(step)
    builder.store(size, step)
    with _backwards(builder, new_rank) as axis:
        builder.store(builder.load(step), builder.gep(new_steps, [axis]))
        builder.store(builder.mul(builder.load(step), builder.load(builder.gep(new_shape, [axis]))), step)
    is_empty = builder.zext(builder.icmp_signed("==", nbytes, _WORD(0)), _I32)
    is_whole = builder.zext(builder.icmp_signed("==", nbytes, builder.load(step)), _I32)
    builder.ret(builder.and_(is_whole, builder.or_(is_empty, builder.load(is_packed))))


@contextmanager
def _backwards(builder: ir.IRBuilder, rank: ir.Value) -> Iterator[ir.Value]:
    """A loop over the axes from the last to the first."""
    with cgutils.for_range(builder, rank) as loop:
        yield builder.sub(builder.sub(rank, _WORD(1)), loop.index)


_EAX, _EBX, _ECX, _EDX = range(4)
_LEAF_BITS: dict[int, dict[tuple[int, int], tuple[int, ...]]] = {
    2: {(1, _ECX): (0, 9, 13, 19, 20, 23), (0x80000001, _ECX): (0,)},
    3: {(1, _ECX): (12, 22, 27, 28, 29), (7, _EBX): (3, 5, 8), (0x80000001, _ECX): (5,)},
    4: {(7, _EBX): (16, 17, 28, 30, 31)},
}
"""By level of x86-64, the bits of `cpuid` that all of its processors set, by leaf and register."""

_XMM_YMM, _ZMM = 0b110, 0b11100110
"""Bits of XCR0: registers that the system saves."""


def _make_cpu_level(module: ir.Module) -> None:
    """The level of x86-64 of this processor and system, from `cpuid` and `xgetbv`."""
    registers = ir.LiteralStructType([_I32] * 4)
    cpuid = ir.InlineAsm(
        ir.FunctionType(registers, [_I32, _I32]), "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}", side_effect=True
    )
    xgetbv = ir.InlineAsm(
        ir.FunctionType(ir.LiteralStructType([_I32] * 2), [_I32]), "xgetbv", "={ax},={dx},{cx}", side_effect=True
    )
    function = ir.Function(module, ir.FunctionType(_I32, []), CPU_LEVEL)
    builder = ir.IRBuilder(function.append_basic_block())
    for level, leaves in _LEAF_BITS.items():
        for (leaf, register), bits in leaves.items():
            group = leaf & 0x80000000
            highest = builder.extract_value(builder.call(cpuid, [_I32(group), _I32(0)]), _EAX)
            with builder.if_then(builder.icmp_unsigned("<", highest, _I32(leaf))):
                builder.ret(_I32(level - 1))
            value = builder.extract_value(builder.call(cpuid, [_I32(leaf), _I32(0)]), register)
            _return_unless(builder, value, sum(1 << bit for bit in bits), level - 1)
        if level > 2:
            saved = builder.extract_value(builder.call(xgetbv, [_I32(0)]), 0)
            _return_unless(builder, saved, _XMM_YMM if level == 3 else _ZMM, level - 1)
    builder.ret(_I32(4))


def _return_unless(builder: ir.IRBuilder, value: ir.Value, mask: int, result: int) -> None:
    """Return a result if a bit of a mask is not set."""
    with builder.if_then(builder.icmp_unsigned("!=", builder.and_(value, _I32(mask)), _I32(mask))):
        builder.ret(_I32(result))
