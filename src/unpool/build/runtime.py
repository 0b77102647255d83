"""The runtime of a library: memory of arrays that kernels allocate, the table of Python's functions, and its sources.

Numba's compiled code counts references to such memory in its first word, and calls `NRT_MemInfo_call_dtor` after the
last one.
"""

from llvmlite import ir

from unpool.kernels.cpu.machine.checked_files import source_digest
from unpool.kernels.cpu.machine.libraries import CPU_LEVEL, PYTHON_ENTRIES, PYTHON_TABLE, SOURCES

_I32, _WORD = ir.IntType(32), ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_FIELDS = 5  # references, destructor and its argument, address of the data, size


def make_runtime(*, is_x86: bool) -> ir.Module:
    """The module that every library holds once; for x86 with the level of the processor."""
    module = ir.Module("runtime")
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

    release = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER]), "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(release.append_basic_block())
    builder.call(free, release.args)
    builder.ret_void()
    if is_x86:
        _make_cpu_level(module)
    return module


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
    """Return a result unless all bits of a mask are set."""
    with builder.if_then(builder.icmp_unsigned("!=", builder.and_(value, _I32(mask)), _I32(mask))):
        builder.ret(_I32(result))
