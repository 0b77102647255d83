"""What Python calls of a kernel: the kernel itself, or a way to share its jobs with threads that hold no lock.

    kernel(*args, first, stop)           computes the jobs from `first` to `stop`
    kernel(*args, SHARED, id(board))     has the jobs that the board names computed, by all who look at the board

A board is a record of one call, an int64 array whose words are named here and in `board.py`. The kernel writes down
there where its code and its arguments are, and calls the board's function `lead`. That calls `entry(board, first, stop,
part)` for every part, here or in other threads, and returns when all have ended. Nothing of this needs Python, which
unpacked the arguments once and frees them afterwards.

Numba's kernels give a status, and take two pointers before their arguments: to the result, and to the address of an
exception that comes with a status other than 0.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

SHARED = -1
"""What stands for the first job where the last argument is a board; no job has this number."""

LEAD, ENTRY, ARGUMENTS, STATUS, EXCEPTION, RESULTS = range(6)
"""Words of a board: addresses of three things, status and exception of a part that failed, bytes before the results."""

_WORD, _I32 = ir.IntType(64), ir.IntType(32)
_ENTRY = ir.FunctionType(ir.VoidType(), [_WORD] * 4)
_LEAD = ir.FunctionType(_WORD, [_WORD])


def _place(builder, board, word):
    return builder.inttoptr(builder.add(board, _WORD(8 * word)), _WORD.as_pointer())


def _function(module, kernel, kind, name):
    function = ir.Function(module, kind, f"{kernel.name}.{name}")
    function.linkage = "internal"
    return function, ir.IRBuilder(function.append_basic_block())


def _entry(module, kernel, result_type):
    """Computes one part, with arguments from the board; its result becomes a word there."""
    function, builder = _function(module, kernel, _ENTRY, "part")
    board, first, stop, part = function.args
    result_place, failure_place, *arguments = (argument.type for argument in kernel.args)
    result = cgutils.alloca_once(builder, result_place.pointee)
    failure = cgutils.alloca_once(builder, failure_place.pointee)
    block = ir.LiteralStructType(arguments[:-2]).as_pointer()
    given = builder.load(builder.inttoptr(builder.load(_place(builder, board, ARGUMENTS)), block))
    values = [builder.extract_value(given, number) for number in range(len(arguments) - 2)]
    status = builder.call(kernel, [result, failure, *values, first, stop], attrs=("noinline",))
    with cgutils.if_unlikely(builder, builder.icmp_signed("!=", status, _I32(0))):
        builder.store(builder.ptrtoint(builder.load(failure), _WORD), _place(builder, board, EXCEPTION))
        builder.store(builder.sext(status, _WORD), _place(builder, board, STATUS))
    if isinstance(result_type, (types.Integer, types.Boolean)):
        widen = builder.zext if isinstance(result_type, types.Boolean) else builder.sext
        value = builder.load(result)
        value = value if value.type == _WORD else widen(value, _WORD)
        results = builder.add(board, builder.load(_place(builder, board, RESULTS)))
        builder.store(value, _place(builder, builder.add(results, builder.mul(part, _WORD(8))), 0))
    elif not isinstance(result_type, types.NoneType):
        raise TypeError(f"{kernel.name}: a kernel that shares its jobs returns a bool, an int or None")
    builder.ret_void()
    return function


def entrance(module, kernel, result_type):
    """A function with the signature of a kernel, which is only declared in the module, for Python to call instead."""
    entry = _entry(module, kernel, result_type)
    function, builder = _function(module, kernel, kernel.function_type, "entrance")
    _, failure, *arguments, first, last = function.args
    with builder.if_then(builder.icmp_signed("!=", first, _WORD(SHARED))):
        builder.ret(builder.call(kernel, function.args, attrs=("noinline",)))
    array = builder.add(last, _WORD(object.__basicsize__))
    board = builder.load(builder.inttoptr(array, _WORD.as_pointer()))
    block = builder.alloca(ir.LiteralStructType([argument.type for argument in arguments]))
    for number, argument in enumerate(arguments):
        builder.store(argument, builder.gep(block, [_I32(0), _I32(number)]))
    for word, value in ((ENTRY, entry), (ARGUMENTS, block)):
        builder.store(builder.ptrtoint(value, _WORD), _place(builder, board, word))
    lead = builder.inttoptr(builder.load(_place(builder, board, LEAD)), _LEAD.as_pointer())
    builder.call(lead, [board])
    problem = builder.load(_place(builder, board, EXCEPTION))
    builder.store(builder.inttoptr(problem, failure.type.pointee), failure)
    builder.ret(builder.trunc(builder.load(_place(builder, board, STATUS)), _I32))
    return function
