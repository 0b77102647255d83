"""What Python calls of a kernel: the kernel itself, or a way to share its jobs with threads that hold no lock.

    kernel(*args, first, stop)        computes the jobs from `first` to `stop`
    kernel(*args, -id(board), jobs)   hangs itself and its arguments on the board, and has all jobs computed through it

The board is an int64 array, laid out as in `board.py`; its function `lead` is called, which calls `entry(board, first,
stop, part)` for every part, here or in other threads, and returns when all have ended. Nothing of this needs Python,
which unpacked the arguments once and frees them afterwards.
"""

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.callwrapper import PyCallWrapper
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

LEAD, ENTRY, ARGUMENTS, STATUS, EXCEPTION, RESULTS, JOBS = range(7)
"""Words of a board: addresses, status and exception of a part that failed, bytes before the results, number of jobs."""

_WORD, _I32 = ir.IntType(64), ir.IntType(32)
_ENTRY = ir.FunctionType(ir.VoidType(), [_WORD] * 4)
_LEAD = ir.FunctionType(_WORD, [_WORD])


class _Lower(Lower):
    def create_cpython_wrapper(self, release_gil=False):
        """As Numba's, of an entrance before the kernel."""
        if tuple(self.fndesc.args[-2:]) != ("first", "stop"):
            super().create_cpython_wrapper(release_gil)
            return
        context, about = self.context, self.fndesc
        module = context.create_module("entry")
        kind = context.call_conv.get_function_type(about.restype, about.argtypes)
        kernel = ir.Function(module, kind, about.llvm_func_name)
        entrance = _entrance(module, kernel, _entry(module, kernel, about.restype))
        PyCallWrapper(context, module, entrance, about, self.env, self.call_helper, release_gil).build()
        self.library.add_ir_module(module)

    def create_cfunc_wrapper(self):
        """Only where nothing else is there for callers outside Python."""
        if tuple(self.fndesc.args[-2:]) != ("first", "stop"):
            super().create_cfunc_wrapper()


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    lowering_class = _Lower


class Compiler(CompilerBase):
    """Numba's, but for what Python calls."""

    def define_pipelines(self):
        """One: without Python objects."""
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state, "unpool")
        pipeline.passes = [(_Lowering if each is NativeLowering else each, about) for each, about in pipeline.passes]
        pipeline.finalize()
        return [pipeline]


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


def _entrance(module, kernel, entry):
    """Has the signature of the kernel."""
    function, builder = _function(module, kernel, kernel.function_type, "entrance")
    _, failure, *arguments, first, stop = function.args
    with builder.if_then(builder.icmp_signed(">=", first, _WORD(0))):
        builder.ret(builder.call(kernel, function.args, attrs=("noinline",)))
    array = builder.add(builder.neg(first), _WORD(object.__basicsize__))
    board = builder.load(builder.inttoptr(array, _WORD.as_pointer()))
    block = builder.alloca(ir.LiteralStructType([argument.type for argument in arguments]))
    for number, argument in enumerate(arguments):
        builder.store(argument, builder.gep(block, [_I32(0), _I32(number)]))
    for word, value in ((ENTRY, entry), (ARGUMENTS, block)):
        builder.store(builder.ptrtoint(value, _WORD), _place(builder, board, word))
    builder.store(stop, _place(builder, board, JOBS))
    lead = builder.inttoptr(builder.load(_place(builder, board, LEAD)), _LEAD.as_pointer())
    builder.call(lead, [board])
    problem = builder.load(_place(builder, board, EXCEPTION))
    builder.store(builder.inttoptr(problem, failure.type.pointee), failure)
    builder.ret(builder.trunc(builder.load(_place(builder, board, STATUS)), _I32))
    return function
