"""All uses of Numba beyond its public interface; pyproject.toml limits Numba to the versions that were tested.

Two things need them: threads that share a call without the interpreter lock (`jit.py`, `work_queue.py`), and machine
code on disk whose digest is checked before it is used (`cache.py`). `unpool/fork_safety.py` looks for two locks, too.
"""

import gc
import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numba
from llvmlite import ir
from numba import config, int64, typeof
from numba.core import serialize
from numba.core.compiler_lock import global_compiler_lock

from unpool.kernels.cpu.machine import host
from unpool.kernels.cpu.machine.checked_files import CheckedFiles

_C_ENTRY = ".c"  # after the name of a kernel
FRAME_WORDS = 1 << 16  # half a MiB: Python allocates a chunk for so large a frame, and puts later frames into it


@cache
def compiler() -> type[Any]:
    """Numba's compiler, as `pipeline_class` of `njit`, with an entry point for kernels that take `first` and `stop`."""
    from numba.core.callwrapper import PyCallWrapper
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import register_pass
    from numba.core.lowering import Lower
    from numba.core.typed_passes import NativeLowering

    from unpool.kernels.cpu.machine.entry_point import make_c_entry, make_entry_point

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
            make_c_entry(module, kernel, function.restype, f"{function.llvm_func_name}{_C_ENTRY}")
            self.library.add_ir_module(module)

        def create_cfunc_wrapper(self):
            """Make the wrapper only where callers outside Python have no other function."""
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
    """The machine code of one function on disk, which Numba's dispatcher asks for before it compiles.

    Numba's own cache writes an index before the machine code it names. Before it looks into its files, it also imports
    the implementations of everything that it can compile, with SciPy's linear algebra: 0.15 to 0.35 s. Here only a
    function that is not found imports them, because it is compiled.
    """

    def __init__(self, function: Callable[..., Any], files: CheckedFiles) -> None:
        """`files` hold the machine code of all functions."""
        code, cells = function.__code__, function.__closure__ or ()
        constants = serialize.dumps(tuple(cell.cell_contents for cell in cells)) if cells else b""
        self._function = (
            *(function.__module__, function.__qualname__, code.co_firstlineno, _file_digest(code.co_filename)),
            *(hashlib.sha256(part).hexdigest() for part in (code.co_code, constants)),
        )
        self._files = files
        self.cache_path = str(files.folders[0])  # for statistics of the dispatcher

    def load(self, signature: Any, context: Any) -> Any:
        """The compiled function, None if it is not there."""
        from numba.core.compiler import CompileResult
        from numba.core.runtime.nrt import rtsys

        rtsys.initialize(context)
        content = self._files.load(self._key(signature, context.codegen()))
        return None if content is None else CompileResult._rebuild(context, *content)

    def save(self, signature: Any, result: Any) -> None:
        """Save a compiled function, unless it contains addresses of this process."""
        if not result.library.has_dynamic_globals:
            self._files.save(self._key(signature, result.codegen), result._reduce())

    def _key(self, signature: Any, generator: Any) -> tuple[Any, ...]:
        """All that the machine code of these sources depends on."""
        settings = tuple((name, repr(getattr(config, name, None))) for name in _SETTINGS)
        return signature, self._function, generator.magic_tuple(), host.level().name, settings


_SETTINGS = (
    *("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "DISABLE_INTEL_SVML", "USING_SVML", "LLVM_REFPRUNE_PASS"),
    *("BOUNDSCHECK", "DEBUGINFO_DEFAULT", "ENABLE_PROFILING", "EXTEND_VARIABLE_LIFETIMES", "DEBUG_NRT"),
)
"""What Numba reads from NUMBA_OPT and the like, as far as machine code depends on it."""


@cache
def _file_digest(name: str) -> str:
    """The digest of a file of sources; empty if it is no file, as in an archive."""
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    except OSError:
        return ""


VERSION = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag, getattr(sys, "abiflags", ""))
"""The versions of what makes and loads machine code."""


def set_cache(kernel: Any, function_cache: Any) -> None:
    """Let a kernel call `function_cache.load_overload` before it compiles, and `save_overload` afterwards."""
    kernel._cache = function_cache


to_pickle: Callable[[Any], bytes] = serialize.dumps  # also of compiled functions


def entry_point(kernel: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiled function for arguments of these types, which does not check types again."""
    return _compile(kernel, tuple(map(typeof, args)))


def c_entry(kernel: Any, args: tuple[Any, ...]) -> int:
    """The address of the C entry for arguments of these types."""
    types = tuple(map(typeof, args))
    _compile(kernel, types)
    result = kernel.overloads[types]
    pointer: int = result.library.get_pointer_to_function(f"{result.fndesc.llvm_func_name}{_C_ENTRY}")
    return pointer


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

    Together this saves up to a fifth of the time. The objects of a compiler live until it has finished, so a collection
    would free nothing. Python frees a chunk of frames, 16 KiB, as soon as it is empty: where a function that a loop
    calls starts a new chunk, every iteration would allocate and zero one.
    Only one thread may be inside at a time, and the process must not fork meanwhile.
    """
    is_enabled = gc.isenabled()
    try:
        gc.disable()
        return _call_in_large_frame(function, *args)
    finally:
        if is_enabled:
            gc.enable()
