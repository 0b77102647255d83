"""Object files of kernels for one level of processors: run as a program, with UNPOOL_LEVEL set.

Numba compiles for the processor of this process. Here its code generator is given the target machine of another
processor, and no code is loaded into this process.
"""

import platform
import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from llvmlite import binding, ir
from llvmlite.binding import Linkage, StorageClass, Visibility
from numba.core import codegen, typed_passes
from numba.core.callconv import CPUCallConv
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.cpu import CPUContext
from numba.core.lowering import Lower
from numba.core.registry import cpu_target
from numba.extending import overload
from numba.np import arrayobj

from unpool.build.catalogue import record_kernels
from unpool.build.fastcall import make_c_function, make_fastcall
from unpool.build.numbers import number_of
from unpool.build.runtime import make_runtime
from unpool.build.targets import TARGETS, Target
from unpool.kernels.cpu.machine import cache, libraries
from unpool.kernels.cpu.machine.entry_point import make_c_entry, make_entry_point
from unpool.kernels.cpu.machine.numba_internals import without_gc


class _Lowering(Lower):
    """Exports a kernel under its symbol; functions that it calls are compiled as always, and become part of it."""

    symbol = ""
    is_c_function = False

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        context, function = self.context, self.fndesc
        module = context.create_module("entry")
        kind = context.call_conv.get_function_type(function.restype, function.argtypes)
        kernel = ir.Function(module, kind, function.llvm_func_name)
        if tuple(function.args[-2:]) == ("first", "stop"):
            make_c_entry(module, kernel, function.restype, f"{self.symbol}{libraries.C_ENTRY}")
            kernel = make_entry_point(module, kernel, function.restype)
        make = make_c_function if self.is_c_function else make_fastcall
        make(context, module, self.symbol, kernel, function)
        self.library.add_ir_module(module)

    def create_cfunc_wrapper(self) -> None:
        pass


@register_pass(mutates_CFG=True, analysis_only=False)
class _LoweringPass(typed_passes.NativeLowering):
    lowering_class = _Lowering


class _Compiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state, "unpool")
        native = typed_passes.NativeLowering
        pipeline.passes = [(_LoweringPass if step is native else step, text) for step, text in pipeline.passes]
        pipeline.finalize()
        return [pipeline]


def compile_kernels(target: Target, level: str, folder: Path, only: str, share: int, shares: int) -> None:
    """Write an object file for every `shares`-th kernel whose name contains `only`, beginning with number `share`.

    Share 0 also has the runtime. That runs on the target's first level, because it finds the level of a processor.
    """
    machine = _retarget(target, level)
    _drop_messages()
    kernels = sorted(item for item in record_kernels().items() if only in item[1].kernel.name)
    if share == 0:
        numbers = {symbol: number_of(each.kernel.name, each.type_names) for symbol, each in kernels}
        table = {number: f"{symbol}{libraries.C_ENTRY}" for symbol, number in numbers.items() if number is not None}
        runtime = binding.parse_assembly(str(make_runtime(table, is_x86=level.startswith("x86"))))
        lowest = _machine(target, next(iter(target.processors)))
        exported = {libraries.PYTHON_TABLE, libraries.KERNEL_TABLE, libraries.CPU_LEVEL, libraries.SOURCES}
        _export(target, runtime, exported, Linkage.external, Visibility.hidden)
        _write(folder / "runtime.o", lowest, runtime)
    for symbol, (kernel, types, _, is_c_function) in kernels[share::shares]:
        _Lowering.symbol, _Lowering.is_c_function = symbol, is_c_function
        dispatcher = kernel.dispatcher
        flags = Flags()
        options = {name: value for name, value in dispatcher.targetoptions.items() if name != "pipeline_class"}
        cpu_target.options.parse_as_flags(flags, options)
        flags.no_compile = True
        context = cpu_target.target_context
        compile_kernel = partial(compile_extra, pipeline_class=_Compiler)
        result = without_gc(
            compile_kernel, cpu_target.typing_context, context, dispatcher.py_func, types, None, flags, {}
        )
        result.library.finalize()
        module = result.library._final_module
        _export(target, module, {symbol, f"{symbol}{libraries.C_ENTRY}"}, Linkage.internal, Visibility.default)
        _write(folder / f"{symbol}.o", machine, module)


def _retarget(target: Target, level: str) -> Any:
    """Make Numba compile for another machine without loading the code; the target machine."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    machine = _machine(target, level)
    generator = cpu_target.target_context.codegen()
    generator._tm, generator._data_layout = machine, str(machine.target_data)
    binding.get_process_triple = lambda: target.triple
    cache.cache_of = lambda _: None
    platform.system, platform.machine = lambda: target.system, lambda: target.machine
    codegen.JITCodeLibrary._finalize_specific = lambda self: None
    numbers = count()
    CPUContext.get_executable = lambda self, *_: [next(numbers)].append  # the names differ, and nothing calls them
    return machine


def _drop_messages() -> None:
    """Leave out the texts of errors, which need Python and Numba's runtime: a library returns a status instead."""

    def return_error(self: Any, builder: ir.IRBuilder, kind: Any, *_: Any, **__: Any) -> None:
        self.return_user_exc(builder, kind)

    def refuse_shape(source: Any, target: Any) -> None:
        """An array of one shape was assigned to a slice of another one."""

    @overload(refuse_shape)
    def _refuse_shape(source, target):
        def refuse(source, target):
            raise ValueError

        return refuse

    CPUCallConv.return_dynamic_user_exc = return_error
    arrayobj.raise_with_shape_context = refuse_shape


def _machine(target: Target, level: str) -> Any:
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.processors[level], opt=3, reloc="pic", codemodel="default"
    )


def _export(target: Target, module: Any, names: set[str], linkage: Linkage, visibility: Visibility) -> None:
    """Export these names of a module, and give all others a linkage and a visibility.

    Then two libraries with the same names do not call each other's functions.
    """
    for value in (*module.functions, *module.global_variables):
        if value.is_declaration:
            continue
        if value.name not in names:
            value.linkage, value.visibility = linkage, visibility
        elif target.system == "Windows":  # if no symbol is marked, the linker exports all
            value.storage_class = StorageClass.dllexport


def _write(path: Path, machine: Any, module: Any) -> None:
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=0)))
    path.write_bytes(machine.emit_object(module))


if __name__ == "__main__":
    name, level_name, folder_name, only_text, share_text, shares_text = sys.argv[1:]
    with global_compiler_lock:
        compile_kernels(TARGETS[name], level_name, Path(folder_name), only_text, int(share_text), int(shares_text))
