"""The entry point of kernels that can share their jobs with other threads.

Python calls it instead of a kernel whose last parameters are `first` and `stop`:

    kernel(*args, first, stop)          computes the jobs from `first` to `stop`
    kernel(*args, SHARED, id(task))     lets all threads that see the task compute its jobs

A task is the record of one call, an int64 array whose words `task.py` names. The entry point writes the
addresses of the kernel's code and of its arguments into it, and calls `run_as_caller`, whose address is in the task.
That calls `run_part(task, first, stop, part)` for every part, in this or in other threads, and returns when all have
ended. Python is not needed for it: it unpacked the arguments before, and frees them afterwards.

Kernels of Numba return a status, and take two pointers before their arguments: to the result, and to the address of an
exception, which comes with a status other than 0.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.machine.task import ARGUMENTS, EXCEPTION, RESULTS, RUN_AS_CALLER, RUN_PART, SHARED, STATUS

_WORD, _I32 = ir.IntType(64), ir.IntType(32)
_PART_TYPE = ir.FunctionType(ir.VoidType(), [_WORD] * 4)
_CALLER_TYPE = ir.FunctionType(_WORD, [_WORD])


def _pointer(builder, task, word):
    return builder.inttoptr(builder.add(task, _WORD(8 * word)), _WORD.as_pointer())


def _function(module, kernel, kind, name):
    function = ir.Function(module, kind, f"{kernel.name}.{name}")
    function.linkage = "internal"
    return function, ir.IRBuilder(function.append_basic_block())


def _make_part_runner(module, kernel, result_type):
    """The function that computes one part, with arguments from the task, and writes the result there, as a word."""
    function, builder = _function(module, kernel, _PART_TYPE, "part")
    task, first, stop, part = function.args
    result_pointer, exception_pointer, *arguments = (argument.type for argument in kernel.args)
    result = cgutils.alloca_once(builder, result_pointer.pointee)
    exception = cgutils.alloca_once(builder, exception_pointer.pointee)
    block = ir.LiteralStructType(arguments[:-2]).as_pointer()
    packed = builder.load(builder.inttoptr(builder.load(_pointer(builder, task, ARGUMENTS)), block))
    values = [builder.extract_value(packed, number) for number in range(len(arguments) - 2)]
    status = builder.call(kernel, [result, exception, *values, first, stop], attrs=("noinline",))
    with cgutils.if_unlikely(builder, builder.icmp_signed("!=", status, _I32(0))):
        builder.store(builder.ptrtoint(builder.load(exception), _WORD), _pointer(builder, task, EXCEPTION))
        builder.store(builder.sext(status, _WORD), _pointer(builder, task, STATUS))
    if isinstance(result_type, (types.Integer, types.Boolean)):
        widen = builder.zext if isinstance(result_type, types.Boolean) else builder.sext
        value = builder.load(result)
        value = value if value.type == _WORD else widen(value, _WORD)
        results = builder.add(task, builder.load(_pointer(builder, task, RESULTS)))
        builder.store(value, _pointer(builder, builder.add(results, builder.mul(part, _WORD(8))), 0))
    elif not isinstance(result_type, types.NoneType):
        raise TypeError(f"{kernel.name}: a kernel that shares its jobs returns a bool, an int or None")
    builder.ret_void()
    return function


def make_entry_point(module, kernel, result_type):
    """The function that Python calls, with the signature of a kernel that the module declares."""
    run_part = _make_part_runner(module, kernel, result_type)
    function, builder = _function(module, kernel, kernel.function_type, "entrance")
    _, exception, *arguments, first, last = function.args
    with builder.if_then(builder.icmp_signed("!=", first, _WORD(SHARED))):
        builder.ret(builder.call(kernel, function.args, attrs=("noinline",)))
    array = builder.add(last, _WORD(object.__basicsize__))
    task = builder.load(builder.inttoptr(array, _WORD.as_pointer()))
    block = builder.alloca(ir.LiteralStructType([argument.type for argument in arguments]))
    for number, argument in enumerate(arguments):
        builder.store(argument, builder.gep(block, [_I32(0), _I32(number)]))
    for word, value in ((RUN_PART, run_part), (ARGUMENTS, block)):
        builder.store(builder.ptrtoint(value, _WORD), _pointer(builder, task, word))
    run_as_caller = builder.load(_pointer(builder, task, RUN_AS_CALLER))
    builder.call(builder.inttoptr(run_as_caller, _CALLER_TYPE.as_pointer()), [task])
    failure = builder.load(_pointer(builder, task, EXCEPTION))
    builder.store(builder.inttoptr(failure, exception.type.pointee), exception)
    builder.ret(builder.trunc(builder.load(_pointer(builder, task, STATUS)), _I32))
    return function
