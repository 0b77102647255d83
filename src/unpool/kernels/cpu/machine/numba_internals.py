"""All uses of Numba beyond its public interface; pyproject.toml limits Numba to the versions that were tested.

Two things need them: threads that share a call without the interpreter lock (`jit.py`, `work_queue.py`), and machine
code on disk whose digest is checked before it is used (`cache.py`). `unpool/fork_safety.py` looks for two locks, too.
"""

import gc
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import int64, typeof
from numba.core import serialize
from numba.core.compiler_lock import global_compiler_lock

FRAME_WORDS = 1 << 16  # just above half a MiB: Python gives such a frame a chunk, which also holds the frames after it


@cache
def compiler() -> type[Any]:
    """Numba's compiler, as `pipeline_class` of `njit`, with an entry point for kernels that take `first` and `stop`."""
    from numba.core.callwrapper import PyCallWrapper
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import register_pass
    from numba.core.lowering import Lower
    from numba.core.typed_passes import NativeLowering

    from unpool.kernels.cpu.machine.entry_point import make_entry_point

    class Lowering(Lower):
        def create_cpython_wrapper(self, release_gil=False):
            if tuple(self.fndesc.args[-2:]) != ("first", "stop"):
                super().create_cpython_wrapper(release_gil)
                return
            context, function = self.context, self.fndesc
            module = context.create_module("entry")
            kind = context.call_conv.get_function_type(function.restype, function.argtypes)
            kernel = ir.Function(module, kind, function.llvm_func_name)
            entry_point = make_entry_point(module, kernel, function.restype)
            PyCallWrapper(context, module, entry_point, function, self.env, self.call_helper, release_gil).build()
            self.library.add_ir_module(module)

        def create_cfunc_wrapper(self):
            """Only where callers outside Python have no other function."""
            if tuple(self.fndesc.args[-2:]) != ("first", "stop"):
                super().create_cfunc_wrapper()

    @register_pass(mutates_CFG=True, analysis_only=False)
    class LoweringPass(NativeLowering):
        lowering_class = Lowering

    class Compiler(CompilerBase):
        def define_pipelines(self):
            """A single pipeline, without Python objects."""
            pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state, "unpool")
            passes = pipeline.passes
            pipeline.passes = [(LoweringPass if step is NativeLowering else step, text) for step, text in passes]
            pipeline.finalize()
            return [pipeline]

    return Compiler


class FunctionCache:
    """Numba's cache of one function, with files of another kind.

    Numba's own imports the implementations of all that it can compile before it looks into its files, with SciPy's
    linear algebra: 0.15 to 0.35 s. A function that is not found is compiled, which imports them anyway.
    """

    def __init__(self, function: Callable[..., Any], make_files: Callable[[str, str, Any], Any]) -> None:
        """Let Numba choose the folder for a function; OSError or RuntimeError where there is none.

        `make_files` makes an object with `load(key)`, `save(key, data)` and `flush()` from the folder, the first part
        of file names, and the stamp of the function's source.
        """
        from numba.core import caching

        numba = caching.FunctionCache(function)
        self.cache_path, self.flush = numba.cache_path, numba.flush
        self.save, self._load = numba._save_overload, numba._load_overload
        stamp = numba._impl.locator.get_source_stamp()
        numba._cache_file = make_files(self.cache_path, numba._impl.filename_base, stamp)

    def load(self, signature: Any, context: Any) -> Any:
        """The compiled function, None if it is not in the cache."""
        from numba.core.runtime.nrt import rtsys

        rtsys.initialize(context)
        return self._load(signature, context)


def set_cache(kernel: Any, function_cache: Any) -> None:
    """Let a kernel call `function_cache.load_overload` before it compiles, and `save_overload` afterwards."""
    kernel._cache = function_cache


to_pickle: Callable[[Any], bytes] = serialize.dumps  # of anything, compiled functions included


def entry_point(kernel: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiled function for arguments of these types, which does not check types again."""
    return _compile(kernel, tuple(map(typeof, args)))


def address(kernel: Any) -> int:
    """The address of a kernel that takes an int64, for callers that pass arguments as C does."""
    types = (int64,)
    _compile(kernel, types)
    result = kernel.overloads[types]
    pointer: int = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    return pointer


def _compile(kernel: Any, types: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiled function; forks wait for the lock (`unpool/fork_safety.py`)."""
    with global_compiler_lock:
        function: Callable[..., Any] = without_gc(kernel.compile, types)
    return function


_call = (lambda function, *args: function(*args)).__code__
_call_in_large_frame: Callable[..., Any] = FunctionType(_call.replace(co_stacksize=FRAME_WORDS), globals())


def without_gc(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that compiles, without garbage collection and with all frames in one chunk of memory.

    Together this saves up to a fifth of the time. Objects of a compiler live until it is done, so a collection finds
    nothing. And Python frees a chunk of 16 KiB of frames as soon as it is empty: a loop whose callee begins a chunk
    would allocate and zero memory in every turn. Call it once at a time, and not while the process forks.
    """
    is_enabled = gc.isenabled()
    try:
        gc.disable()
        return _call_in_large_frame(function, *args)
    finally:
        if is_enabled:
            gc.enable()
