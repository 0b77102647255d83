"""Entry points of the kernels whose jobs threads can share: those whose last parameters are `first` and `stop`.

The C entry takes the other arguments as words, 64 bits each, in the order of Numba's calling convention: a number, an
address, or for an array seven words and more (`words_of` in `plan.py`). It returns the result of the kernel, 0 if there
is none, or OUT_OF_MEMORY.

    int64 kernel(const int64 *words, int64 first, int64 stop)

Python calls the other entry:

    kernel(*args, first, stop)          computes the jobs from `first` to `stop`
    kernel(*args, SHARED, id(task))     lets all threads that see the task compute its jobs

A task is the record of one call, an int64 array whose words `task.py` names. The entry point writes the
addresses of the kernel's code and of its words into it, and calls `run_as_caller`, whose address is in the task.
`run_as_caller` calls `run_part(task, first, stop, part)` for every part, in this thread or in others, and returns when
all parts have ended. Meanwhile Python is not needed: it has unpacked the arguments before, and frees them afterwards.

Kernels of Numba return a status, and take two pointers before their arguments: to the result, and to the address of an
exception, which comes with a status other than 0.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.machine.task import (
    ARGUMENTS,
    EXCEPTION,
    OUT_OF_MEMORY,
    RESULTS,
    RUN_AS_CALLER,
    RUN_PART,
    SHARED,
    STATUS,
)

_WORD, _I32 = ir.IntType(64), ir.IntType(32)
_PART_TYPE = ir.FunctionType(ir.VoidType(), [_WORD] * 4)
_CALLER_TYPE = ir.FunctionType(_WORD, [_WORD])


def _pointer(builder, task, word):
    return builder.inttoptr(builder.add(task, _WORD(8 * word)), _WORD.as_pointer())


def _function(module, kernel, kind, name):
    function = ir.Function(module, kind, f"{kernel.name}.{name}")
    function.linkage = "internal"
    return function, ir.IRBuilder(function.append_basic_block())


def _call(builder, kernel, result_type, words, first, stop):
    """Call the kernel with arguments from words; the status, the result as a word, and the pointer to the exception."""
    result_pointer, exception_pointer, *arguments = (argument.type for argument in kernel.args)
    result = cgutils.alloca_once(builder, result_pointer.pointee)
    exception = cgutils.alloca_once(builder, exception_pointer.pointee)
    values = [
        _from_word(builder, builder.load(_pointer(builder, words, number)), kind)
        for number, kind in enumerate(arguments[:-2])
    ]
    status = builder.call(kernel, [result, exception, *values, first, stop], attrs=("noinline",))
    if isinstance(result_type, types.NoneType):
        return status, _WORD(0), exception
    if not isinstance(result_type, (types.Integer, types.Boolean)):
        raise TypeError(f"{kernel.name}: a kernel that shares its jobs returns a bool, an int or None")
    value = builder.load(result)
    if value.type != _WORD:
        widen = builder.zext if isinstance(result_type, types.Boolean) else builder.sext
        value = widen(value, _WORD)
    return status, value, exception


def _to_word(builder, value):
    """A number, or an address, as 64 bits."""
    if isinstance(value.type, ir.PointerType):
        return builder.ptrtoint(value, _WORD)
    if isinstance(value.type, ir.DoubleType):
        return builder.bitcast(value, _WORD)
    if isinstance(value.type, ir.FloatType):
        return builder.zext(builder.bitcast(value, _I32), _WORD)
    return value if value.type == _WORD else builder.zext(value, _WORD)


def _from_word(builder, word, kind):
    """The value of a type in 64 bits."""
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(word, kind)
    if isinstance(kind, ir.DoubleType):
        return builder.bitcast(word, kind)
    if isinstance(kind, ir.FloatType):
        return builder.bitcast(builder.trunc(word, _I32), kind)
    return word if kind == _WORD else builder.trunc(word, kind)


def _make_part_runner(module, kernel, result_type):
    """The function that computes one part, with arguments from the task, and writes the result there, as a word."""
    function, builder = _function(module, kernel, _PART_TYPE, "part")
    task, first, stop, part = function.args
    words = builder.load(_pointer(builder, task, ARGUMENTS))
    status, value, exception = _call(builder, kernel, result_type, words, first, stop)
    with cgutils.if_unlikely(builder, builder.icmp_signed("!=", status, _I32(0))):
        builder.store(builder.ptrtoint(builder.load(exception), _WORD), _pointer(builder, task, EXCEPTION))
        builder.store(builder.sext(status, _WORD), _pointer(builder, task, STATUS))
    if not isinstance(result_type, types.NoneType):
        results = builder.add(task, builder.load(_pointer(builder, task, RESULTS)))
        builder.store(value, _pointer(builder, builder.add(results, builder.mul(part, _WORD(8))), 0))
    builder.ret_void()
    return function


def make_c_entry(module, kernel, result_type, name):
    """The function `int64 name(const int64 *words, int64 first, int64 stop)`, which needs no Python."""
    function = ir.Function(module, ir.FunctionType(_WORD, [_WORD] * 3), name)
    builder = ir.IRBuilder(function.append_basic_block())
    status, value, _ = _call(builder, kernel, result_type, *function.args)
    builder.ret(builder.select(builder.icmp_signed("==", status, _I32(0)), value, _WORD(OUT_OF_MEMORY)))


def make_entry_point(module, kernel, result_type):
    """The function that Python calls, with the signature of a kernel that the module declares."""
    run_part = _make_part_runner(module, kernel, result_type)
    function, builder = _function(module, kernel, kernel.function_type, "entrance")
    _, exception, *arguments, first, last = function.args
    with builder.if_then(builder.icmp_signed("!=", first, _WORD(SHARED))):
        builder.ret(builder.call(kernel, function.args, attrs=("noinline",)))
    array = builder.add(last, _WORD(object.__basicsize__))
    task = builder.load(builder.inttoptr(array, _WORD.as_pointer()))
    words = builder.alloca(_WORD, size=_WORD(max(1, len(arguments))))
    for number, argument in enumerate(arguments):
        builder.store(_to_word(builder, argument), builder.gep(words, [_WORD(number)]))
    for word, value in ((RUN_PART, run_part), (ARGUMENTS, words)):
        builder.store(builder.ptrtoint(value, _WORD), _pointer(builder, task, word))
    run_as_caller = builder.load(_pointer(builder, task, RUN_AS_CALLER))
    builder.call(builder.inttoptr(run_as_caller, _CALLER_TYPE.as_pointer()), [task])
    failure = builder.load(_pointer(builder, task, EXCEPTION))
    builder.store(builder.inttoptr(failure, exception.type.pointee), exception)
    builder.ret(builder.trunc(builder.load(_pointer(builder, task, STATUS)), _I32))
    return function
