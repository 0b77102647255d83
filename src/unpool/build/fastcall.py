"""A kernel as a Python function, in LLVM's code: METH_FASTCALL without the headers of Python.

It reads the fields of NumPy's arrays, of tuples and numbers, releases the interpreter lock, calls the entry point of
the kernel, and returns an int. The sizes of Python's objects and the addresses of CPython's functions differ between
releases: the loader writes them into a table.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.machine.libraries import PYTHON_ENTRIES, PYTHON_TABLE

_I32, _WORD = ir.IntType(32), ir.IntType(64)
_DATA, _SHAPE, _STRIDES = 0, 16, 24  # bytes between the header of NumPy's array and its fields
_SIGNATURES = {
    "PyLong_AsLongLong": (_WORD, [_WORD]), "PyLong_FromLongLong": (_WORD, [_WORD]),
    "PyFloat_AsDouble": (ir.DoubleType(), [_WORD]), "PyEval_SaveThread": (_WORD, []),
    "PyEval_RestoreThread": (ir.VoidType(), [_WORD]), "PyErr_NoMemory": (_WORD, []),
}  # fmt: skip


def _entry(builder, name):
    """The word of the table with a size or an address."""
    kind = ir.ArrayType(_WORD, len(PYTHON_ENTRIES))
    table = builder.module.globals.get(PYTHON_TABLE) or ir.GlobalVariable(builder.module, kind, PYTHON_TABLE)
    return builder.load(builder.gep(table, [_I32(0), _I32(PYTHON_ENTRIES.index(name))]))


def _call_python(builder, name, *args):
    function = builder.inttoptr(_entry(builder, name), ir.FunctionType(*_SIGNATURES[name]).as_pointer())
    return builder.call(function, args)


def _word_at(builder, address, offset):
    return builder.load(builder.inttoptr(builder.add(address, _WORD(offset)), _WORD.as_pointer()))


def _unbox(context, builder, kind, value):
    """The value of a Python object, given its address, as Numba passes it."""
    if isinstance(kind, types.BaseTuple):
        first = builder.add(value, _entry(builder, "tuple"))
        items = [
            _unbox(context, builder, each, _word_at(builder, first, 8 * number)) for number, each in enumerate(kind)
        ]
        return context.make_tuple(builder, kind, items)
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder)
        fields = builder.add(value, _entry(builder, "object"))
        shape, strides = (_word_at(builder, fields, offset) for offset in (_SHAPE, _STRIDES))
        sizes = [_word_at(builder, shape, 8 * axis) for axis in range(kind.ndim)]
        nitems = _WORD(1)
        for size in sizes:
            nitems = builder.mul(nitems, size)
        array.nitems, array.itemsize = nitems, _WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        array.data = builder.inttoptr(_word_at(builder, fields, _DATA), array.data.type)
        array.shape = cgutils.pack_array(builder, sizes)
        array.strides = cgutils.pack_array(builder, [_word_at(builder, strides, 8 * axis) for axis in range(kind.ndim)])
        return array._getvalue()
    if isinstance(kind, types.Float):
        number = _call_python(builder, "PyFloat_AsDouble", value)
        return number if kind.bitwidth == 64 else builder.fptrunc(number, ir.FloatType())
    number = _call_python(builder, "PyLong_AsLongLong", value)
    target = context.get_value_type(kind)
    return number if target == _WORD else builder.trunc(number, target)


def make_fastcall(context, module, name, entry_point, function):
    """The Python function `name` of a module, which calls an entry point with the types of Numba's `function`."""
    made = ir.Function(module, ir.FunctionType(_WORD, [_WORD, _WORD, _WORD]), name)
    builder = ir.IRBuilder(made.append_basic_block())
    items = made.args[1]
    values = [
        _unbox(context, builder, kind, _word_at(builder, items, 8 * number))
        for number, kind in enumerate(function.argtypes)
    ]
    thread = _call_python(builder, "PyEval_SaveThread")
    status, result = context.call_conv.call_function(builder, entry_point, function.restype, function.argtypes, values)
    _call_python(builder, "PyEval_RestoreThread", thread)
    with cgutils.if_unlikely(builder, status.is_error):
        builder.ret(_call_python(builder, "PyErr_NoMemory"))
    if isinstance(function.restype, types.NoneType):
        result = _WORD(0)
    elif result.type != _WORD:
        widen = builder.zext if isinstance(function.restype, types.Boolean) else builder.sext
        result = widen(result, _WORD)
    builder.ret(_call_python(builder, "PyLong_FromLongLong", result))


def make_c_function(context, module, name, entry_point, function):
    """The function `name` of a module in C's calling convention, for a kernel that takes and returns an int64."""
    made = ir.Function(module, ir.FunctionType(_WORD, [_WORD]), name)
    builder = ir.IRBuilder(made.append_basic_block())
    _, result = context.call_conv.call_function(builder, entry_point, function.restype, function.argtypes, made.args)
    builder.ret(result)
