"""All that kernels use of Numba beside its public interface, and whether this Numba has it.

Two things need more than the public interface: threads that share a call without the interpreter lock (`entry.py`,
`board.py`), and machine code on disk that is only believed where it is whole (`cache.py`). The names for it are in
NEEDED, and only this file uses them, in the functions below. A Numba that lacks one of them, or the environment with
UNPOOL_NUMBA=plain, gives the plain mode instead: kernels are compiled and kept by `njit` alone, threads hand over their
parts through Python (`parts.py`), and results are the same to the bit.

`unpool/fork_safety.py`, which imports nothing of Numba, looks for two of its locks besides and does without them.
"""

import importlib
import inspect
import logging
import os
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import __version__, typeof

from unpool.kernels.cpu.machine.undisturbed import undisturbed

NEEDED = {
    "numba.core.caching:CompileResultCacheImpl.filename_base": "",
    "numba.core.caching:CompileResultCacheImpl.locator": "",
    "numba.core.caching:FunctionCache.__init__": "self py_func",
    "numba.core.caching:FunctionCache._cache_file": "",
    "numba.core.caching:FunctionCache._impl": "",
    "numba.core.caching:FunctionCache._load_overload": "self sig target_context",
    "numba.core.caching:FunctionCache._save_overload": "self sig data",
    "numba.core.caching:FunctionCache.cache_path": "",
    "numba.core.caching:FunctionCache.flush": "self",
    "numba.core.caching:InTreeCacheLocator.get_source_stamp": "self",
    "numba.core.callconv:CPUCallConv.get_function_type": "self restype argtypes",
    "numba.core.callwrapper:PyCallWrapper.__init__": "self context module func fndesc env call_helper release_gil",
    "numba.core.callwrapper:PyCallWrapper.build": "self",
    "numba.core.codegen:CodeLibrary.add_ir_module": "self ir_module",
    "numba.core.codegen:JITCodeLibrary.get_pointer_to_function": "self name",
    "numba.core.compiler:CompileResult.fndesc": "",
    "numba.core.compiler:CompileResult.library": "",
    "numba.core.compiler:CompilerBase.define_pipelines": "self",
    "numba.core.compiler:CompilerBase.state": "",
    "numba.core.compiler:DefaultPassBuilder.define_nopython_pipeline": "state name",
    "numba.core.compiler_lock:global_compiler_lock": "",
    "numba.core.compiler_machinery:PassManager.finalize": "self",
    "numba.core.compiler_machinery:PassManager.passes": "",
    "numba.core.compiler_machinery:register_pass": "mutates_CFG analysis_only",
    "numba.core.cpu:CPUContext.call_conv": "",
    "numba.core.cpu:CPUContext.create_module": "self name",
    "numba.core.dispatcher:Dispatcher._cache": "",
    "numba.core.dispatcher:Dispatcher.compile": "self sig",
    "numba.core.dispatcher:Dispatcher.overloads": "",
    "numba.core.funcdesc:FunctionDescriptor.args": "",
    "numba.core.funcdesc:FunctionDescriptor.argtypes": "",
    "numba.core.funcdesc:FunctionDescriptor.llvm_cfunc_wrapper_name": "",
    "numba.core.funcdesc:FunctionDescriptor.llvm_func_name": "",
    "numba.core.funcdesc:FunctionDescriptor.restype": "",
    "numba.core.lowering:Lower.call_helper": "",
    "numba.core.lowering:Lower.context": "",
    "numba.core.lowering:Lower.create_cfunc_wrapper": "self",
    "numba.core.lowering:Lower.create_cpython_wrapper": "self release_gil",
    "numba.core.lowering:Lower.env": "",
    "numba.core.lowering:Lower.fndesc": "",
    "numba.core.lowering:Lower.library": "",
    "numba.core.runtime.nrt:rtsys.initialize": "ctx",
    "numba.core.serialize:dumps": "obj",
    "numba.core.typed_passes:NativeLowering.lowering_class": "",
}
"""Module and name of what is used, and its parameters where it is called; what an object has stands with its class."""

_log = logging.getLogger("unpool")


@cache
def is_plain() -> bool:
    """Whether kernels do with Numba's public interface. It is found out once; a lack is logged as a warning.

    Raises:
        ValueError: UNPOOL_NUMBA says something unknown.
    """
    wish = os.environ.get("UNPOOL_NUMBA", "")
    if wish not in ("", "plain"):
        raise ValueError(f"UNPOOL_NUMBA: expected plain or nothing, got {wish!r}. Set it to plain, or unset it.")
    if wish == "plain":
        _log.info("kernels: UNPOOL_NUMBA=plain: only the public interface of Numba is used.")
        return True
    missing = lacking()
    if missing:
        _log.warning(
            "kernels: Numba %s has no %s as expected, so only its public interface is used. Results are the same; "
            "calls on several threads take some 50 µs longer, the first call of a process some 0.3 s, and damaged "
            "files in Numba's cache are not noticed. Install a version that unpool asks for.",
            __version__,
            ", no ".join(missing),
        )
    return bool(missing)


def lacking() -> list[str]:
    """The names of NEEDED that this Numba does not have as expected."""
    return [name for name, parameters in NEEDED.items() if not _is_there(name, parameters)]


def _is_there(name: str, parameters: str) -> bool:
    """Whether something can be had, with these parameters where any are given."""
    module, _, path = name.partition(":")
    try:
        owner: Any = None
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            owner, found = found, getattr(found, part, None)
        if found is None:
            return path.rpartition(".")[2] in _names_in_methods(owner)
        return not parameters or list(inspect.signature(found).parameters) == parameters.split()
    except Exception:  # whatever it is, it is not what is expected
        return False


def _names_in_methods(owner: Any) -> set[str]:
    """What the methods of a class mention: among it are the attributes that they give its objects."""
    methods = [each for base in inspect.getmro(owner) for each in vars(base).values()]
    return {name for each in methods if isinstance(each, FunctionType) for name in each.__code__.co_names}


@cache
def compiler(entrance: Callable[..., Any]) -> type[Any]:
    """Numba's compiler, for kernels before which an entrance is put; of use as `pipeline_class` of `njit`.

    Args:
        entrance: makes, of an LLVM module, the kernel declared in it and the type of its result, the function that
            Python calls instead. It is made for kernels whose last parameters are `first` and `stop`.
    """
    from numba.core.callwrapper import PyCallWrapper
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import register_pass
    from numba.core.lowering import Lower
    from numba.core.typed_passes import NativeLowering

    class Lowering(Lower):
        def create_cpython_wrapper(self, release_gil=False):
            """As Numba's, of the entrance."""
            if tuple(self.fndesc.args[-2:]) != ("first", "stop"):
                super().create_cpython_wrapper(release_gil)
                return
            context, about = self.context, self.fndesc
            module = context.create_module("entry")
            kind = context.call_conv.get_function_type(about.restype, about.argtypes)
            called = entrance(module, ir.Function(module, kind, about.llvm_func_name), about.restype)
            PyCallWrapper(context, module, called, about, self.env, self.call_helper, release_gil).build()
            self.library.add_ir_module(module)

        def create_cfunc_wrapper(self):
            """Only where nothing else is there for callers outside Python."""
            if tuple(self.fndesc.args[-2:]) != ("first", "stop"):
                super().create_cfunc_wrapper()

    @register_pass(mutates_CFG=True, analysis_only=False)
    class LoweringPass(NativeLowering):
        lowering_class = Lowering

    class Compiler(CompilerBase):
        def define_pipelines(self):
            """One: without Python objects."""
            found = DefaultPassBuilder.define_nopython_pipeline(self.state, "unpool")
            found.passes = [(LoweringPass if each is NativeLowering else each, about) for each, about in found.passes]
            found.finalize()
            return [found]

    return Compiler


class FunctionCache:
    """Numba's cache of one function, with files of another kind.

    Before it looks into its files, Numba's own imports the implementations of everything that it can compile, and with
    them SciPy's linear algebra where that is installed: 0.15 to 0.35 s. A function that is not found is compiled, and
    compiling imports them itself.
    """

    def __init__(self, function: Callable[..., Any], files: Callable[[str, str, Any], Any]) -> None:
        """As Numba's, which chooses the folder; OSError or RuntimeError where there is none.

        Args:
            function: what is compiled.
            files: makes, of the folder, the beginning of the names of files and what tells versions of the function's
                own source apart, an object with `load(key)`, `save(key, data)` and `flush()`.
        """
        from numba.core import caching

        self._numba = caching.FunctionCache(function)
        about, self.cache_path = self._numba._impl, self._numba.cache_path
        self._numba._cache_file = files(self.cache_path, about.filename_base, about.locator.get_source_stamp())

    def load(self, signature: Any, context: Any) -> Any:
        """The compiled function, None if it is not kept."""
        from numba.core.runtime.nrt import rtsys

        rtsys.initialize(context)
        return self._numba._load_overload(signature, context)

    def save(self, signature: Any, data: Any) -> None:
        """Keep a compiled function."""
        self._numba._save_overload(signature, data)

    def flush(self) -> None:
        """Keep nothing of what is kept."""
        self._numba.flush()


def keep_in(kept: Any, kernel: Any) -> None:
    """Have a kernel ask `kept.load_overload` before it compiles, and tell `kept.save_overload` afterwards."""
    kernel._cache = kept


def pickled(content: Any) -> bytes:
    """What `pickle.loads` makes the content of again, compiled functions included."""
    from numba.core.serialize import dumps

    found: bytes = dumps(content)
    return found


def entry_point(kernel: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiled function for arguments of these types, which no longer looks at them; plain, the kernel itself."""
    return kernel if is_plain() else _compile(kernel, tuple(map(typeof, args)))


def address(kernel: Any, types: tuple[Any, ...]) -> int:
    """Where the machine code of a kernel is, for callers that pass its arguments as C does."""
    _compile(kernel, types)
    made = kernel.overloads[types]
    found: int = made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)
    return found


def _compile(kernel: Any, types: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiled function; forks wait for the lock (`unpool/fork_safety.py`)."""
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        found: Callable[..., Any] = undisturbed(kernel.compile, types)
    return found
